"""`perftop record -- CMD`: the run in the recording, and its summary."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import synth
from command import argv, children, python, run, run_in_process
from recording_files import read_messages
from sim_streams import messages
from waiting import MAX_WAIT_S, wait_for

from perfprobe import wire
from perftop import cli
from perftop.base import raw_ns
from perftop.process.job import Job
from perftop.recording import ring
from perftop.recording.file import Recording, RecordingDirectory
from perftop.session.session import MAX_BATCH
from perftop.verbs.record import episode_kinds
from perftop.verbs.recorder import CommandSummary, StreamRecorder

SIM = ("--source", "sim:smt-mix,cpus=4")
CLOCK = "import time; now = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW); a = now()"
TIMED_WORK = f"{CLOCK}; sum(range(10**6)); print(a, now()); raise SystemExit(7)"


def note_kinds(path: Path) -> set[str]:
    """Kinds of the notes of a growing recording."""
    with Recording(path) as recording:
        return {message.kind for message in recording.messages() if isinstance(message, wire.Note)}


def notes(path: Path, *, ended: bool = True) -> dict[str, wire.Note]:
    content = read_messages(path, ended=ended)
    return {message.kind: message for message in content if isinstance(message, wire.Note)}


def wait_for_file(path: Path, process: subprocess.Popen[str]) -> None:
    def mark_exists() -> bool:
        assert process.poll() is None, process.stderr and process.stderr.read()
        return path.exists()

    wait_for(mark_exists, f"{path.name} exists")


@contextmanager
def start(path: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    """A running process; the script first creates the file `begun`."""
    command = ["sh", "-c", f"echo > {path.parent / 'begun'}; {script}"]
    process = subprocess.Popen(
        argv("record", "-o", str(path), *SIM, "--", *command),
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            wait_for_file(path.parent / "begun", process)
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


async def test_samples_are_batched_while_the_command_runs() -> None:
    """After the end of the command, samples are not batched, because one of them closes the
    window."""
    hello = synth.hello()
    flags = [wire.ROW_SAMPLED] * len(hello.topology)

    def sample(seq: int) -> wire.Frame:
        values = {key: [seq * 1000] * len(flags) for key in ("ref", "cycles", "instructions")}
        blocks = synth.frame(hello, seq, values, flags=flags).blocks
        return wire.Frame(seq, raw_ns(), blocks)

    with Job(["sleep", "1000"]) as job:
        command = CommandSummary(job)
        command.process([hello])
        session = command.session
        known: list[int] = []
        for seq in range(2 * MAX_BATCH):
            frame = sample(seq)
            assert command.measurement.admit(frame)
            command.measure(frame)
            known.append(session.frames)
        assert [*dict.fromkeys(known)] == [1, 1 + MAX_BATCH]
        job.kill(signal.SIGKILL)
        await command.measurement.command_window.wait_for_end()
        command.measure(sample(seq + 1))
        assert session.frames == 2 * MAX_BATCH + 1
        assert command.measurement.is_over
        assert not command.lines
        for note in command.measurement.due_notes(raw_ns()):
            command.measure(note)
        assert command.lines


def test_the_summary_names_what_cannot_be_measured_in_one_line(tmp_path: Path) -> None:
    result = run("record", "-o", str(tmp_path / "a"), "--source", "sim:guest", "--", "true")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("# n/a")]
    assert line.endswith("(reasons: perftop doctor)")


def test_the_recorded_times_enclose_those_of_the_command(tmp_path: Path) -> None:
    path, command = tmp_path / "a", [sys.executable, "-S", "-c", TIMED_WORK]
    process = run("record", "-o", str(path), "--source", "os", "--sample", "20ms", "--", *command)
    assert process.returncode == 7
    begun_ns, over_ns = map(int, process.stdout.split())
    result = notes(path)
    begin, end = result["run-start"], result["run-end"]
    assert begin.author == end.author == "recorder"
    assert begin.data["argv"] == command
    assert (end.data["pid"], end.data["status"]) == (begin.data["pid"], 7)
    assert end.data["first_ns"][1] <= begin.time_ns <= begun_ns
    assert over_ns <= end.time_ns <= end.data["last_ns"][0]
    assert end.data["wall_s"] == (end.time_ns - begin.time_ns) / 1e9
    assert end.data["user_s"] > 0
    first, *_, last = [
        message for message in read_messages(path) if isinstance(message, wire.Frame)
    ]
    assert first.time_ns <= end.data["first_ns"][0]
    # The last frame may have been due before the end, but was read after it.
    head = np.frombuffer(last.blocks["cpu"].head, "<u8").reshape(-1, wire.HEAD)
    assert last.time_ns + int(head[:, 2].max()) >= end.data["last_ns"][1]


def test_the_end_is_written_after_all_cpus_were_read(tmp_path: Path) -> None:
    path, hello = tmp_path / "a", synth.hello(cores=2)
    values = dict.fromkeys(("ref", "cycles", "instructions"), [0] * 4)
    blocks = synth.frame(hello, 1, values, flags=[wire.ROW_SAMPLED] * 4).blocks

    async def start_stream(record: StreamRecorder) -> None:
        async def stream() -> AsyncIterator[list[wire.Message]]:
            yield [hello]
            yield [wire.Frame(1, raw_ns(), blocks)]
            assert record.command_window is not None
            run = await record.command_window.wait_for_end()
            assert run is not None
            yield [wire.Frame(2, run.end_ns - 1, blocks)]
            assert note_kinds(path) == {"run-start"}
            yield [wire.Frame(3, run.end_ns + 5, blocks)]
            raise AssertionError("the stream was read after its end")

        await record.consume(stream())
        record.on_end()

    with Job(["sh", "-c", "sleep 0.05; exit 7"]) as job:
        asyncio.run(start_stream(StreamRecorder(cli._parse_arguments(["record"]), path, job)))
    end = notes(path)["run-end"]
    assert end.data["status"] == 7
    assert end.data["last_ns"] == [end.time_ns + 5] * 2


def test_the_summary_equals_that_of_stat(tmp_path: Path) -> None:
    """The machine has a constant load, and durations are not compared."""
    command = ("--source", "sim:steady,cpus=4,seed=1", "--", "sh", "-c", "echo out; exit 3")
    recorded = run("record", "-o", str(tmp_path / "a"), *command)
    printed = run("stat", *command)
    assert recorded.stdout == printed.stdout == "out\n"
    first, *lines = recorded.stderr.splitlines()
    assert first.startswith("perftop: recorded ")
    assert first.endswith(f" in {tmp_path / 'a'}")

    def comparable_lines(lines: list[str]) -> list[str]:
        """Without digits, plurals and disk faults, and without the sentence that depends on whether
        a short command was sampled."""
        words = [line for line in lines if not line.startswith("sh took ")]
        assert len(words) == len(lines) - 1
        words = [re.sub(r" \(\d+ from disk\)", "", line) for line in words]
        words = [re.sub(r"(sample|fault|switch)(?:s|es)\b", r"\1", line) for line in words]
        return ["".join(c for c in line if not (c.isdigit() or c in " .")) for line in words]

    assert comparable_lines(lines) == comparable_lines(printed.stderr.splitlines())
    assert any(line.startswith("exit status 3") for line in lines)
    assert any(line.split() == ["min", "mean", "max", "p5"] for line in lines)


def test_a_simulated_machine_uses_its_own_time(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert run_in_process("record", "-o", str(path), *SIM, "--", "sleep", "0.3").returncode == 0
    result, times = notes(path), [message.time_ns for message in read_messages(path)]
    assert times == sorted(times)
    assert result["run-start"].time_ns < result["run-end"].time_ns == times[-1]
    assert result["run-end"].data["first_ns"] is result["run-end"].data["last_ns"] is None


def test_the_terminal_belongs_to_the_command(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = argv("record", "-o", str(tmp_path / "a"), *SIM, "--", "sleep", "1.3")
    with subprocess.Popen(command, stderr=theirs) as process:
        os.close(theirs)
        words = b""
        while part := _piece(ours):
            words += part
        assert process.wait(MAX_WAIT_S) == 0
    os.close(ours)
    assert words.startswith(b"perftop: recorded ")
    assert b"\x1b" not in words


def _piece(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # the other end was closed
        return b""


def test_signals_are_passed_to_the_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    handler = f"trap 'echo handled; exit 9' TERM; touch {ready}"
    with start(tmp_path / "a", f"{handler}; while :; do sleep .05; done") as it:
        wait_for(ready.exists, "the shell handles the signal")
        it.send_signal(signal.SIGTERM)
        out, words = it.communicate(timeout=MAX_WAIT_S)
    assert (it.returncode, out) == (9, "handled\n")
    assert words.startswith("perftop: recorded ")
    assert notes(tmp_path / "a")["run-end"].data["status"] == 9


@pytest.mark.parametrize("kept", ["power-pl1,smi", "turbo-drop,smi"])
def test_an_episode_is_kept_with_some_time_before_and_after(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scripted drop from 8.0 to 12.1 s, and parts of 2 s."""
    monkeypatch.setattr(ring, "KEEP_MARGIN_NS", 5_000_000_000)
    hello, result = messages("sim:turbo-drop,cpus=2", 250)
    options = cli._parse_arguments(["record", "--ring", "1m", "--on", kept])
    options.on = episode_kinds(options.on)
    record = StreamRecorder(options, tmp_path / "box")
    record.process([hello, *result])
    record.on_end()
    (path,) = (tmp_path / "box/kept").iterdir()
    assert path.stem.endswith("-turbo-drop")
    with RecordingDirectory(path) as parts:
        times_s = [(message.time_ns - hello.raw_ns) / 1e9 for message in parts.messages()]
    assert 2.0 <= times_s[0] <= 3.0
    assert 17.0 <= times_s[-1] <= 19.0


