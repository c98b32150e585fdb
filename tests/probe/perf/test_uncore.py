"""Counters of cores and packages from PMUs outside the cores."""

from __future__ import annotations

import errno
from pathlib import Path

import fakeperf
import pytest
import trees
from fakeperf import AMD, INTEL, Leaves, keys_on, make_planner, opened_parts, skylake

from perfprobe.machine.parts import Part
from perfprobe.perf import perf_pmus, uncore

# --- cores and packages --------------------------------------------------------------------------


def write_uncore(root: Path, mask: str = "0") -> None:
    fakeperf.write_pmu(root, "cstate_core", 20, mask="0-1")
    fakeperf.write_events(root, "cstate_core", c1_residency=0, c6_residency=2)
    fakeperf.write_pmu(root, "power", 22, mask=mask)
    fakeperf.write_events(root, "power", energy_cores=1, energy_pkg=2, energy_ram=3)
    at = f"{fakeperf.DEVICES}/power/events/energy-pkg"
    trees.put(root, f"{at}.scale", "2.3283064365386962890625e-10\n")
    trees.put(root, f"{at}.unit", "Joules\n")


def test_cores_have_residencies_and_packages_have_energy(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    write_uncore(tmp_path)
    kernel = fakeperf.Kernel()
    *_, cstate, power = opened_parts(tmp_path, planner, kernel)
    assert (cstate.scope, keys_on(cstate)) == ("core", ["core_c1", "core_c6"])
    assert (power.scope, keys_on(power)) == (
        "package",
        ["energy_j", "energy_cores_j", "energy_ram_j"],
    )
    assert power.counters[0].scale == 2**-32
    assert (power.counters[0].unit, power.counters[0].parts) == ("J", [])
    (slot,) = cstate.open(3)
    group = kernel.groups[-1]
    assert slot.count == 2
    assert [kernel.opened[fd][1] for fd in group.fds] == [1, 1]  # CPU 1 is the mask's CPU of core 1
    (slot,) = power.open(2)
    assert slot.count == 3
    assert [kernel.opened[fd][1] for fd in kernel.groups[-1].fds] == [0, 0, 0]
    assert not kernel.groups[-1].timed


def test_a_core_is_read_on_one_of_its_cpus(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    fakeperf.write_pmu(tmp_path, "cstate_core", 20, mask="0-3")
    fakeperf.write_events(tmp_path, "cstate_core", c6_residency=2)
    cstate = opened_parts(tmp_path, planner, fakeperf.Kernel())[-1]
    assert (cstate.counters[0].columns, len(cstate.open(3))) == (1, 1)


C_STATES = {f"c{n}_residency": n for n in (1, 2, 3, 6, 7, 8, 9, 10)}
DOMAINS = {"pkg": "energy_j"} | {f: f"energy_{f}_j" for f in ("cores", "ram", "gpu", "psys")}


@pytest.mark.parametrize(("pmu", "events", "scope", "keys"), [
    ("cstate_core", C_STATES, "core", [f"core_c{n}" for n in (1, 3, 6, 7)]),
    ("cstate_pkg", C_STATES, "package", [f"package_c{n}" for n in (2, 3, 6, 7, 8, 9, 10)]),
    ("power", dict.fromkeys((f"energy_{name}" for name in DOMAINS), 1), "package",
     [*DOMAINS.values()]),
    ("power_core", {"energy_core": 1}, "core", ["energy_core_j"]),
])  # fmt: skip
def test_each_event_of_a_pmu_has_its_key(
    tmp_path: Path, pmu: str, events: dict[str, int], scope: str, keys: list[str]
) -> None:
    """Linux, events/intel/cstate.c and events/rapl.c."""
    planner = skylake(tmp_path)
    fakeperf.write_pmu(tmp_path, pmu, 21, mask="0")
    fakeperf.write_events(tmp_path, pmu, "config:0-63", **events)
    part = opened_parts(tmp_path, planner, fakeperf.Kernel())[-1]
    assert (part.scope, keys_on(part)) == (scope, keys)


def test_a_package_of_two_dies_is_the_sum(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    write_uncore(tmp_path, mask="0,1")
    kernel = fakeperf.Kernel()
    power = opened_parts(tmp_path, planner, kernel)[-1]
    energy = power.counters[0]
    assert (energy.key, energy.columns, energy.parts) == ("energy_j", 2, ["die 0", "die 1"])
    slots = power.open(0)
    assert [slot.count for slot in slots] == [5, 5]
    assert [slot.column for slot in slots] == [0, 1]
    assert [group.at for group in kernel.groups[-2:]] == [[0, 2, 4], [0, 2, 4]]
    assert [kernel.opened[g.fds[0]][1] for g in kernel.groups[-2:]] == [0, 1]


def test_unreadable_energy_is_missing(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    write_uncore(tmp_path)
    refuse = lambda e, _, __: errno.EACCES if e.type == 22 else 0  # noqa: E731
    trees.put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "2\n")
    power = opened_parts(tmp_path, planner, fakeperf.Kernel(refuse=refuse))[-1]
    assert power.counters == []
    assert {m.what for m in power.missing} == {"energy_j", "energy_cores_j", "energy_ram_j"}
    assert power.open(0) == []


# --- the power control unit ----------------------------------------------------------------------


def power_control(root: Path, model: int, form: str = "config:0-7", mask: str = "0") -> list[Part]:
    """Returns the parts of a machine with a power control unit and no other uncore PMU."""
    planner = make_planner(root, INTEL, 6, model, Leaves())
    fakeperf.write_pmu(root, "uncore_pcu", 31, mask=mask)
    trees.put(root, f"{fakeperf.DEVICES}/uncore_pcu/format/event", f"{form}\n")
    return opened_parts(root, planner, fakeperf.Kernel())[2:]


def test_four_events_of_the_power_control_unit_are_counted(tmp_path: Path) -> None:
    planner = skylake(tmp_path)
    fakeperf.write_pmu(tmp_path, "uncore_pcu", 31, mask="1")
    trees.put(tmp_path, f"{fakeperf.DEVICES}/uncore_pcu/format/event", "config:0-7\n")
    kernel = fakeperf.Kernel()
    part = opened_parts(tmp_path, planner, kernel)[-1]
    assert part.scope == "package"
    assert keys_on(part) == ["pcu_ticks", "pcu_transition", "pcu_power", "pcu_thermal"]
    assert [m.what for m in part.missing] == [
        "pcu_prochot_external", "pcu_prochot_internal", "pcu_vr",
    ]  # fmt: skip
    (slot,) = part.open(3)
    assert slot.count == 4
    results = [kernel.opened[fd][:2] for fd in kernel.groups[-1].fds]
    assert [(e.type, e.config, e.is_core, cpu) for e, cpu in results] == [
        (31, code, False, 1) for code in (0x00, 0x74, 0x05, 0x04)
    ]


def test_sandy_bridge_needs_the_ninth_bit(tmp_path: Path) -> None:
    """The event for transitions has its extension bit set: bit 21 of the register."""
    (part,) = power_control(tmp_path, 0x2D, "config:0-7,21")
    assert keys_on(part)[:2] == ["pcu_ticks", "pcu_transition"]
    pmu = perf_pmus.find_pmu(tmp_path, "uncore_pcu")
    assert pmu is not None
    assert perf_pmus.shift_to_term(pmu, "event", 0x100) == 1 << 21
    trees.put(tmp_path, f"{fakeperf.DEVICES}/uncore_pcu/format/event", "config:0-7\n")
    (part,) = power_control(tmp_path, 0x2D)
    assert keys_on(part) == ["pcu_ticks", "pcu_power", "pcu_thermal", "pcu_current"]


@pytest.mark.parametrize(("models", "codes"), [
    ("2D", "00 100 05 04 07 0A 09 32 06 - -"),
    ("3E", "00 60 05 04 07 0A 09 32 06 - -"),
    ("3F 4F 56", "00 74 05 04 - 0A 09 42 06 - -"),
    ("55", "00 74 05 04 - 0A 09 42 - - -"),
    ("6A 6C", "00 74 05 04 - 0A 09 42 - 4A 49"),
    ("8F CF", "01 74 05 04 - 0A 09 42 - 4A 49"),
    ("AD AE AF DD", "01 74 05 04 - 0A 09 - - - -"),
])  # fmt: skip
def test_the_codes_of_the_power_unit_are_those_of_intels_event_lists(
    models: str, codes: str
) -> None:
    """CLOCKTICKS, FREQ_TRANS_CYCLES (bit 8 is the extension set), FREQ_MAX_POWER_CYCLES, …"""
    keys = (
        "ticks", "transition", "power", "thermal", "current", "prochot_external",
        "prochot_internal", "vr", "os", "avx512", "avx256",
    )  # fmt: skip
    pairs = zip(keys, codes.split(), strict=True)
    expected = {f"pcu_{key}": int(code, 16) for key, code in pairs if code != "-"}
    fourth = "pcu_avx512" if models == "8F CF" else "pcu_thermal"
    for model in models.split():
        result = uncore.pcu_codes(INTEL, 6, int(model, 16))
        assert result == expected
        assert [*result][:4] == ["pcu_ticks", "pcu_transition", "pcu_power", fourth]


@pytest.mark.parametrize(("vendor", "family", "model", "known"), [
    (INTEL, 6, 0x55, True), (INTEL, 6, 0x5E, False), (INTEL, 6, None, False),
    (INTEL, 19, 0x55, False), (AMD, 6, 0x55, False), (INTEL, None, 0x55, False),
])  # fmt: skip
def test_only_models_of_the_table_have_a_power_unit(
    vendor: str, family: int | None, model: int | None, known: bool
) -> None:
    assert bool(uncore.pcu_codes(vendor, family, model)) == known
