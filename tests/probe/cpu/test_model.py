"""What is said of each model, against tables typed by hand from public sources: Linux
intel-family.h, Intel's event lists, CPUID dumps.
"""

from __future__ import annotations

import pytest

from perfprobe.cpu import model_tables
from perfprobe.cpu.clock_rates import base_hz, multipliers, tsc_hz
from perfprobe.cpu.cpuid import Leaves, Registers, unreadable
from perfprobe.cpu.model import find
from perfprobe.cpu.model_terms import Budget, Clocks, Uarch
from perfprobe.wire import Multiplier

INTEL = "GenuineIntel"
AMD = "AuthenticAMD"

Perfmon = tuple[int, int]  # eax, edx of leaf 0AH
V3 = (0x07300403, 0x603)
V4 = (0x07300404, 0x603)
V4_GONE = (0x07300404, 0x8603)
V5 = (0x08300805, 0x8604)
V5_GRACEMONT = (0x08300605, 0x8603)
V6 = (0x08300806, 0x8603)
V3_NARROW = (0x07280203, 0x503)
V3_BONNELL = (0x07280203, 0x2501)


def machine(
    perfmon: Perfmon | None = None,
    crystal: tuple[int, int, int] | None = None,
    mhz: int = 0,
    **leaves: Registers,
) -> Leaves:
    """An Intel CPU: leaf 0AH, 15H as (EBX, EAX, ECX) the way it is written, 16H, and others."""
    table: dict[int, Registers] = {0: (0x20, 0x756E6547, 0x6C65746E, 0x49656E69)}
    if perfmon is not None:
        table[0x0A] = (perfmon[0], 0, 0, perfmon[1])
    if crystal is not None:
        table[0x15] = (crystal[1], crystal[0], crystal[2], 0)
    table[0x16] = (mhz, 0, 0, 0)
    table.update({int(name[1:], 16): registers for name, registers in leaves.items()})

    def read(leaf: int, subleaf: int = 0, /) -> Registers | None:
        return table.get(leaf) if subleaf == 0 else None

    return read


def epyc(leaf22: Registers | None, *, hypervisor: bool = False, counts: bool = True) -> Leaves:
    table: dict[int, Registers] = {
        0x00: (0x10, 0x68747541, 0x444D4163, 0x69746E65),
        0x01: (0xA00F11, 0, hypervisor << 31, 0),
        0x06: (0x4, 0, counts, 0),
        0x0A: (0, 0, 0, 0),
        0x80000000: (0x80000022 if leaf22 else 0x80000021, 0, 0, 0),
        0x80000007: (0, 0, 0, 0x500 if counts else 0x100),
        0x80000008: (0, 2 if counts else 0, 0, 0),
    }
    if leaf22:
        table[0x80000022] = leaf22

    def read(leaf: int, subleaf: int = 0, /) -> Registers | None:
        return table.get(leaf) if subleaf == 0 else None

    return read


def factors(found: list[Multiplier], key: str) -> list[float]:
    return [candidate.factor for candidate in found if candidate.counter == key]


# --- every model ---------------------------------------------------------------------------------

ANY = ("any-thread", "traced", "bounds")
ONE_ANY = ("one-thread", "any-thread", "traced", "bounds")
ONE_DIST = ("one-thread", "distributed", "traced", "bounds")
SOFT = ("traced", "bounds")
SINGLE = ("single",)

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
    found = find(INTEL, family, model, 0, machine(perfmon), core_type)
    assert (found.name, found.vendor, found.smt) == (name, INTEL, smt)
    assert found.methods == methods
    assert found.core_type == core_type
    assert ("one_thread" in found.events) is ("one-thread" in methods)
    assert ("any_thread" in found.events) is ("any-thread" in methods)
    assert ("distributed" in found.events) is ("distributed" in methods)
    assert {"cycles", "instructions", "ref", "ref_p"} <= found.events.keys()


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
    found = find(INTEL, 6, 0x55, stepping, machine(V4))
    assert found.methods == ONE_ANY
    assert found.licenses["license_2"].config == 0x2028


# --- events --------------------------------------------------------------------------------------


def configs(found: Uarch) -> dict[str, int]:
    return {key: event.config for key, event in found.events.items()}


