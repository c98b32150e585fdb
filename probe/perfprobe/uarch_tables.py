"""What each CPU model can count. Data only; `uarch` finds a row and fits it to the CPU at hand.

Sources, unless a table names its own: models from Linux intel-family.h and Intel's mapfile.csv;
events from Intel's perfmon event lists; counters from CPUID dumps (InstLatx64); MSRs from Linux
msr-index.h and turbostat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from perfprobe.cpuid import Feature

Tick = Literal["core", "tsc", "crystal", "xclk", "unknown"]
"""What one count is: a core cycle, a TSC tick, one of the core crystal, of the 100 MHz bus clock;
unknown where sources disagree or are silent."""


@dataclass(frozen=True, slots=True)
class Event:
    code: int
    umask: int = 0
    tick: Tick = "core"
    any_thread: bool = False
    fixed: int | None = None
    """The fixed counter that counts it too; it alone does where the code is 0."""
    counters: int | None = None
    """Only the first so many general counters can."""

    @property
    def config(self) -> int:
        """As perf's raw config and PERFEVTSEL have it, without ring and enable bits."""
        low, high = self.code & 0xFF, self.code >> 8
        return low | self.umask << 8 | self.any_thread << 21 | high << 32


@dataclass(frozen=True, slots=True)
class Budget:
    """Counters of one thread while SMT is on."""

    gp: int
    fixed: int
    bits: int = 48
    fixed_bits: int = 48


@dataclass(frozen=True, slots=True)
class Turbo:
    """per-count: byte i of `ratios` is the ratio with i+1 active cores, 0: none. groups: byte i of
    `ratios` holds up to byte i of `counts` cores. knl: one register, bucket 1 in [7:1] cores and
    [15:8] ratio, then bytes of 5-bit core and 3-bit ratio delta."""

    layout: Literal["per-count", "groups", "knl"]
    ratios: tuple[int, ...]
    counts: int | None = None


@dataclass(frozen=True, slots=True)
class Residency:
    name: str
    scope: Literal["core", "module", "package"]
    msr: int
    tick: Tick = "tsc"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limit reasons of a package. Bit i is `parts[i]` now; bit i+16, sticky, is never cleared."""

    msr: int
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Thermal:
    core: int
    package: int | None
    tjmax: int | None
    """TjMax in bits 23:16; bits 22:16 of the status are degrees below it."""
    bits: tuple[tuple[int, str, Feature], ...]
    """Status bit, name, what announces it. The next bit is its sticky log."""


@dataclass(frozen=True, slots=True)
class Rapl:
    unit: int
    package: int | None = None
    core: int | None = None
    limits: int | None = None
    info: int | None = None
    throttled: int | None = None
    dram_throttled: int | None = None


@dataclass(frozen=True, slots=True)
class Bank:
    """The general counters' MSRs: number n is at `select + step*n` and `counter + step*n`."""

    select: int
    counter: int
    step: int
    control: int | None
    status: int | None


@dataclass(frozen=True, slots=True)
class Clocks:
    mperf: int
    aperf: int
    irperf: int | None = None
    shift: int = 0
    """MPERF and APERF count units of 2**shift cycles."""


@dataclass(frozen=True, slots=True)
class Uarch:
    name: str
    vendor: str
    smt: int | None
    """Threads of a core as designed; None: not known."""
    methods: tuple[str, ...]
    """Of telling the SMT states, best first."""
    events: Mapping[str, Event]
    """By counter key: ref, ref_p (reference on a general counter), cycles, instructions,
    one_thread, any_thread, distributed, smi."""
    licences: Mapping[str, Event] = field(default_factory=dict)
    budget: Budget | None = None
    bank: Bank | None = None
    clocks: Clocks | None = None
    turbo: Turbo | None = None
    residencies: tuple[Residency, ...] = ()
    """Tables disagree and not all parts have all: what can be read and moves is to be believed."""
    limits: Limits | None = None
    thermal: Thermal | None = None
    rapl: Rapl | None = None
    bclk_hz: float | None = None
    """MSR CEH bits 15:8 x this is the base frequency."""
    crystals_hz: tuple[float, ...] = ()
    """Core crystals that such parts have, likeliest first."""
    uses_base_clock_for_aperf: bool = False
    """MPERF runs at the nominal base frequency, not at the TSC's (turbostat's tsc_tweak)."""
    core_type: str | None = None


# --- events: Intel perfmon event lists -----------------------------------------------------------

CYCLES = Event(0x3C, 0x00, fixed=1)
INSTRUCTIONS = Event(0xC0, 0x00, fixed=0)
REF = Event(0x00, 0x03, "tsc", fixed=2)  # Linux's pseudo code


def ref_p(tick: Tick) -> Event:
    return Event(0x3C, 0x01, tick)


def _any(tick: Tick) -> Event:
    return Event(0x3C, 0x01, tick, any_thread=True)


def _one(tick: Tick) -> Event:
    return Event(0x3C, 0x02, tick)


