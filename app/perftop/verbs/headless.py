"""Code shared by verbs without a screen: the reader of a stream, the output of -o, and a line on
stderr that shows how much of a recording has been read. `running` runs them on live streams."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from perfprobe import wire
from perftop.base import KEPT_BYTES, files
from perftop.base.errors import USAGE, Failed, discard_writes, output_failure
from perftop.base.text import player_time, running_time
from perftop.process.command_window import CommandWindow
from perftop.recording.file import Source
from perftop.session.follow import Follower

SUFFIX = ".perftop"
MAX_NAME = 64
MAX_MACHINES = 64
STDOUT = Path("-")


class Consumer(Follower):
    """Reads a probe's stream, perhaps while a command runs. Its `on_end` is called after the stream
    and the command have ended, even if they failed."""

    command_window: CommandWindow | None = None
    """The measurement of the command; None if there is no command."""

    @property
    def command_status(self) -> int:
        run = None if self.command_window is None else self.command_window.run
        return 0 if run is None else run.status


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
    """Provides an iterator over the messages of a recording. If reading is slow and stderr is a
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
