"""The registers of each model and their meaning: turbo, idle states, limits."""

from __future__ import annotations

import pytest
from cpu_models import INTEL, V4, machine

from perfprobe.cpu.model import find

# --- registers ------------------------------------------------------------------------------------

# turbostat's dump_turbo_ratio_limits and what it is called with
TURBO: dict[int, tuple[str, tuple[int, ...], int | None]] = {
    0x1A: ("per-count", (0x1AD,), None),
    0x2D: ("per-count", (0x1AD,), None),
    0x3E: ("per-count", (0x1AD, 0x1AE), None),
    0x3F: ("per-count", (0x1AD, 0x1AE, 0x1AF), None),
    0x4F: ("per-count", (0x1AD, 0x1AE), None),
    0x5E: ("per-count", (0x1AD,), None),
    0x55: ("groups", (0x1AD,), 0x1AE),
    0x6A: ("groups", (0x1AD,), 0x1AE),
    0x8F: ("groups", (0x1AD,), 0x1AE),
    0xAD: ("groups", (0x1AD,), 0x1AE),
    0xAF: ("groups", (0x1AD,), 0x1AE),
    0xDD: ("groups", (0x1AD,), 0x1AE),
    0x5C: ("groups", (0x1AD,), 0x1AE),
    0x5F: ("groups", (0x1AD,), 0x1AE),
    0x86: ("groups", (0x1AD,), 0x1AE),
    0x96: ("per-count", (0x1AD,), None),
    0x9C: ("per-count", (0x1AD,), None),
    0x8C: ("per-count", (0x1AD,), None),
    0x57: ("knl", (0x1AD,), None),
    0x7A: ("per-count", (0x1AD,), None),
}


@pytest.mark.parametrize("model", TURBO)
def test_turbo(model: int) -> None:
    turbo = find(INTEL, 6, model, 0).turbo
    assert turbo is not None
    assert (turbo.layout, turbo.ratios, turbo.counts) == TURBO[model]


def test_diamond_rapids_has_turbo_groups_and_neither_power_nor_limits_in_msrs() -> None:
    model = find(INTEL, 19, 0x01, 0)
    assert model.turbo is not None
    assert (model.turbo.layout, model.rapl, model.limits) == ("groups", None, None)
    assert [residency.name for residency in model.residencies][:2] == ["c1", "c6"]


@pytest.mark.parametrize(("number", "cores"), [(0xAF, 4), (0xB6, 4), (0xDD, 4), (0xAD, 1)])
def test_turbo_counts_are_modules_of_four_cores_where_cores_share_an_l2(
    number: int, cores: int
) -> None:
    turbo = find(INTEL, 6, number, 0).turbo
    assert turbo is not None
    assert turbo.cores_per_count == cores


@pytest.mark.parametrize(
    ("family", "model"), [(6, 0x97), (6, 0xBD), (6, 0xCC), (6, 0xD5), (6, 0xE5), (18, 1), (18, 3)]
)
def test_turbo_of_hybrids(family: int, model: int) -> None:
    e = find(INTEL, family, model, 0, core_type="E").turbo
    p = find(INTEL, family, model, 0, core_type="P").turbo
    assert e is not None
    assert p is not None
    assert (e.ratios, p.ratios) == ((0x650,), (0x1AD,))


def test_turbo_of_ex() -> None:
    assert find(INTEL, 6, 0x2E, 0).turbo is None
    assert find(INTEL, 6, 0x2F, 0).turbo is None


# MSRs: c1 660, c3 3FC, c6 3FD, c7 3FE, Knights Landing's c6 3FF
CORE_STATES = {
    0x1A: [0x3FC, 0x3FD],
    0x2D: [0x3FC, 0x3FD, 0x3FE],
    0x45: [0x3FC, 0x3FD, 0x3FE],
    0x55: [0x3FC, 0x3FD, 0x3FE],
    0x66: [0x660, 0x3FC, 0x3FD, 0x3FE],
    0x7E: [0x660, 0x3FD, 0x3FE],
    0x6A: [0x660, 0x3FD],
    0x8F: [0x660, 0x3FD],
    0xAF: [0x660, 0x3FD],
    0xDD: [0x660, 0x3FD],
    0x57: [0x3FF],
    0x7A: [0x660, 0x3FC, 0x3FD],
    0x1C: [],
}


@pytest.mark.parametrize("model", CORE_STATES)
def test_core_states(model: int) -> None:
    states = [r for r in find(INTEL, 6, model, 0).residencies if r.scope != "package"]
    assert [state.msr for state in states] == CORE_STATES[model]


