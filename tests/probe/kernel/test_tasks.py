"""The tasks of each CPU, on trees whose files the test writes and with clocks that it advances."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trees

from perfprobe.kernel import tasks
from perfprobe.kernel.task_files import BATCH_ENTRIES, TICK_NS, NewTaskCheck

S = 1_000_000_000
CPUS = range(64)


class Machine:
    """A tree with processes, and two clocks. Each read of a clock advances it by `step_ns` or
    `spend_ns`."""

    def __init__(self, root: Path) -> None:
        (root / "proc").mkdir()
        self.root = root
        self.now_ns = self.step_ns = self.spent_ns = self.spend_ns = 0
        self.tasks = tasks.TaskScanner(root, CPUS, None, self._time_ns, self._cpu_ns)

    def _time_ns(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns

    def _cpu_ns(self) -> int:
        self.spent_ns += self.spend_ns
        return self.spent_ns

    def runs(self, pid: int, ticks: int, cpu: int = 0, **more: Any) -> None:
        trees.put(self.root, f"proc/{pid}/stat", trees.process(pid, ticks, cpu, **more))

    def thread(self, pid: int, tid: int, ticks: int, cpu: int, **more: Any) -> None:
        trees.put(self.root, f"proc/{pid}/task/{tid}/stat", trees.process(tid, ticks, cpu, **more))

    def scan(self, after_ns: int = S) -> Any:
        """The tasks that a scan reports; None if it reports none."""
        self.now_ns += after_ns
        while True:
            self.tasks.scan_slice()
            if self.tasks.due_s() > 0:
                return self.tasks.take_records().get("tasks")

    def records(self) -> dict[str, Any]:
        """All records of a scan that starts after a second and is not interrupted."""
        self.now_ns += S
        self.tasks.scan_slice()
        return self.tasks.take_records()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with closing((machine := Machine(tmp_path)).tasks):
        yield machine


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


@pytest.mark.parametrize(("cpus", "each", "reported"), [(32, 5, 3), (1, 70, 64)])
def test_the_number_of_reported_tasks_is_limited(
    machine: Machine, cpus: int, each: int, reported: int
) -> None:
    for ticks in (0, 30):
        for number in range(cpus * each):
            machine.runs(10 + number, ticks, number % cpus)
        records = machine.records()
    assert {len(tasks_) for tasks_ in records["others"].values()} == {reported}


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


def test_the_exact_share_decides_the_order(machine: Machine) -> None:
    for turn in range(3):
        for pid, ms in ((10, 300), (11, 309)):
            machine.runs(pid, turn * 30, 0)
            trees.put(machine.root, f"proc/{pid}/schedstat", f"{turn * ms}000000 0 1\n")
        records = machine.records()
    assert records["others"] == {"0": [[11, "job", 0.309], [10, "job", 0.3]]}


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
    (proc / "20/stat").rmdir()
    machine.runs(20, 5000, 2)
    assert machine.scan() == {}, "process 20 is not new, so its time was not since the last scan"


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
    monkeypatch.setattr(machine.tasks, "_watched_pids", lambda: [12])
    machine.runs(10, 0, 0)
    machine.runs(12, 0, 0)  # a watched process that cannot run
    machine.runs(11, 0, 1)
    machine.scan()
    machine.runs(10, 50, 0)
    machine.runs(11, 50, 1)
    trees.put(machine.root, "proc/10/cgroup", "1:name=x:/\n0::/build.slice/job.scope\n")
    records = machine.records()
    assert records["tasks"].keys() == {"0", "1"}
    group = {"group": "/build.slice/job.scope"}
    assert records["details"] == {"10": {"user": "u10"} | group, "12": {"user": "u12"}}
    machine.runs(10, 99, 0)
    assert machine.records().keys() == {"tasks", "others", "waits"}


# --- scans in slices ------------------------------------------------------------------------------


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


def test_the_cpu_clock_of_a_process_is_its_own() -> None:
    with closing(tasks.TaskScanner(Path("/"), CPUS)) as scanner:
        before = time.process_time_ns()
        clock_ns = scanner._clock_ns(str(os.getpid()))
        assert clock_ns is not None
        assert before <= clock_ns <= time.process_time_ns()


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


def test_a_slice_is_short(machine: Machine) -> None:
    for pid in range(100, 100 + 10 * BATCH_ENTRIES):
        machine.runs(pid, 0)
    machine.step_ns = tasks.MAX_SLICE_NS // (2 * BATCH_ENTRIES)  # two batches in a slice
    machine.now_ns += S
    slices = 0
    while not slices or machine.tasks.due_s() == 0:
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
    machine.runs(20, 0, comm=b"other", start=700)  # of another parent
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
