"""A signal at any line between the start of the probe and the end of perftop: perftop waits for the
probe, and ends with its usual status or with that of the signal."""

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
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest
from command import python, started_process
from nightly import cases_by_day
from waiting import MAX_WAIT_S, wait_for

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


CLOSING_CODE = """
import asyncio, os, signal
from asyncio.selector_events import BaseSelectorEventLoop
from perftop.process.signals import on_signal, run_loop

def close(loop, really=BaseSelectorEventLoop._close_self_pipe):
    really(loop)
    os.kill(os.getpid(), signal.SIGTERM)

BaseSelectorEventLoop._close_self_pipe = close
arrived = []

async def work():
    on_signal([signal.SIGTERM], print, lambda: arrived.append(1))

run_loop(work)
assert arrived
"""


STARTING_CODE = """
import asyncio, os, signal, sys
from perftop.process.signals import on_signal, run_loop
from perftop.verbs import running

def start(*_, really=asyncio.new_event_loop):
    loop = really()
    os.kill(os.getpid(), signal.SIGTERM)
    return loop

asyncio.events.new_event_loop = asyncio.runners.events.new_event_loop = start
signal.signal(signal.SIGTERM, lambda *_: 1 / 0)
"""
WAITING_CODE = """
async def work():
    ended = asyncio.Event()
    on_signal([signal.SIGTERM], lambda number: ended.set())
    await asyncio.wait_for(ended.wait(), 60)

run_loop(work)
"""
ENDLESS = """
class Consumer:
    command_window = command_status = None
    def on_end(self): pass
    async def consume(self, stream): await asyncio.wait_for(asyncio.Event().wait(), 60)

print(run_loop(running.run_consumer, Consumer(), [sys.executable, "-c", "input()", "stream"]))
"""


@pytest.mark.parametrize(("work", "output"), [(WAITING_CODE, ""), (ENDLESS, "143\n")])
def test_a_signal_while_a_loop_starts_arrives_when_the_work_handles_it(
    work: str, output: str
) -> None:
    done = python(STARTING_CODE + work)
    assert (done.stdout, done.stderr) == (output, "")


def test_a_signal_while_a_loop_closes_is_no_error() -> None:
    done = python(CLOSING_CODE)
    assert (done.stdout, done.stderr) == ("", "")


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


async def test_only_a_handler_of_end_signals_forgets_an_earlier_request() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGINT)}
    try:
        END_REQUEST.set()
        await asyncio.sleep(0.01)
        on_signal([signal.SIGUSR1], print)
        assert END_REQUEST.age_s() > 0
        on_signal([signal.SIGINT], print)
        assert END_REQUEST.age_s() == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_text_that_was_printed_before_comes_first(pipe: tuple[int, TextIO]) -> None:
    reading, out = pipe
    out.write("buffered, ")
    write_text(out, "then written")
    assert os.read(reading, 100) == b"buffered, then written"


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


@pytest.mark.parametrize("number", cases_by_day([signal.SIGINT, signal.SIGTERM], [signal.SIGTERM]))
def test_stat_ends_with_unread_output(number: signal.Signals) -> None:
    more = ("--source", "sim:smt-mix,cpus=64", "-i", "20ms", "--sample", "20ms")
    with started_process("stat", "--json", *more, with_stderr=True) as process:
        assert process.stdout is not None
        fd = process.stdout.fileno()

        def full() -> bool:
            (held,) = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
            return bool(held > 50_000)  # a line of 64 CPUs exceeds the pipe

        wait_for(full, "the pipe is full")
        process.send_signal(number)
        wait_for(lambda: process.poll() is not None, "stat ends")
        assert process.returncode == 128 + number


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
