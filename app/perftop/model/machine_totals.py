"""Numbers of the machine and its parts (packages, L3s): power, temperature, pressure, load,
interrupts, and traffic to memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from perfprobe.wire import Cpu
from perftop.base.arrays import Floats, Ints
from perftop.base.text import safe_text
from perftop.model.belief import GroupTraffic
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.numbers import CORE, L3, MACHINE, PACKAGE

# --- Traffic between packages and their memory, and the traffic of resctrl groups by L3. Traffic is
# compared with the highest traffic in any second of this run, because no documented maximum can be
# trusted.

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


BYTES_PER_CLOCK = 16
"""Bytes that a channel of 64 bits can move in one of its clocks, which are of two transfers."""


def traffic_limit(counters: Counters, delta: Delta) -> Floats | None:
    """Returns what the channels can carry in bytes per second, by package; None where unknown."""
    clock = counters.rates(delta, "memory_clock")
    return None if clock is None else clock * BYTES_PER_CLOCK


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


L3_RECORD = "l3_groups"
DEFAULT_GROUP = "(default)"
"""Name of the group of all tasks that are in no other group."""
MAX_L3_GROUPS, MAX_NAME_LENGTH, MAX_NAMED_GROUPS = 256, 60, 3
"""Maximum number of groups kept, of characters of a name, and of groups listed as evidence."""
MAX_AGE_NS = 10_000_000_000
"""Maximum age of a record in ns; an older one no longer describes the present."""


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
        record = records.get(L3_RECORD)
        if not isinstance(record, dict):
            return
        values: dict[tuple[str, int], int] = {}
        for group, rows in list(record.items())[:MAX_L3_GROUPS]:
            if not isinstance(group, str) or not isinstance(rows, list):
                continue
            name = safe_text(group, MAX_NAME_LENGTH) if group else DEFAULT_GROUP
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


# --- Power, temperature, memory traffic, pressure, load and interrupts of the machine, and of each
# package, core and L3 that has counters for them.

COUNTER_BY_NAME = {key: number.counter for key, number in MACHINE.items()}
"""Numbers of the machine, each with its counter."""
PACKAGE_NAMES = tuple(key.removeprefix("package_") for key in PACKAGE)
"""Numbers that the machine and each package have."""
L3_COUNTERS = {key.removeprefix("l3_"): number.counter for key, number in L3.items()}
"""Numbers of an L3, by their name in a line of JSON, each with its counter."""
OF_BEST_NAME = "memory_of_best"
MEMORY_COUNTERS = {
    name: key
    for name, key in COUNTER_BY_NAME.items()
    if key in TRAFFIC_KEYS and name != OF_BEST_NAME
}
"""Memory traffic: reads and writes, each with its counter."""
CORE_ENERGY = CORE["core_power_w"].counter
TRACED = (
    "pressure_cpu", "pressure_memory", "pressure_io", "load_1", "interrupts_hz",
    "context_switches_hz",
)  # fmt: skip
"""Numbers of the machine whose history is kept sample by sample."""
SHARED_KEYS = (*TRAFFIC_KEYS, "energy_j", "energy_ram_j", "l3_memory_bytes")
"""Counters of packages and L3s whose history is also kept."""
MIN_BUSY = 0.5
"""Minimum busy share at which a CPU is certain to miss its caches."""
Rates = dict[str, Floats]
"""Counters per second, and means of gauges, by key of the counter and then by row; NaN where the
row was not read."""


class MachineTotals:
    """Computes the numbers of one stream that do not belong to a single CPU."""

    def __init__(self, counters: Counters, best: BestTraffic) -> None:
        self._counters, self._best_traffic = counters, best
        self._names = [
            (name, key) for name, key in COUNTER_BY_NAME.items() if key in counters.columns
        ]
        self._cores, self._topology = len(counters.hello.cores), counters.hello.topology
        self._machine_keys: list[str] = []
        """Counters with several columns. The rows of all other counters are computed together, in
        the arrays below."""
        self._rows: list[tuple[str, slice]] = []
        ticks, increments, units_per_second = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
        first = 0
        for key in dict.fromkeys([*COUNTER_BY_NAME.values(), CORE_ENERGY, *L3_COUNTERS.values()]):
            column = counters.columns.get(key)
            if column is None:
                continue
            if column.counter.columns > 1:
                self._machine_keys.append(key)
                continue
            tick_places, increment_places = counters.places(column)
            self._rows.append((key, slice(first, first := first + len(tick_places))))
            gauge = column.counter.kind == "gauge"  # the sum of a gauge is of values times ticks
            ticks.append(tick_places)
            increments.append(increment_places)
            units_per_second.append(np.full(len(tick_places), 1.0 if gauge else counters.stamp_hz))
        self._ticks, self._increment_places, self._units_per_second = map(
            np.concatenate, (ticks, increments, units_per_second)
        )

    def rates(self, delta: Delta) -> Rates:
        """Returns the rates of all counters of NAMES, L3_COUNTERS and CORE_ENERGY that the stream
        has."""
        increments, span = (
            delta.take(self._increment_places),
            delta.take(self._ticks) / self._units_per_second,
        )
        values = np.divide(increments, span, out=np.full(len(span), np.nan), where=span > 0)
        rates = {key: values[rows] for key, rows in self._rows}
        for key in self._machine_keys:
            if (rate := self._counters.rates(delta, key)) is not None:
                rates[key] = rate
        return rates

    def numbers(self, rates: Rates) -> dict[str, float]:
        """Returns the numbers of the machine. A sum is NaN if one of its parts is NaN."""
        numbers: dict[str, float] = {}
        for name, key in self._names:
            if name == OF_BEST_NAME:
                if {*MEMORY_COUNTERS} <= numbers.keys():
                    total = sum(numbers[name] for name in MEMORY_COUNTERS)
                    numbers[name] = min(1.0, total / float(self._best_traffic.rate.sum() or np.nan))
                continue
            by_row = rates.get(key)
            if by_row is not None and len(by_row):
                if len(by_row) == 1:  # the usual case; saves 8 % of an interval
                    value = float(by_row[0])
                else:
                    value = float(by_row.max() if name == "temperature_c" else by_row.sum())
                is_share = MACHINE[name].unit == "ratio"
                numbers[name] = min(1.0, max(0.0, value)) if is_share else value
        return numbers

    def package_values(self, rates: Rates) -> dict[str, Floats]:
        """Returns the numbers of PACKAGE_NAMES, by package in the order of hello."""
        own_names = [name for name in PACKAGE_NAMES if name != OF_BEST_NAME]
        numbers = {
            name: rates[COUNTER_BY_NAME[name]]
            for name in own_names
            if COUNTER_BY_NAME[name] in rates
        }
        if {*MEMORY_COUNTERS} <= numbers.keys():
            read_bytes, written_bytes = (numbers[name] for name in MEMORY_COUNTERS)
            numbers[OF_BEST_NAME] = self._best_traffic.share(read_bytes + written_bytes)
        return numbers

    def core_power_w(self, rates: Rates, rows: Ints) -> Floats:
        """Returns the power of each core in W; NaN where unknown. `rows`: row of each core in
        blocks of core scope; -1 for a core without a row."""
        watts = rates.get(CORE_ENERGY)
        if watts is None or len(watts) != self._cores:
            return np.full(len(rows), np.nan)
        return np.asarray(np.append(watts, np.nan)[rows])

    def l3_values(self, rates: Rates, util: Floats) -> dict[str, Floats]:
        """Returns the traffic and the occupancy of each L3, by position of the CPU in whose row it
        is counted. Zero traffic while a CPU is busy counts as unknown, because some monitors are
        known to be dead."""
        numbers, topology = {}, self._topology
        for name, key in L3_COUNTERS.items():
            by_cpu = rates.get(key)
            if by_cpu is None or len(by_cpu) != len(topology):
                continue
            for row in np.flatnonzero(by_cpu == 0).tolist():
                sharing = [i for i, cpu in enumerate(topology) if cpu.l3 == topology[row].l3]
                by_cpu[row] = np.nan if (util[sharing] >= MIN_BUSY).any() else 0.0
            numbers[name] = by_cpu
        return numbers