def test_a_ring_too_short_for_what_on_promises_is_refused(tmp_path: Path) -> None:
    """A ring of 5 s had lost the start of an episode before the episode was detected."""
    box = tmp_path / "box"
    on = "--on", "steal"
    for ring_length, more, status in ("59s", on, 2), ("60s", on, 0), ("5s", (), 0):
        command = "record", "-o", str(box), "--ring", ring_length, *more, *SIM, "--duration", "1s"
        result = run_in_process(*command, "--force")
        assert (result.returncode, box.exists()) == (status, status == 0)
        assert status == 0 or "(try --ring 1m)" in result.stderr


def test_an_ended_probe_does_not_end_the_command(tmp_path: Path) -> None:
    path, go = tmp_path / "a", tmp_path / "go"
    with start(path, f"until [ -e {go} ]; do sleep .05; done; exit 5") as it:
        (probe,) = [pid for pid in children(it.pid) if _name(pid) != "sh"]
        os.kill(probe, signal.SIGKILL)
        time.sleep(0.2)
        assert it.poll() is None
        go.touch()
        _, words = it.communicate(timeout=MAX_WAIT_S)
    assert it.returncode == 5
    assert words.splitlines()[-1] == "perftop: the probe ended by signal 9 without an error message"
    assert notes(path)["run-end"].data["status"] == 5


def test_a_recording_that_fails_does_not_end_the_command(tmp_path: Path) -> None:
    arguments = ["record", "-o", str(tmp_path / "a"), "--sample", "20ms", "--source",
                 "sim:smt-mix,cpus=64", "--", "sh", "-c", "sleep 1; echo over"]  # fmt: skip
    result = python(
        "import resource, sys; from perftop.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        f"sys.exit(main({arguments}))",
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "over\n")
    first, *summary = result.stderr.splitlines()
    assert first.startswith("perftop: recording has stopped: File too large; ")
    assert any(line.startswith("sh ") for line in summary), summary


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
