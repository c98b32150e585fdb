"""Traffic between packages and their memory, and the traffic of resctrl groups by L3. Traffic is
compared with the highest traffic in any second of this run, because no documented maximum can be
trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from perfprobe.wire import Cpu
from perftop.base.arrays import Floats
from perftop.base.text import safe
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.episode import GroupTraffic

READ_KEY, WRITE_KEY = TRAFFIC_KEYS = ("memory_read_bytes", "memory_write_bytes")
WINDOW_S = 0.95
"""Minimum span of the mean in s: ten samples of 100 ms, less their jitter. A shorter span may hold
a burst from a queue."""
WINDOW_SAMPLES = 32
"""Number of samples in which the end of a second is searched at once."""


def traffic(counters: Counters, delta: Delta) -> tuple[Floats, Floats] | None:
    """Returns the bytes read and written together, and the seconds of their span, by package; None
    if the stream does not count them."""
    parts = [counters.increments(delta, key) for key in TRAFFIC_KEYS]
    if parts[0] is None or parts[1] is None:
        return None
    ticks = delta.tables[counters.columns[READ_KEY].block].ticks
    return parts[0] + parts[1], ticks / counters.stamp_hz


class BestTraffic:
    """The highest traffic in any second so far, by package, in bytes per second; NaN before the
    first complete second."""

    def __init__(self, counters: Counters) -> None:
        count = len(counters.hello.packages)
        self.rate: Floats = np.full(count, np.nan)
        self._sums = np.zeros((2, count))
        """Bytes and seconds of the current second, which is not complete yet."""

    def learn(self, increments: Floats, seconds: Floats) -> Floats:
        """Adds the `traffic` of samples. Returns the best rates after each, (samples, packages). A
        second that contains an unknown sample does not count."""
        is_read, rates, first = seconds > 0, np.empty(increments.shape), 0
        parts = np.where(is_read, [increments, seconds], 0.0)
        while first < len(increments):  # up to the end of the current second of any package
            sums = np.add.accumulate(
                np.concatenate([self._sums[:, None], parts[:, first : first + WINDOW_SAMPLES]], 1),
                axis=1,
            )[:, 1:]
            is_full = (sums[1] >= WINDOW_S) | np.isnan(sums[0])
            ends = np.flatnonzero(is_full.any(axis=1))
            last = int(ends[0]) if len(ends) else len(is_full) - 1
            self._sums = sums[:, last].copy()
            rates[first : first + last] = self.rate
            if (is_new := is_full[last]).any():
                with np.errstate(invalid="ignore", divide="ignore"):
                    rate = self._sums[0] / self._sums[1]
                self.rate = np.where(is_new, np.fmax(self.rate, rate), self.rate)
                self._sums[:, is_new] = 0.0
            rates[first + last] = self.rate
            first += last + 1
        return rates

    def share(self, rate: Floats) -> Floats:
        """Returns rates in bytes per second as shares of the best rate. Over a span shorter than a
        second, traffic may exceed the best rate; the share is then 1."""
        return np.minimum(rate / np.where(self.rate > 0, self.rate, np.nan), 1.0)


RECORD = "l3_groups"
DEFAULT = "(default)"
"""Name of the group of all tasks that are in no other group."""
MAX_L3_GROUPS, MAX_NAME_LENGTH, MAX_NAMED_GROUPS = 256, 60, 3
"""Maximum number of groups kept, of characters of a name, and of groups listed as evidence."""
MAX_AGE_NS = 10_000_000_000
"""Age in ns from which a record no longer describes the present."""


class L3Groups:
    """The memory bandwidth of each resctrl group, from the last two records."""

    def __init__(self, topology: Sequence[Cpu]) -> None:
        self._l3 = {row.cpu: row.l3 for row in topology}
        self._last_values: dict[tuple[str, int], int] = {}
        """Bytes moved so far, by group and L3, at the last record."""
        self._rates: dict[tuple[str, int], float] = {}
        self._at_ns = self._now_ns = 0

    def take(self, records: Mapping[str, object], time_ns: int) -> None:
        """Reads the records of a frame, which are untrusted."""
        self._now_ns = time_ns
        record = records.get(RECORD)
        if not isinstance(record, dict):
            return
        values: dict[tuple[str, int], int] = {}
        for group, rows in list(record.items())[:MAX_L3_GROUPS]:
            if not isinstance(group, str) or not isinstance(rows, list):
                continue
            name = safe(group, MAX_NAME_LENGTH) if group else DEFAULT
            for row in rows[:MAX_L3_GROUPS]:
                match row:
                    case [int(l3), int(increments)] if increments >= 0:
                        values[name, l3] = increments
        span_s = (time_ns - self._at_ns) / 1e9
        previous_values = self._last_values if self._at_ns and 0 < span_s < MAX_AGE_NS / 1e9 else {}
        steps = {
            group_key: value - previous_values[group_key]
            for group_key, value in values.items()
            if group_key in previous_values
        }
        self._rates = {group_key: step / span_s for group_key, step in steps.items() if step >= 0}
        self._last_values, self._at_ns = values, time_ns

    def traffic(self, cpus: Collection[int]) -> list[GroupTraffic]:
        """Returns the traffic by group in the L3s of these CPUs, highest first; empty if unknown.
        Traffic of a monitoring group is also part of the traffic of its control group; both are
        listed."""
        if self._now_ns - self._at_ns > MAX_AGE_NS:
            return []
        l3s = {self._l3.get(cpu) for cpu in cpus}
        sums: dict[str, float] = {}
        for (group, l3), rate in self._rates.items():
            if l3 in l3s:
                sums[group] = sums.get(group, 0.0) + rate
        traffic = [GroupTraffic(group, round(rate)) for group, rate in sums.items() if rate > 0]
        return sorted(traffic, key=lambda item: -item.bytes_per_s)[:MAX_NAMED_GROUPS]
