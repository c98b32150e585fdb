"""Every wait of the suite: on a condition, bounded, and with a word for what never happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

MOST_S = 10.0


async def until(condition: Callable[[], object], what: str, most_s: float = MOST_S) -> None:
    """Until it holds, looked at often."""
    end = time.monotonic() + most_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {most_s} s in vain: {what}")
        await asyncio.sleep(0.005)
