"""Simulated blocks of packages (energy, temperature, limit reasons, turbo ceilings, memory traffic)
and of the machine, and the counters, pressure and load averages of a simulated guest."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from perfprobe.cpu.model_tables import LIMITS_SKYLAKE
from perfprobe.cpu.model_terms import CORE_COUNTER_KEYS
from perfprobe.polled.proc_counts import (
    LOAD_COUNTERS,
    LOAD_MINUTES,
    OWN_TIME,
    PRESSURE_COUNTERS,
    TOTAL_COUNTERS,
)
from perfprobe.sources.sim import machine as hw
from perfprobe.sources.sim.counters import SimCounter, Words, sim_counter
from perfprobe.sources.sim.machine import Ints, SimMachine
from perfprobe.sources.sim.schedule import Row
from perfprobe.sources.sim.script import (
    CELL_NS,
    CELLS_PER_S,
    LIMIT_BITS,
    Tables,
    approach_exponentially,
)
from perfprobe.wire import Block, Counter, Hello, Identity, Missing

POLLS = 10  # polls of the limit reasons in each sample
ENERGY_BITS = 32
ENERGY_FIRST = 2**ENERGY_BITS - 100_000  # the counter wraps after 6 J
LINE_BYTES = 64  # bytes of a cache line, the unit of the controllers' counts
TRAFFIC_BITS = 48
TRAFFIC_FIRST = 2**TRAFFIC_BITS - 50_000_000  # the counter wraps after 3 GB
LINES_PER_WRITE = 4  # one line in this many is a write, the others are reads


def package_block(machine: SimMachine) -> Block:
    reasons = list(LIMITS_SKYLAKE.bit_names)
    p_cpus = machine.p_cpus if machine.is_hybrid else None
    counters = [
        Counter("energy_j", "energy", "J", "sim RAPL", bits=ENERGY_BITS, scale=2.0**-14),
        Counter("temperature_c", "temperature", "°C", "sim", "gauge"),
        Counter("limit_reasons", "limit reasons", "1", "sim 0x64F", "flags",
                columns=1 + LIMIT_BITS, parts=reasons),
        Counter("ceiling_hz", "turbo ceiling", "Hz", "turbo table", "gauge", cpus=p_cpus),
        Counter("power_limit_w", "power limit", "W", "RAPL PL1", "gauge", scale=0.001),
    ]  # fmt: skip
    if machine.is_hybrid:
        e_cpus = list(range(machine.p_cores, machine.cores))
        counters.append(
            Counter("e_ceiling_hz", "E-core ceiling", "Hz", "turbo table", "gauge", cpus=e_cpus)
        )
    dram = Counter("energy_ram_j", "energy of the memory", "J", "sim RAPL", bits=32, scale=2.0**-14)
    counters.append(dram)
    for what in ("read", "write"):
        key, name = f"memory_{what}_bytes", f"memory {what}"
        counters.append(Counter(key, name, "B", "sim IMC", bits=TRAFFIC_BITS, scale=LINE_BYTES))
    return Block("package", "package", counters)


class PackageCounters:
    def __init__(self, machine: SimMachine, tables: Tables) -> None:
        self._machine = machine
        self._tables = tables
        self._energies_nj = tables.integrals(tables.mw, 1000)
        self._polls = 0
        self._seen = np.zeros((machine.packages, LIMIT_BITS), np.int64)
        self._columns = package_block(machine).columns
        cores = np.arange(machine.cpus) % machine.cores
        self._package_of_core = cores // machine.package_cores

    def values(self, time_ns: int, sample_ns: int, totals: Ints) -> Words:
        if time_ns >= sample_ns:
            # The polls since the previous sample. The script gives the number of polls, of ten, in
            # which a bit is set.
            times = time_ns - sample_ns + np.arange(POLLS) * sample_ns // POLLS
            shares = self._tables.limits[self._tables.stage_of(times // CELL_NS)]
            poll_turns = (self._polls + np.arange(POLLS)) * 7 % 10
            self._seen += (poll_turns[:, None, None] < shares).sum(axis=0)
            self._polls += POLLS
        tables, stage = self._tables, self._tables.stages.index(time_ns)
        stage_s = tables.stages.since_start(time_ns) // CELL_NS / CELLS_PER_S
        rows = np.empty((self._machine.packages, self._columns), np.int64)
        # Converts nJ to units of 2^-14 J.
        energies = [energy_nj(time_ns) * 32 // 1_953_125 for energy_nj in self._energies_nj]
        rows[:, 0] = (ENERGY_FIRST + np.array(energies)) & (2**ENERGY_BITS - 1)
        rows[:, 1] = approach_exponentially(tables.first_c[stage], tables.target_c[stage], stage_s)
        rows[:, 2] = self._polls
        rows[:, 3 : 3 + LIMIT_BITS] = self._seen
        rows[:, 3 + LIMIT_BITS] = tables.ceiling_mhz[stage] * 1_000_000
        rows[:, 4 + LIMIT_BITS] = hw.PL1_MW
        if self._machine.is_hybrid:
            rows[:, 5 + LIMIT_BITS] = hw.TURBO_E_MHZ * 1_000_000
        traffic = np.zeros(self._machine.packages, np.int64)  # traffic in bytes by package
        np.add.at(traffic, self._package_of_core, totals[Row.TRAFFIC] // 1000)
        lines, written = traffic // LINE_BYTES, traffic // (LINE_BYTES * LINES_PER_WRITE)
        dram_nj = 3 * time_ns + lines * (LINE_BYTES // 2)  # 3 W, and 0.5 nJ a byte
        rows[:, -3] = (dram_nj * 32 // 1_953_125) & (2**32 - 1)
        rows[:, -2] = (TRAFFIC_FIRST + lines - written) & (2**TRAFFIC_BITS - 1)
        rows[:, -1] = (TRAFFIC_FIRST + written) & (2**TRAFFIC_BITS - 1)
        return rows.view(np.uint64)


# --- guest ----------------------------------------------------------------------------------------
# The scenario "guest" is a KVM guest whose hypervisor exposes no PMU.

HOST = "vm-build-3"
TICK_NS, SLICE_NS = 4_000_000, 3_000_000
"""Time in ns between timer interrupts, and between task switches, of a busy CPU."""
_NO_PMU = "no core PMU in this guest (KVM): the hypervisor does not expose one"
_NO_CLOCK = "no cpufreq driver (usual in a guest): no clock from the system"


def guest_columns() -> list[SimCounter]:
    """Returns the counters of a guest's CPUs: idle time, and busy time with stolen time."""
    return [
        sim_counter("busy_s", "not idle", "s", lambda t: t[Row.RUN] + t[Row.STEAL], scale=1e-9),
        sim_counter("idle_s", "idle states", "s", lambda t: t[Row.IDLE] // 1000, scale=1e-6),
    ]


def guest_hello(hello: Hello) -> Hello:
    fix = "ask for a vPMU, or use a metal instance"
    return replace(
        hello,
        host=HOST,
        virtualisation="KVM",
        identity=Identity("GenuineIntel", 6, 0x8F, 8, "Intel Xeon Processor (sim)", "0x1"),
        base_hz=None,
        missing=[
            *(Missing(key, _NO_PMU, fix) for key in CORE_COUNTER_KEYS),
            *(Missing(key, _NO_CLOCK) for key in ("cpufreq_hz", "max_hz")),
        ],
    )


def machine_block() -> Block:
    counters = [OWN_TIME, *PRESSURE_COUNTERS, *LOAD_COUNTERS, *TOTAL_COUNTERS]
    return Block("machine", "machine", counters)


class LoadAverages:
    """The load averages of a guest: mean numbers of tasks that ran or waited for a CPU."""

    def __init__(self, tables: Tables) -> None:
        duties = tables.slot["duty"] / 1000
        self._demand = [
            sum(
                duty * sum(member.part + member.wait for member in members) / 1000
                for duty, members in zip(duty_by_cpu.tolist(), tasks, strict=True)
            )
            for duty_by_cpu, tasks in zip(duties, tables.tasks, strict=True)
        ]
        self._seconds = 0.0
        self._means = [self._demand[0]] * len(LOAD_MINUTES)

    def values_at(self, seconds: float, stage: int) -> Words:
        """Returns the load averages in hundredths. Successive times must not decrease."""
        elapsed_s, self._seconds = seconds - self._seconds, seconds
        for i, minutes in enumerate(LOAD_MINUTES):
            distance = self._demand[stage] - self._means[i]
            self._means[i] += distance * -math.expm1(-elapsed_s / (60 * minutes))
        return np.array([round(100 * mean) for mean in self._means], np.uint64)


def interrupt_totals(sums: Ints) -> Words:
    """Returns the numbers of interrupts and context switches so far, from the integrals of all
    CPUs: timer interrupts and task switches of busy CPUs, and wake-ups from idle."""
    busy_ns, entries = int(sums[Row.BUSY].sum()), int(sums[Row.ENTRIES].sum())
    return np.array([busy_ns // TICK_NS + entries, busy_ns // SLICE_NS + 2 * entries], np.uint64)
