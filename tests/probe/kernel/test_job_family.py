"""Descendants of a process, from given process lists and on this machine."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from waiting import wait_for

from perfprobe.errors import Unavailable
from perfprobe.kernel import job_threads
from perfprobe.kernel.job_threads import ProcessFamily, WatchedJob
from perfprobe.kernel.task_files import TaskStat
from perfprobe.kernel.tasks import TaskScanner


def stat(parent: int, start: int) -> TaskStat:
    return TaskStat("job", 0, 1, start, 0, parent)


def pids(family: ProcessFamily, **there: tuple[int, int]) -> list[str]:
    """Returns the PIDs of the family's members. `p12=(parent, start)` are the existing
    processes."""
    return [
        pid
        for pid, _ in family.members_among((p[1:], stat(*report)) for p, report in there.items())
    ]


def test_children_and_grandchildren_are_members() -> None:
    family = ProcessFamily("10", 500)
    result = pids(family, p1=(0, 1), p13=(12, 520), p12=(10, 520), p10=(1, 500), p11=(1, 510))
    assert result == ["10", "12", "13"], "a child may start in the same tick"


def test_a_former_member_stays_in_the_family() -> None:
    family = ProcessFamily("10", 500)
    pids(family, p1=(0, 1), p10=(1, 500), p12=(10, 520))
    assert pids(family, p1=(0, 1), p12=(1, 520), p14=(12, 600)) == ["12", "14"]
    assert pids(family, p1=(0, 1), p12=(1, 900)) == [], "another with its number"


def test_a_name_has_as_many_bytes_as_the_kernel_keeps() -> None:
    assert job_threads.parse_pid("x" * 15) is None
    with pytest.raises(ValueError, match="15 bytes"):
        job_threads.parse_pid("x" * 16)


def test_an_older_process_had_a_different_parent() -> None:
    """Files of sleeping processes are not read again: 11 once had a child 12 that has ended."""
    family = ProcessFamily("10", 500)
    assert pids(family, p10=(1, 500), p12=(10, 800), p11=(12, 400)) == ["10", "12"]


def test_all_threads_of_a_tree_within_the_limit(tmp_path: Path) -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 30 & sleep 30 & wait"])
    watch = WatchedJob(Path("/"), str(child.pid), tree=True)
    tasks = TaskScanner(Path("/"), [0], watch)
    try:
        report: set[str] = set()

        def all_reported() -> bool:
            tasks.scan_slice()
            result = watch.read_due_threads(time.monotonic_ns()).get("watched", {})
            report.update(result.get("threads", {}))
            return len(report) >= 3

        wait_for(all_reported, "three threads")
        assert len(report) == 3
        assert str(child.pid) in report
    finally:
        for pid in report:
            subprocess.run(["kill", "-9", pid], check=False)
        child.wait()
        tasks.close()
        watch.close()


def test_a_tree_needs_a_running_pid() -> None:
    with pytest.raises(ValueError, match="--watch-tree 'name': a PID"):
        WatchedJob(Path("/"), "name", tree=True)
    with pytest.raises(Unavailable, match="no process 999999999"):
        WatchedJob(Path("/"), "999999999", tree=True)
