"""Values as text of fixed digits: what the measurement carries and no more."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

MISSING = "n/a"


def percent(share: float) -> str:
    """Utilisation and its like: 0.1 %."""
    return f"{100 * share:.1f}" if math.isfinite(share) else MISSING


def clock(hz: float) -> str:
    """GHz to 0.01."""
    return f"{hz / 1e9:.2f}" if math.isfinite(hz) else MISSING


def plain(value: float) -> str:
    """IPC: 0.01."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def when(unix: float) -> str:
    """Local time of day to 0.1 s."""
    tenths = int(unix * 10)
    return time.strftime("%H:%M:%S", time.localtime(tenths // 10)) + f".{tenths % 10}"


def duration(seconds: float) -> str:
    """An interval as the command line takes it: 100 ms, 2 s."""
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


def ranges(numbers: Iterable[int]) -> str:
    """0-2,5: as the kernel writes lists of CPUs."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
