"""What each CPU model can count. Data only; `model` finds a row and fits it to the CPU.

Sources: models from Linux intel-family.h and Intel's mapfile.csv, events from Intel's perfmon event
lists, counters from CPUID dumps (InstLatx64), the rest from turbostat, tsc_tweak and the crystals
included.
"""

from __future__ import annotations

from typing import Any

from perfprobe.cpu import event_counters
from perfprobe.cpu import model_parts as parts
from perfprobe.cpu.model_terms import Bank, Budget, Clocks, Event, Rapl, Row, Uarch
from perfprobe.frozen import replace


def _row(base: Uarch, name: str, *models: int, **changes: Any) -> Row:
    return Row(frozenset(models), replace(base, name=name, **changes))


def _stepped(row: Row, *steppings: int) -> Row:
    return replace(row, steppings=frozenset(steppings))


def _hybrid(p: Uarch, e: Uarch, name: str, *models: int, **changes: Any) -> tuple[Row, Row]:
    return (
        replace(_row(p, name, *models, **changes), core_type="P"),
        replace(_row(e, name, *models, **changes), core_type="E"),
    )


_INTEL = Uarch(
    "",
    "GenuineIntel",
    smt=2,
    methods=parts.SOFT,
    events=parts.FIXED,
    bank=parts.INTEL_BANK,
    clocks=parts.CLOCKS,
    thermal=parts.THERMAL,
)
_NEHALEM = replace(
    _INTEL,
    methods=("any-thread", *parts.SOFT),
    # Sources disagree about REF_P: the TSC's rate or 133 MHz. Calibration decides.
    # CPUID denies the architectural event; this one is the model's own.
    events=parts.ANY_ONLY,
    budget=Budget(4, 3),
    turbo=parts.TRL,
    residencies=(parts.C3, parts.C6, *parts.PC),
    bclk_hz=133.33e6,
    restrictions=event_counters.NEHALEM,
)
_WESTMERE = replace(_NEHALEM, restrictions=event_counters.WESTMERE)
_SANDY = replace(
    _NEHALEM,
    methods=("one-thread", "any-thread", *parts.SOFT),
    events=parts.XCLK,
    residencies=(parts.C3, parts.C6, parts.C7, *parts.PC),
    rapl=parts.RAPL,
    bclk_hz=100e6,
    restrictions=event_counters.SANDY_BRIDGE,
)
_IVY = replace(_SANDY, restrictions=event_counters.IVY_BRIDGE)
_HASWELL = replace(_SANDY, limits=parts.LIMITS_HASWELL, restrictions=event_counters.HASWELL)
_BROADWELL = replace(_SANDY, restrictions=event_counters.BROADWELL)
_SKYLAKE = replace(
    _SANDY,
    events=parts.CRYSTAL,
    limits=parts.LIMITS_SKYLAKE,
    crystals_hz=(24e6,),
    uses_base_clock_for_aperf=True,
    restrictions=event_counters.SKYLAKE,
)
_SKX = replace(
    _SKYLAKE,
    licenses=parts.LEVELS_SKX,
    turbo=parts.TRL_GROUPS,
    crystals_hz=(25e6, 24e6),  # Core-X and Xeon-W have the same model number and 24 MHz
    uses_base_clock_for_aperf=False,
)
# It has no event list of its own; all models from Skylake to Ice Lake have crystal and one-thread.
_CANNON = replace(
    _SKYLAKE, residencies=(parts.C1, parts.C3, parts.C6, parts.C7, *parts.PC_DEEP), crystals_hz=()
)
_ICE = replace(
    _SKYLAKE,
    methods=("one-thread", "distributed", *parts.SOFT),
    events=parts.DISTRIBUTED,
    licenses=parts.LEVELS,
    budget=Budget(8, 4),
    residencies=(parts.C1, parts.C6, parts.C7, *parts.PC_DEEP),
    crystals_hz=(38.4e6,),
    restrictions=event_counters.ICE_LAKE,
)
_ICX = replace(
    _ICE,
    turbo=parts.TRL_GROUPS,
    residencies=(parts.C1, parts.C6, *parts.PC),
    crystals_hz=(25e6,),
    uses_base_clock_for_aperf=False,
)
_SPR = replace(_ICX, events=parts.GOLDEN, licenses={}, restrictions=event_counters.GOLDEN_COVE)
_GOLDEN_COVE = replace(
    _ICE, events=parts.GOLDEN, licenses=parts.LICENSES, restrictions=event_counters.GOLDEN_COVE
)
_GRACEMONT = replace(
    _GOLDEN_COVE,
    smt=1,
    methods=parts.SINGLE,
    events=parts.TSC_ONLY,
    licenses={},
    budget=Budget(6, 3),
    turbo=parts.TRL_E,
    restrictions=event_counters.GRACEMONT,
)
_REDWOOD_COVE = replace(_GOLDEN_COVE, licenses={})
_CRESTMONT = replace(_GRACEMONT, budget=Budget(8, 3))
_LION_COVE = replace(_CRESTMONT, turbo=parts.TRL, restrictions=event_counters.LION_COVE)
# Events from their lists; registers as Lunar Lake's (turbostat, and the cstate PMU).
_LISTED = replace(
    _INTEL,
    smt=None,
    events=parts.TSC_ONLY,
    turbo=parts.TRL,
    residencies=(parts.C1, parts.C6, parts.C7, *parts.PC_DEEP),
    rapl=parts.RAPL,
    bclk_hz=100e6,
    uses_base_clock_for_aperf=True,
)
_LISTED_E = replace(_LISTED, turbo=parts.TRL_E)
_SIERRA = replace(
    _SPR,
    smt=1,
    methods=parts.SINGLE,
    events=parts.TSC_ONLY,
    budget=None,
    residencies=(parts.C1, parts.C6, *parts.PC),
    limits=None,
    crystals_hz=(),
    restrictions=event_counters.GRACEMONT,
)
_PHI = replace(
    _SANDY,
    smt=4,
    methods=("any-thread",),  # the others are for two threads
    events=parts.ANY_ONLY,
    budget=Budget(2, 3, 40, 40),
    clocks=replace(parts.CLOCKS, shift=10),
    turbo=parts.TRL_KNL,
    residencies=(parts.C6_KNL, *parts.PC),
    restrictions=event_counters.SMALL,
)
_GOLDMONT_PLUS = replace(
    _INTEL,
    smt=1,
    methods=parts.SINGLE,
    events=parts.UNSTATED,
    budget=Budget(4, 3),
    turbo=parts.TRL,
    # turbostat adds C7, the kernel does not: C6 may include it, as on other small cores.
    residencies=(parts.C1, parts.C3, parts.C6, *parts.PC_DEEP),
    rapl=parts.RAPL,
    bclk_hz=100e6,
    crystals_hz=(19.2e6,),
    restrictions=event_counters.SMALL,
)
_BONNELL = replace(
    _INTEL,
    methods=("any-thread", *parts.SOFT),
    events=parts.ANY_ONLY,
    budget=Budget(2, 3, 40, 40),
    thermal=replace(parts.THERMAL, package=None, tjmax=None),
    restrictions=event_counters.NONE,
)

