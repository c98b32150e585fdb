"""Counters of a simulated machine. Those of CPUs are integrals of the schedule (see schedule.py) in
the units and widths of real hardware; users can choose some of them as events by -e. Packages have
energy, temperature, limit reasons, turbo ceilings and memory traffic; a simulated guest has the
counters, pressure and load averages of a guest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfprobe.cpu.model_tables import LIMITS_SKYLAKE
from perfprobe.cpu.model_terms import CORE_COUNTER_KEYS
from perfprobe.errors import Unavailable, UsageError
from perfprobe.perf import event_names
from perfprobe.perf.event_names import EventRequest
from perfprobe.polled.proc_counts import (
    LOAD_COUNTERS,
    LOAD_MINUTES,
    OWN_TIME,
    PRESSURE_COUNTERS,
    STAT_BLOCK,
    TOTAL_COUNTERS,
)
from perfprobe.sources.sim import machine as hw
from perfprobe.sources.sim.machine import Ints, SimMachine
from perfprobe.sources.sim.schedule import Row
from perfprobe.sources.sim.script import (
    CELL_NS,
    CELLS_PER_S,
    LIMIT_BITS,
    SLICE_NS,
    ScriptTables,
    approach_exponentially,
)
from perfprobe.wire import Block, Counter, Missing, Rows

STAT_NS = 10_000_000  # length in ns of a tick of /proc/stat
UPTIME_TICKS = 25_000_000
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class SimCounter:
    counter: Counter
    count: Callable[[Ints], Any]
    """Returns each CPU's ticks since the start, from integrals with axes (Row, CPU)."""
    first_value: int = 0
    """Initial value on CPU 0; each further CPU starts `step_per_cpu` higher."""
    step_per_cpu: int = 1000


def crystal_ticks(ns: Ints) -> Ints:
    """Returns the number of crystal ticks in `ns`; reference clocks advance only at these ticks."""
    return ns // hw.TICK_NS


def cpu_columns(machine: SimMachine, *, license_events: bool, slots: bool) -> list[SimCounter]:
    """Returns the counters of CPUs, with those of SIMD levels (`license_events`) and those of issue
    slots (`slots`), which only cores with two threads have."""
    if machine.guest:
        return GUEST_COLUMNS
    bits, smt = 40 if machine.smt > 2 else 48, []
    if key := machine.smt_key:
        cpus = machine.p_cpus if machine.is_hybrid else None
        name = f"{key.replace('_', ' ')} active"
        counter = Counter(key, name, "1", "sim", bits=bits, cpus=cpus)
        smt = [SimCounter(counter, lambda t: crystal_ticks(t[Row.SMT]), 2**bits - 60_000_000)]
    columns = [
        sim_counter(
            "ref", "reference cycles", "cycles",
            lambda t: crystal_ticks(t[Row.RUN]) * hw.TICK_TSC, 6.3e9, bits=bits, step=hw.TICK_TSC,
        ),
        *(
            sim_counter(row.name.lower(), name, unit, _thousandth(row), before_wrap, bits=bits)
            for name, unit, row, before_wrap in (
                ("core cycles", "cycles", Row.CYCLES, 5e9),
                ("instructions", "instructions", Row.INSTRUCTIONS, 3e9),
                ("kernel cycles", "cycles", Row.KERNEL_CYCLES, 5e7),
                ("kernel instructions", "instructions", Row.KERNEL_INSTRUCTIONS, 2e7),
            )
        ),
        *smt,
        sim_counter("aperf", "APERF", "cycles", _thousandth(Row.CYCLES)),
        # MPERF has the TSC's rate, but does not advance in steps of the crystal.
        sim_counter("mperf", "MPERF", "cycles", lambda t: hw.tsc(t[Row.RUN])),
        sim_counter("smi", "SMIs", "1", lambda t: t[Row.SMI], bits=32),
        sim_counter("idle_s", "idle states", "s", _thousandth(Row.IDLE), scale=1e-6),
        sim_counter("poll_s", "idle polling", "s", _thousandth(Row.POLL), scale=1e-6),
        sim_counter("idle_entries", "idle entries", "1", lambda t: t[Row.ENTRIES]),
    ]  # fmt: skip
    if license_events:
        columns += [
            sim_counter("license_1", "license 1 cycles", "cycles", _thousandth(Row.LICENSE_1)),
            sim_counter("license_2", "license 2 cycles", "cycles", _thousandth(Row.LICENSE_2)),
        ]
    if machine.is_hybrid:
        kinds = [machine.row(cpu).type or "P" for cpu in range(machine.cpus)]
        hz = np.array([hw.BASE_MHZ[kind] * 1_000_000 for kind in kinds], np.int64)
        counter = Counter("base_hz", "base clock", "Hz", "cpufreq", kind="gauge")
        columns.append(SimCounter(counter, lambda _: hz, step_per_cpu=0))
    return columns + (slot_columns() if slots and machine.smt == 2 else [])


