"""What else went on while a CPU was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees

from perfprobe.instruments import disturbance, ramp_runs


def machine(root: Path, user: int, idle: int, steal: int) -> None:
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
        f"  1:   {user}   50  IO-APIC  edge  i8042\nLOC:   7   60   Local timer\nERR:   4\n",
    )


def test_counts_before_and_after(tmp_path: Path) -> None:
    machine(tmp_path, 10, 100, 3)
    first = disturbance.read(0, [2], tmp_path)
    assert (first.idle_s, first.steal_s, first.siblings_idle_s) == (1.01, 0.03, 7.0)
    assert first.interrupts == 17
    machine(tmp_path, 30, 150, 4)
    moved = ramp_runs.moved(first, disturbance.read(0, [2], tmp_path))
    assert {key: moved[key] for key in ("idle_s", "steal_s", "interrupts")} == {
        "idle_s": 0.5, "steal_s": 0.01, "interrupts": 20,
    }  # fmt: skip
    assert moved["siblings_idle_s"] == 0


def test_idle_to_the_microsecond_where_the_kernel_has_it(tmp_path: Path) -> None:
    machine(tmp_path, 10, 100, 3)
    for state, time in enumerate(("12345678901", "99")):
        trees.put(tmp_path, f"{trees.CPU}/cpu0/cpuidle/state{state}/time", f"{time}\n")
    assert disturbance.read(0, [], tmp_path).idle_s == pytest.approx(12345.679)


def test_what_is_not_told_is_none(tmp_path: Path) -> None:
    counts = disturbance.read(0, [1], tmp_path)
    assert (counts.idle_s, counts.steal_s, counts.interrupts, counts.siblings_idle_s) == (None,) * 4
    machine(tmp_path, 1, 2, 3)
    assert disturbance.read(1, [0, 1], tmp_path).siblings_idle_s is None
    assert ramp_runs.moved(counts, disturbance.read(0, [2], tmp_path))["idle_s"] is None
