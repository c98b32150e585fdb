"""A whole fake machine: its processors, its clock, and the log of all writes to its registers."""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fakekernel import cpuid, registers, truth
from fakekernel.activity import Core, Package, default_plan
from fakekernel.models import MODELS, Model
from fakekernel.pmu import Pmu, Readers, RefusedError

REG = 0xFFFFFFFF
LOG_LIMIT = 100_000


@dataclass
class Spec:
    """The machine to simulate. All fields are valid JSON."""

    model: str = "skylake-sp"
    cores: int = 2  # number of cores in a package
    packages: int = 1
    threads: int | None = None  # threads per core; default: the number of the model
    plans: list[dict[str, Any]] | None = None  # the schedule of each core, see activity.py
    # fields of the model that differ from the table
    override: dict[str, Any] = field(default_factory=dict)
    # [CPU, register, value] of registers at the start
    registers: list[list[int]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)  # registers that do not exist on this machine
    kvm: bool = False  # bit 21 faults, AnyThread deprecated, hypervisor flag
    reads: str = "real"  # "zero": every register is 0, with success
    writes: str = "real"  # "eperm", "drop" (silently)
    write_s: float = 0.0  # duration of a write in s
    open_error: str | None = None  # error of opening an msr file, such as "EPERM"
    msr: bool = True  # whether the msr driver is loaded


@dataclass(frozen=True)
class Place:
    """The position of an LP, and the number of cores of its package."""

    package: int
    core: int
    thread: int
    cores: int


class Processor:
    """One LP as the msr driver sees it."""

    def __init__(self, machine: Machine, cpu: int, place: Place) -> None:
        model, spec = machine.model, machine.spec
        self.machine, self.cpu, self.place, self.online = machine, cpu, place, True
        core, shared = machine.cores_of(place)
        self.core = core
        pmu = Pmu(core, model, place.thread, spec.kvm)
        self.counters = pmu.addresses()
        self.read_at: Readers = {**registers.core_registers(core, model), **shared}
        counters, self.write_at = pmu.registers()
        self.read_at |= registers.clocks(core, model, place.thread) | counters
        for reg in spec.missing:
            self.read_at.pop(reg, None)
            self.write_at.pop(reg, None)
        self.initial: dict[int, int] = {}
        self.table = cpuid.leaves(model, spec.kvm)

    def read(self, reg: int) -> int:
        """Returns the value of a register. Raises KeyError if the register does not exist."""
        if self.machine.spec.reads == "zero":
            return 0
        return self.read_at[reg](self.machine.now())

    def write(self, reg: int, value: int) -> None:
        time.sleep(self.machine.spec.write_s)
        t = self.machine.now()
        result = self._write(t, reg, value)
        self.machine.log.append(
            {"t": t / 1e9, "cpu": self.cpu, "reg": reg, "value": value, "result": result or "ok"}
        )
        if result in ("EPERM", "EIO"):
            raise OSError(getattr(errno, result), result)

    def _write(self, t: int, reg: int, value: int) -> str:
        policy = self.machine.spec.writes
        if policy == "eperm":
            return "EPERM"
        if policy == "drop" or self.machine.spec.reads == "zero":
            return "dropped"
        if reg not in self.write_at:
            return "EIO"
        if reg not in self.initial:
            self.initial[reg] = self.read_at[reg](t)
        try:
            self.write_at[reg](t, value)
        except RefusedError:
            return "EIO"
        return ""

    def poke(self, reg: int, value: int) -> None:
        """Sets a register like another program or the hardware, without an entry in the log."""
        t = self.machine.now()
        if reg in self.counters:
            self.counters[reg].write(t, value)
        elif reg in self.write_at:
            self.write_at[reg](t, value)
        else:
            self.read_at[reg] = lambda _: value

    def written_registers(self) -> dict[str, dict[str, int]]:
        t = self.machine.now()
        return {
            f"{reg:#x}": {"initial": value, "now": self.read_at[reg](t)}
            for reg, value in sorted(self.initial.items())
        }


class Machine:
    def __init__(self, spec: Spec, clock: Callable[[], int] | None = None) -> None:
        self.spec = spec
        self.model: Model = replace(MODELS[spec.model], **spec.override)
        self.threads = spec.threads or self.model.threads
        self.lock = threading.Lock()
        self.log: deque[dict[str, Any]] = deque(maxlen=LOG_LIMIT)
        self.now = clock or _raw
        total = spec.cores * spec.packages
        self.plans = spec.plans or [
            default_plan(i, self.threads, self.model.turbo_hz, 100_000_000) for i in range(total)
        ]
        self.cores = [Core(plan) for plan in self.plans]
        each = spec.cores
        packages = [Package(self.cores[i : i + each]) for i in range(0, total, each)]
        self.shared = [registers.package_registers(package, self.model) for package in packages]
        self.cpus = [Processor(self, cpu, self.place(cpu)) for cpu in range(total * self.threads)]
        for cpu, reg, value in spec.registers:
            self.cpus[cpu].poke(reg, value)

    def place(self, cpu: int) -> Place:
        """The place of a CPU in Linux numbering: the first threads of all cores, then the second
        threads."""
        each, total = self.spec.cores, self.spec.cores * self.spec.packages
        package, core = divmod(cpu % total, each)
        return Place(package, core, cpu // total, each)

    def cores_of(self, place: Place) -> tuple[Core, Readers]:
        return (
            self.cores[place.package * self.spec.cores + place.core],
            self.shared[place.package],
        )

    def siblings(self, core: int) -> list[int]:
        """The CPUs of a core, in order; the numbers of cores continue from package to package."""
        total = len(self.cores)
        return [core + total * thread for thread in range(self.threads)]

    def truth(self, t0: int, t1: int) -> dict[str, Any]:
        hz = self.model.tsc_hz
        return {
            "t0": t0 / 1e9,
            "t1": t1 / 1e9,
            "tsc_hz": hz,
            "tick_hz": self.model.tick_hz,
            "cores": [
                truth.window(core, self.siblings(i), t0, t1, hz)
                for i, core in enumerate(self.cores)
            ],
        }


def _raw() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