def test_events_of_skylake() -> None:
    assert configs(find(INTEL, 6, 0x55, 4, machine(V4))) == {
        "ref": 0x0300,
        "cycles": 0x003C,
        "instructions": 0x00C0,
        "ref_p": 0x013C,
        "one_thread": 0x023C,
        "any_thread": 0x20013C,
    }


def test_events_of_sapphire_rapids() -> None:
    assert configs(find(INTEL, 6, 0x8F, 8, machine(V5))) == {
        "ref": 0x0300,
        "cycles": 0x003C,
        "instructions": 0x00C0,
        "ref_p": 0x013C,
        "one_thread": 0x023C,
        "distributed": 0x083C,
    }


def test_licenses() -> None:
    skx = {k: e.config for k, e in find(INTEL, 6, 0x55, 4, machine(V4)).licenses.items()}
    assert skx == {
        "license_0": 0x0728,
        "license_1": 0x1828,
        "license_2": 0x2028,
        "license_throttle": 0x4028,
    }
    icx = {k: e.config for k, e in find(INTEL, 6, 0x6A, 6, machine(V5)).licenses.items()}
    assert icx == {"license_0": 0x0728, "license_1": 0x1828, "license_2": 0x2028}
    adl = find(INTEL, 6, 0x97, 2, machine(V5), "P").licenses
    assert {k: e.config for k, e in adl.items()} == {
        "license_1": 0x0228,
        "license_2": 0x0428,
        "license_3": 0x0828,
    }
    assert all(event.counters == 4 for event in adl.values())
    # 0x28 is something else on Skymont, and the lists of these have none.
    for model, side in ((0x97, "E"), (0xAA, "P"), (0xC6, "P"), (0xC6, "E")):
        assert find(INTEL, 6, model, 0, machine(V5), side).licenses == {}
    for model in (0x8F, 0xCF, 0xAD, 0x5E):
        assert find(INTEL, 6, model, 0, machine(V5)).licenses == {}


@pytest.mark.parametrize("model", [0x55, 0x3C, 0x1A, 0x57, 0x1C])
def test_no_anythread_where_cpuid_denies_it(model: int) -> None:
    for leaves in (machine((0x07300402, 0x8603)), machine((0x07300404, 0x8603)), unreadable):
        found = find(INTEL, 6, model, 0, leaves)
        assert "any_thread" not in found.events
        assert "any-thread" not in found.methods


def test_no_counters_in_a_guest_without_them() -> None:
    found = find(INTEL, 6, 0x55, 4, machine((0, 0)))
    assert found.budget == Budget(0, 0, 0, 0)
    assert found.events == {}
    assert found.licenses == {}
    assert found.methods == ("traced", "bounds")
    assert multipliers(found, machine((0, 0)), 0x1500) == []


def test_a_guest_with_two_fixed_counters_has_no_ref() -> None:
    guest = machine((0x07300402, 0x8602), x01=(0x50654, 0, 1 << 31, 0))
    found = find(INTEL, 6, 0x55, 4, guest)
    assert "ref" not in found.events
    assert "one_thread" in found.events


# --- hybrids -------------------------------------------------------------------------------------

HYBRID = (2, 0, 0, 1 << 15)
BARE = (0x90672, 0, 0, 0)


def test_hybrid_sides_by_cpuid() -> None:
    p = find(INTEL, 6, 0x97, 2, machine(V5, x01=BARE, x07=HYBRID, x1A=(0x40000001, 0, 0, 0)))
    e = find(
        INTEL, 6, 0x97, 2, machine(V5_GRACEMONT, x01=BARE, x07=HYBRID, x1A=(0x20000001, 0, 0, 0))
    )
    assert (p.core_type, p.smt, p.budget) == ("P", 2, Budget(8, 4, 48, 48))
    assert (e.core_type, e.smt, e.budget) == ("E", 1, Budget(6, 3, 48, 48))


def test_a_hybrid_model_without_e_cores_is_all_p() -> None:
    found = find(INTEL, 6, 0x97, 5, machine(V5, x01=BARE, x07=(2, 0, 0, 0)))
    assert (found.name, found.smt, found.core_type) == ("Alder Lake", 2, None)
    assert found.methods == ONE_DIST


