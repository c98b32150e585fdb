"""Ends of commands: by signals, without their probe or reader, on full disks, and by refusal."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path
from types import FrameType

import command
import exports
import pytest
from nightly import cases_by_day, nightly_case
from terminal import Screen, drained_bytes
from waiting import MAX_WAIT_S, process_state, wait_for

from perftop.__main__ import _raise_for_signal
from perftop.base import END_SIGNALS
from perftop.process.launch import Probe
from perftop.verbs.options import fast_imports


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Starts `stat`; returns once it has printed an interval. The pipes are unbuffered, because
    `communicate` would not read data that a buffer holds."""
    process = subprocess.Popen(
        command.argv("stat", "--json", "-i", "100ms", *arguments),
        bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    while line := process.stdout.readline():
        if b'"interval"' in line:
            return process
    raise AssertionError(process.communicate()[1])


def remaining_output(process: subprocess.Popen[bytes]) -> tuple[list[command.Line], str]:
    """Returns the remaining JSON lines of the process, and its stderr."""
    out, err = process.communicate(timeout=MAX_WAIT_S)
    return command.lines(out.decode()), err.decode()


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_gone(pid: int) -> None:
    wait_for(lambda: has_ended(pid), "the probe ends with its reader")


def test_an_interrupt_prints_the_summary_and_has_status_130() -> None:
    process = start("--source", "sim")
    (probe,) = command.children(process.pid)
    process.send_signal(signal.SIGINT)
    lines, err = remaining_output(process)
    assert process.returncode == 130
    assert lines[-1]["type"] == "summary"
    assert err == ""
    wait_gone(probe)


def test_a_probe_that_measures_once_is_ended_by_a_signal() -> None:
    """Its C function ends neither for closed pipes nor for a Python handler of signals."""
    ramp = command.argv("ramp", "--seconds", "60", program="perfprobe")
    probe = Probe(ramp, measures_once=True)
    with probe.stdout:
        pid = probe.process.pid
        wait_for(lambda: len(os.sched_getaffinity(pid)) == 1, "the function has a CPU of its own")
        probe.end()
    assert probe.process.returncode == -signal.SIGTERM


def test_a_selftest_that_ends_early_does_not_claim_that_registers_stay_programmed() -> None:
    """The probe has just started, and does not handle signals yet."""
    selftest = [sys.executable, "-c", "import sys; sys.stdin.read()", "selftest", "msr"]
    probe = Probe(selftest, measures_once=True)
    with probe.stdout:
        assert probe.end() is None
    assert probe.process.returncode == 0


def test_a_killed_probe_is_reported_after_the_summary() -> None:
    process = start("--source", "sim")
    (probe,) = command.children(process.pid)
    os.kill(probe, signal.SIGKILL)
    lines, err = remaining_output(process)
    assert process.returncode == 1
    assert lines[-1]["type"] == "summary"
    assert re.fullmatch(r"perftop: the probe ended by signal 9 without an error message.*\n", err)


SIGNAL_IN_IMPORT = """
import os, sys
from perftop.__main__ import main
class Ending:
    def find_spec(name, *_):
        if name == "MODULE":
            os.kill(os.getpid(), SIGNAL)
sys.meta_path.insert(0, Ending)
sys.argv[1:] = ["stat", "-n", "1"]
sys.exit(main())
"""
SIGNAL_AT_EXIT = """
import atexit, os, sys
from perftop.__main__ import main
class Last:
    def __del__(self):
        self.kill(self.process, SIGNAL)
last = Last()
last.kill, last.process = os.kill, os.getpid()
atexit.register(os.kill, os.getpid(), SIGNAL)
sys.argv[1:] = ["--version"]
sys.exit(main())
"""
SIGNAL_AFTER_WORK = """
import os, sys
from perftop import __main__ as program
handle, calls = program._handle_end_signals, []
def signal_and_handle(handler):
    calls.append(handler)
    if len(calls) == 2:
        os.kill(os.getpid(), SIGNAL)
    handle(handler)
program._handle_end_signals = signal_and_handle
sys.argv[1:] = ["--version"]
sys.exit(program.main())
"""


@pytest.mark.parametrize("number", END_SIGNALS)
@pytest.mark.parametrize("module", [nightly_case("perftop.cli"), "perftop.process.launch"])
def test_a_signal_during_an_import_has_its_status_and_no_traceback(
    module: str, number: signal.Signals
) -> None:
    code = SIGNAL_IN_IMPORT.replace("MODULE", module).replace("SIGNAL", str(int(number)))
    done = command.python(code, check=False)
    assert (done.returncode, done.stderr) == (128 + number, "")


NAME_WITH_LINE_END = "no\nfile"
LINE_END_IN_A_NAME = [
    ["summary", NAME_WITH_LINE_END],
    ["replay", NAME_WITH_LINE_END],
    ["export", NAME_WITH_LINE_END],
    ["diff", NAME_WITH_LINE_END, NAME_WITH_LINE_END],
    ["record", "-o", f"{NAME_WITH_LINE_END}/r", "--source", "sim", "--duration", "1s"],
    ["stat", "--sysroot", NAME_WITH_LINE_END, "-n", "1"],
    ["stat", "--source", "sim", "--", NAME_WITH_LINE_END],
    ["stat", f"--{NAME_WITH_LINE_END}"],
    [NAME_WITH_LINE_END],
]  # fmt: skip


@pytest.mark.parametrize(
    "arguments", LINE_END_IN_A_NAME, ids=lambda words: words[0].replace("\n", " ")
)
def test_a_line_end_in_a_name_does_not_divide_the_message(arguments: list[str]) -> None:
    done = command.run_in_process(*arguments)
    assert done.returncode
    assert done.stderr.startswith("perftop: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "number", cases_by_day([*END_SIGNALS, signal.SIGUSR1], [signal.SIGTERM, signal.SIGUSR1])
)
@pytest.mark.parametrize("code", [SIGNAL_AT_EXIT, SIGNAL_AFTER_WORK])
def test_a_signal_while_the_interpreter_ends_changes_nothing(
    code: str, number: signal.Signals
) -> None:
    done = command.python(code.replace("SIGNAL", str(int(number))), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("perftop ")


def test_an_interrupt_during_an_import_arrives_after_it() -> None:
    loaded = False
    with pytest.raises(KeyboardInterrupt), fast_imports():
        os.kill(os.getpid(), signal.SIGINT)
        loaded = True
    assert loaded


def test_the_probe_ends_when_perftop_is_killed() -> None:
    process = start("--source", "os")
    (probe,) = command.children(process.pid)
    process.kill()
    process.communicate(timeout=MAX_WAIT_S)
    wait_gone(probe)


def test_a_closed_pipe_is_a_normal_end() -> None:
    process = start("--source", "sim")
    (probe,) = command.children(process.pid)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=MAX_WAIT_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    wait_gone(probe)


@pytest.mark.parametrize("options", [
    ("stat", "--json", "-i", "50ms", "-n", "2"), ("why", "--duration", "100ms"),
])  # fmt: skip
def test_a_closed_descriptor_of_the_output_is_a_normal_end(options: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    verb, *more = options
    output = "-o", f"/dev/fd/{writer}", "--source", "sim"
    done = command.run_in_process(verb, *output, *more)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


STAT = "stat --source sim:steady,cpus=2,speed=max -i 50ms -n 1"
NO_SPACE = "No space left on device"


@pytest.mark.parametrize(("line", "status", "printed"), [
    (f"{STAT} >&-", 1, "cannot write stdout: Bad file descriptor"),
    (f"{STAT} -o out >&-", 0, ""),
    ("summary nothing 2>&-", 1, ""),
    ("summary nothing >&- 2>&- <&-", 1, ""),
])  # fmt: skip
def test_closed_outputs_are_reported_in_one_line(
    tmp_path: Path, line: str, status: int, printed: str
) -> None:
    buffered = {key: os.environ[key] for key in os.environ if key != "PYTHONUNBUFFERED"}
    shell = f"{shlex.join(command.argv())} {line}"
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=buffered, capture_output=True,
                          text=True, check=False, timeout=MAX_WAIT_S)  # fmt: skip
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == (printed and f"perftop: {printed}\n")
    assert (tmp_path / "out").exists() == ("-o out" in line)


@pytest.mark.parametrize("limit", cases_by_day([14, 16], [14]))
def test_a_low_limit_of_open_files_is_reported(limit: int) -> None:
    argv = command.argv("stat", "--source", "os", "-n", "1", "-i", "100ms")
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *argv],
        capture_output=True, text=True, check=False, timeout=MAX_WAIT_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Too many open files" in done.stderr
    assert "cannot write" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_status_of_a_command_outlives_a_full_disk() -> None:
    argv = command.argv("stat", "--source", "sim", "--", "sh", "-c", "exit 5")
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        assert subprocess.run(argv, stderr=full, check=False, timeout=MAX_WAIT_S).returncode == 5


@pytest.mark.parametrize("verb", [
    ["stat", "--source", "sim:idle,speed=max", "-n", "1"],
    ["why", "--source", "sim:idle,speed=max", "--duration", "1s"],
])  # fmt: skip
def test_an_existing_file_is_kept(tmp_path: Path, verb: list[str]) -> None:
    out = tmp_path / "out.txt"
    out.write_text("precious", encoding="utf-8")
    done = command.run_in_process(*verb, "-o", str(out))
    assert done.returncode == 1
    assert done.stderr == f"perftop: {out} already exists; --force replaces it\n"
    assert out.read_text(encoding="utf-8") == "precious"
    done = command.run_in_process(*verb, "--source", "sim:no", "-o", str(out), "--force")
    assert done.returncode == 2
    assert out.read_text(encoding="utf-8") == "precious"
    if verb[0] == "stat":
        assert command.run_in_process(*verb, "-o", str(out), "--force").returncode == 0
        assert "own cost" in out.read_text(encoding="utf-8")


def test_the_replaced_recording_stays_if_the_command_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("#!/nothing\n")
    (tmp_path / "bad").chmod(0o700)
    (tmp_path / "a").write_text("precious")
    options = "--source", "sim:idle", "--force", "-o", str(tmp_path / "a")
    done = command.run_in_process("record", *options, "--", str(tmp_path / "bad"))
    assert done.returncode == 127
    assert "the interpreter in its first line" in done.stderr
    assert (tmp_path / "a").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["stat", "--source", "sim", "--smt-method", "traced"], 3, "available: one-thread, bounds"),
        (["stat", "--source", "sim", "--smt-method", "magic"], 2, "magic"),
        (["stat", "-i", "250ms", "--sample", "100ms"], 2, "must be a multiple of --sample"),
        (["stat", "--watch", "999999999"], 3, "perftop: no process 999999999\n"),
        (["stat", "--source", "sim", "--watch=-16-bytes-of-name"], 2, "of up to 15 bytes"),
        (["topology", "--sysroot", "/nowhere"], 3, "no CPUs can be found under /nowhere"),
        (["stat", "-i", "٣"], 2, "invalid duration"),
        (["stat", "-i", "100us"], 2, "at least 1ms"),
        (["stat", "-n", "1", "make", "j8"], 2, "perftop stat [OPTIONS] -- make j8\n"),
        (["make", "all"], 2, "to measure a command: perftop stat -- make all\n"),
        (["stat", "--source", "magic"], 2, "magic"),
        (["stat", "-c", "pkg7"], 2, "package"),
        (["stat", "--sysroot", "/nowhere"], 3, "/nowhere"),
        (["record", "-o", "-"], 2, "a recording must be a file"),
    ],
)
def test_each_refusal_has_a_status_and_no_traceback(
    arguments: list[str], status: int, text: str
) -> None:
    done = command.run_in_process(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], nightly_case(["doctor"]), ["why", "demo:queue", "--json"],
        ["export", "demo:queue"], STAT.split(), [*STAT.split(), "-o", "/dev/full"],
    ],
)  # fmt: skip
def test_a_full_output_is_reported(arguments: list[str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    with Path("/dev/full").open("w", encoding="ascii") as full:
        done = subprocess.run(
            command.argv(*arguments), stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=MAX_WAIT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    name = "/dev/full" if "-o" in arguments else "stdout"
    assert done.stderr == f"perftop: cannot write {name}: {NO_SPACE}\n"


@pytest.mark.parametrize(("verb", "begin"), [
    (["why", "PIPE", "-o", "OUT"], b""),
    (["diff", "PIPE", "PIPE", "--json"], b"{"),
])  # fmt: skip
def test_ctrl_c_in_a_terminal_ends_a_reader_and_leaves_nothing_behind(
    verb: list[str], begin: bytes, tmp_path: Path
) -> None:
    places = {"PIPE": tmp_path / "pipe", "OUT": tmp_path / "out"}
    os.mkfifo(places["PIPE"])
    arguments = command.argv(*(str(places.get(word, word)) for word in verb))
    recording = exports.stream(exports.messages("steady,cpus=2", 3))
    with Screen(arguments) as program, places["PIPE"].open("wb", buffering=0) as pipe:
        pipe.write(begin or recording)

        def waits_for_more() -> bool:
            """Python notices a signal just before a read only after the read."""
            is_drained = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) == bytes(4)
            return is_drained and process_state(program.pid) == "S"

        wait_for(waits_for_more, "it reads")
        os.write(program.fd, b"\x03")
        shown = drained_bytes(program.fd, MAX_WAIT_S)
        wait_for(program.has_ended, "it ends")
    assert program.status == 130
    assert b"Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_signal_ends_an_import_at_once_only_if_a_module_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`from perfprobe import wire` calls Python's code for imports each time."""

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_name in {"_handle_fromlist", "get_code"}:
            sys.setprofile(None)
            _raise_for_signal(signal.SIGINT, frame)

    def exit_at_once(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", exit_at_once)
    sys.setprofile(interrupt)
    with pytest.raises(KeyboardInterrupt):
        from perfprobe import wire  # noqa: F401
    monkeypatch.delitem(sys.modules, "this", raising=False)
    sys.setprofile(interrupt)
    with pytest.raises(SystemExit, match="130"):
        import this  # noqa: F401


def test_an_output_without_content_is_removed(tmp_path: Path) -> None:
    """A second attempt would find a file that exists."""
    text, out = tmp_path / "text", tmp_path / "out"
    text.write_text("no recording")
    assert command.run_in_process("why", str(text), "-o", str(out)).returncode == 4
    assert command.run_in_process("stat", "--source", "no", "-o", str(out)).returncode == 2
    assert not out.exists()
