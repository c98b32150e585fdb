"""The types with which `model_tables` describes what a CPU model can count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Tick = Literal["core", "tsc", "crystal", "xclk", "unknown"]
"""The clock that an event counts: core cycles, the TSC, the core crystal or the 100 MHz bus clock;
unknown where sources disagree or give none."""
METHODS = {"one-thread": "one_thread", "any-thread": "any_thread", "distributed": "distributed"}
"""Methods of finding the SMT states, and the counter that each method needs."""

COUNTED_KEYS = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")
"""Keys of the counters of a core that are reported as missing if a source cannot count them."""


@dataclass(frozen=True, slots=True)
class Event:
    code: int
    umask: int = 0
    tick: Tick = "core"
    any_thread: bool = False
    fixed: int | None = None
    """The fixed counter that can count the event; if the code is 0, no other counter can."""

    @property
    def config(self) -> int:
        """The event's bits in perf's raw config and in PERFEVTSEL, without ring and enable bits."""
        low, high = self.code & 0xFF, self.code >> 8
        return low | self.umask << 8 | self.any_thread << 21 | high << 32


@dataclass(frozen=True, slots=True)
class Budget:
    """The counters that one thread has while SMT is on, and their widths in bits."""

    gp: int
    fixed: int
    bits: int = 48
    fixed_bits: int = 48
    microcode_mask: int = 0
    """Bit n is set if general counter n is left to microcode."""


@dataclass(frozen=True, slots=True)
class Turbo:
    """Registers with turbo ratios, in one of three formats. per-count: byte i of `ratios` is the
    ratio with i+1 active cores, 0 where there is no entry. groups: byte i of `ratios` applies up to
    byte i of `counts` active cores. knl: one register with cores in [7:1] and ratio in [15:8] for
    bucket 1, then one byte for each bucket with a 5-bit core delta and a 3-bit ratio delta."""

    layout: Literal["per-count", "groups", "knl"]
    ratios: tuple[int, ...]
    counts: int | None = None
    cores_per_count: int = 1
    """Cores that share one count of `counts`: 4 where the counts are of modules."""


@dataclass(frozen=True, slots=True)
class Residency:
    name: str
    scope: Literal["core", "package"]
    msr: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The register of a package's limit reasons. Bit i is the present state of `parts[i]`; bit i+16
    is its sticky copy, which is never cleared."""

    msr: int
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Thermal:
    core: int
    package: int | None
    """The MSRs of the thermal status of a core and of a package."""
    tjmax: int | None
    """The MSR that has TjMax in bits 23:16; bits 22:16 of the thermal status are degrees below
    TjMax."""
    bits: tuple[tuple[int, str, str], ...]
    """Status bit, its name, and the feature of CPUID that announces it. The next higher bit is the
    sticky log of that status bit."""


@dataclass(frozen=True, slots=True)
class Rapl:
    unit: int
    package: int | None = None
    limits: int | None = None
    throttled: int | None = None


@dataclass(frozen=True, slots=True)
class Bank:
    """The general counters' MSRs: counter n is at `select + step*n` and `counter + step*n`."""

    select: int
    counter: int
    step: int
    control: int | None


@dataclass(frozen=True, slots=True)
class Clocks:
    mperf: int
    aperf: int
    shift: int = 0
    """MPERF and APERF count in units of 2**shift cycles."""


@dataclass(frozen=True, slots=True)
class Uarch:
    name: str
    vendor: str
    smt: int | None
    """Threads that a core has by design; None if unknown."""
    methods: tuple[str, ...]
    """Methods of finding the SMT states, best first."""
    events: Mapping[str, Event]
    """Events by counter key: ref, ref_p (reference cycles on a general counter), cycles,
    instructions, one_thread, any_thread, distributed, smi."""
    licenses: Mapping[str, Event] = field(default_factory=dict)
    budget: Budget | None = None
    bank: Bank | None = None
    clocks: Clocks | None = None
    turbo: Turbo | None = None
    residencies: tuple[Residency, ...] = ()
    """Residency registers of the model. Sources disagree and not all parts have all of them, so
    each register is read once before it is used."""
    limits: Limits | None = None
    thermal: Thermal | None = None
    rapl: Rapl | None = None
    bclk_hz: float | None = None
    """Bus clock: the base frequency is this clock times bits 15:8 of MSR CEH."""
    crystals_hz: tuple[float, ...] = ()
    """Possible frequencies of the core crystal, likeliest first."""
    uses_base_clock_for_aperf: bool = False
    """Whether MPERF runs at the nominal base frequency instead of the TSC's (turbostat's
    tsc_tweak)."""
    core_type: str | None = None
    slots: int | None = None
    """Dispatch slots per cycle; None if unknown."""


@dataclass(frozen=True, slots=True)
class Row:
    models: frozenset[int]
    uarch: Uarch
    family: int = 6
    steppings: frozenset[int] | None = None
    core_type: str | None = None
    perfmon_v2: bool | None = None
    """Whether PerfMonV2 must be present (True) or absent (False) on AMD; None: either fits."""
