"""Names and SMT methods of each model, compared with tables typed by hand from public
sources: Linux intel-family.h, Intel's event lists, CPUID dumps."""

from __future__ import annotations

import pytest
from cpu_models import (
    AMD,
    ANY,
    INTEL,
    ONE_ANY,
    ONE_DIST,
    SINGLE,
    SOFT,
    V3,
    V3_BONNELL,
    V3_NARROW,
    V4,
    V4_GONE,
    V5,
    V5_GRACEMONT,
    V6,
    Perfmon,
    epyc,
    machine,
)

from perfprobe.cpu import model_tables
from perfprobe.cpu.cpuid import Registers
from perfprobe.cpu.model import find
from perfprobe.cpu.model_terms import Budget, Clocks

# --- every model ----------------------------------------------------------------------------------


# family, model, core type, name, leaf 0AH, SMT width, methods
MODELS: list[tuple[int, int, str | None, str, Perfmon, int | None, tuple[str, ...]]] = [
    (6, 0x1A, None, "Nehalem", V3, 2, ANY),
    (6, 0x1E, None, "Nehalem", V3, 2, ANY),
    (6, 0x1F, None, "Nehalem", V3, 2, ANY),
    (6, 0x2E, None, "Nehalem-EX", V3, 2, ANY),
    (6, 0x25, None, "Westmere", V3, 2, ANY),
    (6, 0x2C, None, "Westmere", V3, 2, ANY),
    (6, 0x2F, None, "Westmere-EX", V3, 2, ANY),
    (6, 0x2A, None, "Sandy Bridge", V3, 2, ONE_ANY),
    (6, 0x2D, None, "Sandy Bridge-EP", V3, 2, ONE_ANY),
    (6, 0x3A, None, "Ivy Bridge", V3, 2, ONE_ANY),
    (6, 0x3E, None, "Ivy Bridge-EP", V3, 2, ONE_ANY),
    (6, 0x3C, None, "Haswell", V3, 2, ONE_ANY),
    (6, 0x46, None, "Haswell", V3, 2, ONE_ANY),
    (6, 0x45, None, "Haswell-ULT", V3, 2, ONE_ANY),
    (6, 0x3F, None, "Haswell-EP", V3, 2, ONE_ANY),
    (6, 0x3D, None, "Broadwell", V3, 2, ONE_ANY),
    (6, 0x47, None, "Broadwell", V3, 2, ONE_ANY),
    (6, 0x4F, None, "Broadwell-EP", V3, 2, ONE_ANY),
    (6, 0x56, None, "Broadwell-DE", V3, 2, ONE_ANY),
    (6, 0x4E, None, "Skylake", V4, 2, ONE_ANY),
    (6, 0x5E, None, "Skylake", V4, 2, ONE_ANY),
    (6, 0x8E, None, "Kaby Lake", V4, 2, ONE_ANY),
    (6, 0x9E, None, "Kaby Lake", V4, 2, ONE_ANY),
    (6, 0xA5, None, "Comet Lake", V4, 2, ONE_ANY),
    (6, 0xA6, None, "Comet Lake", V4, 2, ONE_ANY),
    (6, 0x55, None, "Skylake-SP", V4, 2, ONE_ANY),
    (6, 0x66, None, "Cannon Lake", V4, 2, ONE_ANY),
    (6, 0x7D, None, "Ice Lake", V5, 2, ONE_DIST),
    (6, 0x7E, None, "Ice Lake", V5, 2, ONE_DIST),
    (6, 0x6A, None, "Ice Lake-SP", V5, 2, ONE_DIST),
    (6, 0x6C, None, "Ice Lake-SP", V5, 2, ONE_DIST),
    (6, 0x8C, None, "Tiger Lake", V5, 2, ONE_DIST),
    (6, 0x8D, None, "Tiger Lake", V5, 2, ONE_DIST),
    (6, 0xA7, None, "Rocket Lake", V5, 2, ONE_DIST),
    (6, 0x97, "P", "Alder Lake", V5, 2, ONE_DIST),
    (6, 0x97, "E", "Alder Lake", V5_GRACEMONT, 1, SINGLE),
    (6, 0x9A, "P", "Alder Lake", V5, 2, ONE_DIST),
    (6, 0x9A, "E", "Alder Lake", V5_GRACEMONT, 1, SINGLE),
    (6, 0xBE, None, "Alder Lake-N", V5_GRACEMONT, 1, SINGLE),
    (6, 0xB7, "P", "Raptor Lake", V5, 2, ONE_DIST),
    (6, 0xB7, "E", "Raptor Lake", V5_GRACEMONT, 1, SINGLE),
    (6, 0xBA, "P", "Raptor Lake", V5, 2, ONE_DIST),
    (6, 0xBA, "E", "Raptor Lake", V5_GRACEMONT, 1, SINGLE),
    (6, 0xBF, "P", "Raptor Lake", V5, 2, ONE_DIST),
    (6, 0xBF, "E", "Raptor Lake", V5_GRACEMONT, 1, SINGLE),
    (6, 0xD7, "P", "Bartlett Lake", V5, 2, ONE_DIST),
    (6, 0xD7, "E", "Bartlett Lake", V5_GRACEMONT, 1, SINGLE),
    (6, 0xAA, "P", "Meteor Lake", V5, 2, ONE_DIST),
    (6, 0xAA, "E", "Meteor Lake", V5, 1, SINGLE),
    (6, 0xAA, "L", "Meteor Lake", V5, 1, SINGLE),
    (6, 0xAC, "P", "Meteor Lake", V5, 2, ONE_DIST),
    (6, 0xAC, "E", "Meteor Lake", V5, 1, SINGLE),
    (6, 0xB5, "P", "Arrow Lake-U", V5, 2, ONE_DIST),
    (6, 0xB5, "E", "Arrow Lake-U", V5, 1, SINGLE),
    (6, 0xBD, "P", "Lunar Lake", V6, 1, SINGLE),
    (6, 0xBD, "E", "Lunar Lake", V6, 1, SINGLE),
    (6, 0xC5, "P", "Arrow Lake", V6, 1, SINGLE),
    (6, 0xC5, "E", "Arrow Lake", V6, 1, SINGLE),
    (6, 0xC6, "P", "Arrow Lake", V6, 1, SINGLE),
    (6, 0xC6, "E", "Arrow Lake", V6, 1, SINGLE),
    (6, 0xCC, "P", "Panther Lake", V6, None, SOFT),
    (6, 0xCC, "E", "Panther Lake", V6, None, SOFT),
    (6, 0xD5, "P", "Wildcat Lake", V6, None, SOFT),
    (6, 0xE5, "E", "Panther Lake", V6, None, SOFT),
    (18, 0x01, "P", "Nova Lake", V6, None, SOFT),
    (18, 0x03, "E", "Nova Lake", V6, None, SOFT),
    (6, 0x8F, None, "Sapphire Rapids", V5, 2, ONE_DIST),
    (6, 0xCF, None, "Emerald Rapids", V5, 2, ONE_DIST),
    (6, 0xAD, None, "Granite Rapids", V5, 2, ONE_DIST),
    (6, 0xAE, None, "Granite Rapids", V5, 2, ONE_DIST),
    (6, 0xAF, None, "Sierra Forest", V6, 1, SINGLE),
    (6, 0xB6, None, "Grand Ridge", V6, 1, SINGLE),
    (6, 0xDD, None, "Clearwater Forest", V6, 1, SINGLE),
    (6, 0x57, None, "Knights Landing", V3_NARROW, 4, ("any-thread",)),
    (6, 0x85, None, "Knights Mill", V3_NARROW, 4, ("any-thread",)),
    (6, 0x5C, None, "Goldmont", V4_GONE, 1, SINGLE),
    (6, 0x5F, None, "Denverton", V4_GONE, 1, SINGLE),
    (6, 0x7A, None, "Goldmont Plus", V4_GONE, 1, SINGLE),
    (6, 0x86, None, "Snow Ridge", V5, 1, SINGLE),
    (6, 0x96, None, "Elkhart Lake", V5, 1, SINGLE),
    (6, 0x9C, None, "Jasper Lake", V5, 1, SINGLE),
    (19, 0x01, None, "Diamond Rapids", V6, None, SOFT),
    (6, 0x1C, None, "Bonnell", V3_BONNELL, 2, ANY),
    (6, 0x26, None, "Bonnell", V3_BONNELL, 2, ANY),
    (6, 0x27, None, "Bonnell", V3_BONNELL, 2, ANY),
    (6, 0x35, None, "Bonnell", V3_BONNELL, 2, ANY),
    (6, 0x36, None, "Bonnell", V3_BONNELL, 2, ANY),
]


