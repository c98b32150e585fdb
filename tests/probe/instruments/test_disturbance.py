"""Disturbances of a CPU during a measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
from trees import put

from perfprobe.instruments import disturbance
from perfprobe.kernel.interrupts import STAT_FIELDS


def write_machine(root: Path, user: int, idle: int, steal: int) -> None:
    own = f"cpu0 {user} 0 0 {idle} 1 0 0 {steal} 0 0\n"
    put(root, "proc/stat", f"cpu  9 9 9 9 9 9 9 9 0 0\n{own}cpu2 0 0 0 700 0 0 0 0 0 0\nintr 5\n")
    device = f"  1:{user:>11}         50  IO-APIC  edge  i8042\n"
    rest = "LOC:          7         60   Local timer\nERR:          4\n"
    put(root, "proc/interrupts", f"           CPU0       CPU2\n{device}{rest}")


def counts_after(root: Path, before: disturbance.CpuCounts) -> dict[str, float | None]:
    return disturbance.changes_during(0, [2], before, disturbance.read_counts(0, root))


def test_differences_between_two_reads_have_every_count(tmp_path: Path) -> None:
    write_machine(tmp_path, 10, 100, 3)
    first = disturbance.read_counts(0, tmp_path)
    write_machine(tmp_path, 30, 150, 4)
    result = counts_after(tmp_path, first)
    assert result.keys() == {"idle_s", "steal_s", "interrupts", "siblings_idle_s", "switches"}
    assert {key: result[key] for key in ("idle_s", "steal_s", "interrupts")} == {
        "idle_s": 0.5, "steal_s": 0.01, "interrupts": 20,
    }  # fmt: skip
    assert result["siblings_idle_s"] == 0


def test_missing_counts_are_none(tmp_path: Path) -> None:
    unknown = disturbance.read_counts(0, tmp_path)
    result = counts_after(tmp_path, unknown)
    assert [result[key] for key in result if key != "switches"] == [None] * 4
    write_machine(tmp_path, 1, 2, 3)
    assert counts_after(tmp_path, unknown)["idle_s"] is None
    now = disturbance.read_counts(2, tmp_path)
    assert disturbance.changes_during(2, [0], now, now)["siblings_idle_s"] == 0
    assert disturbance.changes_during(2, [0, 1], now, now)["siblings_idle_s"] is None


# --- names of disturbances ------------------------------------------------------------------------

BEFORE = """\
           CPU0       CPU2
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 36:          7       2241  PCI-MSIX-0000:00:02.0   1-edge      nvme0q1
LOC:      99413     108127   Local timer interrupts
NMI:          -          -   Non-maskable interrupts
 37:          1          1
ERR:          0
"""


def test_disturbances_are_named(tmp_path: Path) -> None:
    put(tmp_path, "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave\n")
    put(tmp_path, "sys/devices/system/cpu/intel_pstate/no_turbo", "0\n")
    put(tmp_path, "proc/cpuinfo", "flags : fpu hypervisor\n")
    put(tmp_path, "proc/interrupts", BEFORE)
    put(tmp_path, "proc/stat", "cpu2 100 0 0 900 0 0 0 0 0 0\ncpu3 0 0 0 500 0 0 0 0 0 0\n")
    before = disturbance.read_counts(2, tmp_path)
    put(tmp_path, "proc/interrupts", BEFORE.replace("2241", "2250").replace("108127", "109127"))
    put(tmp_path, "proc/stat", "cpu2 190 0 0 900 0 0 0 10 0 0\ncpu3 40 0 0 550 10 0 0 0 0 0\n")
    after = disturbance.read_counts(2, tmp_path)
    results = {
        row["what"]: row["found"]
        for row in disturbance.disturbances_during(2, [3], before, after, tmp_path)
    }
    results.pop("scheduler", None)  # depends on the thread of this test
    assert results == {
        "governor": "powersave",
        "turbo": "on",
        "SMT sibling CPU 3": "40 % busy",
        "interrupts": "1009 on CPU 2: 1000 Local timer interrupts, 9 nvme0q1",
        "steal": "10 % of CPU 2",
        "hypervisor": "a VM",
    }


def test_a_new_interrupt_source_counts_from_zero() -> None:
    before = disturbance.CpuCounts(0, {"old": 7}, {})
    after = disturbance.CpuCounts(0, {"old": 12, "new": 4, "third": 3, "fourth": 1}, {})
    (row,) = disturbance.disturbances_during(0, [], before, after, Path("/nothing"))
    assert row["found"] == "13 on CPU 0: 5 old, 4 new, 3 third"


@pytest.mark.parametrize(("busy", "reported"), [(19, []), (21, ["2 % busy"])])
def test_the_kernels_own_time_on_a_sibling_is_not_reported(busy: int, reported: list[str]) -> None:
    idle = [0] * len(STAT_FIELDS)
    after = idle.copy()
    after[0], after[disturbance.IDLE_FIELDS[0]] = busy, 1000 - busy
    then, now = (disturbance.CpuCounts(0, {}, {1: tuple(ticks)}) for ticks in (idle, after))
    rows = disturbance.disturbances_during(0, [1], then, now, Path("/nothing"))
    assert [row["found"] for row in rows] == reported


def test_a_quiet_machine_has_no_disturbances(tmp_path: Path) -> None:
    put(tmp_path, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    put(tmp_path, "sys/devices/system/cpu/cpufreq/boost", "0\n")
    put(tmp_path, "proc/cpuinfo", "flags : fpu\n")
    moment = disturbance.read_counts(0, tmp_path)
    assert disturbance.disturbances_during(0, [1], moment, moment, tmp_path) == []
