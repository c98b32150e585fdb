"""System management interrupts: firmware stops all CPUs at once, and only a counter tells."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.detect.engine import Detector, Seen, gap_ns
from perftop.model.episode import Episode
from perftop.model.sample_reader import Sieve, Verdicts

QUIET_NS = 1_000_000_000
"""Time without an SMI that ends an episode. Firmware that polls hardware does so at least this
often; a line for each SMI would bury it."""
STRETCHED = 1.5
"""Multiple of the sample. A row whose span is longer was not read for a while: it counts SMIs that
other rows have counted before."""


class Smis:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._counters, self._detector = sieve.counters, detector
        self._cpus = np.array([row.cpu for row in sieve.hello.topology])
        self._column = sieve.counters.columns.get("smi")
        self.there = self._column is not None
        self._gap_ns = gap_ns(sieve.hello.sample_ns)
        self._episode: Episode | None = None
        self._counts = np.zeros(len(self._cpus))
        self._last_ns = 0

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        if self._episode is None and not seen.sample.part(self._counted):
            return []
        assert self._column is not None
        table = seen.sample.delta.tables[self._column.block]
        moved = table.moved[:, self._column.first]
        span_ns = table.ticks / self._counters.stamp_hz * 1e9
        return self.step(moved, span_ns, seen.since_ns, seen.time_ns)

    def _counted(self, among: Verdicts) -> list[bool]:
        """Whether any CPU counted one."""
        assert self._column is not None
        moved = among.delta.tables[self._column.block].moved[..., self._column.first]
        told: list[bool] = np.logical_or.reduce(moved > 0, axis=-1).tolist()
        return told

    def step(self, moved: Floats, span_ns: Floats, since_ns: int, time_ns: int) -> list[Episode]:
        """The same, of how many each CPU counted, and over which span."""
        counted = moved > 0
        if self._episode is None and not counted.any():
            return []
        whole = 0 < time_ns - since_ns <= self._gap_ns
        ended = [] if whole else self._end()
        if whole and counted.any():
            stretched = span_ns > STRETCHED * (time_ns - since_ns)
            begin_ns = np.where(stretched, time_ns - span_ns, since_ns)
            news = counted & (begin_ns >= self._last_ns)
            if news.any():
                self._last_ns = time_ns
                if self._episode is None:
                    self._begin(int(begin_ns[news].min()))
            self._add(np.where(counted, moved, 0.0), time_ns)
        if time_ns - self._last_ns >= QUIET_NS:
            ended += self._end()
        return ended

    def _begin(self, start_ns: int) -> None:
        self._counts[:] = 0
        self._episode = Episode("smi", [], start_ns, cause="firmware")
        self._detector.running.append(self._episode)

    def _add(self, moved: Floats, time_ns: int) -> None:
        if self._episode is None:  # late news of one that is over
            return
        self._counts += moved
        self._episode.cpus = self._cpus[self._counts > 0].tolist()
        self._episode.depth = most = float(self._counts.max())
        elapsed_s = (time_ns - self._episode.start_ns) / 1e9
        self._episode.evidence = {"SMIs_per_s": round(most / elapsed_s, 1)}

    def _end(self) -> list[Episode]:
        if self._episode is None:
            return []
        over, self._episode = self._episode, None
        return [self._detector.end(over, self._last_ns)]
