"""Clocks reported by cpufreq, values of cpufreq that are not clock ceilings, and counts of the
kernel's thermal interrupts."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trees

from perfprobe.cpu import topology
from perfprobe.machine import cpu_files
from perfprobe.opening import open_os
from perfprobe.wire import Rate, Step


def write_files(root: Path, cpus: range, **khz: int | str) -> None:
    for cpu in cpus:
        for name, value in khz.items():
            trees.put(root, f"{trees.CPU}/cpu{cpu}/cpufreq/{name}", f"{value}\n")


@pytest.fixture
def four_cpus(tmp_path: Path) -> Path:
    trees.write_machine(tmp_path, 4)
    return tmp_path


# --- at every sample ------------------------------------------------------------------------------


def test_slow_and_missing_files_have_a_reason(
    four_cpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(four_cpus, range(4), scaling_max_freq=3_000_000)
    part = cpu_files.cpufreq_part(four_cpus, topology.read_cpus(four_cpus))
    assert [m.what for m in part.missing] == ["cpufreq_hz"]
    write_files(four_cpus, range(4), scaling_cur_freq=2_000_000)
    for ns, expected in ((500_000, [("cpufreq_hz", 1e3), ("max_hz", 1e3)]), (500_001, [])):
        monkeypatch.setattr(time, "monotonic_ns", count(0, ns).__next__)
        part = cpu_files.cpufreq_part(four_cpus, topology.read_cpus(four_cpus))
        assert [(c.key, c.scale) for c in part.counters] == expected
    assert part.missing[1].why == "a read of scaling_max_freq takes 500 µs: too slow to repeat"


@pytest.mark.parametrize("first", [{"online": False}, {"type": "atom"}])
def test_idle_states_are_those_of_the_cpu_with_most(tmp_path: Path, first: dict[str, Any]) -> None:
    trees.write_machine(tmp_path, 2)
    for cpu, names in enumerate((("POLL", "C1"), ("POLL", "C1", "C6"))):
        for state, name in enumerate(names if cpu or "type" in first else ()):
            trees.put(tmp_path, f"{trees.CPU}/cpu{cpu}/cpuidle/state{state}/name", f"{name}\n")
    rows = topology.read_cpus(tmp_path)
    part = cpu_files.cpuidle_part(tmp_path, [replace(rows[0], **first), rows[1]])
    assert [(c.key, c.parts, c.scale) for c in part.counters] == [
        ("idle_s", ["state1", "state2"], 1e-6), ("poll_s", ["state0"], 1e-6),
    ]  # fmt: skip


# --- the fastest clock ----------------------------------------------------------------------------


def test_favoured_cores_have_their_own_table(four_cpus: Path) -> None:
    write_files(four_cpus, range(4), cpuinfo_max_freq=4_500_000)
    write_files(four_cpus, range(1, 2), cpuinfo_max_freq=4_700_000)
    trees.write_cpu_lists(four_cpus, "0-3", "0-2")  # an offline CPU has no files
    tables, _ = cpu_files.cpufreq_turbo(four_cpus, topology.read_cpus(four_cpus))
    assert [(t.steps[0].hz, t.cpus) for t in tables] == [(4.7e9, [1]), (4.5e9, [0, 2])]


def test_a_base_clock_is_not_a_turbo_ceiling(four_cpus: Path) -> None:
    """intel_pstate lowers cpuinfo_max_freq to the base clock while turbo is off."""
    write_files(four_cpus, range(4), cpuinfo_max_freq=2_100_000)
    trees.put(four_cpus, f"{trees.CPU}/intel_pstate/no_turbo", "1\n")
    tables, (missing,) = cpu_files.cpufreq_turbo(four_cpus, topology.read_cpus(four_cpus))
    assert (tables, missing.what) == ([], "turbo_ceiling_hz")
    trees.put(four_cpus, f"{trees.CPU}/intel_pstate/no_turbo", "0\n")
    assert len(cpu_files.cpufreq_turbo(four_cpus, topology.read_cpus(four_cpus))[0]) == 1
    trees.put(four_cpus, f"{trees.CPU}/cpufreq/boost", "0\n")
    assert cpu_files.cpufreq_turbo(four_cpus, topology.read_cpus(four_cpus))[0] == []


def test_a_missing_ceiling_is_reported_in_hello(four_cpus: Path) -> None:
    write_files(four_cpus, range(4), cpuinfo_max_freq=2_100_000, base_frequency=1_900_000)
    for turbo_off in ("1", "0"):
        trees.put(four_cpus, f"{trees.CPU}/intel_pstate/no_turbo", f"{turbo_off}\n")
        with closing(open_os(four_cpus, 100_000_000, None)) as source:
            reported = {missing.what for missing in source.hello.missing}
            assert ("turbo_ceiling_hz" in reported) == (turbo_off == "1")
            assert len(source.hello.turbo) == (turbo_off == "0")
            assert source.hello.base_hz == Rate(1.9e9, "cpufreq, base_frequency")


def test_an_acpi_p_state_is_not_a_ceiling(four_cpus: Path) -> None:
    """Boost exceeds the fastest P-state that acpi-cpufreq lists, unless the driver lists the boost
    clock, too."""
    listed = "2600000 1900000 1500000 "
    write_files(
        four_cpus, range(4), cpuinfo_max_freq=2_600_000, scaling_available_frequencies=listed
    )
    tables, (missing,) = cpu_files.cpufreq_turbo(four_cpus, topology.read_cpus(four_cpus))
    assert (tables, missing.what) == ([], "turbo_ceiling_hz")
    write_files(four_cpus, range(4), cpuinfo_max_freq=3_700_000)
    assert cpu_files.cpufreq_turbo(four_cpus, topology.read_cpus(four_cpus))[0][0].steps == [
        Step(1, 3.7e9)
    ]


def test_the_base_clock_is_known_only_if_all_cpus_share_it(four_cpus: Path) -> None:
    write_files(four_cpus, range(4), base_frequency=2_100_000)
    assert cpu_files.cpufreq_base_hz(four_cpus, topology.read_cpus(four_cpus)) == Rate(
        2.1e9, "cpufreq, base_frequency"
    )
    write_files(four_cpus, range(2, 4), base_frequency=1_600_000)
    assert cpu_files.cpufreq_base_hz(four_cpus, topology.read_cpus(four_cpus)) is None


# --- throttling -----------------------------------------------------------------------------------


THROTTLE_DIR = "thermal_throttle"


def write_machine(root: Path, *names: str) -> None:
    """Two cores of two threads in one package."""
    trees.write_machine(root, 2, 2)
    for cpu in range(4):
        for number, name in enumerate(names):
            trees.put(root, f"{trees.CPU}/cpu{cpu}/{THROTTLE_DIR}/{name}", f"{10 * cpu + number}\n")


def test_cores_and_packages_have_the_existing_files(tmp_path: Path) -> None:
    write_machine(
        tmp_path,
        "core_throttle_total_time_ms",
        "core_throttle_max_time_ms",
        "core_throttle_count",
        "package_throttle_count",
        "package_power_limit_count",
    )
    core, package = cpu_files.throttle_parts(tmp_path, topology.read_cpus(tmp_path))
    assert (core.scope, package.scope) == ("core", "package")
    assert [(c.key, c.unit, c.scale) for c in core.counters] == [
        ("core_throttled_s", "s", 1e-3),
        ("core_throttles", "1", 1.0),
    ]
    assert [(c.key, c.unit, c.scale) for c in package.counters] == [
        ("package_throttles", "1", 1.0), ("package_power_limits", "1", 1.0),
    ]  # fmt: skip
    assert [slot.column for slot in core.open(3)] == [0, 1]
    core.close()