@pytest.mark.parametrize(
    ("family", "model", "core_type", "name", "perfmon", "smt", "methods"),
    MODELS,
    ids=[f"{family}-{model:02X}-{side}" for family, model, side, *_ in MODELS],
)
def test_model(
    family: int,
    model: int,
    core_type: str | None,
    name: str,
    perfmon: Perfmon,
    smt: int | None,
    methods: tuple[str, ...],
) -> None:
    result = find(INTEL, family, model, 0, machine(perfmon), core_type)
    assert (result.name, result.vendor, result.smt) == (name, INTEL, smt)
    assert result.methods == methods
    assert result.core_type == core_type
    assert ("one_thread" in result.events) is ("one-thread" in methods)
    assert ("any_thread" in result.events) is ("any-thread" in methods)
    assert ("distributed" in result.events) is ("distributed" in methods)
    assert {"cycles", "instructions", "ref", "ref_p"} <= result.events.keys()


def test_the_table_has_no_other_models() -> None:
    typed = {(family, model) for family, model, *_ in MODELS}
    rows = [row for row in model_tables.ROWS if row.uarch.vendor == INTEL]
    assert {(row.family, model) for row in rows for model in row.models} == typed


@pytest.mark.parametrize(
    ("stepping", "name"),
    [
        *[(n, "Skylake-SP") for n in range(5)],
        (5, "Cascade Lake"),
        (6, "Cascade Lake"),
        (7, "Cascade Lake"),
        (10, "Cooper Lake"),
        (11, "Cooper Lake"),
    ],
)
def test_steppings_of_55(stepping: int, name: str) -> None:
    assert find(INTEL, 6, 0x55, stepping, machine(V4)).name == name


