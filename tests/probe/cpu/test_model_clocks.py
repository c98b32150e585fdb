"""The length of a tick of each counter, and the clocks of each model, from tables, CPUID and
MSRs."""

from __future__ import annotations

import pytest
from cpu_models import INTEL, V3, V3_NARROW, V4, V5, factors, machine

from perfprobe.cpu.cpuid import Leaves, read_no_leaf
from perfprobe.cpu.model import (
    base_rate_candidates,
    find_uarch,
    multiplier_candidates,
    tsc_rate_candidates,
)
from perfprobe.cpu.model_terms import CounterBudget

# --- multipliers ----------------------------------------------------------------------------------


SNB_CEH = 0x80838F3011800
CANDIDATES = [
    (0x55, 4, machine(V4, (168, 2, 0), 2100), 21 << 8, None,
     {"ref_p": [84, 1, 21], "one_thread": [84, 1, 21], "any_thread": [84, 1, 21]}),
    # 24 MHz under the same model number
    (0x55, 4, machine(V4, (276, 2, 0), 3300), 33 << 8, None, {"one_thread": [138, 132, 1, 33]}),
    (0x5E, 3, machine(V4, (334, 2, 0), 4000), 40 << 8, None, {"one_thread": [167, 160, 1, 40]}),
    (0x6A, 6, machine(V5, (192, 2, 0), 2400), None, None,
     {"ref_p": [96, 1, 24], "one_thread": [96, 1, 24], "distributed": [96, 1, 24]}),
    # Sapphire Rapids: one event code counts in two units
    (0x8F, 8, machine(V5, (176, 2, 25_000_000), 2200), 22 << 8, None,
     {"ref_p": [1, 88], "one_thread": [88, 1, 22], "distributed": [88, 1, 22], "any_thread": []}),
    *((model, 1, machine(V3), SNB_CEH, None, {"one_thread": [24, 1, 96], "any_thread": [24, 1, 96]})
      for model in (0x2D, 0x3E, 0x3F, 0x4F)),
    # without the MSR the TSC's rate is used; without both there is no value
    (0x2D, 7, machine(V3), None, 2.394e9, {"one_thread": [24, 1, 96]}),
    (0x2D, 7, machine(V3), None, None, {"one_thread": [], "any_thread": [], "ref_p": []}),
    # Nehalem needs calibration
    (0x1A, 5, machine(V3), 22 << 8, None, {"any_thread": [1, 22, 88]}),
    (0x1A, 5, machine(V3), None, 2.933e9, {"any_thread": [1, 22, 88]}),
    (0x1A, 5, machine(V3), None, None, {"any_thread": [1]}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "stepping", "leaves", "msr_ce", "tsc", "expected"), CANDIDATES)
def test_each_counter_has_the_possible_factors_of_its_clock(
    model: int, stepping: int, leaves: Leaves, msr_ce: int | None, tsc: float | None,
    expected: dict[str, list[float]],
) -> None:  # fmt: skip
    uarch = find_uarch(INTEL, 6, model, stepping, leaves)
    result = multiplier_candidates(uarch, leaves, msr_ce, tsc)
    assert {key: factors(result, key) for key in expected} == expected
    assert {m.type for m in result} <= {None}
    if (model, msr_ce) == (0x55, 21 << 8):
        assert result[0].why == (
            "core crystal: CPUID.15H 168/2; 25 MHz crystal: 4 x base ratio 21, MSR CEH"
        )


@pytest.mark.parametrize(("side", "one_thread"), [("P", [39, 1]), ("E", [])])
def test_factors_of_a_hybrid_belong_to_a_core_type(side: str, one_thread: list[float]) -> None:
    leaves = machine(V5, (78, 2, 38_400_000))
    result = multiplier_candidates(find_uarch(INTEL, 6, 0x97, 2, leaves, side), leaves, None)
    assert {m.type for m in result} == {side}
    assert (factors(result, "one_thread"), factors(result, "ref_p")) == (one_thread, [1, 39])


