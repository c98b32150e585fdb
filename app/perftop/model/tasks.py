"""The tasks on each CPU and the threads of the watched job.

They are read from the records of frames. Records are untrusted: they are checked here, and
unprintable characters in names are replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from math import inf, nan
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Floats, Ints

MAX_NAME_LENGTH = 64
"""Maximum length of a name in characters. The kernel's own threads have names of this length."""
MAX_TASKS_PER_CPU = 64
"""Maximum number of tasks that are used for a CPU. A probe sends three or more."""
MAX_MEAN_ENTRIES = 100_000
"""Maximum number of records times CPUs from which means are computed: these take about 0.5 s."""
MAX_THREADS = 1024
"""Maximum number of threads that are used from a record. A probe sends fewer."""
MAX_POINTS = 256
"""Maximum number of points in a thread's history. Only very short samples reach it."""
ACTIVITY_SPAN_NS = 2_000_000_000
"""Time in ns over which a thread's activity is computed: longer than one scan of all threads."""
MIN_STARVED_NS = 2_000_000_000
"""Minimum time in ns for which a runnable thread has not run, to be waiting. On a CPU without a
periodic tick, the kernel adds up the time of a running thread once a second."""


class Task(NamedTuple):
    pid: int
    comm: str
    share: float
    """Share of the CPU's time, 0 to 1."""


def parse_task(record: object) -> Task | None:
    """Parses a task's record: PID, name and share. Returns None if the record is invalid."""
    fields = _task_fields(record)
    return None if fields is None else Task(*fields)


def _task_fields(record: object) -> tuple[int, str, float] | None:
    match record:
        case [int() as pid, str() as name, float() | int() as share, *_] if 0 <= pid < 1 << 32:
            if not (type(share) is float and 0.0 <= share <= 1.0):
                share = min(1.0, max(0.0, float(share)))
            return pid, safe_name(name), share
    return None


