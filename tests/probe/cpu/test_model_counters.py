"""The events that a model counts and its number of counters, from tables and CPUID."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from cpu_models import (
    AMD,
    ANY,
    INTEL,
    V3_BONNELL,
    V4,
    V5,
    V5_GRACEMONT,
    V6,
    machine,
)

from perfprobe.cpu.cpuid import LeafRegisters, Leaves, read_no_leaf
from perfprobe.cpu.model import (
    base_rate_candidates,
    find_uarch,
    multiplier_candidates,
    tsc_rate_candidates,
)
from perfprobe.cpu.model_terms import ClockRegisters, CounterBudget, Event

# --- events ---------------------------------------------------------------------------------------


def configs(events: Mapping[str, Event]) -> dict[str, int]:
    return {key: event.config for key, event in events.items()}


ARCHITECTURAL = {"ref": 0x0300, "cycles": 0x003C, "instructions": 0x00C0, "ref_p": 0x013C}


@pytest.mark.parametrize("model", [0x55, 0x3C, 0x1A, 0x57, 0x1C])
def test_no_anythread_if_cpuid_denies_it(model: int) -> None:
    for leaves in (machine((0x07300402, 0x8603)), machine((0x07300404, 0x8603)), read_no_leaf):
        result = find_uarch(INTEL, 6, model, 0, leaves)
        assert "any_thread" not in result.events
        assert "any-thread" not in result.smt_methods


def test_a_guest_without_counters_has_none() -> None:
    result = find_uarch(INTEL, 6, 0x55, 4, machine((0, 0)))
    assert result.budget == CounterBudget(0, 0, 0, 0)
    assert result.events == {}
    assert result.license_events == {}
    assert result.smt_methods == ("traced", "bounds")
    assert multiplier_candidates(result, machine((0, 0)), 0x1500) == []


@pytest.mark.parametrize(("edx", "mask"), [(1 << 13, 0b1000), (1 << 13 | 1 << 11, 0), (0, 0)])
def test_microcode_may_use_the_fourth_counter_for_transactions(edx: int, mask: int) -> None:
    """Intel, "Performance Monitoring Impact of Intel TSX Memory Ordering Issue": counter 3."""
    result = find_uarch(INTEL, 6, 0x55, 4, machine(V4, x07=(0, 0, 0, edx)))
    assert result.budget == CounterBudget(4, 3, 48, 48, mask)


# --- hybrids --------------------------------------------------------------------------------------

HYBRID = (2, 0, 0, 1 << 15)
BARE = (0x90672, 0, 0, 0)


def test_cpuid_tells_the_core_type_of_a_hybrids_cpu() -> None:
    p = find_uarch(INTEL, 6, 0x97, 2, machine(V5, x01=BARE, x07=HYBRID, x1A=(0x40000001, 0, 0, 0)))
    e = find_uarch(
        INTEL, 6, 0x97, 2, machine(V5_GRACEMONT, x01=BARE, x07=HYBRID, x1A=(0x20000001, 0, 0, 0))
    )
    assert (p.core_type, p.threads_per_core, p.budget) == ("P", 2, CounterBudget(8, 4, 48, 48))
    assert (e.core_type, e.threads_per_core, e.budget) == ("E", 1, CounterBudget(6, 3, 48, 48))


def test_a_hybrid_of_unknown_type_has_only_architectural_events() -> None:
    guest = machine(V5, x01=(0x90672, 0, 1 << 31, 0), x07=(2, 0, 0, 0))
    for leaves in (guest, machine(V5, x01=BARE, x07=HYBRID)):
        result = find_uarch(INTEL, 6, 0x97, 2, leaves)
        assert result.name == "unknown (GenuineIntel family 6 model 97h)"
        assert result.events.keys() == {"ref", "cycles", "instructions", "ref_p"}
        assert result.license_events == {}


# --- unknown models -------------------------------------------------------------------------------


def test_an_unknown_model_has_what_cpuid_reports() -> None:
    old = find_uarch(INTEL, 6, 0xF0, 1, machine(V4, x01=(0xF0601, 0, 0, 1 << 22), x06=(0, 0, 1, 0)))
    assert configs(old.events) == {**ARCHITECTURAL, "any_thread": 0x20013C}
    assert old.smt_methods == ("any-thread", "traced", "bounds")
    assert old.budget == CounterBudget(4, 3, 48, 48)
    assert old.clocks == ClockRegisters(0xE7, 0xE8)
    assert (old.turbo, old.limits, old.rapl, old.threads_per_core, *old.residencies) == (None,) * 4
    new = find_uarch(INTEL, 6, 0xF1, 1, machine(V5))
    assert new.smt_methods == ("traced", "bounds")
    assert "any_thread" not in new.events


def test_an_unknown_model_may_lack_the_reference_event() -> None:
    result = find_uarch(INTEL, 6, 0xF0, 1, machine(None, x0A=(0x07300403, 0x4, 0, 0x603)))
    assert result.events.keys() == {"ref", "cycles", "instructions"}
    assert result.smt_methods == ("traced", "bounds")
    known = find_uarch(INTEL, 6, 0x1A, 5, machine(None, x0A=(0x07300403, 0x4, 0, 0x603)))
    assert known.smt_methods == ANY  # Nehalem's own event has the same code


# --- counters missing from leaf 0AH ---------------------------------------------------------------


@pytest.mark.parametrize("model", [0xBD, 0xC5, 0xC6])
def test_p_cores_of_lunar_and_arrow_lake_have_ten_and_four(model: int) -> None:
    """Leaf 0AH reports only the counters that both core types have: 8 and 3."""
    shared = machine(V6, x00=(0x23, 0x756E6547, 0x6C65746E, 0x49656E69), x23=(0b11, 0, 0, 0))

    def p_core(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
        return (0x3FF, 0xF, 0, 0) if (leaf, subleaf) == (0x23, 1) else shared(leaf, subleaf)

    assert find_uarch(INTEL, 6, model, 0, p_core, "P").budget == CounterBudget(10, 4, 48, 48)
    assert find_uarch(INTEL, 6, model, 0, shared, "P").budget == CounterBudget(8, 3, 48, 48)


def test_counters_after_a_gap_are_left_out() -> None:
    shared = machine(V6, x00=(0x23, 0x756E6547, 0x6C65746E, 0x49656E69), x23=(0b11, 0, 0, 0))

    def gap(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
        return (0xFF, 0x77, 0, 0) if (leaf, subleaf) == (0x23, 1) else shared(leaf, subleaf)

    assert find_uarch(INTEL, 6, 0xBD, 0, gap, "E").budget == CounterBudget(8, 3, 48, 48)


@pytest.mark.parametrize(("bits", "fixed"), [(0, 3), (1 << 31, 1)])
def test_bonnell_has_three_fixed_counters_unless_a_hypervisor_reports_one(
    bits: int, fixed: int
) -> None:
    result = find_uarch(INTEL, 6, 0x1C, 2, machine(V3_BONNELL, x01=(0x106C2, 0, bits, 0)))
    assert result.budget == CounterBudget(2, fixed, 40, 40)
    assert ("ref" in result.events) is (fixed == 3)


def zeros(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
    return 0, 0, 0, 0


@pytest.mark.parametrize("leaves", [read_no_leaf, zeros])
@pytest.mark.parametrize("vendor", ["", INTEL, AMD, "CentaurHauls"])
@pytest.mark.parametrize(("family", "model"), [(None, None), (6, 0xF0), (6, None), (0x15, 2)])
def test_an_unknown_cpu_has_no_events_or_clocks(
    vendor: str, family: int | None, model: int | None, leaves: Leaves
) -> None:
    result = find_uarch(vendor, family, model, None, leaves)
    assert result.name.startswith("unknown (")
    assert result.events == {}
    assert result.smt_methods == ("traced", "bounds")
    unknown = result.counter_registers, result.clocks, result.thermal, result.budget
    assert unknown == (None,) * 4
    assert multiplier_candidates(result, leaves, None) == []
    assert tsc_rate_candidates(result, leaves, None) == []
    assert base_rate_candidates(result, leaves, None) == []
