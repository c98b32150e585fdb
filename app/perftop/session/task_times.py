"""The running and waiting times of tasks, added up over a stream.

For each thread of a watched job, the probe sends the times since the thread's start. For other
tasks, it sends a snapshot about once a second: each CPU's busiest tasks and their shares of the
time since the previous snapshot.

A thread that started and ended between two records is missing. All time between two records is
counted on the CPU on which the thread ran last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.control_groups import Quota, Quotas
from perftop.model.tasks import (
    MAX_TIMED_THREADS,
    STOP_REASONS,
    TaskSnapshot,
    ThreadKey,
    WatchedJob,
    drop_oldest,
)
from perftop.session.command_run import JobFootprint

MAX_TASKS = 4096
"""Maximum number of tasks with stored times, each on one CPU. The oldest are dropped."""
MIN_WAIT = 0.05
"""Minimum share of the time for which a task must wait to count as waiting."""
MIN_WAIT_SNAPSHOTS = 2
"""Minimum number of snapshots with waiting times. A single one covers only 10 to 50 % of two
seconds."""
MIN_TASKS_SENT = 3
"""Number of tasks of a CPU that the probe always sends. If it sends fewer, no others ran."""
MIN_SEEN_SHARE = 0.7
"""Share of a CPU's time above which the listed tasks are nearly all, if tasks wait there. If four
equal tasks share a CPU, the three listed ones run for 75 %, and a hypervisor may use some time."""
MAX_FIRST_NS = 1_500_000_000
"""Maximum time in ns that the first snapshot covers."""
MIN_SPLIT_S, MAX_SPLIT_S = 0.004, 0.025
"""Bounds of the mean sleep in s of a thread that takes split locks. The kernel makes it sleep for
10 ms, and then wait for other such threads."""
UNKNOWN_CPU = -1
"""CPU number of a task whose CPU is unknown."""
PERFTOP_NAMES = {"perftop", "perfprobe"}
"""Names of the measuring processes. They are reported as users of CPU time or as waiting only if no
other task is; their cost is reported separately."""

K = TypeVar("K")
TaskKey = tuple[int, str, int]
"""PID, name and CPU number."""


@dataclass(slots=True)
class TaskTimes:
    """Seconds for which one task, or several together, ran and waited. Do not modify it, because
    earlier sums share it. It is not frozen, because a frozen object takes twice as long to create,
    and one is created for each thread and record."""

    comm: str
    run_s: float = 0.0
    wait_s: float = 0.0
    by_cpu: dict[int, float] = field(default_factory=dict)
    """Seconds for which the task ran or waited (`wanted_s`), by CPU."""
    elapsed_s: float = 0.0
    """Seconds covered by readings of the task's state; 0 if the state is unknown."""
    active_s: float = 0.0
    """Seconds of `elapsed_s` for which the task ran or waited for a CPU."""
    by_state: dict[str, float] = field(default_factory=dict)
    """Seconds of `elapsed_s` by the state at the end of each reading."""
    switches: int = 0
    """Number of times that the task gave up or lost its CPU; 0 if unknown."""
    longest_s: float = 0.0
    """Lower bound in s of the longest wait: the maximum of all readings' mean waits. A difference
    of two sums has at least its own mean wait and at most its length: the kernel counts a wait only
    at its end, and it may have begun earlier."""
    without_waits_s: float = 0.0
    """Seconds of `run_s` from records without waiting times."""
    state_error_s: float = 0.0
    """Longest time in s between two readings of the state: the error of the time in a state."""
    sleeps: int = 0
    """Number of times that the task gave up its CPU in `elapsed_s`."""

    @property
    def wanted_s(self) -> float:
        """Seconds for which the task ran or waited for a CPU, in records with waiting times."""
        return self.run_s - self.without_waits_s + self.wait_s

    def minus(self, earlier: TaskTimes | None) -> TaskTimes:
        # the earlier times have been dropped in the meantime
        if earlier is None or earlier.wanted_s > self.wanted_s:
            return self
        by_cpu = {
            cpu: wanted_s - earlier.by_cpu.get(cpu, 0.0) for cpu, wanted_s in self.by_cpu.items()
        }
        wait_s, switches = self.wait_s - earlier.wait_s, self.switches - earlier.switches
        mean_wait_s = wait_s / (switches + 1) if switches else 0.0  # 0 switches may mean unknown
        return TaskTimes(
            self.comm, self.run_s - earlier.run_s, wait_s,
            {cpu: wanted_s for cpu, wanted_s in by_cpu.items() if wanted_s > 0},
            self.elapsed_s - earlier.elapsed_s, self.active_s - earlier.active_s,
            {state: s - earlier.by_state.get(state, 0.0) for state, s in self.by_state.items()},
            switches, self.longest_s if self.longest_s > earlier.longest_s else mean_wait_s,
            self.without_waits_s - earlier.without_waits_s, self.state_error_s,
            self.sleeps - earlier.sleeps,
        )  # fmt: skip

    @property
    def rest_s(self) -> float:
        """Seconds for which the task neither ran nor waited for a CPU."""
        return max(0.0, self.elapsed_s - self.active_s)

    @property
    def stopped_s(self) -> float:
        """Seconds for which a signal, a debugger or a frozen cgroup stopped the task."""
        return min(self.rest_s, sum(self.by_state.get(state, 0.0) for state in STOP_REASONS))

    @property
    def stop_loss_s(self) -> float:
        """Seconds for which the task would have run or waited while it was stopped, if it had been
        as active as at other times. A thread that only sleeps loses nothing."""
        other_s = self.elapsed_s - self.stopped_s
        return self.stopped_s * (min(1.0, self.active_s / other_s) if other_s > 0 else 1.0)

    @property
    def blocked_s(self) -> float:
        """Seconds of uninterruptible sleep (state D), for a disk or in the kernel: the time for
        which the task slept, multiplied by the share of D among readings that found it asleep. Too
        many readings find it awake, because a task cannot fall asleep while the probe runs on its
        CPU."""
        awake = {"R", *STOP_REASONS}
        asleep_s = sum(s for state, s in self.by_state.items() if state not in awake)
        share = self.by_state.get("D", 0.0) / asleep_s if asleep_s > 0 else 0.0
        return (self.rest_s - self.stopped_s) * share

    def with_record(
        self, cpu: int, run_s: float, wait_s: float | None, switches: int | None = None
    ) -> TaskTimes:
        """Returns the times plus one record. `wait_s`, `switches`: None if unknown."""
        if wait_s is None:
            unknown_s = self.without_waits_s + run_s
            return replace(self, run_s=self.run_s + run_s, without_waits_s=unknown_s)
        longest_s = self.longest_s
        if switches is not None:  # the task waited at most once each time before it ran
            longest_s = max(longest_s, wait_s / (switches + 1))
        by_cpu = {**self.by_cpu, cpu: self.by_cpu.get(cpu, 0.0) + run_s + wait_s}
        return TaskTimes(
            self.comm, self.run_s + run_s, self.wait_s + wait_s, by_cpu,
            self.elapsed_s, self.active_s, self.by_state,
            self.switches + (switches or 0), longest_s, self.without_waits_s, self.state_error_s,
            self.sleeps,
        )  # fmt: skip

    def with_wait(self, wait_s: float) -> TaskTimes:
        """Returns the times with other seconds of waiting, and less wanted time on each CPU."""
        rest_s = self.wanted_s - self.wait_s + wait_s
        part = rest_s / self.wanted_s if self.wanted_s > 0 else 0.0
        by_cpu = {cpu: seconds * part for cpu, seconds in self.by_cpu.items()}
        return replace(self, wait_s=wait_s, by_cpu=by_cpu)

    def with_state(
        self, letter: str, elapsed_s: float, active_s: float, sleeps: int = 0
    ) -> TaskTimes:
        """Returns the times plus another `elapsed_s`, at whose end the task was in state `letter`.
        `active_s`: seconds of `elapsed_s` for which the task ran or waited."""
        by_state = {**self.by_state, letter: self.by_state.get(letter, 0.0) + elapsed_s}
        return replace(
            self, elapsed_s=self.elapsed_s + elapsed_s, active_s=self.active_s + active_s,
            by_state=by_state, state_error_s=max(self.state_error_s, elapsed_s),
            sleeps=self.sleeps + sleeps,
        )  # fmt: skip


