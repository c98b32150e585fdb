"""Disturbances of a CPU during a measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees

from perfprobe.instruments import disturbance


def write_machine(root: Path, user: int, idle: int, steal: int) -> None:
    trees.put(
        root,
        "proc/stat",
        f"cpu  9 9 9 9 9 9 9 9 0 0\n"
        f"cpu0 {user} 0 0 {idle} 1 0 0 {steal} 0 0\ncpu2 0 0 0 700 0 0 0 0 0 0\nintr 5\n",
    )
    trees.put(
        root,
        "proc/interrupts",
        "           CPU0       CPU2\n"
        f"  1:{user:>11}         50  IO-APIC  edge  i8042\n"
        "LOC:          7         60   Local timer\nERR:          4\n",
    )


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


def test_idle_time_has_the_microseconds_of_cpuidle(tmp_path: Path) -> None:
    def slept(*times: int) -> None:
        for state, time in enumerate(times):
            trees.put(tmp_path, f"{trees.CPU}/cpu0/cpuidle/state{state}/time", f"{time}\n")

    write_machine(tmp_path, 10, 100, 3)
    slept(12345678901, 99)
    first = disturbance.read_counts(0, tmp_path)
    assert first.idle_s == pytest.approx(12345.679)
    slept(12345678911, 100)
    assert counts_after(tmp_path, first)["idle_s"] == pytest.approx(11e-6)


def test_missing_counts_are_none(tmp_path: Path) -> None:
    unknown = disturbance.read_counts(0, tmp_path)
    result = counts_after(tmp_path, unknown)
    assert [result[key] for key in result if key != "switches"] == [None] * 4
    write_machine(tmp_path, 1, 2, 3)
    assert counts_after(tmp_path, unknown)["idle_s"] is None
    now = disturbance.read_counts(2, tmp_path)
    assert disturbance.changes_during(2, [0], now, now)["siblings_idle_s"] == 0
    assert disturbance.changes_during(2, [0, 1], now, now)["siblings_idle_s"] is None
