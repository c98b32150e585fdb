"""The times of task scans, the length of their slices, and the files that they do not read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trees
from task_scans import CPUS, Machine, S

from perfprobe.kernel import tasks
from perfprobe.kernel.task_files import BATCH_ENTRIES, TICK_NS, NewTaskCheck
from perfprobe.kernel.tasks import PAUSE_FACTOR, SCAN_PERIOD_NS


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with closing((machine := Machine(tmp_path)).tasks):
        yield machine


def test_a_sleeping_process_is_not_read(machine: Machine) -> None:
    """The CPU clock of a sleeping process does not advance; after it wakes up, its share is counted
    from its last read. It is read once more after it has run, because it may be waiting for a
    CPU."""
    clocks = {"10": 0}
    machine.tasks._clock_ns = clocks.get  # type: ignore[method-assign, assignment]

    def run(pid: int, ticks: int) -> None:
        machine.runs(pid, ticks, threads=2)
        machine.thread(pid, 11, ticks, 7)

    run(10, 0)
    machine.scan()
    for ticks in (50, 100):
        run(10, ticks)
        clocks["10"] = ticks * TICK_NS
        records = machine.scan()
    assert records == {"7": [10, "job", 0.5]}
    assert machine.scan() == {}
    trees.put(machine.root, "proc/10/stat", "not to be read")
    for _ in range(5):
        assert machine.scan() == {}
    run(10, 180)
    clocks["10"] = 180 * TICK_NS
    assert machine.scan() == {"7": [10, "job", 0.8]}


def test_a_nearly_idle_process_is_not_read(machine: Machine) -> None:
    """The process is not read, however long it stays nearly idle; once it runs more, its share is
    counted from the last scan."""
    clocks = {"10": 0}
    machine.tasks._clock_ns = clocks.get  # type: ignore[method-assign, assignment]
    machine.runs(10, 0)
    machine.scan()
    trees.put(machine.root, "proc/10/stat", "not to be read")
    for clocks["10"] in range(TICK_NS, 100 * TICK_NS, TICK_NS):
        assert machine.scan() == {}
    machine.runs(10, 140)
    clocks["10"] = 140 * TICK_NS
    assert machine.scan() == {"0": [10, "job", 0.41]}


def test_the_directory_is_read_after_a_task_started(machine: Machine) -> None:
    """Until then only processes of the last scan exist, and some of them end."""
    machine.tasks._clock_ns = lambda _: None  # type: ignore[method-assign, assignment]

    def scan(ticks: int, *pids: int) -> dict[str, Any]:
        for pid in pids:
            machine.runs(pid, ticks, pid % CPUS.stop)
        return {cpu: pid for cpu, (pid, *_) in (machine.scan() or {}).items()}

    trees.put(machine.root, "proc/loadavg", "0.20 0.18 0.12 1/80 11\n")
    machine.tasks._new_task_check = NewTaskCheck(f"{machine.root}/proc")
    scan(0, 10, 11)
    assert scan(50, 10, 11, 12) == {"10": 10, "11": 11}
    shutil.rmtree(machine.root / "proc/11")
    assert scan(90, 10, 12) == {"10": 10}
    trees.put(machine.root, "proc/loadavg", "0.20 0.18 0.12 1/80 12\n")
    assert scan(130, 10, 12) == {"10": 10, "12": 12}
    for pid in (10, 12):
        shutil.rmtree(machine.root / f"proc/{pid}")
    assert scan(130) == {}
    scan(0, 13)
    assert scan(50, 13) == {"13": 13}  # no process was left, so the scan read the directory


def test_scans_run_once_a_second_and_less_often_if_costly(machine: Machine) -> None:
    machine.runs(10, 0)
    machine.spend_ns = 40_000_000  # CPU time of the only slice of a scan; that of the first is free
    machine.scan()
    assert machine.tasks.due() == (S + SCAN_PERIOD_NS) / 1e9
    machine.spend_ns = 0
    machine.runs(10, 50)
    assert machine.scan(SCAN_PERIOD_NS - 1) is None
    assert machine.scan(1) == {"0": [10, "job", 0.5]}
    assert machine.tasks.take_records() == {}, "in one frame only"
    machine.spend_ns = 40_000_000
    machine.scan()
    assert machine.tasks.due() == (machine.now_ns + PAUSE_FACTOR * 40_000_000) / 1e9


def test_a_slice_is_short(machine: Machine) -> None:
    for pid in range(100, 100 + 10 * BATCH_ENTRIES):
        machine.runs(pid, 0)
    machine.step_ns = tasks.MAX_SLICE_NS // (2 * BATCH_ENTRIES)  # two batches in a slice
    machine.now_ns += S
    slices = 0
    while not slices or machine.tasks.due() == 0:
        begun_ns = machine.now_ns
        machine.tasks.scan_slice()
        assert machine.now_ns - begun_ns < 2 * tasks.MAX_SLICE_NS
        slices += 1
    assert slices >= 4
    machine.tasks.close()


def test_children_that_ended_between_scans_count_for_their_parent(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    # Both processes were in the previous scan.
    machine.runs(7, 0, comm=b"sh", children=10)
    machine.runs(8, 50, comm=b"cc1", parent=7, children=10)
    machine.records()
    machine.runs(7, 20, comm=b"sh", children=90)
    machine.runs(9, 1, comm=b"true", parent=7, start=600)
    assert machine.records()["ended_children"] == {"7": ["sh", pytest.approx(0.8), "true"]}
    (tmp_path / "proc/8/stat").unlink()
    (tmp_path / "proc/8").rmdir()
    machine.runs(7, 40, comm=b"sh", children=90 + 60 + 30)
    assert machine.records()["ended_children"] == {"7": ["sh", pytest.approx(0.3), "true"]}
    machine.runs(7, 60, comm=b"sh", children=90 + 60 + 30)
    assert "ended_children" not in machine.records()
