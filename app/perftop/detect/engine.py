"""What all detectors share: their input, the list of running episodes, and the hysteresis that
turns a high share with short pauses into one episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints, distinct
from perftop.model.cores import Cores
from perftop.model.episode import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample, Verdicts


@dataclass(frozen=True, slots=True)
class Seen:
    """One sample; `cores` is another object when they were regrouped."""

    sample: Sample
    since_ns: int
    time_ns: int
    cores: Cores
    records: Mapping[str, object]
    """What came with the frame besides counters. It comes from outside: readers must check it."""

    @property
    def ceiling_hz(self) -> Floats:
        """What turbo allows each core for certain; NaN: unknown."""
        return self.sample.ceilings.hz

    def util(self) -> Floats:
        """Utilisation of each core's busiest thread; NaN: not read."""
        return self.sample.part(_util)

    def ran(self) -> tuple[Floats, Floats]:
        """Cycles of each core's threads together and the seconds they took; 0: not known."""
        cycles, run_s = self.sample.part(ran)
        return cycles, run_s


def _util(among: Verdicts) -> Floats:
    return among.cores.most(among.values["util"])


def ran(among: Verdicts) -> Floats:
    """(samples, 2, cores): what `Seen.ran` tells of each."""
    values, at = among.values, INDEX["busy_hz"]
    both = np.array([values.top[:, at], values.bottom[:, at]])
    known = np.logical_and.reduce(np.isfinite(both))
    if np.count_nonzero(known) < known.size:
        both[:, ~known] = 0.0
    return among.cores.total(both).swapaxes(0, 1)


class Detector:
    """Holds the episodes that run. An episode that ends is returned by the call that ended it."""

    def __init__(self) -> None:
        self.running: list[Episode] = []

    def of(self, kind: str) -> list[Episode]:
        """The episodes of one kind that run and show now."""
        return [e for e in self.running if e.kind == kind and not e.calm]

    def hotplug(self, cpu: int, time_ns: int, *, online: bool) -> list[Episode]:
        """A CPU went away or came."""
        away = [e for e in self.of("offline") if e.cpus == [cpu]]
        if online:
            back = Episode("online", [cpu], time_ns, time_ns, cause="hotplug")
            return [*(self.end(episode, time_ns) for episode in away), back]
        if not away:
            self.running.append(Episode("offline", [cpu], time_ns, cause="hotplug"))
        return []

    def end(self, episode: Episode, end_ns: int) -> Episode:
        self.running = [e for e in self.running if e is not episode]
        episode.end_ns, episode.calm = end_ns, False
        return episode


GAP_NS, GAP_SAMPLES = 5_000_000_000, 3
"""A spell of which nothing is known for longer than both is over; nobody can tell when it ended."""
PAUSE_NS = 400_000_000
"""A pause that lasts this long ends a spell. What holds power and heat goes to and fro several
times a second, and ticks of 10 ms of a loss of 5 % lie closer: a line for each would bury them."""


def gap_ns(sample_ns: int) -> int:
    """The longest time without knowledge that a spell survives."""
    return max(GAP_NS, GAP_SAMPLES * sample_ns)


@dataclass(slots=True)
class Whole:
    """Sums over all samples of a spell."""

    samples: int = 0
    sums: Floats | float = 0.0

    def add(self, parts: Sequence[Floats]) -> None:
        """The sums of samples, oldest first."""
        self.sums, self.samples = self.sums + sum(parts), self.samples + len(parts)


@dataclass(slots=True)
class Inside:
    """Sums over the samples that lie within a spell for certain. The spell may have begun and ended
    in the middle of its first and its last sample: these count only where there is no other."""

    samples: int = 0
    _first: Floats | float = 0.0
    _between: Floats | float = 0.0
    _latest: Floats | float = 0.0

    @property
    def sums(self) -> Floats | float:
        return self._between if self.samples > 2 else self._first + self._latest

    def add(self, parts: Sequence[Floats]) -> None:
        """The sums of samples, oldest first."""
        for part in parts:
            if self.samples == 0:
                self._first = part
            else:
                self._between, self._latest = self._between + self._latest, part
            self.samples += 1

    def amend(self, part: Floats) -> None:
        """More of the latest sample."""
        self._latest = self._latest + part


@dataclass(slots=True, eq=False, kw_only=True)
class Spell:
    """A share that is high, from the first sample that showed it."""

    group: int
    """Spells of one group that begin together are one episode."""
    start_ns: int
    last_ns: int
    """End of the last sample that showed it."""
    kept: Inside | Whole
    calm_ns: int | None = None
    """Start of the pause it is in."""
    calm: list[Floats] = field(default_factory=list)
    """Sums of that pause, sample by sample. They count once the share is high again."""

    @property
    def until_ns(self) -> int:
        """Its end, should it be over."""
        return self.last_ns if self.calm_ns is None else self.calm_ns

    def show(self, sums: Floats, time_ns: int) -> None:
        """A sample that ended at `time_ns` shows it. The pause before belongs to it."""
        self.kept.add([*self.calm, sums])
        self.calm.clear()
        self.calm_ns, self.last_ns = None, time_ns

    def pause(self, since_ns: int, sums: Floats | None = None) -> None:
        """A sample does not show it. Without sums the pause never counts."""
        self.calm_ns = since_ns if self.calm_ns is None else self.calm_ns
        if sums is not None:
            self.calm.append(sums)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a spell goes on although nothing shows it."""

    pause_ns: int
    gap_ns: int

    def gap(self, since_ns: int, time_ns: int) -> bool:
        """The stream itself has one between these samples, or goes back in time."""
        return not 0 < time_ns - since_ns <= self.gap_ns

    def over(self, spell: Spell, time_ns: int, *, known: bool) -> bool:
        """After a sample; `known`: it told something of this spell."""
        if not known:
            return time_ns - spell.last_ns > self.gap_ns
        return spell.calm_ns is not None and time_ns - spell.calm_ns >= self.pause_ns


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
