"""Time that the hypervisor took. The guest's kernel accounts for it in ticks of 10 ms."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.detect.engine import Detector, Seen, Spells
from perftop.detect.standstill import TICK_S
from perftop.model.episode import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sieve

START, END = 0.04, 0.02
"""Shares of the time. Neighbours on a well-kept host take up to a tick in 250 ms now and then."""
TICKS = 3
"""Ticks that must come soon after each other. One may have filled up over any time, and two may
meet by chance."""
QUIET_NS = round(TICK_S / END * 1e9)
"""Time without a tick after which the share is below END."""


class Steals:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        rows = sieve.hello.topology
        self.there = bool(sieve.evaluator.chosen["steal"])
        self._names = [[row.cpu] for row in rows]
        self._host = np.zeros(len(rows), int)
        self._spells = Spells(detector, "steal", START, END, sieve.hello.sample_ns)
        self._ticks = np.zeros(len(rows))
        """In a row, each so soon after the one before that it alone makes a high share ..."""
        self._began_ns = np.zeros(len(rows), int)
        """... and the start of the sample that brought the first."""
        self._last_ns = np.full(len(rows), -QUIET_NS - 1)

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        if not self._spells.running and seen.sample.highest.stolen_s <= 0:
            return []
        return self.step(seen.sample.values.top[INDEX["steal"]], seen.since_ns, seen.time_ns)

    def step(self, stolen_s: Floats, since_ns: int, time_ns: int) -> list[Episode]:
        """The same, of seconds stolen by position of the CPU."""
        if not self._spells.running and not (stolen_s > 0).any():
            return []
        came = stolen_s >= TICK_S / 2
        soon = since_ns - self._last_ns <= QUIET_NS
        # A tick tells of all the time since the last one.
        elapsed_s = (time_ns - np.where(soon, self._last_ns, since_ns)) / 1e9
        share = np.where(came, stolen_s / elapsed_s, np.nan)
        share[~came & np.isfinite(stolen_s) & (time_ns - self._last_ns > QUIET_NS)] = 0.0
        taken = self._spells.taken(len(stolen_s))
        near = (since_ns == self._last_ns) | (elapsed_s * START <= TICK_S)
        goes_on = came & soon & (taken | (near & (share >= START)))
        self._count(came, goes_on, stolen_s / TICK_S, since_ns)
        self._last_ns = np.where(came, time_ns, self._last_ns)
        share[came & (self._ticks < TICKS - 0.5) & ~taken] = np.nan
        return self._tell(share, elapsed_s, since_ns, time_ns)

    def _count(self, came: Bools, goes_on: Bools, ticks: Floats, since_ns: int) -> None:
        before = np.where(goes_on, self._ticks, 0.0)
        self._began_ns = np.where(came & (before == 0), since_ns, self._began_ns)
        self._ticks = np.where(came, before + ticks, self._ticks)

    def _tell(self, share: Floats, elapsed_s: Floats, since_ns: int, time_ns: int) -> list[Episode]:
        before = {id(spell.episode): spell for spell in self._spells.running}
        ended = self._spells.step(share, elapsed_s, self._host, self._names, since_ns, time_ns)
        for episode in ended:  # with its last tick, and not when the next was missed
            episode.end_ns = before[id(episode)].last_ns
        for spell in self._spells.running:
            if id(spell.episode) not in before:
                spell.episode.cause = "hypervisor"
                spell.episode.start_ns = int(self._began_ns[spell.members].min())
            ticks = float(self._ticks[spell.members].sum())
            spell.episode.evidence = {"ticks": round(ticks), "tick_s": TICK_S}
        return ended