def test_a_hybrid_of_unknown_side_gets_architectural_events_alone() -> None:
    guest = machine(V5, x01=(0x90672, 0, 1 << 31, 0), x07=(2, 0, 0, 0))
    for leaves in (guest, machine(V5, x01=BARE, x07=HYBRID)):
        found = find(INTEL, 6, 0x97, 2, leaves)
        assert found.name == "unknown (GenuineIntel family 6 model 97h)"
        assert found.events.keys() == {"ref", "cycles", "instructions", "ref_p"}
        assert found.licenses == {}


# --- unknown models ------------------------------------------------------------------------------


def test_unknown_model_by_capability() -> None:
    old = find(INTEL, 6, 0xF0, 1, machine(V4, x01=(0xF0601, 0, 0, 1 << 22), x06=(0, 0, 1, 0)))
    assert configs(old) == {
        "ref": 0x0300,
        "cycles": 0x003C,
        "instructions": 0x00C0,
        "ref_p": 0x013C,
        "any_thread": 0x20013C,
    }
    assert old.methods == ("any-thread", "traced", "bounds")
    assert old.budget == Budget(4, 3, 48, 48)
    assert old.clocks == Clocks(0xE7, 0xE8)
    assert (old.turbo, old.limits, old.rapl, old.residencies, old.smt) == (
        None,
        None,
        None,
        (),
        None,
    )
    new = find(INTEL, 6, 0xF1, 1, machine(V5))
    assert new.methods == ("traced", "bounds")
    assert "any_thread" not in new.events


def test_unknown_model_that_denies_the_reference_event() -> None:
    found = find(INTEL, 6, 0xF0, 1, machine(None, x0A=(0x07300403, 0x4, 0, 0x603)))
    assert found.events.keys() == {"ref", "cycles", "instructions"}
    assert found.methods == ("traced", "bounds")
    known = find(INTEL, 6, 0x1A, 5, machine(None, x0A=(0x07300403, 0x4, 0, 0x603)))
    assert known.methods == ANY  # Nehalem's own event is under the same code


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


def test_a_model_with_a_name_alone_counts_what_cpuid_announces() -> None:
    found = find(INTEL, 19, 0x01, 0, machine(V6))
    assert found.events.keys() == {"ref", "cycles", "instructions", "ref_p"}
    assert found.methods == SOFT
    assert (found.turbo, found.limits, found.rapl, found.smt) == (None, None, None, None)


# --- counters that leaf 0AH does not tell ---------------------------------------------------------


@pytest.mark.parametrize("model", [0xBD, 0xC5, 0xC6])
def test_p_cores_of_lunar_and_arrow_lake_have_ten_and_four(model: int) -> None:
    """Leaf 0AH has the part that both core types have: 8 and 3."""
    shared = machine(V6, x00=(0x23, 0x756E6547, 0x6C65746E, 0x49656E69), x23=(0b11, 0, 0, 0))

    def p_core(leaf: int, subleaf: int = 0, /) -> Registers | None:
        return (0x3FF, 0xF, 0, 0) if (leaf, subleaf) == (0x23, 1) else shared(leaf, subleaf)

    assert find(INTEL, 6, model, 0, p_core, "P").budget == Budget(10, 4)
    assert find(INTEL, 6, model, 0, shared, "P").budget == Budget(8, 3)


def test_counters_behind_a_gap_are_left_out() -> None:
    shared = machine(V6, x00=(0x23, 0x756E6547, 0x6C65746E, 0x49656E69), x23=(0b11, 0, 0, 0))

    def gap(leaf: int, subleaf: int = 0, /) -> Registers | None:
        return (0xFF, 0x77, 0, 0) if (leaf, subleaf) == (0x23, 1) else shared(leaf, subleaf)

    assert find(INTEL, 6, 0xBD, 0, gap, "E").budget == Budget(8, 3)


@pytest.mark.parametrize(("bits", "fixed"), [(0, 3), (1 << 31, 1)])
def test_bonnell_has_three_fixed_counters_unless_a_hypervisor_says_one(
    bits: int, fixed: int
) -> None:
    found = find(INTEL, 6, 0x1C, 2, machine(V3_BONNELL, x01=(0x106C2, 0, bits, 0)))
    assert found.budget == Budget(2, fixed, 40, 40)
    assert ("ref" in found.events) is (fixed == 3)


