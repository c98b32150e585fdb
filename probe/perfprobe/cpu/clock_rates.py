"""How fast the reference clocks tick: multipliers and frequencies from CPUID and one MSR.

These are candidates only; a measurement decides between them.
"""

from __future__ import annotations

from typing import Literal

from perfprobe.cpu import cpuid
from perfprobe.cpu.cpuid import Leaves
from perfprobe.cpu.model import INTEL
from perfprobe.cpu.model_terms import Tick, Uarch
from perfprobe.wire import Multiplier, Rate

SCALED = ("ref_p", "one_thread", "any_thread", "distributed")
"""Events whose ticks need a multiplier."""

# --- multipliers ---------------------------------------------------------------------------------

Belief = Literal["tsc", "crystal", "four", "base"]

# Best first. Tables are often wrong, so all four are candidates for events that need a multiplier.
# Where an event's tick is stated, the TSC's own rate is never the only candidate.
_BELIEFS: dict[Tick, tuple[Belief, ...]] = {
    "core": (),
    "tsc": ("tsc", "crystal"),
    "crystal": ("crystal", "four", "tsc", "base"),
    "xclk": ("base", "tsc", "crystal", "four"),
    "unknown": ("tsc", "crystal", "base", "four"),
}


def multipliers(
    uarch: Uarch, leaves: Leaves, platform_info: int | None, tsc_hz: float | None = None
) -> list[Multiplier]:
    """Candidates for each event that the CPU can count, best first. Equal factors are merged and
    keep both reasons. An event whose rate is unknown has no candidate.

    `platform_info` is MSR CEH. Where it cannot be read, the measured `tsc_hz` replaces it.
    """
    known = _known(uarch, leaves, platform_info, tsc_hz)
    found: list[Multiplier] = []
    for key in SCALED:
        event = uarch.events.get(key)
        if event is None:
            continue
        reasons: dict[float, list[str]] = {}
        for belief in _BELIEFS[event.tick]:
            if belief in known:
                factor, why = known[belief]
                reasons.setdefault(factor, []).append(why)
        if event.tick in {"crystal", "xclk"} and len(reasons) == 1 and 1.0 in reasons:
            continue
        found += [
            Multiplier(key, factor, "; ".join(why), uarch.core_type)
            for factor, why in reasons.items()
        ]
    return found


def _known(
    uarch: Uarch, leaves: Leaves, platform_info: int | None, tsc_hz: float | None
) -> dict[Belief, tuple[float, str]]:
    known: dict[Belief, tuple[float, str]] = {"tsc": (1.0, "at the rate of the TSC")}
    crystal = cpuid.crystal(leaves)
    if crystal is not None:
        why = f"core crystal: CPUID.15H {crystal.numerator}/{crystal.denominator}"
        known["crystal"] = (crystal.ratio, why)
    ratio, origin = _base_ratio(uarch, leaves, platform_info, tsc_hz)
    if ratio > 0:
        known["base"] = (float(ratio), f"base ratio {ratio}, {origin}")
        known["four"] = (4.0 * ratio, f"25 MHz crystal: 4 x base ratio {ratio}, {origin}")
    return known


def _base_ratio(
    uarch: Uarch, leaves: Leaves, platform_info: int | None, tsc_hz: float | None
) -> tuple[int, str]:
    """The ratio of base clock to bus clock, and its origin; 0: unknown. The TSC runs at the base
    ratio, to within less than one bus clock."""
    if ratio := _ratio(uarch, platform_info):
        return ratio, "MSR CEH"
    if uarch.bclk_hz is not None:
        if mhz := cpuid.base_mhz(leaves):
            return round(mhz * 1e6 / uarch.bclk_hz), "CPUID.16H"
        if tsc_hz is not None:
            return round(tsc_hz / uarch.bclk_hz), "TSC frequency"
    return 0, ""


def _ratio(uarch: Uarch, platform_info: int | None) -> int:
    """Bits 15:8 of PLATFORM_INFO; other vendors have no such MSR."""
    return 0 if uarch.vendor != INTEL or platform_info is None else platform_info >> 8 & 0xFF


# --- frequencies ---------------------------------------------------------------------------------

NOMINAL_ERROR = 0.0024  # a Xeon 8160's TSC against wall time: spread spectrum on the crystal
BASE_ERROR = 0.004  # base frequency for TSC: 4000 MHz where it is 4008, on 24 MHz crystals


def tsc_hz(uarch: Uarch, leaves: Leaves, platform_info: int | None) -> list[Rate]:
    """Candidates from CPUID and the MSR, best first. They are nominal, so a measurement is better.
    Empty for other vendors than Intel."""
    if uarch.vendor != INTEL:
        return []
    bases = base_hz(uarch, leaves, platform_info)
    found: list[Rate] = []
    crystal = cpuid.crystal(leaves)
    if crystal is not None:
        found += _by_crystal(crystal, uarch, bases[0].hz if bases else None)
    return found + [Rate(r.hz, f"{r.origin}, taken for the TSC's", BASE_ERROR) for r in bases]


def _by_crystal(crystal: cpuid.Crystal, uarch: Uarch, base: float | None) -> list[Rate]:
    ratio = f"CPUID.15H {crystal.numerator}/{crystal.denominator}"
    if crystal.hz is not None:
        origin = f"{ratio} x {crystal.hz / 1e6:g} MHz"
        return [Rate(crystal.hz * crystal.ratio, origin, NOMINAL_ERROR)]
    rates = [hz * crystal.ratio for hz in uarch.crystals_hz]
    if base is not None:
        rates.sort(key=lambda hz: abs(hz - base))
    sure = base is not None or len(rates) == 1
    return [
        Rate(
            hz,
            f"{ratio} x {hz / crystal.ratio / 1e6:g} MHz, the crystal by model",
            NOMINAL_ERROR if sure else None,
        )
        for hz in rates
    ]


def base_hz(uarch: Uarch, leaves: Leaves, platform_info: int | None) -> list[Rate]:
    """The nominal base ("maximum non-turbo") frequency. Empty for other vendors than Intel."""
    if uarch.vendor != INTEL:
        return []
    found: list[Rate] = []
    ratio = _ratio(uarch, platform_info)
    if ratio and uarch.bclk_hz is not None:
        origin = f"MSR CEH: {ratio} x {uarch.bclk_hz / 1e6:g} MHz"
        found.append(Rate(ratio * uarch.bclk_hz, origin))
    if mhz := cpuid.base_mhz(leaves):
        found.append(Rate(mhz * 1e6, f"CPUID.16H: {mhz} MHz"))
    return found
