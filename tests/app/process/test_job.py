"""Child commands of perftop, and the pseudo-terminal of a command."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attempts import up_to_three_attempts
from command import children
from hypothesis import given
from hypothesis import strategies as st
from waiting import MAX_WAIT_S, until_true, wait_for

from perftop.base import raw_ns
from perftop.base.errors import Failed
from perftop.process import job
from perftop.process.job import EXEC_FAILURES, Job, Run
from perftop.process.job_terminal import (
    INTERRUPT,
    MAX_BYTES,
    MAX_LINE_BYTES,
    MAX_LINES,
    JobTerminal,
    OutputLines,
    typed_keys,
    wait_for_key,
)
from perftop.tui.frame.command_output import printed_line


def run(*argv: str) -> Run:
    """Runs a command, of which no descriptor remains open."""

    async def wait(started: Job) -> Run:
        started.start_command()
        result = await started.wait_for_end()
        assert not asyncio.get_running_loop().remove_reader(started.marks), "nothing is read later"
        return result

    before = [*Path("/proc/self/fd").iterdir()]
    with Job(argv) as started:
        result = asyncio.run(wait(started))
    started.marks.close()
    assert [*Path("/proc/self/fd").iterdir()] == before
    return result


def test_missing_and_non_executable_programs_have_the_status_of_a_shell(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for name, status, text in (
        (str(tmp_path / "nothing"), 127, "command not found$"),
        ("no-such-program", 127, "is its directory in PATH"),
        ("", 127, "^'': command not found"),
        (str(tmp_path), 126, "it is a directory"),
        (str(plain), 126, "not executable"),
    ):
        with pytest.raises(Failed, match=text) as failure:
            Job([name])
        assert failure.value.status == status
    plain.chmod(0o700)
    plain.write_bytes(b"\0")
    broken = run(str(plain))
    assert (broken.status, broken.failure) == (126, EXEC_FAILURES[errno.ENOEXEC])


def test_the_command_does_not_inherit_an_ignored_sigpipe() -> None:
    """Python ignores SIGPIPE; a command that it starts must not."""
    result = run("sh", "-c", "yes | head -1 > /dev/null; kill -PIPE $$; exit 3")
    assert result.status == 128 + signal.SIGPIPE


INTERRUPTED = """
import os, signal
from perftop.process.job import Job

os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    Job(["true"])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_in_a_fork_hook_is_not_lost() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=MAX_WAIT_S
    )
    assert (result.stdout, result.stderr) == ("interrupted\n", "")


def test_costs_of_the_fork_are_subtracted() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    alone = os.wait4(pid, 0)[2]
    result = run("true")
    assert result.page_faults is not None
    assert 0 < result.page_faults < alone.ru_minflt + 150, "a fork of Python has some 400"
    assert result.disk_faults is not None
    assert result.disk_faults >= 0


def test_both_kinds_of_switches_and_of_faults_are_counted() -> None:
    fields = {"ru_utime": 1.5, "ru_stime": 0.5, "ru_minflt": 7, "ru_majflt": 2, "ru_nvcsw": 30,
              "ru_nivcsw": 4}  # fmt: skip
    usage: Any = SimpleNamespace(**fields)
    assert job._usage_numbers(usage) == (1.5, 0.5, 34, 9, 2)


@up_to_three_attempts
def test_the_end_is_recorded_while_the_event_loop_is_blocked() -> None:
    unblocked_ns = 0

    async def run_with_blocked_loop() -> Run:
        nonlocal unblocked_ns
        job = Job(["sleep", "0.1"])
        job.start_command()
        assert job._watcher is not None
        job._watcher.join()  # blocks the loop, as a write to a slow terminal
        unblocked_ns = raw_ns()
        return await job.wait_for_end()

    result = asyncio.run(run_with_blocked_loop())
    assert result.wall_s >= 0.1
    assert result.end_ns <= unblocked_ns
    assert result.late_s == 0


STOPPED = """
import asyncio
from perftop.process import job

job.CHECK_S = 0.1
command = job.Job(["sh", "-c", "echo started; read end"])
command.start_command()
done = asyncio.run(command.wait_for_end())
print(done.late_s, done.wall_s)
"""


def test_an_end_while_perftop_was_stopped_is_late() -> None:
    code = [sys.executable, "-c", STOPPED]
    pipe = subprocess.PIPE
    with subprocess.Popen(code, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        (command,) = children(process.pid)
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: _state(process.pid) == "T", "perftop is stopped")
        process.stdin.write("\n")
        process.stdin.flush()
        wait_for(lambda: _state(command) == "Z", "the command has ended")
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        late_s, wall_s = map(float, process.stdout.readline().split())
    assert 0.5 < late_s <= wall_s


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def test_a_command_runs_without_readable_proc_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "MEMORY_FILE", "/nonexistent")
    assert run("true").status == 0