def zeros(leaf: int, subleaf: int = 0, /) -> Registers | None:
    return 0, 0, 0, 0


@pytest.mark.parametrize("leaves", [unreadable, zeros])
@pytest.mark.parametrize("vendor", ["", INTEL, AMD, "CentaurHauls"])
@pytest.mark.parametrize(("family", "model"), [(None, None), (6, 0xF0), (6, None), (0x15, 2)])
def test_nothing_known(vendor: str, family: int | None, model: int | None, leaves: Leaves) -> None:
    found = find(vendor, family, model, None, leaves)
    assert found.name.startswith("unknown (")
    assert found.events == {}
    assert found.methods == ("traced", "bounds")
    assert (found.bank, found.clocks, found.thermal, found.budget) == (None, None, None, None)
    assert multipliers(found, leaves, None) == []
    assert tsc_hz(found, leaves, None) == []
    assert base_hz(found, leaves, None) == []


def test_known_model_with_garbled_leaves_keeps_what_the_table_says() -> None:
    garbled = machine((0xFFFFFFFF, 0xFFFFFFFF))
    for leaves in (unreadable, zeros, garbled):
        found = find(INTEL, 6, 0x6A, 6, leaves)
        assert found.budget == Budget(8, 4, 48, 48)
        assert found.methods == ONE_DIST


# --- multipliers ---------------------------------------------------------------------------------


def test_skylake_sp() -> None:
    leaves = machine(V4, (168, 2, 0), 2100)
    found = multipliers(find(INTEL, 6, 0x55, 4, leaves), leaves, 21 << 8)
    for key in ("ref_p", "one_thread", "any_thread"):
        assert factors(found, key) == [84, 1, 21]
    first = found[0]
    assert first.why == (
        "core crystal: CPUID.15H 168/2; 25 MHz crystal: 4 x base ratio 21, MSR CEH"
    )
    assert first.type is None
    assert factors(found, "distributed") == []


def test_xeon_w_of_24_mhz_under_the_same_model() -> None:
    leaves = machine(V4, (276, 2, 0), 3300)
    found = multipliers(find(INTEL, 6, 0x55, 4, leaves), leaves, 33 << 8)
    assert factors(found, "one_thread") == [138, 132, 1, 33]


def test_ice_lake_sp() -> None:
    leaves = machine(V5, (192, 2, 0), 2400)
    found = multipliers(find(INTEL, 6, 0x6A, 6, leaves), leaves, None)
    assert [(m.counter, m.factor) for m in found] == [
        ("ref_p", 96),
        ("ref_p", 1),
        ("ref_p", 24),
        ("one_thread", 96),
        ("one_thread", 1),
        ("one_thread", 24),
        ("distributed", 96),
        ("distributed", 1),
        ("distributed", 24),
    ]


def test_sapphire_rapids_has_two_units_under_one_code() -> None:
    leaves = machine(V5, (176, 2, 25_000_000), 2200)
    found = multipliers(find(INTEL, 6, 0x8F, 8, leaves), leaves, 22 << 8)
    assert factors(found, "ref_p") == [1, 88]
    assert factors(found, "one_thread") == [88, 1, 22]
    assert factors(found, "distributed") == [88, 1, 22]
    assert factors(found, "any_thread") == []


def test_alder_lake_has_them_on_p_cores_alone() -> None:
    leaves = machine(V5, (78, 2, 38_400_000))
    p = multipliers(find(INTEL, 6, 0x97, 2, leaves, "P"), leaves, None)
    assert {m.type for m in p} == {"P"}
    assert factors(p, "one_thread") == [39, 1]
    assert factors(p, "ref_p") == [1, 39]
    e = multipliers(find(INTEL, 6, 0x97, 2, leaves, "E"), leaves, None)
    assert [(m.counter, m.factor, m.type) for m in e] == [("ref_p", 1, "E"), ("ref_p", 39, "E")]


def test_skylake_client() -> None:
    leaves = machine(V4, (334, 2, 0), 4000)
    found = multipliers(find(INTEL, 6, 0x5E, 3, leaves), leaves, 40 << 8)
    assert factors(found, "one_thread") == [167, 160, 1, 40]


