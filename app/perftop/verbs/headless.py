"""Runs verbs without a screen, on one machine or on several at once, until the stream ends, a
signal arrives or the command has ended. Opens their output, and shows on stderr how much of a
recording has been read."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import TextIO

from perfprobe import wire
from perftop.base import END_SIGNALS, files
from perftop.base.errors import (
    USAGE,
    Failed,
    discard_writes,
    expected_failure,
    output_failure,
    print_error,
)
from perftop.base.text import player_time, running_time
from perftop.process.command_window import HANDLED_SIGNALS, CommandWindow
from perftop.process.launch import start_probe
from perftop.process.signals import ignore, on_signal
from perftop.process.streams import ProbeStream, open_stream
from perftop.recording.file import Source
from perftop.session.follow import Follower

SUFFIX = ".perftop"
MAX_NAME = 64
MAX_MACHINES = 64
STDOUT = Path("-")
KEPT_BYTES = 1 << 22
"""Size in bytes of a block that is allocated and freed once: malloc then keeps as much freed memory
for the next samples, instead of returning it to the kernel."""


class Consumer(Follower):
    """Reads a probe's stream, perhaps while a command runs. Its `on_end` is called after the stream
    and the command have ended, even if they failed."""

    command_window: CommandWindow | None = None
    """The measurement of the command; None if there is no command."""

    @property
    def command_status(self) -> int:
        run = None if self.command_window is None else self.command_window.run
        return 0 if run is None else run.status


# --- on one machine, or on several


async def run_consumer(consumer: Consumer, argv: list[str], max_s: float = inf) -> int:
    """Runs one consumer on the stream of a probe. Returns the exit status. Raises Failed if the
    consumer failed, with the command's exit status unless that is 0."""
    status, (failed,) = await run_consumers([(consumer, argv)], max_s)
    if failed is not None:
        raise Failed(str(failed), consumer.command_status or failed.status)
    return status


async def run_consumers(
    consumers: Sequence[tuple[Consumer, list[str]]], max_s: float = inf
) -> tuple[int, list[Failed | None]]:
    """Runs consumers concurrently, each on the stream of the probe with its command line. A failure
    does not stop the others. Returns the exit status (the command's; else 128 + the number of the
    signal that ended perftop; else 0), and each consumer's failure or None. `max_s`: seconds after
    which a broken connection is not retried. Signals stay ignored after the return."""

    tasks: list[asyncio.Task[None]] = []
    command_window = consumers[0][0].command_window
    caught_signals: list[int] = []

    def handle_signal(number: int) -> None:
        """Passes a signal to the running command, if any; otherwise cancels the tasks."""
        if command_window is None or not command_window.on_signal(number):
            caught_signals.append(number)
            if command_window is not None:
                command_window.stop()
            for task in tasks:
                task.cancel()

    numbers = HANDLED_SIGNALS if command_window else END_SIGNALS
    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # under nohup, SIGHUP stays ignored
    on_signal([n for n in numbers if not (nohup and n == signal.SIGHUP)], handle_signal)
    try:
        runs = (_run_one(*pair, max_s, tasks, caught_signals) for pair in consumers)
        results = await asyncio.gather(*runs, return_exceptions=True)
    finally:
        ignore(numbers)
    failed: list[Failed | None] = []
    for result in results:
        failure = None if result is None else expected_failure(result)
        if isinstance(result, BaseException) and (failure is None or isinstance(result, OSError)):
            raise result  # a write failed: `open_output` adds the name of the output
        failed.append(failure)
    caught_status = 128 + caught_signals[0] if caught_signals else 0
    return consumers[0][0].command_status or caught_status, failed


async def _run_one(
    consumer: Consumer, argv: list[str], max_s: float, tasks: list[asyncio.Task[None]],
    caught_signals: Sequence[int],
) -> None:  # fmt: skip
    """Runs one consumer as a task, which is added to `tasks` so that it can be cancelled.
    `caught_signals`: signals that have arrived; if any, the task is cancelled at once."""

    command_window = consumer.command_window
    try:
        probe = start_probe(argv)
        async with open_stream(probe) as stream:
            if probe.link is not None:
                probe.link.limit_retries(max_s)
            if command_window is not None:
                command_window.set_link(probe.link)
                if isinstance(stream, ProbeStream):
                    command_window.set_pause_function(stream.set_read_pause)
                    stream.fails_when_silent = lambda: not command_window.is_running
            task = asyncio.ensure_future(consumer.consume(stream))
            tasks.append(task)
            if caught_signals:
                task.cancel()
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            finally:
                run = None
                if command_window is not None:
                    command_window.give_up()
                    run = await command_window.wait_for_end()
                try:
                    consumer.on_end()
                finally:
                    if command_window is not None and run is not None and run.failed is not None:
                        raise Failed(f"{command_window.job.argv[0]}: {run.failed}", run.status)
    finally:
        if command_window is not None:
            command_window.give_up()


