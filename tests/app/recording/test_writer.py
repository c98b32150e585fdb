"""`perftop record` as a program: the file it writes, and its error messages."""

from __future__ import annotations

import dataclasses
import errno
import mmap
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import sim_streams
import synth
from command import argv, python, run_in_process
from nightly import cases_by_day
from waiting import MAX_WAIT_S, wait_for

from perfprobe import wire
from perftop import cli
from perftop.base.errors import Failed
from perftop.recording import writer as writer_module
from perftop.recording.file import FRAME_START, Recording
from perftop.recording.writer import Writer, size_text
from perftop.session.packing import BLOCK_MESSAGES, TimedMessage

SOURCE = ("--source", "sim:smt-mix,cpus=4")


def read(path: Path) -> tuple[list[TimedMessage], str | None]:
    with Recording(path) as recording:
        result = list(recording.messages())
        return result, recording.damage


def unfinished_message(path: Path) -> str:
    """The message about a complete but unfinished recording."""
    return f"truncated at byte {path.stat().st_size}: it has no end"


def frames(result: Sequence[TimedMessage]) -> list[wire.Frame]:
    return [message for message in result if isinstance(message, wire.Frame)]


def marks(result: Sequence[TimedMessage]) -> list[object]:
    notes = [m for m in result if isinstance(m, wire.Note) and m.kind == "mark"]
    return [note.data["label"] for note in notes]


@contextmanager
def recording(path: Path, *more: str, speed: str = "1") -> Iterator[subprocess.Popen[str]]:
    """A running recording whose file is not empty."""
    source = f"{SOURCE[1]},speed={speed}"
    command = argv("record", "-o", str(path), "--source", source, "--sample", "10ms", *more)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: path.exists() and path.stat().st_size > 8_000, process)
            yield process
        finally:
            process.kill()


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    def holds() -> object:
        assert process.poll() is None, process.stderr and process.stderr.read()
        return condition()

    wait_for(holds, "the expected content of the file")


def wait_for_end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, message = process.communicate(timeout=MAX_WAIT_S)
    return process.returncode, message


@pytest.mark.parametrize(
    "number", cases_by_day([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], [signal.SIGINT])
)
def test_a_signal_finishes_a_recording(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "a"
    with recording(path) as process:
        process.send_signal(number)
        status, message = wait_for_end(process)
    result, damage = read(path)
    assert (status, damage) == (0, None)
    assert f" {len(frames(result))} frames, " in message
    assert path.read_bytes().count(b"index") == 1


def test_a_signal_sets_marks(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with recording(path) as process:
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: marks(read(path)[0]) == ["mark 1"], process)
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(marks(read(path)[0])) == 2, process)
        process.terminate()
        assert wait_for_end(process)[0] == 0
    result, _ = read(path)
    assert marks(result) == ["mark 1", "mark 2"]
    times = [message.time_ns for message in result]
    assert times == sorted(times)


