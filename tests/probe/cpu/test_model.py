"""Every CPU model: its name, SMT methods and registers, compared with a table that was typed from
public sources; steppings; AMD."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import cpu_models
import pytest
from cpu_models import AMD, INTEL, ONE_ANY, V4, Perfmon, epyc, machine

from perfprobe.cpu import model_tables
from perfprobe.cpu.cpuid import LeafRegisters
from perfprobe.cpu.model import find_uarch
from perfprobe.cpu.model_terms import (
    METHOD_EVENTS,
    ClockRegisters,
    CounterBudget,
    RaplRegisters,
    Uarch,
)

# --- every Intel model ----------------------------------------------------------------------------

TABLE = Path(__file__).parents[2] / "data/cpu_models.txt"
PC = [0x60D, 0x3F8, 0x3F9, 0x3FA]
PACKAGE_STATES = {"-": [], "PC": PC, "DEEP": [*PC, 0x630, 0x631, 0x632]}
STATE_NAMES = {
    0x660: "c1", 0x3FC: "c3", 0x3FD: "c6", 0x3FE: "c7", 0x3FF: "c6", 0x60D: "pc2", 0x3F8: "pc3",
    0x3F9: "pc6", 0x3FA: "pc7", 0x630: "pc8", 0x631: "pc9", 0x632: "pc10",
}  # fmt: skip
"""Linux, msr-index.h: the idle state whose time each register counts."""
_CLIENT = {0: "PROCHOT", 1: "thermal", 8: "electrical", 10: "PL1", 11: "PL2",
           13: "turbo transition attenuation"}  # fmt: skip
_SKYLAKE = {
    **_CLIENT, 4: "residency state regulation", 5: "running average thermal limit",
    6: "VR thermal alert", 7: "VR thermal design current", 12: "max turbo limit",
}  # fmt: skip
LAYOUTS = {
    "690 client": {
        **_CLIENT, 4: "graphics driver", 5: "autonomous utilisation", 6: "VR thermal",
        9: "core power", 12: "multi-core turbo",
    },
    "690 server": {
        0: "PROCHOT", 1: "thermal", 2: "power budget", 3: "platform configuration",
        5: "autonomous utilisation", 6: "VR thermal", 8: "electrical", 10: "multi-core turbo",
        13: "below base clock", 14: "below turbo for the active cores", 15: "below request",
    },
    "690 phi": {0: "PROCHOT", 1: "thermal", 6: "VR thermal", 8: "electrical"},
    "64F goldmont": {
        0: "PROCHOT", 1: "thermal", 2: "PL1", 3: "PL2", 9: "core power", 10: "VR thermal alert",
        11: "max turbo limit", 12: "electrical", 13: "turbo transition attenuation",
        14: "below maximum efficiency",
    },
    "64F client": _SKYLAKE,
    "64F xeon": {**_SKYLAKE, 10: "PL1 or multi-core turbo"},
}  # fmt: skip
"""The named bits of each layout of a limit register."""
LICENSES = {
    "-": {},
    "icx": {"license_1": 0x1828, "license_2": 0x2028},
    "skx": {"license_1": 0x1828, "license_2": 0x2028, "license_throttle": 0x4028},
}
"""Codes of the events of SIMD licences, where Intel documents them and they lower the clock."""
EVENT_CODES = {
    "cycles": 0x3C, "instructions": 0xC0, "ref": 0x0300, "ref_p": 0x013C, "one_thread": 0x023C,
    "any_thread": 0x20013C, "distributed": 0x083C,
}  # fmt: skip
"""Intel's event lists: umask and event code; "ref" is Linux's pseudo code; bit 21 is AnyThread."""


class Row(NamedTuple):
    family: str
    models: str
    core_type: str
    name: str
    perfmon: str
    smt: str
    methods: str
    turbo: str
    core_states: str
    package_states: str
    limits: str
    base: str
    clocks: str
    bus_mhz: str
    crystals_mhz: str
    power: str
    licenses: str


LINES = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
ROWS = [Row(*(cell.strip() for cell in line.split("|"))) for line in LINES]
MODELS = [(row, int(model, 16)) for row in ROWS for model in row.models.split()]


def registers(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(int(word, 16) for word in text.split())


each_model = pytest.mark.parametrize(
    ("row", "model"), MODELS, ids=[f"{row.name}-{model:02X}" for row, model in MODELS]
)


def select_uarch(row: Row, model: int) -> Uarch:
    perfmon: Perfmon = getattr(cpu_models, row.perfmon)
    core_type = None if row.core_type == "-" else row.core_type
    leaves = machine(perfmon, x06=(0, 0, 1, 0))
    result = find_uarch(INTEL, int(row.family), model, 0, leaves, core_type)
    assert result.core_type == core_type
    return result


@each_model
def test_each_listed_intel_model_is_found(row: Row, model: int) -> None:
    result = select_uarch(row, model)
    threads = None if row.smt == "-" else int(row.smt)
    assert (result.name, result.vendor, result.threads_per_core) == (row.name, INTEL, threads)
    assert result.smt_methods == getattr(cpu_models, row.methods)
    assert result.counts_mperf_at_base_clock is (row.base == "base")
    assert result.bclk_hz == (None if row.bus_mhz == "-" else float(f"{row.bus_mhz}e6"))
    crystals = () if row.crystals_mhz == "-" else row.crystals_mhz.split()
    assert result.crystals_hz == tuple(float(f"{mhz}e6") for mhz in crystals)


@each_model
def test_each_intel_model_has_its_events(row: Row, model: int) -> None:
    result = select_uarch(row, model)
    licenses = {key: event.config for key, event in result.license_events.items()}
    assert licenses == LICENSES[row.licenses]
    events = result.events
    methods = [*METHOD_EVENTS.keys() & {*getattr(cpu_models, row.methods)}]
    keys = {"cycles", "instructions", "ref", "ref_p", *(METHOD_EVENTS[name] for name in methods)}
    assert {key: event.config for key, event in events.items()} == {k: EVENT_CODES[k] for k in keys}
    fixed = {key: event.fixed_counter for key, event in events.items()}
    assert fixed == {**dict.fromkeys(keys), "instructions": 0, "cycles": 1, "ref": 2}
    ref_p_clock, smt_clock = (row.clocks.split() * 2)[:2]
    clocks = {"cycles": "core", "instructions": "core", "ref": "tsc", "ref_p": ref_p_clock}
    assert {key: event.counted_clock for key, event in events.items()} == {
        key: clocks.get(key, smt_clock) for key in keys
    }


@each_model
def test_each_intel_model_has_its_registers(row: Row, model: int) -> None:
    result = select_uarch(row, model)
    assert_turbo(result, row.turbo)
    names = {
        scope: {state.msr: state.name for state in result.residencies if state.scope == scope}
        for scope in ("core", "package")
    }
    core_states, package_states = registers(row.core_states), PACKAGE_STATES[row.package_states]
    assert names["core"] == {msr: STATE_NAMES[msr] for msr in core_states}
    assert names["package"] == {msr: STATE_NAMES[msr] for msr in package_states}
    shift = 10 if row.name.startswith("Knights") else 0
    assert result.clocks == ClockRegisters(0xE7, 0xE8, shift)
    has_power = row.power == "RAPL"
    assert result.rapl == (RaplRegisters(0x606, None, 0x610, 0x613) if has_power else None)
    if result.limits is None:
        assert row.limits == "-"
    else:
        assert f"{result.limits.msr:X}" == row.limits[:3]
        layout = LAYOUTS[row.limits]
        assert result.limits.bit_names == tuple(layout.get(n, f"bit {n}") for n in range(16))


def assert_turbo(uarch: Uarch, text: str) -> None:
    """Asserts that the turbo registers of a model match a cell of the table: "groups" and "knl" are
    written before the registers, and "x4" if the counts are of modules of four cores."""
    if text == "-":
        assert uarch.turbo is None
        return
    assert uarch.turbo is not None
    layout = next((word for word in ("groups", "knl") if word in text), "per-count")
    ratios = registers(text.removeprefix(layout).replace("x4", ""))
    each = 4 if "x4" in text else 1
    assert (uarch.turbo.layout, uarch.turbo.ratio_msrs) == (layout, ratios)
    assert (uarch.turbo.count_msr, uarch.turbo.cores_per_count) == (
        0x1AE if layout == "groups" else None, each,
    )  # fmt: skip


def test_the_table_has_no_other_models() -> None:
    typed = {(int(row.family), model) for row, model in MODELS}
    rows = [row for row in model_tables.MODEL_ROWS if row.uarch.vendor == INTEL]
    assert {(row.family, model) for row in rows for model in row.models} == typed


def test_no_two_rows_claim_one_cpu() -> None:
    seen = set()
    for row in model_tables.MODEL_ROWS:
        if row.uarch.vendor != INTEL:
            continue
        for model in row.models:
            for stepping in row.steppings or range(16):
                claim = (row.family, model, stepping, row.core_type)
                assert claim not in seen, claim
                seen.add(claim)


@pytest.mark.parametrize(("steppings", "name"), [
    ((None, *range(5)), "Skylake-SP"),
    (range(5, 10), "Cascade Lake"),
    (range(10, 16), "Cooper Lake"),
])  # fmt: skip
def test_every_stepping_of_55_is_known(steppings: Iterable[int | None], name: str) -> None:
    for stepping in steppings:
        result = find_uarch(INTEL, 6, 0x55, stepping, machine(V4))
        assert (result.name, result.smt_methods) == (name, ONE_ANY)
        assert result.license_events["license_2"].config == 0x2028


@pytest.mark.parametrize(
    ("announced", "bits"), [(0x90, [0, 2, 4, 6, 8, 10, 12, 14]), (0x10, [0, 2, 4, 6, 8, 10])]
)
def test_thermal_bits_are_those_listed_by_cpuid(announced: int, bits: list[int]) -> None:
    seen = (0x50654, 0, 0, 1 << 22)
    thermal = find_uarch(INTEL, 6, 0x55, 4, machine(V4, x01=seen, x06=(announced, 0, 0, 0))).thermal
    assert thermal is not None
    assert [thermal.core_msr, thermal.package_msr, thermal.tjmax_msr] == [0x19C, 0x1B1, 0x1A2]
    assert [bit for bit, *_ in thermal.status_bits] == bits
    assert find_uarch(INTEL, 6, 0x55, 4, machine(V4, x01=(0x50654, 0, 0, 0))).thermal is None


@pytest.mark.parametrize(("models", "name"), [
    ((0x37, 0x4A, 0x4D, 0x5A), "Silvermont"), ((0x4C, 0x75), "Airmont"), ((0x8A,), "Lakefield"),
    ((0x9D,), "Ice Lake NNP-I"),
])  # fmt: skip
def test_models_without_a_row_have_a_name(models: tuple[int, ...], name: str) -> None:
    for model in models:
        assert find_uarch(INTEL, 6, model, 0).name == name
        assert find_uarch(AMD, 6, model, 0).name.startswith("unknown (")


# --- AMD ------------------------------------------------------------------------------------------

COUNTS = (1, 6, 0, 0)
# Linux, pmu-events/arch/x86/amdzen1 to 6; bits 35:32 have bits 11:8 of the event code.
ZEN_EVENT_CODES = {
    "cycles": 0x76, "instructions": 0xC0, "smi": 0x2B, "ref": 0x1_0000_0120,
    "smt_contention": 0x1_0000_60A0,
}  # fmt: skip
ZEN_KEYS = [*ZEN_EVENT_CODES]
SLOTS = {"Zen 4": 6, "Zen 5": 8, "Zen 6": 8}
"""Dispatch slots per cycle; only these count reference cycles and the sibling's slots."""