# --- the terminal of a command


async def test_a_command_has_its_own_terminal_with_its_size() -> None:
    with JobTerminal(["sh", "-c", "stty size; tty; echo ready; exec cat"], 99, 12) as tty:
        tty.job.start_command()
        printed = bytearray()
        tty.follow(printed.extend)
        await until_true(lambda: b"ready" in printed, "it prints")
        tty.resize(70, 5)
        tty.send_keys(INTERRUPT)
        result = await tty.job.wait_for_end()
        assert result.status == 130
        await until_true(lambda: tty.is_closed, "no process has the terminal open")
    size, name, *_ = bytes(printed).splitlines()
    assert size == b"12 99"
    assert name.startswith(b"/dev/pts/")


@pytest.mark.parametrize("script", ["sleep 60 & exit 4", "timeout --foreground 60 yes & exit 4"])
async def test_background_processes_on_the_terminal_are_not_waited_for(script: str) -> None:
    to = os.open(os.devnull, os.O_WRONLY)
    with JobTerminal(["sh", "-c", f"trap '' HUP; {script}"], 80, 24) as tty:
        try:
            tty.job.start_command()
            copying = asyncio.ensure_future(asyncio.to_thread(tty.copy, to))
            result = await tty.job.wait_for_end()
            tty.finish()
            await asyncio.wait_for(copying, 50)
            assert result.status == 4
        finally:
            os.killpg(tty.job.pid, 9)
    os.close(to)


def printout_of(*pieces: bytes) -> OutputLines:
    output_lines = OutputLines()
    for piece in pieces:
        output_lines.add(piece)
        output_lines.split_lines()
    return output_lines


def visible_lines(output_lines: OutputLines) -> list[str]:
    return [printed_line(*output_lines[i]).text for i in range(len(output_lines))]


@pytest.mark.parametrize(("text", "expected_lines"), [
    (b"one\r\ntwo\r\n", ["one", "two"]),
    (b"an end without a newline", ["an end without a newline"]),
    (b"\n\nx\n", ["", "", "x"]),
    (b" 10 %\r 20 %\r100 %\n", ["100 %"]),
    (b"longer\rshort\n", ["shortr"]),
    (b"longer\r\x1b[Kshort\n", ["short"]),
    (b"abc\x1b[1Kd\n", ["   d"]),
    (b"abc\x1b[2Kd\n", ["   d"]),
    (b"abd\bc\n", ["abc"]),
    (b"\b\b\bx\n", ["x"]),
    (b"a\tb\n12345678\tc\n", ["a       b", "12345678        c"]),
    (b"\x1b[31mred\x1b[0m plain\n", ["red plain"]),
    (b"\x1b]0;a title\x07text\n", ["text"]),
    (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["link"]),
    (b"\x1b[2J\x1b[H\x1b[?1049h\x1b[10;10Hx\x1b[A\x1b(B\x1b=\x1b7\n", ["x"]),
    (b"bell\x07 null\x00 del\x7f c1\xc2\x9b2J\n", ["bell null del c12J"]),
    (b"half \xe2\x82", ["half \ufffd"]),
    ("€ ✓ 漢字\n".encode(), ["€ ✓ 漢字"]),
    (b"cut \x1b[3", ["cut"]),
])  # fmt: skip
def test_lines_are_kept_as_a_terminal_shows_them(text: bytes, expected_lines: list[str]) -> None:
    assert [line.rstrip() for line in visible_lines(printout_of(text))] == expected_lines


def test_text_has_the_colours_and_styles_of_the_output() -> None:
    (segment,) = printed_line(*printout_of(b"\x1b[1;2;3;4;7;9;31;44mx\n")[0])
    assert str(segment.style) == "bold dim italic underline reverse strike color(1) on color(4)"


@given(st.lists(st.sampled_from([b"\x1b", b"[", b"]", b"3", b"1", b";", b"m", b"K", b"J", b"\r",
                                 b"\b", b"\t", b"x", b"\xff", b"\xc2\x9b", b"\x07", b"\\", b"\n"]),
                max_size=40))  # fmt: skip
def test_only_visible_text_reaches_the_terminal(pieces: list[bytes]) -> None:
    output_lines = printout_of(b"".join(pieces))
    for i in range(len(output_lines)):
        for segment in printed_line(*output_lines[i]):
            assert segment.text.isprintable()
            assert segment.control is None
            style = segment.style
            assert style is None or not (style.blink or style.conceal or style.link)


