"""Turbo tables from register values that were computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfprobe.cpu.model import find_uarch
from perfprobe.cpu.model_terms import Uarch
from perfprobe.registers import limits
from perfprobe.wire import Missing, Turbo

INTEL = "GenuineIntel"
KNL = 2 << 1 | 15 << 8 | (1 << 5 | 30) << 16 | (0 << 5 | 31) << 24 | 0x67 << 32
"""2 cores at 15; 30 more at one less; 31 and 5 more (67H: 3 less, 7 cores) at 11."""


@pytest.mark.parametrize(("model", "registers", "steps", "origin"), [
    # a Xeon 8160 with 24 cores: 1CH is 28, 25H is 37; up to 2, 4, 8, 12, 16, 20, 24 cores
    (0x55, {0x1AD: 0x1C1C1C1F22222325, 0x1AE: 0x1C1814100C080402},
     [(2, 3.7), (4, 3.5), (12, 3.4), (16, 3.1), (28, 2.8)], "MSR 1ADH, licence 0"),
    # unused groups are zero
    (0x6A, {0x1AD: 0x1E20, 0x1AE: 0x1008}, [(8, 3.2), (16, 3.0)], None),
    (0x6A, {0x1AD: 0x1F1E20, 0x1AE: 0x1008}, [(8, 3.2), (16, 3.0)], None),
    # a client with four cores has one byte for each count: 2AH is 42
    (0x5E, {0x1AD: 0x2728292A}, [(1, 4.2), (2, 4.1), (3, 4.0), (4, 3.9)], None),
    # Haswell-EP has two more registers
    (0x3F, {0x1AD: 0x1D1E1F2021222424, 0x1AE: 0x1C1C1C1C1C1C1C1C, 0x1AF: 0x1B1C},
     [(2, 3.6), (3, 3.4), (4, 3.3), (5, 3.2), (6, 3.1), (7, 3.0), (8, 2.9), (17, 2.8), (18, 2.7)],
     None),
    # bit 63 is set if a user has replaced the factory's ratios
    (0x3F, {0x1AD: 0x2424242424242424, 0x1AF: 1 << 63 | 0x2323}, [(8, 3.6), (18, 3.5)], None),
    # Broadwell-EP may lack the second register
    (0x4F, {0x1AD: 0x202122}, [(1, 3.4), (2, 3.3), (3, 3.2)], None),
    (0x4F, {0x1AD: 0x2222222222222222, 0x1AE: 0x20}, [(8, 3.4), (9, 3.2)],
     "MSR 1ADH, MSR 1AEH, licence 0"),
    # Nehalem has another bus clock
    (0x1A, {0x1AD: 0x1818181A}, [(1, 3.46658), (4, 3.19992)], None),
    (0x57, {0x1AD: KNL}, [(2, 1.5), (63, 1.4), (70, 1.1)], None),
])  # fmt: skip
def test_registers_become_steps(
    model: int, registers: dict[int, int], steps: list[tuple[int, float]], origin: str | None
) -> None:
    table = limits.turbo_table(find_uarch(INTEL, 6, model, 4), registers.get)
    assert isinstance(table, Turbo)
    assert [step.cores for step in table.steps] == [cores for cores, _ in steps]
    assert [step.hz for step in table.steps] == pytest.approx([ghz * 1e9 for _, ghz in steps])
    assert table.cpus is None
    assert origin in {None, table.origin}


def test_hybrids_have_a_table_for_each_type() -> None:
    registers = {0x1AD: 0x3031323334353535, 0x650: 0x2828282828282828}
    for side, cpus, first in (("P", [0, 1], (3, 5.3e9)), ("E", [2, 3], (8, 4.0e9))):
        model = find_uarch(INTEL, 6, 0x97, 2, core_type=side)
        result = limits.turbo_table(model, registers.get, cpus)
        assert isinstance(result, Turbo)
        assert result.cpus == cpus
        assert (result.steps[0].cores, result.steps[0].hz) == first


@pytest.mark.parametrize(("model", "registers", "why"), [
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
])  # fmt: skip
def test_a_missing_turbo_table_has_a_reason(
    model: Uarch, registers: dict[int, int], why: str
) -> None:
    result = limits.turbo_table(model, registers.get)
    assert isinstance(result, Missing)
    assert result.what == "turbo"
    assert result.why.startswith(why)
