"""Detects system management interrupts: firmware stops all CPUs at once, and only a counter shows
it."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats, any_by_sample, first_true
from perftop.detect.engine import DetectorInput, RunningEpisodes, gap_ns
from perftop.model.episode import Episode
from perftop.model.sample_reader import SampleBatch, SampleReader

QUIET_NS = 1_000_000_000
"""Time in ns without an SMI that ends an episode. Firmware that polls hardware does so at least
this often; one line for each SMI would hide the other episodes."""
MAX_SPAN_RATIO = 1.5
"""Multiple of the sample's length. A row with a longer span was not read for a while, so it counts
SMIs that other rows have already counted."""


class Smis:
    """Detects SMIs by the SMI counter of each CPU."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._counters, self._episodes = reader.counters, episodes
        self._cpus = np.array([row.cpu for row in reader.hello.topology])
        self._column = reader.counters.columns.get("smi")
        self.available = self._column is not None
        self._gap_ns = gap_ns(reader.hello.sample_ns)
        self._episode: Episode | None = None
        self._counts = np.zeros(len(self._cpus))
        self._last_ns = 0

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        return first if self._episode else first_true(batch.once(self._counted), first, last)

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        assert self._column is not None
        table = data.sample.delta.tables[self._column.block]
        moved = table.increments[:, self._column.first]
        span_ns = table.ticks / self._counters.stamp_hz * 1e9
        return self.step(moved, span_ns, data.since_ns, data.time_ns)

    def _counted(self, batch: SampleBatch) -> Bools:
        """Returns, by sample, whether any CPU counted an SMI."""
        moved = self._counters.increments(batch.delta, "smi")
        assert moved is not None
        return any_by_sample(moved > 0)

    def step(self, moved: Floats, span_ns: Floats, since_ns: int, time_ns: int) -> list[Episode]:
        """Does what `sample` does, from the number of SMIs that each CPU counted and the CPU's span
        in ns."""
        counted = moved > 0
        if self._episode is None and not counted.any():
            return []
        whole = 0 < time_ns - since_ns <= self._gap_ns
        ended = [] if whole else self._end()
        if whole and counted.any():
            stretched = span_ns > MAX_SPAN_RATIO * (time_ns - since_ns)
            begin_ns = np.where(stretched, time_ns - span_ns, since_ns)
            news = counted & (begin_ns >= self._last_ns)
            if news.any():
                self._last_ns = time_ns
                if self._episode is None:
                    self._counts[:] = 0
                    start_ns = int(begin_ns[news].min())
                    self._episode = Episode("smi", [], start_ns, cause="firmware")
                    self._episodes.running.append(self._episode)
            if self._episode is not None:  # otherwise late counts of a past episode
                self._counts += np.where(counted, moved, 0.0)
                self._episode.cpus = self._cpus[self._counts > 0].tolist()
                self._episode.depth = most = float(self._counts.max())
                elapsed_s = (time_ns - self._episode.start_ns) / 1e9
                self._episode.evidence = {"SMIs_per_s": round(most / elapsed_s, 1)}
        if time_ns - self._last_ns >= QUIET_NS:
            ended += self._end()
        return ended

    def _end(self) -> list[Episode]:
        if self._episode is None:
            return []
        over, self._episode = self._episode, None
        return [self._episodes.end(over, self._last_ns)]
