"""Numbers of the machine as a whole: power, temperature, traffic to memory, pressure, load,
interrupts.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.memory import TRAFFIC_KEYS, BestTraffic

MEMORY = {f"{key}_per_s": key for key in TRAFFIC_KEYS}
"""Traffic of packages with their memory, with the counter of each."""
SUMS = {"power_w": "energy_j", "power_limit_w": "power_limit_w", "power_dram_w": "energy_ram_j",
        **MEMORY}  # fmt: skip
"""Sums over all packages, with the counter of each."""
HIGHEST = {"temperature_c": "temperature_c"}
OF_BEST = "memory_of_best"
"""Traffic to memory as a share of the most in any second of this run."""
SHARES = {f"pressure_{what}": f"pressure_{what}_s" for what in ("cpu", "memory", "io")}
"""Shares of the time in which some task had to wait, with the counter of each."""
RATES = {"interrupts_hz": "interrupts", "context_switches_hz": "context_switches"}
LOADS = {name: name for name in ("load_1", "load_5", "load_15")}
"""Load averages of so many minutes, with the counter of each."""
OF_L3 = {"memory_bytes_per_s": "l3_memory_bytes", "local_bytes_per_s": "l3_local_bytes",
         "occupancy_bytes": "l3_occupancy_bytes"}  # fmt: skip
"""Names of the numbers that each L3 has, with the counter of each."""
CORE_ENERGY = "energy_core_j"
Rates = dict[str, Floats]
WORKS = 0.5
"""Share of the time for which a CPU works that is bound to miss its caches."""
TRACED = *SHARES, "load_1", *RATES
"""Names of the numbers whose history is kept sample by sample."""
SHARED = (*TRAFFIC_KEYS, "energy_j", "energy_ram_j", "l3_memory_bytes")
"""Counters of packages and of L3s whose history is kept, too."""
NAMES = SUMS | {OF_BEST: TRAFFIC_KEYS[0]} | HIGHEST | SHARES | RATES | LOADS
"""All names, with the counter of each."""
OF_PACKAGE = *SUMS, OF_BEST, *HIGHEST
"""Names of the numbers that each package has."""


class MachineTotals:
    """The numbers of one stream that belong to no single CPU."""

    def __init__(self, counters: Counters, best: BestTraffic) -> None:
        self._counters, self._best = counters, best
        self._names = [(name, key) for name, key in NAMES.items() if key in counters.columns]
        self._cores, self._topology = len(counters.hello.cores), counters.hello.topology
        self._wide: list[str] = []
        """Counters of several columns; of the others, all rows are computed together:"""
        self._rows: list[tuple[str, slice]] = []
        ticks, moved, per = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
        first = 0
        for key in dict.fromkeys([*NAMES.values(), CORE_ENERGY, *OF_L3.values()]):
            column = counters.columns.get(key)
            if column is None:
                continue
            if column.counter.columns > 1:
                self._wide.append(key)
                continue
            of_ticks, of_moved = counters.places(column)
            self._rows.append((key, slice(first, first := first + len(of_ticks))))
            gauge = column.counter.kind == "gauge"  # its sum is of values times ticks
            ticks.append(of_ticks)
            moved.append(of_moved)
            per.append(np.full(len(of_ticks), 1.0 if gauge else counters.stamp_hz))
        self._ticks, self._moved, self._per = map(np.concatenate, (ticks, moved, per))

    def rates(self, delta: Delta) -> Rates:
        """Counters per second, and means of gauges, by key and then by row; NaN where they were not
        read."""
        moved, span = delta.at(self._moved), delta.at(self._ticks) / self._per
        every = np.divide(moved, span, out=np.full(len(span), np.nan), where=span > 0)
        found = {key: every[rows] for key, rows in self._rows}
        for key in self._wide:
            if (rates := self._counters.rates(delta, key)) is not None:
                found[key] = rates
        return found

    def numbers(self, found: Rates) -> dict[str, float]:
        """Numbers of the machine. A sum is NaN if one of its parts is."""
        numbers: dict[str, float] = {}
        for name, key in self._names:
            if name == OF_BEST:
                if {*MEMORY} <= numbers.keys():
                    total = sum(numbers[name] for name in MEMORY)
                    numbers[name] = min(1.0, total / float(self._best.rate.sum() or np.nan))
                continue
            rates = found.get(key)
            if rates is not None and len(rates):
                value = float(rates.max() if name in HIGHEST else rates.sum())
                numbers[name] = min(1.0, max(0.0, value)) if name in SHARES else value
        return numbers

    def by_package(self, found: Rates) -> dict[str, Floats]:
        """Power, its limit, temperature and traffic to memory of each package, in the order of
        hello's packages."""
        numbers = {name: found[key] for name, key in (SUMS | HIGHEST).items() if key in found}
        if {*MEMORY} <= numbers.keys():
            read, written = (numbers[name] for name in MEMORY)
            numbers[OF_BEST] = self._best.share(read + written)
        return numbers

    def by_core(self, found: Rates, rows: Ints) -> Floats:
        """Power of each core in W, NaN where it is unknown. `rows`: of the cores in blocks of core
        scope; -1: it has none."""
        rates = found.get(CORE_ENERGY)
        if rates is None or len(rates) != self._cores:
            return np.full(len(rows), np.nan)
        return np.asarray(np.append(rates, np.nan)[rows])

    def by_l3(self, found: Rates, util: Floats) -> dict[str, Floats]:
        """Traffic of each L3 and how much of it is in use, by position of the CPU that has it. No
        traffic although a CPU works counts as unknown: such monitors are known to be dead."""
        numbers, topology = {}, self._topology
        for name, key in OF_L3.items():
            rates = found.get(key)
            if rates is None or len(rates) != len(topology):
                continue
            for at in np.flatnonzero(rates == 0).tolist():
                sharing = [i for i, row in enumerate(topology) if row.l3 == topology[at].l3]
                rates[at] = np.nan if (util[sharing] >= WORKS).any() else 0.0
            numbers[name] = rates
        return numbers
