"""Groups of tasks that waited for a CPU, and the tasks that ran instead."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perftop.base.text import safe_text
from perftop.model.control_groups import parse_cpu_list
from perftop.session.session import Session
from perftop.session.task_times import PERFTOP_NAMES, UNKNOWN_CPU, TaskTimes, sum_times

MAX_NAME_LENGTH = 15
MIN_DEMAND_CPUS = 0.1
"""Minimum demand of a group in CPUs for its lost share to be reported."""
MIN_WAIT_SHARE = 0.05
"""Minimum share of a task's running and waiting time for which it waited, to count as waiting."""
MIN_BLAME_SHARE = 0.1
"""Minimum time that a task must have run on the CPUs of the waiting tasks, as a share of their
waiting time, to be named."""
MIN_LEADER_SHARE = 0.3
"""Minimum running time of one of the other tasks, as a share of the time of all, to be named."""
MIN_CROWDED_CPUS = 1.05
"""Minimum demand in CPUs of a group's tasks on one CPU that proves that they compete. Tasks with
less demand may have run one after the other."""
MIN_GROUP_RUN_SHARE = 0.25
"""Minimum running time of a group's own tasks, as a share of their waiting time, for them to have
waited for each other."""
MIN_EXPLAINED_SHARE = 0.5
"""Minimum running time of other tasks, as a share of the waiting time, to be the cause of the wait.
If the scanned tasks ran for less, processes that ended between two scans are considered."""
MIN_NAMED_SHARE = 0.6
"""Minimum share of all other tasks' running time for a task to be named alone as the cause, and for
some tasks to be counted as the cause. For a group's own tasks: a share of their waiting time."""
_VM_PATTERN = re.compile(r"\S*(?:qemu|kvm)\S* (?:.* )?-name (?:guest=)?([^\s,]+)")
"""Matches the command line of QEMU, with the name of the VM."""
VM_THREAD = "thread"
"""Noun for the tasks of a VM. Their waits are steal in the guest."""

Tasks = Mapping[tuple[int, str, int], TaskTimes]
"""Run and wait times of tasks by PID, name and CPU."""


def victim_share(lost_s: float, wanted_s: float, span_s: float) -> float:
    """Returns the share of their own time that tasks lost; 0 if they needed little CPU time."""
    return lost_s / wanted_s if wanted_s >= max(1.0, MIN_DEMAND_CPUS * span_s) else 0.0


@dataclass(frozen=True)
class Waiters:
    """A group of tasks that waited."""

    name: str
    noun: str
    """`thread` for a watched job or a VM, else `task`."""
    pids: set[int]
    members: Mapping[Any, TaskTimes]
    waiting_members: dict[Any, TaskTimes]
    total_times: TaskTimes
    cpus: list[int]
    """The CPUs on which the waiting members ran most."""

    def victim_share(self, span_s: float) -> float:
        return victim_share(self.total_times.wait_s, self.total_times.wanted_s, span_s)


def find_waiters(
    session: Session, job: str | None, threads: Mapping[Any, TaskTimes], tasks: Tasks
) -> Iterator[Waiters]:
    """Yields the watched job, or the groups of tasks that waited, the one that waited most first.
    perftop itself is only among them if no other task waited."""
    if job is not None:
        yield from _group_waiters(threads, job, "thread", {pid for pid, _ in threads})
        return
    times_by_task: dict[tuple[int, str], list[TaskTimes]] = {}
    for (pid, comm, _), task in tasks.items():
        times_by_task.setdefault((pid, comm), []).append(task)
    members: dict[tuple[str, ...], dict[tuple[int, str], list[TaskTimes]]] = {}
    waited_s: dict[tuple[str, ...], float] = {}
    for (pid, comm), parts in times_by_task.items():
        # Tasks with only the same name belong to other programs.
        details, name = session.details.get(str(pid), {}), task_name(session, pid, comm)
        key = name, *(str(details.get(part, "")) for part in ("user", "group", "parent"))
        members.setdefault(key, {})[pid, comm] = parts
        waited_s[key] = waited_s.get(key, 0.0) + sum(task.wait_s for task in parts)
    waited_s = {key: s for key, s in waited_s.items() if s > 0}
    waited_s = {key: s for key, s in waited_s.items() if key[0] not in PERFTOP_NAMES} or waited_s
    for key in sorted(waited_s, key=lambda key: -waited_s[key]):
        group = members[key]
        is_vm = key[0] not in {safe_text(comm, MAX_NAME_LENGTH) for _, comm in group}
        times = {task: sum_times(parts, task[1]) for task, parts in group.items()}
        noun = VM_THREAD if is_vm else "task"
        yield from _group_waiters(times, key[0], noun, {pid for pid, _ in group})


def _group_waiters(
    members: Mapping[Any, TaskTimes], name: str, noun: str, pids: set[int]
) -> Iterator[Waiters]:
    """Yields the group of these members if one of them waited. perftop itself, which a job runs for
    its marks, is only among them if no other one waited."""
    total = sum_times(members.values())
    others = {key: t for key, t in members.items() if t.comm not in PERFTOP_NAMES}
    members = others if any(t.wait_s for t in others.values()) else members
    # Rounding can leave waits of about 1e-16 s on no CPU.
    placed_times = {key: t for key, t in members.items() if t.by_cpu}
    waiting = {key: t for key, t in placed_times.items() if t.wait_s > MIN_WAIT_SHARE * t.wanted_s}
    if not waiting:
        longest_waiter = max(placed_times, key=lambda key: placed_times[key].wait_s, default=None)
        if longest_waiter is None or not placed_times[longest_waiter].wait_s:
            return
        waiting = {longest_waiter: placed_times[longest_waiter]}
    cpus = sorted({max(t.by_cpu, key=t.by_cpu.__getitem__) for t in waiting.values()})
    yield Waiters(name, noun, pids, members, waiting, total, cpus)


