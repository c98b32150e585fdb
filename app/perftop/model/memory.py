"""Traffic between packages and their memory, against the most that this run has seen. What the
memory could move at best is written nowhere that can be trusted.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.counters import Counters
from perftop.model.delta import Delta

READ, WRITE = KEYS = ("memory_read_bytes", "memory_write_bytes")
WINDOW_S = 0.95
"""Minimum seconds of which the best is a mean: ten samples of 100 ms, with their jitter.
Traffic of a short sample may be a burst from a queue."""


def moved(counters: Counters, delta: Delta) -> tuple[Floats, Floats] | None:
    """Bytes read and written together, and the seconds of that, by package. None: not counted."""
    parts = [counters.moved(delta, key) for key in KEYS]
    if parts[0] is None or parts[1] is None:
        return None
    ticks = delta.tables[counters.columns[READ].block].ticks
    return parts[0] + parts[1], ticks / counters.stamp_hz


class Best:
    """The highest mean of a second, by package, in bytes per second; NaN before the first."""

    def __init__(self, counters: Counters) -> None:
        count = len(counters.hello.packages)
        self.rate: Floats = np.full(count, np.nan)
        self._bytes, self._seconds = np.zeros((2, count))
        """Sums of the second that is not complete yet."""

    def learn(self, now: Floats, seconds: Floats) -> None:
        """Take what `moved` found of a sample. A second with an unknown sample in it does not
        count."""
        read = seconds > 0
        self._bytes += np.where(read, now, 0.0)
        self._seconds += np.where(read, seconds, 0.0)
        full = (self._seconds >= WINDOW_S) | np.isnan(self._bytes)
        if full.any():
            with np.errstate(invalid="ignore", divide="ignore"):
                rate = self._bytes / self._seconds
            self.rate = np.where(full, np.fmax(self.rate, rate), self.rate)
            self._bytes[full] = self._seconds[full] = 0.0

    def share(self, rate: Floats) -> Floats:
        """Rates in bytes per second as shares of the best. A span shorter than a second may have
        more than the best, which is told as all of it."""
        return np.minimum(rate / np.where(self.rate > 0, self.rate, np.nan), 1.0)