_INTEL_ROWS = (
    _row(_NEHALEM, "Nehalem", 0x1A, 0x1E, 0x1F),
    _row(_NEHALEM, "Nehalem-EX", 0x2E, turbo=None),
    _row(_WESTMERE, "Westmere", 0x25, 0x2C),
    _row(_WESTMERE, "Westmere-EX", 0x2F, turbo=None),
    _row(_SANDY, "Sandy Bridge", 0x2A),
    _row(_SANDY, "Sandy Bridge-EP", 0x2D),
    _row(_IVY, "Ivy Bridge", 0x3A),
    _row(_IVY, "Ivy Bridge-EP", 0x3E, turbo=parts.TRL_16),
    _row(_HASWELL, "Haswell", 0x3C, 0x46),
    _row(_HASWELL, "Haswell-ULT", 0x45, residencies=parts.DEEP),
    _row(_HASWELL, "Haswell-EP", 0x3F, turbo=parts.TRL_18),
    _row(_BROADWELL, "Broadwell", 0x3D, residencies=parts.DEEP),
    _row(_BROADWELL, "Broadwell", 0x47),
    _row(_BROADWELL, "Broadwell-EP", 0x4F, turbo=parts.TRL_16),
    _row(_BROADWELL, "Broadwell-DE", 0x56, turbo=parts.TRL_16),
    _row(_SKYLAKE, "Skylake", 0x4E, 0x5E, residencies=parts.DEEP),
    _row(_SKYLAKE, "Kaby Lake", 0x8E, 0x9E, residencies=parts.DEEP),
    _row(_SKYLAKE, "Comet Lake", 0xA5, 0xA6, residencies=parts.DEEP),
    # Steppings 8, 9 and above 11 are not listed; all count the same.
    _stepped(_row(_SKX, "Skylake-SP", 0x55), 0, 1, 2, 3, 4),
    _stepped(_row(_SKX, "Cascade Lake", 0x55), 5, 6, 7, 8, 9),
    _stepped(_row(_SKX, "Cooper Lake", 0x55), 10, 11, 12, 13, 14, 15),
    _row(_CANNON, "Cannon Lake", 0x66),
    _row(_ICE, "Ice Lake", 0x7D, 0x7E),
    _row(_ICX, "Ice Lake-SP", 0x6A, 0x6C),
    _row(_ICE, "Tiger Lake", 0x8C, 0x8D),
    _row(_ICE, "Rocket Lake", 0xA7, crystals_hz=(24e6,)),
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Alder Lake", 0x97, 0x9A),
    _row(_GRACEMONT, "Alder Lake-N", 0xBE, turbo=parts.TRL),  # E cores only: not a hybrid
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Raptor Lake", 0xB7, 0xBA, 0xBF),
    *_hybrid(_GOLDEN_COVE, _GRACEMONT, "Bartlett Lake", 0xD7),
    *_hybrid(_REDWOOD_COVE, _CRESTMONT, "Meteor Lake", 0xAA, 0xAC),
    *_hybrid(_REDWOOD_COVE, _CRESTMONT, "Arrow Lake-U", 0xB5),
    *_hybrid(_LION_COVE, _CRESTMONT, "Lunar Lake", 0xBD),
    *_hybrid(_LION_COVE, _CRESTMONT, "Arrow Lake", 0xC5, 0xC6),
    *_hybrid(_LISTED, _LISTED_E, "Panther Lake", 0xCC, 0xE5),
    *_hybrid(_LISTED, _LISTED_E, "Wildcat Lake", 0xD5),
    *(replace(row, family=18) for row in _hybrid(_LISTED, _LISTED_E, "Nova Lake", 0x01, 0x03)),
    _row(_SPR, "Sapphire Rapids", 0x8F, crystals_hz=(25e6, 24e6)),  # 24: a workstation part
    _row(_SPR, "Emerald Rapids", 0xCF),
    _row(_SPR, "Granite Rapids", 0xAD, 0xAE, limits=None),  # they are in TPMI
    _row(_SIERRA, "Sierra Forest", 0xAF),
    _row(_SIERRA, "Grand Ridge", 0xB6),
    _row(_SIERRA, "Clearwater Forest", 0xDD),
    _row(_PHI, "Knights Landing", 0x57),
    _row(_PHI, "Knights Mill", 0x85),
    _row(_GOLDMONT_PLUS, "Goldmont", 0x5C),
    _row(_GOLDMONT_PLUS, "Denverton", 0x5F, crystals_hz=(25e6,)),
    _row(_GOLDMONT_PLUS, "Goldmont Plus", 0x7A),
    _row(_BONNELL, "Bonnell", 0x1C, 0x26, 0x27, 0x35, 0x36),
)