def sim_counter(
    key: str, name: str, unit: str, count: Callable[[Ints], Any], before_wrap: float = 0,
    *, bits: int = 64, scale: float = 1.0, step: int = 1000,
) -> SimCounter:  # fmt: skip
    """Returns a counter that starts `before_wrap` ticks before it wraps; 0: it starts at zero."""
    first = 2**bits - int(before_wrap) if before_wrap else 0
    return SimCounter(Counter(key, name, unit, "sim", bits=bits, scale=scale), count, first, step)


def _thousandth(row: Row) -> Callable[[Ints], Any]:
    """Returns a function from integrals to one row of them, divided by 1000, because they are in
    thousandths of cycles and instructions, or in ns."""
    return lambda t: t[row] // 1000


def stat_columns() -> list[SimCounter]:
    """Returns the counters of the "stat" block; interrupts have a fixed share of kernel time."""

    def ticks(ns: Ints) -> Ints:
        return ns // STAT_NS

    system, iowait = _thousandth(Row.SYSTEM), _thousandth(Row.IOWAIT)
    count_functions: tuple[Callable[[Ints], Any], ...] = (  # in the order of STAT_FIELDS
        lambda t: ticks(t[Row.BUSY] - system(t)),
        lambda t: 0 * t[Row.BUSY],
        lambda t: ticks(system(t) - system(t) // 8 - system(t) // 32),
        lambda t: ticks(t[Row.IDLE] + t[Row.POLL] - iowait(t)),
        lambda t: ticks(iowait(t)),
        lambda t: ticks(system(t) // 32),
        lambda t: ticks(system(t) // 8),
        lambda t: ticks(t[Row.STEAL]),
    )
    return [
        SimCounter(counter, count, UPTIME_TICKS if counter.key == "stat_idle_s" else 0)
        for counter, count in zip(STAT_BLOCK.counters, count_functions, strict=True)
    ]


# --- issue slots ----------------------------------------------------------------------------------

SLOTS_PER_CYCLE = 4
SIBLING_SLOTS_PERCENT = 30
"""Share of slots that the sibling gets while it runs, in per cent of a clock at the TSC's rate."""


def slot_columns() -> list[SimCounter]:
    """Returns the counters of issue slots. They are fixed shares of the CPUs' work, so the true
    counts are known: an instruction needs one slot; of the other slots a tenth is lost in the front
    end, a twentieth to bad speculation, and the rest in the back end."""
    rate = hw.TSC_HZ // 100_000_000
    count_functions: dict[str, Callable[[Ints], Any]] = {
        "slots": lambda t: SLOTS_PER_CYCLE * t[Row.CYCLES] // 1000,
        "topdown_retiring": lambda t: t[Row.INSTRUCTIONS] // 1000,
        "topdown_bad_speculation": lambda t: _empty_slots(t) // 20_000,
        "topdown_frontend": lambda t: _empty_slots(t) // 10_000,
        "topdown_backend": lambda t: _empty_slots(t) * 17 // 20_000,
    }
    contention = Counter("smt_contention", "slots given to the sibling", "cycles", "sim")
    return [
        *(
            SimCounter(Counter(key, key.replace("_", " "), "events", "sim"), count)
            for key, count in count_functions.items()
        ),
        SimCounter(
            contention,
            lambda t: (t[Row.RUN] - t[Row.SMT]) * rate // 10 * SIBLING_SLOTS_PERCENT // 100,
        ),
    ]


def _empty_slots(t: Ints) -> Ints:
    """Returns the number of issue slots without an instruction, times 1000."""
    return np.asarray(SLOTS_PER_CYCLE * t[Row.CYCLES] - t[Row.INSTRUCTIONS])


# --- all CPUs -------------------------------------------------------------------------------------


class CounterTable:
    """A block of counters with a row for each CPU."""

    def __init__(self, name: str, columns: list[SimCounter], cpus: int) -> None:
        self.block = Block(name, "cpu", [column.counter for column in columns])
        self._columns = columns
        number = np.arange(cpus, dtype=np.uint64)
        self._first = np.stack(
            [np.uint64(c.first_value) + number * np.uint64(c.step_per_cpu) for c in columns], axis=1
        )
        masks = [2**c.counter.bits - 1 for c in columns]  # the masks make counters wrap
        self._mask = np.array(masks, np.uint64)
        self._valid = np.full(cpus, 2 ** len(columns) - 1, np.uint64)
        for i, column in enumerate(columns):
            if column.counter.cpus is not None:
                lacks_counter = np.ones(cpus, np.bool_)
                lacks_counter[column.counter.cpus] = False
                self._valid[lacks_counter] &= np.uint64(2**64 - 1 - 2**i)

    def restart(self, cpus: NDArray[np.bool_]) -> None:
        """Sets the counters of these CPUs to zero."""
        self._first[cpus] = 0

    def rows(self, head: bytes, is_sampled: NDArray[np.bool_], totals: Ints) -> Rows:
        """Returns the rows of a frame; only those of the CPUs in `is_sampled` are valid."""
        counts = np.empty((totals.shape[1], len(self._columns)), np.int64)
        for i, column in enumerate(self._columns):
            counts[:, i] = column.count(totals)
        values = (counts.view(np.uint64) + self._first) & self._mask
        valid = np.where(is_sampled, self._valid, np.uint64(0))
        return Rows(head, valid.tobytes(), values.tobytes())


# --- events that the user chooses with -e ---------------------------------------------------------
# Each event is a fixed share of the CPUs' work, so that its true count over any span is known.

FREE_COUNTERS = 3
"""Number of a core's counters that are free for chosen events; if there are more events, they take
turns."""
_KERNEL = {Row.CYCLES: Row.KERNEL_CYCLES, Row.INSTRUCTIONS: Row.KERNEL_INSTRUCTIONS}


@dataclass(frozen=True, slots=True)
class SimEvent:
    """An event that can be chosen; its count is the integral `row` x `multiplier` / `divisor`.
    Integrals of cycles and instructions are times 1000."""

    name: str
    description: str
    row: Row
    multiplier: int = 1
    divisor: int = 1000
    unit: str = "events"
    hardware: bool = True

    def count(self, totals: Ints, *, user: bool, kernel: bool) -> Ints:
        """Returns the count of each CPU from integrals (axes Row, CPU), in one ring or in both.
        Only cycles and instructions are counted by ring; other counts are all the kernel's."""
        all_totals, kernel_totals = totals[self.row], totals[_KERNEL.get(self.row, self.row)]
        ring = kernel_totals if kernel else all_totals - kernel_totals if user else all_totals
        return np.asarray(ring * self.multiplier // self.divisor)


EVENTS = (
    SimEvent("context-switches", "context switches", Row.ENTRIES, 2, 1, "1", hardware=False),
    SimEvent("cpu-migrations", "tasks that came from another CPU", Row.ENTRIES, 1, 40, "1",
             hardware=False),
    SimEvent("page-faults", "page faults", Row.INSTRUCTIONS, 1, 400_000_000, "1", hardware=False),
    SimEvent("cycles", "cycles, unhalted", Row.CYCLES, unit="cycles"),
    SimEvent("instructions", "instructions retired", Row.INSTRUCTIONS, unit="instructions"),
    SimEvent("branches", "branches retired", Row.INSTRUCTIONS, 1, 5_000),
    SimEvent("branch-misses", "branches predicted wrongly", Row.INSTRUCTIONS, 1, 400_000),
    SimEvent("cache-references", "accesses to the last-level cache", Row.INSTRUCTIONS, 1, 50_000),
    SimEvent("cache-misses", "misses of the last-level cache", Row.MISSES, 1, 800_000),
    SimEvent("dTLB-load-misses", "dTLB: loads that missed", Row.INSTRUCTIONS, 1, 2_000_000),
    SimEvent("stalled-cycles-backend", "cycles that waited for data", Row.CYCLES, 3, 8_000),
)  # fmt: skip
_BY_NAME = {event.name: event for event in EVENTS}


def chosen_tables(
    text: str | None, cpus: int, *, multiplex: bool, guest: bool
) -> tuple[list[CounterTable], list[Missing]]:
    """Returns the events that the user has chosen, a table for each group, and those that cannot be
    counted. `text` is the argument of -e, if given. Raises ValueError for unknown names, and
    Unavailable if no event can be counted."""
    groups = [] if text is None else event_names.parse_groups(text)
    pairs = [(request, _find_event(request)) for group in groups for request in group]
    hardware = [pair for pair in pairs if pair[1].hardware]
    software = [pair for pair in pairs if not pair[1].hardware]
    reason = "the hypervisor exposes no PMU"
    if guest and hardware and not software:
        raise Unavailable(f"-e {hardware[0][0].name}: {reason}")
    takes_turns = len(hardware) > FREE_COUNTERS
    if takes_turns and not multiplex:
        raise Unavailable(
            f"-e {hardware[FREE_COUNTERS][0].name}: no counter is left for it; without "
            "--no-multiplex the events take turns"
        )
    columns = [_columns(software, 1, 1)] if software else []
    if takes_turns and not guest:
        columns += [_columns([pair], FREE_COUNTERS, len(hardware)) for pair in hardware]
    elif hardware and not guest:
        columns.append(_columns(hardware, 1, 1))
    missing = [Missing(request.key, reason) for request, _ in hardware] if guest else []
    return [CounterTable(f"events.{i}", own, cpus) for i, own in enumerate(columns, 1)], missing


def _columns(
    group: Sequence[tuple[EventRequest, SimEvent]], counted_turns: int, all_turns: int
) -> list[SimCounter]:
    """Returns a group's counters, the times first. The group is counted for the share
    `counted_turns / all_turns` of the time."""

    def tick_counter(request: EventRequest, event: SimEvent) -> Any:
        counted = {"user": request.user_only, "kernel": request.kernel_only}
        return lambda t: event.count(t, **counted) * counted_turns // all_turns

    return [
        SimCounter(Counter("perf_enabled_s", "time to count", "s", "perf sim", scale=1e-9),
                   lambda t: t[Row.ONLINE]),
        SimCounter(Counter("perf_running_s", "time counted", "s", "perf sim", scale=1e-9),
                   lambda t: t[Row.ONLINE] * counted_turns // all_turns),
        *(
            SimCounter(Counter(request.key, event.description, event.unit, "perf sim"),
                       tick_counter(request, event), step_per_cpu=7)
            for request, event in group
        ),
    ]  # fmt: skip


def _find_event(request: EventRequest) -> SimEvent:
    if request.pmu or request.catalogue_name not in _BY_NAME:
        similar = event_names.nearest_names(request.catalogue_name, _BY_NAME) or [*_BY_NAME][:3]
        raise UsageError(
            f"-e {request.name}: a simulated machine does not have it; try {', '.join(similar)}"
        )
    return _BY_NAME[request.catalogue_name]


# --- blocks of packages and of the machine --------------------------------------------------------

SAMPLE_POLLS = 10  # polls of the limit reasons in each sample
ENERGY_BITS = 32
INITIAL_ENERGY = 2**ENERGY_BITS - 100_000  # the counter wraps after 6 J
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
    for direction in ("read", "write"):
        key, name = f"memory_{direction}_bytes", f"memory {direction}"
        counters.append(Counter(key, name, "B", "sim IMC", bits=TRAFFIC_BITS, scale=LINE_BYTES))
    return Block("package", "package", counters)


class PackageCounters:
    def __init__(self, machine: SimMachine, tables: ScriptTables) -> None:
        self._machine = machine
        self._tables = tables
        self._energies_nj = tables.integrals(tables.mw, 1000)
        self._polls = 0
        self._set_polls = np.zeros((machine.packages, LIMIT_BITS), np.int64)
        self.block = package_block(machine)
        cores = np.arange(machine.cpus) % machine.cores
        self._package_of_core = cores // machine.package_cores

    def values(self, time_ns: int, sample_ns: int, totals: Ints) -> Words:
        if time_ns >= sample_ns:
            # The polls since the previous sample. The script gives the number of polls, of ten, in
            # which a bit is set.
            times = time_ns - sample_ns + np.arange(SAMPLE_POLLS) * sample_ns // SAMPLE_POLLS
            shares = self._tables.limits[self._tables.stage_numbers(times // CELL_NS)]
            poll_turns = (self._polls + np.arange(SAMPLE_POLLS)) * 7 % 10
            self._set_polls += (poll_turns[:, None, None] < shares).sum(axis=0)
            self._polls += SAMPLE_POLLS
        tables, stage = self._tables, self._tables.stages.index(time_ns)
        stage_s = tables.stages.since_start(time_ns) // CELL_NS / CELLS_PER_S
        rows = np.empty((self._machine.packages, self.block.columns), np.int64)
        # Converts nJ to units of 2^-14 J.
        energies = [energy_nj(time_ns) * 32 // 1_953_125 for energy_nj in self._energies_nj]
        rows[:, 0] = (INITIAL_ENERGY + np.array(energies)) & (2**ENERGY_BITS - 1)
        rows[:, 1] = approach_exponentially(tables.first_c[stage], tables.target_c[stage], stage_s)
        rows[:, 2] = self._polls
        rows[:, 3 : 3 + LIMIT_BITS] = self._set_polls
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
TIMER_NS = 4_000_000  # ns between the timer interrupts of a busy CPU
_NO_PMU = "no core PMU in this guest (KVM): the hypervisor does not expose one"
_NO_CLOCK = "no cpufreq driver (usual in a guest): no clock from the system"
GUEST_MISSING = [
    *(
        Missing(key, _NO_PMU, "ask for a vPMU, or use a metal instance")
        for key in CORE_COUNTER_KEYS
    ),
    *(Missing(key, _NO_CLOCK) for key in ("cpufreq_hz", "max_hz")),
]
GUEST_COLUMNS = [
    sim_counter("busy_s", "not idle", "s", lambda t: t[Row.RUN] + t[Row.STEAL], scale=1e-9),
    sim_counter("idle_s", "idle states", "s", lambda t: t[Row.IDLE] // 1000, scale=1e-6),
]
"""The counters of a guest's CPUs: idle time, and busy time with stolen time."""


class MachineCounters:
    """The CPU time of the probe; for a guest, also the pressure, the load averages (mean numbers of
    tasks that ran or waited for a CPU), interrupts and context switches."""

    def __init__(self, machine: SimMachine, tables: ScriptTables) -> None:
        self._guest = machine.guest
        guest = [*PRESSURE_COUNTERS, *LOAD_COUNTERS, *TOTAL_COUNTERS] if machine.guest else []
        self.block = Block("machine", "machine", [OWN_TIME, *guest])
        self._stalls_us = tables.integrals(tables.pressure, 1_000_000)
        duties = tables.slot["duty"] / 1000
        self._demand = [
            sum(
                duty * sum(member.part + member.wait for member in members) / 1000
                for duty, members in zip(duty_by_cpu.tolist(), tasks, strict=True)
            )
            for duty_by_cpu, tasks in zip(duties, tables.tasks, strict=True)
        ]
        self._seconds = 0.0
        self._load = [self._demand[0]] * len(LOAD_MINUTES)

    def values(self, time_ns: int, stage: int, totals: Ints) -> Words:
        """Returns the values at a time; successive times must not decrease."""
        values = [time.process_time_ns()]
        if self._guest:
            elapsed_s, self._seconds = time_ns / 1e9 - self._seconds, time_ns / 1e9
            for i, minutes in enumerate(LOAD_MINUTES):
                distance = self._demand[stage] - self._load[i]
                self._load[i] += distance * -math.expm1(-elapsed_s / (60 * minutes))
            values += [stall_us(time_ns) for stall_us in self._stalls_us]
            values += [round(100 * load) for load in self._load]
            # Timer interrupts and task switches of busy CPUs, and wake-ups from idle.
            busy_ns, entries = int(totals[Row.BUSY].sum()), int(totals[Row.ENTRIES].sum())
            values += [busy_ns // TIMER_NS + entries, busy_ns // SLICE_NS + 2 * entries]
        return np.array([values], np.uint64)
