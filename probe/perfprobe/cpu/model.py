"""What this CPU can count: the model's row in the table, fitted to the CPU's CPUID.

An unknown model gets only what CPUID announces.
"""

from __future__ import annotations

from perfprobe.cpu import cpuid
from perfprobe.cpu.cpuid import Leaves
from perfprobe.cpu.model_parts import CLOCKS, CYCLES, INSTRUCTIONS, INTEL_BANK, REF, THERMAL, ref_p
from perfprobe.cpu.model_tables import NAMED, ROWS
from perfprobe.cpu.model_terms import METHODS, Bank, Budget, Clocks, Event, Thermal, Uarch
from perfprobe.frozen import replace
from perfprobe.wire import Identity

INTEL = "GenuineIntel"
AMD = {"AuthenticAMD", "HygonGenuine"}


def find(
    vendor: str,
    family: int | None,
    model: int | None,
    stepping: int | None,
    leaves: Leaves = cpuid.unreadable,
    core_type: str | None = None,
) -> Uarch:
    """What one CPU can count. On hybrids call it for each core type, with leaves read on a CPU of
    that type; `core_type`, as in the topology, serves where leaves do not tell.

    Events, methods and registers that CPUID denies are left out.
    """
    core_type = core_type or cpuid.core_type(leaves)
    side = _side(core_type, leaves)
    v2 = _perfmon_v2(leaves)
    for row in ROWS:
        if row.uarch.vendor == vendor and row.family == family and model in row.models:
            stepped = row.steppings is None or stepping is None or stepping in row.steppings
            sided = row.core_type in {None, side}
            if stepped and sided and row.perfmon_v2 in {None, v2}:
                return _fitted(row.uarch, leaves, core_type if row.core_type else None)
    return _fitted(_unknown(vendor, family, model, leaves), leaves, core_type)


def of(who: Identity, leaves: Leaves, core_type: str | None = None) -> Uarch:
    """What a CPU of this machine can count."""
    return find(who.vendor, who.family, who.model, who.stepping, leaves, core_type)


def preferring(uarch: Uarch, method: str | None) -> Uarch:
    """The model with one SMT method, if the user asked for one and the CPU has it."""
    if method is None or method not in uarch.methods:
        return uarch
    return replace(uarch, methods=(method,))


def _side(core_type: str | None, leaves: Leaves) -> str | None:
    """Which of a hybrid model's rows applies. CPUID does not call parts without E cores hybrids."""
    if core_type is not None:
        return "P" if core_type == "P" else "E"
    bare = cpuid.has(leaves, "hypervisor") is False
    return "P" if bare and cpuid.has(leaves, "hybrid") is False else None


def _perfmon_v2(leaves: Leaves) -> bool | None:
    found = cpuid.has(leaves, "amd-perfmon-v2")
    return found if found or cpuid.has(leaves, "hypervisor") is False else None


def _unknown(vendor: str, family: int | None, model: int | None, leaves: Leaves) -> Uarch:
    """A model that is not in the table: architectural events and registers only."""
    found = cpuid.perfmon(leaves)
    events: dict[str, Event] = {}
    if found is not None:
        reference = ref_p("unknown")
        architectural = (
            (0, "cycles", CYCLES),
            (1, "instructions", INSTRUCTIONS),
            (2, "ref_p", reference),
            (2, "any_thread", replace(reference, any_thread=True)),
        )
        events = {key: event for bit, key, event in architectural if bit in found.events}
        if found.version:
            events["ref"] = REF
    known = NAMED.get((family or 0, model or 0)) if vendor == INTEL else None
    numbers = "" if family is None or model is None else f" family {family} model {model:02X}h"
    thermal = cpuid.has(leaves, "thermal")
    return Uarch(
        known or f"unknown ({vendor or 'no vendor'}{numbers})",
        vendor,
        smt=None,
        methods=("any-thread", "traced", "bounds"),
        events=events,
        bank=INTEL_BANK if events else None,
        clocks=CLOCKS if cpuid.has(leaves, "aperfmperf") else None,
        thermal=replace(THERMAL, package=None, tjmax=None) if thermal else None,
    )


# --- fitting a row to CPUID ----------------------------------------------------------------------


def _fitted(row: Uarch, leaves: Leaves, core_type: str | None) -> Uarch:
    budget = _budget(row, leaves)
    events = {
        key: event
        for key, event in row.events.items()
        if _countable(event, budget) and (not event.any_thread or cpuid.anythread(leaves))
    }
    return replace(
        row,
        events=events,
        methods=tuple(m for m in row.methods if m not in METHODS or METHODS[m] in events),
        licenses={k: e for k, e in row.licenses.items() if _countable(e, budget)},
        budget=budget,
        bank=_bank(row, leaves),
        clocks=_clocks(row, leaves),
        thermal=_thermal(row, leaves),
        core_type=core_type,
    )


def _budget(row: Uarch, leaves: Leaves) -> Budget | None:
    if row.vendor in AMD:
        gp = cpuid.amd_counters(leaves)
        return replace(row.budget, gp=gp) if row.budget and gp else row.budget
    found = cpuid.perfmon(leaves)
    if found is None:
        return row.budget
    lent = 1 << cpuid.TSX_COUNTER if cpuid.lent_to_tsx(leaves) else 0
    return Budget(found.gp, found.fixed, found.gp_bits, found.fixed_bits, lent)


def _countable(event: Event, budget: Budget | None) -> bool:
    if budget is None:
        return True
    on_fixed = event.fixed is not None and event.fixed < budget.fixed
    return on_fixed or (event.code != 0 and budget.gp > 0)


def _bank(row: Uarch, leaves: Leaves) -> Bank | None:
    if row.vendor in AMD and row.bank and not cpuid.has(leaves, "amd-perfmon-v2"):
        return replace(row.bank, control=None)
    return row.bank


def _clocks(row: Uarch, leaves: Leaves) -> Clocks | None:
    clocks = row.clocks
    if clocks is None:
        return None
    if row.vendor in AMD and cpuid.has(leaves, "aperfmperf-read-only") is not False:
        return clocks
    if cpuid.has(leaves, "aperfmperf") is False:
        return None
    return replace(clocks, mperf=CLOCKS.mperf, aperf=CLOCKS.aperf)


def _thermal(row: Uarch, leaves: Leaves) -> Thermal | None:
    if row.thermal is None or cpuid.has(leaves, "thermal") is False:
        return None
    bits = tuple(bit for bit in row.thermal.bits if cpuid.has(leaves, bit[2]) is not False)
    return replace(row.thermal, bits=bits)