def test_models_whose_mperf_runs_at_the_base_clock() -> None:
    tweaked = {
        *(0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6, 0x66, 0x7D, 0x7E, 0x8C, 0x8D, 0xA7),
        *(0x97, 0x9A, 0xBE, 0xB7, 0xBA, 0xBF, 0xD7, 0xAA, 0xAC, 0xB5, 0xBD, 0xC5, 0xC6),
        *(0xCC, 0xD5, 0xE5),
    }
    for family, model, side, *_ in MODELS:
        result = find(INTEL, family, model, 0, machine(V5), side)
        assert result.uses_base_clock_for_aperf is (family == 18 or model in tweaked), result.name


def test_no_two_rows_claim_one_cpu() -> None:
    seen = set()
    for row in model_tables.ROWS:
        if row.uarch.vendor != INTEL:
            continue
        for model in row.models:
            for stepping in row.steppings or range(16):
                claim = (row.family, model, stepping, row.core_type)
                assert claim not in seen, claim
                seen.add(claim)


@pytest.mark.parametrize("stepping", [None, *range(16)])
def test_every_stepping_of_55_is_known(stepping: int | None) -> None:
    result = find(INTEL, 6, 0x55, stepping, machine(V4))
    assert result.methods == ONE_ANY
    assert result.licenses["license_2"].config == 0x2028


# --- names ----------------------------------------------------------------------------------------


NAMED = [
    (19, 0x01, "Diamond Rapids"),
    (6, 0x86, "Snow Ridge"),
    (6, 0x9D, "Ice Lake NNP-I"),
    (6, 0x8A, "Lakefield"),
    (6, 0x37, "Silvermont"),
    (6, 0x4A, "Silvermont"),
    (6, 0x4D, "Silvermont"),
    (6, 0x4C, "Airmont"),
    (6, 0x5A, "Silvermont"),
    (6, 0x75, "Airmont"),
    (6, 0x5C, "Goldmont"),
    (6, 0x96, "Elkhart Lake"),
    (6, 0x9C, "Jasper Lake"),
]


@pytest.mark.parametrize(("family", "model", "name"), NAMED)
def test_models_of_the_kernel_have_a_name(family: int, model: int, name: str) -> None:
    assert find(INTEL, family, model, 0).name == name
    assert find(AMD, family, model, 0).name.startswith("unknown (")


