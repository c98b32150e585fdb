"""Clocks reported by cpufreq, and values of cpufreq that are not clock ceilings."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees

from perfprobe.cpu import topology
from perfprobe.machine import cpu_files
from perfprobe.wire import Rate, Step


def write_files(root: Path, cpus: range, **khz: int | str) -> None:
    for cpu in cpus:
        for name, value in khz.items():
            trees.put(root, f"{trees.CPU}/cpu{cpu}/cpufreq/{name}", f"{value}\n")


@pytest.fixture
def four(tmp_path: Path) -> Path:
    trees.machine(tmp_path, 4)
    return tmp_path


def counter_keys(root: Path) -> list[str]:
    return [counter.key for counter in cpu_files.clock_files(root, topology.read(root)).counters]


# --- at every sample ------------------------------------------------------------------------------


def test_clock_and_cap_are_in_khz(four: Path) -> None:
    write_files(four, range(4), scaling_cur_freq=2_600_000, scaling_max_freq=3_000_000)
    part = cpu_files.clock_files(four, topology.read(four))
    assert [(c.key, c.kind, c.scale) for c in part.counters] == [
        ("cpufreq_hz", "gauge", 1e3),
        ("max_hz", "gauge", 1e3),
    ]
    assert [slot.column for slot in part.open(2)] == [0, 1]
    part.close()


def test_an_offline_cpu_is_not_read(four: Path) -> None:
    trees.lists(four, "0-3", "1-3")
    write_files(four, range(1, 4), scaling_max_freq=3_000_000)
    assert counter_keys(four) == ["max_hz"]


def test_slow_and_missing_files_have_a_reason(four: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(four, range(4), scaling_max_freq=3_000_000)
    part = cpu_files.clock_files(four, topology.read(four))
    assert [c.key for c in part.counters] == ["max_hz"]
    assert [m.what for m in part.missing] == ["cpufreq_hz"]
    monkeypatch.setattr(cpu_files, "MAX_READ_NS", -1)
    slow = cpu_files.clock_files(four, topology.read(four))
    assert slow.counters == []
    assert slow.missing[1].why.startswith("a read of scaling_max_freq takes")
    assert "too slow to repeat" in slow.missing[1].why


# --- the fastest clock ----------------------------------------------------------------------------


def test_one_clock_applies_to_all_cpus(four: Path) -> None:
    write_files(four, range(4), cpuinfo_max_freq=3_700_000)
    (table,), missing = cpu_files.cpufreq_turbo(four, topology.read(four))
    assert (table.steps, table.cpus, missing) == ([Step(1, 3.7e9)], None, [])
    assert table.origin.startswith("cpufreq")  # distinguishes it from a table of registers


def test_favoured_cores_have_their_own_table(four: Path) -> None:
    write_files(four, range(4), cpuinfo_max_freq=4_500_000)
    write_files(four, range(1, 2), cpuinfo_max_freq=4_700_000)
    trees.lists(four, "0-3", "0-2")  # an offline CPU has no files
    tables, _ = cpu_files.cpufreq_turbo(four, topology.read(four))
    assert [(t.steps[0].hz, t.cpus) for t in tables] == [(4.7e9, [1]), (4.5e9, [0, 2])]


def test_a_base_clock_is_not_a_turbo_ceiling(four: Path) -> None:
    """intel_pstate lowers cpuinfo_max_freq to the base clock while turbo is off."""
    write_files(four, range(4), cpuinfo_max_freq=2_100_000)
    trees.put(four, f"{trees.CPU}/intel_pstate/no_turbo", "1\n")
    tables, (missing,) = cpu_files.cpufreq_turbo(four, topology.read(four))
    assert (tables, missing.what) == ([], "turbo_ceiling_hz")
    trees.put(four, f"{trees.CPU}/intel_pstate/no_turbo", "0\n")
    assert len(cpu_files.cpufreq_turbo(four, topology.read(four))[0]) == 1
    trees.put(four, f"{trees.CPU}/cpufreq/boost", "0\n")
    assert cpu_files.cpufreq_turbo(four, topology.read(four))[0] == []


def test_an_acpi_p_state_is_not_a_ceiling(four: Path) -> None:
    """Boost exceeds the fastest P-state that acpi-cpufreq lists, unless the driver lists the boost
    clock, too."""
    listed = "2600000 1900000 1500000 "
    write_files(four, range(4), cpuinfo_max_freq=2_600_000, scaling_available_frequencies=listed)
    tables, (missing,) = cpu_files.cpufreq_turbo(four, topology.read(four))
    assert (tables, missing.what) == ([], "turbo_ceiling_hz")
    write_files(four, range(4), cpuinfo_max_freq=3_700_000)
    assert cpu_files.cpufreq_turbo(four, topology.read(four))[0][0].steps == [Step(1, 3.7e9)]


def test_nothing_is_reported_without_files(four: Path) -> None:
    assert cpu_files.cpufreq_turbo(four, topology.read(four)) == ([], [])
    assert cpu_files.cpufreq_base_hz(four, topology.read(four)) is None


def test_the_base_clock_if_all_cpus_share_it(four: Path) -> None:
    write_files(four, range(4), base_frequency=2_100_000)
    assert cpu_files.cpufreq_base_hz(four, topology.read(four)) == Rate(
        2.1e9, "cpufreq, base_frequency"
    )
    write_files(four, range(2, 4), base_frequency=1_600_000)
    assert cpu_files.cpufreq_base_hz(four, topology.read(four)) is None
