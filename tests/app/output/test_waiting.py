"""Reports of `why` about waits for a CPU, stopped threads and CPU quotas."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import CpuLoad, Machine
from fakes import observe as sampled
from sessions import session_of
from why_reports import (
    NO_FINDING,
    command_report,
    empty_report,
    find_finding,
    find_wait,
    printed_report,
    session_of_job,
)

from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import cause_of
from perftop.output.report import Finding
from perftop.output.waiters import victim_share
from perftop.output.waiting import UNKNOWN_NEIGHBOUR, remedy_against, waiting_finding
from perftop.output.why_report import report
from perftop.output.why_text import answer
from perftop.session.losses import (
    QUOTA_CAUSE,
    STOPPED_CAUSE,
    WAIT_CAUSE,
    LossSums,
)
from perftop.session.session import Session
from perftop.session.task_times import UNKNOWN_CPU, TaskTimes

SPAN_S = 0.5


def waits(
    threads: dict[tuple[int, int], TaskTimes] | None = None,
    tasks: dict[tuple[int, str, int], TaskTimes] | None = None,
    job: str | None = "job",
    details: dict[str, dict[str, object]] | None = None,
    machine: Machine | None = None,
) -> Finding:
    """Returns the wait of these tasks on a machine of two cores, idle by default."""
    session: Session = sampled(machine or Machine(cores=2))[0]
    session.run.times.threads = threads or {}
    session.run.times.tasks = tasks or {}
    session.run.times.covered_s = 1.0
    session.details = details or {}
    return find_wait(session, job)


def task_times(comm: str, run_s: float, wait_s: float = 0.0, cpu: int = 0) -> TaskTimes:
    return TaskTimes(comm, run_s, wait_s, {cpu: run_s + wait_s})


def two_threads(run_s: float, wait_s: float) -> dict[tuple[int, int], TaskTimes]:
    return {(1, tid): task_times("job", run_s, wait_s) for tid in (1, 2)}


BLOCKED = {(1, 1): task_times("job", 0.2, 0.3)}
CROWDED = {(1, tid): task_times("job", SPAN_S / 2, SPAN_S / 2) for tid in (1, 2)}
EVERYWHERE = {(1, cpu): task_times("job", 0.2, 0.3, cpu) for cpu in range(4)}
DISPLACED = {(1, tid): task_times("job", 0.05, 0.45) for tid in (1, 2)}
IN_TURN = {(1, tid): task_times("job", 0.1, 0.1) for tid in (1, 2)}
THREE_OTHERS = {(pid, "other", 0): task_times("other", 0.1) for pid in (31, 32, 33)}
BOTH = "2 threads of job wait for each other and hog[7] on CPU 0"


def hog(run_s: float, cpu: int = 0) -> dict[tuple[int, str, int], TaskTimes]:
    return {(7, "hog", cpu): task_times("hog", run_s, cpu=cpu)}


@pytest.mark.parametrize(("threads", "tasks", "sentence", "blamed_task"), [
    (BLOCKED, {}, "job waits for CPU 0", None),
    (EVERYWHERE, {}, "4 threads of job wait for a CPU", None),
    (BLOCKED, hog(0.3), "job waits behind hog[7] on CPU 0", "hog"),
    (BLOCKED, {(7, "job", 0): task_times("job", 0.3)}, "job waits behind job[7] on CPU 0",
     "job[7]"),
    (BLOCKED, hog(0.5, cpu=1), "job waits for CPU 0", None),  # `hog` ran on another CPU
    (CROWDED, {}, "2 threads of job wait for each other on CPU 0", "its own threads"),
    (IN_TURN, {}, "2 threads of job wait for CPU 0", None),
    # the two threads together ran for a fifth of the time
    (DISPLACED, {}, "2 threads of job wait for CPU 0", None),
    (DISPLACED, hog(0.4), "2 threads of job wait behind hog[7] on CPU 0", "hog"),
    (CROWDED, hog(0.1), BOTH, "its own threads"),
    (two_threads(0.16, 0.34), {}, "2 threads of job wait for each other on CPU 0",
     "its own threads"),
    (two_threads(0.14, 0.36), {}, "2 threads of job wait for each other and other tasks on CPU 0",
     "its own threads and other tasks"),
    (two_threads(0.1, 0.4), hog(0.2), BOTH, "its own threads and other tasks"),
    (BLOCKED | {(1, 2): task_times("hog", 0.05, 0.05, 1)}, hog(0.3),
     "2 threads of job (job, hog) wait behind hog[7] on CPUs 0-1", "hog[7]"),
    (CROWDED, hog(0.3), BOTH, "hog"),  # without it, no more than two of five parts would remain
    (CROWDED, hog(2.0), BOTH, "hog"),
    (CROWDED, hog(2.0) | {(8, "cc", 0): task_times("cc", 1.0)},
     "2 threads of job wait for each other, hog[7] and 1 more on CPU 0", "hog"),
    (BLOCKED, hog(1.5) | {(8, "cc", 0): task_times("cc", 1.0)},
     "job waits behind hog[7] and 1 more on CPU 0", "hog"),
    (BLOCKED, hog(2.0) | {(8, "cc", 0): task_times("cc", 1.5)},
     "job waits behind hog[7] and 1 more on CPU 0", "hog and 1 more"),
    (BLOCKED, hog(0.2) | {(pid, "cc", 0): task_times("cc", 0.02) for pid in range(10, 20)},
     "job waits behind hog[7] and other tasks on CPU 0", "hog and other tasks"),
    (BLOCKED, hog(0.2) | {(8, "cc", 0): task_times("cc", 0.1)}
     | {(pid, "cc", 0): task_times("cc", 0.02) for pid in range(10, 21)},
     "job waits behind hog[7] and other tasks on CPU 0", "hog and other tasks"),
])  # fmt: skip
def test_a_wait_names_the_tasks_that_caused_it(
    threads: dict[tuple[int, int], TaskTimes], tasks: dict[tuple[int, str, int], TaskTimes],
    sentence: str, blamed_task: str | None,
) -> None:  # fmt: skip
    """`blamed_task` is None if the tasks are unknown; then no task is blamed, not even the job."""
    result = waits(threads, tasks)
    assert result.text == sentence
    assert (result.confidence != "unknown") == (blamed_task is not None)
    assert (UNKNOWN_NEIGHBOUR in result.evidence) == (blamed_task is None)
    own = [TaskOnCpu(1, "job", 0)] * ("each other" in sentence)
    long_tasks = [key for key, task in tasks.items() if task.run_s > 0.02]
    others = [TaskOnCpu(pid, comm, 0) for pid, comm, _ in long_tasks if blamed_task is not None]
    assert [*result.culprit_tasks] == own + others
    several = [text for text in result.evidence if text.startswith("one of them")]
    assert bool(several) == (len(threads) > 1)
    assert result.culprit == blamed_task or (
        blamed_task is None and not {"own", "hog"} & {*result.culprit.split()}
    )


@pytest.mark.parametrize(("run_s", "end"), [
    (0.1, "for each other and others on CPU 0"), (0.2, "for each other on CPU 0"),
])  # fmt: skip
def test_a_short_headline_does_not_say_that_tasks_wait_only_for_each_other(
    run_s: float, end: str
) -> None:
    """The threads ran for 40 or 80 % of their waiting time."""
    others = hog(0.2) | {(8, "cc", 0): task_times("cc", 0.06)}
    result = waits(two_threads(run_s, 0.5 - run_s), others, "a-program-with-a-long-name")
    assert "for each other, hog[7] and" in result.text
    assert result.headline.endswith(end)


def test_the_list_of_cpus_is_whole_if_it_fits_the_headline() -> None:
    cpus = [0, 2, 5, 7, 9, 11]
    threads = {(1, cpu): task_times("job", 0.1, 0.4, cpu) for cpu in cpus}
    others = {(7, "hog", cpu): task_times("hog", 0.4, cpu=cpu) for cpu in cpus}
    machine = Machine(cores=8)
    short = waits(threads, others, machine=machine)
    assert short.headline.endswith(" hog[7] on CPUs 0,2,5,7,9,11")
    long = waits(threads, others, "a-job-with-a-name-that-leaves-no-room", machine=machine)
    assert long.headline.endswith(" hog[7] on CPU 0 (+5)")


def test_tasks_of_one_name_are_told_apart_by_their_pids() -> None:
    tasks = {
        (5, "cc", 0): task_times("cc", 0.2, 0.3),
        (7, "cc", 0): task_times("cc", 0.8),
    }
    details: dict[str, dict[str, object]] = {
        str(pid): {"group": f"/user-{pid}.service", "cpus": "0-3"} for pid in (5, 7)
    }
    result = waits({}, tasks, None, details)
    assert result.text == "cc[5] waits behind cc[7] on CPU 0"


@pytest.mark.parametrize(("threads", "tasks", "sentence"), [
    # a thread that waits for more than 5 % of its time counts as waiting
    (BLOCKED | {(1, 2): task_times("job", 0.95, 0.05, 1)}, {}, "1 of 2 threads of job waits"),
    (BLOCKED | {(1, 2): task_times("job", 0.94, 0.06, 1)}, {}, "2 threads of job wait"),
    # a task that ran for 10 % of the wait is counted
    (BLOCKED, hog(0.3) | {(8, "cc", 0): task_times("cc", 0.03)}, "job waits behind hog[7] and 1"),
    (BLOCKED, hog(0.3) | {(8, "cc", 0): task_times("cc", 0.029)}, "job waits behind hog[7] on CPU"),
    # demand for more than 1.05 CPUs, 0.525 s here, proves that threads compete
    (two_threads(0.15, 0.1125), {}, "2 threads of job wait for CPU 0"),
    (two_threads(0.15, 0.12), {}, "2 threads of job wait for each other"),
    (CROWDED | {(1, 3): task_times("job", 0.1, 0.1, 1)}, {}, "3 threads of job wait for each"),
    # if they ran for 25 % of the wait
    (two_threads(0.0625, 0.4375), hog(0.2), "2 threads of job wait for each other and hog[7]"),
    (two_threads(0.06, 0.44), hog(0.2), "2 threads of job wait for CPU 0"),
    # Of equal tasks, none is to blame.
    (BLOCKED, THREE_OTHERS | hog(0.12), "job waits behind 4 other tasks on CPU 0"),
    (BLOCKED, THREE_OTHERS | hog(0.13), "job waits behind hog[7] and 3 more on CPU 0"),
])  # fmt: skip
def test_tasks_below_a_limit_neither_wait_nor_are_blamed(
    threads: dict[tuple[int, int], TaskTimes], tasks: dict[tuple[int, str, int], TaskTimes],
    sentence: str,
) -> None:  # fmt: skip
    """Each limit at its exact value, and just beyond it."""
    assert waits(threads, tasks).text.startswith(sentence)


@pytest.mark.parametrize(("wait_s", "start", "pronoun"), [
    (0.274, "tick waits 52 % of its time for CPU 0", "it"),
    (0.28, "threads of tick wait 53 % of their time for each other on CPU 0", "they"),
])  # fmt: skip
def test_a_process_that_wants_more_than_a_cpu_has_threads(
    wait_s: float, start: str, pronoun: str
) -> None:
    """On one CPU, they wait for each other. Once, what ran there was said to be unknown."""
    result = waits(tasks={(1, "tick", 0): task_times("tick", 0.25, wait_s)}, job=None)
    assert result.headline == start
    assert result.evidence[0].startswith(f"{pronoun} waited ")


@pytest.mark.parametrize(("run_s", "is_pair"), [(0.09, False), (0.15, True)])
def test_two_tasks_that_mostly_wait_for_others_are_no_pair(run_s: float, is_pair: bool) -> None:
    """Once, two tasks that each waited for 85 % of their time were said to share a CPU."""
    tasks = {(pid, "py", 0): task_times("py", run_s, 0.24) for pid in (1, 2)}
    tasks |= {(pid, "cc", 0): task_times("cc", 0.02, cpu=0) for pid in range(3, 10)}
    assert (" share CPU 0" in waits(tasks=tasks, job=None).headline) == is_pair


@pytest.mark.parametrize(("priority", "rival", "hint"), [
    ("nice 19", "", "renice 0 -p 1"), ("SCHED_IDLE", "nice 19", "chrt --other --pid 0 1"),
    (None, "", "chrt --idle --all-tasks --pid 0 7"),
    ("nice 19", "nice 19", "chrt --idle --all-tasks --pid 0 7"),
])  # fmt: skip
def test_a_job_with_a_low_priority_is_told_so(priority: str | None, rival: str, hint: str) -> None:
    """Its neighbour was once to be slowed down instead."""
    details: dict[str, dict[str, object]] = {"1": {"priority": priority}, "7": {"priority": rival}}
    result = waits(BLOCKED, hog(0.3), details=details)
    assert (f"low priority: {priority}" in result.evidence, result.hint) == (bool(priority), hint)


def test_a_low_priority_does_not_explain_the_work_of_a_kernel_thread() -> None:
    tasks = {(9, "ksoftirqd/0", 0): task_times("ksoftirqd/0", 0.3)}
    result = waits(BLOCKED, tasks, details={"1": {"priority": "nice 19"}})
    assert result.hint == cause_of("softirq").remedy


def test_a_watched_process_has_the_name_of_its_first_thread() -> None:
    machine = Machine(cores=2, changes={"watch": "1"})
    session = Session(machine.hello)
    session.run.track_losses()
    session_of(session, [machine.frame(seq) for seq in range(3)])
    names = {1: "server", 2: "worker", 3: "worker"}
    session.run.times.threads = {(1, tid): task_times(name, 0.1) for tid, name in names.items()}
    assert report(session).job == "server"
    del session.run.times.threads[1, 1]
    assert report(session).job == "worker"


@pytest.mark.parametrize(("a_wait", "b_wait", "is_equal"), [
    (0.5, 0.4, True), (0.5, 0.39, False), (0.1, 0.05, True), (0.1, 0.04, False),
])  # fmt: skip
def test_two_tasks_that_wait_about_equally_share_a_cpu(
    a_wait: float, b_wait: float, is_equal: bool
) -> None:
    tasks = {
        (pid, comm, 0): task_times(comm, SPAN_S * (1 - share), SPAN_S * share)
        for pid, comm, share in ((1, "a", a_wait), (2, "b", b_wait))
    }
    percent = f"{100 * a_wait:.0f} % of its time"
    alone = f"a waits {percent} behind b[2] on CPU 0"
    together = f"a[1] and b[2] share CPU 0: each waits {percent}"
    result = waits(tasks=tasks, job=None)
    assert result.headline == (together if is_equal else alone)
    assert result.evidence[0] == f"it waited {SPAN_S * a_wait:.2f} of 0.50 s"
    threads = {(1, 1): tasks[1, "a", 0]}
    assert waits(threads, tasks, job="a").headline == alone, "a job has a sentence of its own"


@pytest.mark.parametrize(("job", "other_wait_s", "truncated_s", "evidence"), [
    ("a", 0.2, {0: 0.3}, ["it waited 0.30 of 0.50 s"]),
    (None, 0.03, {0: 0.124, 1: 0.5}, ["it waited 0.30 of 0.50 s"]),
    (None, 0.031, {}, ["it waited 0.30 of 0.50 s", "all tasks 0.33 of 0.7 s"]),
    (None, 0.03, {0: 0.125},
     ["it waited at least 0.30 of 0.50 s", "only a CPU's busiest tasks are sampled"]),
    (None, 0.0, {1: 0.125}, ["it waited 0.30 of 0.50 s"]),
])  # fmt: skip
def test_tasks_that_were_not_sampled_make_a_wait_a_lower_bound(
    job: str | None, other_wait_s: float, truncated_s: dict[int, float], evidence: list[str]
) -> None:
    session: Session = sampled(Machine(cores=2))[0]
    session.run.times.threads = {(1, 1): task_times("a", 0.2, 0.3)}
    session.run.times.tasks = {
        (1, "a", 0): task_times("a", 0.2, 0.3),
        (2, "b", 1): task_times("b", 0.2, other_wait_s, 1),
    }
    session.run.times.truncated_s, session.run.times.covered_s = truncated_s, 1.0
    result = find_wait(session, job)
    assert [text for text in result.evidence if text != UNKNOWN_NEIGHBOUR] == evidence
    assert ("at least" in result.headline) == ("at least" in evidence[0])


@pytest.mark.parametrize(("wanted_s", "span_s", "share"), [
    (1.0, 10.0, 0.5), (0.99, 1.0, 0.0), (2.0, 20.0, 0.5), (1.99, 20.0, 0.0),
])  # fmt: skip
def test_tasks_that_want_little_cpu_time_have_no_lost_share(
    wanted_s: float, span_s: float, share: float
) -> None:
    assert victim_share(wanted_s / 2, wanted_s, span_s) == share


@pytest.mark.parametrize(("tasks", "busy", "hint"), [
    (hog(0.3), 0.33, "taskset -acp 0-3 1"), ({}, 0.8, "taskset -acp 0-3 1"),
    (hog(0.3), 0.8, "chrt --idle --all-tasks --pid 0 7"), ({}, 0.95, ""),
])  # fmt: skip
def test_a_wider_mask_helps_if_another_cpu_has_room(
    tasks: dict[tuple[int, str, int], TaskTimes], busy: float, hint: str
) -> None:
    """CPU 0, to which the mask limits the job, is idle now."""
    machine = Machine(cores=2)
    machine.loads = dict.fromkeys((1, 2, 3), CpuLoad(util=busy)) | {0: CpuLoad(util=0.05)}
    result = waits(BLOCKED, tasks, details={"1": {"affinity": "0"}}, machine=machine)
    assert result.hint == hint
    idle = [text for text in result.evidence if text.endswith("idle")]
    assert idle == ([] if busy > 0.9 else [f"CPU 1 is {100 * (1 - busy):.0f} % idle"])


@pytest.mark.parametrize(("batch", "evidence"), [
    ("/system.slice/batch.service", ["hog is of batch.service"]),
    ("/jobs/0123456789abcdef0123456789abcdef", []),
])  # fmt: skip
def test_the_owner_of_the_main_competitor_is_evidence(batch: str, evidence: list[str]) -> None:
    tasks = hog(0.5) | {(8, "cc", 0): task_times("cc", 0.3)}
    details: dict[str, dict[str, object]] = {
        "7": {"group": batch}, "8": {"group": "/system.slice/web.service"},
    }  # fmt: skip
    result = waits(BLOCKED, tasks, details=details)
    assert result.evidence[1:] == evidence


def test_a_task_waited_on_the_cpu_that_it_used_most() -> None:
    moved = TaskTimes("job", 0.2, 0.3, {0: 0.1, 1: 0.4})
    assert waits({(1, 1): moved}).text == "job waits for CPU 1"


@pytest.mark.parametrize(("kind", "waited_s", "lost_s", "evidence"), [
    ("interrupt", 0.3, 0.15, "it waited 0.15 of 0.35 s"),
    ("interrupt", 0.3, 0.6, "it waited 0.30 of 0.50 s"),
    ("interrupt", 0.3, 0.0, None), ("interrupt", 0.0, 0.0, None),
    ("stopped", 0.3, 0.15, "it waited 0.30 of 0.50 s"),
])  # fmt: skip
def test_the_time_of_interrupts_is_not_part_of_a_wait(
    kind: str, waited_s: float, lost_s: float, evidence: str | None
) -> None:
    """`lost_s`: what remains of the wait without the interrupts on its CPU."""
    session = session_of_job(task_times("job", 0.2, waited_s))
    result, nothing = empty_report(session, "job"), np.zeros(4)
    by_cause = {(kind, "irq"): nothing, WAIT_CAUSE: np.array([lost_s, 0, 0, 0])}
    losses = LossSums(nothing, nothing, by_cause)
    result = replace(result, totals=replace(result.totals, losses=losses))
    finding = waiting_finding(result, NO_FINDING)
    assert (None if finding is None else finding.evidence[0]) == evidence


def test_long_names_are_cut() -> None:
    long_name = "x" * 20
    result = waits(tasks={(1, long_name, 0): task_times(long_name, 0.2, 0.3)}, job=None)
    assert result.text == f"{'x' * 14}… waits for CPU 0"


def test_many_tasks_that_each_ran_little_are_counted_and_the_largest_is_evidence() -> None:
    tasks = {(pid, f"t{pid}", 0): task_times(f"t{pid}", 0.015 + pid / 1e5) for pid in range(20, 40)}
    result = waits(BLOCKED, tasks)
    assert result.text == "job waits behind 20 other tasks on CPU 0"
    assert (result.culprit, result.confidence) == ("many other tasks", "measured")
    assert result.evidence[-1] == "t39[39] ran there 0.02 s"
    few = dict([*tasks.items()][:5])
    result = waits(BLOCKED, few)
    assert (result.text, result.confidence) == ("job waits for CPU 0", "unknown")
    pieces = [f"most of {UNKNOWN_NEIGHBOUR}", "t24[24] ran there 0.02 s"]
    assert result.evidence[-2:] == pieces


def test_threads_that_wait_mostly_for_many_equal_tasks_are_not_the_cause_themselves() -> None:
    equal_tasks = {(pid, "cc", 0): task_times("cc", 0.07) for pid in range(10, 15)}
    result = waits(two_threads(0.07, 0.43), equal_tasks)
    assert result.text == "2 threads of job wait for each other and 5 other tasks on CPU 0"
    assert (result.culprit, result.confidence) == ("many other tasks", "measured")
    assert not result.hint  # fewer threads would not help


@pytest.mark.parametrize(("episodes_s", "active_s"), [(None, None), (0.1, 0.45), (0.5, 0.5)])
def test_a_job_waits_for_at_least_as_long_as_one_of_its_threads(
    episodes_s: float | None, active_s: float | None
) -> None:
    """An episode of a wait begins later than the wait. Without one, the period is unknown."""
    session: Session = sampled(Machine(cores=2))[0]
    session.run.times.threads = IN_TURN | {(1, 3): task_times("job", 0.05, 0.45)}
    finding = replace(NO_FINDING, active_s=episodes_s)
    result = waiting_finding(empty_report(session, "job"), finding)
    assert result is not None
    assert result.active_s == active_s


def test_the_tasks_that_measure_are_not_the_victims_if_others_wait() -> None:
    own = {(9, "perftop", 0): task_times("perftop", 0.1, 0.4)}
    other = {(5, "web", 0): task_times("web", 0.3, 0.2)}
    assert waits(tasks=own | other | hog(0.3), job=None).text.startswith("web waits behind")
    assert waits(tasks=own | hog(0.3), job=None).text.startswith("perftop waits behind")


def children(run_s: float, child: str = "true") -> dict[tuple[int, str, int], TaskTimes]:
    """Children of process 8 that ended between two scans."""
    return {(8, child, UNKNOWN_CPU): task_times("sh", run_s, cpu=UNKNOWN_CPU)}


CHILDREN_HINT = "chrt --idle --pid 0 8, whose later children inherit it"


@pytest.mark.parametrize(("tasks", "sentence", "blamed_task", "hint"), [
    (children(0.3), "job waits behind short-lived true of sh[8] on CPU 0", "short-lived true",
     CHILDREN_HINT),
    (children(0.3, ""), "job waits behind short-lived children of sh[8] on CPU 0",
     "short-lived children", CHILDREN_HINT),
    (children(0.15), "job waits behind short-lived true of sh[8] on CPU 0", "short-lived true",
     CHILDREN_HINT),
    (children(0.3) | {(9, "cc", UNKNOWN_CPU): task_times("bash", 0.2, cpu=UNKNOWN_CPU)},
     "job waits behind short-lived true of sh[8] on CPU 0", "short-lived true", CHILDREN_HINT),
    (children(0.3) | {(8, "cc", UNKNOWN_CPU): task_times("sh", 0.2, cpu=UNKNOWN_CPU)},
     "job waits behind short-lived true of sh[8] on CPU 0", "short-lived true", CHILDREN_HINT),
    (children(0.1), "job waits for CPU 0", "other tasks", ""),
    (hog(0.3) | children(0.3), "job waits behind hog[7] on CPU 0", "hog",
     "chrt --idle --all-tasks --pid 0 7"),
])  # fmt: skip
def test_children_that_ended_between_scans_are_named_by_their_parent(
    tasks: dict[tuple[int, str, int], TaskTimes], sentence: str, blamed_task: str, hint: str
) -> None:
    result = waits(BLOCKED, tasks)
    assert (result.text, result.culprit, result.hint) == (sentence, blamed_task, hint)
    if "short" in blamed_task:
        assert result.confidence == "inferred"
    else:
        assert result.confidence == ("measured" if blamed_task == "hog" else "unknown")


@pytest.mark.parametrize(("comm", "details", "by", "hint"), [
    ("kswapd0", {}, "memory reclaim", cause_of("reclaim").remedy),
    ("idle_inject/0", {}, "idle injection", cause_of("idle-injection").remedy),
    ("kswapd0", {"command": "kswapd0"}, "kswapd0", "chrt --idle --all-tasks --pid 0 7"),
])  # fmt: skip
def test_a_kernel_thread_is_named_by_its_function(
    comm: str, details: dict[str, object], by: str, hint: str
) -> None:
    result = waits(BLOCKED, {(7, comm, 0): task_times(comm, 0.3)}, details={"7": details})
    assert result.text == f"job waits behind {comm}[7] on CPU 0"
    assert (result.culprit, result.hint) == (by, hint)


def test_the_longest_wait_is_reported_beside_the_sum() -> None:
    """Ten short waits, and one that fills the whole interval between two records."""
    job = (
        TaskTimes("job")
        .with_record(0, 0.9, 0.1, 10)
        .with_record(0, 0.0, 1.1, 0)
        .with_record(0, 0.9, 0.1, 10)
    )
    assert job.longest_s == pytest.approx(1.1)
    assert job.with_record(0, 0.0, 9.0, None).longest_s == pytest.approx(1.1)
    assert job.minus(TaskTimes("job")).longest_s == pytest.approx(1.1)
    # the wait may have been earlier
    assert job.with_record(0, 1.0, 0.0, 1).minus(job).longest_s == 0.0
    result = waits({(1, 1): job}, hog(1.3))
    assert result.evidence == ["it waited 1.30 of 3.1 s", "once for 1.1 s or longer"]
    for longest_s, is_shown in ((0.099, False), (0.1, True)):
        evidence = waits({(1, 1): replace(BLOCKED[1, 1], longest_s=longest_s)}).evidence
        assert ("once for 100 ms or longer" in evidence) is is_shown


@pytest.mark.parametrize(("util", "switches", "sentence", "confidence"), [
    (0.2, 1500, "job waits for the end of idle states on CPU 0", "inferred"),
    (0.75, 300, "job waits for the end of idle states on CPU 0", "inferred"),
    (0.2, 299, "job waits for CPU 0", "unknown"),
    (0.76, 1500, "job waits for CPU 0", "unknown"),
])  # fmt: skip
def test_wake_up_waits_on_idle_cpus_are_exits_of_idle_states(
    util: float, switches: int, sentence: str, confidence: str
) -> None:
    machine = Machine(cores=2)
    machine.loads = dict.fromkeys((1, 2, 3), CpuLoad(util=0.95)) | {0: CpuLoad(util=util)}
    machine.hello.settings["deepest_idle_state"] = f"C6{'.' * 50}"
    result = waits({(1, 1): replace(BLOCKED[1, 1], switches=switches)}, machine=machine)
    assert (result.text, result.confidence) == (sentence, confidence)
    if confidence == "inferred":
        length = "1.0 ms" if switches == 300 else "200 µs"
        price = [f"{switches} wake-ups, {length} each", f"CPU 0 {100 * (1 - util):.0f} % idle"]
        state = f"deepest state: C6{'.' * 37}… by its driver"
        assert result.evidence[1:] == [*price, state]
        assert result.culprit == "leaving idle states"
    result = waits({(1, 1): replace(BLOCKED[1, 1], switches=switches)}, hog(0.3), machine=machine)
    assert result.text == "job waits behind hog[7] on CPU 0", "a task explains the wait better"


@pytest.mark.parametrize(("wait_s", "sentence", "unseen_sentence"), [
    (0.05, "job wanted a CPU for only 60 ms, too short a time to give shares of it.",
     "job wanted a CPU for at least 60 ms, too little of which was seen to give shares of it."),
    (0.13, "job wanted a CPU for 140 ms of 500 ms and lost 93 % of that to hog.",
     "job lost at least 130 ms to hog; only 7 % of its CPU time was seen."),
    (0.36, "job wanted a CPU for 370 ms of 500 ms and lost 97 % of that to hog.",
     "job lost at least 360 ms to hog; only 7 % of its CPU time was seen."),
    (0.37, "job lost 97 % of its time to hog on CPU 0.",
     "job lost at least 370 ms to hog; only 7 % of its CPU time was seen."),
])  # fmt: skip
def test_a_job_that_also_sleeps_gets_its_wanted_time(
    wait_s: float, sentence: str, unseen_sentence: str
) -> None:
    """A convoy at a lock hardly runs: a share of its wanted time would be mistaken for a share of
    the whole run."""
    session: Session = sampled(Machine(cores=2))[0]
    session.run.track_losses()
    session.run.times.threads = {(1, 1): task_times("job", 0.01, wait_s)}
    session.run.times.job_has_waits, session.run.times.tasks = True, hog(0.5)
    session.run._losses.add_wait(np.array([wait_s, 0, 0, 0]), np.array([0.01, 0, 0, 0]))
    result = command_report(session)
    assert answer(result) == sentence
    most_unseen = answer(replace(result, seen_share=0.07))
    assert most_unseen == unseen_sentence, "children that ended unseen"
    shares = [line for line in printed_report(result) if "%" in line.split("seen")[0]]
    assert bool(shares) == (wait_s > 0.1), "no share of so little in the table"


@pytest.mark.parametrize(("wait_s", "sentence"), [(0.04, ", once 40 ms or longer"), (4e-4, "")])
def test_a_small_wait_is_shown_with_its_longest_part(wait_s: float, sentence: str) -> None:
    session: Session = sampled(Machine(cores=2))[0]
    session.run.track_losses()
    session.run.times.threads = {(1, 1): TaskTimes("job").with_record(0, 0.4, wait_s, 0)}
    session.run.times.job_has_waits = True
    result = command_report(session)
    found = next(check.result for check in result.checks if check.key == "wait")
    assert found.partition(" of 0 ms")[2] == sentence


def test_virtual_machines_of_a_host_are_named_with_their_waits() -> None:
    """The wait of a VM for a host CPU is the steal of its guest."""
    tasks = {
        (pid, f"CPU {cpu}/KVM", cpu): task_times(f"CPU {cpu}/KVM", 0.2, wait_s, cpu)
        for pid, cpu, wait_s in ((1, 0, 0.2), (1, 1, 0.2), (2, 0, 0.1))
    }
    command = "/usr/bin/qemu-system-x86_64 -name guest={},debug-threads=on -machine q35"
    details: dict[str, dict[str, object]] = {
        str(n): {"command": command.format(f"web{n}")} for n in (1, 2)
    }
    result = waits(tasks=tasks, job=None, details=details)
    place = "on CPUs 0-1; others too"
    assert result.text == f"2 threads of VM web1 wait behind VM web2[2] {place}"
    assert result.evidence[:2] == ["they waited 0.40 of 0.80 s", "steal for the guest"]


def test_children_pinned_elsewhere_are_not_blamed() -> None:
    session: Session = sampled(Machine(cores=2))[0]
    session.run.times.threads, session.run.times.tasks = BLOCKED, children(0.3)
    for affinity, words in (("1", "job waits for CPU 0"), ("0-1", "job waits behind short-lived")):
        session.details = {"8": {"affinity": affinity}}
        result = find_wait(session, "job")
        assert result is not None
        assert result.text.startswith(words)


PINNED = {
    (pid, pid): task_times(comm, SPAN_S / 2, SPAN_S / 2) for pid, comm in ((1, "a"), (2, "b"))
}
MASKS: dict[str, dict[str, object]] = {"1": {"affinity": "0"}, "2": {"affinity": "0"}}
CPUSETS = {pid: {**mask, "cpuset": "0"} for pid, mask in MASKS.items()}
UNLIMITED = {"1": {"affinity": "0-7"}, "2": {"affinity": "0"}}


@pytest.mark.parametrize(("details", "busy", "pieces", "hint"), [
    (MASKS, 0.33, ["may use 1 of 4 CPUs (mask)", "CPU 1 is 67 % idle"], "taskset -acp 0-3 1"),
    (CPUSETS, 0.33, ["may use 1 of 4 CPUs (cpuset)", "CPU 1 is 67 % idle"],
     "a cpuset of more CPUs than 0: cpuset.cpus, docker --cpuset-cpus"),
    (MASKS, 1.0, ["may use 1 of 4 CPUs (mask)"],
     "a mask of more CPUs, or no more than 1 thread"),
    (UNLIMITED, 1.0, [], "no more than 4 threads at a time, one for each CPU"),
    ({}, 0.33, [], ""),
    ({"1": {"affinity": "x"}, "2": {"affinity": ["0"]}}, 0.33, [], ""),
])  # fmt: skip
def test_a_job_limited_to_few_cpus_gets_its_mask(
    details: dict[str, dict[str, object]], busy: float, pieces: list[str], hint: str
) -> None:
    machine = Machine(cores=2)
    machine.loads = {0: CpuLoad(util=1.0)} | dict.fromkeys((1, 2, 3), CpuLoad(util=busy))
    result = waits(PINNED, details=details, machine=machine)
    assert result.text == "2 threads of job (a, b) wait for each other on CPU 0"
    assert [piece for piece in result.evidence if "CPU" in piece] == pieces
    assert result.hint == hint


@pytest.mark.skipif(shutil.which("chrt") is None, reason="util-linux is not installed")
def test_suggested_commands_are_valid() -> None:
    """They change only a process of this test."""
    with subprocess.Popen(["sleep", "60"]) as process:
        pid, machine = process.pid, Machine(cores=2)
        machine.loads = {0: CpuLoad(util=1.0)} | dict.fromkeys((1, 2, 3), CpuLoad(util=0.3))
        threads = {(pid, tid): task_times("a", SPAN_S / 2, SPAN_S / 2) for tid in (1, 2)}
        pinned = waits(threads, details={str(pid): {"affinity": "0"}}, machine=machine)
        session: Any = SimpleNamespace(details={})
        commands = [pinned.hint, remedy_against(session, pid, "sleep")]
        results = [subprocess.run(command.split(), capture_output=True, check=False)
                   for command in commands]  # fmt: skip
        process.kill()
    assert [command.split()[0] for command in commands] == ["taskset", "chrt"]
    assert [(result.returncode, result.stderr) for result in results] == [(0, b"")] * 2


def test_the_threads_that_waited_longest_are_named() -> None:
    waits_s = {"sh": 0.1, "make": 0.2, "cc1": 0.3, "perftop": 0.4}  # perftop sets a mark
    threads = {(1, i): task_times(comm, 0.2, waits_s[comm]) for i, comm in enumerate(waits_s)}
    assert waits(threads).text.startswith("3 threads of job (cc1, make) wait")


def test_a_wait_on_no_cpu_names_nobody() -> None:
    before = task_times("job", 0.4, 0.4)
    rest = before.with_record(0, 0.0, 4e-17).minus(before)
    assert rest.wait_s > 0
    assert not rest.by_cpu
    session: Session = sampled(Machine(cores=2))[0]
    session.run.track_losses()
    session.run.times.threads = {(1, 1): rest}
    assert waiting_finding(empty_report(session, "job"), NO_FINDING) is None


def test_waits_for_tasks_that_were_not_seen_have_an_unknown_cause() -> None:
    session: Session = sampled(Machine(cores=2))[0]
    session.run.track_losses()
    session.run._losses._waited_s = np.array([0.3, 0.0, 0.0, 0.0])
    session.run.times.tasks = {(7, "hog", UNKNOWN_CPU): task_times("hog", 0.2, 0.3)}
    finding = find_finding(report(session), WAIT_CAUSE)
    assert (finding.confidence, finding.evidence) == ("unknown", [UNKNOWN_NEIGHBOUR])


# --- stopped threads


@pytest.mark.parametrize(("readings", "confidence"), [("RT", "inferred"), ("RTTT", "measured")])
def test_a_stop_that_one_reading_found_is_inferred(readings: str, confidence: str) -> None:
    job = TaskTimes("job", 0.1, 0.0, {0: 0.1})
    for letter in readings:
        job = job.with_state(letter, 0.1, 0.1 * (letter == "R"))
    session = session_of_job(job)
    result = command_report(session)
    assert find_finding(result, STOPPED_CAUSE).confidence == confidence


@pytest.mark.parametrize(("state", "by", "hint"), [
    ("T", "SIGSTOP", "kill -CONT 1"),
    ("t", "a debugger", "detach the debugger"),
    ("F", "a frozen group", "thaw its control group"),
])  # fmt: skip
def test_a_stopped_job_gets_the_duration_and_the_cause(state: str, by: str, hint: str) -> None:
    session = session_of_job(TaskTimes("job", 0.3, 0.0, {0: 0.3}, 0.5, 0.3, {state: 0.2, "R": 0.3}))
    result = command_report(session)
    (first,) = [finding for finding in result.named_findings if finding.cause == STOPPED_CAUSE]
    assert first.text == f"job was stopped for 0.2 of 0.5 s ({by})"
    assert (first.culprit, first.hint, first.confidence) == (by, hint, "measured")
    assert first.evidence == [
        f"state of job[1]: {'D, its group is frozen' if state == 'F' else state}"
    ]
    assert first.lost_s == pytest.approx(0.2)
    assert f"          try:      {hint}" in printed_report(result)
    spent = "spent      ran 0.3 s, was stopped 0.2 s (all threads together)"
    assert spent in printed_report(result)
    assert next(check for check in result.checks if check.key == "wait").result.startswith(
        "0 ms of "
    )


@pytest.mark.parametrize(("sleeps", "name", "lost_s"), [
    (30, "job[1]", 0.4), (4, "job[1]", 0.0), (400, "job[1]", 0.0), (30, "job[2]", 0.0),
])  # fmt: skip
def test_the_cost_of_sleeps_after_split_locks_is_inferred(
    sleeps: int, name: str, lost_s: float
) -> None:
    """The kernel log names a thread whose sleeps are as long as those after split locks, however
    often it was preempted."""
    job = TaskTimes("job", 0.1, 0.0, {0: 0.1}, 0.5, 0.1, {"S": 0.5}, switches=1000, sleeps=sleeps)
    session = session_of_job(job)
    session.hints.read_records({"kernel_log": [["split-lock", name, 1]]})
    result = command_report(session)
    found = {finding.cause: finding for finding in result.findings}
    finding = found.get(("stopped", "split-lock"))
    assert (finding.lost_s if finding else 0.0) == pytest.approx(lost_s)
    if finding is not None:
        assert finding.confidence == "inferred"
        assert finding.text == "The kernel, after each split lock, kept job from running"


# --- CPU quotas


def with_quota(throttled_s: float, waited_s: float = 0.0, threads: int = 1) -> Session:
    """Returns a session in which a quota stopped the job for `throttled_s` and CPU 0 waited for
    `waited_s`."""
    session = session_of_job(*[task_times("job", 0.2, 0.3)] * threads)
    session.run._losses._waited_s = np.array([waited_s, 0.0, 0.0, 0.0])
    for us in (0, round(throttled_s * 1e6)):
        groups = {"/docker/0123456789abcdef": [0.5, us // 100_000, us // 120_000, us]}
        record = {"groups": groups, "pids": {"1": [*groups]}}
        session.run.quotas.read_records({"quotas": record})
    return session


def test_a_quota_is_named_with_its_owner_and_other_tasks_are_not() -> None:
    session = with_quota(0.3, 0.3)
    result = command_report(session)
    (first,) = [finding for finding in result.named_findings if finding.cause == QUOTA_CAUSE]
    assert first.text == "job may use no more than 0.5 CPUs (quota of container 0123456789ab)"
    assert (first.culprit, first.confidence) == ("its CPU quota of 0.5 CPUs", "measured")
    assert first.lost_s == pytest.approx(0.3)
    assert first.details["group"] == "/docker/0123456789abcdef"
    assert first.evidence == [
        "job was stopped for 0.30 of 0.5 s", "throttled in 66.7 % of periods",
    ]  # fmt: skip
    assert WAIT_CAUSE not in {finding.cause for finding in result.named_findings}


@pytest.mark.parametrize(("name", "owner"), [("web", " of web.service"), ("web.service", "")])
def test_the_task_and_the_group_that_a_quota_stopped_most_are_named(name: str, owner: str) -> None:
    """No job is watched; a quota of one CPU stops two tasks."""
    session: Session = sampled(Machine(cores=2))[0]
    session.run.track_losses()
    tasks = (name, 0.6), (name, 0.4), ("db", 0.2)
    session.run.times.tasks = {
        (i, comm, i): task_times(comm, 2.0, wait_s, i) for i, (comm, wait_s) in enumerate(tasks)
    }
    session.run._losses._waited_s = np.array([0.6, 0.4, 0.2, 0.0])
    for us in (0, 900_000):
        groups = {"/web.service": [1.0, 0, 0, us], "/db": [2.5, 0, 0, us // 6]}
        pids = {"0": ["/web.service"], "1": ["/web.service"], "2": ["/db"]}
        session.run.quotas.read_records({"quotas": {"groups": groups, "pids": pids}})
    finding = find_finding(report(session), QUOTA_CAUSE)
    quota = f" (quota{owner})" if owner else ""
    assert finding.text == f"{name} may use no more than 1 CPU{quota}"
    assert finding.headline == f"{name} loses 18 % of its time to a quota of 1 CPU{owner}"
    assert finding.evidence == [f"{name} was stopped for 0.90 of 5.0 s", "1 more group too"]
    assert (finding.culprit, finding.confidence) == (name, "measured")
    assert (finding.lost_s, finding.victim_share) == pytest.approx((1.05, 0.18))
    assert finding.details == {
        "group": "/web.service", "owner": "web.service", "cpus": 1.0, "periods": 0,
        "throttled_periods": 0, "throttled_s": 0.9,
    }  # fmt: skip


@pytest.mark.parametrize(("watch", "irq", "expected_text", "is_ruled_out"), [
    (None, 0.016, "0.4 % of time", True), (None, 0.16, "4.0 % of time", False),
    ("job", 0.04, "4.0 % of time", False), ("job", 0.004, "0.4 % of time", True),
])  # fmt: skip
def test_interrupts_on_the_cpus_of_a_job_are_not_ruled_out_at_several_percent(
    watch: str | None, irq: float, expected_text: str, is_ruled_out: bool
) -> None:
    """Only one of four CPUs has interrupts, and the job runs on it."""
    machine = Machine(cores=2, changes={"watch": watch})
    machine.loads = {1: CpuLoad(util=0.9, hz=3.2e9, irq=irq)}
    session = Session(machine.hello)
    session.run.track_losses()
    frames = []
    for seq in range(30):
        threads = {"7": [7, "job", 1, seq * 90_000_000, 0, 0, 0]}
        frames.append(machine.frame(seq, records={"watched": {"threads": threads, "more": 0}}))
    session_of(session, frames)
    result = report(session)
    (check,) = [check for check in result.checks if check.key == "interrupts"]
    assert (check.result, check.is_ruled_out(0.1)) == (expected_text, is_ruled_out)
    assert np.isnan(check.share) == (not is_ruled_out), "their lost part is unknown"
    whole = session.run_interval()
    # The interrupts are those of the whole run, so they are not in a report on a part of it.
    part = report(session, totals=session.run.totals(), interval=whole)
    assert "interrupts" not in {check.key for check in part.checks}