NO_TIMES = TaskTimes("")
DEAD_STATES = frozenset("ZX")
"""States of a thread that has ended but is still listed, which do not count as sleep."""


class JobTime(NamedTuple):
    """Seconds of all threads of a job, by use. Sleep includes waits for locks and timers."""

    ran_s: float
    waited_s: float
    quota_s: float
    disk_s: float
    blocked_s: float
    """Uninterruptible sleep (state D) that cannot have been for a disk: its cause is unknown."""
    stopped_s: float
    slept_s: float


@dataclass(frozen=True, slots=True)
class ThrottledTasks:
    quota: Quota
    keys: list[Any]
    wait_s: float
    """Seconds for which these tasks waited because of the quota."""
    share: float
    """`wait_s` as a share of all waiting of these tasks."""
    wanted_s: float
    """Seconds for which these tasks ran or waited."""

    @property
    def is_counted(self) -> bool:
        """Whether the kernel counted all of `wait_s`: the kernel counts it once per CPU, not per
        task."""
        return self.wait_s <= self.quota.throttled_s


class RunTimes:
    """Times of the watched job's threads and of the busiest tasks."""

    def __init__(
        self, cpus: Sequence[int], quotas: Quotas | None = None,
        cpu_indexes: Collection[int] | None = None,
    ) -> None:  # fmt: skip
        """`cpus`: CPU numbers in the order of the returned arrays. `quotas`: those of the stream,
        which another object updates. `cpu_indexes`: indexes of the CPUs whose tasks count; None:
        all. The job counts on all CPUs."""
        self._position = {cpu: index for index, cpu in enumerate(cpus)}
        counted_indexes = range(len(cpus)) if cpu_indexes is None else cpu_indexes
        self._task_cpus = [str(cpu) if i in counted_indexes else "" for i, cpu in enumerate(cpus)]
        """Key of each CPU in a record of tasks; '' for CPUs that do not count."""
        self.job = JobFootprint()
        self.threads: dict[ThreadKey, TaskTimes] = {}
        """Times of the watched job's threads, by PID and thread ID."""
        self._tasks: dict[TaskKey, TaskTimes] = {}
        self._newer_sums = TaskSums()
        """The tasks that ran since `_tasks` was updated."""
        self._quotas = Quotas() if quotas is None else quotas
        self._quotas_before = self._quotas.copy()
        self.job_has_waits = False
        self.io_stall_s = 0.0
        """Upper bound of the seconds for which one task waited for a disk; 0 if unknown."""
        self._snapshot_ns = 0
        self.covered_s = 0.0
        """Seconds covered by all snapshots of tasks."""
        self.wait_snapshots = 0
        """Number of snapshots with waiting times, except the first: it covers time before the
        stream, or has no waiting times."""
        self.truncated_s: dict[int, float] = {}
        """Seconds of snapshots that lack tasks which ran and may have waited, by CPU."""
        self.waiting_s = 0.0
        """Seconds of snapshots in which a task waited for at least MIN_WAIT of the time."""

    @property
    def tasks(self) -> dict[TaskKey, TaskTimes]:
        """Times of tasks by PID, name and CPU. Children that ended between two scans have the key
        of their parent's PID, a child's name and UNKNOWN_CPU, and the parent's name in `comm`."""
        if self._newer_sums.rows:
            self._settle_tasks()
        return self._tasks

    @tasks.setter
    def tasks(self, tasks: dict[TaskKey, TaskTimes]) -> None:
        self._tasks, self._newer_sums = tasks, TaskSums()

    def _settle_tasks(self) -> None:
        for key, times in self._newer_sums.times():
            self._tasks.pop(key, None)
            self._tasks[key] = times
        drop_oldest(self._tasks, MAX_TASKS)
        self._newer_sums = TaskSums()

    @property
    def quotas(self) -> Quotas:
        """The stops by quotas since these times began."""
        return self._quotas.minus(self._quotas_before)

    def copy(self, *, job_only: bool = False) -> RunTimes:
        """Returns a copy to which no records can be added. `job_only`: without other tasks."""
        times = copy(self)
        times.job, times.threads = copy(self.job), self.threads.copy()
        times.tasks = {} if job_only else self.tasks.copy()
        times.truncated_s = {} if job_only else self.truncated_s.copy()
        times._quotas, times._quotas_before = self.quotas, Quotas()  # noqa: SLF001 - our class
        return times

    @property
    def has_waits(self) -> bool:
        """Whether waiting times are known. A single snapshot covers too little time."""
        return self.job_has_waits or self.wait_snapshots >= MIN_WAIT_SNAPSHOTS

    def minus(self, earlier: RunTimes, span_s: float) -> RunTimes:
        """Returns the times minus those of `earlier`, without tasks that have been idle since.
        `span_s`: seconds between the two."""
        difference = self.copy(job_only=True)
        difference.threads = _times_since(self.threads, earlier.threads, span_s)
        difference.tasks = _times_since(self.tasks, earlier.tasks, span_s)
        difference._quotas = self.quotas.minus(earlier.quotas)  # noqa: SLF001 - our class
        difference.io_stall_s -= earlier.io_stall_s
        difference.covered_s -= earlier.covered_s
        difference.waiting_s -= earlier.waiting_s
        difference.wait_snapshots -= earlier.wait_snapshots
        old_truncated_s = earlier.truncated_s
        difference.truncated_s = {
            cpu: s - old_truncated_s.get(cpu, 0.0) for cpu, s in self.truncated_s.items()
        }
        if difference.job.disk_s is not None:
            difference.job.disk_s -= earlier.job.disk_s or 0.0
        return difference

    def add_job_record(self, watched_job: WatchedJob, time_ns: int) -> tuple[Floats, Floats]:
        """Adds the times of the job's threads in the frame at `time_ns`. Returns, by CPU, the
        seconds for which they ran and for which they waited since the previous record."""
        run_s, wait_s = np.zeros((2, len(self._position)))
        for thread, ran_s, waited_s in self.job.steps(watched_job, time_ns):
            self.job_has_waits |= thread.points[-1].wait_ns is not None
            key = thread.pid, thread.tid
            times = self.threads.get(key) or TaskTimes(thread.comm)
            activity = thread.latest_activity() if len(thread.points) > 1 else None
            switches = (
                None
                if activity is None
                else activity.voluntary_switches + activity.involuntary_switches
            )
            times = times.with_record(thread.cpu, ran_s, waited_s, switches)
            if times.comm != thread.comm:
                times = replace(times, comm=thread.comm)
            letter = watched_job.states.get(thread.tid)
            if letter and letter not in DEAD_STATES and activity is not None:
                elapsed_s = (time_ns - thread.points[-2].time_ns) / 1e9
                times = times.with_state(
                    letter, elapsed_s, ran_s + waited_s, activity.voluntary_switches
                )
            self.threads[key] = times
            if (index := self._position.get(thread.cpu)) is not None:
                run_s[index] += ran_s
                wait_s[index] += waited_s
        drop_oldest(self.threads, MAX_TIMED_THREADS)
        return run_s, wait_s

    def add_snapshot(
        self, snapshot: TaskSnapshot, since_ns: int, time_ns: int
    ) -> tuple[Floats, Floats]:
        """Adds a snapshot of all tasks. Returns, by CPU, the seconds for which they ran and for
        which they waited since the previous snapshot. `since_ns`: start of the stream."""
        first_ns = max(since_ns, time_ns - MAX_FIRST_NS)
        span_s = max(0, time_ns - (self._snapshot_ns or first_ns)) / 1e9
        self._snapshot_ns = time_ns
        cpus, count = [*self._position], len(self._position)
        columns = snapshot.columns(self._task_cpus)
        has_wait, is_waiting = np.isfinite(columns.waits), columns.waits >= MIN_WAIT
        run_s, wait_s = columns.shares * span_s, columns.waits * span_s
        cpu_of_tasks = map(cpus.__getitem__, columns.cpus.tolist())
        keys = [*zip(columns.pids, columns.names, cpu_of_tasks, strict=True)]
        switches = np.rint(columns.switches_per_s * span_s)
        self._newer_sums.add(keys, self._tasks, run_s, wait_s, switches)
        if len(self._newer_sums.rows) > MAX_TASKS:
            self._settle_tasks()
        weights = columns.shares, is_waiting, run_s, np.where(has_wait, wait_s, 0.0)
        sums = (np.bincount(columns.cpus, weight, count).astype(float) for weight in weights)
        seen_share, waiting_count, cpu_run_s, cpu_wait_s = sums
        # The list of tasks is full, and unlisted tasks ran for a substantial share of the time.
        task_count = np.bincount(columns.cpus, minlength=count)
        may_hide_waits = (task_count >= MIN_TASKS_SENT) & (seen_share < MIN_SEEN_SHARE)
        for index in np.flatnonzero(may_hide_waits & (waiting_count > 0)).tolist():
            self.truncated_s[cpus[index]] = self.truncated_s.get(cpus[index], 0.0) + span_s
        for parent, child in snapshot.parents_of_short_processes():
            key, child_s = (parent.pid, child, UNKNOWN_CPU), min(parent.share, count) * span_s
            children = self._tasks.pop(key, None) or TaskTimes(parent.comm)
            self._tasks[key] = children.with_record(UNKNOWN_CPU, child_s, None)
        self.covered_s += span_s
        # If no task ran for long enough to be listed, none waited for long.
        self.wait_snapshots += bool(has_wait.any() or not len(has_wait))
        self.waiting_s += span_s if is_waiting.any() else 0.0
        drop_oldest(self._tasks, MAX_TASKS)
        return cpu_run_s, cpu_wait_s

    def job_time(self) -> JobTime | None:
        """Returns the times of the job's threads by use; None if their states are unknown. Unless
        the kernel counts each task's waits for a disk, state D counts as one up to the time that
        I/O pressure allows."""
        threads = [times for times in self.threads.values() if times.elapsed_s > 0]
        if not threads:
            return None
        quota_s = sum(throttled.wait_s for throttled in self.throttled_tasks(self.threads))
        waited_s = sum(times.wait_s for times in self.threads.values()) - quota_s
        keys = "rest_s", "stopped_s", "blocked_s"
        rest_s, stopped_s, d_s = (sum(getattr(times, key) for times in threads) for key in keys)
        if self.job.disk_s is None:
            disk_s = sum(min(times.blocked_s, self.io_stall_s) for times in threads)
        else:
            disk_s = min(self.job.disk_s, rest_s - stopped_s)
        ran_s = sum(times.run_s for times in self.threads.values())
        blocked_s = max(0.0, d_s - disk_s)
        slept_s = max(0.0, rest_s - stopped_s - disk_s - blocked_s)
        return JobTime(ran_s, waited_s, quota_s, disk_s, blocked_s, stopped_s, slept_s)

    @property
    def longest_wait_s(self) -> float:
        """Lower bound in s of the longest single wait of the job's threads for a CPU."""
        return max((times.longest_s for times in self.threads.values()), default=0.0)

    def split_locks_by_cpu(self, tids: Collection[int]) -> Floats:
        """Returns the seconds for which threads slept after split locks, by the CPU on which each
        ran most. `tids`: threads named in the kernel's log. Threads whose mean sleep is too short
        or too long for a split lock are left out."""
        named = {key: times for key, times in self.threads.items() if key[1] in tids}
        mean_s = {key: times.rest_s / times.sleeps for key, times in named.items() if times.sleeps}
        split_keys = (key for key, s in mean_s.items() if MIN_SPLIT_S <= s <= MAX_SPLIT_S)
        return self.by_cpu("rest_s", {key: named[key] for key in split_keys})

    def by_cpu(self, key: str, threads: Mapping[ThreadKey, TaskTimes] | None = None) -> Floats:
        """Returns the sum of some seconds of the job's threads, by the CPU on which each ran most.
        `key`: an attribute of TaskTimes. `threads`: only these."""
        sums = np.zeros(len(self._position))
        for times in (self.threads if threads is None else threads).values():
            cpu = max(times.by_cpu, key=lambda cpu: times.by_cpu[cpu], default=-1)
            if (index := self._position.get(cpu)) is not None:
                sums[index] += getattr(times, key)
        return sums

    @property
    def was_throttled(self) -> bool:
        """Whether a quota kept tasks from running."""
        if not self._quotas.by_group:  # `quotas` takes longer: it computes a difference
            return False
        return any(quota.throttled_s > 0 for quota in self.quotas.by_group.values())

    def throttled_tasks(self, times: Mapping[Any, TaskTimes]) -> list[ThrottledTasks]:
        """Returns the tasks that a quota kept from running, the most affected first. `times`:
        `threads` or `tasks`. The kernel counts the time once for each CPU, so it is multiplied by
        the number of tasks that share a CPU, up to the time for which the tasks waited."""
        tasks_by_group: dict[str, tuple[Quota, list[Any]]] = {}
        quotas = self.quotas
        for key, task in times.items() if self.was_throttled else ():
            if task.wait_s > 0 and (quota := quotas.most_limiting_quota(key[0])) is not None:
                tasks_by_group.setdefault(quota.group, (quota, []))[1].append(key)
        tasks = []
        for quota, keys in tasks_by_group.values():
            waited_s = sum(times[key].wait_s for key in keys)
            times_by_cpu = (times[key].by_cpu for key in keys)
            cpus = {max(by_cpu, key=by_cpu.__getitem__) for by_cpu in times_by_cpu if by_cpu}
            stopped_s = min(waited_s, quota.throttled_s * max(1.0, len(keys) / max(1, len(cpus))))
            wanted_s = sum(times[key].wanted_s for key in keys)
            tasks.append(ThrottledTasks(quota, keys, stopped_s, stopped_s / waited_s, wanted_s))
        return sorted(tasks, key=lambda throttled: -throttled.wait_s)

    def throttled_by_cpu(self, times: Mapping[Any, TaskTimes]) -> Floats:
        """Returns the seconds for which tasks waited because of a quota, by CPU."""
        stopped_s = np.zeros(len(self._position))
        for throttled in self.throttled_tasks(times):
            for key in throttled.keys:
                task = times[key]
                for cpu, wanted_s in task.by_cpu.items():
                    if task.wanted_s > 0 and (index := self._position.get(cpu)) is not None:
                        part = wanted_s / task.wanted_s
                        stopped_s[index] += task.wait_s * throttled.share * part
        return stopped_s


