"""Seconds that all working CPUs, or the watched job, have lost so far, by cause.

The whole is the time that was wanted: that of working CPUs (see `evaluation.Lost`), and the time
that tasks waited for a CPU. While a job is watched it is the time that its threads ran and waited.
A CPU's losses count for the job as far as the job ran there.

Each second of it belongs to one cause at most, in this order:

1. scheduler: a task was ready, and its CPU worked for another. This is time of the waiting task,
   in addition to that of the CPU.
2. steal, involuntary halts, clock below the ceiling: parts of the CPU's time (`evaluation.Lost`).
   An episode that runs on the CPU at that time names the cause; without one it is UNEXPLAINED.
3. sibling, package: of what is left, the share that the detector measured. A loss that the detector
   attributes to a clock below the ceiling is in the part of the clock, and not counted again.

So the shares of all causes add up to 1 at most. A sample is settled LATE_NS after its end, since
some episodes are detected only after they have lasted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.episode import Episode
from perftop.model.evaluation import LOSS_PARTS, Lost
from perftop.session.episodes import LATE_NS

Cause = tuple[str, str]
"""Kind and cause of the episodes that took the time."""
STEAL: Cause = ("steal", "hypervisor")
WAIT: Cause = ("neighbour", "scheduler")
UNEXPLAINED = "other"
"""Cause of a loss that no episode explains."""
_NAMED_BY: dict[str, tuple[str, ...]] = {
    "involuntary": ("throttle", "involuntary-halt"),
    "clock": ("turbo-drop", "throttle", "license", "ramp"),
}
"""Kinds of episodes that name the cause of each part, in this order."""
_SHARED = frozenset({"sibling", "package", "memory"})
JOB_SPREAD_NS = 1_000_000_000
"""Time within which the probe reads all threads of a job, by turns."""
MAX_OPEN = 256
"""Samples that wait to be settled. Beyond that the oldest are settled early."""


class _Sample(NamedTuple):
    since_ns: int
    until_ns: int
    wanted_s: Floats
    parts_s: Floats


class LossSums(NamedTuple):
    """Seconds since the start, by position of the CPU."""

    wanted_s: Floats
    waited_s: Floats
    by_cause: dict[Cause, Floats]
    """Seconds by cause, without those that took nothing."""

    @property
    def whole_s(self) -> float:
        return float(self.wanted_s.sum() + self.waited_s.sum())

    def share(self, cause: Cause) -> float:
        """The share of the whole that a cause took; NaN if no CPU worked."""
        lost_s = float(self.by_cause[cause].sum()) if cause in self.by_cause else 0.0
        return max(0.0, lost_s) / self.whole_s if self.whole_s > 0 else float("nan")

    def shares(self) -> dict[Cause, float]:
        """The share of each cause, the costliest first."""
        by_cause = {cause: self.share(cause) for cause in self.by_cause}
        return dict(sorted(by_cause.items(), key=lambda pair: -pair[1]))

    @property
    def lost_ratio(self) -> float:
        """Share of the whole that all causes took together; NaN if no CPU worked."""
        return sum(self.shares().values()) if self.whole_s > 0 else float("nan")


class Losses:
    """The sums of a stream. They only grow, but for the noise of involuntary halts."""

    def __init__(self, cpus: Sequence[int]) -> None:
        """`cpus`: by position."""
        self._position = {cpu: at for at, cpu in enumerate(cpus)}
        self._wanted_s, self._waited_s = np.zeros((2, len(cpus)))
        self._by_cause: dict[Cause, Floats] = {}
        """Settled sums, but for waiting."""
        self._open: deque[_Sample] = deque()
        """Samples that are not settled."""
        self._unsplit: list[_Sample] = []
        """Later samples of which it is not known yet how much the job ran in them ..."""
        self._run_s = np.zeros(len(cpus))
        """... and the seconds that it ran since the first of them."""

    def add(
        self, lost: Lost, since_ns: int, until_ns: int, waited_s: Floats | float,
        run_s: Floats | None,
    ) -> None:  # fmt: skip
        """A sample. `waited_s`: seconds that tasks waited for a CPU by the records in it. `run_s`:
        seconds that the watched job ran, by the same records; None: no job is watched."""
        known = np.isfinite(lost.parts_s).all(axis=0) & np.isfinite(lost.wanted_s)
        wanted_s, parts_s = np.where(known, lost.wanted_s, 0.0), np.where(known, lost.parts_s, 0.0)
        self._waited_s = self._waited_s + waited_s
        sample = _Sample(since_ns, until_ns, wanted_s, parts_s)
        if run_s is None:
            self._open.append(sample)
            return
        self._unsplit.append(sample)
        self._run_s = self._run_s + run_s
        if until_ns - self._unsplit[0].since_ns >= JOB_SPREAD_NS:
            self._narrow_to_job()

    def _narrow_to_job(self) -> None:
        """Split off the job's part of the samples that wait for it: what it ran in all of them goes
        to each in proportion to the work of the CPU there."""
        samples, self._unsplit = self._unsplit, []
        if not samples:
            return
        wanted_s = np.array([sample.wanted_s for sample in samples])
        stolen_s = np.array([sample.parts_s[LOSS_PARTS.index("steal")] for sample in samples])
        worked_s = (wanted_s - stolen_s).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(worked_s > 0, np.minimum(self._run_s / worked_s, 1.0), 0.0)
            weights = np.where(worked_s > 0, (wanted_s - stolen_s) / worked_s, 1 / len(wanted_s))
        for sample, stolen, weight in zip(samples, stolen_s, weights, strict=True):
            # The kernel does not count known steal as running.
            wanted, parts = self._run_s * weight + stolen * share, sample.parts_s * share
            self._open.append(sample._replace(wanted_s=wanted, parts_s=parts))
        self._run_s = np.zeros(len(self._run_s))

    def due(self, now_ns: int) -> int | None:
        """Raw time of the oldest sample that is to be settled now; None: it is too early."""
        oldest_ns = self._open[0].since_ns if self._open else now_ns
        late = oldest_ns < now_ns - 2 * LATE_NS or len(self._open) > MAX_OPEN
        return oldest_ns if late else None

    def settle(self, episodes: Iterable[Episode], now_ns: int) -> None:
        """Add up the samples of which all episodes are known. `episodes`: those since `due`."""
        over: list[_Sample] = []
        least = len(self._open) - MAX_OPEN // 2
        while self._open and (self._open[0].until_ns < now_ns - LATE_NS or len(over) < least):
            over.append(self._open.popleft())
        self._wanted_s, self._by_cause = self._with(over, list(episodes))

    @property
    def unsettled_ns(self) -> int:
        """Raw time of the oldest sample that is not settled."""
        return min((sample.since_ns for sample in (*self._open, *self._unsplit)), default=0)

    def sums(self, episodes: Iterable[Episode]) -> LossSums:
        """The sums up to the last sample, by the causes known now. `episodes`: since
        `unsettled_ns`."""
        self._narrow_to_job()
        wanted_s, by_cause = self._with(list(self._open), list(episodes))
        if self._waited_s.any():
            by_cause[WAIT] = self._waited_s
        return LossSums(wanted_s, self._waited_s, {c: s for c, s in by_cause.items() if s.any()})

    def _with(
        self, samples: Sequence[_Sample], episodes: Sequence[Episode]
    ) -> tuple[Floats, dict[Cause, Floats]]:
        """The settled sums and those of some samples."""
        by_cause = {cause: lost_s.copy() for cause, lost_s in self._by_cause.items()}
        if not samples:
            return self._wanted_s, by_cause
        wanted_s = np.array([sample.wanted_s for sample in samples])
        parts_s = np.array([sample.parts_s for sample in samples])
        times = np.array([(sample.since_ns, sample.until_ns) for sample in samples])
        for cause, lost_s in self._causes(wanted_s, parts_s, times, episodes):
            by_cause[cause] = by_cause[cause] + lost_s if cause in by_cause else lost_s
        return self._wanted_s + wanted_s.sum(axis=0), by_cause

    def _causes(
        self, wanted_s: Floats, parts_s: Floats, times: Floats, episodes: Sequence[Episode]
    ) -> Iterator[tuple[Cause, Floats]]:
        """Seconds of each CPU by cause; one cause may come several times."""
        steal = parts_s[:, LOSS_PARTS.index("steal")]
        yield STEAL, steal.sum(axis=0)
        for part, kinds in _NAMED_BY.items():
            left = parts_s[:, LOSS_PARTS.index(part)].copy()
            named = [episode for kind in kinds for episode in episodes if episode.kind == kind]
            for episode in named:
                if left.any():
                    mask = self._mask(episode, times)
                    yield (episode.kind, episode.cause), np.where(mask, left, 0.0).sum(axis=0)
                    left[mask] = 0.0
            kind = "involuntary-halt" if part == "involuntary" else "turbo-drop"
            yield (kind, UNEXPLAINED), left.sum(axis=0)
        rest = np.maximum(wanted_s - np.maximum(parts_s, 0.0).sum(axis=1), 0.0)
        for episode in episodes:
            counted = "turbo_drop" in episode.evidence  # in the part of the clock
            if episode.kind == "neighbour" and episode.cause in _SHARED and not counted:
                taken = np.where(self._mask(episode, times), rest * (episode.depth or 0.0), 0.0)
                rest = rest - taken
                yield (episode.kind, episode.cause), taken.sum(axis=0)

    def _mask(self, episode: Episode, times: Floats) -> Bools:
        """Mask of (samples, CPUs) during the episode: samples at least half of which are in it."""
        end_ns = times[-1, 1] if episode.end_ns is None else episode.end_ns
        middle = times.mean(axis=1)
        during = (middle >= episode.start_ns) & (middle <= end_ns)
        cpus: Bools = np.zeros(len(self._position), bool)
        cpus[[self._position[cpu] for cpu in episode.cpus if cpu in self._position]] = True
        return np.asarray(during[:, None] & cpus)
