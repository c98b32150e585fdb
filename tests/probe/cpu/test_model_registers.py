"""Which registers each model has, and what they tell: turbo, idle states, limits."""

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
    0x8C: ("per-count", (0x1AD,), None),
    0x57: ("knl", (0x1AD,), None),
    0x7A: ("per-count", (0x1AD,), None),
}


@pytest.mark.parametrize("model", TURBO)
def test_turbo(model: int) -> None:
    turbo = find(INTEL, 6, model, 0).turbo
    assert turbo is not None
    assert (turbo.layout, turbo.ratios, turbo.counts) == TURBO[model]


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
        found = find(INTEL, 6, model, 0).residencies
        return [state.msr for state in found if state.scope == "package"]

    assert msrs(0x55) == [0x60D, 0x3F8, 0x3F9, 0x3FA]
    deep = [0x60D, 0x3F8, 0x3F9, 0x3FA, 0x630, 0x631, 0x632]
    assert msrs(0x45) == msrs(0x9E) == msrs(0x4E) == msrs(0x5E) == msrs(0x3D) == deep
    assert msrs(0x3C) == msrs(0x47) == deep[:4]


def test_limit_reasons() -> None:
    skylake = find(INTEL, 6, 0x55, 4).limits
    assert skylake is not None
    assert skylake.msr == 0x64F
    assert len(skylake.parts) == 16
    assert [skylake.parts[bit] for bit in (0, 1, 2, 10, 11, 12, 13, 14, 15)] == [
        *("PROCHOT", "thermal", "bit 2", "PL1", "PL2", "max turbo limit"),
        *("turbo transition attenuation", "bit 14", "bit 15"),
    ]
    haswell = find(INTEL, 6, 0x3F, 2).limits
    assert haswell is not None
    assert haswell.msr == 0x690
    assert haswell.parts[7:11] == ("bit 7", "electrical", "core power", "PL1")
    for model in (0x1A, 0x2D, 0x3E, 0x4F, 0x56, 0x57, 0x7A, 0x1C, 0xAD, 0xAE):
        assert find(INTEL, 6, model, 0).limits is None


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
