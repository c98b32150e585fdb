"""Episodes of one kind: some positions - CPUs, cores or packages - on which a share is high.

Positions of a group whose shares rise in the same sample, or one sample apart, are one episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine.episode_log import Detector
from perftop.samples.episode import Episode

GAP_NS, GAP_SAMPLES = 5_000_000_000, 3
"""An episode of which nothing is seen for longer than both is over, nobody can tell when."""
PAUSE_NS = 400_000_000
"""One that has not shown for so long is over, where that is asked for. What holds power and heat
goes to and fro several times a second, and a line for each time would bury it."""


def gap_ns(sample_ns: int) -> int:
    return max(GAP_NS, GAP_SAMPLES * sample_ns)


@dataclass(slots=True)
class Inside:
    """Sums over the samples of an episode that lie within it for certain. It may have begun and
    ended in the middle of the first and of the last, which count only where there is no other."""

    samples: int = 0
    last_ns: int = 0
    _first: Floats | float = 0.0
    _whole: Floats | float = 0.0
    _latest: Floats | float = 0.0

    @property
    def sums(self) -> Floats:
        return np.asarray(self._whole if self.samples > 2 else self._first + self._latest)

    def add(self, found: Floats, time_ns: int) -> None:
        """One more sample."""
        if self.samples == 0:
            self._first = found
        else:
            self._whole, self._latest = self._whole + self._latest, found
        self.last_ns, self.samples = time_ns, self.samples + 1

    def amend(self, found: Floats) -> None:
        """More of the latest sample."""
        self._latest = self._latest + found


@dataclass(slots=True, eq=False)
class Spell:
    """One that runs."""

    episode: Episode
    group: int
    members: Bools
    inside: Inside = field(default_factory=Inside)
    """Of share times weight, of weights, and of what else was handed in."""
    calm: list[tuple[int, int, Floats]] = field(default_factory=list)
    """Samples that did not show it, each with its start and end, since one last did."""

    @property
    def until_ns(self) -> int:
        return self.calm[0][0] if self.calm else self.inside.last_ns

    @property
    def sums(self) -> Floats:
        return self.inside.sums

    def resume(self) -> None:
        """It shows again: it has lasted all the while."""
        for _, time_ns, sums in self.calm:
            self.inside.add(sums, time_ns)
        self.calm.clear()

    def settle(self) -> None:
        lost, weight = self.sums[:2].tolist()
        self.episode.depth = lost / weight


class Spells:
    """`start`: the share at which one begins; less, down to `end`, keeps it going. `after`: so many
    samples in a row must show it, and it began with the first of them. It is over once it has not
    shown for `pause_ns`, and then from where that began."""

    def __init__(
        self,
        detector: Detector,
        kind: str,
        start: float,
        end: float,
        sample_ns: int,
        *,
        after: int = 1,
        pause_ns: int = 0,
    ) -> None:
        self.running: list[Spell] = []
        self._detector, self._kind = detector, kind
        self._start, self._end, self._after = start, end, after
        self._pause_ns, self._gap_ns = pause_ns, gap_ns(sample_ns)
        self._names: Sequence[Sequence[int]] = ()
        self._high: Ints = np.zeros(0, int)
        """By position: samples in a row with a high share, not yet an episode ..."""
        self._since_ns: Ints = np.zeros(0, int)
        """... and when they began."""

    @property
    def quiet(self) -> bool:
        """Nothing runs or is about to: a sample without a high share need not be shown."""
        return not self.running and not self._high.any()

    def taken(self, count: int) -> Bools:
        """Which of so many positions are part of one that runs."""
        members = [spell.members for spell in self.running]
        return np.asarray(np.any([np.zeros(count, bool), *members], axis=0))

    def step(
        self,
        shares: Floats,
        weights: Floats,
        groups: Ints,
        names: Sequence[Sequence[int]],
        since_ns: int,
        time_ns: int,
        more: Sequence[Floats] = (),
    ) -> list[Episode]:
        """The episodes that this sample ended. By position: shares, NaN where they are not known;
        what each counts for; whose fate it shares; its CPUs, another object once they change;
        `more` that is to be summed up. Those that `running` has now and had not before have just
        begun."""
        if names is not self._names:
            self._rename(names)
        if not 0 < time_ns - since_ns <= self._gap_ns:
            self._high[:] = 0
            return self._close(self.running)
        known = np.isfinite(shares) & (weights > 0)
        share, weight = np.where(known, shares, 0.0), np.where(known, weights, 0.0)
        found = np.array([share * weight, weight, *(np.where(known, part, 0.0) for part in more)])
        ended = self._close(self._follow(found, since_ns, time_ns))
        high = known & (share >= self._start) & ~self.taken(len(names))
        rises = self._rises(known, high, since_ns, time_ns)
        for group in np.unique(groups[rises]):
            self._begin(int(group), rises & (groups == group), found, time_ns)
        return ended

    def _follow(self, found: Floats, since_ns: int, time_ns: int) -> list[Spell]:
        """Adds the sample to what runs; those that are over."""
        over: list[Spell] = []
        for spell in self.running:
            sums = found[:, spell.members].sum(axis=1)
            if sums[1] == 0:  # nothing is known of it
                over += [spell] if time_ns - spell.inside.last_ns > self._gap_ns else []
            elif sums[0] < self._end * sums[1]:
                spell.calm.append((since_ns, time_ns, sums))
                over += [spell] if time_ns - spell.until_ns >= self._pause_ns else []
            else:
                spell.resume()
                spell.inside.add(sums, time_ns)
                spell.settle()
        return over

    def _rises(self, known: Bools, high: Bools, since_ns: int, time_ns: int) -> Bools:
        """Positions that have been high for long enough to begin."""
        self._high[time_ns - self._since_ns > self._gap_ns] = 0  # not known since
        self._since_ns[self._high == 0] = since_ns
        self._high = np.where(known, np.where(high, self._high + 1, 0), self._high)
        rises = high & (self._high >= self._after)
        self._high[rises] = 0
        return np.asarray(rises)

    def _begin(self, group: int, new: Bools, found: Floats, time_ns: int) -> None:
        sums = found[:, new].sum(axis=1)
        same = (s for s in self.running if s.group == group and not s.calm)
        young = next((s for s in same if s.inside.samples == 2), None)
        if young is None:
            start_ns = int(self._since_ns[new].min())
            young = Spell(Episode(self._kind, [], start_ns), group, new & False)
            self.running.append(young)
            self._detector.running.append(young.episode)
            young.inside.add(sums, time_ns)
        else:  # it began late in the last sample: not all showed it
            young.inside.amend(sums)
        young.settle()
        young.members |= new
        young.episode.cpus = self._cpus(young.members)

    def _cpus(self, members: Bools) -> list[int]:
        return sorted(cpu for i in np.flatnonzero(members).tolist() for cpu in self._names[i])

    def _rename(self, names: Sequence[Sequence[int]]) -> None:
        """Positions are others than they were: CPUs say which of them an episode is about."""
        self._names = names
        self._high, self._since_ns = np.zeros((2, len(names)), int)
        for spell in self.running:
            cpus = {*spell.episode.cpus}
            spell.members = np.array([not cpus.isdisjoint(name) for name in names], bool)

    def _close(self, over: list[Spell]) -> list[Episode]:
        self.running = [spell for spell in self.running if spell not in over]
        return [self._detector.end(spell.episode, spell.until_ns) for spell in over]
