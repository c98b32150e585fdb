"""Code shared by verbs without a screen: the reader of a stream, the output of -o, and a line on
stderr that shows how much of a recording has been read. `running` runs them on live streams."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from perfprobe import wire
from perftop.base import MALLOC_WARM_UP_BYTES, files
from perftop.base.errors import USAGE, Failed, discard_writes, output_failure
from perftop.base.text import player_time, running_time, show_progress
from perftop.process.command_window import CommandWindow
from perftop.recording.file import RecordingSource
from perftop.session.follow import Follower

SUFFIX = ".perftop"
MAX_NAME_LENGTH = 64
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
        name = re.sub(r"[^A-Za-z0-9._@-]+", "-", host)[:MAX_NAME_LENGTH].lstrip(".-") or "host"
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
    that a second attempt does not fail because the file exists. Raises Failed, with the command's
    `status` unless that is 0."""
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


@contextlib.contextmanager
def read_with_progress(
    source: RecordingSource, name: object, *, quiet: bool = False
) -> Iterator[Iterator[wire.Message]]:
    """Provides an iterator over the messages of a recording. If reading is slow and stderr is a
    terminal, a line there shows the progress until the end of the block. `quiet`: never show it,
    because the output is on the terminal as well."""
    bytes(MALLOC_WARM_UP_BYTES)
    is_shown = not quiet and sys.stderr.isatty()
    try:
        yield _show_reading(source, name) if is_shown else source.messages()
    finally:
        if is_shown:
            show_progress("")


def _show_reading(source: RecordingSource, name: object) -> Iterator[wire.Message]:
    """Yields the messages of a recording. After QUIET_START_S, shows the number of samples read,
    the time in the recording and the time left."""
    start_s, samples = time.monotonic(), 0
    due_s = start_s + QUIET_START_S
    for message in source.messages():
        yield message
        if isinstance(message, wire.Frame):
            samples += 1
            if (now_s := time.monotonic()) >= due_s:
                due_s, offset, size = now_s + REDRAW_S, source.offset, source.size
                place = player_time(message.time_ns - source.hello.raw_ns)
                text = f"reading {name}: {samples} samples, {place}"
                if size and offset:
                    left_s = (now_s - start_s) * max(0, size - offset) / offset
                    text += f", {running_time(round(left_s))} left"
                show_progress(text)
