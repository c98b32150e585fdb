"""Power, temperature, memory traffic, pressure, load and interrupts of the machine, and of each
package, core and L3 that has counters for them.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.memory import TRAFFIC_KEYS, BestTraffic
from perftop.model.numbers import CORE, L3, MACHINE, PACKAGE

NAMES = {key: number.counter for key, number in MACHINE.items()}
"""Numbers of the machine, each with its counter."""
OF_PACKAGE = tuple(key.removeprefix("package_") for key in PACKAGE)
"""Those numbers of the machine that each package has too."""
OF_L3 = {key.removeprefix("l3_"): number.counter for key, number in L3.items()}
"""Numbers of an L3, by their name in a line of JSON, each with its counter."""
OF_BEST = "memory_of_best"
MEMORY = {name: key for name, key in NAMES.items() if key in TRAFFIC_KEYS and name != OF_BEST}
"""Memory traffic: reads and writes, each with its counter."""
CORE_ENERGY = CORE["core_power_w"].counter
TRACED = (
    "pressure_cpu", "pressure_memory", "pressure_io", "load_1", "interrupts_hz",
    "context_switches_hz",
)  # fmt: skip
"""Numbers of the machine whose history is kept sample by sample."""
SHARED_KEYS = (*TRAFFIC_KEYS, "energy_j", "energy_ram_j", "l3_memory_bytes")
"""Counters of packages and L3s whose history is kept too."""
MIN_BUSY = 0.5
"""Busy share from which a CPU is certain to miss its caches."""
Rates = dict[str, Floats]
"""By key of the counter and then by row: counters per second, and means of gauges; NaN where the
row was not read."""


class MachineTotals:
    """Computes the numbers of one stream that do not belong to a single CPU."""

    def __init__(self, counters: Counters, best: BestTraffic) -> None:
        self._counters, self._best_traffic = counters, best
        self._names = [(name, key) for name, key in NAMES.items() if key in counters.columns]
        self._cores, self._topology = len(counters.hello.cores), counters.hello.topology
        self._machine_keys: list[str] = []
        """Counters with several columns. The rows of all other counters are computed together, in
        the arrays below."""
        self._rows: list[tuple[str, slice]] = []
        ticks, increments, units_per_second = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
        first = 0
        for key in dict.fromkeys([*NAMES.values(), CORE_ENERGY, *OF_L3.values()]):
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
        """Returns the rates of all counters of NAMES, OF_L3 and CORE_ENERGY that the stream has."""
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
            if name == OF_BEST:
                if {*MEMORY} <= numbers.keys():
                    total = sum(numbers[name] for name in MEMORY)
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

    def by_package(self, rates: Rates) -> dict[str, Floats]:
        """Returns the numbers of OF_PACKAGE, by package in the order of hello."""
        own_names = [name for name in OF_PACKAGE if name != OF_BEST]
        numbers = {name: rates[NAMES[name]] for name in own_names if NAMES[name] in rates}
        if {*MEMORY} <= numbers.keys():
            read_bytes, written_bytes = (numbers[name] for name in MEMORY)
            numbers[OF_BEST] = self._best_traffic.share(read_bytes + written_bytes)
        return numbers

    def by_core(self, rates: Rates, rows: Ints) -> Floats:
        """Returns the power of each core in W; NaN where unknown. `rows`: row of each core in
        blocks of core scope; -1 for a core without a row."""
        watts = rates.get(CORE_ENERGY)
        if watts is None or len(watts) != self._cores:
            return np.full(len(rows), np.nan)
        return np.asarray(np.append(watts, np.nan)[rows])

    def by_l3(self, rates: Rates, util: Floats) -> dict[str, Floats]:
        """Returns the traffic and the occupancy of each L3, by position of the CPU in whose row it
        is counted. Zero traffic while a CPU is busy counts as unknown, because some monitors are
        known to be dead."""
        numbers, topology = {}, self._topology
        for name, key in OF_L3.items():
            by_cpu = rates.get(key)
            if by_cpu is None or len(by_cpu) != len(topology):
                continue
            for row in np.flatnonzero(by_cpu == 0).tolist():
                sharing = [i for i, cpu in enumerate(topology) if cpu.l3 == topology[row].l3]
                by_cpu[row] = np.nan if (util[sharing] >= MIN_BUSY).any() else 0.0
            numbers[name] = by_cpu
        return numbers