@pytest.mark.parametrize(("family", "model"), [(6, 0xBD), (6, 0xCC), (6, 0xD5), (18, 1)])
def test_core_states_of_new_hybrids(family: int, model: int) -> None:
    for side in "PE":
        states = find(INTEL, family, model, 0, core_type=side).residencies
        assert [r.msr for r in states if r.scope == "core"] == [0x660, 0x3FD, 0x3FE]
        assert {0x60D, 0x3F9, 0x632} <= {r.msr for r in states}


def test_package_states() -> None:
    def msrs(model: int) -> list[int]:
        result = find(INTEL, 6, model, 0).residencies
        return [state.msr for state in result if state.scope == "package"]

    assert msrs(0x55) == [0x60D, 0x3F8, 0x3F9, 0x3FA]
    deep = [0x60D, 0x3F8, 0x3F9, 0x3FA, 0x630, 0x631, 0x632]
    assert msrs(0x45) == msrs(0x9E) == msrs(0x4E) == msrs(0x5E) == msrs(0x3D) == deep
    assert msrs(0x3C) == msrs(0x47) == deep[:4]


CLIENT_690 = {
    0: "PROCHOT",
    4: "graphics driver",
    8: "electrical",
    10: "PL1",
    12: "multi-core turbo",
}
SERVER_690 = {
    0: "PROCHOT", 1: "thermal", 2: "power budget", 3: "platform configuration", 4: "bit 4",
    5: "autonomous utilisation", 6: "VR thermal", 7: "bit 7", 8: "electrical", 9: "bit 9",
    10: "multi-core turbo", 11: "bit 11", 13: "below base clock",
    14: "below turbo for the active cores", 15: "below request",
}  # fmt: skip
CLIENT_64F = {0: "PROCHOT", 2: "bit 2", 10: "PL1", 11: "PL2", 12: "max turbo limit", 14: "bit 14"}
XEON_64F = {**CLIENT_64F, 10: "PL1 or multi-core turbo"}
PHI_690 = {0: "PROCHOT", 1: "thermal", 6: "VR thermal", 8: "electrical", 10: "bit 10"}
LIMIT_REASONS: dict[int, tuple[int, dict[int, str]] | None] = {
    **dict.fromkeys((0x3C, 0x45, 0x46, 0x3D, 0x47), (0x690, CLIENT_690)),
    **dict.fromkeys((0x3F, 0x4F, 0x56), (0x690, SERVER_690)),
    **dict.fromkeys((0x57, 0x85), (0x690, PHI_690)),
    0x5C: (0x64F, {2: "PL1", 3: "PL2", 10: "VR thermal alert", 12: "electrical", 15: "bit 15"}),
    **dict.fromkeys((0x5E, 0x9E, 0x7E, 0x8C), (0x64F, CLIENT_64F)),
    **dict.fromkeys((0x55, 0x6A, 0x8F, 0xCF), (0x64F, XEON_64F)),
    **dict.fromkeys((0x1A, 0x2D, 0x3E, 0x7A, 0x1C, 0xAD, 0xAE), None),
}
"""The SDM's tables by model, as EDK2 and msr-safe transcribe them; some bits of each."""


@pytest.mark.parametrize("number", LIMIT_REASONS)
def test_limit_reasons(number: int) -> None:
    limits, known = find(INTEL, 6, number, 1).limits, LIMIT_REASONS[number]
    if known is None or limits is None:
        assert (limits is None) == (known is None)
        return
    register, parts = known
    assert limits.msr == register
    assert len(limits.parts) == 16
    assert {bit: limits.parts[bit] for bit in parts} == parts


def test_limit_reasons_seen_on_a_haswell_server() -> None:
    """A Dell server's register was C500C100h."""
    limits = find(INTEL, 6, 0x3F, 2).limits
    assert limits is not None
    results = [part for bit, part in enumerate(limits.parts) if 0xC500C100 >> bit & 1]
    assert results == ["electrical", "below turbo for the active cores", "below request"]
    assert [limits.parts[bit] for bit in range(16) if 0xC500 >> bit & 1][1] == "multi-core turbo"


def test_thermal_bits_are_those_that_cpuid_announces() -> None:
    seen = (0x50654, 0, 0, 1 << 22)
    thermal = find(INTEL, 6, 0x55, 4, machine(V4, x01=seen, x06=(0x90, 0, 0, 0))).thermal
    assert thermal is not None
    assert (thermal.core, thermal.package, thermal.tjmax) == (0x19C, 0x1B1, 0x1A2)
    assert [bit for bit, *_ in thermal.bits] == [0, 2, 4, 6, 8, 10, 12, 14]
    thermal = find(INTEL, 6, 0x55, 4, machine(V4, x01=seen, x06=(0x10, 0, 0, 0))).thermal
    assert thermal is not None
    assert [bit for bit, *_ in thermal.bits] == [0, 2, 4, 6, 8, 10]
    assert find(INTEL, 6, 0x55, 4, machine(V4, x01=(0x50654, 0, 0, 0))).thermal is None
