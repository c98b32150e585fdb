"""A signal at any line between the start of the probe and the end of perftop: perftop waits for the
probe, and ends with its usual status or with that of the signal."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest
from nightly import cases_by_day
from waiting import MAX_WAIT_S

from perftop.base.errors import UNAVAILABLE, Failed
from perftop.process import signals
from perftop.process.signals import END_REQUEST, ExitSignals, on_signal, write_text

PROBE = """
import sys
open("begun", "w").close()
sys.stdin.read()
open("ended", "w").close()
"""
SIGNAL_CODE = """
import asyncio, signal, sys
from perftop.process import command_window, launch, signals
from perftop.verbs import running

PROBE = [sys.executable, "-S", "-E", "-c", sys.argv[1]]
signal_line, number, lines = int(sys.argv[2]), int(sys.argv[3]), 0
OURS = {launch.__file__, signals.__file__, running.__file__}

def trace(frame, event, _):
    global lines
    if frame.f_code.co_filename not in OURS:
        return None
    if event == "line":
        lines += 1
        if lines == signal_line:
            signal.raise_signal(number)
    return trace

sys.settrace(trace)
"""
SCREEN_CODE = """
status = 0
with launch.running_probe(PROBE):
    pass
"""
HEADLESS_CODE = """
class Consumer:
    command_window = command_status = None
    def on_end(self): pass
    async def consume(self, stream): pass

status = asyncio.run(running.run_consumer(Consumer(), PROBE))
"""
BLOCKS = {"screen": SCREEN_CODE, "headless": HEADLESS_CODE}
END = """
sys.settrace(None)
sys.exit(42 if lines < signal_line else status)
"""
TOO_FEW_LINES = 42
"""Exit status of a run with fewer lines than the line of the signal."""
LINES = [
    pytest.param(1, 97, id="by day"),
    *(pytest.param(n, 8, id=f"by night, {n}", marks=pytest.mark.nightly) for n in range(1, 9)),
]
"""First line with a signal, and the distance to the next. Each case has its own time limit."""


def _run(directory: Path, block: str, line: int, number: int) -> int:
    directory.mkdir()
    code = f"{SIGNAL_CODE}{block}{END}"
    command = [sys.executable, "-c", code, PROBE, str(line), str(number)]
    return subprocess.run(command, cwd=directory, check=False, stderr=subprocess.DEVNULL).returncode


@pytest.mark.parametrize(("first_line", "stride"), LINES)
@pytest.mark.parametrize(
    ("block", "number"),
    cases_by_day(
        [*product(BLOCKS, (signal.SIGINT, signal.SIGTERM))], [("headless", signal.SIGTERM)]
    ),
)
def test_a_signal_at_any_line_leaves_no_probe_running(
    tmp_path: Path, block: str, number: int, first_line: int, stride: int
) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as set by a shell
    line, failed_runs, statuses = first_line, [], set()
    while (status := _run(tmp_path / str(line), BLOCKS[block], line, number)) != TOO_FEW_LINES:
        statuses.add(status)
        # Python ends by the signal itself after an uncaught KeyboardInterrupt.
        killed = status == -number and number != signal.SIGINT
        if killed or not (tmp_path / str(line) / "ended").exists():
            failed_runs.append(tmp_path / str(line))
        line += stride
    assert statuses <= {0, -number, 128 + number}
    assert not [run for run in failed_runs if (run / "begun").exists()]


def test_signals_that_nohup_ignores_stay_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with ExitSignals() as exits:
        exits.raise_signals()
        os.kill(os.getpid(), signal.SIGHUP)


def test_a_blocked_signal_is_delivered_when_unblocked_or_at_the_end() -> None:
    with pytest.raises(SystemExit) as left, ExitSignals() as exits:
        os.kill(os.getpid(), signal.SIGTERM)
        exits.raise_signals()
    assert left.value.code == 128 + signal.SIGTERM
    with pytest.raises(KeyboardInterrupt), ExitSignals():
        os.kill(os.getpid(), signal.SIGINT)


def _signal_this_thread() -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


def test_a_signal_wakes_a_waiting_event_loop_and_is_ignored_after_its_end() -> None:
    async def waiting() -> None:
        came = asyncio.get_running_loop().create_future()
        on_signal([signal.SIGTERM], came.set_result)
        threading.Timer(0.1, _signal_this_thread).start()
        assert await asyncio.wait_for(came, MAX_WAIT_S) == signal.SIGTERM

    asyncio.run(waiting())
    os.kill(os.getpid(), signal.SIGTERM)


# --- unread output: perftop waits for its reader until it is asked to end

TEXT = "a line of numbers\n" * 10_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Read end of a pipe, and its writer."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out:
        yield reading, out
    os.close(reading)


@pytest.fixture(autouse=True)
def _no_end_request() -> Iterator[None]:
    END_REQUEST.reset()
    yield
    END_REQUEST.reset()


def test_unread_output_is_dropped_after_a_request_to_end(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, out = pipe
    monkeypatch.setattr(signals, "GRACE_S", 0.0)
    END_REQUEST.set()
    write_text(out, TEXT)
    write_text(out, TEXT)  # later output is dropped too
    assert TEXT.startswith(os.read(reading, len(TEXT)).decode())
    assert (
        capsys.readouterr().err == "perftop: nothing is reading the output; the rest is discarded\n"
    )


def test_the_grace_of_a_reader_starts_with_the_first_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times_s = iter([5.0, 6.0, 8.0])
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: next(times_s)))
    assert END_REQUEST.age_s() == 0
    END_REQUEST.set()
    assert END_REQUEST.age_s() == 1
    END_REQUEST.set()
    assert END_REQUEST.age_s() == 3


@pytest.mark.parametrize(("number", "status", "text"), [
    (errno.EPERM, UNAVAILABLE, "seccomp"), (errno.EMFILE, 1, "ulimit -n"),
    (errno.ENFILE, 1, "ulimit -n"),
])  # fmt: skip
@pytest.mark.parametrize("refused", ["socket.socketpair", "select.epoll", "select.poll"])
def test_the_reason_why_no_event_loop_can_run_is_reported(
    number: int, status: int, text: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(refused, refuse)
    with pytest.raises(Failed, match=text) as failure:
        signals.check_loop()
    assert failure.value.status == status


async def test_work_runs_in_the_main_thread_if_threads_are_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await signals.run_in_thread(threading.current_thread) is threading.main_thread()
