"""How far a counter moved between two readings, and how far it can have moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perfprobe import wire

if TYPE_CHECKING:
    from perftop.base.arrays import Bools, Floats, Words

MAX_HZ = 10e9
"""Faster than any clock; a cycle counter that moved more was rewritten, it did not wrap."""
MAX_IPC = 16.0
MAX_EVENTS = 1000 * MAX_HZ
"""Most of any event in a second: counters of queues add up what is in them in each cycle."""
TIME_SLACK_S = 0.05
"""How far a counter of seconds may run ahead of its span: it has ticks of 10 ms, and an idle period
is added to it at once."""

UNLIMITED = 1e30
"""No limit; finite, so that its product with 0 seconds is 0."""

TIMES = ("perf_enabled_s", "perf_running_s")


class Limits:
    """How to take differences and how large they can be, for each column of a block."""

    def __init__(self, block: wire.Block) -> None:
        per_column = [c for c in block.counters for _ in range(c.columns)]
        self.keys: np.ndarray = np.array([c.key for c in per_column])
        self._scale = np.array([c.scale for c in per_column])
        self._gauge = np.array([c.kind == "gauge" for c in per_column], bool)
        self._mask = np.array([(1 << c.bits) - 1 for c in per_column], np.uint64)
        self._full = np.array([c.bits == 64 and c.kind != "gauge" for c in per_column], bool)
        self._some_full, self._some_gauge = bool(self._full.any()), bool(self._gauge.any())
        limit = {"cycles": MAX_HZ, "instructions": MAX_HZ * MAX_IPC, "events": MAX_EVENTS, "s": 1.0}
        self._limit = np.array(
            [
                limit.get(c.unit, UNLIMITED)
                if c.kind == "counter" and block.scope == "cpu"
                else UNLIMITED
                for c in per_column
            ]
        )
        self._slack: Floats = np.array([TIME_SLACK_S if c.unit == "s" else 1e6 for c in per_column])

        found = [np.flatnonzero(self.keys == key) for key in TIMES]
        self.times = None if min(map(len, found)) == 0 else (int(found[0][0]), int(found[1][0]))
        """The columns of both times of perf."""
        self._turns = np.array(
            [c.origin.startswith("perf") and c.key not in TIMES for c in per_column], bool
        )

    def moved(self, old: Words, new: Words, ticks: Floats) -> Floats:
        """Differences in base units (gauges: value times ticks), modulo the width of each counter,
        so that a wrap needs no special case."""
        plain = ((new - old) & self._mask).astype(np.float64)
        if self._some_full:  # the kernel's sums may step back a little, so they are signed
            signed = (new - old).view(np.int64).astype(np.float64)
            plain = np.where(self._full, signed, plain)
        if self._some_gauge:  # signed, and weighted with time
            level = new.view(np.int64).astype(np.float64) * ticks[..., None]
            plain = np.where(self._gauge, level, plain)
        result: Floats = plain * self._scale
        return result

    def scaled(self, moved: Floats) -> Floats:
        """The differences, scaled up to the whole span where perf multiplexed the counters."""
        if self.times is None:
            return moved
        enabled, running = (moved[..., at, None] for at in self.times)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(running > 0, enabled / running, np.nan)
        return np.where(self._turns, moved * factor, moved)

    def wrong(self, moved: Floats, seconds: Floats) -> Bools:
        """Mask of differences that cannot be true: somebody wrote the counter, or the read cannot
        be trusted."""
        too_far = moved > self._limit * seconds[..., None] + self._slack
        result: Bools = too_far | (self._full & (moved < -self._slack))
        if self.times is not None:  # what is scaled by wrong times is wrong
            result |= self._turns & result[..., self.times].any(axis=-1, keepdims=True)
        return result
