"""A KVM guest whose hypervisor exposes no PMU: what it can count, and what it says of the rest."""

from __future__ import annotations

import math

import numpy as np

from perfprobe.frozen import replace
from perfprobe.sources.sim.cells import Row
from perfprobe.sources.sim.counters import SimCounter, Words, sim_counter
from perfprobe.sources.sim.machine import Ints
from perfprobe.sources.sim.script import Tables
from perfprobe.wire import Block, Counter, Hello, Identity, Missing

HOST = "vm-build-3"
PRESSURE = ("cpu", "memory", "io")
LOADS = (1, 5, 15)
"""Minutes of the load averages."""
TICK_NS, SLICE_NS = 4_000_000, 3_000_000
"""How often a busy CPU is interrupted, and switches to another task."""
_NO_PMU = "no core PMU in this guest (KVM): the hypervisor does not expose one"
_NO_CLOCK = "no cpufreq driver (usual in a guest): no clock from the system"


def columns() -> list[SimCounter]:
    """Idle transitions as the kernel traces them: a CPU that was robbed was not idle."""
    return [
        sim_counter("busy_s", "not idle", "s", lambda t: t[Row.RUN] + t[Row.STEAL], scale=1e-9),
        sim_counter("idle_s", "idle states", "s", lambda t: t[Row.IDLE] // 1000, scale=1e-6),
    ]


def introduced(hello: Hello) -> Hello:
    """The hello of a machine like this one, as a guest."""
    counted = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")
    fix = "ask for a vPMU, or use a metal instance"
    return replace(
        hello,
        host=HOST,
        virtualisation="KVM",
        identity=Identity("GenuineIntel", 6, 0x8F, 8, "Intel Xeon Processor (sim)", "0x1"),
        base_hz=None,
        missing=[
            *(Missing(key, _NO_PMU, fix) for key in counted),
            *(Missing(key, _NO_CLOCK) for key in ("cpufreq_hz", "max_hz")),
        ],
    )


def machine_block() -> Block:
    own = Counter("probe_cpu_s", "CPU time of the probe", "s", "getrusage", scale=1e-9)
    pressure = [
        Counter(f"pressure_{what}_s", f"some task waited: {what}", "s", "/proc/pressure",
                scale=1e-6)
        for what in PRESSURE
    ]  # fmt: skip
    loads = [
        Counter(f"load_{minutes}", f"load average of {minutes} min", "1", "/proc/loadavg",
                "gauge", scale=0.01)
        for minutes in LOADS
    ]  # fmt: skip
    totals = [Counter(key, key, "1", "/proc/stat") for key in ("interrupts", "context_switches")]
    return Block("machine", "machine", [own, *pressure, *loads, *totals])


class Load:
    """Load averages: how many tasks ran or waited for a CPU, fading away with time."""

    def __init__(self, tables: Tables) -> None:
        duties = tables.slot["duty"] / 1000
        self._wanting = [
            sum(
                duty * sum(member.part + member.wait for member in crew) / 1000
                for duty, crew in zip(duty_by_cpu.tolist(), crews, strict=True)
            )
            for duty_by_cpu, crews in zip(duties, tables.crews, strict=True)
        ]
        self._seconds = 0.0
        self._means = [self._wanting[0]] * len(LOADS)

    def at(self, seconds: float, stage: int) -> Words:
        """In hundredths; calls go forward in time."""
        passed, self._seconds = seconds - self._seconds, seconds
        for i, minutes in enumerate(LOADS):
            far = self._wanting[stage] - self._means[i]
            self._means[i] += far * -math.expm1(-passed / (60 * minutes))
        return np.array([round(100 * mean) for mean in self._means], np.uint64)


def totals(sums: Ints) -> Words:
    """Interrupts and context switches so far, from the integrals of all CPUs: a tick on each busy
    CPU, and what woke up a CPU or put it to sleep."""
    busy_ns, entries = int(sums[Row.BUSY].sum()), int(sums[Row.ENTRIES].sum())
    return np.array([busy_ns // TICK_NS + entries, busy_ns // SLICE_NS + 2 * entries], np.uint64)
