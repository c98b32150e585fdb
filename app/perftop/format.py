"""Values as text of fixed digits: what the measurement carries and no more."""

from __future__ import annotations

import codecs
import locale
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from perftop.detect import told

MISSING = "n/a"


def percent(share: float) -> str:
    """Utilisation and its like: 0.1 %."""
    return f"{100 * share:.1f}" if math.isfinite(share) else MISSING


def clock(hz: float) -> str:
    """GHz to 0.01."""
    return f"{hz / 1e9:.2f}" if math.isfinite(hz) else MISSING


class ClockUnit(NamedTuple):
    """How clocks are told: the user's choice."""

    name: str
    per_hz: float
    digits: int


def clock_unit(units: str, base_hz: float) -> ClockUnit:
    """`units`: GHz, MHz, or base. Where the base clock is not known (NaN) no multiple of it is."""
    if units == "MHz":
        return ClockUnit("MHz", 1e-6, 0)
    if units == "base":
        return ClockUnit("×base", 1 / base_hz if base_hz > 0 else math.nan, 2)
    return ClockUnit("GHz", 1e-9, 2)


def clock_in(hz: float, units: str, base_hz: float) -> str:
    """A clock in the chosen units, without their name."""
    _, per_hz, digits = clock_unit(units, base_hz)
    return f"{hz * per_hz:.{digits}f}" if math.isfinite(hz * per_hz) else MISSING


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


def evidence(cause: str, evidence: Mapping[str, Any]) -> str:
    """What an episode rests on, without what its cause already says."""
    return " · ".join(told(key, value) for key, value in evidence.items() if key != cause)


def utf8() -> bool:
    """Whether shapes can be drawn: the user's locale has them and stdout can take them."""
    if "LC_ALL" not in os.environ and os.environ.get("LANG") in {"C", "POSIX"}:
        # Python has put C.UTF-8 in the place of a C locale; who asked for C by name means it.
        named = os.environ.get("LC_CTYPE", "C.UTF-8") not in {"C.UTF-8", "C", "POSIX"}
    else:
        named = codecs.lookup(locale.getencoding()).name == "utf-8"
    return named and codecs.lookup(sys.stdout.encoding or "ascii").name == "utf-8"