# --- AMD ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "model", "leaf22", "hypervisor", "name"),
    [
        (0x17, 0x01, None, False, "Zen 1"),
        (0x17, 0x31, None, False, "Zen 2"),
        (0x19, 0x01, (0, 6, 0, 0), False, "Zen 3"),
        (0x19, 0x11, (1, 6, 0, 0), False, "Zen 4"),
        (0x19, 0x11, (1, 6, 0, 0), True, "Zen 4"),
        (0x17, 0x50, None, False, "Zen 1"),
        (0x17, 0x71, None, False, "Zen 2"),
        (0x19, 0x11, None, True, "Zen 4"),
        (0x19, 0x21, None, True, "Zen 3"),
        (0x19, 0x30, None, True, "Zen 3"),
        (0x19, 0x50, None, True, "Zen 3"),
        (0x19, 0xA0, None, True, "Zen 4"),
        (0x19, 0xC0, None, True, "Zen 3 or 4"),
        (0x1A, 0x02, (1, 6, 0, 0), False, "Zen 5"),
        (0x1A, 0x50, (1, 6, 0, 0), False, "Zen 6"),
        (0x1A, 0x80, (1, 6, 0, 0), False, "Zen 6"),
        (0x1A, 0x70, (1, 6, 0, 0), False, "Zen 5"),
        (0x1A, 0xCF, (1, 6, 0, 0), False, "Zen 6"),
    ],
)
def test_zen(
    family: int, model: int, leaf22: Registers | None, hypervisor: bool, name: str
) -> None:
    result = find(AMD, family, model, 1, epyc(leaf22, hypervisor=hypervisor))
    assert (result.name, result.smt, result.methods) == (name, 2, ("traced", "bounds"))
    assert result.budget == Budget(6, 0, 48, 0)
    assert result.events["cycles"].config == 0x76
    assert result.events["instructions"].config == 0xC0
    assert ("ref" in result.events) is (name in {"Zen 4", "Zen 5", "Zen 6"})
    assert ("smi" in result.events) is (name != "Zen 1")
    assert result.clocks == Clocks(0xC00000E7, 0xC00000E8)
    assert result.bank is not None
    assert (result.bank.select, result.bank.counter, result.bank.step) == (
        0xC0010200,
        0xC0010201,
        2,
    )
    assert (result.bank.control is not None) is (leaf22 == (1, 6, 0, 0))
    assert result.rapl is not None
    assert result.rapl.package == 0xC001029B


def test_zen_4_reference_has_a_code_of_nine_bits() -> None:
    ref = find(AMD, 0x19, 0x11, 1, epyc((1, 6, 0, 0))).events["ref"]
    assert (ref.code, ref.umask) == (0x120, 0x01)
    assert ref.config == 0x1_0000_0120  # 20 in [7:0], umask 01 in [15:8], 1 in [35:32]


def test_zen_without_a_cpuid_driver_follows_its_family() -> None:
    assert find(AMD, 0x17, 0x31, 0).name == "Zen 2"
    assert find(AMD, 0x19, 0x11, 1).name == "Zen 4"
    assert find(AMD, 0x19, 0x01, 1).name == "Zen 3"
    hygon = find("HygonGenuine", 0x18, 0x00, 1, epyc(None))
    assert (hygon.name, hygon.budget) == ("Zen 1", Budget(6, 0, 48, 0))
    assert hygon.events == find(AMD, 0x17, 0x01, 1).events
    assert find(AMD, 0x19, 0x11, 1).clocks == Clocks(0xC00000E7, 0xC00000E8)


def test_zen_in_a_guest_that_hides_its_clocks() -> None:
    result = find(AMD, 0x19, 0x11, 1, epyc(None, hypervisor=True, counts=False))
    assert result.clocks is None


def test_zen_in_a_guest_with_only_resettable_clocks() -> None:
    plain = epyc(None, hypervisor=True, counts=False)

    def leaves(leaf: int, subleaf: int = 0, /) -> Registers | None:
        return (4, 0, 1, 0) if leaf == 6 else plain(leaf, subleaf)

    assert find(AMD, 0x19, 0x11, 1, leaves).clocks == Clocks(0xE7, 0xE8)
