"""All waits of the suite. Each waits for a condition up to a time limit, and its error names the
condition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perfprobe import wire

if TYPE_CHECKING:
    from perfprobe.machine.source import Machine

T = TypeVar("T")
MAX_WAIT_S = 100.0
"""Limit of a wait in s, also for programs that tests start. It is long because other programs may
keep all CPUs busy; only failing tests wait that long."""
CHECK_PERIOD_S = 0.005
FRAMES_HZ = 120
"""Textual's layouts and paints per second in tests, in which pilots wait for them; the default is
60."""
SOON_S = 0.02
"""Time in s, longer than two frames, because Textual may skip one."""


class WaitError(AssertionError):
    """A condition was not met in time."""

    def __init__(self, limit_s: float, description: str) -> None:
        super().__init__(f"waited {limit_s} s for: {description}")


def process_state(pid: int) -> str:
    """Returns the letter of a process's state: "S" while it waits, "T" while it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(
    condition: Callable[[], object], description: str, limit_s: float = MAX_WAIT_S
) -> None:
    """Waits until the condition holds, in tests without an event loop."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise WaitError(limit_s, description)
        time.sleep(CHECK_PERIOD_S)


async def until_true(
    condition: Callable[[], object], description: str, limit_s: float = MAX_WAIT_S
) -> None:
    """Waits until the condition holds, in an event loop."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise WaitError(limit_s, description)
        await asyncio.sleep(CHECK_PERIOD_S)


async def until_quiet(_least_s: float = 0.0, limit_s: float = 1.0) -> None:
    """Waits until nothing in this loop is due within SOON_S. It replaces Textual's own wait, which
    takes a process for idle if it used little CPU time in 20 ms; that is slow, and wrong on a busy
    machine. If the screen keeps changing, the wait ends after as many timers as Textual has frames
    in `limit_s`: a busy machine may need longer for a single frame."""
    loop: Any = asyncio.get_running_loop()
    end, waits = time.monotonic() + MAX_WAIT_S, int(limit_s * FRAMES_HZ)
    await asyncio.sleep(0)
    while waits and time.monotonic() < end:
        timers = [timer.when() for timer in loop._scheduled if not timer.cancelled()]
        left_s = min(timers, default=end) - loop.time()
        if not loop._ready and left_s > SOON_S:
            break
        waits -= not loop._ready
        await asyncio.sleep(0 if loop._ready else max(0.0, left_s))


async def until_handled(_least_s: float = 0.0) -> None:
    """Waits until each message of this loop is handled; timers may still be due."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # noqa: ASYNC110 - no event is set when a loop has no more to do
        await asyncio.sleep(0)


def whenever_due(
    due: Callable[[], float], poll: Callable[[], T], description: str, limit_s: float = MAX_WAIT_S
) -> Iterator[T]:
    """Yields the result of `poll` each time that it is due, like the loop of the probe. The caller
    ends the loop."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        time.sleep(max(0.0, min(0.05, due() - time.monotonic())))
        yield poll()
    raise WaitError(limit_s, description)


def at_intervals(times: int, interval_s: float) -> Iterator[None]:
    """Yields `times` times, after a pause of `interval_s` each time."""
    for _ in range(times):
        time.sleep(interval_s)
        yield


def first_frame(source: Machine, accept: Callable[[wire.Frame], Any]) -> Any:
    """Returns the first true value of `accept` over the frames of the source."""
    for messages in whenever_due(source.due_s, source.poll, "an accepted frame"):
        for message in messages:
            if isinstance(message, wire.Frame) and (result := accept(message)):
                return result
    raise AssertionError  # this is never reached, because whenever_due raises