_FIXED = {"ref": REF, "cycles": CYCLES, "instructions": INSTRUCTIONS}
_UNSTATED = {**_FIXED, "ref_p": ref_p("unknown")}
_ANY_ONLY = {**_UNSTATED, "any_thread": _any("unknown")}
_XCLK = {**_FIXED, "ref_p": ref_p("xclk"), "one_thread": _one("xclk"), "any_thread": _any("xclk")}
_CRYSTAL = {
    **_FIXED,
    "ref_p": ref_p("crystal"),
    "one_thread": _one("crystal"),
    "any_thread": _any("crystal"),
}
_DISTRIBUTED = {
    **_FIXED,
    "ref_p": ref_p("crystal"),
    "one_thread": _one("crystal"),
    "distributed": Event(0x3C, 0x08, "crystal"),
}
# From Golden Cove on two units under one event code: 0x3C/0x01 at the TSC's rate (REF_TSC_P, and
# Linux lets it run on fixed counter 2), the others still at the crystal's.
_GOLDEN = {**_DISTRIBUTED, "ref_p": ref_p("tsc")}
_TSC_ONLY = {**_FIXED, "ref_p": ref_p("tsc")}  # no SMT: E cores, Lion Cove

# Reused for something else on later cores: never by default.
_LEVELS = {
    "license_0": Event(0x28, 0x07, counters=4),
    "license_1": Event(0x28, 0x18, counters=4),
    "license_2": Event(0x28, 0x20, counters=4),
}
_LEVELS_SKX = {**_LEVELS, "license_throttle": Event(0x28, 0x40, counters=4)}
_LICENSES = {
    "license_1": Event(0x28, 0x02, counters=4),
    "license_2": Event(0x28, 0x04, counters=4),
    "license_3": Event(0x28, 0x08, counters=4),
}

_SOFT = ("traced", "bounds")
_SINGLE = ("single",)

# --- registers: Linux msr-index.h, turbostat; limit names of 0x690 turbostat's, of 0x64F CoreFreq's

INTEL_BANK = Bank(0x186, 0xC1, 1, 0x38F, 0x38E)
CLOCKS = Clocks(mperf=0xE7, aperf=0xE8)
RAPL = Rapl(0x606, limits=0x610, info=0x614, throttled=0x613, dram_throttled=0x61B)

THERMAL = Thermal(
    0x19C,
    0x1B1,
    0x1A2,
    (
        (0, "thermal", "thermal"),
        (2, "PROCHOT", "thermal"),
        (4, "critical temperature", "thermal"),
        (6, "threshold 1", "thermal"),
        (8, "threshold 2", "thermal"),
        (10, "power limit", "power-limit"),
        (12, "current limit", "hwp"),
        (14, "cross-domain limit", "hwp"),
    ),
)


def _parts(**named: str) -> tuple[str, ...]:
    return tuple(named.get(f"b{bit}", f"bit {bit}") for bit in range(16))


_COMMON = {"b0": "PROCHOT", "b1": "thermal", "b10": "PL1", "b11": "PL2"}
_LIMITS_HASWELL = Limits(
    0x690,
    _parts(
        **_COMMON,
        b4="graphics driver",
        b5="autonomous utilisation",
        b6="VR thermal",
        b8="electrical",
        b9="core power",
        b12="multi-core turbo",
        b13="turbo transition attenuation",
    ),
)
# Bits 2, 14 and 15 were seen set on a real Xeon 8160; nobody documents them.
_LIMITS_SKYLAKE = Limits(
    0x64F,
    _parts(
        **_COMMON,
        b4="residency state regulation",
        b5="running average thermal limit",
        b6="VR thermal alert",
        b7="VR thermal design current",
        b8="electrical",
        b12="max turbo limit",
        b13="turbo transition attenuation",
    ),
)

# turbostat, dump_turbo_ratio_limits
_TRL = Turbo("per-count", (0x1AD,))
_TRL_16 = Turbo("per-count", (0x1AD, 0x1AE))  # Broadwell-EP: turbostat reads the first only
_TRL_18 = Turbo("per-count", (0x1AD, 0x1AE, 0x1AF))
_TRL_E = Turbo("per-count", (0x650,))
_TRL_GROUPS = Turbo("groups", (0x1AD,), 0x1AE)
_TRL_KNL = Turbo("knl", (0x1AD,))

# Linux events/intel/cstate.c and turbostat: what either of them has.
_C1 = Residency("c1", "core", 0x660)
_C3 = Residency("c3", "core", 0x3FC)
_C6 = Residency("c6", "core", 0x3FD)
_C7 = Residency("c7", "core", 0x3FE)
_C6_KNL = Residency("c6", "core", 0x3FF)
_C6_MODULE = Residency("c6", "module", 0x664, "unknown")
_PC = tuple(
    Residency(name, "package", msr)
    for name, msr in (("pc2", 0x60D), ("pc3", 0x3F8), ("pc6", 0x3F9), ("pc7", 0x3FA))
)
_PC_DEEP = (
    *_PC,
    *(Residency(f"pc{n}", "package", msr) for n, msr in ((8, 0x630), (9, 0x631), (10, 0x632))),
)

# --- microarchitectures --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    models: frozenset[int]
    uarch: Uarch
    family: int = 6
    steppings: frozenset[int] | None = None
    core_type: str | None = None
    perfmon_v2: bool | None = None
    """Of AMD's rows: None fits all."""


_OF_P = "P"
_OF_E = "E"


def _row(base: Uarch, name: str, *models: int, **changes: Any) -> Row:
    return Row(frozenset(models), replace(base, name=name, **changes))


def _stepped(row: Row, *steppings: int) -> Row:
    return replace(row, steppings=frozenset(steppings))


def _hybrid(p: Uarch, e: Uarch, name: str, *models: int, **changes: Any) -> tuple[Row, Row]:
    return (
        replace(_row(p, name, *models, **changes), core_type=_OF_P),
        replace(_row(e, name, *models, **changes), core_type=_OF_E),
    )
