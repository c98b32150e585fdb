"""Stalls for memory, from files with known counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees

from perfprobe.kernel.memory_stalls import MAX_GROUPS, MIN_STALL_US, MemoryStalls

V1 = "32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
V2 = "41 31 0:38 / /sys/fs/cgroup/{at} rw,nosuid - cgroup2 cgroup2 rw\n"


def write_second(root: Path, n: int, *, stalled_us: int, version: int) -> None:
    """Writes the files with their content after `n` seconds. Process 7 is in the group /job."""
    at = "sys/fs/cgroup/" + ("memory/" if version == 1 else "")
    unified = "sys/fs/cgroup/" + ("unified/" if version == 1 else "")
    mounts = V2.format(at="unified" if version == 1 else "")
    trees.put(root, "proc/self/mountinfo", mounts + (V1 if version == 1 else ""))
    groups = "4:memory:/job\n0::/job\n" if version == 1 else "0::/job\n"
    trees.put(root, "proc/7/cgroup", groups)
    trees.put(root, "proc/8/cgroup", groups.replace("/job", "/"))
    trees.put(root, "proc/vmstat", f"nr_free_pages 9\nallocstall_normal {5 * n}\npswpin 0\n")
    pressure = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={n * stalled_us}\n"
    trees.put(root, "proc/pressure/memory", pressure)
    trees.put(root, f"{unified}job/memory.pressure", pressure)
    stat = f"anon 5\nworkingset_refault_anon 1\nworkingset_refault_file {300 * n}\n"
    trees.put(root, f"{at}job/memory.stat", stat)
    if version == 1:
        trees.put(root, f"{at}job/memory.limit_in_bytes", "63000576\n")
        trees.put(root, f"{at}job/memory.failcnt", f"{70 * n}\n")
    else:
        trees.put(root, f"{at}job/memory.max", "63000576\n")
        trees.put(root, f"{at}job/memory.events", f"low 0\nhigh {30 * n}\nmax {40 * n}\noom 0\n")


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_has_its_limit_and_waiting_time(tmp_path: Path, version: int) -> None:
    write_second(tmp_path, 1, stalled_us=250_000, version=version)
    stalls = MemoryStalls(tmp_path)
    assert stalls.record([7, 8]) == {}
    write_second(tmp_path, 2, stalled_us=250_000, version=version)
    assert stalls.record([7, 8]) == {
        "stalled_us": 250_000, "counts": {"allocstall_normal": 5},
        "groups": {"/job": [63_000_576, 70, 300, 250_000]}, "pids": {"7": "/job"},
    }  # fmt: skip
    trees.put(tmp_path, "proc/vmstat", "allocstall_normal 20\n")
    assert stalls.record([7, 8])["groups"] == {"/job": [63_000_576, 0, 0, 0]}
    stalls.close()


def test_groups_of_other_tasks_are_read_only_while_pressure_rises(tmp_path: Path) -> None:
    write_second(tmp_path, 0, stalled_us=100, version=2)
    stalls = MemoryStalls(tmp_path)
    for n in range(1, 4):
        write_second(tmp_path, n, stalled_us=100, version=2)
        assert "groups" not in stalls.record([], [7])
    for n in range(4, 7):
        write_second(tmp_path, n, stalled_us=50_000, version=2)
        record = stalls.record([], [7])
    assert record["groups"] == {"/job": [63_000_576, 70, 300, 50_000]}
    stalls.close()


def test_a_stall_of_the_minimum_is_recorded_with_a_limited_number_of_groups(tmp_path: Path) -> None:
    """No count of /proc/vmstat rises."""
    pids = range(100, 101 + MAX_GROUPS)
    stalls = MemoryStalls(tmp_path)
    for n in range(2):
        write_second(tmp_path, 0, stalled_us=0, version=2)
        pressure = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={MIN_STALL_US * n}\n"
        trees.put(tmp_path, "proc/pressure/memory", pressure)
        for pid in pids:
            trees.put(tmp_path, f"proc/{pid}/cgroup", f"0::/job{pid}\n")
        if n == 0:
            stalls = MemoryStalls(tmp_path)
            assert stalls.record(pids) == {}
    record = stalls.record([], pids)
    assert (record["stalled_us"], record["counts"]) == (MIN_STALL_US, {})
    assert [*record["groups"]] == [f"/job{pid}" for pid in pids[:MAX_GROUPS]]
    stalls.close()


def test_a_machine_without_these_files_has_no_record(tmp_path: Path) -> None:
    stalls = MemoryStalls(tmp_path)
    assert [stalls.record([7], [8]) for _ in range(3)] == [{}] * 3
