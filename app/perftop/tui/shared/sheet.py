"""One interval as lists by row: what rows are drawn from. Plain numbers, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan

from perftop.samples.metrics import METRICS

AWAKE = 0.1
"""A core that is less busy than this runs at whatever clock suits sleeping."""


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
    numbers: dict[str, list[float]]
    """The other metrics that rows show, by key."""
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

    def score(self, row: int) -> float:
        """Sort key, worst first: what is wrong before what is merely busy, in coarse steps so
        that rows do not change places for a tenth of a percent."""
        wrong = 0.0
        if self.alone[row] or self.dropped[row]:
            wrong += 1 - self.busy[row] / max(self.top_hz, 1.0)
        for key in ("involuntary", "steal"):
            share = self.numbers[key][row]
            wrong += share if share >= METRICS[key].stands_out else 0.0
        busy = sum(share for share in self.util[row] if not isnan(share))
        return -(100 * round(wrong, 1 if wrong > 1 else 2) + round(busy, 1))
