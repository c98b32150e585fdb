"""Cores that wide code holds at a SIMD level, although their clock does not drop for it."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.detect.engine import PAUSE_NS, Detector, Seen, Shown, Spells
from perftop.detect.low_clock_causes import ACTS, LEVELS
from perftop.model.cores import Cores
from perftop.model.episode import Episode, Level
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sieve, Verdicts

START, END = ACTS, ACTS / 2
"""Shares of a core's cycles. START is the share from which a level is the cause of a drop."""
AFTER = 2
"""Samples that must show it. One alone may be the edge of a drop that the level has made."""
WAVER = 0.01
"""Share of the ceiling. A clock that misses it by less is at the ceiling: a step of the clock is
two to three times as much."""
RUN_S, CYCLES, ALLOWED, FIRST = 2, 3, 4, 5
"""Places in the sums of a spell: run time, cycles, run time x ceiling, and the cycles of each
level."""


class Licenses:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._counters, self._detector = sieve.counters, detector
        self._levels = [key for key in LEVELS if key in sieve.counters.columns]
        self.there = bool(self._levels)
        sample_ns = sieve.hello.sample_ns
        self._spells = Spells(
            detector, "license", START, END, sample_ns, after=AFTER, pause_ns=PAUSE_NS
        )

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        cores = seen.cores
        levels = seen.sample.part(self._of_cores)
        if self._spells.quiet and not levels.any():
            return []
        cycles, run_s = seen.ran()
        with np.errstate(divide="ignore", invalid="ignore"):
            levels = np.minimum(levels / cores.most(seen.sample.values.top[INDEX["busy_hz"]]), 1.0)
        share = np.minimum(levels.sum(axis=0), 1.0)
        share[self._dropping(cores)] = 0.0
        more = [run_s, cycles, run_s * seen.ceiling_hz, *np.nan_to_num(levels * cycles)]
        times = seen.since_ns, seen.time_ns
        ended = self._spells.step(share, cycles, cores.group, cores.lists, *times, more)
        for spell in self._spells.running:
            self._tell(spell)
        return ended

    def _of_cores(self, among: Verdicts) -> Floats:
        """(samples, levels, cores): cycles of the core, which each thread counts whole; see
        counted_shares.LEVEL."""
        moved = [self._counters.moved(among.delta, key) for key in self._levels]
        by_core = [among.cores.most(each) for each in moved if each is not None]
        return np.nan_to_num(np.stack(by_core, axis=1))

    def _dropping(self, cores: Cores) -> Bools:
        """Cores whose drop tells of the level already."""
        drops = self._detector.of("turbo-drop")
        return cores.of([cpu for e in drops if e.cause == "license" for cpu in e.cpus])

    def _tell(self, spell: Shown) -> None:
        """Sets evidence and depth. The depth is what the clock lacks, not the share of wide
        code."""
        sums = spell.sums
        run_s, cycles, allowed = sums[[RUN_S, CYCLES, ALLOWED]].tolist()
        most = int(sums[FIRST:].argmax())
        level = Level(int(self._levels[most][-1]), float(sums[FIRST + most] / cycles))
        episode = spell.episode
        episode.cause, episode.evidence = "level", {"simd": level}
        episode.evidence["busy_hz"] = round(cycles / run_s)
        if allowed > 0:
            missing = allowed - cycles
            episode.depth = missing / run_s if missing >= WAVER * allowed else 0.0
            episode.evidence["ceiling_hz"] = round(allowed / run_s)
        else:  # no ceiling is known
            episode.depth = None
