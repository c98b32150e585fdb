"""Detects time that the hypervisor took. The guest's kernel accounts for it in ticks of 10 ms."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats, first_true
from perftop.detect.engine import DetectorInput, RunningEpisodes, ShareEpisodes, highest
from perftop.detect.standstill import TICK_S
from perftop.model.episode import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleBatch, SampleReader

START, END = 0.04, 0.02
"""Shares of the time, at which an episode starts and below which it ends. Neighbours on a well-run
host occasionally take up to a tick in 250 ms."""
MIN_TICKS = 3
"""Number of ticks that must follow each other closely. A single tick may have accumulated over any
time, and two may be close by chance."""
QUIET_NS = round(TICK_S / END * 1e9)
"""Time in ns without a tick after which the share is below END."""


class Steals:
    """Detects steal by its ticks."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        rows = reader.hello.topology
        self.available = bool(reader.evaluator.chosen["steal"])
        self._names = reader.single_cpus
        self._host = np.zeros(len(rows), int)
        self._steals = ShareEpisodes(episodes, "steal", START, END, reader.hello.sample_ns)
        self._ticks = np.zeros(len(rows))
        """Number of consecutive ticks, each so soon after the previous one that it makes a high
        share by itself ..."""
        self._start_ns = np.zeros(len(rows), int)
        """... and the start of the sample with the first of these ticks."""
        self._last_ns = np.full(len(rows), -QUIET_NS - 1)

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        if self._steals.running:
            return first
        return first_true(batch.once(highest).stolen_s > 0, first, last)

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        return self.step(data.sample.values.top[INDEX["steal"]], data.since_ns, data.time_ns)

    def step(self, stolen_s: Floats, since_ns: int, time_ns: int) -> list[Episode]:
        """Does what `sample` does, from the stolen seconds by position of the CPU."""
        if not self._steals.running and not (stolen_s > 0).any():
            return []
        came = stolen_s >= TICK_S / 2
        soon = since_ns - self._last_ns <= QUIET_NS
        # A tick covers all the time since the previous tick.
        elapsed_s = (time_ns - np.where(soon, self._last_ns, since_ns)) / 1e9
        share = np.where(came, stolen_s / elapsed_s, np.nan)
        share[~came & np.isfinite(stolen_s) & (time_ns - self._last_ns > QUIET_NS)] = 0.0
        taken = self._steals.member_mask(len(stolen_s))
        near = (since_ns == self._last_ns) | (elapsed_s * START <= TICK_S)
        goes_on = came & soon & (taken | (near & (share >= START)))
        before = np.where(goes_on, self._ticks, 0.0)
        self._start_ns = np.where(came & (before == 0), since_ns, self._start_ns)
        self._ticks = np.where(came, before + stolen_s / TICK_S, self._ticks)
        self._last_ns = np.where(came, time_ns, self._last_ns)
        share[came & (self._ticks < MIN_TICKS - 0.5) & ~taken] = np.nan

        running = {id(steal.episode): steal for steal in self._steals.running}
        ended = self._steals.step(share, elapsed_s, self._host, self._names, since_ns, time_ns)
        for episode in ended:  # an episode ends with its last tick
            episode.end_ns = running[id(episode)].last_ns
        for steal in self._steals.running:
            if id(steal.episode) not in running:
                steal.episode.cause = "hypervisor"
                steal.episode.start_ns = int(self._start_ns[steal.members].min())
            ticks = float(self._ticks[steal.members].sum())
            steal.episode.evidence = {"ticks": round(ticks), "tick_s": TICK_S}
        return ended
