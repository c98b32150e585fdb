"""The parts of a scenario: loads of CPUs, stages, and the arrays from which the schedule is made.

A script is a sequence of stages that repeats without end. Within a stage everything but random
noise is constant. Shares are in per mille of a cell of 10 ms, clocks in MHz. A slot is an element
of an array of CPUs (see machine.py).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from perfprobe.sources.sim import machine as hw
from perfprobe.sources.sim.machine import Ints, SimMachine
from perfprobe.sources.sim.stages import Integral, Stages

CELL_NS = 10_000_000
CELLS_PER_S = 100
SLICE_NS = 3_000_000  # ns for which a task runs while another task waits for the CPU
LIMIT_BITS = 16
PL1_BIT, THERMAL_BIT = 10, 1
MIN_ACTIVE_DUTY = 100  # per mille of a cell; a core that works more counts as active for turbo


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one CPU: in each cell it works once, for `duty` plus or minus half of `jitter`,
    beginning between `start` and `start` + `spread` (all in per mille of a cell)."""

    comm: str = ""
    duty: int = 0
    jitter: int = 0
    start: int = 0
    spread: int = 0
    active: int = 1000
    """Share of windows of 200 ms in which the CPU works at all."""
    ipc: int = 1000
    """Instructions per 1000 cycles."""
    kernel: int = 20
    """Share of the work that is in the kernel."""
    iowait: int = 0
    """Share of the CPU's idle time that is iowait."""
    steal: int = 0
    """Share of each cell that the hypervisor takes, right after the work."""
    license: int = 0
    """SIMD level of the work: 0, 1 or 2."""
    traffic: int = 800
    """MB/s to and from memory that the work demands."""
    misses: int = 1
    """Misses of the last-level cache, in units of 1.25 per 1000 instructions."""


@dataclass(frozen=True, slots=True)
class TaskShare:
    """One of the tasks that share a CPU. `part` is the share of the CPU's busy time in which it
    runs, `wait` that in which it waits while another task runs; both in per mille."""

    comm: str
    part: int = 1000
    wait: int = 0


LOAD_FIELDS = tuple(item.name for item in fields(Load) if item.name != "comm")


@dataclass(frozen=True, slots=True)
class ScriptedEpisode:
    """An episode that perftop should detect; times are seconds from the start of the script."""

    kind: str
    cause: str | None
    cpus: list[int]
    start: float
    end: float
    depth: float | None
    watch: str | None = None
    """The job that must be watched for this episode to be detected; None: no job."""


