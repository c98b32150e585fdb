"""One interval as lists by row: what rows are drawn from. Plain numbers, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan

AWAKE = 0.1
"""A core that is less busy than this runs at whatever clock suits sleeping."""
INVOLUNTARY = 0.005
STEAL = 0.01
"""Shares from which on they stand out."""


@dataclass(slots=True)
class Sheet:
    """By row; NaN where unknown."""

    util: list[list[float]]
    """By row, then by its CPUs."""
    online: list[list[bool]]
    suspect: list[list[bool]]
    states: list[list[float]]
    low: list[list[float]]
    method: list[str | None]
    busy: list[float]
    ceiling: list[float]
    net: list[float]
    idle: list[float]
    involuntary: list[float]
    steal: list[float]
    ipc: list[float]
    kernel: list[float]
    dropped: list[bool]
    """Clearly below the ceiling while at work."""
    alone: list[bool]
    """Clearly below what the rest of its package runs at."""
    limited: dict[int | None, bool]
    """Packages of which most cores are below their ceiling: told once, not in every row."""
    top_hz: float
    """The fastest clock or ceiling in sight, for scales."""
    awake: list[bool]
    """Busy enough for its clock to mean something."""
    tasks: dict[str, list[object]] = field(default_factory=dict)
    """Who runs where, as it came: by CPU, pid and name."""
    user: list[float] = field(default_factory=list)
    system: list[float] = field(default_factory=list)
    iowait: list[float] = field(default_factory=list)

    def score(self, row: int) -> float:
        """Sort key, worst first: what is wrong before what is merely busy, in coarse steps so
        that rows do not change places for a tenth of a percent."""
        wrong = 0.0
        if self.alone[row] or self.dropped[row]:
            wrong += 1 - self.busy[row] / max(self.top_hz, 1.0)
        for share, least in ((self.involuntary[row], INVOLUNTARY), (self.steal[row], STEAL)):
            wrong += share if share >= least else 0.0
        busy = sum(share for share in self.util[row] if not isnan(share))
        return -(100 * round(wrong, 1 if wrong > 1 else 2) + round(busy, 1))