NAMED = {
    (6, 0x37): "Silvermont",
    (6, 0x4A): "Silvermont",
    (6, 0x4D): "Silvermont",
    (6, 0x5A): "Silvermont",
    (6, 0x4C): "Airmont",
    (6, 0x75): "Airmont",
    (6, 0x86): "Snow Ridge",
    (6, 0x96): "Elkhart Lake",
    (6, 0x9C): "Jasper Lake",
    (6, 0x8A): "Lakefield",
    (6, 0x9D): "Ice Lake NNP-I",
    (19, 0x01): "Diamond Rapids",
}
"""Intel models by family and model that no row tells of. They count what their CPUID announces.
Source: Linux intel-family.h."""

# --- AMD: Linux events/amd/core.c, pmu-events/arch/x86/amdzen*, msr-index.h ----------------------

_ZEN1 = Uarch(
    "",
    "AuthenticAMD",
    smt=2,
    methods=parts.SOFT,  # no event of any Zen sees the sibling
    events={"cycles": Event(0x76), "instructions": Event(0xC0)},
    budget=Budget(6, 0, 48, 0),
    bank=Bank(0xC0010200, 0xC0010201, 2, 0xC0000301),
    clocks=Clocks(mperf=0xC00000E7, aperf=0xC00000E8),  # read-only, so no tool can reset them
    rapl=Rapl(0xC0010299, package=0xC001029B),
    restrictions=event_counters.ZEN,
)
_ZEN2 = replace(
    _ZEN1,
    events={**_ZEN1.events, "smi": Event(0x2B)},
)
# The event counts at the P0 rate, which is the TSC's.
_ZEN4 = replace(
    _ZEN2,
    events={**_ZEN2.events, "ref": Event(0x120, 0x01, "tsc"), "smt_contention": Event(0x1A0, 0x60)},
    slots=6,
)
_ZEN5 = replace(_ZEN4, slots=8)
_ZEN6 = replace(_ZEN4, slots=None)

