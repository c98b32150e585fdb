"""Numbers of the machine as a whole: power, temperature, traffic to memory, pressure, load,
interrupts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.model.counters import BlockCounter, Counters
from perftop.model.delta import Delta
from perftop.model.memory import TRAFFIC_KEYS, Best

MEMORY = {f"{key}_per_s": key for key in TRAFFIC_KEYS}
"""Traffic of packages with their memory, with the counter of each."""
SUMS = {"power_w": "energy_j", "power_limit_w": "power_limit_w", "power_dram_w": "energy_ram_j",
        **MEMORY}  # fmt: skip
"""Sums over all packages, with the counter of each."""
HIGHEST = {"temperature_c": "temperature_c"}
OF_BEST = "memory_of_best"
"""Traffic to memory as a share of the best that this run has seen."""
SHARES = {f"pressure_{what}": f"pressure_{what}_s" for what in ("cpu", "memory", "io")}
"""Shares of the time in which some task had to wait, with the counter of each."""
RATES = {"interrupts_hz": "interrupts", "context_switches_hz": "context_switches"}
LOADS = {name: name for name in ("load_1", "load_5", "load_15")}
"""Load averages of so many minutes, with the counter of each."""

OF_L3 = {"memory_bytes_per_s": "l3_memory_bytes", "local_bytes_per_s": "l3_local_bytes",
         "occupancy_bytes": "l3_occupancy_bytes"}  # fmt: skip
"""Names of the numbers that each L3 has, with the counter of each."""
CORE = "energy_core_j"
Rates = dict[str, Floats]
WORKS = 0.5
"""Share of the time for which a CPU works that cannot but miss its caches."""
TRACED = *SHARES, "load_1", *RATES
"""Names of the numbers whose past is kept sample by sample."""
SHARED = (*TRAFFIC_KEYS, "energy_j", "energy_ram_j", "l3_memory_bytes")
"""Counters of packages and of L3s whose past is kept, too."""
NAMES = SUMS | {OF_BEST: TRAFFIC_KEYS[0]} | HIGHEST | SHARES | RATES | LOADS
"""All names, with the counter of each."""
OF_PACKAGE = *SUMS, OF_BEST, *HIGHEST
"""Names of the numbers that each package has."""


class Totals:
    """The numbers of one stream that no CPU has of its own."""

    def __init__(self, counters: Counters, best: Best) -> None:
        self._counters, self._best = counters, best
        keys = dict.fromkeys([*NAMES.values(), CORE, *OF_L3.values()])
        found = [column for key in keys if (column := counters.columns.get(key)) is not None]
        self._names = [(name, key) for name, key in NAMES.items() if key in counters.columns]
        self._wide = [column.counter.key for column in found if column.counter.columns > 1]
        narrow = [column for column in found if column.counter.columns == 1]
        self._narrow = _Narrow.of(narrow, counters)
        hello = counters.hello
        self._cores, self._topology = len(hello.cores), hello.topology

    def rates(self, delta: Delta) -> Rates:
        """Counters per second, and means of gauges, by key and then by row; NaN where they were not
        read."""
        found = self._narrow.rates(delta)
        for key in self._wide:
            if (rates := self._counters.rates(delta, key)) is not None:
                found[key] = rates
        return found

    def numbers(self, found: Rates) -> dict[str, float]:
        """Those of the machine. A sum is NaN if one of its parts is."""
        told: dict[str, float] = {}
        for name, key in self._names:
            if name == OF_BEST:
                if {*MEMORY} <= told.keys():
                    total = sum(told[name] for name in MEMORY)
                    told[name] = min(1.0, total / float(self._best.rate.sum() or np.nan))
                continue
            rates = found.get(key)
            if rates is None or not len(rates):
                continue
            if len(rates) == 1:  # mostly
                value = float(rates[0])
            else:
                value = float(rates.max() if name in HIGHEST else rates.sum())
            told[name] = min(1.0, max(0.0, value)) if name in SHARES else value
        return told

    def by_package(self, found: Rates) -> dict[str, Floats]:
        """Power, its limit, temperature and traffic to memory of each package, in the order of
        hello's packages."""
        told = {name: found[key] for name, key in (SUMS | HIGHEST).items() if key in found}
        if {*MEMORY} <= told.keys():
            read, written = (told[name] for name in MEMORY)
            told[OF_BEST] = self._best.share(read + written)
        return told

    def by_core(self, found: Rates, told: Ints) -> Floats:
        """Power of each core in W, NaN where it is unknown. `told`: row of each core in blocks of
        core scope; -1: it has none."""
        rates = found.get(CORE)
        if rates is None or len(rates) != self._cores:
            return np.full(len(told), np.nan)
        return np.asarray(np.append(rates, np.nan)[told])

    def by_l3(self, found: Rates, util: Floats) -> dict[str, Floats]:
        """Traffic of each L3 and how much of it is in use, by position of the CPU that has it.
        Traffic that stands still beside a CPU that works is unknown: such monitors are known to be
        dead."""
        told, topology = {}, self._topology
        for name, key in OF_L3.items():
            rates = found.get(key)
            if rates is None or len(rates) != len(topology):
                continue
            for at in np.flatnonzero(rates == 0).tolist():
                mine = [i for i, row in enumerate(topology) if row.l3 == topology[at].l3]
                rates[at] = np.nan if (util[mine] >= WORKS).any() else 0.0
            told[name] = rates
        return told


@dataclass(frozen=True, slots=True)
class _Narrow:
    """Counters of one column each, one behind the other."""

    rows: list[tuple[str, slice]]
    """Key and places of each."""
    ticks: Ints
    moved: Ints
    per: Floats
    """What ticks are divided by: 1 for a gauge, whose sum is of values times ticks."""

    @classmethod
    def of(cls, columns: Sequence[BlockCounter], counters: Counters) -> _Narrow:
        rows, first = [], 0
        ticks, moved, per = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
        for column in columns:
            of_ticks, of_moved = counters.places(column)
            rows.append((column.counter.key, slice(first, first := first + len(of_ticks))))
            gauge = column.counter.kind == "gauge"
            ticks.append(of_ticks)
            moved.append(of_moved)
            per.append(np.full(len(of_ticks), 1.0 if gauge else counters.stamp_hz))
        return cls(rows, *map(np.concatenate, (ticks, moved, per)))

    def rates(self, delta: Delta) -> Rates:
        moved, span = delta.at(self.moved), delta.at(self.ticks) / self.per
        each = np.divide(moved, span, out=np.full(len(span), np.nan), where=span > 0)
        return {key: each[rows] for key, rows in self.rows}
