"""Detects time that the hypervisor took. The guest's kernel accounts for it in ticks of 10 ms."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.detect.engine import DetectorInput, RunningEpisodes, ShareEpisodes
from perftop.detect.standstill import TICK_S
from perftop.model.episode import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleReader

START, END = 0.04, 0.02
"""Shares of the time. Neighbours on a well-kept host take up to a tick in 250 ms now and then."""
MIN_TICKS = 3
"""Ticks that must follow each other closely. One may have filled up over any time, and two may meet
by chance."""
QUIET_NS = round(TICK_S / END * 1e9)
"""Time without a tick after which the share is below END."""


class Steals:
    """Detects steal by its ticks."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        rows = reader.hello.topology
        self.available = bool(reader.evaluator.chosen["steal"])
        self._names = reader.single_cpus
        self._host = np.zeros(len(rows), int)
        self._steals = ShareEpisodes(episodes, "steal", START, END, reader.hello.sample_ns)
        self._ticks = np.zeros(len(rows))
        """In a row, each so soon after the one before that it alone makes a high share ..."""
        self._start_ns = np.zeros(len(rows), int)
        """... and the start of the sample with the first."""
        self._last_ns = np.full(len(rows), -QUIET_NS - 1)

    def sample(self, data: DetectorInput) -> list[Episode]:
        """The episodes that this sample ended."""
        if not self._steals.running and data.sample.highest.stolen_s <= 0:
            return []
        return self.step(data.sample.values.top[INDEX["steal"]], data.since_ns, data.time_ns)

    def step(self, stolen_s: Floats, since_ns: int, time_ns: int) -> list[Episode]:
        """As `sample`, from the seconds stolen, by position of the CPU."""
        if not self._steals.running and not (stolen_s > 0).any():
            return []
        came = stolen_s >= TICK_S / 2
        soon = since_ns - self._last_ns <= QUIET_NS
        # A tick covers all the time since the last one.
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
        for episode in ended:  # it ended with its last tick
            episode.end_ns = running[id(episode)].last_ns
        for steal in self._steals.running:
            if id(steal.episode) not in running:
                steal.episode.cause = "hypervisor"
                steal.episode.start_ns = int(self._start_ns[steal.members].min())
            ticks = float(self._ticks[steal.members].sum())
            steal.episode.evidence = {"ticks": round(ticks), "tick_s": TICK_S}
        return ended
