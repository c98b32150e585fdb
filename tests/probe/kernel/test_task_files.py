"""Files of processes in /proc: files that the test writes, and this machine's."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.kernel import task_files
from perfprobe.kernel.task_files import NewTaskCheck

# --- process stat ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "comm",
    [b"a b", b"", b")", b") R 1 (", b"((", b"x\ny", b"1) S 2 3\n", b"\xff\xfe", "ü".encode()],
)
def test_a_task_may_have_any_name(comm: bytes) -> None:
    text = trees.process(7, 31, 5, comm, threads=3, start=99)
    stat = task_files.parse_stat(text)
    assert task_files.parse_state(text) == "R"
    name = comm.decode(errors="replace")
    assert stat == task_files.TaskStat(
        name, cpu_ticks=31, thread_count=3, start_ticks=99, last_cpu=5, parent_pid=1
    )


def test_invalid_stat_files_are_not_tasks() -> None:
    whole = trees.process(7, 31)
    halves = (whole[:90], whole.replace(b"(", b""), whole.replace(b")", b""))
    for data in (b"", b")" * 50, b"7 (job)" + b" x" * 50, *halves):
        assert task_files.parse_stat(data) is None


@given(st.one_of(st.binary(), st.integers(0, 250).map(lambda n: trees.process(7, 31)[:n])))
def test_garbage_is_not_a_process(data: bytes) -> None:
    stat = task_files.parse_stat(data)
    assert stat is None or data.count(b" ") > 30


# --- new processes --------------------------------------------------------------------------------


def test_a_new_last_pid_is_a_new_process(tmp_path: Path) -> None:
    trees.put(tmp_path, "loadavg", "0.20 0.18 0.12 1/80 11206\n")
    check = NewTaskCheck(str(tmp_path))
    assert check.has_new_tasks()  # the first call reports new tasks
    assert not check.has_new_tasks()
    for last in (11207, 300):  # PIDs start anew after the highest
        trees.put(tmp_path, "loadavg", f"0.20 0.18 0.12 1/80 {last}\n")
        assert check.has_new_tasks()
        assert not check.has_new_tasks()
    check.close()


def test_a_file_of_another_file_system_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "loadavg").symlink_to("/proc/loadavg")
    check = NewTaskCheck(str(tmp_path))
    for _ in range(20):
        assert check.has_new_tasks()


def test_two_reads_at_one_time_have_no_shares() -> None:
    later = task_files.SchedSums(5, 300, 200, 7)
    assert later.rates_since(task_files.SchedSums(5, 0, 0, 0)) == task_files.TaskRates()
    known = later.rates_since(task_files.SchedSums(4, 300, None, 6))
    assert known == task_files.TaskRates(0, None, 1e9)
