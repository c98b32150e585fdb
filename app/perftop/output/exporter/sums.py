"""Sums over the samples of a session, from its start on: what Prometheus calls counters.

They are kept by CPU and by core, in float64, and added up further when they are shown. Only what
can be believed is added. Some go in together or not at all, so that a ratio of two of them is one
of the same spans: the modes of a CPU's time, and its cycles, instructions and reference cycles.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.cores import packages
from perftop.model.delta import Delta, Doubt
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample
from perftop.session.session import Session

MODES = {"busy": "util", "idle": "idle", "poll": "poll", "involuntary_halt": "involuntary",
         "steal": "steal"}  # fmt: skip
"""Where the time of a CPU goes, with the metric of each."""
POLL = list(MODES).index("poll")
COUNTS = "cycles", "instructions", "ref", "kernel_cycles", "kernel_instructions"
TOGETHER = 3
"""The first three of COUNTS are added together or not at all; the others only with these."""
GAUGES = "power_limit_w", "temperature_c"
MOVED = "energy_j", "energy_ram_j", "memory_read_bytes", "memory_write_bytes"
"""Counters of packages."""


class Sums:
    def __init__(self, session: Session) -> None:
        self._session = session
        hello, cpus = session.hello, len(session.hello.topology)
        self.package = packages(hello)
        """Place of its package by position of the CPU; -1: not known."""
        self.shown: Bools = np.isin(np.arange(cpus), session.shown)
        """Mask of the CPUs that the user asked for."""
        self.seconds, self.counts = np.zeros((len(MODES), cpus)), np.zeros((len(COUNTS), cpus))
        self.told_seconds, self.told_counts = self.seconds > 0, self.counts > 0
        """Masks of the sums to which something was added; nothing is known of the others."""
        self.moved = {key: np.zeros(len(hello.packages)) for key in MOVED}
        self._told = {key: moved > 0 for key, moved in self.moved.items()}
        self.gauges = {key: np.full(len(hello.packages), np.nan) for key in GAUGES}
        """The last known values by package, by key; NaN: none yet."""
        self.suspects = {doubt.name.lower(): 0 for doubt in Doubt}
        """Samples of CPUs in which a counter was doubted, by reason."""
        evaluator, rows = session.evaluator, range(cpus)
        self._needs = [self._at({"tsc", *evaluator.needs(key)}) for key in MODES.values()]
        served = [[evaluator.serves(key, row) for row in rows] for key in MODES.values()]
        self._served: Bools = np.array(served, bool)
        self._has: Bools = np.array([session.counters.has(key) for key in COUNTS], bool)
        self._polls: Bools = np.zeros(cpus, bool)
        """CPUs whose busy time has their polling in it: reference cycles go on meanwhile."""
        for variant, mask in evaluator.chosen["util"]:
            self._polls |= mask & ("ref" in variant.needs) & self._served[POLL]

    def _at(self, keys: Iterable[str]) -> list[int]:
        """The places of these counters among those that can be doubted."""
        at = self._session.counters.key_at
        return [at[key] for key in keys if key in at]

    def take(self, sample: Sample) -> None:
        delta, counters = sample.delta, self._session.counters
        self._add_seconds(sample)
        self._add_counts(delta)
        for key in MOVED:
            if (moved := counters.moved(delta, key)) is not None:
                ticks = delta.tables[counters.columns[key].block].ticks
                known = np.isfinite(moved) & (ticks > 0)
                self.moved[key] += np.where(known, moved, 0.0)
                self._told[key] |= known
        for key, last in self.gauges.items():
            if (now := counters.rates(delta, key)) is not None:
                last[:] = np.where(np.isfinite(now), now, last)
        for doubt in Doubt if delta.doubts.any() else ():
            found = (delta.doubts == doubt).any(axis=1) & self.shown
            self.suspects[doubt.name.lower()] += int(found.sum())

    def _add_seconds(self, sample: Sample) -> None:
        values, doubts = sample.values, sample.delta.doubts
        at = [INDEX[key] for key in MODES.values()]
        seconds = values.top[at]
        seconds[0] -= np.where(self._polls, seconds[POLL], 0.0)
        known = np.isfinite(seconds) & self._served & self.shown
        if doubts.any():
            doubted = np.array([doubts[:, needs].any(axis=1) for needs in self._needs])
            known &= ~(doubted & self._served).any(axis=0)
        self.seconds += np.where(known, seconds, 0.0)
        self.told_seconds |= known & (values.bottom[at] > 0)

    def _add_counts(self, delta: Delta) -> None:
        counters, nothing = self._session.counters, np.full(len(self.shown), np.nan)
        moved = [counters.moved(delta, key) for key in COUNTS]
        counts = np.array([nothing if each is None else each for each in moved])
        bad = self._has & ~np.isfinite(counts)
        bad |= bad[:TOGETHER].any(axis=0)
        known = self._has & ~bad & self.shown & (delta.tables["cpu"].ticks > 0)
        self.counts += np.where(known, counts, 0.0)
        self.told_counts |= known

    def told(self, key: str) -> Floats:
        """One of MOVED by package; NaN where nothing was ever told."""
        return np.where(self._told[key], self.moved[key], np.nan)
