"""Who loses a share of something to others, from when to when: episodes of kind neighbour.

What others do comes in pieces - ticks, time slices - so one sample proves little. A loss begins
once it has lasted, and then from its first sample; it ends once it has been over for a while, and
then with its last one. All arrays are by position, of CPUs or of packages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine.episode_log import Detector
from perftop.detect.engine.share_episodes import gap_ns
from perftop.samples.episode import Episode

KIND = "neighbour"
LASTS = 2
"""Samples that show it: one may be a tick that fell into it, or the edge of something else."""
PAUSE_NS = 400_000_000
"""A loss of which so long nothing was seen is over; ticks of 10 ms of one of 5 % lie closer."""


@dataclass(slots=True, eq=False)
class Loss:
    """One that runs."""

    episode: Episode
    group: int
    members: list[int] = field(default_factory=list)
    """Positions, also those for which it is over."""
    lost: float = 0.0
    weight: float = 0.0
    """Of those for which it is over."""


class Losses:
    """`start`: the share at which one begins; less, down to `end`, keeps it going. `least`: what
    must be lost in all, in the unit of weights."""

    def __init__(self, detector: Detector, cause: str, groups: Ints, sample_ns: int, *,
                 start: float, end: float, least: float = 0.0) -> None:  # fmt: skip
        self.running: list[Loss] = []
        self._detector, self._cause, self._groups = detector, cause, groups
        self._start, self._end, self._least = start, end, least
        self._sample_ns, self._gap_ns = sample_ns, gap_ns(sample_ns)
        n = len(groups)
        self.open: Bools = np.zeros(n, bool)
        """Those that lose, as it seems ..."""
        self.sure: Bools = np.zeros(n, bool)
        """... and those of them that belong to an episode."""
        self.first_ns: Ints = np.zeros(n, np.int64)
        """When that began."""
        self._last_ns: Ints = np.zeros(n, np.int64)
        self._samples: Ints = np.zeros(n, np.int64)
        self._sums: Floats = np.zeros((2, n))
        """Lost and weight, up to the last sample that showed it ..."""
        self._tail: Floats = np.zeros((2, n))
        """... and since then."""

    @property
    def quiet(self) -> bool:
        """Nobody seems to lose anything."""
        return not self.open.any()

    def share(self, at: int) -> float:
        """Of one that loses: how much so far."""
        lost, weight = (self._sums + self._tail)[:, at].tolist()
        return float(lost / weight) if weight > 0 else float("nan")

    def step(self, shares: Floats, weights: Floats, may_begin: Bools, since_ns: int,
             time_ns: int) -> list[Episode]:  # fmt: skip
        """The episodes that this sample ended. Shares are NaN where they are not known."""
        if not 0 < time_ns - since_ns <= self._gap_ns:
            return self._close(self.open.copy())
        known = np.isfinite(shares)
        lost = np.where(known, shares, 0.0)
        fresh = may_begin & ~self.open & (lost >= self._start)
        if self.quiet and not fresh.any():
            return []
        self._open(fresh, since_ns)
        self._add(self.open & known, lost, weights, time_ns)
        return self._close(self._over(known, time_ns))

    def begin(self, proven: Bools, names: Sequence[Sequence[int]], time_ns: int) -> list[Loss]:
        """Those that have lasted become episodes, if what they rest on is proven; also those that
        more CPUs have joined. `names`: the CPUs of each position."""
        lasts = self.open & ~self.sure & proven & (self._samples >= LASTS)
        lasts &= (self._sums[0] >= self._least) & (self._last_ns == time_ns)
        begun = []
        for at in np.flatnonzero(lasts).tolist():
            loss = self._joined(at)
            if at not in loss.members:
                loss.members.append(at)
            loss.episode.cpus = sorted({*loss.episode.cpus, *names[at]})
            begun += [] if loss in begun else [loss]
        self.sure |= lasts
        for loss in self.running if self.sure.any() else ():
            members = [at for at in loss.members if self.sure[at]]
            lost, weight = self._sums[:, members].sum(axis=1).tolist()
            if loss.weight + weight > 0:
                loss.episode.depth = (loss.lost + lost) / (loss.weight + weight)
        return begun

    def _open(self, fresh: Bools, since_ns: int) -> None:
        self.open |= fresh
        self.first_ns[fresh] = self._last_ns[fresh] = since_ns
        self._samples[fresh] = 0
        self._sums[:, fresh] = self._tail[:, fresh] = 0.0

    def _add(self, seen: Bools, lost: Floats, weights: Floats, time_ns: int) -> None:
        self._tail[:, seen] += np.array([lost * weights, weights])[:, seen]
        high = seen & (lost >= self._end)
        self._sums[:, high] += self._tail[:, high]
        self._tail[:, high] = 0.0
        self._samples[high] += 1
        self._last_ns[high] = time_ns

    def _over(self, known: Bools, time_ns: int) -> Bools:
        absent_ns = time_ns - self._last_ns
        over = self.open & np.where(known, absent_ns >= PAUSE_NS, absent_ns > self._gap_ns)
        lost, weight = self._sums + self._tail
        slight = self.open & ~self.sure & (lost < self._start * weight)
        return np.asarray(over | slight)

    def _joined(self, at: int) -> Loss:
        """The one it is part of: one that began with it, or had it before; else a new one."""
        for loss in self.running:
            apart_ns = abs(loss.episode.start_ns - int(self.first_ns[at]))
            if loss.group == self._groups[at] and (
                apart_ns <= self._sample_ns or at in loss.members
            ):
                return loss
        loss = Loss(Episode(KIND, [], int(self.first_ns[at]), cause=self._cause),
                    int(self._groups[at]))  # fmt: skip
        self.running.append(loss)
        self._detector.running.append(loss.episode)
        return loss

    def _close(self, over: Bools) -> list[Episode]:
        ended = []
        self.open &= ~over
        for loss in [*self.running] if (over & self.sure).any() else ():
            gone = [at for at in {*loss.members} if over[at] and self.sure[at]]
            lost, weight = self._sums[:, gone].sum(axis=1).tolist()
            loss.lost, loss.weight = loss.lost + lost, loss.weight + weight
            if not any(self.open[at] and self.sure[at] for at in loss.members):
                self.running.remove(loss)
                end_ns = int(self._last_ns[loss.members].max())
                ended.append(self._detector.end(loss.episode, end_ns))
        self.sure &= ~over
        return ended