def test_xeon_phi_has_two_counters() -> None:
    leaves = machine(V3_NARROW, x06=(0, 0, 1, 0))
    result = find_uarch(INTEL, 6, 0x57, 1, leaves)
    assert factors(multiplier_candidates(result, leaves, 14 << 8), "any_thread") == [1, 14, 56]
    assert {m.counter for m in multiplier_candidates(result, leaves, 14 << 8)} == {
        "ref_p",
        "any_thread",
    }
    assert result.budget == CounterBudget(2, 3, 40, 40)
    assert find_uarch(INTEL, 6, 0x57, 1, read_no_leaf).budget is None


def test_only_intel_has_platform_info() -> None:
    leaves = machine(V3)
    result = find_uarch("CentaurHauls", 7, 0x3B, 0, leaves)
    assert factors(multiplier_candidates(result, leaves, 22 << 8), "ref_p") == [1]


# --- frequencies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "stepping", "crystal", "mhz", "platform_info", "tsc_mhz"), [
    (0x5E, 3, (334, 2, 0), 4000, None, [4008, 4000]),
    (0x55, 4, (168, 2, 0), 2100, None, [2100, 2016, 2100]),
    (0x55, 4, (168, 2, 0), 0, 21 << 8, [2100, 2016, 2100]),
    (0x55, 4, (276, 2, 0), 3300, None, [3312, 3450, 3300]),
    (0x55, 7, (250, 2, 0), 3000, None, [3000, 3125, 3000]),
    (0x55, 4, (292, 2, 0), 3500, 35 << 8, [3504, 3650, 3500, 3500]),
    (0x6A, 6, (192, 2, 0), 2400, None, [2400, 2400]),
    (0x6A, 6, (192, 2, 25_000_000), 2400, None, [2400, 2400]),
    (0x8F, 8, (176, 2, 25_000_000), 2200, None, [2200, 2200]),
    (0x8F, 8, (216, 2, 24_000_000), 2600, None, [2592, 2600]),
    (0xA7, 1, (292, 2, 24_000_000), 3500, None, [3504, 3500]),
    (0x7A, 1, (171, 3, 0), 0, None, [1094.4]),
    (0x2D, 7, None, 0, 24 << 8, [2400]),
    (0x1A, 5, None, 0, 22 << 8, [2933.26]),
    (0x2D, 7, None, 0, None, []),
])  # fmt: skip
def test_tsc_rate_follows_crystal_or_base_ratio(
    model: int,
    stepping: int,
    crystal: tuple[int, int, int] | None,
    mhz: int,
    platform_info: int | None,
    tsc_mhz: list[float],
) -> None:
    leaves = machine(V4, crystal, mhz)
    rates = tsc_rate_candidates(
        find_uarch(INTEL, 6, model, stepping, leaves), leaves, platform_info
    )
    assert [rate.hz for rate in rates] == pytest.approx([m * 1e6 for m in tsc_mhz])
    assert all(rate.error is not None for rate in rates)
    if crystal and crystal[2]:
        expected = f"CPUID.15H {crystal[0]}/{crystal[1]} x {crystal[2] // 1_000_000} MHz"
        assert rates[0].origin == expected


def test_the_crystal_is_ambiguous_without_a_base_frequency() -> None:
    leaves = machine(V4, (276, 2, 0))
    rates = tsc_rate_candidates(find_uarch(INTEL, 6, 0x55, 4, leaves), leaves, None)
    assert [(rate.hz, rate.error) for rate in rates] == [(3450e6, None), (3312e6, None)]
    assert rates[1].origin == "CPUID.15H 276/2 x 24 MHz, the crystal by model"


def test_base_clock_has_two_origins() -> None:
    leaves = machine(V4, (168, 2, 0), 2100)
    result = base_rate_candidates(find_uarch(INTEL, 6, 0x55, 4, leaves), leaves, 21 << 8)
    assert [(rate.hz, rate.origin) for rate in result] == [
        (2100e6, "MSR CEH: 21 x 100 MHz"),
        (2100e6, "CPUID.16H: 2100 MHz"),
    ]