@pytest.mark.parametrize(("family", "models", "leaf22", "hypervisor", "name"), [
    (0x17, (0x01, 0x2F, 0x50, 0x5F), None, False, "Zen 1"),
    (0x17, (0x30, 0x4F, 0x60, 0xFF), None, False, "Zen 2"),
    (0x19, (0x01,), (0, 6, 0, 0), False, "Zen 3"), (0x19, (0x11,), COUNTS, False, "Zen 4"),
    (0x19, (0x11,), COUNTS, True, "Zen 4"), (0x19, (0x10, 0x1F), None, True, "Zen 4"),
    (0x19, (0x60, 0xA0, 0xAF), None, True, "Zen 4"),
    (0x19, (0x00, 0x0F, 0x20, 0x30, 0x5F), None, True, "Zen 3"),
    (0x19, (0xB0, 0xC0), None, True, "Zen 3 or 4"),
    (0x1A, (0x02, 0x4F, 0x60, 0x7F, 0xB0, 0xBF, 0xF0), COUNTS, False, "Zen 5"),
    (0x1A, (0x50, 0x5F, 0x80, 0xAF, 0xC0, 0xEF), COUNTS, False, "Zen 6"),
])  # fmt: skip
def test_zen_models_have_two_threads_and_six_counters(
    family: int, models: tuple[int, ...], leaf22: LeafRegisters | None, hypervisor: bool, name: str
) -> None:
    for model in models:
        result = find_uarch(AMD, family, model, 1, epyc(leaf22, hypervisor=hypervisor))
        assert (result.name, result.threads_per_core) == (name, 2)
        assert result.smt_methods == ("traced", "bounds")
        assert result.budget == CounterBudget(6, 0, 48, 0)
        configs = {key: event.config for key, event in result.events.items()}
        keys = ZEN_KEYS[: 2 if name == "Zen 1" else 5 if name in SLOTS else 3]
        assert configs == {key: ZEN_EVENT_CODES[key] for key in keys}
        assert result.slots_per_cycle == SLOTS.get(name)
        assert result.clocks == ClockRegisters(0xC00000E7, 0xC00000E8, 0)
        bank = result.counter_registers
        assert bank is not None
        assert (bank.first_select, bank.first_counter) == (0xC0010200, 0xC0010201)
        assert bank.address_step == 2
        assert (bank.enable_msr is not None) is (leaf22 == COUNTS)
        assert result.rapl == RaplRegisters(0xC0010299, 0xC001029B)


