"""Turbo tables from hello: the clock that turbo allows by number of active cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.counter_limits import MAX_HZ

MOST_TABLES, MOST_STEPS = 256, 64
"""Limits, because hello is not trusted. No known table has more than 18 steps; each core may have a
table of its own."""
MOST_CORES = 1 << 16
UPPER = "cpufreq"
"""Start of the origin of a table that does not tell how many cores may run that fast."""
Points = list[tuple[float, float]]
Corners = tuple[list[float], list[float]]
"""Numbers of active cores, ascending, and Hz, with straight lines between the points."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A turbo table; its clocks never rise with the number of active cores."""

    cores: Ints  # most active cores of each step; the last step is for more, too
    hz: Floats
    cpus: Bools  # mask by position of the CPUs with this table
    origin: str = ""

    def at(self, active: int) -> float:
        return float(self.hz[min(int(np.searchsorted(self.cores, active)), len(self.hz) - 1)])

    def below(self, least: int, most: int) -> Corners:
        """Corners of the greatest convex function nowhere above the table, from `least` to `most`
        cores."""
        begins = [c + 1 for c in self.cores.tolist() if least <= c < most]
        corners = lowest([(n, self.at(n)) for n in dict.fromkeys([least, *begins, most])])
        return [n for n, _ in corners], [hz for _, hz in corners]

    def above(self, least: int, most: int) -> Corners:
        """Corners of the least concave function nowhere below the table, from `least` to `most`
        cores."""
        ends = [c for c in self.cores.tolist() if least <= c < most]
        corners = lowest([(n, -self.at(n)) for n in dict.fromkeys([least, *ends, most])])
        return [n for n, _ in corners], [-hz for _, hz in corners]


def lowest(points: Points) -> Points:
    """The lower convex hull of points from left to right."""
    hull: Points = []
    for x, y in points:
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x1) < (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def tables(found: Sequence[wire.Turbo], cpus: Sequence[int]) -> tuple[list[Steps], Floats]:
    """The valid tables, each CPU in the first one that lists it; and the upper bounds of the clock
    that origins `cpufreq` give, in Hz by position of the CPU. NaN: not known."""
    numbers = np.array(cpus)
    free, bounds = np.ones(len(numbers), bool), np.full(len(numbers), np.nan)
    steps = []
    for turbo in found[:MOST_TABLES]:
        mine = np.isin(numbers, turbo.cpus) if turbo.cpus is not None else np.ones_like(free)
        if not _sound(turbo.steps):
            continue
        if turbo.origin.startswith(UPPER):
            bounds[mine] = np.fmax(bounds[mine], turbo.steps[0].hz)
        elif (mine & free).any():
            cores, hz = zip(*((step.cores, step.hz) for step in turbo.steps), strict=True)
            ours = mine & free
            steps.append(Steps(np.array(cores, int), np.array(hz, float), ours, turbo.origin))
            free &= ~mine
    return steps, bounds


def _sound(steps: Sequence[wire.Step]) -> bool:
    if not 0 < len(steps) <= MOST_STEPS:
        return False
    ordered = all(a.cores < b.cores and a.hz >= b.hz for a, b in pairwise(steps))
    return ordered and all(0 < s.cores <= MOST_CORES and 0 < s.hz <= MAX_HZ for s in steps)
