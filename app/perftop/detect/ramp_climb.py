"""What clocks did from a core's waking until they were steady. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, median_high
from typing import Any

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Bools, Floats, Ints

BUSY = 0.5
"""Minimum share of the time since it woke that a core works. Otherwise its load sets its clock."""
WAVER = 0.05
"""Share of the clock by which a steady one may waver: a step of 100 MHz."""
GAIN = 0.05
"""Minimum share of the steady clock that a climb gains. Less is wavering."""
TOWARDS = 0.25
"""Minimum share of the way from the first clock to the ceiling that a climb takes. Power limits and
policies hold real climbs at a third of it; a clock that wavers at the bottom takes some per cent.
"""


@frozen
class Ramp:
    """The ramp of one core."""

    core: int
    start_ns: int
    end_ns: int
    first_hz: float
    steady_hz: float
    t90_s: float
    t99_s: float
    steady_s: float
    resolution_s: float
    """Error of the times, which is also the shortest that can be told."""
    drops: int
    samples: int
    """Samples that showed it climb."""


@frozen
class Climb:
    """Some samples of some cores, of shape (samples, cores) each. The clock of all is steady since
    the sample `begin`."""

    cores: Ints
    woke: Ints
    """The sample in which each woke."""
    begin: int
    end_ns: Ints
    """(samples) ends of the samples."""
    hz: Floats
    """NaN: it slept."""
    util: Floats
    apart_ns: Floats
    """Time between one reading of the core and the next; 0: it was not read."""
    ceiling_hz: Floats
    """(cores) now; NaN: not known."""

    @property
    def _number(self) -> Ints:
        return np.arange(len(self.hz))[:, None]

    def _at(self, samples: Ints, values: Floats) -> Floats:
        return np.asarray(values[samples, np.arange(len(self.cores))])

    def start_ns(self) -> Floats:
        """When each core woke: the work in the sample of the waking was at the end of it."""
        work = np.minimum(1.0, self._at(self.woke, self.util) / self._at(self.woke + 1, self.util))
        return self.end_ns[self.woke] - work * self._at(self.woke, self.apart_ns)

    def began_ns(self, samples: Ints) -> Floats:
        """Start of these samples as each core saw it. The span of a core that was not read is
        longer."""
        return self.end_ns[samples] - self._at(samples, self.apart_ns)

    def settled(self, steady_hz: Floats, at99: Ints) -> Ints:
        """The sample from which on the clock only wavers and has gained everything."""
        astray = (np.abs(self.hz - steady_hz) > WAVER * steady_hz) & (self._number < self.begin)
        last = np.where(astray, self._number, -1).max(axis=0)
        return np.asarray(np.maximum(last + 1, at99))

    def ramps(self) -> list[Ramp]:
        """The ramps of the cores whose clock climbed."""
        first_hz, steady_hz = self._at(self.woke, self.hz), np.median(self.hz[self.begin :], axis=0)
        at90, at99 = ((self.hz >= share * steady_hz).argmax(axis=0) for share in (0.9, 0.99))
        settled = self.settled(steady_hz, at99)
        fell = self.hz[1:] < self.hz[:-1] * (1 - WAVER)
        fell &= self._number[1:] <= settled
        lost_hz = np.where(fell, self.hz[:-1] - self.hz[1:], 0.0).sum(axis=0)
        seen = (self._number >= self.woke) & (self._number <= settled)
        apart_s = np.where(seen, self.apart_ns, 0.0).max(axis=0) / 1e9
        start_ns, ends = self.start_ns(), [self.began_ns(at) for at in (at90, at99, settled)]
        columns: Sequence[Floats | Ints] = (
            self.cores, start_ns.astype(int), ends[2].astype(int), first_hz, steady_hz,
            *(np.maximum(apart_s, (end - start_ns) / 1e9) for end in ends),
            apart_s, fell.sum(axis=0), settled - self.woke,
        )  # fmt: skip
        climbed = self._worked() & self._rose(first_hz, steady_hz, lost_hz)
        rows = zip(*(column[climbed].tolist() for column in columns), strict=True)
        return [Ramp(*row) for row in rows]

    def _rose(self, first_hz: Floats, steady_hz: Floats, lost_hz: Floats) -> Bools:
        """Mask of the cores whose clock gained enough, more than it lost on the way, and came
        nearer to its ceiling."""
        gained_hz, room_hz = steady_hz - first_hz, self.ceiling_hz - first_hz
        far = np.isnan(room_hz) | (gained_hz >= TOWARDS * room_hz)
        return np.asarray((gained_hz >= GAIN * steady_hz) & (gained_hz > lost_hz) & far)

    def _worked(self) -> Bools:
        since = np.where(self._number > self.woke, self.util, 0.0).sum(axis=0)
        return np.asarray(since >= BUSY * (len(self.hz) - 1 - self.woke))


def evidence(ramps: Sequence[Ramp], cores: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Numbers of the median core, and of the slowest one if it can be told apart."""

    def middle(key: str) -> float:
        return float(median(getattr(ramp, key) for ramp in ramps))

    found: dict[str, Any] = {key: round(middle(key)) for key in ("first_hz", "steady_hz")}
    found |= {key: round(middle(key), 4) for key in ("t90_s", "t99_s", "steady_s")}
    slowest = max(ramps, key=lambda ramp: ramp.steady_s)
    if slowest.steady_s - middle("steady_s") > slowest.resolution_s:
        found["slowest_s"] = round(slowest.steady_s, 4)
        found["slowest_cpu"] = cores[slowest.core][0]
    found["resolution_s"] = round(median_high(r.resolution_s for r in ramps), 4)
    if drops := max(ramp.drops for ramp in ramps):
        found["drops"] = drops
    return found
