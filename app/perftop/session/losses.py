"""What all working CPUs, or the watched job, lost so far, by cause, in seconds.

The whole is the time that was wanted: of working CPUs as `samples.lost` has it, and the time that
tasks waited for a CPU. While a job is watched it is that of the job alone: the time that its
threads ran, and that they waited. A CPU's losses count for the job as far as the job ran there.

Each second of it belongs to one cause at most, in this order:

1. scheduler: a task was ready, and its CPU worked for another. This is time of the waiting task,
   beside that of the CPU.
2. steal, involuntary halts, clock below the ceiling: parts of the CPU's time (`samples.lost`). An
   episode that runs on the CPU at that time names the cause; without one it is OTHER.
3. sibling, package: of what is left, the share that the detector tells. A loss that the detector
   puts down to a clock below the ceiling is in the part of the clock, and not counted again.

So the shares of all causes add up to 1 at most. A sample is settled LATE_NS after its end, for some
episodes are told only after they have lasted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.episode import Episode
from perftop.model.evaluation import LOSS_PARTS, Lost

Cause = tuple[str, str]
"""Kind and cause of the episodes that took the time."""
STEAL: Cause = ("steal", "hypervisor")
WAIT: Cause = ("neighbour", "scheduler")
OTHER = "other"
"""Cause of a loss that no episode explains."""
_NAMED: dict[str, tuple[str, ...]] = {
    "involuntary": ("throttle", "involuntary-halt"),
    "clock": ("turbo-drop", "throttle", "license", "ramp"),
}
"""Kinds of episodes that name the cause of each part, in this order."""
_SHARED = frozenset({"sibling", "package", "memory"})
LATE_NS = 6_000_000_000
"""The longest time until an episode is told that had begun; also from its end to its listing."""
SPREAD_NS = 1_000_000_000
"""Threads of a job are looked at by turns; within this time, all of them."""
MOST_OPEN = 256
"""Samples that wait to be settled. Beyond that the oldest are settled early."""


class _Open(NamedTuple):
    since_ns: int
    until_ns: int
    wanted_s: Floats
    parts_s: Floats


class Sums(NamedTuple):
    """Seconds since the start, by position of the CPU."""

    wanted_s: Floats
    waited_s: Floats
    by_cause: dict[Cause, Floats]
    """Seconds by cause, without those that took nothing."""

    @property
    def whole_s(self) -> float:
        return float(self.wanted_s.sum() + self.waited_s.sum())

    def share(self, cause: Cause) -> float:
        """What was lost to it of the whole; NaN if nobody worked."""
        lost_s = float(self.by_cause[cause].sum()) if cause in self.by_cause else 0.0
        return max(0.0, lost_s) / self.whole_s if self.whole_s > 0 else float("nan")

    def shares(self) -> dict[Cause, float]:
        """The share of each cause, the costliest first."""
        found = {cause: self.share(cause) for cause in self.by_cause}
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    @property
    def lost_ratio(self) -> float:
        """Share of the whole that all causes took together; NaN if nobody worked."""
        return sum(self.shares().values()) if self.whole_s > 0 else float("nan")

    def since(self, before: Sums) -> Sums:
        """What was added since an earlier moment, as exact as that was settled."""
        none = np.zeros(len(self.wanted_s))
        causes = {c: s - before.by_cause.get(c, none) for c, s in self.by_cause.items()}
        return Sums(self.wanted_s - before.wanted_s, self.waited_s - before.waited_s, causes)


class Losses:
    """The sums of a stream. CPUs are by position."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._position = {cpu: at for at, cpu in enumerate(cpus)}
        self._wanted_s, self._waited_s = np.zeros((2, len(cpus)))
        self._by_cause: dict[Cause, Floats] = {}
        self._open: deque[_Open] = deque()
        self._held: list[_Open] = []
        """Samples of which is not known yet how much the job ran in them ..."""
        self._run_s = np.zeros(len(cpus))
        """... and what it was told to have run since the first of them."""

    def take(
        self, lost: Lost, since_ns: int, until_ns: int, waited_s: Floats | float,
        run_s: Floats | None,
    ) -> None:  # fmt: skip
        """A sample. `waited_s`: seconds that tasks were told to have waited. `run_s`: seconds that
        the watched job was told to have run; None: no job is watched."""
        known = np.isfinite(lost.parts_s).all(axis=0) & np.isfinite(lost.wanted_s)
        wanted_s, parts_s = np.where(known, lost.wanted_s, 0.0), np.where(known, lost.parts_s, 0.0)
        self._waited_s = self._waited_s + waited_s
        self._held.append(_Open(since_ns, until_ns, wanted_s, parts_s))
        if run_s is None:
            self._open.append(self._held.pop())
            return
        self._run_s = self._run_s + run_s
        if until_ns - self._held[0].since_ns >= SPREAD_NS:
            self._spread()

    def _spread(self) -> None:
        """Narrows the samples that are held down to the job: what it ran in all of them goes to
        each by the work of the CPU there."""
        if not self._held:
            return
        wanted_s = np.array([one.wanted_s for one in self._held])
        stolen_s = np.array([one.parts_s[LOSS_PARTS.index("steal")] for one in self._held])
        worked_s = (wanted_s - stolen_s).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            mine = np.where(worked_s > 0, np.minimum(self._run_s / worked_s, 1.0), 0.0)
            places = np.where(worked_s > 0, (wanted_s - stolen_s) / worked_s, 1 / len(wanted_s))
        for one, stolen, place in zip(self._held, stolen_s, places, strict=True):
            # The kernel does not count stolen time as running, where it knows of it.
            job = one._replace(wanted_s=self._run_s * place + stolen * mine,
                               parts_s=one.parts_s * mine)  # fmt: skip
            self._open.append(job)
        self._held, self._run_s = [], np.zeros(len(self._run_s))

    def due(self, now_ns: int) -> int | None:
        """Raw time of the oldest sample that is to be settled now; None: it is too early."""
        oldest_ns = self._open[0].since_ns if self._open else now_ns
        late = oldest_ns < now_ns - 2 * LATE_NS or len(self._open) > MOST_OPEN
        return oldest_ns if late else None

    def settle(self, episodes: Iterable[Episode], now_ns: int) -> None:
        """Adds up the samples of which all is known. `episodes`: those since `due`."""
        over: list[_Open] = []
        least = len(self._open) - MOST_OPEN // 2
        while self._open and (self._open[0].until_ns < now_ns - LATE_NS or len(over) < least):
            over.append(self._open.popleft())
        self._wanted_s, self._by_cause = self._added(over, list(episodes))

    @property
    def begun_ns(self) -> int:
        """Raw time of the oldest sample that is not settled."""
        return min((one.since_ns for one in (*self._open, *self._held)), default=0)

    def settled(self) -> Sums:
        """These sums only grow, but for the noise of involuntary halts."""
        return Sums(self._wanted_s, self._waited_s, dict(self._by_cause))

    def sums(self, episodes: Iterable[Episode]) -> Sums:
        """The sums up to the last sample, as far as causes are known by now. `episodes`: since
        `begun_ns`."""
        self._spread()
        wanted_s, by_cause = self._added(list(self._open), list(episodes))
        if self._waited_s.any():
            by_cause[WAIT] = self._waited_s
        return Sums(wanted_s, self._waited_s, {c: s for c, s in by_cause.items() if s.any()})

    def _added(
        self, samples: Sequence[_Open], episodes: Sequence[Episode]
    ) -> tuple[Floats, dict[Cause, Floats]]:
        by_cause = {cause: lost_s.copy() for cause, lost_s in self._by_cause.items()}
        if not samples:
            return self._wanted_s, by_cause
        wanted_s = np.array([one.wanted_s for one in samples])
        parts_s = np.array([one.parts_s for one in samples])
        times = np.array([(one.since_ns, one.until_ns) for one in samples])
        for cause, lost_s in self._causes(wanted_s, parts_s, times, episodes):
            before_s = by_cause.get(cause)
            by_cause[cause] = lost_s if before_s is None else before_s + lost_s
        return self._wanted_s + wanted_s.sum(axis=0), by_cause

    def _causes(
        self, wanted_s: Floats, parts_s: Floats, times: Floats, episodes: Sequence[Episode]
    ) -> Iterator[tuple[Cause, Floats]]:
        steal = parts_s[:, LOSS_PARTS.index("steal")]
        yield STEAL, steal.sum(axis=0)
        for part, kinds in _NAMED.items():
            left = parts_s[:, LOSS_PARTS.index(part)].copy()
            for episode in sorted(episodes, key=lambda e: _place(kinds, e.kind)):
                if episode.kind in kinds and left.any():
                    mask = self._mask(episode, times)
                    yield (episode.kind, episode.cause), np.where(mask, left, 0.0).sum(axis=0)
                    left[mask] = 0.0
            kind = "involuntary-halt" if part == "involuntary" else "turbo-drop"
            yield (kind, OTHER), left.sum(axis=0)
        rest = np.maximum(wanted_s - np.maximum(parts_s, 0.0).sum(axis=1), 0.0)
        for episode in episodes:
            if episode.kind == "neighbour" and _apart(episode):
                taken = np.where(self._mask(episode, times), rest * (episode.depth or 0.0), 0.0)
                rest = rest - taken
                yield (episode.kind, episode.cause), taken.sum(axis=0)

    def _mask(self, episode: Episode, times: Floats) -> Bools:
        """(samples, CPUs) during the episode: samples of which half or more lies in it."""
        end_ns = times[-1, 1] if episode.end_ns is None else episode.end_ns
        middle = times.mean(axis=1)
        during = (middle >= episode.start_ns) & (middle <= end_ns)
        cpus: Bools = np.zeros(len(self._position), bool)
        cpus[[self._position[cpu] for cpu in episode.cpus if cpu in self._position]] = True
        return np.asarray(during[:, None] & cpus)


def _place(kinds: Sequence[str], kind: str) -> int:
    return kinds.index(kind) if kind in kinds else len(kinds)


def _apart(episode: Episode) -> bool:
    """Whether the loss is not one of the clock that the part `clock` has already."""
    return episode.cause in _SHARED and "turbo_drop" not in episode.evidence
