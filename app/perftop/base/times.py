"""Times and spans as text."""

from __future__ import annotations

import math
import time

from perftop.base.format import MISSING


def when(unix: float) -> str:
    """Local time of day to 0.1 s."""
    tenths = int(unix * 10)
    return time.strftime("%H:%M:%S", time.localtime(tenths // 10)) + f".{tenths % 10}"


def clock(unix: float, step_s: int = 1) -> str:
    """Local time of day to the second, or to the minute if `step_s` is whole minutes."""
    return time.strftime("%H:%M" if step_s % 60 == 0 else "%H:%M:%S", time.localtime(unix))


def duration(seconds: float) -> str:
    """An interval as the user types it: 100 ms, 2 s."""
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


def length(ns: int) -> str:
    """How long something lasted: 4.1 s, 3 min 12 s, 2 h 05 min."""
    tenths = max(0, ns) // 10**8
    if tenths < 600:
        return f"{tenths / 10:.1f} s"
    minutes, seconds = divmod(tenths // 10, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def place(ns: int) -> str:
    """A position in a recording, as media players write it: 0:28, 1:02:28."""
    minutes, seconds = divmod(max(0, ns) // 10**9, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def running(seconds: int) -> str:
    """How long something has been going on: 59 s, 1 min 00 s."""
    return f"{seconds} s" if seconds < 60 else length(seconds * 10**9)


def brief(seconds: float) -> str:
    """A short span: 16 ms, 1.2 s."""
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def rounded(seconds: float) -> str:
    """A span to two digits: 9.8 µs, 16 ms, 1.2 s."""
    if seconds <= 0:
        return "0 µs"
    seconds = round(seconds, 1 - math.floor(math.log10(seconds)))
    name, per_s = next((u for u in _UNITS if seconds * u[1] >= 1), _UNITS[-1])
    value = seconds * per_s
    return f"{value:.1f} {name}" if value < 10 else f"{value:.0f} {name}"


_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


def exact(ns: float | None) -> str:
    """The step of a clock: 4 ms, 1 µs, 27.8 ns."""
    if ns is None:
        return MISSING
    for name, size in (("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:g} {name}"
    return f"{ns:.3g} ns"
