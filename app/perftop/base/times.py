"""Times and spans as text."""

from __future__ import annotations

import time


def when(unix: float) -> str:
    """Local time of day to 0.1 s."""
    tenths = int(unix * 10)
    return time.strftime("%H:%M:%S", time.localtime(tenths // 10)) + f".{tenths % 10}"


def duration(seconds: float) -> str:
    """An interval as the command line takes it: 100 ms, 2 s."""
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
    """How far into something, as players write it: 0:28, 1:02:28."""
    minutes, seconds = divmod(max(0, ns) // 10**9, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
