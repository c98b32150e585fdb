"""A KVM guest whose hypervisor exposes no PMU: what it can count, and what it says of the rest."""

from __future__ import annotations

import dataclasses

import numpy as np

from perfprobe.sources.sim.cells import Row
from perfprobe.sources.sim.counters import SimCounter, Words, sim_counter
from perfprobe.sources.sim.script import CELL_NS, Tables
from perfprobe.wire import Block, Counter, Hello, Identity, Missing

HOST = "vm-build-3"
PRESSURE = ("cpu", "memory", "io")
_NO_PMU = "no core PMU in this guest (KVM): the hypervisor does not expose one"
_NO_CLOCK = "no cpufreq driver (usual in a guest): no clock from the system"


def columns() -> list[SimCounter]:
    """Idle transitions as the kernel traces them: a CPU that was robbed was not idle."""
    return [
        sim_counter("busy_s", "not idle", "s", lambda t: t[Row.RUN] + t[Row.STEAL], 0, scale=1e-9),
        sim_counter("idle_s", "idle states", "s", lambda t: t[Row.IDLE] // 1000, 0, scale=1e-6),
    ]


def introduced(hello: Hello) -> Hello:
    """The hello of a machine like this one, as a guest."""
    counted = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")
    fix = "ask for a vPMU, or use a metal instance"
    return dataclasses.replace(
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
    return Block("machine", "machine", [own, *pressure])


class Pressure:
    """For how long some task had to wait since the start, by what it waited for."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._begins = np.concatenate(([0], tables.ends[:-1])) * CELL_NS
        lengths = tables.ends * CELL_NS - self._begins
        waited = tables.pressure * (lengths // 1_000_000)[:, None]
        self._before = np.cumsum(waited, axis=0) - waited
        self._cycle = waited.sum(axis=0)

    def us(self, time_ns: int) -> Words:
        """Per mille of time are microseconds in a millisecond, so these sums are exact."""
        turn, within_ns = divmod(time_ns, self._tables.cycle * CELL_NS)
        stage = int(self._tables.stage_of(np.array([within_ns // CELL_NS]))[0])
        into_ns = within_ns - int(self._begins[stage])
        inside = self._tables.pressure[stage] * into_ns // 1_000_000
        return np.asarray(turn * self._cycle + self._before[stage] + inside, np.uint64)
