"""Tables of what each CPU model can count: events and registers that several models share, then a
row for each model. This module is data only; `model` finds a row and fits it to the CPU.

Sources: models from Linux intel-family.h and Intel's mapfile.csv, events from Intel's perfmon event
lists, counters from CPUID dumps (InstLatx64), MSRs from Linux msr-index.h and turbostat (tsc_tweak
and the crystals included), except where a table names its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from perfprobe.cpu.model_terms import (
    ClockRegisters,
    CountedClock,
    CounterBudget,
    CounterRegisters,
    Event,
    LimitRegister,
    ModelRow,
    RaplRegisters,
    Residency,
    ThermalRegisters,
    TurboRegisters,
    Uarch,
)

# --- events ---------------------------------------------------------------------------------------

CYCLES = Event(0x3C, 0x00, fixed_counter=1)
INSTRUCTIONS = Event(0xC0, 0x00, fixed_counter=0)
REF = Event(0x00, 0x03, "tsc", fixed_counter=2)  # Linux's pseudo event code for fixed counter 2


def ref_p_event(counted_clock: CountedClock) -> Event:
    return Event(0x3C, 0x01, counted_clock)


def one_thread_events(counted_clock: CountedClock) -> dict[str, Event]:
    """Returns the events of the SMT method "one-thread": reference cycles of the thread, and
    reference cycles while its sibling is halted."""
    return {"ref_p": ref_p_event(counted_clock), "one_thread": Event(0x3C, 0x02, counted_clock)}


def any_thread_events(counted_clock: CountedClock) -> dict[str, Event]:
    return {"any_thread": Event(0x3C, 0x01, counted_clock, any_thread=True)}


FIXED_COUNTER_EVENTS = {"ref": REF, "cycles": CYCLES, "instructions": INSTRUCTIONS}
UNKNOWN_TICK_EVENTS = {**FIXED_COUNTER_EVENTS, "ref_p": ref_p_event("unknown")}
ANY_THREAD_EVENTS = {**UNKNOWN_TICK_EVENTS, **any_thread_events("unknown")}
XCLK_EVENTS = {**FIXED_COUNTER_EVENTS, **one_thread_events("xclk"), **any_thread_events("xclk")}
CRYSTAL_EVENTS = {
    **FIXED_COUNTER_EVENTS,
    **one_thread_events("crystal"),
    **any_thread_events("crystal"),
}
DISTRIBUTED_EVENTS = {
    **FIXED_COUNTER_EVENTS, **one_thread_events("crystal"),
    "distributed": Event(0x3C, 0x08, "crystal"),
}  # fmt: skip
# From Golden Cove on, event 0x3C counts at two rates: with umask 0x01 (REF_TSC_P, which Linux may
# put on fixed counter 2) at the TSC's rate, with other umasks still at the crystal's rate.
GOLDEN_COVE_EVENTS = {**DISTRIBUTED_EVENTS, "ref_p": ref_p_event("tsc")}
# Events of cores without SMT: E cores and Lion Cove.
TSC_EVENTS = {**FIXED_COUNTER_EVENTS, "ref_p": ref_p_event("tsc")}

# Cycles at each SIMD level (license), at which a core limits its clock. Later cores use code 0x28
# for other events, so only server models have these. Umasks 02, 04 and 08 of Golden Cove are not
# documented, and on Skylake-SP 02 and 04 are part of level 0. Clients from Ice Lake to Rocket Lake
# have the events, but their levels lower the clock by 100 MHz at most, and only with one active
# core (measured by T. Downs, "Ice Lake AVX-512 Downclocking", 2020).
LICENSE_EVENTS = {"license_1": Event(0x28, 0x18), "license_2": Event(0x28, 0x20)}
LICENSE_EVENTS_SKX = {**LICENSE_EVENTS, "license_throttle": Event(0x28, 0x40)}

COUNTERLESS_METHODS = ("traced", "bounds")
SINGLE_METHOD = ("single",)

# --- registers, from Linux msr-index.h and turbostat; bit names of MSR 0x64F from CoreFreq --------

INTEL_COUNTER_REGISTERS = CounterRegisters(0x186, 0xC1, 1, 0x38F)
CLOCKS = ClockRegisters(mperf=0xE7, aperf=0xE8)
RAPL = RaplRegisters(0x606, limits_msr=0x610, throttled_msr=0x613)

THERMAL = ThermalRegisters(
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


def _bit_names(**names: str) -> tuple[str, ...]:
    """Returns the names of bits 0 to 15 of a limit register; `b4="x"` names bit 4."""
    return tuple(names.get(f"b{bit}", f"bit {bit}") for bit in range(16))


_COMMON_BITS = {"b0": "PROCHOT", "b1": "thermal", "b10": "PL1", "b11": "PL2"}
LIMITS_HASWELL = LimitRegister(
    0x690,
    _bit_names(
        **_COMMON_BITS,
        b4="graphics driver",
        b5="autonomous utilisation",
        b6="VR thermal",
        b8="electrical",
        b9="core power",
        b12="multi-core turbo",
        b13="turbo transition attenuation",
    ),
)
# Limit reasons of Haswell-EP (SDM table 2-32) and Xeon D, from EDK2's HaswellEMsr.h and XeonDMsr.h.
# turbostat decodes these models like clients, but the value 0xC500C100 of a Dell server fits this
# table: bits 8, 14 and 15, and bit 10 in the log.
LIMITS_HASWELL_SERVER = LimitRegister(
    0x690,
    _bit_names(
        b0="PROCHOT",
        b1="thermal",
        b2="power budget",
        b3="platform configuration",
        b5="autonomous utilisation",
        b6="VR thermal",
        b8="electrical",
        b10="multi-core turbo",
        b13="below base clock",
        b14="below turbo for the active cores",
        b15="below request",
    ),
)
# Limit reasons of Knights Landing and Knights Mill, from EDK2's XeonPhiMsr.h.
LIMITS_PHI = LimitRegister(
    0x690, _bit_names(b0="PROCHOT", b1="thermal", b6="VR thermal", b8="electrical")
)
# Limit reasons of Goldmont, from EDK2's GoldmontMsr.h.
LIMITS_GOLDMONT = LimitRegister(
    0x64F,
    _bit_names(
        b0="PROCHOT",
        b1="thermal",
        b2="PL1",
        b3="PL2",
        b9="core power",
        b10="VR thermal alert",
        b11="max turbo limit",
        b12="electrical",
        b13="turbo transition attenuation",
        b14="below maximum efficiency",
    ),
)
LIMITS_SKYLAKE = LimitRegister(
    0x64F,
    _bit_names(
        **_COMMON_BITS,
        b4="residency state regulation",
        b5="running average thermal limit",
        b6="VR thermal alert",
        b7="VR thermal design current",
        b8="electrical",
        b12="max turbo limit",
        b13="turbo transition attenuation",
    ),
)
# The SDM has the same limit reasons for servers as for clients. But a Xeon 8160 sets bits 2, 14 and
# 15, which exist only in Haswell-EP's table, where bit 10 is the multi-core turbo limit.
LIMITS_XEON = LimitRegister(
    0x64F,
    tuple(
        "PL1 or multi-core turbo" if name == "PL1" else name for name in LIMITS_SKYLAKE.bit_names
    ),
)

# Turbo ratio limits (TRL), as turbostat's dump_turbo_ratio_limits reads them; on Broadwell-EP it
# reads only the first of the two registers.
TURBO = TurboRegisters("per-count", (0x1AD,))
TURBO_16_CORES = TurboRegisters("per-count", (0x1AD, 0x1AE))
TURBO_18_CORES = TurboRegisters("per-count", (0x1AD, 0x1AE, 0x1AF))
TURBO_E_CORES = TurboRegisters("per-count", (0x650,))
TURBO_GROUPS = TurboRegisters("groups", (0x1AD,), 0x1AE)
# Modules of four cores are counted (sources: Intel's PerfSpect; pepc's recording of a Clearwater
# Forest, which has 288 cores and counts up to 72).
TURBO_MODULES = TurboRegisters("groups", (0x1AD,), 0x1AE, cores_per_count=4)
TURBO_KNIGHTS_LANDING = TurboRegisters("knl", (0x1AD,))

# Residency counters of idle states: the union of Linux events/intel/cstate.c and turbostat.
C1 = Residency("c1", "core", 0x660)
C3 = Residency("c3", "core", 0x3FC)
C6 = Residency("c6", "core", 0x3FD)
C7 = Residency("c7", "core", 0x3FE)
C6_KNL = Residency("c6", "core", 0x3FF)
PACKAGE_RESIDENCIES = tuple(
    Residency(name, "package", msr)
    for name, msr in (("pc2", 0x60D), ("pc3", 0x3F8), ("pc6", 0x3F9), ("pc7", 0x3FA))
)
DEEP_PACKAGE_RESIDENCIES = (
    *PACKAGE_RESIDENCIES,
    *(Residency(f"pc{n}", "package", msr) for n, msr in ((8, 0x630), (9, 0x631), (10, 0x632))),
)
DEEP_RESIDENCIES = (C3, C6, C7, *DEEP_PACKAGE_RESIDENCIES)


# --- models ---------------------------------------------------------------------------------------


def _row(
    base: Uarch,
    name: str,
    *models: int,
    family: int = 6,
    steppings: Iterable[int] | None = None,
    core_type: str | None = None,
    perfmon_v2: bool | None = None,
    **changes: Any,
) -> ModelRow:
    uarch = replace(base, name=name, **changes)
    own_steppings = None if steppings is None else frozenset(steppings)
    return ModelRow(frozenset(models), uarch, family, own_steppings, core_type, perfmon_v2)


def _hybrid(p: Uarch, e: Uarch, name: str, *models: int, family: int = 6) -> tuple[ModelRow, ...]:
    cores = (("P", p), ("E", e))
    return tuple(_row(uarch, name, *models, family=family, core_type=kind) for kind, uarch in cores)


_INTEL = Uarch(
    "",
    "GenuineIntel",
    threads_per_core=2,
    smt_methods=COUNTERLESS_METHODS,
    events=FIXED_COUNTER_EVENTS,
    counter_registers=INTEL_COUNTER_REGISTERS,
    clocks=CLOCKS,
    thermal=THERMAL,
)
_NEHALEM = replace(
    _INTEL,
    smt_methods=("any-thread", *COUNTERLESS_METHODS),
    # Sources disagree on the rate of ref_p: the TSC's, or 133 MHz. Calibration decides. CPUID
    # reports the architectural event as unavailable, but this model has an event of its own.
    events=ANY_THREAD_EVENTS,
    turbo=TURBO,
    residencies=(C3, C6, *PACKAGE_RESIDENCIES),
    bclk_hz=133.33e6,
)
_SANDY = replace(
    _NEHALEM,
    smt_methods=("one-thread", "any-thread", *COUNTERLESS_METHODS),
    events=XCLK_EVENTS,
    residencies=(C3, C6, C7, *PACKAGE_RESIDENCIES),
    rapl=RAPL,
    bclk_hz=100e6,
)
_HASWELL = replace(_SANDY, limits=LIMITS_HASWELL)
_SKYLAKE = replace(
    _SANDY,
    events=CRYSTAL_EVENTS,
    limits=LIMITS_SKYLAKE,
    crystals_hz=(24e6,),
    counts_mperf_at_base_clock=True,
)
_SKX = replace(
    _SKYLAKE,
    license_events=LICENSE_EVENTS_SKX,
    turbo=TURBO_GROUPS,
    limits=LIMITS_XEON,
    crystals_hz=(25e6, 24e6),  # 24 MHz: Core-X and Xeon-W, which have the same model number
    counts_mperf_at_base_clock=False,
)
# Cannon Lake has no event list of its own; all models from Skylake to Ice Lake count crystal ticks
# and have the one-thread event.
_CANNON = replace(_SKYLAKE, residencies=(C1, C3, C6, C7, *DEEP_PACKAGE_RESIDENCIES), crystals_hz=())
_ICE_LAKE = replace(
    _SKYLAKE,
    smt_methods=("one-thread", "distributed", *COUNTERLESS_METHODS),
    events=DISTRIBUTED_EVENTS,
    residencies=(C1, C6, C7, *DEEP_PACKAGE_RESIDENCIES),
    crystals_hz=(38.4e6,),
)
_ICX = replace(
    _ICE_LAKE,
    license_events=LICENSE_EVENTS,
    turbo=TURBO_GROUPS,
    limits=LIMITS_XEON,
    residencies=(C1, C6, *PACKAGE_RESIDENCIES),
    crystals_hz=(25e6,),
    counts_mperf_at_base_clock=False,
)
_SPR = replace(_ICX, events=GOLDEN_COVE_EVENTS, license_events={})
_GOLDEN_COVE = replace(_ICE_LAKE, events=GOLDEN_COVE_EVENTS)
_GRACEMONT = replace(
    _GOLDEN_COVE,
    threads_per_core=1,
    smt_methods=SINGLE_METHOD,
    events=TSC_EVENTS,
    turbo=TURBO_E_CORES,
)
_LION_COVE = replace(_GRACEMONT, turbo=TURBO)
# Panther, Wildcat and Nova Lake: events from Intel's lists; registers assumed to be Lunar Lake's
# (from turbostat and the cstate PMU).
_PANTHER_LAKE = replace(
    _INTEL,
    threads_per_core=None,
    events=TSC_EVENTS,
    turbo=TURBO,
    residencies=(C1, C6, C7, *DEEP_PACKAGE_RESIDENCIES),
    rapl=RAPL,
    bclk_hz=100e6,
    counts_mperf_at_base_clock=True,
)
_PANTHER_LAKE_E = replace(_PANTHER_LAKE, turbo=TURBO_E_CORES)
_SIERRA = replace(
    _SPR,
    threads_per_core=1,
    smt_methods=SINGLE_METHOD,
    events=TSC_EVENTS,
    turbo=TURBO_MODULES,
    residencies=(C1, C6, *PACKAGE_RESIDENCIES),
    limits=None,
    crystals_hz=(),
)
_PHI = replace(
    _SANDY,
    threads_per_core=4,
    smt_methods=("any-thread",),  # the other methods need cores of two threads
    events=ANY_THREAD_EVENTS,
    clocks=replace(CLOCKS, unit_shift=10),
    turbo=TURBO_KNIGHTS_LANDING,
    residencies=(C6_KNL, *PACKAGE_RESIDENCIES),
    limits=LIMITS_PHI,
)
_GOLDMONT_PLUS = replace(
    _INTEL,
    threads_per_core=1,
    smt_methods=SINGLE_METHOD,
    events=UNKNOWN_TICK_EVENTS,
    turbo=TURBO,
    # turbostat lists C7 as well, the kernel does not: C6 may include it, as on other small cores.
    residencies=(C1, C3, C6, *DEEP_PACKAGE_RESIDENCIES),
    rapl=RAPL,
    bclk_hz=100e6,
    crystals_hz=(19.2e6,),
)
# Source: turbostat's tables. No recording of an Elkhart Lake or Jasper Lake machine is available.
_TREMONT = replace(
    _GOLDMONT_PLUS, residencies=(C1, C6, C7, *DEEP_PACKAGE_RESIDENCIES), crystals_hz=()
)
# Source: turbostat. Diamond Rapids has the clocks, events and threads that CPUID reports, and no
# MSRs for RAPL or limit reasons, which are in TPMI.
_DIAMOND = replace(
    _INTEL,
    threads_per_core=None,
    events=UNKNOWN_TICK_EVENTS,
    turbo=TURBO_GROUPS,
    residencies=(C1, C6, *PACKAGE_RESIDENCIES),
    bclk_hz=100e6,
)
_BONNELL = replace(
    _INTEL,
    smt_methods=("any-thread", *COUNTERLESS_METHODS),
    events=ANY_THREAD_EVENTS,
    thermal=replace(THERMAL, package_msr=None, tjmax_msr=None),
)

_INTEL_ROWS = (
    _row(_NEHALEM, "Nehalem", 0x1A, 0x1E, 0x1F),
    _row(_NEHALEM, "Nehalem-EX", 0x2E, turbo=None),
    _row(_NEHALEM, "Westmere", 0x25, 0x2C),
    _row(_NEHALEM, "Westmere-EX", 0x2F, turbo=None),
    _row(_SANDY, "Sandy Bridge", 0x2A),
    _row(_SANDY, "Sandy Bridge-EP", 0x2D),
    _row(_SANDY, "Ivy Bridge", 0x3A),
    _row(_SANDY, "Ivy Bridge-EP", 0x3E, turbo=TURBO_16_CORES),
    _row(_HASWELL, "Haswell", 0x3C, 0x46),
    _row(_HASWELL, "Haswell-ULT", 0x45, residencies=DEEP_RESIDENCIES),
    _row(_HASWELL, "Haswell-EP", 0x3F, turbo=TURBO_18_CORES, limits=LIMITS_HASWELL_SERVER),
    _row(_HASWELL, "Broadwell", 0x3D, residencies=DEEP_RESIDENCIES),
    _row(_HASWELL, "Broadwell", 0x47),
    _row(_HASWELL, "Broadwell-EP", 0x4F, turbo=TURBO_16_CORES, limits=LIMITS_HASWELL_SERVER),
    _row(_HASWELL, "Broadwell-DE", 0x56, turbo=TURBO_16_CORES, limits=LIMITS_HASWELL_SERVER),
    _row(_SKYLAKE, "Skylake", 0x4E, 0x5E, residencies=DEEP_RESIDENCIES),
    _row(_SKYLAKE, "Kaby Lake", 0x8E, 0x9E, residencies=DEEP_RESIDENCIES),
    _row(_SKYLAKE, "Comet Lake", 0xA5, 0xA6, residencies=DEEP_RESIDENCIES),
    # Intel does not list steppings 8, 9 and above 11 of model 55H; all have the same counters.
    _row(_SKX, "Skylake-SP", 0x55, steppings=range(5)),
    _row(_SKX, "Cascade Lake", 0x55, steppings=range(5, 10)),
    _row(_SKX, "Cooper Lake", 0x55, steppings=range(10, 16)),
    _row(_CANNON, "Cannon Lake", 0x66),
    _row(_ICE_LAKE, "Ice Lake", 0x7D, 0x7E),
    _row(_ICX, "Ice Lake-SP", 0x6A, 0x6C),
    _row(_ICE_LAKE, "Tiger Lake", 0x8C, 0x8D),
    _row(_ICE_LAKE, "Rocket Lake", 0xA7, crystals_hz=(24e6,)),
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Alder Lake", 0x97, 0x9A),
    _row(_GRACEMONT, "Alder Lake-N", 0xBE, turbo=TURBO),  # only E cores, so it is not a hybrid
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Raptor Lake", 0xB7, 0xBA, 0xBF),
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Bartlett Lake", 0xD7),
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Meteor Lake", 0xAA, 0xAC),
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Arrow Lake-U", 0xB5),
    *_hybrid(_LION_COVE, _GRACEMONT, "Lunar Lake", 0xBD),
    *_hybrid(_LION_COVE, _GRACEMONT, "Arrow Lake", 0xC5, 0xC6),
    *_hybrid(_PANTHER_LAKE, _PANTHER_LAKE_E, "Panther Lake", 0xCC, 0xE5),
    *_hybrid(_PANTHER_LAKE, _PANTHER_LAKE_E, "Wildcat Lake", 0xD5),
    *_hybrid(_PANTHER_LAKE, _PANTHER_LAKE_E, "Nova Lake", 0x01, 0x03, family=18),
    # a workstation model of Sapphire Rapids has a crystal of 24 MHz
    _row(_SPR, "Sapphire Rapids", 0x8F, crystals_hz=(25e6, 24e6)),
    _row(_SPR, "Emerald Rapids", 0xCF),
    # the limit reasons of Granite Rapids are in TPMI
    _row(_SPR, "Granite Rapids", 0xAD, 0xAE, limits=None),
    _row(_SIERRA, "Sierra Forest", 0xAF),
    _row(_SIERRA, "Grand Ridge", 0xB6),
    _row(_SIERRA, "Clearwater Forest", 0xDD),
    _row(_PHI, "Knights Landing", 0x57),
    _row(_PHI, "Knights Mill", 0x85),
    _row(_GOLDMONT_PLUS, "Goldmont", 0x5C, turbo=TURBO_GROUPS, limits=LIMITS_GOLDMONT),
    _row(_GOLDMONT_PLUS, "Denverton", 0x5F, turbo=TURBO_GROUPS, crystals_hz=(25e6,)),
    _row(_GOLDMONT_PLUS, "Goldmont Plus", 0x7A),
    _row(_TREMONT, "Snow Ridge", 0x86, turbo=TURBO_GROUPS, residencies=(C1, C6)),
    _row(_TREMONT, "Elkhart Lake", 0x96),
    _row(_TREMONT, "Jasper Lake", 0x9C),
    _row(_DIAMOND, "Diamond Rapids", 0x01, family=19),
    _row(_BONNELL, "Bonnell", 0x1C, 0x26, 0x27, 0x35, 0x36),
)

UNLISTED_MODEL_NAMES = {
    (6, 0x37): "Silvermont",
    (6, 0x4A): "Silvermont",
    (6, 0x4D): "Silvermont",
    (6, 0x5A): "Silvermont",
    (6, 0x4C): "Airmont",
    (6, 0x75): "Airmont",
    (6, 0x8A): "Lakefield",
    (6, 0x9D): "Ice Lake NNP-I",
}
"""Names, by family and model, of Intel models that are not in the tables (from Linux
intel-family.h). They have the events that CPUID reports."""

# --- AMD: Linux events/amd/core.c, pmu-events/arch/x86/amdzen*, msr-index.h ----------------------

_ZEN1 = Uarch(
    "",
    "AuthenticAMD",
    threads_per_core=2,
    smt_methods=COUNTERLESS_METHODS,  # no event of any Zen depends on the sibling
    events={"cycles": Event(0x76), "instructions": Event(0xC0)},
    budget=CounterBudget(6, 0, 48, 0),
    counter_registers=CounterRegisters(0xC0010200, 0xC0010201, 2, 0xC0000301),
    # read-only registers, which no tool can reset
    clocks=ClockRegisters(mperf=0xC00000E7, aperf=0xC00000E8),
    rapl=RaplRegisters(0xC0010299, energy_msr=0xC001029B),
)
_ZEN2 = replace(_ZEN1, events={**_ZEN1.events, "smi": Event(0x2B)})
# Zen 4 counts reference cycles (event 0x120) at the clock of P0, which is the TSC's rate.
_ZEN4 = replace(
    _ZEN2,
    events={**_ZEN2.events, "ref": Event(0x120, 0x01, "tsc"), "smt_contention": Event(0x1A0, 0x60)},
    slots_per_cycle=6,
)
_ZEN5 = replace(_ZEN4, slots_per_cycle=8)
_ZEN6 = replace(_ZEN4, slots_per_cycle=8)  # source: amdzen6/pipeline.json of perf

_ALL_MODELS = range(0x100)

_ZEN1_17H = {*range(0x30), *range(0x50, 0x60)}
_ZEN3_19H = {*range(0x10), *range(0x20, 0x60)}
_ZEN4_19H = {*range(0x10, 0x20), *range(0x60, 0xB0)}
_ZEN6_1AH = {*range(0x50, 0x60), *range(0x80, 0xB0), *range(0xC0, 0xF0)}

# Ranges of models are those of Linux's bsp_init_amd. In family 19h, PerfMonV2 distinguishes Zen 4
# from Zen 3 if CPUID can be trusted.
_AMD_ROWS = (
    _row(_ZEN1, "Zen 1", *_ZEN1_17H, family=0x17),
    _row(_ZEN2, "Zen 2", *_ALL_MODELS, family=0x17),
    _row(_ZEN1, "Zen 1", *_ALL_MODELS, vendor="HygonGenuine", family=0x18),
    _row(_ZEN4, "Zen 4", *_ALL_MODELS, family=0x19, perfmon_v2=True),
    _row(_ZEN2, "Zen 3", *_ALL_MODELS, family=0x19, perfmon_v2=False),
    _row(_ZEN2, "Zen 3", *_ZEN3_19H, family=0x19),
    _row(_ZEN4, "Zen 4", *_ZEN4_19H, family=0x19),
    _row(_ZEN2, "Zen 3 or 4", *_ALL_MODELS, family=0x19),
    _row(_ZEN6, "Zen 6", *_ZEN6_1AH, family=0x1A),
    _row(_ZEN5, "Zen 5", *_ALL_MODELS, family=0x1A),
)

MODEL_ROWS = _INTEL_ROWS + _AMD_ROWS
