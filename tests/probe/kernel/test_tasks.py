"""The tasks of each CPU, on trees whose files the test writes and with clocks that it advances."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import trees
from task_scans import Machine, S, records_of_a_crowd

from perfprobe.kernel import tasks
from perfprobe.kernel.task_files import BATCH_ENTRIES


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- selection of tasks ---------------------------------------------------------------------------


def test_the_busiest_task_of_each_cpu_is_reported(machine: Machine) -> None:
    for pid, cpu in ((10, 0), (11, 0), (12, 3), (13, 4), (14, 99)):
        machine.runs(pid, 1000, cpu)
    assert machine.scan() is None, "the first scan has nothing to compare with"
    for pid, ticks, cpu in ((10, 30, 0), (11, 60, 0), (12, 150, 3), (13, 1, 4), (14, 90, 99)):
        machine.runs(pid, 1000 + ticks, cpu, comm=b"%d" % pid)
    records = machine.scan(2 * S)
    # The share of 12 is at most 1; one tick of 13 is noise; CPU 99 does not exist.
    assert records == {"0": [11, "11", 0.3], "3": [12, "12", 0.75]}
    assert machine.scan() == {}, "no task ran"
    machine.runs(12, 9999, 3)
    assert machine.scan() == {"3": [12, "job", 1.0]}


def test_several_tasks_of_a_cpu_are_reported(machine: Machine) -> None:
    """The busiest task is first; threads of one process count separately; tasks that hardly ran are
    left out."""

    def run(ticks: dict[int, int]) -> None:
        for pid, ran in ticks.items():
            machine.runs(pid, ran, pid // 10, comm=b"%d" % pid)
        machine.runs(50, 90 * ticks[10] // 5, 0, threads=2)
        machine.thread(50, 51, 5 * ticks[10], 1, comm=b"one")
        machine.thread(50, 52, 6 * ticks[10], 5, comm=b"two")
        machine.now_ns += S
        machine.tasks.scan_slice()

    # The ticks of 10 are too few; the threads of 50 are read from the second scan on.
    ticks = {10: 1, 11: 30, 12: 20, 13: 9, 14: 25, 30: 2}
    for turn in (0, 1, 2):
        run({pid: turn * ran for pid, ran in ticks.items()})
    records = machine.tasks.take_records()
    others = {
        "1": [[11, "11", 0.3], [14, "14", 0.25], [12, "12", 0.2], [13, "13", 0.09],
              [50, "one", 0.05]],
        "3": [[30, "30", 0.02]],
        "5": [[50, "two", 0.06]],
    }  # fmt: skip
    tasks_ = {cpu: report[0] for cpu, report in others.items()}
    unknown = {cpu: [[None, None]] * len(report) for cpu, report in others.items()}
    assert records == {"tasks": tasks_, "others": others, "waits": unknown}


def test_waits_of_a_task_are_reported_from_its_second_read(machine: Machine) -> None:
    """The second read also has the exact time that the task ran; a new task with the same number
    starts again."""

    def run(ms: int, waited_ms: int, switches: tuple[int, int], **more: Any) -> dict[str, Any]:
        at = "proc/10/task/11" if more.get("threads") else "proc/10"
        machine.runs(10, ms // 10, 2, **more)
        if more.get("threads"):
            machine.thread(10, 11, ms // 10, 2)
        trees.put(machine.root, f"{at}/schedstat", f"{ms}000000 {waited_ms}000000 7\n")
        status = "Name:\tjob\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{}\n"
        trees.put(machine.root, f"{at}/status", status.format(*switches))
        return machine.records()

    run(0, 0, (0, 0))
    first = run(404, 100, (10, 1))
    assert first["others"]["2"] == [[10, "job", 0.4]]
    assert first["waits"]["2"] == [[None, None]]
    second = run(808, 350, (40, 11))
    assert second["tasks"]["2"] == [10, "job", 0.404]
    assert second["others"]["2"] == [[10, "job", 0.404]]
    assert second["waits"]["2"] == [[0.25, 40.0]]
    assert run(818, 350, (41, 11)) == {"tasks": {}, "others": {}, "waits": {}}
    assert run(1222, 350, (51, 11))["waits"]["2"] == [[0.0, 10.0]]
    assert run(1626, 9999, (51, 11))["waits"]["2"] == [[1.0, 0.0]]
    assert run(1627, 10989, (51, 11))["others"]["2"] == [[10, "job", 0.001]], "it only waited"
    assert run(1628, 10999, (51, 11)) == {"tasks": {}, "others": {}, "waits": {}}
    for ms in (2030, 2434, 2838):
        result = run(ms, ms, (ms, 11), threads=2)
    assert result["others"]["2"] == [[10, "job", 0.404]]
    assert result["waits"]["2"] == [[0.404, 404.0]], "a thread has files of its own"


def test_a_kernel_that_counts_no_waits_leaves_them_unknown(machine: Machine) -> None:
    for turn in range(3):
        machine.runs(10, 50 * turn, 2)
        trees.put(machine.root, "proc/10/schedstat", "0 0 0\n")
        records = machine.records()
    assert records["tasks"] == {"2": [10, "job", 0.5]}
    assert records["waits"] == {"2": [[None, None]]}


def test_the_exact_share_decides_the_order(machine: Machine) -> None:
    for turn in range(3):
        for pid, ms in ((10, 300), (11, 309)):
            machine.runs(pid, turn * 30, 0)
            trees.put(machine.root, f"proc/{pid}/schedstat", f"{turn * ms}000000 0 1\n")
        records = machine.records()
    assert records["others"] == {"0": [[11, "job", 0.309], [10, "job", 0.3]]}


def test_waits_are_read_only_for_the_busiest_tasks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MAX_WAITS", 2)
    for turn in range(3):
        for pid in (10, 11, 12):
            machine.runs(pid, turn * pid, pid)
            trees.put(machine.root, f"proc/{pid}/schedstat", f"{turn}000000000 {turn}0000000 1\n")
        records = machine.records()
    assert records["waits"] == {"10": [[None, None]], "11": [[0.01, None]], "12": [[0.01, None]]}


@pytest.mark.parametrize(("busy_cpus", "count"), [(1, 10), (16, 4), (40, 3)])
def test_all_tasks_of_a_crowded_cpu_are_reported_unless_many_are_crowded(
    machine: Machine, busy_cpus: int, count: int
) -> None:
    records = records_of_a_crowd(machine, busy_cpus)
    assert {len(ranked) for ranked in records["others"].values()} == {count}
    waits = [wait for wait, _ in records["waits"]["0"] if wait is not None]
    if busy_cpus == 1:
        assert sum(waits) / len(waits) == pytest.approx(0.902)


def test_a_new_task_is_reported_at_once(machine: Machine) -> None:
    """All its running time, and that of its threads, was since the last scan."""
    machine.runs(10, 1000)
    machine.scan()
    machine.runs(11, 40, 1)
    machine.runs(12, 90, 2, threads=2)
    machine.thread(12, 12, 60, 2)
    machine.thread(12, 13, 30, 3)
    records = machine.records()
    tasks_ = {"1": [11, "job", 0.4], "2": [12, "job", 0.6], "3": [12, "job", 0.3]}
    assert records["tasks"] == tasks_
    assert set(map(str, records["waits"].values())) == {"[[None, None]]"}
    machine.runs(12, 140, 2, threads=3)
    machine.thread(12, 14, 50, 4)
    assert machine.scan() == {"4": [12, "job", 0.5]}, "a new thread of a known process"


def test_a_pid_with_a_new_start_time_is_a_new_task(machine: Machine) -> None:
    machine.runs(10, 50, start=500)
    machine.scan()
    machine.runs(10, 90, start=700)
    assert machine.scan() == {}
    machine.runs(10, 140, start=700)
    assert machine.scan() == {"0": [10, "job", 0.5]}
    machine.runs(10, 20, start=700)  # if times step back, there is no share, and no share below 0
    assert machine.scan() == {}


def test_a_job_of_many_threads_is_on_many_cpus(machine: Machine) -> None:
    def run(ticks: int) -> Any:
        machine.runs(10, 63 * ticks, 0, comm=b"leader", threads=65)
        machine.thread(10, 10, 0, 0, comm=b"leader")
        machine.thread(10, 9, ticks // 50, 63)
        for n in range(63):
            machine.thread(10, 11 + n, ticks, n, comm=b"worker-%d" % n)
        return machine.scan()

    assert [run(0), run(50)] == [None, {}], "threads of a sleeping process are not read"
    assert run(100) == {str(n): [10, f"worker-{n}", 0.5] for n in range(63)}, "without idle threads"


def test_a_thread_is_identified_by_its_own_start_time(machine: Machine) -> None:
    for ticks, start in ((0, 1), (50, 1), (100, 1), (150, 2), (200, 2)):
        machine.runs(10, ticks, threads=2)
        machine.thread(10, 11, ticks, 5, start=start)
        records = machine.scan()
        if start == 2:
            assert records == ({} if ticks == 150 else {"5": [10, "job", 0.5]})


def test_time_of_ended_threads_is_not_attributed_to_their_leader(machine: Machine) -> None:
    machine.runs(10, 0, threads=2)
    machine.scan()
    machine.runs(10, 90, threads=1)
    assert machine.scan() == {}
    machine.runs(10, 180, threads=1)
    assert machine.scan() == {"0": [10, "job", 0.9]}


# --- errors ---------------------------------------------------------------------------------------


def test_unreadable_files_hide_no_other_process(machine: Machine) -> None:
    proc = machine.root / "proc"
    for name in ("self", "12x", "٣x", "-5"):
        (proc / name).mkdir()
    (proc / "20/stat").mkdir(parents=True)  # cannot be read, even by root, as with EACCES
    (proc / "21").mkdir()  # the process has ended before it was read
    (proc / "22").write_bytes(b"")
    (proc / "23").mkdir()
    os.mkfifo(proc / "23/stat")
    trees.put(machine.root, "proc/24/stat", b"\xff" * 5000)
    trees.put(machine.root, "proc/25/stat", trees.process(25, 10**400))
    machine.runs(26, 0, 1, threads=2)
    machine.thread(26, 27, 0, 1)
    (proc / "26/task/28").mkdir()
    for ticks in (0, 40, 80):
        machine.runs(10, ticks)
        machine.runs(10**12, ticks, 2)
        machine.runs(26, ticks, 1, threads=2)
        machine.thread(26, 27, ticks, 1)
        records = machine.scan()
    assert records == {"0": [10, "job", 0.4], "1": [26, "job", 0.4]}


def test_processes_vanish_during_a_scan(machine: Machine) -> None:
    pids = range(100, 100 + 5 * BATCH_ENTRIES)
    for pid in pids:
        machine.runs(pid, 0, 1)
    machine.scan()
    for pid in pids:
        machine.runs(pid, 50, 1)
    machine.now_ns += S
    machine.step_ns = tasks.MAX_SLICE_NS  # every slice ends after its first batch
    machine.tasks.scan_slice()
    assert machine.tasks.due() == 0
    for pid in pids:
        shutil.rmtree(machine.root / f"proc/{pid}")
    records = machine.scan(0)
    assert list(records) == ["1"]
    assert records["1"][0] in pids
    assert machine.scan() is None, "there are no processes"


def test_without_processes_there_is_no_record(machine: Machine) -> None:
    assert [machine.scan() for _ in range(3)] == [None] * 3
    shutil.rmtree(machine.root / "proc")
    assert machine.scan() is None


# --- details --------------------------------------------------------------------------------------


def test_details_are_sent_when_a_process_is_first_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.tasks._is_own_namespace = True
    monkeypatch.setattr(machine.tasks, "_clock_ns", lambda _: None)

    def describe(pid: int) -> dict[str, str]:
        if pid == 11:  # another process has the PID now
            machine.runs(11, 0, start=900)
        return {"user": f"u{pid}"}

    monkeypatch.setattr(tasks, "process_details", describe)
    machine.runs(10, 0, 0)
    machine.runs(11, 0, 1)
    machine.scan()
    machine.runs(10, 50, 0)
    machine.runs(11, 50, 1)
    trees.put(machine.root, "proc/10/cgroup", "1:name=x:/\n0::/build.slice/job.scope\n")
    records = machine.records()
    assert records["tasks"].keys() == {"0", "1"}
    assert records["details"] == {"10": {"user": "u10", "group": "/build.slice/job.scope"}}
    machine.runs(10, 99, 0)
    assert machine.records().keys() == {"tasks", "others", "waits"}


def test_a_task_has_the_name_of_its_parent(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.tasks._is_own_namespace = True
    monkeypatch.setattr(machine.tasks, "_clock_ns", lambda _: None)
    monkeypatch.setattr(tasks, "process_details", lambda _: {"threads": 1})
    machine.runs(1, 0, comm=b"make")  # the stat file of `line` names 1 as the parent
    for pid in (20, 21):
        machine.runs(pid, 0, 0)
    trees.put(machine.root, "proc/21/cgroup", "0::/\n")
    machine.scan()
    for pid in (20, 21):
        machine.runs(pid, pid, 0)
    known = {"threads": 1, "parent": "make"}
    assert machine.records()["details"] == {"21": known, "20": known}