def safe_name(name: str) -> str:
    """Returns a task's name, shortened and with unprintable characters replaced."""
    if len(name) > MAX_NAME_LENGTH:
        name = name[:MAX_NAME_LENGTH]
    return name if name.isprintable() else "".join(c if c.isprintable() else "?" for c in name)


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A record of the tasks that ran on each CPU, as received: keys are CPU numbers as text."""

    tasks: Mapping[str, Any] = field(default_factory=dict)
    """By CPU: the PID, name and share of the task that ran most."""
    top_tasks: Mapping[str, Any] = field(default_factory=dict)
    """By CPU: the PID, name and share of each of the tasks that ran most."""
    waits: Mapping[str, Any] | None = None
    """By CPU, each task's share of waiting and switches per second; None without them."""
    ended_children: Mapping[str, Any] = field(default_factory=dict)
    """By PID, the parents of processes that started and ended between two scans: the parent's name,
    the share of CPU time that these children used, and the name of one child."""
    thread_counts: Mapping[tuple[int, str], float] = field(default_factory=dict)
    """In a mean of several records, by PID and name, the mean number of the task's entries while it
    ran: a task that moved has an entry for each CPU."""
    _activity_by_cpu: dict[str, list[TaskActivity]] = field(default_factory=dict, init=False)
    """Cached results of `activity_on`, because many refreshes show the same snapshot."""

    @classmethod
    def from_records(cls, records: Mapping[str, object]) -> TaskSnapshot | None:
        """Returns the snapshot in a frame's records; None if there is none."""
        tasks = records.get("tasks")
        if not isinstance(tasks, dict):
            return None
        ranked, waits = records.get("others"), records.get("waits")
        ended_children = records.get("ended_children")
        return cls(
            tasks,
            ranked if isinstance(ranked, dict) else {},
            waits if isinstance(waits, dict) else None,
            ended_children if isinstance(ended_children, dict) else {},
        )

    @classmethod
    def mean(cls, snapshots: Sequence[TaskSnapshot]) -> TaskSnapshot:
        """Returns the mean of these records, or of an even choice of them on a large machine. A
        task that is missing in a record did not run."""
        snapshots = snapshots[:: 1 + len(snapshots) * len(snapshots[0].tasks) // MAX_MEAN_ENTRIES]
        entries: dict[str, dict[tuple[int, str], list[list[float]]]] = {}
        records: dict[tuple[int, str], list[int]] = {}
        """By PID and name, the index of the record of each entry."""
        for index, snapshot in enumerate(snapshots):
            for cpu in snapshot.tasks:
                for pid, comm, *numbers in snapshot.activity_rows(cpu):
                    by_task = entries.setdefault(cpu, {})
                    by_task.setdefault((pid, comm), []).append(numbers)
                    records.setdefault((pid, comm), []).append(index)
        tasks: dict[str, list[list[Any]]] = {}
        waits: dict[str, list[list[float]]] = {}
        for cpu, by_task in entries.items():
            means = {}
            for task, rows in by_task.items():
                is_known = np.isfinite(rows).any(axis=0)
                sums = np.where(is_known, np.nansum(rows, axis=0), nan)
                means[task] = (sums / len(snapshots)).tolist()
            order = sorted(means, key=lambda task: -means[task][0])
            tasks[cpu] = [[*task, means[task][0]] for task in order]
            waits[cpu] = [means[task][1:] for task in order]
        has_waits = any(snapshot.waits is not None for snapshot in snapshots)
        return cls(
            {cpu: ranked[0] for cpu, ranked in tasks.items()},
            tasks,
            waits if has_waits else None,
            thread_counts={task: len(seen) / len({*seen}) for task, seen in records.items()},
        )

    def parents_of_short_processes(self) -> list[tuple[Task, str]]:
        """Returns the parents in `ended_children`. Each has its children's share of CPU time and
        the name of one child ('' if unknown)."""
        processes = []
        for pid, record in self.ended_children.items():
            match record:
                case [str() as comm, int() | float() as share, str() as child] if (
                    _is_thread_id(pid) and 0 < share < inf
                ):
                    # May exceed 1, because children run on several CPUs.
                    processes.append((Task(int(pid), safe_name(comm), share), safe_name(child)))
        return processes

    def tasks_on(self, cpu: str) -> list[Task]:
        """Returns the tasks that ran most on this CPU, in descending order."""
        return [activity.task for activity in self.activity_on(cpu)]

    def cpus_of(self, pids: Collection[int], cpus: Iterable[int]) -> list[int]:
        """Returns those of these CPUs on which one of the processes ran."""
        return [cpu for cpu in cpus if any(task.pid in pids for task in self.tasks_on(str(cpu)))]

    def top_task_keys(self, cpus: Sequence[int]) -> list[tuple[int, str] | None]:
        """Returns the PID and name of the task that ran most on each of these CPUs; None where
        unknown. The names are unchecked: use them only for comparison."""
        records = [*map(self.tasks.get, map(str, cpus))]
        if columns := _columns(records, {int}, {str}, {float}):
            return [*zip(*columns[:2], strict=True)]
        keys: list[tuple[int, str] | None] = [None] * len(cpus)
        for index, record in enumerate(records):
            match record:
                # the pattern int(pid) would take eight times as long
                case [int() as pid, str() as name, _]:
                    keys[index] = pid, name
        return keys

    def activity_on(self, cpu: str) -> list[TaskActivity]:
        """Returns the tasks that ran most on this CPU, with their waits and switches."""
        activities = self._activity_by_cpu.get(cpu)
        if activities is None:
            activities = self._activity_by_cpu[cpu] = [
                TaskActivity(Task(pid, comm, share), wait, switches)
                for pid, comm, share, wait, switches in self.activity_rows(cpu)
            ]
        return activities

    def activity_rows(self, cpu: str) -> list[tuple[int, str, float, float, float]]:
        """Returns the tasks of `activity_on` as tuples: PID, name, share, wait and switches."""
        records, waits = self.top_tasks.get(cpu), self.waits.get(cpu) if self.waits else None
        if type(records) is not list or not records:
            records = [self.tasks.get(cpu)]
        wait_records = waits if type(waits) is list else ()
        rows = []
        for record, wait_record in islice(zip_longest(records, wait_records), MAX_TASKS_PER_CPU):
            if (fields := _task_fields(record)) is not None:
                wait = switches = nan
                if type(wait_record) is list and len(wait_record) > 1:
                    wait = _bounded_number(wait_record[0], 1.0)
                    switches = _bounded_number(wait_record[1], inf)
                rows.append((*fields, wait, switches))
        return rows

    def columns(self, cpus: Sequence[str]) -> TaskColumns:
        """Returns the tasks of `activity_on` for all these CPUs, as columns."""
        columns = self._uniform_columns(cpus)
        if columns is None:
            rows = [(i, *row) for i, cpu in enumerate(cpus) for row in self.activity_rows(cpu)]
            indexes, pids, names, *numbers = zip(*rows, strict=True) if rows else [()] * 6
            columns = TaskColumns(np.array(indexes, int), pids, names, *np.array(numbers, float))
        return columns

    def _uniform_columns(self, cpus: Sequence[str]) -> TaskColumns | None:
        """Returns the tasks of all these CPUs; None if a record does not have the probe's usual
        form. Checking all records together takes a tenth of the time of `activity_rows`."""
        indexes = [index for index, cpu in enumerate(cpus) if cpu in self.top_tasks]
        listed_cpus = [cpus[index] for index in indexes]
        tasks: list[Any] = [*map(self.top_tasks.get, listed_cpus)]
        waits: list[Any] = [*map((self.waits or {}).get, listed_cpus)]
        if {*map(type, tasks + waits)} != {list} or self.tasks.keys() != self.top_tasks.keys():
            return None
        counts = [*map(len, tasks)]
        if counts != [*map(len, waits)] or min(counts) == 0 or max(counts) > MAX_TASKS_PER_CPU:
            return None
        columns = _columns([*chain(*tasks)], {int}, {str}, {float})
        # a new task has no wait yet, so None is allowed
        wait_columns = _columns([*chain(*waits)], {float, NoneType}, {float, NoneType})
        if not (columns and wait_columns):
            return None
        pids, names, *numbers = columns
        numbers += wait_columns
        shares, wait_shares, switches = np.array(numbers, float)  # None becomes NaN
        is_outside = (wait_shares < 0) | (wait_shares > 1) | (switches < 0) | (switches == inf)
        is_outside |= ~((shares >= 0) & (shares <= 1))
        is_valid = (
            0 <= min(pids) <= max(pids) < 1 << 32
            and all(len(name) <= MAX_NAME_LENGTH and name.isprintable() for name in {*names})
            and not np.count_nonzero(is_outside)
        )
        index = np.repeat(indexes, counts)
        return TaskColumns(index, pids, names, shares, wait_shares, switches) if is_valid else None


class TaskActivity(NamedTuple):
    """A task on a CPU, with its waits and switches; NaN where unknown."""

    task: Task
    wait: float
    """Share of the time for which the task waited for a CPU, 0 to 1."""
    switches_per_s: float
    """Number of times per second that the task gave up or lost its CPU."""


class TaskColumns(NamedTuple):
    """The tasks of several CPUs, as columns with the numbers of `Task` and `TaskActivity`."""

    cpus: Ints
    """For each task, the index of its CPU in the list that was passed, in ascending order."""
    pids: Sequence[int]
    names: Sequence[str]
    shares: Floats
    waits: Floats
    switches_per_s: Floats


def _columns(records: Sequence[Any], *types: set[type]) -> list[Any]:
    """Returns the fields of records by column; [] if a field has a type that is not allowed."""
    if {*map(type, records)} != {list} or {*map(len, records)} != {len(types)}:
        return []
    columns = [*zip(*records, strict=True)]
    pairs = zip(columns, types, strict=True)
    is_valid = all(allowed.issuperset(map(type, fields)) for fields, allowed in pairs)
    return columns if is_valid else []


def _bounded_number(value: object, max_value: float) -> float:
    """Returns a number limited to `max_value`; NaN if it is negative or not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        return nan
    return min(float(value), max_value)


class RunningTasks:
    """The latest record of the tasks on each CPU, and the time that it covers."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = cpus
        self.snapshot = TaskSnapshot()
        self.top_task_ids: Ints = np.zeros(len(cpus), np.int64)
        """The IDs that `top_task_ids_of` returns for this record."""
        self.since_ns = self.time_ns = 0
        """Raw times between which the tasks ran; both are 0 before the first record."""

    def top_task_ids_of(self, snapshot: TaskSnapshot) -> Ints:
        """Returns, for each CPU, a hash of the busiest task's PID and name; 0 where unknown."""
        keys = [key or 0 for key in snapshot.top_task_keys(self._cpus)]
        return np.array([*map(hash, keys)], np.int64)

    def update(self, snapshot: TaskSnapshot, top_task_ids: Ints, time_ns: int) -> None:
        self.snapshot, self.top_task_ids = snapshot, top_task_ids
        self.since_ns, self.time_ns = self.time_ns, time_ns

    def tasks_on(self, cpu: int) -> list[Task]:
        """Returns the tasks that ran most on this CPU, in descending order."""
        return self.snapshot.tasks_on(str(cpu))

    def top_tasks(self, cpus: Iterable[int]) -> list[tuple[Task, int]]:
        """Returns the task that ran most on each of these CPUs, with the CPU."""
        return [(task, cpu) for cpu in cpus for task in self.tasks_on(cpu)[:1]]


STOP_REASONS = {"T": "SIGSTOP", "t": "a debugger", "F": "a frozen group"}
"""Reasons why a thread is stopped, by its state."""


class _ThreadSums(NamedTuple):
    """A thread's times and numbers of switches at one moment, as sums since its start."""

    time_ns: int
    run_ns: int
    wait_ns: int | None
    voluntary_switches: int
    involuntary_switches: int


@dataclass(frozen=True, slots=True)
class ThreadActivity:
    """Running time, waiting time and switches of one or several threads over some time."""

    elapsed_s: float = 0.0
    run_s: float = 0.0
    wait_s: float = 0.0
    """Time in s for which the thread was ready but not running; NaN if not reported."""
    voluntary_switches: int = 0
    """Number of times that the thread gave up its CPU to sleep or to wait."""
    involuntary_switches: int = 0
    """Number of times that the thread was preempted."""

    @property
    def wait(self) -> float:
        """Waiting time as a share of running plus waiting time; NaN if that is 0 or unknown."""
        wanted_s = self.run_s + self.wait_s
        return self.wait_s / wanted_s if wanted_s > 0 else nan

    def __add__(self, other: ThreadActivity) -> ThreadActivity:
        return ThreadActivity(
            max(self.elapsed_s, other.elapsed_s),
            self.run_s + other.run_s,
            self.wait_s + other.wait_s,
            self.voluntary_switches + other.voluntary_switches,
            self.involuntary_switches + other.involuntary_switches,
        )


@dataclass(slots=True)
class Thread:
    tid: int
    pid: int = 0
    comm: str = ""
    cpu: int = -1
    points: deque[_ThreadSums] = field(default_factory=lambda: deque(maxlen=MAX_POINTS))
    starved_since_ns: int = 0
    """Time in ns of the first record since which the thread has been runnable but has not run."""
    start_ns: int = 0
    """Time in ns of the first record, less the waiting time at it."""
    earlier_ns: int = 0
    """Time in ns that the thread had waited before the first record, but that the kernel counted
    later."""
    wait_ns: int = 0
    """Waiting time in ns at the last record of such a wait, which its record did not yet contain;
    0 if the thread never waited for so long."""

    def add(self, sums: _ThreadSums, *, is_runnable: bool) -> None:
        """Adds a point. The kernel counts a wait only when it ends. Here, it counts at each point,
        and from the first point on."""
        last, time_ns, wait_ns = (
            self.points[-1] if self.points else None,
            sums.time_ns,
            sums.wait_ns,
        )
        if last is None or last.run_ns != sums.run_ns or not is_runnable:
            self.starved_since_ns = time_ns
        if wait_ns is not None:
            if last is None:
                self.start_ns = time_ns - wait_ns
            wait_ns, starved_ns = wait_ns - self.earlier_ns, time_ns - self.starved_since_ns
            if starved_ns >= MIN_STARVED_NS:
                self.wait_ns = wait_ns + starved_ns
            wait_ns = max(wait_ns, self.wait_ns)
            excess_ns = max(0, wait_ns - (time_ns - self.start_ns))
            wait_ns, self.earlier_ns = wait_ns - excess_ns, self.earlier_ns + excess_ns
        self.points.append(sums._replace(wait_ns=wait_ns))

    def activity(self, span_ns: int) -> ThreadActivity:
        """Returns the thread's activity in the last `span_ns`, or since its oldest point."""
        last_point = self.points[-1]
        since_ns = last_point.time_ns - span_ns
        earlier_points = (p for p in reversed(self.points) if p.time_ns <= since_ns)
        first_point = next(earlier_points, self.points[0])
        has_waits = last_point.wait_ns is not None and first_point.wait_ns is not None
        waited_ns = (last_point.wait_ns or 0) - (first_point.wait_ns or 0) if has_waits else nan
        return ThreadActivity(
            (last_point.time_ns - first_point.time_ns) / 1e9,
            max(0, last_point.run_ns - first_point.run_ns) / 1e9,
            max(0, waited_ns) / 1e9 if has_waits else nan,
            max(0, last_point.voluntary_switches - first_point.voluntary_switches),
            max(0, last_point.involuntary_switches - first_point.involuntary_switches),
        )

    def latest_activity(self) -> ThreadActivity:
        if len(self.points) < 2:
            return ThreadActivity()
        return self.activity(self.points[-1].time_ns - self.points[-2].time_ns)


class WatchedJob:
    """The watched job and its threads. The probe sends sums since the start of each thread, from
    which this class computes differences."""

    def __init__(self, name: str | None, record: str = "watched") -> None:
        """`name`: the PID or name that the user gave; None if no job is watched. `record`: key of
        the frame record that lists the job's threads."""
        self.name = name
        self._record = record
        self.threads: dict[int, Thread] = {}
        self.unlisted_threads = 0
        """Number of the job's threads that the last record omits."""
        self.time_ns = 0
        self.last_threads: list[Thread] = []
        self.disk_ns: dict[int, int] = {}
        """Time in ns for which each thread in the last record waited for a disk; empty if
        unknown."""
        self.states: dict[int, str] = {}
        """State of each thread in the last record, as one letter; empty if unknown."""

    @property
    def has_ended(self) -> bool:
        """Whether the last record has no threads."""
        return self.time_ns > 0 and not self.last_threads

    def read_record(self, records: Mapping[str, object], time_ns: int) -> bool:
        """Reads a frame's records. Returns whether there is a record of the job."""
        record = records.get(self._record)
        if not isinstance(record, dict) or not isinstance(threads := record.get("threads"), dict):
            return False
        unlisted = record.get("more", 0)
        self.unlisted_threads = unlisted if isinstance(unlisted, int) and unlisted > 0 else 0
        self.time_ns, self.last_threads = time_ns, []
        disk_ns, states = (_values_by_thread(record.get(key)) for key in ("disk", "states"))
        times = disk_ns.items()
        self.disk_ns = {tid: ns for tid, ns in times if type(ns) is int and 0 <= ns < 1 << 62}
        letters = ((tid, s) for tid, s in states.items() if isinstance(s, str))
        self.states = {tid: letter for tid, letter in letters if len(letter) == 1}
        for tid, sums in list(threads.items())[:MAX_THREADS]:
            if _is_thread_id(tid):
                self._add(int(tid), sums, time_ns)
        gone_ns = time_ns - ACTIVITY_SPAN_NS
        self.threads = {n: t for n, t in self.threads.items() if t.points[-1].time_ns > gone_ns}
        return True

    def _add(self, tid: int, sums: object, time_ns: int) -> None:
        match sums:
            case [int() as pid, str() as comm, int() as cpu, int() as run, (int() | None) as wait,
                  int() as voluntary, int() as involuntary]:  # fmt: skip
                pass
            case _:
                return
        thread = self.threads.get(tid)
        if thread is None or thread.pid != pid or thread.points[-1].run_ns > run:  # a new thread
            thread = self.threads[tid] = Thread(tid, pid)
        thread.comm, thread.cpu = safe_name(comm), cpu
        while len(thread.points) > 1 and thread.points[1].time_ns <= time_ns - ACTIVITY_SPAN_NS:
            thread.points.popleft()
        is_runnable = self.states.get(tid) == "R"
        thread.add(_ThreadSums(time_ns, run, wait, voluntary, involuntary), is_runnable=is_runnable)
        self.last_threads.append(thread)

    def total_activity(self, span_ns: int) -> ThreadActivity:
        """Returns the activity of all threads together in the last `span_ns`."""
        return sum((thread.activity(span_ns) for thread in self.threads.values()), ThreadActivity())

    def pids(self) -> set[int]:
        return {thread.pid for thread in self.threads.values()}

    def cpus(self) -> set[int]:
        """Returns the CPUs on which threads of the job ran in the last 2 s."""
        return {t.cpu for t in self.threads.values() if t.activity(ACTIVITY_SPAN_NS).run_s > 0}


def _values_by_thread(record: object) -> dict[int, object]:
    items = list(record.items())[:MAX_THREADS] if isinstance(record, dict) else []
    return {int(tid): value for tid, value in items if _is_thread_id(tid)}


def _is_thread_id(tid: object) -> bool:
    return isinstance(tid, str) and tid.isdecimal() and len(tid) <= 10


MAX_TIMED_THREADS = 1 << 14
"""Maximum number of the job's threads with stored times. The oldest are dropped."""
ThreadKey = tuple[int, int]


def drop_oldest(entries: dict[Any, Any], max_entries: int) -> None:
    while len(entries) > max_entries:
        del entries[next(iter(entries))]
