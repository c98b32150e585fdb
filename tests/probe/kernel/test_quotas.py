"""CPU quotas of control groups, from both versions' files. tests/incidents/test_staged.py has a
quota of this machine's kernel."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trees

from perfprobe.kernel import cgroups
from perfprobe.kernel.cgroups import REREAD_SCANS, Quotas, hierarchy, read_cpuset
from perfprobe.kernel.tasks import CHECK_SPAN_NS, MAX_CHECK_NS, MIN_CHECK_NS, TaskScanner

V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup systemd rw,cpu,cpuacct\n"
V2 = "41 31 0:38 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n"
THROTTLED = "usage_usec 5\nnr_periods 40\nnr_throttled 30\nthrottled_usec 2500000\n"
GROUPS = "sys/fs/cgroup"


def write_quota(root: Path, group: str, maximum: str, stat: str = THROTTLED) -> None:
    trees.put(root, f"{GROUPS}/{group}/cpu.max", f"{maximum}\n")
    trees.put(root, f"{GROUPS}/{group}/cpu.stat", stat)


def add_member(root: Path, pid: int, group: str) -> None:
    trees.put(root, f"proc/{pid}/cgroup", f"0::{group}\n")


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    trees.put(tmp_path, "proc/self/mountinfo", V2.format(root="/"))
    return tmp_path


def test_quotas_of_a_group_and_its_ancestors_apply(unified: Path) -> None:
    write_quota(unified, "pods", "400000 100000")
    write_quota(unified, "pods/one", "max 100000")
    write_quota(unified, "pods/one/web", "50000 100000")
    add_member(unified, 7, "/pods/one/web")
    add_member(unified, 8, "/pods")
    add_member(unified, 9, "/other")
    assert Quotas(unified).record([7, 8, 9]) == {
        "groups": {"/pods/one/web": [0.5, 40, 30, 2_500_000], "/pods": [4.0, 40, 30, 2_500_000]},
        "pids": {"7": ["/pods/one/web", "/pods"], "8": ["/pods"]},
    }


def test_the_first_version_has_quotas_in_the_hierarchy_of_its_controller(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/self/mountinfo", V2.format(root="/") + V1)
    trees.put(tmp_path, "proc/7/cgroup", "2:memory:/wrong\n1:cpu,cpuacct:/job\n0::/wrong\n")
    trees.put(tmp_path, f"{GROUPS}/cpu/job/cpu.cfs_quota_us", "30000\n")
    trees.put(tmp_path, f"{GROUPS}/cpu/job/cpu.cfs_period_us", "100000\n")
    text = "nr_periods 10\nnr_throttled 9\nthrottled_time 377978714\n"
    trees.put(tmp_path, f"{GROUPS}/cpu/job/cpu.stat", text)
    trees.put(tmp_path, f"{GROUPS}/cpu/cpu.cfs_quota_us", "-1\n")
    assert Quotas(tmp_path).record([7])["groups"] == {"/job": [0.3, 10, 9, 377978]}


def test_a_hierarchy_that_is_not_mounted_has_no_groups(tmp_path: Path) -> None:
    trees.put(tmp_path, "proc/self/mountinfo", "22 1 0:20 / /proc rw - proc cgroup2 rw,cpu\n")
    assert hierarchy(tmp_path, "cpu").group_in("2:cpu:/job\n0::/job\n") is None


@pytest.mark.parametrize("group", ["/docker/abc", "/"], ids=["no namespace", "namespace"])
def test_in_a_container_the_root_of_the_hierarchy_has_the_quota(tmp_path: Path, group: str) -> None:
    trees.put(tmp_path, "proc/self/mountinfo", V2.format(root=group))
    write_quota(tmp_path, "", "150000 100000")
    add_member(tmp_path, 7, group)
    assert Quotas(tmp_path).record([7])["pids"] == {"7": ["/"]}


@pytest.mark.parametrize(("maximum", "stat"), [
    ("max 100000", THROTTLED),
    ("50000 0", THROTTLED),
    ("-5 100000", THROTTLED),
    ("50000", THROTTLED),
    ("9" * 30 + " 100000", THROTTLED),
    ("50000 100000", ""),
    ("50000 100000", "nr_throttled many\n"),
])  # fmt: skip
def test_missing_and_garbled_quotas_are_left_out(unified: Path, maximum: str, stat: str) -> None:
    write_quota(unified, "job", maximum, stat)
    add_member(unified, 7, "/job")
    assert Quotas(unified).record([7]) == {}


def test_counts_are_read_at_each_scan_and_a_new_quota_after_a_few(unified: Path) -> None:
    write_quota(unified, "job", "max 100000")
    add_member(unified, 7, "/job")
    quotas = Quotas(unified)
    assert quotas.record([7]) == {}
    write_quota(unified, "job", "50000 100000")
    results = [quotas.record([7]) for _ in range(REREAD_SCANS)]
    assert [bool(record) for record in results] == [False] * (REREAD_SCANS - 1) + [True]
    write_quota(
        unified, "job", "50000 100000", THROTTLED.replace("nr_throttled 30", "nr_throttled 31")
    )
    assert quotas.record([7])["groups"] == {"/job": [0.5, 40, 31, 2_500_000]}


def test_a_process_that_is_moved_after_its_start_is_found_at_the_next_scan(unified: Path) -> None:
    write_quota(unified, "job", "50000 100000")
    add_member(unified, 7, "/")
    quotas = Quotas(unified)
    assert quotas.record([7]) == {}
    add_member(unified, 7, "/job")
    results = [quotas.record([7])["pids"] for _ in range(11 * REREAD_SCANS)]
    assert results == [{"7": ["/job"]}] * len(results)
    add_member(unified, 7, "/")
    last_record = [quotas.record([7]) for _ in range(REREAD_SCANS)][-1]
    assert last_record["pids"] == {}, "the counts of the time before the move, once more"
    assert [*last_record["groups"]] == ["/job"]
    assert quotas.record([7]) == {}


def test_the_scan_after_a_process_has_ended_reads_its_group_once_more(unified: Path) -> None:
    write_quota(unified, "job", "50000 100000")
    add_member(unified, 7, "/job")
    quotas = Quotas(unified)
    quotas.record([7])
    write_quota(unified, "job", "50000 100000", THROTTLED.replace("2500000", "2580000"))
    assert quotas.record([]) == {"groups": {"/job": [0.5, 40, 30, 2_580_000]}, "pids": {}}
    assert quotas.record([]) == {}


def test_the_groups_of_a_scan_and_the_memory_of_all_scans_are_bounded(
    unified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "MAX_GROUPS", 4)
    quotas, sizes = Quotas(unified), []
    for pid in range(300):
        add_member(unified, pid, f"/free-{pid:03}")
        quotas.record([pid])
        sizes.append(len(pickle.dumps(quotas)))
    assert max(sizes[150:]) < 1.1 * max(sizes[:150])
    for pid in range(1000, 1004):
        write_quota(unified, f"limited-{pid}", "50000 100000")
        add_member(unified, pid, f"/limited-{pid}")
    assert [*quotas.record(range(1000, 1004))["pids"]] == ["1000", "1001", "1002"], "and the root"


@pytest.mark.parametrize(
    ("mounts", "groups", "name"),
    [
        (
            "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
            "4:cpuset:/batch/a\n3:cpu:/x\n0::/\n",
            "cpuset/batch/a/cpuset.effective_cpus",
        ),
        (V2.format(root="/"), "0::/batch/a\n", "batch/a/cpuset.cpus.effective"),
    ],
    ids=["v1", "v2"],
)
def test_a_cpuset_comes_from_the_group_but_not_from_the_root(
    tmp_path: Path, mounts: str, groups: str, name: str
) -> None:
    trees.put(tmp_path, "proc/self/mountinfo", mounts)
    trees.put(tmp_path, f"{GROUPS}/{name}", "0-3,8\n")
    result = hierarchy(tmp_path, "cpuset")
    assert read_cpuset(result, groups) == "0-3,8"
    assert read_cpuset(result, "4:cpuset:/\n0::/\n") == ""
    assert read_cpuset(result, "4:cpuset:/other\n0::/other\n") == ""
    assert read_cpuset(hierarchy(tmp_path / "none", "cpuset"), groups) == ""


class WatchedJob:
    """A watched job of one process."""

    pids = (7,)

    def find_threads(self, _: object) -> Iterator[None]:
        yield from ()

    def find_children(self) -> None:
        pass


def test_a_watched_process_that_is_moved_between_scans_has_its_counts_from_then_on(
    unified: Path,
) -> None:
    write_quota(unified, "job", "50000 100000")
    add_member(unified, 7, "/")
    trees.put(unified, "proc/7/stat", trees.process(7, 0, 0))
    now_ns = [0]
    watch: Any = WatchedJob()
    tasks = TaskScanner(unified, range(4), watch, lambda: now_ns[0], lambda: 0)
    assert tasks.next_check_s() == inf
    tasks.scan_slice()
    assert tasks.next_check_s() == 0
    assert tasks.check_watched_processes()
    assert tasks.take_joined_quotas() == {}
    assert tasks.next_check_s() == MIN_CHECK_NS / 1e9
    assert not tasks.check_watched_processes()
    add_member(unified, 7, "/job")
    now_ns[0] = MIN_CHECK_NS
    assert tasks.check_watched_processes()
    add_member(unified, 7, "/unlimited")
    now_ns[0] *= 2
    assert tasks.check_watched_processes(), "the first counts are kept until they are taken"
    add_member(unified, 7, "/job")
    joined = tasks.take_joined_quotas()["quotas"]
    assert joined == {"groups": {"/job": [0.5, 40, 30, 2_500_000]}, "pids": {"7": ["/job"]}}
    assert tasks.take_joined_quotas() == {}
    # The last counts of a process's group are read after the process has ended.
    write_quota(unified, "job", "50000 100000", THROTTLED.replace("2500000", "2580000"))
    (unified / "proc/7/cgroup").unlink()
    last = {"groups": {"/job": [0.5, 40, 30, 2_580_000]}, "pids": {"7": ["/job"]}}
    assert tasks.final_quotas() == {"quotas": last}
    (unified / GROUPS / "job/cpu.max").unlink()
    assert tasks.final_quotas() == {}
    add_member(unified, 7, "/job")
    now_ns[0] = CHECK_SPAN_NS - 1
    assert tasks.check_watched_processes()
    assert tasks.next_check_s() == (now_ns[0] + MAX_CHECK_NS) / 1e9
    now_ns[0] = CHECK_SPAN_NS + MAX_CHECK_NS
    assert tasks.check_watched_processes()
    for _ in range(5):
        assert tasks.next_check_s() == inf
        tasks.scan_slice()
        now_ns[0] += CHECK_SPAN_NS
