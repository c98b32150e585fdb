"""Values as text of fixed digits: what the measurement carries and no more."""

from __future__ import annotations

import math
from typing import NamedTuple

MISSING = "n/a"


def percent(share: float) -> str:
    """Utilisation and its like: 0.1 %."""
    return f"{100 * share:.1f}" if math.isfinite(share) else MISSING


def rough(share: float) -> str:
    """Of a whole, to a per cent: 80 %."""
    return f"{100 * share:.0f} %"


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


GHZ = clock_unit("GHz", math.nan)


def plain(value: float) -> str:
    """IPC: 0.01."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


def many(number: int, what: str) -> str:
    """1 core, 2 cores."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
