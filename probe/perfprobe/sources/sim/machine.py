"""The simulated hardware: constants and topology.

CPUs are numbered as in Linux: the first threads of all cores (package by package), then the second
threads, and so on. So CPU = thread x cores + core, and an array over CPUs reshaped to
(threads, cores) has siblings in a column. In a hybrid the E cores come last and have no second
thread: arrays are `slots` wide, and only the first `cpus` slots exist.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from perfprobe.frozen import frozen
from perfprobe.sources.sim.spec import Spec
from perfprobe.wire import Cpu

Ints = NDArray[np.int64]
TSC_HZ = 2_100_000_000
BASE_MHZ = {"P": 2100, "E": 1500}
TICK_NS = 40  # the crystal: 25 MHz
TICK_TSC = 84  # TSC ticks in one of the crystal's: CPUID 15H 168/2
CORES_PER_L3 = 8
PL1_MW = 150_000

# Upper bound of active cores in a package, and the clock that they may have.
TURBO_MHZ = ((2, 3700), (4, 3500), (8, 3400), (12, 3200), (20, 3000))
TURBO_ALL_MHZ = 2800
TURBO_E_MHZ = 2900
CORE_MBPS = 10_000  # that the memory of a package can move, for each of its cores
IDLE_MHZ = 1600  # the clock of a core that is mostly idle


Time = TypeVar("Time", int, Ints)


def tsc(time_ns: Time) -> Time:
    """TSC ticks in so many ns, without rounding errors."""
    return time_ns * 21 // 10


def ceiling_mhz(active: int) -> int:
    return next((mhz for cores, mhz in TURBO_MHZ if active <= cores), TURBO_ALL_MHZ)


@frozen
class Machine:
    cpus: int
    packages: int
    smt: int
    cores: int
    p_cores: int
    """Number of P cores, which come first; the others are E cores with one thread."""
    guest: bool = False
    """A hypervisor runs it, and exposes no PMU."""

    @classmethod
    def of(cls, spec: Spec) -> Machine:
        if spec.scenario == "hybrid":
            big = spec.cpus // 4
            return cls(spec.cpus, 1, 2, spec.cpus - big, big)
        cores = spec.cpus // spec.smt
        return cls(spec.cpus, spec.packages, spec.smt, cores, cores, spec.scenario == "guest")

    @property
    def slots(self) -> int:
        return self.smt * self.cores

    @property
    def hybrid(self) -> bool:
        return self.p_cores < self.cores

    @property
    def package_cores(self) -> int:
        return self.cores // self.packages

    def package(self, core: int) -> int:
        return core // self.package_cores

    def cores_of(self, package: int) -> list[int]:
        first = package * self.package_cores
        return list(range(first, first + self.package_cores))

    def threads(self, core: int) -> list[int]:
        return [cpu for cpu in range(core, self.slots, self.cores) if cpu < self.cpus]

    @property
    def p_cpus(self) -> list[int]:
        return sorted(cpu for core in range(self.p_cores) for cpu in self.threads(core))

    def package_cpus(self, package: int) -> list[int]:
        return [c for c in range(self.cpus) if self.package(c % self.cores) == package]

    def row(self, cpu: int, online: bool = True) -> Cpu:
        """The topology row. The kernel tells only the number of an offline CPU."""
        if not online:
            return Cpu(cpu, online=False)
        core = cpu % self.cores
        package = self.package(core)
        within = core % self.package_cores
        caches = max(1, self.package_cores // CORES_PER_L3)  # a smaller rest joins the last
        kind = None if not self.hybrid else "P" if core < self.p_cores else "E"
        return Cpu(
            cpu=cpu,
            online=True,
            package=package,
            die=0,
            core=within,
            thread=cpu // self.cores,
            l3=package * caches + min(within // CORES_PER_L3, caches - 1),
            node=package,
            type=kind,
            siblings=self.threads(core),
        )
