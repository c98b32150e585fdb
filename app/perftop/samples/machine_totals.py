"""Numbers of the machine as a whole: power, temperature, traffic to memory, pressure, load,
interrupts."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.samples.counters import Counters
from perftop.samples.delta import Delta
from perftop.samples.memory import KEYS, Best

MEMORY = {f"{key}_per_s": key for key in KEYS}
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
WORKS = 0.5
"""Share of the time for which a CPU works that cannot but miss its caches."""
TRACED = *SHARES, "load_1", *RATES
"""Names of the numbers whose past is kept sample by sample."""
SHARED = (*KEYS, "energy_j", "energy_ram_j", "l3_memory_bytes")
"""Counters of packages and of L3s whose past is kept, too."""
NAMES = SUMS | {OF_BEST: KEYS[0]} | HIGHEST | SHARES | RATES | LOADS
"""All names, with the counter of each."""
OF_PACKAGE = *SUMS, OF_BEST, *HIGHEST
"""Names of the numbers that each package has."""


def numbers(counters: Counters, delta: Delta, best: Best | None = None) -> dict[str, float]:
    """The numbers that this stream has. A sum is NaN if one of its parts is."""
    found: dict[str, float] = {}
    for name, key in NAMES.items():
        if name == OF_BEST:
            if best is not None and {*MEMORY} <= found.keys():
                total = sum(found[name] for name in MEMORY)
                found[name] = min(1.0, total / float(best.rate.sum() or np.nan))
            continue
        rates = counters.rates(delta, key)
        if rates is None or not len(rates):
            continue
        value = float(rates.max() if name in HIGHEST else rates.sum())
        found[name] = min(1.0, max(0.0, value)) if name in SHARES else value
    return found


def by_package(counters: Counters, delta: Delta, best: Best) -> dict[str, Floats]:
    """Power, its limit, temperature and traffic to memory of each package, in the order of hello's
    packages."""
    told = ((name, counters.rates(delta, key)) for name, key in (SUMS | HIGHEST).items())
    found = {name: rates for name, rates in told if rates is not None}
    if {*MEMORY} <= found.keys():
        found[OF_BEST] = best.share(np.sum([found[name] for name in MEMORY], axis=0))
    return found


def by_core(counters: Counters, delta: Delta, told: Ints) -> Floats:
    """Power of each core in W, NaN where it is unknown. `told`: row of each core in blocks of core
    scope; -1: it has none."""
    rates = counters.rates(delta, "energy_core_j")
    if rates is None or len(rates) != len(counters.hello.cores):
        return np.full(len(told), np.nan)
    return np.asarray(np.append(rates, np.nan)[told])


def by_l3(counters: Counters, delta: Delta, util: Floats) -> dict[str, Floats]:
    """Traffic of each L3 and how much of it is in use, by position of the CPU that has it. Traffic
    that stands still beside a CPU that works is unknown: such monitors are known to be dead."""
    hello = counters.hello
    found = {}
    for name, key in OF_L3.items():
        rates = counters.rates(delta, key)
        if rates is None or len(rates) != len(hello.topology):
            continue
        for at in np.flatnonzero(rates == 0).tolist():
            l3 = hello.topology[at].l3
            mine = [i for i, row in enumerate(hello.topology) if row.l3 == l3]
            rates[at] = np.nan if (util[mine] >= WORKS).any() else 0.0
        found[name] = rates
    return found
