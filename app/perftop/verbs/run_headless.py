"""What verbs without a screen share: how they run, until their stream ends, a signal comes or their
command has ended; how that went on several machines; and where they write to."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Protocol, TextIO

from perftop.base import files as new_file
from perftop.base.errors import USAGE, Failed, complain
from perftop.process.command_window import HANDLED_SIGNALS, CommandWindow
from perftop.process.launch import started
from perftop.process.signals import ENDS, ignore, on_signal
from perftop.process.streams import ProbeStream, Stream, open_stream

ENDING = ".perftop"
MOST_NAME = 64
MOST = 64
"""Machines at once."""


class Work(Protocol):
    @property
    def bracket(self) -> CommandWindow | None:
        """The measuring window around the command; None without a command."""

    async def consume(self, stream: Stream) -> None: ...

    def finish(self) -> None:
        """Writes the results. Called however the stream ended, after the command has ended."""


async def attend(work: Work, argv: list[str], most_s: float = inf) -> int:
    """Runs the work on a probe's stream. Returns the command's exit status, else 128 + the signal
    that ended us, else 0. `argv`: the probe's command line. `most_s`: after that time a broken link
    is not tried again. When it returns, signals are ignored. Raises Failed, with the command's
    status unless that is 0.
    """
    (failed,), caught = await _attended([(work, argv)], most_s)
    if failed is not None:
        raise Failed(str(failed), _status(work) or failed.status)
    return _status(work) or caught


async def attend_all(
    works: Sequence[tuple[Work, list[str]]], most_s: float = inf
) -> tuple[int, list[Failed | None]]:
    """The same for works side by side, each on a stream of its own; none stops another. Returns a
    status as `attend` does, and what failed, in the same order."""
    failed, caught = await _attended(works, most_s)
    return _status(works[0][0]) or caught, failed


async def _attended(
    works: Sequence[tuple[Work, list[str]]], most_s: float
) -> tuple[list[Failed | None], int]:
    tasks: list[asyncio.Task[None]] = []
    bracket = works[0][0].bracket
    caught = _heed(tasks, bracket)  # before the probes start, which must be ended
    try:
        each = [_one(work, argv, most_s, tasks) for work, argv in works]
        results = await asyncio.gather(*each, return_exceptions=True)
    finally:
        ignore(HANDLED_SIGNALS if bracket else ENDS)
    failed: list[Failed | None] = []
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Failed):
            raise result
        failed.append(result)
    return failed, (128 + caught[0] if caught else 0)


async def _one(work: Work, argv: list[str], most_s: float, tasks: list[asyncio.Task[None]]) -> None:
    """Runs one work. It can be ended by its task, which is added to `tasks`."""
    bracket = work.bracket
    try:
        probe = started(argv)
        async with open_stream(probe) as stream:
            if probe.link is not None:
                probe.link.end_within(most_s)
            if bracket is not None:
                bracket.reached(probe.link)
                if isinstance(stream, ProbeStream):
                    bracket.reads(stream.rest)
            task = asyncio.ensure_future(work.consume(stream))
            tasks.append(task)
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            finally:
                if bracket is not None:
                    bracket.leave()
                await _see_out(work)
    finally:
        if bracket is not None:
            bracket.leave()


async def _see_out(work: Work) -> None:
    """Waits for the end of the command, if it has begun. Raises Failed if it could not be run."""
    bracket = work.bracket
    run = None if bracket is None else await bracket.ended()
    try:
        work.finish()
    finally:
        if bracket is not None and run is not None and run.failed is not None:
            raise Failed(f"{bracket.job.argv[0]}: {run.failed}", run.status)


def _status(work: Work) -> int:
    run = None if work.bracket is None else work.bracket.run
    return 0 if run is None else run.status


def _heed(tasks: list[asyncio.Task[None]], bracket: CommandWindow | None) -> list[int]:
    """Installs handlers: a signal is passed to a running command, else it cancels the tasks and is
    added to the returned list. A hang-up that was ignored before (nohup) stays ignored."""
    caught: list[int] = []

    def stop(number: int) -> None:
        if bracket is None or not bracket.on_signal(number):
            caught.append(number)
            if bracket is not None:
                bracket.stop()
            for task in tasks:
                task.cancel()

    numbers = list(HANDLED_SIGNALS if bracket else ENDS)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    on_signal(numbers, stop)
    return caught


def told(status: int, failed: Sequence[Failed | None]) -> int:
    """Says what failed; returns the exit status: 0 only if nothing did."""
    lines = [str(each) for each in failed if each is not None]
    for line in dict.fromkeys(lines):
        complain(line)
    if len(lines) > 1 or (lines and len(failed) > 1):
        complain(f"{len(lines)} of {len(failed)} machines failed")
    statuses = {each.status for each in failed if each is not None}
    if status or not statuses:
        return status
    return statuses.pop() if len(lines) == len(failed) and len(statuses) == 1 else 1


def paths(directory: Path, hosts: Sequence[str]) -> list[Path]:
    """A file for each machine, in a directory that is made if need be. Raises Failed."""
    if len(hosts) > MOST:
        raise Failed(f"{len(hosts)} machines: {MOST} at once are possible", USAGE)
    if len(set(hosts)) != len(hosts):
        raise Failed("a machine is named twice", USAGE)
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        text = f"-o {directory}: several machines need a directory: {error.strerror or error}"
        raise Failed(text) from None
    found: list[Path] = []
    for host in hosts:
        name = re.sub(r"[^A-Za-z0-9._@-]+", "-", host)[:MOST_NAME].lstrip(".-") or "host"
        path, number = directory / f"{name}{ENDING}", 2
        while path in found:
            path, number = directory / f"{name}-{number}{ENDING}", number + 1
        found.append(path)
    return found


def destination(
    output: Path | None, *, force: bool, job: bool
) -> contextlib.AbstractContextManager[TextIO]:
    """A new file; `-` is stdout. `job`: there is a command, which has stdout for itself, so that
    without a file numbers go to stderr."""
    to_stdout = output == Path("-")
    if output is not None and not to_stdout:
        return io.TextIOWrapper(new_file.create(output, force=force), encoding="utf-8")
    standard = sys.stdout if not job or to_stdout else sys.stderr
    if standard is None:  # it was closed; the job must run nevertheless
        return Path(os.devnull).open("w", encoding="utf-8")
    return contextlib.nullcontext(standard)