def test_zen_without_a_cpuid_driver_follows_its_family() -> None:
    names = [find_uarch(AMD, *of, 1).name for of in ((0x17, 0x31), (0x19, 0x11), (0x19, 0x01))]
    assert names == ["Zen 2", "Zen 4", "Zen 3"]
    hygon = find_uarch("HygonGenuine", 0x18, 0x00, 1, epyc(None))
    assert (hygon.name, hygon.budget) == ("Zen 1", CounterBudget(6, 0, 48, 0))
    assert hygon.events == find_uarch(AMD, 0x17, 0x01, 1).events
    assert find_uarch(AMD, 0x19, 0x11, 1).clocks == ClockRegisters(0xC00000E7, 0xC00000E8)


def test_a_zen_guest_has_the_clocks_that_its_hypervisor_offers() -> None:
    """A hypervisor hides the clock registers, or offers those that a tool can reset."""
    plain = epyc(None, hypervisor=True, counts=False)
    assert find_uarch(AMD, 0x19, 0x11, 1, plain).clocks is None

    def leaves(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
        return (4, 0, 1, 0) if leaf == 6 else plain(leaf, subleaf)

    assert find_uarch(AMD, 0x19, 0x11, 1, leaves).clocks == ClockRegisters(0xE7, 0xE8)
