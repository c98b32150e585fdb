"""Every wait of the suite: on a condition, bounded, and with a word for what never happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfprobe import wire

if TYPE_CHECKING:
    from perfprobe.sources.os.source import Native

MOST_S = 10.0
SOON_S = 0.035
"""Textual lays out and paints what has changed 60 times a second, and may leave out one."""


async def until(condition: Callable[[], object], what: str, most_s: float = MOST_S) -> None:
    """Until it holds, looked at often."""
    end = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {most_s} s in vain: {what}")
        await asyncio.sleep(0.005)


async def quiet(_least_s: float = 0.0, most_s: float = 1.0) -> None:
    """Until nobody in this loop has anything to do, now or soon. In place of Textual's own wait,
    which takes the process to be idle when it has used little time in 20 ms: that is slow, and on a
    busy machine not always so."""
    loop: Any = asyncio.get_running_loop()
    end = time.monotonic() + most_s
    await asyncio.sleep(0)
    while time.monotonic() < end:
        timers = [timer.when() for timer in loop._scheduled if not timer.cancelled()]
        left_s = min(timers, default=end) - loop.time()
        if not loop._ready and left_s > SOON_S:
            break
        await asyncio.sleep(0 if loop._ready else max(0.0, left_s))


def heard(source: Native, wanted: Callable[[wire.Frame], Any]) -> Any:
    """What the first frame gives that gives something."""
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline, "it was never told"
        time.sleep(max(0, source.due() - time.monotonic()))
        for message in source.poll():
            if isinstance(message, wire.Frame) and (found := wanted(message)):
                return found
