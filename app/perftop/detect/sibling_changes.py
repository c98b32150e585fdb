"""Counts how often the IPC of each program changes when its sibling starts or stops, and how often
it changes by itself.

A program has phases of its own. A phase that is slow while the sibling runs looks like a loss, so a
loss is attributed to the sibling only if the IPC falls when the sibling starts and rises when it
stops, more often than its own phases explain. The comparison is between samples that follow each
other: the last one before the sibling starts or stops, and the first one after that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints, latest_known

MAX_MIXED_SAMPLES = 2
"""Maximum number of samples between two compared samples: in these, the sibling ran for a part of
the time."""
MAX_CHANCE = 0.001
"""Maximum probability that the program's own changes explain the ones with the sibling. A program
beside a sibling that starts or stops every 10 s is tested 360 times an hour."""
MAX_FIRST_CHANCE = 0.05
"""Like MAX_CHANCE, for a program whose IPC was never seen to change by itself. At least 19
comparisons are needed."""
MIN_REPEATS = 6
"""Number of changes with the sibling from which the sibling is a measured cause: it started and
stopped three times."""
EDGES, FITS, SAMES, CHANGES = range(4)
"""Rows of the counts: the sibling started or stopped; of these, the IPC fell or rose with it; the
sibling neither started nor stopped; of these, the IPC fell or rose."""


class SiblingChanges(NamedTuple):
    """Comparisons before the first sample and after each, (1 + samples, ..., CPUs)."""

    counts: Ints
    """(1 + samples, 4, CPUs): `SiblingHistory.counts` before the first sample and after each."""
    ipc: Floats
    together: Bools
    last: Ints
    """Number of the last compared sample, from 1; 0 and less: before these samples."""


class SiblingHistory:
    """The counts of each CPU since its program started."""

    def __init__(self, cpus: int, least: float) -> None:
        """`least`: share of the IPC from which a change counts."""
        self._least = least
        self.counts: Ints = np.zeros((4, cpus), np.int64)
        self._ipc: Floats = np.full(cpus, np.nan)
        self._together: Bools = np.zeros(cpus, bool)
        self._last: Ints = np.zeros(cpus, np.int64)

    def forget(self, cpus: list[int]) -> None:
        """Resets the counts of these CPUs, because another program runs there now."""
        self.counts[:, cpus] = 0
        self._ipc[cpus] = np.nan

    def compare(self, alone: Bools, together: Bools, ipc: Floats) -> SiblingChanges:
        """Returns the comparisons of some samples, for `take`; arrays are (samples, CPUs)."""
        compared = (alone | together) & (ipc > 0)
        number = np.arange(1, len(ipc) + 1)[:, None]
        after = SiblingChanges(
            np.zeros((len(ipc) + 1, *self.counts.shape), np.int64),
            latest_known(self._ipc, ipc, compared),
            latest_known(self._together, together, compared),
            latest_known(self._last, np.broadcast_to(number, ipc.shape), compared),
        )
        before, started = after.ipc[:-1], together & ~after.together[:-1]
        mixed = number - 1 - after.last[:-1]
        with np.errstate(invalid="ignore"):
            fell, rose = ipc <= (1 - self._least) * before, before <= (1 - self._least) * ipc
            compared &= before > 0
        edge = compared & (together != after.together[:-1]) & (mixed <= MAX_MIXED_SAMPLES)
        same = compared & (together == after.together[:-1]) & (mixed == 0)
        fits = np.where(started, fell, rose)
        found = np.stack([edge, edge & fits, same, same & (fell | rose)], axis=1)
        after.counts[0] = self.counts
        np.cumsum(found, axis=0, out=after.counts[1:])
        after.counts[1:] += self.counts
        return after

    def take_changes(self, changes: SiblingChanges, count: int) -> None:
        """Uses the first `count` of the samples that were compared."""
        self.counts = changes.counts[count].copy()
        self._ipc, self._together = changes.ipc[count].copy(), changes.together[count].copy()
        self._last = changes.last[count] - count

    def ipc_follows(self) -> Bools:
        """Returns a mask of the CPUs whose IPC changes with the sibling, and not by chance."""
        edges, fits, sames, changes = self.counts
        # Changes are counted in both directions: where the sibling starts, a mixed sample gives the
        # program twice the time for a change of its own.
        own = (changes + 1) / (sames + 1)
        share = fits / np.maximum(edges, 1)
        with np.errstate(divide="ignore", invalid="ignore"):  # Chernoff's bound
            rest = np.where(fits < edges, (1 - share) * np.log((1 - share) / (1 - own)), 0.0)
            chance = np.exp(-edges * (share * np.log(share / own) + rest))
        most = np.where((changes == 0) & (fits == edges), MAX_FIRST_CHANCE, MAX_CHANCE)
        return np.asarray((share > own) & (chance <= most))