def test_existing_files_are_replaced_with_force_only(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("precious")
    result = run_in_process("record", "-o", str(path), *SOURCE, "--duration", "200ms")
    assert (result.returncode, result.stderr) == (
        1, f"perftop: {path} already exists; --force replaces it\n")  # fmt: skip
    with pytest.raises(Failed, match="already exists"):
        Writer(path, synth.hello([synth.REF]))
    assert path.read_text() == "precious"
    path.chmod(0o644)
    assert (
        run_in_process(
            "record", "-o", str(path), *SOURCE, "--duration", "200ms", "--force"
        ).returncode
        == 0
    )
    assert frames(read(path)[0])
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_unusable_outputs_are_refused(
    tmp_path: Path, force: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for name, why in (
        (".", "is not a file"), ("link", "is not a file"), ("/dev/null", "is not a file"),
        ("missing/a", "is not a directory"), (f"{'x' * 300}", "File name too long"),
    ):  # fmt: skip
        assert cli.main(["record", "-o", str(tmp_path / name), *SOURCE, *force]) == 1
        message = capsys.readouterr().err
        assert why in message
        assert message.count("\n") == 1
    assert Path("/dev/null").is_char_device()
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_full_disk_loses_no_recorded_sample(tmp_path: Path) -> None:
    """Simulated by a limit of the process: a partial write, then an error, as on a full disk."""
    path, most = tmp_path / "a", 20_001
    code = (
        "import resource, sys; from perftop.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
        f"sys.exit(main(['record', '-o', {str(path)!r}, '--source', '{SOURCE[1]},speed=max']))"
    )
    process = python(code, check=False)
    result, damage = read(path)
    assert damage == unfinished_message(path)
    length = path.stat().st_size
    assert most - 2_000 < length < most
    assert process.returncode == 1
    assert process.stderr.startswith("perftop: recording has stopped: File too large; ")
    assert (
        f" {len(frames(result))} frames, {size_text(length)} are saved in {path}\n"
        in process.stderr
    )
    assert len(frames(result)) > 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Provides a directory on a file system of 64 KiB."""
    results = ["mount", "-t", "tmpfs", "-o", "size=64k", "perftop-test", str(tmp_path)]
    if subprocess.run(results, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_disk_that_fills_up_is_reported(small_disk: Path) -> None:
    path = small_disk / "a"
    process = run_in_process("record", "-o", str(path), "--source", f"{SOURCE[1]},speed=max")
    assert process.returncode == 1
    assert "No space left on device" in process.stderr
    result, damage = read(path)
    assert damage == unfinished_message(path)
    assert f" {len(frames(result))} frames, " in process.stderr
    assert len(frames(result)) > 50


@pytest.mark.parametrize("removed_entry", cases_by_day(["file", "directory"], ["directory"]))
def test_a_removed_recording_is_reported(tmp_path: Path, removed_entry: str) -> None:
    path = tmp_path / "below" / "a"
    path.parent.mkdir()
    with recording(path) as process:
        path.unlink()
        if removed_entry == "directory":
            path.parent.rmdir()
        status, message = wait_for_end(process)
    assert status == 1
    assert message == f"perftop: {path} was removed while it was recorded: nothing was kept\n"


def test_a_killed_recording_is_readable_up_to_its_last_complete_message(tmp_path: Path) -> None:
    rng = random.Random(1)
    for turn in range(4):
        path = tmp_path / f"{turn}"
        with recording(path, speed="max") as process:
            wanted = rng.randrange(10_000, 300_000)
            wait_until(lambda: path.stat().st_size > wanted, process)  # noqa: B023
            process.kill()
            assert wait_for_end(process)[0] == -signal.SIGKILL
        result, damage = read(path)
        numbers = [frame.seq for frame in frames(result)]
        lost = set(range(numbers[-1])) - set(numbers)
        assert numbers == sorted(set(numbers))
        # The kernel may stop a killed write between two pages. Such a write appends a message or
        # replaces messages by packed ones, one of which is then incomplete.
        if damage is not None and damage.startswith("damaged at byte "):
            assert len(lost) <= 1
        else:
            assert not lost
            assert damage == unfinished_message(path) or path.stat().st_size % mmap.PAGESIZE == 0
            assert re.fullmatch(
                r"truncated at byte \d+: (it has no end|.* is incomplete)", damage or ""
            )
        assert len(numbers) > 20


def test_a_recording_ends_when_its_probe_ends(tmp_path: Path) -> None:
    """The last message is the reason why the probe ended."""
    path = tmp_path / "a"
    with recording(path) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGKILL)
        status, message = wait_for_end(process)
    assert status == 1
    recorded, reason = message.splitlines()
    assert recorded.startswith("perftop: recorded ")
    assert reason == "perftop: the probe ended by signal 9 without an error message"
    assert read(path)[1] is None


def test_no_file_remains_if_the_probe_cannot_start(tmp_path: Path) -> None:
    result = run_in_process(
        "record", "-o", str(tmp_path / "a"), "--source", "sim:nothing-like-that"
    )
    assert result.returncode != 0
    assert "sim" in result.stderr
    assert not list(tmp_path.iterdir())


def test_progress_is_shown_on_terminals_only(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = argv("record", "-o", str(tmp_path / "a"), *SOURCE, "--duration", "1500ms")
    with subprocess.Popen(command, stderr=theirs) as process:
        os.close(theirs)
        message = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end was closed
                break
            message += part
        assert process.wait(MAX_WAIT_S) == 0
    os.close(ours)
    output = message.decode().split("\r\x1b[K")
    assert output[0] == ""
    assert output[1].startswith("recording: 1.0 s, 11 frames, ") or "frames" in output[1]
    assert len(output) >= 3
    assert output[-1].startswith("perftop: recorded 1.5 s, 16 frames, ")


@pytest.mark.parametrize(
    ("count", "text"), [(940_400, "940 kB"), (10**6, "1.0 MB"), (10**9, "1.00 GB")]
)
def test_sizes_have_units(count: int, text: str) -> None:
    assert size_text(count) == text


def test_a_replaced_file_stays_until_there_are_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello, messages = sim_streams.messages("sim:smt-mix,cpus=4", 3)
    path = tmp_path / "a"
    path.write_text("precious")
    Writer(path, hello, force=True).discard()
    assert path.read_text() == "precious"
    with monkeypatch.context() as full, pytest.raises(Failed, match="No space left"):
        full.setattr(writer_module, "write_all", fail_to_write)
        Writer(path, hello, force=True)
    assert path.read_text() == "precious"
    for command in ([], ["job"]):  # a command may fail to start after the first samples
        path.write_text("precious")
        writer = Writer(path, dataclasses.replace(hello, command=command), force=True)
        assert path.read_text() == "precious"
        for message in messages:
            writer.write(message)
        assert (path.read_bytes() == b"precious") == bool(command)
        writer.end()
        assert len(frames(read(path)[0])) == 3
        assert list(tmp_path.iterdir()) == [path]


def fail_to_write(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_removed_file_is_closed(tmp_path: Path) -> None:
    hello, messages = sim_streams.messages("sim:smt-mix,cpus=4", 1)
    writer = Writer(tmp_path / "a", hello)
    (tmp_path / "a").unlink()
    with pytest.raises(Failed, match="was removed"):
        writer.write(messages[0])
    assert not os.path.exists(f"/proc/self/fd/{writer._fd}")  # noqa: PTH110


def test_an_emptied_or_renamed_file_is_reported(tmp_path: Path) -> None:
    hello, messages = sim_streams.messages("sim:smt-mix,cpus=4", 2)
    writer = Writer(tmp_path / "a", hello)
    writer.write(messages[0])
    (tmp_path / "a").rename(tmp_path / "b")
    writer.end()
    assert writer.path == tmp_path / "b"
    writer = Writer(tmp_path / "a", hello)
    writer.write(messages[0])
    os.truncate(tmp_path / "a", 0)
    with pytest.raises(Failed, match=r"a was emptied or cut while .*: 0 kB of . kB are left$"):
        writer.end()
    assert not writer.is_open


def test_a_recording_killed_while_packing_loses_no_sample(tmp_path: Path) -> None:
    """Packed messages replace unpacked ones: any intermediate state of the file has all samples
    once, except for the message being replaced."""
    hello, messages = sim_streams.messages("sim:smt-mix,cpus=4", BLOCK_MESSAGES + 8)
    path = tmp_path / "a"
    writer = Writer(path, hello)
    for message in messages[: BLOCK_MESSAGES + 7]:
        writer.write(message)
    before = path.read_bytes()
    start = before.index(FRAME_START, before.index(b"packed")) - 3
    writer.end()
    after = path.read_bytes()
    whole, damage = read(path)
    assert damage is None
    times = [message.time_ns for message in whole]
    for process in range(0, len(after) - start, 13):
        torn = after[: start + process] + before[start + process :]
        path.write_bytes(torn)
        result, _ = read(path)
        seen = [message.time_ns for message in result]
        assert seen == sorted(set(seen))
        assert len(set(times) - set(seen)) <= (1 if process else 0), process
