"""CPU quotas: their counts, and the part of the waiting that they explain."""

from __future__ import annotations

import numpy as np
import pytest

from perftop.model.control_groups import Quotas, owner, short_owner
from perftop.model.kinds import STEAL_CAUSE
from perftop.session.losses import QUOTA_CAUSE, WAIT_CAUSE, LossSums
from perftop.session.task_times import RunTimes, TaskTimes

GROUP, POD = "/pods/web", "/pods"


def record(throttled_ms: int, *, periods: int = 10) -> dict[str, object]:
    counts = [0.5, periods, periods // 2, throttled_ms * 1000]
    return {"quotas": {"groups": {GROUP: counts}, "pids": {"7": [GROUP], "8": [GROUP]}}}


def run_times(*records: dict[str, object]) -> RunTimes:
    quotas = Quotas()
    result = RunTimes([0, 1], quotas=quotas)
    for each in records:
        quotas.read_records(each)
    return result


def waiting_task(pid: int, wait_s: float, cpu: int = 0) -> dict[tuple[int, str, int], TaskTimes]:
    return {(pid, "web", cpu): TaskTimes("web", 1.0, wait_s, {cpu: 1.0 + wait_s})}


def test_only_stops_since_the_first_record_count() -> None:
    quota = run_times(record(5000), record(5400, periods=30)).quotas.most_limiting_quota(7)
    assert quota is not None
    assert quota.throttled_s == pytest.approx(0.4)
    assert (quota.period_count, quota.throttled_count) == (20, 10)
    assert quota.cpus == 0.5
    assert run_times(record(5000)).quotas.most_limiting_quota(7) is None, "one record has no span"
    assert run_times(record(5000), record(5400)).quotas.most_limiting_quota(9) is None


def test_a_recreated_group_counts_from_its_next_record() -> None:
    quota = run_times(record(5000), record(10), record(60)).quotas.most_limiting_quota(7)
    assert quota is not None
    assert quota.throttled_s == pytest.approx(0.05)


def test_the_group_that_stopped_a_task_longest_is_chosen_among_nested_ones() -> None:
    both: list[dict[str, object]] = [
        {"quotas": {"groups": {GROUP: [4, 1, 0, ms], POD: [2, 1, 1, 9 * ms]},
                    "pids": {"7": [GROUP, POD]}}}
        for ms in (0, 1000)
    ]  # fmt: skip
    quota = run_times(*both).quotas.most_limiting_quota(7)
    assert quota is not None
    assert quota.group == POD


@pytest.mark.parametrize(("times", "share"), [
    (waiting_task(7, 2.0), 0.5),
    (waiting_task(7, 0.5), 1.0),  # never more than the wait
    # the kernel counts the CPU that they share once
    (waiting_task(7, 2.0) | waiting_task(8, 2.0), 0.5),
    (waiting_task(7, 2.0) | waiting_task(8, 2.0, cpu=1), 0.25),
], ids=["half", "all", "one CPU", "two CPUs"])  # fmt: skip
def test_the_part_of_the_waiting_caused_by_a_quota_is_known(
    times: dict[tuple[int, str, int], TaskTimes], share: float
) -> None:
    result = run_times(record(0), record(1000))
    (throttled,) = result.throttled_tasks(times)
    assert throttled.share == pytest.approx(share)
    whole = sum(task.wait_s for task in times.values())
    assert throttled.wait_s == pytest.approx(share * whole)
    assert result.throttled_by_cpu(times).sum() == pytest.approx(share * whole)
    assert result.throttled_tasks(waiting_task(9, 2.0)) == [], "another process has no quota"


def test_the_remaining_wait_is_due_to_the_scheduler() -> None:
    zeros = np.zeros(2)
    sums = LossSums(
        np.ones(2), np.array([3.0, 1.0]), {WAIT_CAUSE: np.array([3.0, 1.0]), STEAL_CAUSE: zeros}
    )
    split = sums.with_quotas(np.array([2.0, 5.0]))
    assert split.by_cause[QUOTA_CAUSE].tolist() == [2.0, 1.0]
    assert split.by_cause[WAIT_CAUSE].tolist() == [1.0, 0.0]
    assert STEAL_CAUSE not in split.by_cause, "it cost nothing"
    assert split.lost_ratio == pytest.approx(sums.lost_ratio)
    assert sums.with_quotas(zeros) is sums


SOFTIRQ = "interrupt", "softirq"


@pytest.mark.parametrize(("ran_s", "waited_s", "taken_s", "by_interrupts_s"), [
    (2.0, 7.0, 6.0, 4.4),  # ready 9 of 10 s: 5.4 of 6 s, of which the task lost 1 s while it ran
    (2.0, 0.5, 6.0, 0.5),
    (2.0, 7.0, 0.5, 0.0),
])  # fmt: skip
def test_the_waiting_beside_interrupts_is_due_to_them(
    ran_s: float, waited_s: float, taken_s: float, by_interrupts_s: float
) -> None:
    by_cause = {WAIT_CAUSE: np.array([waited_s]), SOFTIRQ: np.array([1.0])}
    sums = LossSums(np.array([ran_s]), np.array([waited_s]), by_cause)
    split = sums.with_interrupts({SOFTIRQ: np.array([taken_s])}, 10.0)
    waits = split.by_cause.get(WAIT_CAUSE, np.zeros(1))
    assert waits == pytest.approx([waited_s - by_interrupts_s])
    assert split.by_cause[SOFTIRQ] == pytest.approx([1.0 + by_interrupts_s])
    assert split.lost_ratio == pytest.approx(sums.lost_ratio)


@pytest.mark.parametrize("wrong", [
    {"quotas": []},
    {"quotas": {"groups": {GROUP: [0.5, 1]}, "pids": {}}},
    {"quotas": {"groups": {GROUP: ["x", 1, 2, 3]}, "pids": {}}},
    {"quotas": {"groups": {GROUP: [float("nan"), 1, 2, 3]}, "pids": {}}},
    {"quotas": {"groups": {3: [0.5, 1, 2, 3]}, "pids": {"7": [3]}}},
    {"quotas": {"groups": {}, "pids": {"-7": [GROUP], "7": GROUP, "8": [[GROUP]]}}},
])  # fmt: skip
def test_invalid_records_are_ignored(wrong: dict[str, object]) -> None:
    quotas = Quotas()
    quotas.read_records(wrong)
    quotas.read_records(wrong)
    assert quotas.by_group == {}
    assert quotas.most_limiting_quota(7) is quotas.most_limiting_quota(8) is None


@pytest.mark.parametrize(("group", "name"), [
    ("/", "this container"),
    ("/slurm/uid_1000/job_4711/step_0", "Slurm job 4711"),
    ("/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6071.slice/cri-containerd-99.scope",
     "pod 0a1b2c3d"),
    ("/kubepods/burstable/pod0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9/x", "pod 0a1b2c3d"),
    ("/docker/0123456789abcdef0123", "container 0123456789ab"),
    ("/system.slice/docker-0123456789abcdef.scope", "container 0123456789ab"),
    ("/lxc.payload.web/init.scope", "container web"),
    ("/system.slice/nginx.service", "nginx.service"),
    ("/user.slice/user-1000.slice", "user-1000.slice"),
    ("/batch", "/batch"),
    ("/runner/0123456789abcdef0123/x", "/runner/0123456789ab/x"),
    ("/deadbeef", "/deadbeef"),
])  # fmt: skip
def test_a_group_is_named_by_its_owner(group: str, name: str) -> None:
    assert owner(group) == name


@pytest.mark.parametrize(("group", "name"), [
    ("/sys/fs/cgroup/batch", "batch"), ("/user/slurm/uid_1000/job_4711", "Slurm job 4711"),
    ("/", "this container"), ("/batch/", "/batch/"),
])  # fmt: skip
def test_a_path_is_shortened_to_its_last_part(group: str, name: str) -> None:
    assert short_owner(group) == name


def test_a_hostile_name_is_escaped() -> None:
    name = "/a\x1b[31m"
    pid_record = {"groups": {name: [0.5, 10, 5, 9000]}, "pids": {"7": [name]}}
    (quota,) = run_times({"quotas": pid_record}).quotas.quotas_of(7)
    assert quota.group == "/a?[31m"