@dataclass(frozen=True)
class Rivals:
    """Tasks that may have made a group wait."""

    ran_s: dict[tuple[int, str], float]
    """Seconds that other processes ran on the group's CPUs, by PID and name, the longest first."""
    explains_wait: bool
    """Whether these processes ran long enough to be the cause of the wait."""
    neighbours: list[tuple[int, str]]
    """PID and name of the tasks in `ran_s` that ran long enough to be named."""
    members_compete: bool
    """Whether the group's own tasks competed with each other."""
    members_explain_wait: bool
    """Whether the group's own tasks ran for nearly as long as it waited."""
    short_lived: ShortLivedProcesses | None
    """The processes that ran between two scans; None if other tasks explain the wait."""


def find_rivals(
    session: Session, waiters: Waiters, located_tasks: Tasks, all_tasks: Tasks, covered_s: float
) -> Rivals:
    cpus, total = waiters.cpus, waiters.total_times
    run_times = other_run_times(located_tasks, cpus, waiters.pids)
    ran_s = dict(sorted(run_times.items(), key=lambda item: -item[1]))
    all_ran_s = sum(ran_s.values())
    # One task that always runs on a CPU explains the waits of any number of tasks there.
    wait_s = min(total.wait_s, covered_s * len(cpus))
    neighbours = [task for task, s in ran_s.items() if s >= MIN_BLAME_SHARE * wait_s]
    min_run_s = MIN_EXPLAINED_SHARE * wait_s
    busiest_s = max(total.by_cpu[cpu] for cpu in cpus)
    placed_times = [task for task in waiters.members.values() if task.by_cpu]
    own_s = sum(t.run_s for t in placed_times if max(t.by_cpu, key=t.by_cpu.__getitem__) in cpus)
    members_compete = (
        busiest_s > MIN_CROWDED_CPUS * covered_s
        and own_s >= MIN_GROUP_RUN_SHARE * wait_s and own_s + all_ran_s >= min_run_s
    )  # fmt: skip
    if max(ran_s.values(), default=0.0) < MIN_LEADER_SHARE * all_ran_s:
        neighbours = []  # many tasks share the blame
    explains_wait, short_lived = all_ran_s >= min_run_s, None
    if not (members_compete or explains_wait):
        neighbours = []  # these tasks ran too little to be the cause
        short_lived = _short_lived_processes(session, all_tasks, cpus, waiters.pids, min_run_s)
    members_explain_wait = own_s >= MIN_NAMED_SHARE * wait_s
    return Rivals(
        ran_s, explains_wait, neighbours, members_compete, members_explain_wait, short_lived
    )


@dataclass(frozen=True)
class ShortLivedProcesses:
    """Processes of one parent that started and ended between two scans of tasks."""

    pid: int
    """PID of their parent."""
    parent: str
    child_names: str
    run_s: float


def _short_lived_processes(
    session: Session, tasks: Tasks, cpus: Sequence[int], own_pids: Collection[int], min_run_s: float
) -> ShortLivedProcesses | None:
    """Returns the processes of one parent that ran most between scans and may run on these CPUs;
    None if none ran for `min_run_s`."""
    online = {row.cpu for row in session.topology if row.online}
    by_parent: dict[int, dict[str, TaskTimes]] = {}
    for (pid, child, cpu), task in tasks.items():
        if cpu == UNKNOWN_CPU and pid not in own_pids:
            mask = parse_cpu_list(session.details.get(str(pid), {}).get("affinity"), online)
            if not mask or not mask.isdisjoint(cpus):
                by_parent.setdefault(pid, {})[child] = task
    run_s = {pid: sum(task.run_s for task in parts.values()) for pid, parts in by_parent.items()}
    main_parent = max(run_s, key=lambda pid: run_s[pid], default=0)
    if not run_s or run_s[main_parent] < min_run_s:
        return None
    parts = by_parent[main_parent]
    child = max((name for name in parts if name), key=lambda name: parts[name].run_s, default="")
    comm = next(iter(parts.values())).comm
    children = f"short-lived {safe_text(child or 'children', MAX_NAME_LENGTH)}"
    parent = f"{safe_text(comm, MAX_NAME_LENGTH)}[{main_parent}]"
    return ShortLivedProcesses(main_parent, parent, children, run_s[main_parent])


def task_name(session: Session, pid: int, comm: str) -> str:
    """Returns the name of a task; for threads of QEMU, the name of their VM."""
    command = session.details.get(str(pid), {}).get("command")
    if isinstance(command, str) and (match := _VM_PATTERN.match(command)):
        return f"VM {safe_text(match[1], MAX_NAME_LENGTH)}"
    return safe_text(comm, MAX_NAME_LENGTH)


def other_run_times(
    tasks: Tasks, cpus: Sequence[int], excluded_pids: Collection[int]
) -> dict[tuple[int, str], float]:
    """Returns the seconds that processes not in `excluded_pids` ran on these CPUs."""
    ran_s: dict[tuple[int, str], float] = {}
    for (pid, comm, cpu), task_times in tasks.items():
        if cpu in cpus and pid not in excluded_pids:
            ran_s[pid, comm] = ran_s.get((pid, comm), 0.0) + task_times.run_s
    return ran_s
