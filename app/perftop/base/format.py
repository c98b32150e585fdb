"""Values as text with fixed digits, no more than the measurement supports."""

from __future__ import annotations

import math
from typing import NamedTuple

MISSING = "n/a"


def percent(share: float) -> str:
    """A share in per cent to 0.1, without the sign."""
    return f"{100 * share:.1f}" if math.isfinite(share) else MISSING


def rough(share: float) -> str:
    """A share in whole per cent: 80 %."""
    return f"{100 * share:.0f} %"


def clock(hz: float) -> str:
    """A clock in GHz to 0.01, without the unit."""
    return f"{hz / 1e9:.2f}" if math.isfinite(hz) else MISSING


class ClockUnit(NamedTuple):
    """Unit in which clocks are shown; the user chooses it."""

    name: str
    per_hz: float
    digits: int


def clock_unit(units: str, base_hz: float) -> ClockUnit:
    """`units`: GHz, MHz or base. If the base clock is unknown (NaN), multiples of it are NaN."""
    if units == "MHz":
        return ClockUnit("MHz", 1e-6, 0)
    if units == "base":
        return ClockUnit("×base", 1 / base_hz if base_hz > 0 else math.nan, 2)
    return ClockUnit("GHz", 1e-9, 2)


def rate_unit(most: float) -> ClockUnit:
    """The unit in which rates up to `most` a second have at most four digits."""
    power, prefix = scale(most)
    return ClockUnit(f"{prefix}/s", 10.0**-power, 1)


GHZ = clock_unit("GHz", math.nan)


def plain(value: float) -> str:
    """A plain number, such as IPC, to 0.01."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


PREFIXES = ((12, "T"), (9, "G"), (6, "M"), (3, "k"))


def scale(value: float) -> tuple[int, str]:
    """The power of ten and the prefix with which a number has one to three digits before the
    point."""
    return next(((power, name) for power, name in PREFIXES if abs(value) >= 10**power), (0, ""))


def prefixed(value: float) -> str:
    """A number of any size to 0.1 with k, M, G or T: 12.3k."""
    if not math.isfinite(value):
        return MISSING
    for power, prefix in PREFIXES:
        if abs(value) >= 0.99995 * 10**power:
            return f"{value / 10**power:.1f}{prefix}"
    return f"{value:.1f}"


def brief(value: float) -> str:
    """A round number without needless digits: 500k, 2.5."""
    power, prefix = scale(value)
    return f"{value / 10**power:g}{prefix}"


def many(number: int, what: str) -> str:
    """A number with its noun in the singular or plural: 1 core, 2 cores."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
