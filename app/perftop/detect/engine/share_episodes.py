"""Episodes of one kind: some positions - CPUs, cores or packages - on which a share is high.

Positions of a group whose shares rise in the same sample, or one sample apart, are one episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints, distinct
from perftop.detect.engine.episode_log import Detector
from perftop.detect.engine.hysteresis import Inside, Patience, Spell, gap_ns
from perftop.model.episode import Episode

Names = Sequence[Sequence[int]]
"""The CPUs of each position."""


@dataclass(slots=True, eq=False, kw_only=True)
class Shown(Spell):
    """A spell of several positions that is one episode."""

    kept: Inside = field(default_factory=Inside)
    episode: Episode
    members: Bools

    @property
    def sums(self) -> Floats:
        return np.asarray(self.kept.sums)


S = TypeVar("S", bound=Shown)


class Running(Generic[S]):
    """The spells of a detector that run, and their ends. No position is part of two."""

    def __init__(self, detector: Detector, patience: Patience) -> None:
        self.running: list[S] = []
        self.patience = patience
        self._detector = detector

    def taken(self, count: int) -> Bools:
        """Which of so many positions are part of one that runs."""
        members = [spell.members for spell in self.running]
        return np.asarray(np.any([np.zeros(count, bool), *members], axis=0))

    def young(self, group: int) -> S | None:
        """One of this group that began with the sample before this one: in the middle of it
        perhaps, so that not all of its positions showed it yet."""
        same = (s for s in self.running if s.group == group and s.calm_ns is None)
        return next((spell for spell in same if spell.kept.samples == 2), None)

    def begin(self, spell: S) -> None:
        self.running.append(spell)
        self._detector.running.append(spell.episode)

    def close(self, over: Sequence[S]) -> list[Episode]:
        """The episodes of these spells, ended."""
        self.running = [spell for spell in self.running if spell not in over]
        return [self._detector.end(spell.episode, spell.until_ns) for spell in over]


class Spells(Running[Shown]):
    """`start`: the share at which one begins; less, down to `end`, keeps it going. `after`: so many
    samples in a row must show it, and it began with the first of them. It is over once it has not
    shown for `pause_ns`, and then from where that began."""

    def __init__(
        self, detector: Detector, kind: str, start: float, end: float, sample_ns: int, *,
        after: int = 1, pause_ns: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(detector, Patience(pause_ns, gap_ns(sample_ns)))
        self._kind = kind
        self._start, self._end, self._after = start, end, after
        self._names: Names = ()
        self._high: Ints = np.zeros(0, int)
        """By position: samples in a row with a high share, not yet an episode ..."""
        self._since_ns: Ints = np.zeros(0, int)
        """... and when they began."""

    @property
    def quiet(self) -> bool:
        """Whether nothing runs or is about to: then a sample without a high share may be
        skipped."""
        return not self.running and not self._high.any()

    def step(
        self, shares: Floats, weights: Floats, groups: Ints, names: Names, since_ns: int,
        time_ns: int, more: Sequence[Floats] = (),
    ) -> list[Episode]:  # fmt: skip
        """The episodes that this sample ended. By position: shares, NaN where they are not known;
        what each counts for; whose fate it shares; its CPUs, another object once they change;
        `more` that is to be summed up. Those that `running` has now and had not before have just
        begun."""
        if names is not self._names:
            self._rename(names)
        if self.patience.gap(since_ns, time_ns):
            self._high[:] = 0
            return self.close(self.running)
        known = np.isfinite(shares) & (weights > 0)
        share, weight = np.where(known, shares, 0.0), np.where(known, weights, 0.0)
        found = np.array([share * weight, weight, *(np.where(known, part, 0.0) for part in more)])
        ended = self.close(self._follow(found, since_ns, time_ns))
        high = known & (share >= self._start) & ~self.taken(len(names))
        rises = self._rises(known, high, since_ns, time_ns)
        for group in distinct(groups[rises]):
            self._rise(group, rises & (groups == group), found, time_ns)
        return ended

    def _follow(self, found: Floats, since_ns: int, time_ns: int) -> list[Shown]:
        """Adds the sample to what runs. Returns those that are over."""
        over: list[Shown] = []
        for spell in self.running:
            sums = found[:, spell.members].sum(axis=1)
            if (known := bool(sums[1])) and sums[0] < self._end * sums[1]:
                spell.pause(since_ns, sums)
            elif known:
                spell.show(sums, time_ns)
                _settle(spell)
            over += [spell] if self.patience.over(spell, time_ns, known=known) else []
        return over

    def _rises(self, known: Bools, high: Bools, since_ns: int, time_ns: int) -> Bools:
        """Positions that have been high for long enough to begin."""
        self._high[time_ns - self._since_ns > self.patience.gap_ns] = 0  # not known since
        self._since_ns[self._high == 0] = since_ns
        self._high = np.where(known, np.where(high, self._high + 1, 0), self._high)
        rises = high & (self._high >= self._after)
        self._high[rises] = 0
        return np.asarray(rises)

    def _rise(self, group: int, new: Bools, found: Floats, time_ns: int) -> None:
        sums = found[:, new].sum(axis=1)
        spell = self.young(group)
        if spell is None:
            start_ns = int(self._since_ns[new].min())
            spell = Shown(
                group=group, start_ns=start_ns, last_ns=time_ns, members=new & False,
                episode=Episode(self._kind, [], start_ns),
            )  # fmt: skip
            self.begin(spell)
            spell.show(sums, time_ns)
        else:
            spell.kept.amend(sums)
        _settle(spell)
        spell.members |= new
        names = [self._names[i] for i in np.flatnonzero(spell.members).tolist()]
        spell.episode.cpus = sorted(cpu for name in names for cpu in name)

    def _rename(self, names: Names) -> None:
        """Positions are others than they were: CPUs say which of them an episode is about."""
        self._names = names
        self._high, self._since_ns = np.zeros((2, len(names)), int)
        for spell in self.running:
            cpus = {*spell.episode.cpus}
            spell.members = np.array([not cpus.isdisjoint(name) for name in names], bool)


def _settle(spell: Shown) -> None:
    lost, weight = spell.sums[:2].tolist()
    spell.episode.depth = lost / weight
