"""The numbers of the machine and of its packages, cores and L3s: power, temperature, memory
traffic, pressure, load and interrupts. Memory traffic is compared with the highest traffic in any
second of this run, because documented maxima are unreliable.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.numbers import CORE, L3, MACHINE, PACKAGE

READ_KEY, WRITE_KEY = TRAFFIC_KEYS = ("memory_read_bytes", "memory_write_bytes")
MIN_AVERAGED_S = 0.95
"""Minimum time in s over which traffic is averaged: ten samples of 100 ms, less their jitter. A
burst from a queue may exceed what memory sustains for longer."""
SEARCH_SAMPLES = 32
"""Number of samples that are searched at once for the end of the current second."""


def memory_traffic(counters: Counters, delta: Delta) -> tuple[Floats, Floats] | None:
    """Returns, by package, the bytes read and written, and the seconds of the span; None if the
    stream does not count them."""
    parts = [counters.increments(delta, key) for key in TRAFFIC_KEYS]
    if parts[0] is None or parts[1] is None:
        return None
    ticks = delta.tables[counters.columns[READ_KEY].block].ticks
    return parts[0] + parts[1], ticks / counters.stamp_hz


class BestTraffic:
    """The highest traffic of each package in any second so far, in bytes/s; NaN before a full
    second."""

    def __init__(self, counters: Counters) -> None:
        count = len(counters.hello.packages)
        self.best_rate: Floats = np.full(count, np.nan)
        self._sums = np.zeros((2, count))
        """Bytes and seconds of the current, incomplete second."""

    def learn(self, increments: Floats, seconds: Floats) -> Floats:
        """Adds bytes and seconds of samples from `memory_traffic`. Returns the best rate after each
        sample, (samples, packages). Seconds with an unknown sample are ignored."""
        is_read, rates, first = seconds > 0, np.empty(increments.shape), 0
        parts = np.where(is_read, [increments, seconds], 0.0)
        while first < len(increments):  # up to the end of the current second of any package
            new_parts = parts[:, first : first + SEARCH_SAMPLES]
            sums = np.concatenate([self._sums[:, None], new_parts], axis=1)
            sums = np.add.accumulate(sums, axis=1)[:, 1:]
            is_full = (sums[1] >= MIN_AVERAGED_S) | np.isnan(sums[0])
            ends = np.flatnonzero(is_full.any(axis=1))
            last = int(ends[0]) if len(ends) else len(is_full) - 1
            self._sums = sums[:, last].copy()
            rates[first : first + last] = self.best_rate
            if (is_new := is_full[last]).any():
                with np.errstate(invalid="ignore", divide="ignore"):
                    rate = self._sums[0] / self._sums[1]
                self.best_rate = np.where(is_new, np.fmax(self.best_rate, rate), self.best_rate)
                self._sums[:, is_new] = 0.0
            rates[first + last] = self.best_rate
            first += last + 1
        return rates

    def share(self, rate: Floats) -> Floats:
        """Returns rates, in bytes per second, as shares of the best rate. A burst of less than a
        second can exceed the best rate; its share is limited to 1."""
        return np.minimum(rate / np.where(self.best_rate > 0, self.best_rate, np.nan), 1.0)


COUNTER_BY_NAME = {key: number.counter for key, number in MACHINE.items()}
PACKAGE_NAMES = tuple(key.removeprefix("package_") for key in PACKAGE)
"""Names of the numbers that both the machine and each package have."""
L3_COUNTERS = {key.removeprefix("l3_"): number.counter for key, number in L3.items()}
"""The counter of each number of an L3, by the number's name in JSON output."""
MEMORY_SHARE = "memory_of_best"
MEMORY_COUNTERS = {f"{key}_per_s": key for key in TRAFFIC_KEYS}
"""Counters of memory reads and writes, by the name of their rates."""
CORE_ENERGY = CORE["core_power_w"].counter
HISTORY_NUMBERS = (
    "pressure_cpu", "pressure_memory", "pressure_io", "load_1", "interrupts_hz",
    "context_switches_hz",
)  # fmt: skip
"""Numbers of the machine that history records for each sample."""
HISTORY_COUNTERS = (*TRAFFIC_KEYS, "energy_j", "energy_ram_j", "l3_memory_bytes")
"""Counters of packages and L3s that history records, too."""
MIN_BUSY_SHARE = 0.5
"""Minimum busy share at which a CPU must have cache misses, so that zero traffic is an error."""
Rates = dict[str, Floats]
"""Rates of counters per second, and means of gauges, by key and row; NaN if not read."""


