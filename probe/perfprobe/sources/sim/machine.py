"""The simulated machine: its specification `sim[:SCENARIO[,KEY=VALUE…]]` in --source, constants of
its hardware, and its topology."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from perfprobe.errors import UsageError
from perfprobe.wire import Cpu

SCENARIOS = (
    "idle", "steady", "jitter", "smt-mix", "turbo-drop", "license", "throttle", "neighbour",
    "memory", "warmup", "halts", "hotplug", "hybrid", "guest", "demo",
)  # fmt: skip
MAX_CPUS = 4096
KEYS = ("cpus", "packages", "smt", "seed", "speed", "epoch", "slots")


@dataclass(frozen=True, slots=True)
class Spec:
    scenario: str = "smt-mix"
    cpus: int = 16
    packages: int = 1
    smt: int = 2
    seed: int = 1
    speed: float | None = 1.0
    """Simulated seconds per second; None: as fast as the reader reads frames."""
    epoch: int | None = None
    """Unix time in s at which the simulation starts; None: now."""
    slots: bool = False
    """Whether the machine counts issue slots, and slots given to the sibling."""


def parse_spec(text: str) -> Spec:
    """Parses a specification, with or without `sim:`. Raises ValueError."""
    body = "" if text == "sim" else text.removeprefix("sim:")
    scenario, *options = body.split(",")
    scenario = scenario or "smt-mix"
    if scenario not in SCENARIOS:
        raise UsageError(f"sim: unknown scenario {scenario!r}; known: {', '.join(SCENARIOS)}")
    settings: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise UsageError(f"sim: {option!r} is not KEY=VALUE")
        if key not in KEYS:
            raise UsageError(f"sim: unknown option {key!r}; known: {', '.join(KEYS)}")
        if key in settings:
            raise UsageError(f"sim: {key} is given twice")
        settings[key] = value
    guest = scenario == "guest"
    cpus = _parse_integer(settings, "cpus", 2 if guest else 16, 1, MAX_CPUS)
    one_package = guest or scenario == "hybrid"
    spec = Spec(
        scenario,
        cpus,
        _parse_integer(settings, "packages", 2 if cpus >= 32 and not one_package else 1, 1, 64),
        _parse_integer(settings, "smt", 1 if guest else 2, 1, 8),
        _parse_integer(settings, "seed", 1, 0, 2**32 - 1),
        _parse_speed(settings.get("speed", "1")),
        _parse_integer(settings, "epoch", 0, 0, 2**33) if "epoch" in settings else None,
        bool(_parse_integer(settings, "slots", 0, 0, 1)),
    )
    if spec.smt not in {1, 2, 4, 8}:
        raise UsageError(f"sim: smt={spec.smt}: a core has 1, 2, 4 or 8 threads")
    if guest and spec.smt != 1:
        raise UsageError(f"sim: smt={spec.smt}: a guest has no visible siblings: use smt=1")
    if scenario == "hybrid":
        if spec.packages != 1 or spec.smt != 2 or spec.cpus % 4:
            reason = "hybrid has one package, smt=2 on its P cores, and a multiple of 4 CPUs"
            raise UsageError(f"sim: {reason}")
    elif spec.cpus % (spec.packages * spec.smt):
        raise UsageError(
            f"sim: {spec.cpus} CPUs cannot be divided into {spec.packages} packages "
            f"of cores with {spec.smt} threads"
        )
    return spec


def _parse_integer(settings: dict[str, str], key: str, default: int, low: int, high: int) -> int:
    text = settings.get(key)
    if text is None:
        return default
    # int() alone would accept signs, underscores and blanks.
    if not (text.isascii() and text.isdigit()) or not low <= int(text[:20]) <= high:
        raise UsageError(f"sim: {key}={text}: a number from {low} to {high} was expected")
    return int(text)


def _parse_speed(text: str) -> float | None:
    if text == "max":
        return None
    # float() alone would accept underscores, blanks and the digits of all scripts.
    is_number = re.fullmatch(r"[0-9]*\.?[0-9]+(e[+-]?[0-9]+)?", text) is not None
    speed = float(text) if is_number else 0.0
    if not 0.001 <= speed <= 1e6:
        raise UsageError(f"sim: speed={text}: a number from 0.001 to 1000000, or max, was expected")
    return speed


# --- hardware -------------------------------------------------------------------------------------
# CPUs are numbered as in Linux: the first threads of all cores (package by package), then the
# second threads, and so on. So CPU = thread x cores + core, and an array of CPUs that is reshaped
# to (threads, cores) has siblings in a column. The E cores of a hybrid come last and have no second
# thread: such arrays have threads x cores elements (slots), of which only the first `cpus` exist.

Ints = NDArray[np.int64]
TSC_HZ = 2_100_000_000
BASE_MHZ = {"P": 2100, "E": 1500}
TICK_NS = 40  # ns in a tick of the crystal, which runs at 25 MHz
TICK_TSC = 84  # TSC ticks in one tick of the crystal: CPUID 15H 168/2
CORES_PER_L3 = 8
PL1_MW = 150_000

# Steps of the turbo table: maximum number of active cores in a package, and their highest clock.
TURBO_MHZ = ((2, 3700), (4, 3500), (8, 3400), (12, 3200), (20, 3000))
TURBO_ALL_MHZ = 2800
TURBO_E_MHZ = 2900
CORE_MBPS = 10_000  # MB/s that a package's memory can move, for each of its cores
IDLE_MHZ = 1600  # the clock of a core that is mostly idle


Time = TypeVar("Time", int, Ints)


def tsc(time_ns: Time) -> Time:
    """Returns the TSC ticks in `time_ns`, without rounding errors."""
    return time_ns * 21 // 10


def ceiling_mhz(active: int) -> int:
    return next((mhz for cores, mhz in TURBO_MHZ if active <= cores), TURBO_ALL_MHZ)


@dataclass(frozen=True, slots=True)
class SimMachine:
    """The numbers of CPUs, cores and packages of the simulated machine, and its topology."""

    cpus: int
    packages: int
    smt: int
    cores: int
    p_cores: int
    """Number of P cores, which come first; the others are E cores with one thread."""
    guest: bool = False
    """Whether the machine is a VM whose hypervisor exposes no PMU."""

    @classmethod
    def from_spec(cls, spec: Spec) -> SimMachine:
        if spec.scenario == "hybrid":
            big = spec.cpus // 4
            return cls(spec.cpus, 1, 2, spec.cpus - big, big)
        cores = spec.cpus // spec.smt
        return cls(spec.cpus, spec.packages, spec.smt, cores, cores, spec.scenario == "guest")

    @property
    def smt_key(self) -> str:
        """The key of the counter that measures SMT states; '' without SMT."""
        return "any_thread" if self.smt > 2 else "one_thread" if self.smt > 1 else ""

    @property
    def slots(self) -> int:
        return self.smt * self.cores

    @property
    def is_hybrid(self) -> bool:
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

    def cpus_of(self, cores: Sequence[int], thread: int | None = None) -> list[int]:
        """Returns the CPUs of these cores, thread by thread; with `thread`, only those threads."""
        numbers = range(self.smt) if thread is None else [thread]
        threads = [self.threads(core) for core in cores]
        return [cpus[number] for number in numbers for cpus in threads if number < len(cpus)]

    @property
    def p_cpus(self) -> list[int]:
        return self.cpus_of(range(self.p_cores))

    def package_cpus(self, package: int) -> list[int]:
        return [c for c in range(self.cpus) if self.package(c % self.cores) == package]

    def row(self, cpu: int, online: bool = True) -> Cpu:
        """Returns the topology row of a CPU; of an offline CPU only its number is known."""
        if not online:
            return Cpu(cpu, online=False)
        core = cpu % self.cores
        package = self.package(core)
        core_in_package = core % self.package_cores
        # the last L3 also has the cores that do not fill another one
        caches = max(1, self.package_cores // CORES_PER_L3)
        kind = None if not self.is_hybrid else "P" if core < self.p_cores else "E"
        return Cpu(
            cpu=cpu,
            online=True,
            package=package,
            die=0,
            core=core_in_package,
            thread=cpu // self.cores,
            l3=package * caches + min(core_in_package // CORES_PER_L3, caches - 1),
            node=package,
            type=kind,
            siblings=self.threads(core),
        )