@pytest.mark.parametrize("model", [0x2D, 0x3E, 0x3F, 0x4F])
def test_bus_clock_of_sandy_bridge_to_broadwell(model: int) -> None:
    leaves = machine(V3)
    found = find(INTEL, 6, model, 1, leaves)
    assert factors(multipliers(found, leaves, 0x80838F3011800), "any_thread") == [24, 1, 96]
    assert factors(multipliers(found, leaves, 0x80838F3011800), "one_thread") == [24, 1, 96]
    # Without the MSR the TSC tells; without either, nothing is better than a wrong guess.
    assert factors(multipliers(found, leaves, None, 2.394e9), "one_thread") == [24, 1, 96]
    assert multipliers(found, leaves, None) == []


def test_nehalem_is_to_be_calibrated() -> None:
    leaves = machine(V3)
    found = find(INTEL, 6, 0x1A, 5, leaves)
    assert factors(multipliers(found, leaves, 22 << 8), "any_thread") == [1, 22, 88]
    assert factors(multipliers(found, leaves, None, 2.933e9), "any_thread") == [1, 22, 88]
    assert factors(multipliers(found, leaves, None), "any_thread") == [1]


def test_xeon_phi() -> None:
    leaves = machine(V3_NARROW, x06=(0, 0, 1, 0))
    found = find(INTEL, 6, 0x57, 1, leaves)
    assert factors(multipliers(found, leaves, 14 << 8), "any_thread") == [1, 14, 56]
    assert {m.counter for m in multipliers(found, leaves, 14 << 8)} == {"ref_p", "any_thread"}
    assert found.budget == Budget(2, 3, 40, 40)
    assert find(INTEL, 6, 0x57, 1, unreadable).budget == Budget(2, 3, 40, 40)
    assert found.clocks == Clocks(0xE7, 0xE8, None, shift=10)
    assert found.turbo is not None
    assert found.turbo.layout == "knl"


def test_platform_info_is_intels() -> None:
    leaves = machine(V3)
    found = find("CentaurHauls", 7, 0x3B, 0, leaves)
    assert factors(multipliers(found, leaves, 22 << 8), "ref_p") == [1]


def test_amd_has_none() -> None:
    zen = epyc((1, 6, 0, 0))
    found = find(AMD, 0x19, 0x11, 1, zen)
    assert multipliers(found, zen, 21 << 8, 2.1e9) == []
    assert tsc_hz(found, zen, 21 << 8) == []
    assert base_hz(found, zen, 21 << 8) == []


# --- frequencies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "stepping", "crystal", "mhz", "platform_info", "tsc_mhz"),
    [
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
    ],
)
def test_tsc(
    model: int,
    stepping: int,
    crystal: tuple[int, int, int] | None,
    mhz: int,
    platform_info: int | None,
    tsc_mhz: list[float],
) -> None:
    leaves = machine(V4, crystal, mhz)
    rates = tsc_hz(find(INTEL, 6, model, stepping, leaves), leaves, platform_info)
    assert [rate.hz for rate in rates] == pytest.approx([m * 1e6 for m in tsc_mhz])
    assert all(rate.error is not None for rate in rates)


def test_which_crystal_is_open_without_a_base_frequency() -> None:
    leaves = machine(V4, (276, 2, 0))
    rates = tsc_hz(find(INTEL, 6, 0x55, 4, leaves), leaves, None)
    assert [(rate.hz, rate.error) for rate in rates] == [(3450e6, None), (3312e6, None)]
    assert rates[1].origin == "CPUID.15H 276/2 x 24 MHz, the crystal by model"


def test_base_of_goldmont_plus() -> None:
    leaves = machine(V4_GONE, (171, 3, 0))
    found = find(INTEL, 6, 0x7A, 1, leaves)
    assert [rate.hz for rate in base_hz(found, leaves, 11 << 8)] == [1.1e9]
    assert found.rapl is not None
    assert found.rapl.limits == 0x610


def test_base() -> None:
    leaves = machine(V4, (168, 2, 0), 2100)
    found = base_hz(find(INTEL, 6, 0x55, 4, leaves), leaves, 21 << 8)
    assert [(rate.hz, rate.origin) for rate in found] == [
        (2100e6, "MSR CEH: 21 x 100 MHz"),
        (2100e6, "CPUID.16H: 2100 MHz"),
    ]