class Stage:
    """A part of a script in which loads, clocks and limits are constant."""

    def __init__(self, machine: SimMachine, seconds: float) -> None:
        self.seconds = seconds
        self.machine = machine
        self.slot = {name: np.zeros(machine.slots, np.int64) for name in LOAD_FIELDS}
        self.tasks: list[tuple[TaskShare, ...]] = [()] * machine.slots
        """The tasks of each CPU, the busiest first."""
        self.pressure = (0, 0, 0)
        """Shares of time in which some task waits for a CPU, for memory and for I/O."""
        self.online = np.arange(machine.slots) < machine.cpus
        cores = machine.cores
        self.drop_mhz = np.zeros(cores, np.int64)
        self.wobble_mhz = np.full(cores, 6, np.int64)
        self.fixed_mhz = np.zeros(cores, np.int64)  # MHz by core; 0: the clock that turbo allows
        self.halt_period_ns = np.full(cores, CELL_NS, np.int64)
        self.halt_ns = np.zeros(cores, np.int64)
        self.smi_every = 0  # cells between two SMIs; 0: none
        # by package and bit of the limit reasons: number of polls, of ten, in which the bit is set
        self.limits = np.zeros((machine.packages, LIMIT_BITS), np.int64)
        self.at_limit = [False] * machine.packages
        self.hot_c = [0] * machine.packages  # °C by package; 0: the temperature follows the power
        self.run(range(machine.cpus), IDLE)

    def run(self, cpus: Sequence[int], load: Load, *tasks: TaskShare) -> None:
        """Puts a load on these CPUs, executed by `tasks` (default: one with the load's name)."""
        for name in LOAD_FIELDS:
            self.slot[name][cpus] = getattr(load, name)
        for cpu in cpus:
            self.tasks[cpu] = tasks or ((TaskShare(load.comm),) if load.comm else ())

    def limit_power(self, package: int, drop_mhz: int) -> list[int]:
        """Lowers a package's clock by `drop_mhz` for its power limit. Returns its cores."""
        cores = self.machine.cores_of(package)
        self.drop_mhz[cores] = drop_mhz
        self.limits[package, PL1_BIT] = 9
        self.at_limit[package] = True
        return cores

    def overheat(self, package: int, celsius: int) -> list[int]:
        """Makes a package hot: its clock stops for an eighth of each ms. Returns its cores."""
        cores = self.machine.cores_of(package)
        self.limits[package, THERMAL_BIT] = 10
        self.hot_c[package] = celsius
        self.halt_period_ns[cores] = 1_000_000
        self.halt_ns[cores] = 125_000
        return cores

    def active_cores(self) -> NDArray[np.bool_]:
        """Returns, by core, whether it counts as active for turbo."""
        duty = np.where(self.online, self.slot["duty"] * self.slot["active"] // 1000, 0)
        return np.asarray(duty.reshape(self.machine.smt, -1).max(axis=0) >= MIN_ACTIVE_DUTY)

    def ceilings(self) -> Ints:
        """Returns the MHz that turbo allows each package, by its number of active P cores."""
        active = self.active_cores()
        active[self.machine.p_cores :] = False
        per_package = active.reshape(self.machine.packages, -1).sum(axis=1)
        return np.array([hw.ceiling_mhz(int(n)) for n in per_package], np.int64)

    def clocks(self) -> Ints:
        """Returns the clock of each core in MHz, without the wobble."""
        machine = self.machine
        allowed = np.repeat(self.ceilings(), machine.package_cores)
        allowed[machine.p_cores :] = hw.TURBO_E_MHZ
        free = np.where(self.active_cores(), allowed - self.drop_mhz, hw.IDLE_MHZ)
        return np.where(self.fixed_mhz > 0, self.fixed_mhz, free)

    def traffic(self) -> Ints:
        """Returns each CPU's memory traffic in MB/s while it runs. If a package's CPUs demand more
        than its memory can deliver, all get the same share of their demand."""
        slot, machine = self.slot, self.machine
        demand = slot["traffic"] * slot["duty"] * slot["active"] // 1_000_000 * self.online
        package = np.arange(machine.slots) % machine.cores // machine.package_cores
        capacity = hw.CORE_MBPS * machine.package_cores
        total = np.bincount(package, demand, machine.packages).astype(np.int64)
        return np.asarray(slot["traffic"] * capacity // np.maximum(total, capacity)[package])

    def power_mw(self) -> Ints:
        """Returns the power of each package in mW: 35 W plus up to about 5 W a core, at most 148 W
        unless the package is at its limit."""
        busy = self.slot["duty"].reshape(self.machine.smt, -1).sum(axis=0).clip(max=1300)
        cores = busy * 4 * (self.clocks() // 10) ** 2 // 78_400
        mw = 35_000 + cores.reshape(self.machine.packages, -1).sum(axis=1)
        return np.where(self.at_limit, hw.PL1_MW, np.minimum(mw, hw.PL1_MW - 2_000))


CLIMB_MHZ = (1200, 1600, 2000, 2400, 2700, 2900)
"""Clocks in MHz of a core in its first cells after it was idle, one for each cell."""
STREAM = Load("stream", 1000, ipc=420, kernel=4, traffic=12_000)
LAMMPS = Load("lmp", 985, 20, ipc=1850, kernel=12, traffic=1600)
NGINX = Load("nginx", 170, 130, spread=820, ipc=900, kernel=560)
IDLE = Load(duty=3, jitter=4, spread=990, active=400, ipc=700, kernel=700)


@dataclass(slots=True, eq=False)
class Script:
    """The stages of a scenario, and the episodes that they cause."""

    machine: SimMachine
    stages: list[Stage] = field(default_factory=list)
    episodes: list[ScriptedEpisode] = field(default_factory=list)
    late_ns: int = 0
    """Upper bound in ns of an additional random lateness of samples."""

    def add_stage(self, seconds: float, like: Stage | None = None) -> Stage:
        """Appends a stage: a copy of `like`, or a stage in which nothing runs."""
        stage = Stage(self.machine, seconds) if like is None else copy.deepcopy(like)
        stage.seconds = seconds
        self.stages.append(stage)
        return stage

    def add_episode(
        self,
        kind: str,
        cause: str | None,
        cpus: Sequence[int],
        depth: float | None,
        watch: str | None = None,
        stages: int = 1,
    ) -> None:
        """Adds an episode that lasts for the last `stages` stages, unless `cpus` is empty."""
        if not cpus:
            return
        end = sum(stage.seconds for stage in self.stages)
        start = end - sum(stage.seconds for stage in self.stages[-stages:])
        times = round(start, 6), round(end, 6)
        self.episodes.append(ScriptedEpisode(kind, cause, list(cpus), *times, depth, watch))

    def add_climb(self, goal: Stage, cores: Sequence[int]) -> None:
        """Appends stages like `goal` in which the clocks of these cores climb stepwise towards
        their values in `goal`, and a "ramp" episode over those stages."""
        top = int(goal.clocks()[cores[0] if cores else 0])
        steps = [mhz for mhz in CLIMB_MHZ if mhz < top]
        for mhz in steps:
            self.add_stage(1 / CELLS_PER_S, like=goal).fixed_mhz[cores] = mhz
        self.add_episode("ramp", None, cores, (top - steps[0]) * 1e6, stages=len(steps))


class ScriptTables:
    """A script as arrays; their first axis is the stage."""

    def __init__(self, script: Script) -> None:
        stages = script.stages
        cells = [round(stage.seconds * CELLS_PER_S) for stage in stages]
        self._ends = np.cumsum(np.array(cells, np.int64))
        self.stages = Stages((self._ends * CELL_NS).tolist())
        self.slot = {name: np.stack([s.slot[name] for s in stages]) for name in LOAD_FIELDS}
        self.slot["traffic"] = np.stack([s.traffic() for s in stages])
        self.online = np.stack([s.online for s in stages]).astype(np.int64)
        self.mhz = np.stack([s.clocks() for s in stages])
        self.wobble_mhz = np.stack([s.wobble_mhz for s in stages])
        self.halt_period_ns = np.stack([s.halt_period_ns for s in stages])
        self.halt_ns = np.stack([s.halt_ns for s in stages])
        self.smi_every = np.array([s.smi_every for s in stages], np.int64)
        self.limits = np.stack([s.limits for s in stages])
        self.ceiling_mhz = np.stack([s.ceilings() for s in stages])
        self.mw = np.stack([s.power_mw() for s in stages])
        self.tasks = [s.tasks for s in stages]
        self.pressure = np.array([s.pressure for s in stages], np.int64)
        hot = np.array([s.hot_c for s in stages], np.float64)
        self.target_c = np.where(hot > 0, hot, 36 + self.mw * 0.0003)
        self.first_c = np.empty_like(self.target_c)
        """Packages' temperatures in °C at each stage's start, once the script repeats."""
        start_c = self.target_c[-1]
        for _ in range(2):
            for i, count in enumerate(cells):
                self.first_c[i] = start_c
                start_c = approach_exponentially(start_c, self.target_c[i], count / CELLS_PER_S)

    def stage_numbers(self, cells: Ints) -> Ints:
        """Returns the number of the stage to which each cell belongs."""
        return np.asarray(np.searchsorted(self._ends, cells % self._ends[-1], side="right"))

    def integrals(self, rates: Ints, divisor: int) -> list[Integral]:
        """Returns a time integral of each column of `rates`, which has a row for each stage."""
        return [Integral(self.stages, column, 1, divisor) for column in rates.T.tolist()]


def approach_exponentially(
    start: NDArray[np.float64], target: NDArray[np.float64], seconds: float
) -> NDArray[np.float64]:
    """Returns the temperature `seconds` after `start`, with a time constant of 1.5 s."""
    return np.asarray(target + (start - target) * np.exp(-seconds / 1.5))
