"""The hysteresis that all episodes of shares have: a share that is high, with short pauses.

What counts as high, and for whom, is the detector's; this says when a spell pauses, resumes and is
over, and which samples its sums hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats

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


@frozen
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
