"""Numbers, times and spans as text, with no more digits than the measurement supports."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

MISSING = "n/a"


def percent(share: float) -> str:
    """A share in per cent to 0.1, without the % sign."""
    return f"{100 * share:.1f}" if math.isfinite(share) else MISSING


def rough(share: float) -> str:
    """A share in whole per cent: 80 %."""
    return f"{100 * share:.0f} %"


def clock_ghz(hz: float) -> str:
    """A clock in GHz to 0.01, without the unit."""
    return f"{hz / 1e9:.2f}" if math.isfinite(hz) else MISSING


class ClockUnit(NamedTuple):
    """Unit in which clocks are shown, as selected by the user."""

    name: str
    per_hz: float
    digits: int


def clock_unit(units: str, base_hz: float) -> ClockUnit:
    """The unit of this name: GHz, MHz or base. If the base clock is unknown (NaN), multiples of it
    are NaN."""
    if units == "MHz":
        return ClockUnit("MHz", 1e-6, 0)
    if units == "base":
        return ClockUnit("×base", 1 / base_hz if base_hz > 0 else math.nan, 2)
    return ClockUnit("GHz", 1e-9, 2)


def rate_unit(most: float) -> ClockUnit:
    """The unit in which rates of up to `most` per second have at most four digits."""
    power, prefix = scale(most)
    return ClockUnit(f"{prefix}/s", 10.0**-power, 1)


GHZ = clock_unit("GHz", math.nan)


def plain(value: float) -> str:
    """A plain number, such as IPC, to 0.01."""
    return f"{value:.2f}" if math.isfinite(value) else MISSING


PREFIXES = ((12, "T"), (9, "G"), (6, "M"), (3, "k"))


def scale(value: float) -> tuple[int, str]:
    """The power of ten and the prefix with which a number has one to three digits before the
    decimal point."""
    return next(((power, name) for power, name in PREFIXES if abs(value) >= 10**power), (0, ""))


def prefixed(value: float) -> str:
    """A number of any size to 0.1 with k, M, G or T: 12.3k."""
    if not math.isfinite(value):
        return MISSING
    for power, prefix in PREFIXES:
        if abs(value) >= 0.99995 * 10**power:
            return f"{value / 10**power:.1f}{prefix}"
    return f"{value:.1f}"


def round_number(value: float) -> str:
    """A round number without needless digits: 500k, 2.5."""
    power, prefix = scale(value)
    return f"{value / 10**power:g}{prefix}"


def many(number: int, what: str) -> str:
    """A number with its noun in the singular or plural: 1 core, 2 cores."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# --- times and spans


def when(unix: float) -> str:
    """Local time of day to 0.1 s."""
    tenths = int(unix * 10)
    return time.strftime("%H:%M:%S", time.localtime(tenths // 10)) + f".{tenths % 10}"


def time_of_day(unix: float, step_s: int = 1) -> str:
    """Local time of day to the second, or to the minute if `step_s` is whole minutes."""
    return time.strftime("%H:%M" if step_s % 60 == 0 else "%H:%M:%S", time.localtime(unix))


def duration(seconds: float) -> str:
    """An interval as the user types it: 100 ms, 2 s."""
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


def length(ns: int) -> str:
    """A duration: 4.1 s, 3 min 12 s, 2 h 05 min."""
    tenths = max(0, ns) // 10**8
    if tenths < 600:
        return f"{tenths / 10:.1f} s"
    minutes, seconds = divmod(tenths // 10, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def place(ns: int) -> str:
    """A position in a recording, as media players show it: 0:28, 1:02:28."""
    minutes, seconds = divmod(max(0, ns) // 10**9, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def running(seconds: int) -> str:
    """Time since the start of something that is still running: 59 s, 1 min 00 s."""
    return f"{seconds} s" if seconds < 60 else length(seconds * 10**9)


def short_duration(seconds: float) -> str:
    """A short duration: 16 ms, 1.2 s."""
    return f"{1e3 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def rounded(seconds: float) -> str:
    """A duration to two digits: 9.8 µs, 16 ms, 1.2 s."""
    if seconds <= 0:
        return "0 µs"
    seconds = round(seconds, 1 - math.floor(math.log10(seconds)))
    name, per_s = next((u for u in _UNITS if seconds * u[1] >= 1), _UNITS[-1])
    value = seconds * per_s
    return f"{value:.1f} {name}" if value < 10 else f"{value:.0f} {name}"


_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))


def exact(ns: float | None) -> str:
    """The resolution of a clock: 4 ms, 1 µs, 27.8 ns."""
    if ns is None:
        return MISSING
    for name, size in (("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:g} {name}"
    return f"{ns:.3g} ns"