_ALL = range(0x100)

_ZEN1_17H = {*range(0x30), *range(0x50, 0x60)}
_ZEN3_19H = {*range(0x10), *range(0x20, 0x30), *range(0x40, 0x60)}
_ZEN4_19H = {*range(0x10, 0x20), *range(0x60, 0xB0)}
_ZEN6_1AH = {*range(0x50, 0x60), *range(0x80, 0xB0), *range(0xC0, 0xD0)}

# Models as Linux's bsp_init_amd divides them. In 19h PerfMonV2 decides where CPUID can be believed.
_AMD_ROWS = (
    replace(_row(_ZEN1, "Zen 1", *_ZEN1_17H), family=0x17),
    replace(_row(_ZEN2, "Zen 2", *_ALL), family=0x17),
    replace(_row(_ZEN1, "Zen 1", *_ALL, vendor="HygonGenuine"), family=0x18),
    replace(_row(_ZEN4, "Zen 4", *_ALL), family=0x19, perfmon_v2=True),
    replace(_row(_ZEN2, "Zen 3", *_ALL), family=0x19, perfmon_v2=False),
    replace(_row(_ZEN2, "Zen 3", *_ZEN3_19H), family=0x19),
    replace(_row(_ZEN4, "Zen 4", *_ZEN4_19H), family=0x19),
    replace(_row(_ZEN2, "Zen 3 or 4", *_ALL), family=0x19),
    replace(_row(_ZEN6, "Zen 6", *_ZEN6_1AH), family=0x1A),
    replace(_row(_ZEN5, "Zen 5", *_ALL), family=0x1A),
)

ROWS = _INTEL_ROWS + _AMD_ROWS