def test_whose_mperf_runs_at_the_base_clock() -> None:
    tweaked = {
        *(0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6, 0x66, 0x7D, 0x7E, 0x8C, 0x8D, 0xA7),
        *(0x97, 0x9A, 0xBE, 0xB7, 0xBA, 0xBF, 0xD7, 0xAA, 0xAC, 0xB5, 0xBD, 0xC5, 0xC6),
        *(0xCC, 0xD5, 0xE5),
    }
    for family, model, side, *_ in MODELS:
        found = find(INTEL, family, model, 0, machine(V5), side)
        assert found.uses_base_clock_for_aperf is (family == 18 or model in tweaked), found.name


# --- registers -----------------------------------------------------------------------------------

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


# MSRs: c1 660, c3 3FC, c6 3FD, c7 3FE, Knights Landing's c6 3FF, a module's c6 664
CORE_STATES = {
    0x1A: [0x3FC, 0x3FD],
    0x2D: [0x3FC, 0x3FD, 0x3FE],
    0x45: [0x3FC, 0x3FD, 0x3FE],
    0x55: [0x3FC, 0x3FD, 0x3FE],
    0x66: [0x660, 0x3FC, 0x3FD, 0x3FE],
    0x7E: [0x660, 0x3FD, 0x3FE],
    0x6A: [0x660, 0x3FD],
    0x8F: [0x660, 0x3FD],
    0xAF: [0x660, 0x3FD, 0x664],
    0xDD: [0x660, 0x3FD, 0x664],
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


# --- AMD -----------------------------------------------------------------------------------------


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
    found = find(AMD, family, model, 1, epyc(leaf22, hypervisor=hypervisor))
    assert (found.name, found.smt, found.methods) == (name, 2, ("traced", "bounds"))
    assert found.budget == Budget(6, 0, 48, 0)
    assert found.events["cycles"].config == 0x76
    assert found.events["instructions"].config == 0xC0
    assert ("ref" in found.events) is (name in {"Zen 4", "Zen 5", "Zen 6"})
    assert ("smi" in found.events) is (name != "Zen 1")
    irperf = None if name == "Zen 1" else 0xC00000E9  # erratum 1054
    assert found.clocks == Clocks(0xC00000E7, 0xC00000E8, irperf)
    assert found.bank is not None
    assert (found.bank.select, found.bank.counter, found.bank.step) == (0xC0010200, 0xC0010201, 2)
    assert (found.bank.control is not None) is (leaf22 == (1, 6, 0, 0))
    assert found.rapl is not None
    assert found.rapl.package == 0xC001029B


def test_zen_4_reference_has_a_code_of_nine_bits() -> None:
    ref = find(AMD, 0x19, 0x11, 1, epyc((1, 6, 0, 0))).events["ref"]
    assert (ref.code, ref.umask) == (0x120, 0x01)
    assert ref.config == 0x1_0000_0120  # 20 in [7:0], umask 01 in [15:8], 1 in [35:32]


def test_zen_without_cpuid_driver_is_what_the_family_says() -> None:
    assert find(AMD, 0x17, 0x31, 0).name == "Zen 2"
    assert find(AMD, 0x19, 0x11, 1).name == "Zen 4"
    assert find(AMD, 0x19, 0x01, 1).name == "Zen 3"
    hygon = find("HygonGenuine", 0x18, 0x00, 1, epyc(None))
    assert (hygon.name, hygon.budget) == ("Zen 1", Budget(6, 0, 48, 0))
    assert hygon.events == find(AMD, 0x17, 0x01, 1).events
    assert find(AMD, 0x19, 0x11, 1).clocks == Clocks(0xC00000E7, 0xC00000E8, 0xC00000E9)


def test_zen_in_a_guest_that_hides_its_clocks() -> None:
    found = find(AMD, 0x19, 0x11, 1, epyc(None, hypervisor=True, counts=False))
    assert found.clocks is None


def test_zen_in_a_guest_with_resettable_clocks_alone() -> None:
    plain = epyc(None, hypervisor=True, counts=False)

    def leaves(leaf: int, subleaf: int = 0, /) -> Registers | None:
        return (4, 0, 1, 0) if leaf == 6 else plain(leaf, subleaf)

    assert find(AMD, 0x19, 0x11, 1, leaves).clocks == Clocks(0xE7, 0xE8)
