"""Runs verbs without a screen, on one machine or on several at once, until the stream ends, a
signal arrives or the command has ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from math import inf

from perftop.base import END_SIGNALS
from perftop.base.errors import Failed, expected_failure, print_error
from perftop.process.command_window import HANDLED_SIGNALS
from perftop.process.launch import start_probe
from perftop.process.signals import hold_signals, ignore, on_signal
from perftop.process.streams import ProbeStream, open_stream
from perftop.verbs.headless import Consumer


async def run_consumer(
    consumer: Consumer, argv: list[str], max_s: float = inf, *, holds_signals: bool = False
) -> int:
    """Runs one consumer on the stream of a probe. Returns the exit status. Raises Failed if the
    consumer failed, with the command's exit status unless that is 0."""
    status, (failed,) = await run_consumers([(consumer, argv)], max_s, holds_signals=holds_signals)
    if failed is not None:
        raise Failed(str(failed), consumer.command_status or failed.status)
    return status


async def run_consumers(
    consumers: Sequence[tuple[Consumer, list[str]]], max_s: float = inf, *,
    holds_signals: bool = False,
) -> tuple[int, list[Failed | None]]:  # fmt: skip
    """Runs consumers concurrently, each on the stream of the probe with its command line. A failure
    does not stop the others. Returns the exit status (the command's; else 128 + the number of the
    signal that ended perftop; else 0), and each consumer's failure or None. `max_s`: seconds after
    which a broken connection is not retried. After the return, signals stay ignored or, with
    `holds_signals`, wait for the next run."""
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
        if holds_signals:
            hold_signals()
        else:
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
    `caught_signals`: signals that have arrived; if there are any, the task is cancelled
    immediately."""
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
                    if command_window is not None and run is not None and run.failure is not None:
                        raise Failed(f"{command_window.job.argv[0]}: {run.failure}", run.status)
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
