"""Power limits and energy from the files of powercap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trees

from perfprobe.cpu import topology
from perfprobe.polled.powercap import UNCORE_PATH, Powercap, UncoreClock

ZONES = "sys/class/powercap"
RANGE_UJ = 262_143_328_850  # Xeon: 2^32 units of 2^-14 J, minus one


def write_zone(root: Path, number: int, name: str, *limits: tuple[str, int], uj: int = 0) -> None:
    at = f"{ZONES}/intel-rapl:{number}"
    trees.put(root, f"{at}/name", f"{name}\n")
    trees.put(root, f"{at}/enabled", "1\n")
    trees.put(root, f"{at}/energy_uj", f"{uj}\n")
    trees.put(root, f"{at}/max_energy_range_uj", f"{RANGE_UJ}\n")
    for i, (constraint, uw) in enumerate(limits):
        trees.put(root, f"{at}/constraint_{i}_name", f"{constraint}\n")
        trees.put(root, f"{at}/constraint_{i}_power_limit_uw", f"{uw}\n")


@pytest.fixture
def two_packages(tmp_path: Path) -> Path:
    """Two packages whose zones are in reverse order, and a zone that belongs to no package."""
    trees.write_machine(tmp_path, 1, packages=2)
    limits = ("long_term", 205_000_000), ("short_term", 246_000_000)
    write_zone(tmp_path, 0, "package-1", *limits, uj=70)
    write_zone(tmp_path, 1, "package-0", ("long_term", 150_000_000), uj=5)
    (tmp_path / f"{ZONES}/intel-rapl:1/enabled").unlink()  # not every driver has it
    write_zone(tmp_path, 2, "psys", ("long_term", 999_000_000), uj=9)
    return tmp_path


def valid_values(powercap: Powercap) -> list[dict[str, int]]:
    """The valid values, by package."""
    keys = [counter.key for counter in powercap.block.counters]
    return [
        {key: value for key, value in zip(keys, values, strict=True) if value is not None}
        for _, values in powercap.read()
    ]


def test_zones_are_found_by_their_names(two_packages: Path) -> None:
    powercap = Powercap(two_packages, topology.read_cpus(two_packages))
    assert valid_values(powercap) == [
        {"power_limit_w": 150_000_000, "energy_j": 0},
        {"power_limit_w": 205_000_000, "power_limit2_w": 246_000_000, "energy_j": 0},
    ]
    assert powercap.block.scope == "package"
    assert {c.scale for c in powercap.block.counters} == {1e-6}
    assert powercap.missing == []
    powercap.close()
    Powercap(two_packages, topology.read_cpus(two_packages)[:1]).close()


def test_served_keys_are_not_read(two_packages: Path) -> None:
    powercap = Powercap(
        two_packages, topology.read_cpus(two_packages), {"energy_j", "power_limit_w"}
    )
    assert valid_values(powercap) == [{}, {"power_limit2_w": 246_000_000}]
    powercap.close()


def test_energy_readable_by_root_only(two_packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refused(path: str, flags: int, **more: int) -> int:
        if path.endswith("energy_uj"):
            raise PermissionError
        return opened(path, flags, **more)

    monkeypatch.setattr(os, "open", refused)  # simulated, because file modes do not restrict root
    powercap = Powercap(two_packages, topology.read_cpus(two_packages))
    assert [(m.what, m.fix) for m in powercap.missing] == [("energy_j", "perftop --sudo")]
    assert "energy_j" not in valid_values(powercap)[0]
    powercap.close()


def test_a_machine_without_zones_and_a_die_of_its_own(tmp_path: Path) -> None:
    trees.write_machine(tmp_path, 1)
    assert Powercap(tmp_path, topology.read_cpus(tmp_path)).block.counters == []
    for number in range(2):
        write_zone(tmp_path, number, f"package-0-die-{number}", ("long_term", 1_000_000))
    powercap = Powercap(tmp_path, topology.read_cpus(tmp_path))
    assert powercap.block.counters == []
    assert [m.what for m in powercap.missing] == ["power_limit_w"]


def test_the_memory_has_a_zone_within_its_package(two_packages: Path) -> None:
    """According to Documentation/power/powercap/powercap.rst, zones are in the directory of their
    parent."""
    at = f"{ZONES}/intel-rapl:0/intel-rapl:0"
    for inner, (name, uj) in enumerate((("core", 7), ("dram", RANGE_UJ - 5))):
        for file, text in (("name", name), ("energy_uj", uj), ("max_energy_range_uj", RANGE_UJ)):
            trees.put(two_packages, f"{at}:{inner}/{file}", f"{text}\n")
    powercap = Powercap(two_packages, topology.read_cpus(two_packages))
    valid_values(powercap)
    trees.put(two_packages, f"{at}:1/energy_uj", "15\n")
    first, second = valid_values(powercap)
    assert "energy_ram_j" not in first, "this package has no zone of its memory"
    assert second["energy_ram_j"] == 20
    assert {c.key: c.scale for c in powercap.block.counters}["energy_ram_j"] == 1e-6
    powercap.close()
    served = Powercap(two_packages, topology.read_cpus(two_packages), {"energy_ram_j"})
    assert "energy_ram_j" not in {counter.key for counter in served.block.counters}
    served.close()


# --- the uncore


@pytest.mark.parametrize(("files", "clocks"), [
    ({"current_freq_khz": 1200000, "initial_max_freq_khz": 2400000}, [1200000, 2400000]),
    ({"max_freq_khz": 1600000, "initial_max_freq_khz": 2400000}, [1600000, 2400000]),
    ({"max_freq_khz": 1600000}, None),
    ({}, None),
])  # fmt: skip
def test_the_clock_of_the_uncore_or_its_limit(
    tmp_path: Path, files: dict[str, int], clocks: list[int] | None
) -> None:
    trees.write_machine(tmp_path, 1, packages=2)
    die = tmp_path / UNCORE_PATH / "package_01_die_00"
    die.mkdir(parents=True)
    for name, khz in files.items():
        (die / name).write_text(f"{khz}\n")
    source = UncoreClock(tmp_path, topology.read_cpus(tmp_path))
    assert [c.key for c in source.block.counters] == (
        ["uncore_hz", "uncore_max_hz"] if clocks else []
    )
    if clocks:
        assert list(source.read()) == [(0, [None, None]), (1, clocks)]
        assert {c.scale for c in source.block.counters} == {1000}, "the files are in kHz"
    source.close()


def test_a_disabled_limit_is_none(two_packages: Path) -> None:
    trees.put(two_packages, f"{ZONES}/intel-rapl:0/enabled", "0\n")
    trees.put(two_packages, f"{ZONES}/intel-rapl:1/constraint_0_power_limit_uw", "0\n")
    powercap = Powercap(two_packages, topology.read_cpus(two_packages))
    assert [c.key for c in powercap.block.counters] == ["energy_j"]
    powercap.close()
