"""Finds the events that a CPU can count, and candidates for the rates of its reference clocks. The
model's row in model_tables is reduced to the events and registers that CPUID reports; a model
without a row has only the events and registers of CPUID."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from perfprobe.cpu import cpuid
from perfprobe.cpu.cpuid import Leaves
from perfprobe.cpu.model_tables import (
    CLOCKS,
    CYCLES,
    INSTRUCTIONS,
    INTEL_COUNTER_REGISTERS,
    MODEL_ROWS,
    REF,
    THERMAL,
    UNLISTED_MODEL_NAMES,
    ref_p_event,
)
from perfprobe.cpu.model_terms import METHOD_EVENTS, CountedClock, CounterBudget, Event, Uarch
from perfprobe.wire import Identity, Multiplier, Rate

INTEL = "GenuineIntel"
AMD = {"AuthenticAMD", "HygonGenuine"}
TSX_COUNTER = 3
"""The general counter that microcode uses for transactions on some CPUs."""


def find_uarch(
    vendor: str,
    family: int | None,
    model: int | None,
    stepping: int | None,
    leaves: Leaves = cpuid.read_no_leaf,
    core_type: str | None = None,
) -> Uarch:
    """Returns the microarchitecture of one CPU, without events, SMT methods and registers that
    CPUID reports as unavailable. On hybrids, call this for each core type with the leaves of such a
    CPU. `core_type` (as in the topology) is used if the leaves do not show the type."""
    core_type = core_type or cpuid.core_type(leaves)
    is_bare_metal = cpuid.has_feature(leaves, "hypervisor") is False
    # The core type for which a hybrid model's row is chosen. CPUs of a hybrid model without E cores
    # do not set the hybrid bit of CPUID.
    row_type = None if core_type is None else "P" if core_type == "P" else "E"
    if row_type is None and is_bare_metal and cpuid.has_feature(leaves, "hybrid") is False:
        row_type = "P"
    has_perfmon_v2 = cpuid.has_feature(leaves, "amd-perfmon-v2")
    v2 = has_perfmon_v2 if has_perfmon_v2 or is_bare_metal else None
    for row in MODEL_ROWS:
        if row.uarch.vendor == vendor and row.family == family and model in row.models:
            has_stepping = row.steppings is None or stepping is None or stepping in row.steppings
            has_type = row.core_type in {None, row_type}
            if has_stepping and has_type and row.perfmon_v2 in {None, v2}:
                return _fitted_uarch(row.uarch, leaves, core_type if row.core_type else None)
    return _fitted_uarch(_unknown_uarch(vendor, family, model, leaves), leaves, core_type)


def select_uarch(
    identity: Identity, leaves: Leaves, core_type: str | None = None, method: str | None = None
) -> Uarch:
    """Returns the microarchitecture of a CPU. `method`: the SMT method that the user asked for,
    which then replaces all others if the CPU has it."""
    numbers = identity.family, identity.model, identity.stepping
    uarch = find_uarch(identity.vendor, *numbers, leaves, core_type)
    return replace(uarch, smt_methods=(method,)) if method in uarch.smt_methods else uarch


def _unknown_uarch(vendor: str, family: int | None, model: int | None, leaves: Leaves) -> Uarch:
    """Returns the microarchitecture of a model without a row: only what CPUID reports."""
    pmu = cpuid.perfmon(leaves)
    events: dict[str, Event] = {}
    if pmu is not None:
        reference = ref_p_event("unknown")
        architectural = (
            (0, "cycles", CYCLES),
            (1, "instructions", INSTRUCTIONS),
            (2, "ref_p", reference),
            (2, "any_thread", replace(reference, any_thread=True)),
        )
        events = {key: event for bit, key, event in architectural if bit in pmu.events}
        if pmu.version:
            events["ref"] = REF
    name = UNLISTED_MODEL_NAMES.get((family or 0, model or 0)) if vendor == INTEL else None
    numbers = "" if family is None or model is None else f" family {family} model {model:02X}h"
    thermal = cpuid.has_feature(leaves, "thermal")
    return Uarch(
        name or f"unknown ({vendor or 'no vendor'}{numbers})",
        vendor,
        threads_per_core=None,
        smt_methods=("any-thread", "traced", "bounds"),
        events=events,
        counter_registers=INTEL_COUNTER_REGISTERS if events else None,
        clocks=CLOCKS if cpuid.has_feature(leaves, "aperfmperf") else None,
        thermal=replace(THERMAL, package_msr=None, tjmax_msr=None) if thermal else None,
    )


# --- fitting a row to CPUID ----------------------------------------------------------------------


def _fitted_uarch(row: Uarch, leaves: Leaves, core_type: str | None) -> Uarch:
    is_amd, budget, pmu = row.vendor in AMD, row.budget, cpuid.perfmon(leaves)
    if is_amd:
        count = cpuid.amd_counter_count(leaves)
        budget = replace(budget, general_count=count) if budget and count else budget
    elif pmu is not None:
        # Microcode may use a counter for transactions. If so, Linux does not use that counter.
        aborts = cpuid.has_feature(leaves, "rtm-always-aborts")
        lends_counter = cpuid.has_feature(leaves, "tsx-force-abort") and not aborts
        microcode_mask = 1 << TSX_COUNTER if lends_counter else 0
        budget = CounterBudget(
            pmu.general_count, pmu.fixed_count, pmu.general_bits, pmu.fixed_bits, microcode_mask
        )
    events = {
        key: event
        for key, event in row.events.items()
        if _is_countable(event, budget)
        and (not event.any_thread or cpuid.has_working_any_thread(leaves))
    }
    bank = row.counter_registers
    if is_amd and bank and not cpuid.has_feature(leaves, "amd-perfmon-v2"):
        bank = replace(bank, enable_msr=None)
    clocks, thermal = row.clocks, row.thermal
    if clocks and not (is_amd and cpuid.has_feature(leaves, "aperfmperf-read-only") is not False):
        lacking = cpuid.has_feature(leaves, "aperfmperf") is False
        clocks = None if lacking else replace(clocks, mperf=CLOCKS.mperf, aperf=CLOCKS.aperf)
    if thermal and cpuid.has_feature(leaves, "thermal") is False:
        thermal = None
    elif thermal:
        bits = (b for b in thermal.status_bits if cpuid.has_feature(leaves, b[2]) is not False)
        thermal = replace(thermal, status_bits=tuple(bits))
    return replace(
        row,
        events=events,
        smt_methods=tuple(
            m for m in row.smt_methods if m not in METHOD_EVENTS or METHOD_EVENTS[m] in events
        ),
        license_events={k: e for k, e in row.license_events.items() if _is_countable(e, budget)},
        budget=budget,
        counter_registers=bank,
        clocks=clocks,
        thermal=thermal,
        core_type=core_type,
    )


def _is_countable(event: Event, budget: CounterBudget | None) -> bool:
    if budget is None:
        return True
    on_fixed = event.fixed_counter is not None and event.fixed_counter < budget.fixed_count
    return on_fixed or (event.code != 0 and budget.general_count > 0)


# --- clock rates ----------------------------------------------------------------------------------
# A multiplier is the number of TSC ticks in one tick of an event. CPUID and one MSR give only
# candidates for multipliers and clock rates; a measurement decides between them.

SCALED_EVENTS = ("ref_p", "one_thread", "any_thread", "distributed")
"""Keys of the events whose counts need a multiplier."""

FactorOrigin = Literal["tsc", "crystal", "four", "base"]

# Sources of candidate multipliers, likeliest first, by the clock that an event counts according to
# the table of CPU models. The table is often wrong, so nearly all sources are tried. For crystal
# and bus clock, the TSC's own rate is never the only candidate.
_FACTOR_ORIGINS: dict[CountedClock, tuple[FactorOrigin, ...]] = {
    "core": (),
    "tsc": ("tsc", "crystal"),
    "crystal": ("crystal", "four", "tsc", "base"),
    "xclk": ("base", "tsc", "crystal", "four"),
    "unknown": ("tsc", "crystal", "base", "four"),
}


def multiplier_candidates(
    uarch: Uarch, leaves: Leaves, platform_info: int | None, tsc_hz: float | None = None
) -> list[Multiplier]:
    """Returns candidates for the multiplier of each event that the CPU can count, best first. Equal
    factors are merged and keep both reasons. An event of unknown rate has no candidate.

    `platform_info` is MSR CEH. Where it cannot be read, the measured `tsc_hz` replaces it.
    """
    factors: dict[FactorOrigin, tuple[float, str]] = {"tsc": (1.0, "at the rate of the TSC")}
    crystal = cpuid.crystal(leaves)
    if crystal is not None:
        reason = f"core crystal: CPUID.15H {crystal.numerator}/{crystal.denominator}"
        factors["crystal"] = (crystal.ratio, reason)
    # The ratio of base clock to bus clock. The TSC's rate is within one bus clock of that ratio.
    ratio, origin = _base_ratio(uarch, platform_info), "MSR CEH"
    if not ratio and uarch.bclk_hz is not None:
        if mhz := cpuid.base_mhz(leaves):
            ratio, origin = round(mhz * 1e6 / uarch.bclk_hz), "CPUID.16H"
        elif tsc_hz is not None:
            ratio, origin = round(tsc_hz / uarch.bclk_hz), "TSC frequency"
    if ratio:
        factors["base"] = (float(ratio), f"base ratio {ratio}, {origin}")
        factors["four"] = (4.0 * ratio, f"25 MHz crystal: 4 x base ratio {ratio}, {origin}")
    candidates: list[Multiplier] = []
    for key in SCALED_EVENTS:
        event = uarch.events.get(key)
        if event is None:
            continue
        reasons: dict[float, list[str]] = {}
        for factor_origin in _FACTOR_ORIGINS[event.counted_clock]:
            if factor_origin in factors:
                factor, reason = factors[factor_origin]
                reasons.setdefault(factor, []).append(reason)
        if event.counted_clock in {"crystal", "xclk"} and len(reasons) == 1 and 1.0 in reasons:
            continue
        candidates += [
            Multiplier(key, factor, "; ".join(reason), uarch.core_type)
            for factor, reason in reasons.items()
        ]
    return candidates


def _base_ratio(uarch: Uarch, platform_info: int | None) -> int:
    """Returns the ratio of base clock to bus clock, bits 15:8 of PLATFORM_INFO; 0 if unknown, and
    for vendors other than Intel, which have no such MSR."""
    return 0 if uarch.vendor != INTEL or platform_info is None else platform_info >> 8 & 0xFF


NOMINAL_ERROR = 0.0024
"""Relative error of a nominal TSC rate, as on a Xeon 8160, whose crystal has spread spectrum."""
BASE_ERROR = 0.013
"""Relative error if the base frequency is used as the TSC's rate. In InstLatx64's dumps of models
with CPUID leaf 15H, 46 of 169 differ by more than 0.4 %: 0.9 % on Arrow Lake-HX, at most 1.3 %."""


def tsc_rate_candidates(uarch: Uarch, leaves: Leaves, platform_info: int | None) -> list[Rate]:
    """Returns candidates for the TSC's rate from CPUID and MSR CEH (`platform_info`), best first;
    none for vendors other than Intel. They are nominal rates, so a measurement is better."""
    if uarch.vendor != INTEL:
        return []
    bases = base_rate_candidates(uarch, leaves, platform_info)
    candidates: list[Rate] = []
    crystal = cpuid.crystal(leaves)
    if crystal is not None:
        ratio = f"CPUID.15H {crystal.numerator}/{crystal.denominator}"
        if crystal.hz is not None:
            origin = f"{ratio} x {crystal.hz / 1e6:g} MHz"
            candidates.append(Rate(crystal.hz * crystal.ratio, origin, NOMINAL_ERROR))
        else:
            rates = [hz * crystal.ratio for hz in uarch.crystals_hz]
            if bases:
                rates.sort(key=lambda hz: abs(hz - bases[0].hz))
            error = NOMINAL_ERROR if bases or len(rates) == 1 else None
            for hz in rates:
                origin = f"{ratio} x {hz / crystal.ratio / 1e6:g} MHz, the crystal by model"
                candidates.append(Rate(hz, origin, error))
    return candidates + [Rate(r.hz, f"{r.origin}, taken for the TSC's", BASE_ERROR) for r in bases]


def base_rate_candidates(uarch: Uarch, leaves: Leaves, platform_info: int | None) -> list[Rate]:
    """Returns candidates for the nominal base ("maximum non-turbo") frequency, best first; none for
    vendors other than Intel."""
    if uarch.vendor != INTEL:
        return []
    candidates: list[Rate] = []
    ratio = _base_ratio(uarch, platform_info)
    if ratio and uarch.bclk_hz is not None:
        origin = f"MSR CEH: {ratio} x {uarch.bclk_hz / 1e6:g} MHz"
        candidates.append(Rate(ratio * uarch.bclk_hz, origin))
    if mhz := cpuid.base_mhz(leaves):
        candidates.append(Rate(mhz * 1e6, f"CPUID.16H: {mhz} MHz"))
    return candidates