@pytest.mark.parametrize("pieces", [(1500, 1500), (MAX_LINES,), (MAX_LINES + 1,), (5000, 1)])
def test_the_kept_output_is_limited_and_counts_dropped_lines(pieces: tuple[int, ...]) -> None:
    numbers = iter(range(10_000))
    output_lines = printout_of(
        *(b"".join(b"%d\n" % next(numbers) for _ in range(piece)) for piece in pieces)
    )
    dropped_count = max(0, sum(pieces) - MAX_LINES)
    assert output_lines.dropped_count == dropped_count
    assert visible_lines(output_lines) == [str(n) for n in range(dropped_count, sum(pieces))]


@pytest.mark.parametrize(("printed", "colours"), [
    (b"\x1b[31m\x1b[1m", b"\x1b[31m\x1b[1m"), (b"\x1b[31m\x1b[m", b""), (b"\x1b[31m\x1b[0m", b""),
    (b"\x1b[31m\x1b[0;1m", b"\x1b[0;1m"), (b"\x1b[1m" * 32, b"\x1b[1m" * 32),
    (b"\x1b[1m" * 33, b"\x1b[1m"),
])  # fmt: skip
def test_a_line_begins_in_the_bounded_colours_of_the_line_before_it(
    printed: bytes, colours: bytes
) -> None:
    assert printout_of(printed + b"one\ntwo")[1] == (colours, b"two")


@pytest.mark.parametrize(("last", "first_kept"), [(b"x", b"a"), (b"xx", b"b")])
def test_as_many_bytes_as_allowed_are_kept(last: bytes, first_kept: bytes) -> None:
    full_lines = [bytes([letter]) * MAX_LINE_BYTES for letter in b"abcdefghijklmnop"]
    assert sum(map(len, full_lines)) == MAX_BYTES
    lines = *full_lines[:-1], full_lines[-1][1:], last
    output_lines = printout_of(*(line + b"\n" for line in lines))
    assert output_lines[0].raw[:1] == first_kept


def test_the_last_state_of_a_progress_line_is_kept() -> None:
    output_lines = printout_of(*(b"\r%3d %%" % (n % 100) for n in range(5000)))
    assert visible_lines(output_lines) == [" 99 %"]
    assert len(output_lines[0].raw) < 100


def test_the_end_of_much_output_is_kept() -> None:
    output_lines = printout_of(b"before\n")
    for n in range(100):
        output_lines.add(b"".join(b"%d\n" % line for line in range(n * 10_000, (n + 1) * 10_000)))
    assert sum(len(piece) for piece in output_lines._unsplit) <= 2 * MAX_BYTES
    output_lines.split_lines()
    assert visible_lines(output_lines)[-1] == "999999"
    assert output_lines.dropped_count + len(output_lines) == 1_000_001
    for piece, skipped in ((b"\n", 0), (bytes(1 << 20), 0), (b"x", 1)):
        output_lines.add(piece)
        assert output_lines._skipped_lines == skipped


def test_only_a_new_size_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, sizes = JobTerminal.__new__(JobTerminal), list[tuple[int, ...]]()
    terminal.size, terminal._terminal_fd = (80, 24), -1
    monkeypatch.setattr(fcntl, "ioctl", lambda *to: sizes.append(struct.unpack("4H", to[2])))
    for size in ((80, 24), (0, 24), (80, 0), (80, 1), (80, 1)):
        terminal.resize(*size)
    assert sizes == [(1, 80, 0, 0)]


# --- keys pressed while a command runs


@pytest.mark.parametrize("foreground", [True, False])
async def test_keys_are_read_without_enter_in_the_foreground_only(
    monkeypatch: pytest.MonkeyPatch, *, foreground: bool
) -> None:
    ours, theirs = os.openpty()
    keys: list[str] = []
    with os.fdopen(theirs, closefd=True) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        group = os.getpgrp() if foreground else os.getpgrp() + 1
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: group)

        def is_canonical() -> bool:
            return bool(termios.tcgetattr(theirs)[3] & termios.ICANON)

        with typed_keys(keys.append):
            os.write(ours, b"m")
            if foreground:
                await until_true(lambda: keys == ["m"], "the key")
            assert is_canonical() is not foreground
        assert is_canonical(), "the settings of the terminal are restored"
        os.write(ours, b"late\n")
        await asyncio.sleep(0.01)
        assert keys == ["m"] * foreground, "later keys are for others"
    os.close(ours)


async def test_the_next_key_is_one_typed_from_now_on(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, closefd=True) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
        os.write(ours, b"early\n")
        for end_wait in (lambda: os.write(ours, b"q"), lambda: os.close(ours)):
            waiting = asyncio.create_task(wait_for_key())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            end_wait()
            await waiting