class MachineTotals:
    """Computes the numbers whose counters are in the stream."""

    def __init__(self, counters: Counters, best: BestTraffic) -> None:
        self._counters, self._best_traffic = counters, best
        names = COUNTER_BY_NAME.items()
        self._names = [(name, key) for name, key in names if key in counters.columns]
        self._cores, self._topology = len(counters.hello.cores), counters.hello.topology
        self._machine_keys: list[str] = []
        """Keys of counters with several columns. The arrays below are for all other counters."""
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
            tick_indexes, increment_indexes = counters.value_indexes(column)
            self._rows.append((key, slice(first, first := first + len(tick_indexes))))
            gauge = column.counter.kind == "gauge"  # a Delta has a gauge's value times ticks
            ticks.append(tick_indexes)
            increments.append(increment_indexes)
            units_per_second.append(np.full(len(tick_indexes), 1.0 if gauge else counters.stamp_hz))
        self._ticks, self._increment_indexes, self._units_per_second = map(
            np.concatenate, (ticks, increments, units_per_second)
        )

    def rates(self, delta: Delta) -> Rates:
        """Returns the rates of the stream's counters of the machine, packages, cores and L3s."""
        increments = delta.take(self._increment_indexes)
        span = delta.take(self._ticks) / self._units_per_second
        values = np.divide(increments, span, out=np.full(len(span), np.nan), where=span > 0)
        rates = {key: values[rows] for key, rows in self._rows}
        for key in self._machine_keys:
            if (rate := self._counters.rates(delta, key)) is not None:
                rates[key] = rate
        return rates

    def numbers(self, rates: Rates) -> dict[str, float]:
        """Returns the numbers of the machine. A sum with an unknown part is NaN."""
        numbers: dict[str, float] = {}
        for name, key in self._names:
            if name == MEMORY_SHARE:
                if {*MEMORY_COUNTERS} <= numbers.keys():
                    total = sum(numbers[name] for name in MEMORY_COUNTERS)
                    best_rate = float(self._best_traffic.best_rate.sum() or np.nan)
                    numbers[name] = min(1.0, total / best_rate)
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
        """Returns the numbers in PACKAGE_NAMES, each by package in the order of hello."""
        keys = {name: COUNTER_BY_NAME[name] for name in PACKAGE_NAMES if name != MEMORY_SHARE}
        numbers = {name: rates[key] for name, key in keys.items() if key in rates}
        if {*MEMORY_COUNTERS} <= numbers.keys():
            read_bytes, written_bytes = (numbers[name] for name in MEMORY_COUNTERS)
            numbers[MEMORY_SHARE] = self._best_traffic.share(read_bytes + written_bytes)
        return numbers

    def core_power_w(self, rates: Rates, rows: Ints) -> Floats:
        """Returns the power of each core in W; NaN where unknown. `rows`: row of each core in
        blocks of core scope; -1 for a core without a row."""
        watts = rates.get(CORE_ENERGY)
        if watts is None or len(watts) != self._cores:
            return np.full(len(rows), np.nan)
        return np.asarray(np.append(watts, np.nan)[rows])

    def l3_values(self, rates: Rates, util: Floats) -> dict[str, Floats]:
        """Returns the traffic and the occupancy of each L3, in the row of the CPU that reads its
        counters. Zero traffic of an L3 with a busy CPU is unknown: some monitors are dead."""
        numbers, topology = {}, self._topology
        for name, key in L3_COUNTERS.items():
            by_cpu = rates.get(key)
            if by_cpu is None or len(by_cpu) != len(topology):
                continue
            for row in np.flatnonzero(by_cpu == 0).tolist():
                sharing_rows = [i for i, cpu in enumerate(topology) if cpu.l3 == topology[row].l3]
                by_cpu[row] = np.nan if (util[sharing_rows] >= MIN_BUSY_SHARE).any() else 0.0
            numbers[name] = by_cpu
        return numbers
