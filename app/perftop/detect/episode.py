"""Episodes: something with a start and an end on named CPUs. Pure steps from sample to sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

CAUSES = {
    "PL1": "power-pl1", "PL2": "power-pl2", "electrical": "current", "thermal": "thermal",
    "running average thermal limit": "thermal", "PROCHOT": "prochot", "VR thermal": "vr",
    "VR thermal alert": "vr", "VR thermal design current": "vr", "autonomous utilisation": "hwp",
}  # fmt: skip
"""By the name of a limit reason; of two seen as often the first. The others limit nothing, or
nobody knows what."""
LEVELS = "license_1", "license_2", "license_3"
"""Counters of cycles for which wide code had the clock lowered."""


@dataclass(slots=True)
class Episode:
    kind: str
    cpus: list[int]
    start_ns: int  # raw
    end_ns: int | None = None  # None while running
    depth: float | None = None
    cause: str = "unknown"
    evidence: dict[str, Any] = field(default_factory=dict)
    confidence: Literal["measured", "inferred", "unknown"] = "measured"
    calm: bool = False
    """It does not show just now, and is over if that lasts."""


def _time(value_s: float) -> str:
    if value_s < 1e-3:
        return f"{1e6 * value_s:.0f} us"
    return f"{1e3 * value_s:.0f} ms" if value_s < 1 else f"{value_s:.1f} s"


def rough(share: float) -> str:
    """Of a whole, to a per cent: 80 %."""
    return f"{100 * share:.0f} %"


_NAMES = {
    "first_hz": "from at most", "steady_hz": "to", "drops": "drops on the way:",
    "t90_s": "90 % within", "t99_s": "99 % within", "steady_s": "steady within",
    "slowest_s": "the slowest within", "slowest_cpu": "that is CPU",
    "as_if_clock_changes_of_8.5_us_per_s": "as if by clock changes of 8.5 us,",
    "error_share": "error up to", "error_of_idle_share": "of idle",
    "error_of_reading_share": "of reading", "error_of_steal_share": "of steal",
}  # fmt: skip
"""Of keys that a reader would not understand without."""
_UNITS: dict[str, Callable[[float], str]] = {
    "_hz": lambda value: f"{1e-9 * value:.2f} GHz",
    "_w": lambda value: f"{value:.0f} W",
    "_c": lambda value: f"{value:.0f} °C",
    "_share": lambda value: f"{100 * value:.{0 if value >= 0.1 else 2}f} %",
    "_per_s": lambda value: f"{value:.3g}/s" if value < 100 else f"{value:.0f}/s",
    "_s": _time,
}
"""By the end of a key; of those that fit the first."""


def told(key: str, value: object) -> str:
    """A piece of evidence as text: its key says in which unit a number is."""
    name = _NAMES.get(key)
    for end, shown in _UNITS.items():
        if key.endswith(end) and isinstance(value, int | float):
            return f"{name or key.removesuffix(end).replace('_', ' ')} {shown(value)}"
    return f"{name or key.replace('_', ' ') + ':'} {value}"