def report_failures(status: int, failed: Sequence[Failed | None]) -> int:
    """Prints the failures and returns the exit status, which is 0 only without failures."""
    failures = [failure for failure in failed if failure is not None]
    print_error(*dict.fromkeys(line for failure in failures for line in failure.lines))
    if len(failures) > 1 or (failures and len(failed) > 1):
        print_error(f"{len(failures)} of {len(failed)} machines failed")
    statuses = {failure.status for failure in failures}
    if status or not statuses:
        return status
    return statuses.pop() if len(failures) == len(failed) and len(statuses) == 1 else 1


# --- output


def output_paths(directory: Path, hosts: Sequence[str]) -> list[Path]:
    """Returns the path of each machine's file in a directory, which is created if necessary. Raises
    Failed."""
    if len(hosts) > MAX_MACHINES:
        raise Failed(f"{len(hosts)} machines: at most {MAX_MACHINES} at once", USAGE)
    if len(set(hosts)) != len(hosts):
        raise Failed("a machine is named twice", USAGE)
    try:
        files.make_directory(directory)
    except OSError as error:
        text = f"-o {directory}: several machines need a directory: {error.strerror or error}"
        raise Failed(text) from None
    paths: list[Path] = []
    for host in hosts:
        name = re.sub(r"[^A-Za-z0-9._@-]+", "-", host)[:MAX_NAME].lstrip(".-") or "host"
        path, number = directory / f"{name}{SUFFIX}", 2
        while path in paths:
            path, number = directory / f"{name}-{number}{SUFFIX}", number + 1
        paths.append(path)
    return paths


@contextlib.contextmanager
def open_output(
    args: argparse.Namespace, status: Callable[[], int] = lambda: 0
) -> Iterator[TextIO]:
    """Opens the output: the file of -o, or stdout; without -o, stderr if a command uses stdout. If
    the reader of a pipe disconnects, the block ends without an error. An empty file is removed, so
    that it does not get in the way of a second attempt. Raises Failed, with the command's `status`
    unless that is 0."""
    path: Path | None = args.output
    standard = sys.stdout if args.command is None or path == STDOUT else sys.stderr
    if path is not None and path != STDOUT:
        output: TextIO = io.TextIOWrapper(files.create(path, force=args.force), encoding="utf-8")
    else:
        output = standard
    file_status = os.fstat(output.fileno()) if path is not None and output is not standard else None
    try:
        with contextlib.nullcontext() if output is standard else output:
            yield output
    except BrokenPipeError:
        if not output.closed:  # the file of -o is closed already
            discard_writes(output.fileno())
    except OSError as error:
        if output is sys.stdout:
            discard_writes(output.fileno())
        name = {sys.stdout: "stdout", sys.stderr: "stderr"}.get(output, str(path))
        failed = output_failure(error, name)
        raise Failed(str(failed), status() or failed.status) from None
    finally:
        if path is not None and file_status is not None:
            with contextlib.suppress(OSError):
                if path.stat().st_size == 0:
                    files.remove(path, file_status)


# --- the progress of reading a recording, on stderr

QUIET_START_S = 1.0
REDRAW_S = 0.2
CLEAR_LINE = "\r\x1b[K"


@contextlib.contextmanager
def read_with_progress(
    source: Source, name: object, *, quiet: bool = False
) -> Iterator[Iterator[wire.Message]]:
    """Provides an iterator over the messages of a recording. If reading takes long and stderr is a
    terminal, a line there shows the progress until the end of the block. `quiet`: never show it,
    because the output is on the terminal as well."""
    bytes(KEPT_BYTES)
    is_shown = not quiet and sys.stderr.isatty()
    line = ProgressLine(sys.stderr, f"reading {name}", source) if is_shown else None
    try:
        yield source.messages() if line is None else line.messages()
    finally:
        if line is not None:
            line.erase()


class ProgressLine:
    """A line on the terminal, redrawn in place: number of samples, time in the recording, time
    left."""

    def __init__(
        self, output: TextIO, title: str, source: Source,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._output, self._title, self._source, self._clock = output, title, source, clock
        self._start_s = clock()
        self._due_s = self._start_s + QUIET_START_S
        self._samples = 0
        self._is_drawn = False

    def messages(self) -> Iterator[wire.Message]:
        """Yields the messages of the source, and redraws the line when it is due."""
        for message in self._source.messages():
            yield message
            if isinstance(message, wire.Frame):
                self._samples += 1
                if self._clock() >= self._due_s:
                    self._draw_progress(message.time_ns - self._source.hello.raw_ns)

    def erase(self) -> None:
        if self._is_drawn:
            self._write(CLEAR_LINE)

    def _draw_progress(self, time_ns: int) -> None:
        now_s, offset, size = self._clock(), self._source.offset, self._source.size
        self._due_s, self._is_drawn = now_s + REDRAW_S, True
        text = f"{self._title}: {self._samples} samples, {player_time(time_ns)}"
        if size and offset:
            left_s = (now_s - self._start_s) * max(0, size - offset) / offset
            text += f", {running_time(round(left_s))} left"
        self._write(CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1])

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._output.write(text)
            self._output.flush()
