"""Events and registers that several models share; `model_tables` combines them.

Sources: events from Intel's perfmon event lists; MSRs from Linux msr-index.h and turbostat, except
where a table names its own.
"""

from __future__ import annotations

from perfprobe.cpu.model_terms import (
    Bank,
    Clocks,
    Event,
    Limits,
    Rapl,
    Residency,
    Thermal,
    Tick,
    Turbo,
)

# --- events ---------------------------------------------------------------------------------------

CYCLES = Event(0x3C, 0x00, fixed=1)
INSTRUCTIONS = Event(0xC0, 0x00, fixed=0)
REF = Event(0x00, 0x03, "tsc", fixed=2)  # Linux's pseudo code


def ref_p(tick: Tick) -> Event:
    return Event(0x3C, 0x01, tick)


def one_thread(tick: Tick) -> dict[str, Event]:
    """Reference cycles of the thread, and those with the sibling halted."""
    return {"ref_p": ref_p(tick), "one_thread": Event(0x3C, 0x02, tick)}


def any_thread(tick: Tick) -> dict[str, Event]:
    return {"any_thread": Event(0x3C, 0x01, tick, any_thread=True)}


FIXED = {"ref": REF, "cycles": CYCLES, "instructions": INSTRUCTIONS}
UNSTATED = {**FIXED, "ref_p": ref_p("unknown")}
ANY_ONLY = {**UNSTATED, **any_thread("unknown")}
XCLK = {**FIXED, **one_thread("xclk"), **any_thread("xclk")}
CRYSTAL = {**FIXED, **one_thread("crystal"), **any_thread("crystal")}
DISTRIBUTED = {
    **FIXED, **one_thread("crystal"), "distributed": Event(0x3C, 0x08, "crystal"),
}  # fmt: skip
# From Golden Cove on one event code has two rates: 0x3C/0x01 runs at the TSC's (REF_TSC_P, which
# Linux may put on fixed counter 2), the other umasks still at the crystal's.
GOLDEN = {**DISTRIBUTED, "ref_p": ref_p("tsc")}
TSC_ONLY = {**FIXED, "ref_p": ref_p("tsc")}  # no SMT: E cores, Lion Cove

# Later cores use these codes for other events, so no base row has them.
LEVELS = {
    "license_1": Event(0x28, 0x18),
    "license_2": Event(0x28, 0x20),
}
LEVELS_SKX = {**LEVELS, "license_throttle": Event(0x28, 0x40)}
LICENSES = {
    "license_1": Event(0x28, 0x02),
    "license_2": Event(0x28, 0x04),
    "license_3": Event(0x28, 0x08),
}

SOFT = ("traced", "bounds")
SINGLE = ("single",)

# --- registers: Linux msr-index.h, turbostat; limit names of 0x690 turbostat's, of 0x64F CoreFreq's

INTEL_BANK = Bank(0x186, 0xC1, 1, 0x38F)
CLOCKS = Clocks(mperf=0xE7, aperf=0xE8)
RAPL = Rapl(0x606, limits=0x610, throttled=0x613)

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
LIMITS_HASWELL = Limits(
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
LIMITS_SKYLAKE = Limits(
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
TRL = Turbo("per-count", (0x1AD,))
TRL_16 = Turbo("per-count", (0x1AD, 0x1AE))  # Broadwell-EP: turbostat reads the first only
TRL_18 = Turbo("per-count", (0x1AD, 0x1AE, 0x1AF))
TRL_E = Turbo("per-count", (0x650,))
TRL_GROUPS = Turbo("groups", (0x1AD,), 0x1AE)
TRL_KNL = Turbo("knl", (0x1AD,))

# The union of Linux events/intel/cstate.c and turbostat.
C1 = Residency("c1", "core", 0x660)
C3 = Residency("c3", "core", 0x3FC)
C6 = Residency("c6", "core", 0x3FD)
C7 = Residency("c7", "core", 0x3FE)
C6_KNL = Residency("c6", "core", 0x3FF)
PC = tuple(
    Residency(name, "package", msr)
    for name, msr in (("pc2", 0x60D), ("pc3", 0x3F8), ("pc6", 0x3F9), ("pc7", 0x3FA))
)
PC_DEEP = (
    *PC,
    *(Residency(f"pc{n}", "package", msr) for n, msr in ((8, 0x630), (9, 0x631), (10, 0x632))),
)
DEEP = (C3, C6, C7, *PC_DEEP)
