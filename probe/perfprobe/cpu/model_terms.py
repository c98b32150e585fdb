"""Types with which `model_tables` describes CPU models: events, counters and MSRs (by address)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

CountedClock = Literal["core", "tsc", "crystal", "xclk", "unknown"]
"""Clock that an event counts: core cycles, the TSC, the core crystal or the 100 MHz bus clock;
"unknown" if sources disagree or give none."""
METHOD_EVENTS = {
    "one-thread": "one_thread",
    "any-thread": "any_thread",
    "distributed": "distributed",
}
"""Key of the event that each SMT method needs."""

CORE_COUNTER_KEYS = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")
"""Core counters that hello reports as missing if the source cannot count them."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that a counter of a core can count, as selected by code and umask."""

    code: int
    unit_mask: int = 0
    counted_clock: CountedClock = "core"
    any_thread: bool = False
    """Whether the event counts for both threads of the core."""
    fixed_counter: int | None = None
    """Number of the fixed counter that can count the event; if the code is 0, no other can."""

    @property
    def config(self) -> int:
        """The event as in perf's raw config and in PERFEVTSEL, without ring and enable bits."""
        low, high = self.code & 0xFF, self.code >> 8
        return low | self.unit_mask << 8 | self.any_thread << 21 | high << 32


@dataclass(frozen=True, slots=True)
class CounterBudget:
    """The counters that one thread has while SMT is on, and their widths in bits."""

    general_count: int
    fixed_count: int
    general_bits: int
    fixed_bits: int
    microcode_mask: int = 0
    """Bit n is set if general counter n must not be used, because microcode uses it."""


@dataclass(frozen=True, slots=True)
class TurboRegisters:
    """MSRs with turbo ratios (clock / bus clock), in one of three layouts.

    per-count: byte i of `ratio_msrs` is the ratio with i+1 active cores; 0 marks no entry.
    groups: byte i of `ratio_msrs` applies up to byte i of `count_msr` active cores.
    knl: one register. Bucket 1 has its cores in [7:1] and its ratio in [15:8]. Each further bucket
    has one byte: a 5-bit core delta and a 3-bit ratio delta.
    """

    layout: Literal["per-count", "groups", "knl"]
    ratio_msrs: tuple[int, ...]
    count_msr: int | None = None
    cores_per_count: int = 1
    """Cores in each unit of `count_msr`: 4 if it counts modules of four cores."""


@dataclass(frozen=True, slots=True)
class Residency:
    """The MSR that counts the time in an idle state of a core or package."""

    name: str
    scope: Literal["core", "package"]
    msr: int


@dataclass(frozen=True, slots=True)
class LimitRegister:
    """The MSR with the limit reasons of a package. Bit i is the current state of `bit_names[i]`.
    Bit i+16 is its sticky log, which perfprobe never clears."""

    msr: int
    bit_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ThermalRegisters:
    """MSRs of the thermal status of a core and of a package."""

    core_msr: int
    package_msr: int | None
    tjmax_msr: int | None
    """The MSR with TjMax in bits 23:16; bits 22:16 of the thermal status are degrees below it."""
    status_bits: tuple[tuple[int, str, str], ...]
    """Number, name and CPUID feature of each status bit. The next higher bit is its sticky log."""


@dataclass(frozen=True, slots=True)
class RaplRegisters:
    """MSRs of RAPL: units, package energy, power limits and throttled time; None: not present."""

    unit_msr: int
    energy_msr: int | None = None
    limits_msr: int | None = None
    throttled_msr: int | None = None


@dataclass(frozen=True, slots=True)
class CounterRegisters:
    """MSRs of the general counters. Counter n is programmed at `first_select + address_step*n` and
    read at `first_counter + address_step*n`. `enable_msr` enables all counters."""

    first_select: int
    first_counter: int
    address_step: int
    enable_msr: int | None


@dataclass(frozen=True, slots=True)
class ClockRegisters:
    """The MSRs MPERF and APERF, which count reference and core cycles of a busy CPU."""

    mperf: int
    aperf: int
    unit_shift: int = 0
    """MPERF and APERF count in units of 2**shift cycles."""


@dataclass(frozen=True, slots=True)
class Uarch:
    """A CPU microarchitecture, or the part of it that one CPU has."""

    name: str
    vendor: str
    threads_per_core: int | None
    """Threads of a core by design; None if unknown."""
    smt_methods: tuple[str, ...]
    """Methods of measuring the SMT states, best first."""
    events: Mapping[str, Event]
    """Events by counter key: ref, ref_p (reference cycles on a general counter), cycles,
    instructions, one_thread, any_thread, distributed, smi."""
    license_events: Mapping[str, Event] = field(default_factory=dict)
    budget: CounterBudget | None = None
    """Intel's CPUs report it by CPUID; None if that is not plausible."""
    counter_registers: CounterRegisters | None = None
    clocks: ClockRegisters | None = None
    turbo: TurboRegisters | None = None
    residencies: tuple[Residency, ...] = ()
    """Residency registers of the model. Sources disagree and some parts lack some registers, so
    each is read once before it is used."""
    limits: LimitRegister | None = None
    thermal: ThermalRegisters | None = None
    rapl: RaplRegisters | None = None
    bclk_hz: float | None = None
    """Bus clock in Hz: the base frequency is this clock times bits 15:8 of MSR CEH."""
    crystals_hz: tuple[float, ...] = ()
    """Possible frequencies of the core crystal in Hz, the likeliest first."""
    counts_mperf_at_base_clock: bool = False
    """Whether MPERF counts at the base frequency, not the TSC's rate (turbostat: tsc_tweak)."""
    core_type: str | None = None
    slots_per_cycle: int | None = None


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A row of the tables: the microarchitecture of the CPUs with these numbers."""

    models: frozenset[int]
    uarch: Uarch
    family: int
    steppings: frozenset[int] | None
    core_type: str | None
    perfmon_v2: bool | None
    """Whether an AMD CPU of this row has PerfMonV2; None: it may have it or not."""
