"""Turbo tables from register values that were computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfprobe.cpu.model import find_uarch
from perfprobe.cpu.model_terms import Uarch
from perfprobe.registers import limits
from perfprobe.wire import Missing, Turbo

INTEL = "GenuineIntel"
GHZ = 1e9


def read(model: int, registers: dict[int, int], stepping: int = 4) -> Turbo | Missing:
    return limits.turbo_table(find_uarch(INTEL, 6, model, stepping), registers.get)


def steps(model: int, registers: dict[int, int]) -> list[tuple[int, float]]:
    content = read(model, registers)
    assert isinstance(content, Turbo)
    return [(step.cores, step.hz / GHZ) for step in content.steps]


def test_skylake_sp_has_groups_of_cores() -> None:
    """A Xeon 8160 with 24 cores: 1CH is 28, 25H is 37; up to 2, 4, 8, 12, 16, 20, 24 cores."""
    registers = {0x1AD: 0x1C1C1C1F22222325, 0x1AE: 0x1C1814100C080402}
    assert steps(0x55, registers) == [(2, 3.7), (4, 3.5), (12, 3.4), (16, 3.1), (28, 2.8)]
    content = read(0x55, registers)
    assert isinstance(content, Turbo)
    assert content.origin == "MSR 1ADH, licence 0"
    assert content.cpus is None


def test_groups_that_are_not_used_are_zero() -> None:
    assert steps(0x6A, {0x1AD: 0x1E20, 0x1AE: 0x1008}) == [(8, 3.2), (16, 3.0)]
    assert steps(0x6A, {0x1AD: 0x1F1E20, 0x1AE: 0x1008}) == [(8, 3.2), (16, 3.0)]


def test_one_byte_for_each_count() -> None:
    """A client CPU with four cores: 2AH is 42."""
    assert steps(0x5E, {0x1AD: 0x2728292A}) == [(1, 4.2), (2, 4.1), (3, 4.0), (4, 3.9)]


def test_haswell_ep_has_two_more_ratio_registers() -> None:
    registers = {0x1AD: 0x1D1E1F2021222424, 0x1AE: 0x1C1C1C1C1C1C1C1C, 0x1AF: 0x1B1C}
    result = steps(0x3F, registers)
    assert result[:3] == [(2, 3.6), (3, 3.4), (4, 3.3)]
    assert result[-3:] == [(8, 2.9), (17, 2.8), (18, 2.7)]


def test_the_semaphore_of_haswell_ep_is_not_a_ratio() -> None:
    """The bit is set if a user has replaced the ratios of the factory."""
    assert steps(0x3F, {0x1AD: 0x2424242424242424, 0x1AF: 1 << 63 | 0x2323}) == [
        (8, 3.6),
        (18, 3.5),
    ]


def test_broadwell_ep_may_lack_the_second_register() -> None:
    assert steps(0x4F, {0x1AD: 0x202122}) == [(1, 3.4), (2, 3.3), (3, 3.2)]
    content = read(0x4F, {0x1AD: 0x2222222222222222, 0x1AE: 0x20})
    assert isinstance(content, Turbo)
    assert [(step.cores, step.hz) for step in content.steps] == [(8, 3.4e9), (9, 3.2e9)]
    assert content.origin == "MSR 1ADH, MSR 1AEH, licence 0"


def test_nehalem_has_another_bus_clock() -> None:
    ((one, first), (four, last)) = steps(0x1A, {0x1AD: 0x1818181A})
    assert (one, four) == (1, 4)
    assert (first, last) == pytest.approx((3.46658, 3.19992))


def test_knights_landing_packs_differences() -> None:
    """2 cores at 15; 30 more at one less; 31 and 5 more (67H: 3 less, 7 cores) at 11."""
    word = 2 << 1 | 15 << 8 | (1 << 5 | 30) << 16 | (0 << 5 | 31) << 24 | 0x67 << 32
    assert steps(0x57, {0x1AD: word}) == [(2, 1.5), (63, 1.4), (70, 1.1)]


def test_hybrids_have_a_table_for_each_type() -> None:
    registers = {0x1AD: 0x3031323334353535, 0x650: 0x2828282828282828}
    for side, cpus, first in (("P", [0, 1], (3, 5.3e9)), ("E", [2, 3], (8, 4.0e9))):
        model = find_uarch(INTEL, 6, 0x97, 2, core_type=side)
        result = limits.turbo_table(model, registers.get, cpus)
        assert isinstance(result, Turbo)
        assert result.cpus == cpus
        assert (result.steps[0].cores, result.steps[0].hz) == first


@pytest.mark.parametrize(
    ("model", "registers", "why"),
    [
        (find_uarch(INTEL, 6, 0x2E, 6), {0x1AD: 0x20}, "no register is known for it (Nehalem-EX)"),
        (
            replace(find_uarch(INTEL, 6, 0x5E, 3), bclk_hz=None),
            {0x1AD: 1},
            "the bus clock is not known",
        ),
        (find_uarch(INTEL, 6, 0x5E, 3), {}, "MSR 1ADH cannot be read"),
        (find_uarch(INTEL, 6, 0x55, 4), {0x1AD: 0x25}, "MSR 1AEH cannot be read"),
        (find_uarch(INTEL, 6, 0x55, 4), {0x1AD: 0x25, 0x1AE: 0}, "MSR 1ADH holds no ratio"),
        (find_uarch("AuthenticAMD", 0x19, 1, 1), {}, "no register is known for it (Zen 3)"),
    ],
)
def test_a_missing_turbo_table_has_a_reason(
    model: Uarch, registers: dict[int, int], why: str
) -> None:
    result = limits.turbo_table(model, registers.get)
    assert isinstance(result, Missing)
    assert result.what == "turbo"
    assert result.why.startswith(why)