class TaskSums:
    """Times of tasks in an array, to which a whole snapshot is added at once. A snapshot of a big
    machine has hundreds of tasks, most of which are also in the next one."""

    def __init__(self) -> None:
        self.rows: dict[TaskKey, int] = {}
        """The column of each task in `_numbers`."""
        self._numbers = np.zeros((6, 0))
        """(6, tasks): `run_s`, `without_waits_s`, `wait_s` and `switches` of TaskTimes; the time of
        `by_cpu` on the task's only CPU; and `longest_s`."""

    def add(
        self, keys: Sequence[TaskKey], earlier: Mapping[TaskKey, TaskTimes], run_s: Floats,
        wait_s: Floats, switches: Floats,
    ) -> None:  # fmt: skip
        """Adds a record of each of these tasks. `earlier`: times of tasks that are not in `rows`
        yet. `wait_s`, `switches`: NaN where unknown."""
        rows, count = self.rows, len(self.rows)
        row = np.array([rows.setdefault(key, len(rows)) for key in keys], int)
        if len(rows) > count:
            new_rows = [(earlier.get(key, NO_TIMES), key[2]) for key in islice(rows, count, None)]
            numbers = [[t.run_s, t.without_waits_s, t.wait_s, t.switches, t.by_cpu.get(cpu, 0.0),
                        t.longest_s] for t, cpu in new_rows]  # fmt: skip
            self._numbers = np.concatenate([self._numbers, np.transpose(numbers)], axis=1)
        has_wait = np.isfinite(wait_s)
        known_s, waited_s = np.where(has_wait, run_s, 0.0), np.where(has_wait, wait_s, 0.0)
        switched = np.where(has_wait & np.isfinite(switches), switches, 0.0)
        increments = run_s, run_s - known_s, waited_s, switched, known_s, waited_s
        for column, values in zip((0, 1, 2, 3, 4, 4), increments, strict=True):
            np.add.at(self._numbers[column], row, values)
        # A task waited at most once each time before it ran.
        longest_s = np.where(np.isnan(switches), 0.0, waited_s / (switched + 1))
        np.maximum.at(self._numbers[5], row, longest_s)

    def times(self) -> Iterator[tuple[TaskKey, TaskTimes]]:
        for key, row in zip(self.rows, self._numbers.T.tolist(), strict=True):
            run_s, without_waits_s, wait_s, switches, wanted_s, longest_s = row
            yield key, TaskTimes(
                key[1], run_s, wait_s, {key[2]: wanted_s} if wanted_s else {},
                switches=int(switches), longest_s=longest_s, without_waits_s=without_waits_s,
            )  # fmt: skip


def sum_times(times: Iterable[TaskTimes], comm: str = "") -> TaskTimes:
    total = TaskTimes(comm)
    for task in times:
        total.run_s += task.run_s
        total.wait_s += task.wait_s
        total.without_waits_s += task.without_waits_s
        total.longest_s = max(total.longest_s, task.longest_s)
        total.switches += task.switches
        for cpu, wanted_s in task.by_cpu.items():
            total.by_cpu[cpu] = total.by_cpu.get(cpu, 0.0) + wanted_s
    return total


def _times_since(
    times: Mapping[K, TaskTimes], earlier: Mapping[K, TaskTimes], span_s: float
) -> dict[K, TaskTimes]:
    """Returns the times minus `earlier`, without tasks that have no record since then."""
    new_times: dict[K, TaskTimes] = {}
    for key, task in times.items():
        if (old := earlier.get(key)) is task:
            continue
        since = task.minus(old)
        if since.longest_s > span_s:
            since = replace(since, longest_s=span_s)
        if max(since.run_s, since.wait_s, since.elapsed_s) > 0:
            new_times[key] = since
    return new_times
