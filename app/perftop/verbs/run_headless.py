"""Runs a verb without a screen until its stream ends, a signal comes, or its command has ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Protocol

from perftop.base.errors import Failed
from perftop.process.command_window import HEEDED, Bracket
from perftop.process.probe_stream import Stream, spawn
from perftop.process.signals import ENDS, heed, ignore


class Work(Protocol):
    @property
    def bracket(self) -> Bracket | None:
        """The measuring window around the command; None without a command."""

    async def consume(self, stream: Stream) -> None: ...

    def finish(self) -> None:
        """Writes the results. Called however the stream ended, after the command has ended."""


async def attend(work: Work, argv: list[str]) -> int:
    """Runs the work on a probe's stream. Returns the command's exit status, else 128 + the signal
    that ended us, else 0. `argv`: the probe's command line. When it returns, signals are ignored.
    Raises Failed, with the command's status unless that is 0.
    """
    tasks: list[asyncio.Task[None]] = []
    caught = _heed(tasks, work.bracket)  # before the probe starts, which must be ended
    try:
        async with spawn(argv) as stream:
            task = asyncio.ensure_future(work.consume(stream))
            tasks.append(task)
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            finally:
                await _see_out(work)
    except Failed as failed:
        raise Failed(str(failed), _status(work) or failed.status) from None
    finally:
        ignore(HEEDED if work.bracket else ENDS)
    return _status(work) or (128 + caught[0] if caught else 0)


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


def _heed(tasks: list[asyncio.Task[None]], bracket: Bracket | None) -> list[int]:
    """Installs handlers: a signal is passed to a running command, else it cancels the tasks and is
    added to the returned list. A hang-up that was ignored before (nohup) stays ignored."""
    caught: list[int] = []

    def stop(number: int) -> None:
        if bracket is None or not bracket.heed(number):
            caught.append(number)
            for task in tasks:
                task.cancel()

    numbers = list(HEEDED if bracket else ENDS)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        numbers.remove(signal.SIGHUP)
    heed(numbers, stop)
    return caught
