"""Explains waits for a CPU: which tasks waited most, which tasks ran on their CPUs meanwhile, and
whether an affinity mask or a cpuset kept them off other CPUs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from perftop.base.text import (
    brief_duration,
    count_noun,
    join_words,
    ranges,
    safe_text,
    short_duration,
    whole_percent,
)
from perftop.model.belief import Confidence, confidence
from perftop.model.kinds import cause_of
from perftop.model.tasks import process_owner
from perftop.output.sentences import MAX_SENTENCE, cpus_text, short_cpus_text
from perftop.session.interval import Interval
from perftop.session.losses import WAIT_CAUSE, Totals
from perftop.session.session import Session
from perftop.session.task_times import UNKNOWN_CPU, RunTimes, TaskTimes

MAX_NAME, MAX_STATE = 15, 40
MIN_WAIT_SHARE = 0.05
"""Minimum share of its time that a waiting task must have waited."""
MIN_BLAME_SHARE = 0.1
"""Minimum running time of another task on the CPUs of the waiting tasks for it to be named, as a
share of their waiting time."""
MIN_CROWDED_CPUS = 1.05
"""Minimum demand of a group's tasks on one CPU, in CPUs, that proves that they compete. With less
demand, they may have run one after the other."""
MAX_WAIT_DIFFERENCE = 0.1
"""Maximum difference between the waiting shares of two tasks that wait equally."""
MIN_FULL_SHARE = 0.25
"""Minimum share of the time in which a CPU had more tasks than were sampled, for the waiting time
to be reported as a lower bound."""
MIN_DEMAND_CPUS = 0.1
"""Minimum demand of a group in CPUs for its lost share to be reported."""
MIN_ROOM, MIN_IDLE = 0.5, 0.1
"""Minimum idle shares of a CPU: MIN_ROOM for one more task, MIN_IDLE for one more task that runs
part of the time."""
MIN_EXPLAINED_SHARE = 0.5
"""Minimum running time of other tasks, as a share of the waiting time, for them to be the cause,
even if the group's tasks also competed with each other. Processes that ended between two scans are
considered only if the scanned tasks ran for less."""
KERNEL_THREADS = {
    "ksoftirqd/": "softirq", "irq/": "irq", "kswapd": "reclaim", "kcompactd": "compaction",
    "khugepaged": "compaction", "idle_inject/": "idle-injection", "kidle_inj": "idle-injection",
}  # fmt: skip
"""Prefixes of the names of kernel threads that work for other tasks, with the cause of this
work."""
MIN_LONG_S = 0.1
"""Minimum time in s of a single wait that is reported."""
MAX_EXIT_S, MIN_IDLE_EXITS = 1e-3, 0.25
"""Maximum mean wait in s of a wake-up, and minimum idle share of its CPUs, for waits that are due
to idle states. The deepest states of servers take up to 0.3 ms to leave."""
_VM_PATTERN = re.compile(r"\S*(?:qemu|kvm)\S* (?:.* )?-name (?:guest=)?([^\s,]+)")
"""Matches the command line of QEMU, with the name of the VM."""
OWN_NAMES = {"perftop", "perfprobe"}
"""Names of the measuring processes. Their waits are reported only if no other task waits, and their
cost is reported separately."""
VM_THREAD = "thread"
"""Noun for the tasks of a VM. Its guest counts their waits as steal."""
UNKNOWN_NEIGHBOUR = "what ran there is unknown"


@dataclass(frozen=True)
class WaitingLoss:
    """The part of a `why_report.Finding` about the tasks that waited most."""

    text: str
    culprit: str
    evidence: list[str]
    hint: str
    cpus: list[int]
    confidence: Confidence
    """`measured`: the tasks that they waited for ran on their CPUs. `inferred`: the CPUs of those
    tasks are unknown. `unknown`: nothing is known about those tasks."""
    headline: str
    victim_share: float
    """Share of their own time that they waited; 0 if they needed little CPU time."""


Tasks = Mapping[tuple[int, str, int], TaskTimes]
"""Run and wait times of tasks by PID, name and CPU."""


@dataclass(frozen=True)
class _Waiters:
    """The group of tasks that waited most."""

    name: str
    noun: str
    """`thread` for a watched job or a VM, else `task`."""
    pids: set[int]
    members: Mapping[Any, TaskTimes]
    waiting_members: dict[Any, TaskTimes]
    total_times: TaskTimes
    cpus: list[int]
    """The CPUs on which the waiting members ran most."""


@dataclass(frozen=True)
class _WaitReason:
    culprit: str
    """The resource in a few words, for use inside a sentence."""
    awaited_tasks: list[str]
    """The tasks that the group waited for, as text; empty if they are unknown."""
    evidence: list[str]
    neighbours: list[tuple[int, str]]
    """PID and name of the tasks that ran on the group's CPUs, the largest share first."""
    preposition: str
    """The preposition before the culprit in a sentence: `behind` other tasks, else `for`."""
    hint: str
    confidence: Confidence


def waiting_loss(
    session: Session, job: str | None, totals: Totals, whole: Interval, *, past_tense: bool
) -> WaitingLoss | None:
    """Returns the tasks that waited most; None if no task waited. `job`: name of the watched job;
    None: all tasks are searched for the group with one name that waited most. `totals`, `whole`:
    times and numbers of the span."""
    times, span_s = totals.times, totals.elapsed_s
    tasks = _without_quotas(times, times.tasks)
    threads = _without_quotas(times, times.threads)
    by_cause, waited_s = totals.losses.by_cause, sum(task.wait_s for task in threads.values())
    if any(kind == "interrupt" for kind, _ in by_cause) and waited_s > 0:
        part = min(1.0, float(by_cause[WAIT_CAUSE].sum()) / waited_s)
        threads = {key: _with_wait(task, part * task.wait_s) for key, task in threads.items()}
    placed_tasks = {key: task for key, task in tasks.items() if key[2] != UNKNOWN_CPU}
    waiters = _find_waiters(session, job, threads, placed_tasks)
    if waiters is None:
        return None
    covered_s = span_s if job is not None else min(span_s, times.seen_s)
    reason = _find_reason(session, waiters, placed_tasks, tasks, whole, covered_s)
    name, members, waiting = waiters.name, waiters.members, waiters.waiting_members
    group, cpus, awaited_tasks = waiters.total_times, waiters.cpus, reason.awaited_tasks

    names = (safe_text(task.comm, MAX_NAME) for task in waiting.values() if task.comm)
    comms = [*dict.fromkeys(names)]
    group_name = f"{name} ({', '.join(comms[:2])})" if len(comms) > 1 and job is not None else name
    several_text = f"{count_noun(len(members), waiters.noun)} of {group_name}"
    waiters_text = several_text if len(members) > 1 else name
    if len(waiting) < len(members):
        waiters_text = f"{len(waiting)} of {waiters_text}"
    verb = "waited" if past_tense else "waits" if len(waiting) == 1 else "wait"
    they, their = ("they", "their") if len(waiting) > 1 else ("it", "its")
    place = short_cpus_text(session.topology, cpus, cpus[0])

    digits = 1 if group.wanted_s >= 1 else 2
    full_s = max(times.truncated_s.get(cpu, 0.0) for cpu in cpus)
    is_crowded = job is None and full_s >= MIN_FULL_SHARE * covered_s
    bound_text = "at least " if is_crowded else ""
    evidence = [f"{they} waited {bound_text}{group.wait_s:.2f} of {group.wanted_s:.{digits}f} s"]
    evidence += ["only the busiest of a CPU are seen"] if is_crowded else []
    evidence += ["steal for the guest"] if job is None and waiters.noun == VM_THREAD else []
    if group.longest_s >= MIN_LONG_S:
        evidence.append(f"once for {short_duration(group.longest_s)} or longer")
    if len(waiting) > 1:
        shares = (task.wait_s / task.wanted_s for task in waiting.values() if task.wanted_s > 0)
        evidence.append(f"one of them {whole_percent(max(shares))} of its time")
    evidence += reason.evidence
    all_tasks = _sum_times(placed_tasks.values())
    if job is None and all_tasks.wait_s > 1.1 * group.wait_s:
        evidence.append(f"all tasks {all_tasks.wait_s:.2f} of {all_tasks.wanted_s:.1f} s")
    is_everywhere = len(cpus) == len(session.shown)
    ends = ["for a CPU" if is_everywhere else f"for {place}"]
    if awaited_tasks:
        where = "" if is_everywhere else f" on {place}"
        ends = [f"{reason.preposition} {join_words(awaited_tasks)}{where}",
                f"{reason.preposition} {awaited_tasks[0]}{where}"]  # fmt: skip
    share = lost_percent(group.wait_s, group.wanted_s)
    headlines = [f"{waiters_text} {verb} {bound_text}{share} of {their} time {end}" for end in ends]
    pair: list[str] = []
    if job is None and len(cpus) == 1:
        pair = _named_neighbours(placed_tasks, cpus[0], reason.neighbours, waiters.pids)
    if pair:
        shared, waited = ("shared", "waited") if past_tense else ("share", "waits")
        headlines = [f"{' and '.join(pair)} {shared} {place}: each {waited} {share} of its time"]
    return WaitingLoss(
        f"{waiters_text} {verb} {ends[0]}", reason.culprit if job is not None else name, evidence,
        reason.hint, cpus, reason.confidence,
        next((text for text in headlines if len(text) < MAX_SENTENCE), headlines[-1]),
        victim_share(group.wait_s, group.wanted_s, span_s),
    )  # fmt: skip


def _find_waiters(
    session: Session, job: str | None, threads: Mapping[Any, TaskTimes], tasks: Tasks
) -> _Waiters | None:
    """Returns the watched job, or the group of tasks that waited most; None if none waited."""
    members = threads
    name, noun, pids = job or "", "thread", {pid for pid, _ in threads}
    if job is None:
        names_by_task = {(pid, comm): _group_key(session, pid, comm) for pid, comm, _ in tasks}
        waited_s: dict[tuple[str, ...], float] = {}
        for (pid, comm, _), task in tasks.items():
            names = names_by_task[pid, comm]
            waited_s[names] = waited_s.get(names, 0.0) + task.wait_s
        of_others = {name: s for name, s in waited_s.items() if s > 0 and name[0] not in OWN_NAMES}
        waited_s = of_others or waited_s
        worst = max(waited_s, key=lambda name: waited_s[name], default=("",))
        times_by_pid: dict[tuple[int, str], list[TaskTimes]] = {}
        for (pid, comm, _), task in tasks.items():
            if names_by_task[pid, comm] == worst:
                times_by_pid.setdefault((pid, comm), []).append(task)
        pids = {pid for pid, _ in times_by_pid}
        members = {key: _sum_times(parts, key[1]) for key, parts in times_by_pid.items()}
        is_vm = worst[0] not in {safe_text(comm, MAX_NAME) for _, comm in times_by_pid}
        name, noun = worst[0], VM_THREAD if is_vm else "task"
    # Differences of sums can leave a wait of some 1e-16 s that is on no CPU.
    placed = {key: t for key, t in members.items() if t.by_cpu}
    waiting = {key: t for key, t in placed.items() if t.wait_s > MIN_WAIT_SHARE * t.wanted_s}
    if not waiting:
        longest_waiter = max(placed, key=lambda key: placed[key].wait_s, default=None)
        if longest_waiter is None or not placed[longest_waiter].wait_s:
            return None
        waiting = {longest_waiter: placed[longest_waiter]}
    cpus = sorted({max(t.by_cpu, key=t.by_cpu.__getitem__) for t in waiting.values()})
    return _Waiters(name, noun, pids, members, waiting, _sum_times(members.values()), cpus)


def _find_reason(
    session: Session, waiters: _Waiters, placed_tasks: Tasks, all_tasks: Tasks, whole: Interval,
    covered_s: float,
) -> _WaitReason:  # fmt: skip
    """Returns the reason for the group's wait: tasks that ran on its CPUs, its own members,
    processes that ended between two scans, or a CPU that first had to leave an idle state; and the
    mask or cpuset that kept it off other CPUs. `placed_tasks`: those of `all_tasks` with a known
    CPU. `covered_s`: seconds that these records cover."""
    cpus, total, members = waiters.cpus, waiters.total_times, waiters.members
    ran_s = run_times_of_others(placed_tasks, cpus, waiters.pids)
    neighbours = [task for task in sorted(ran_s, key=lambda task: -ran_s[task])
                 if ran_s[task] >= MIN_BLAME_SHARE * total.wait_s]  # fmt: skip
    busiest_s = max(total.by_cpu[cpu] for cpu in cpus)
    mutual = len(members) > 1 and busiest_s > MIN_CROWDED_CPUS * covered_s
    short_lived, min_run_s = None, MIN_EXPLAINED_SHARE * total.wait_s
    is_explained = mutual or sum(ran_s.values()) >= min_run_s
    if not is_explained:
        short_lived = _short_lived_processes(session, all_tasks, cpus, waiters.pids, min_run_s)
    mean_s = total.wait_s / total.switches if total.switches else inf
    rows = [row for row in session.shown if session.topology[row].cpu in cpus]
    idle = 1 - whole.values.mean("util", rows)
    is_exit = mean_s <= MAX_EXIT_S and total.wait_s >= MIN_WAIT_SHARE * total.wanted_s
    if not is_explained and short_lived is None and is_exit and idle >= MIN_IDLE_EXITS:
        evidence = [f"{total.switches} wake-ups, {brief_duration(mean_s)} each",
                    f"{cpus_text(session.topology, cpus)} {whole_percent(idle)} idle"]  # fmt: skip
        if deepest := session.hello.settings.get("deepest_idle_state"):
            evidence.append(f"deepest state: {safe_text(deepest, MAX_STATE)} by its driver")
        exits = ["the end of idle states"]
        hint = cause_of("idle-exit").remedy
        belief = confidence(*WAIT_CAUSE, counted=False)
        return _WaitReason(cause_of("idle-exit").name, exits, evidence, [], "for", hint, belief)

    evidence = []
    culprit = "its own threads" if mutual else "waiting for a CPU"
    if len(members) == 1:
        culprit = "other tasks"
    if neighbours and not (mutual and sum(ran_s.values()) < min_run_s):
        cause = _kernel_cause(session, *neighbours[0])
        culprit = cause_of(cause).name if cause else _task_name(session, *neighbours[0])
        culprit += f"[{neighbours[0][0]}]" if culprit == waiters.name else ""
    awaited_tasks = ["each other"] if mutual else []
    if short_lived is not None:
        neighbours = []
        culprit = short_lived.child_names
        awaited_tasks = [f"{culprit} of {short_lived.parent}"]
    for pid, comm in neighbours[:1]:
        names = [f"{_task_name(session, pid, comm)}[{pid}]"]
        names += [f"{len(neighbours) - 1} more"] if neighbours[1:] else []
        awaited_tasks += names if mutual else [join_words(names)]
    # each of these tasks ran too little to be named
    if not awaited_tasks and sum(ran_s.values()) >= min_run_s:
        culprit, awaited_tasks = "many other tasks", [f"{len(ran_s)} other tasks"]
    busiest_task = max(ran_s, key=lambda task: ran_s[task], default=None)
    stuck = {key[0] if isinstance(key, tuple) else key for key in waiters.waiting_members}
    limit, allowed = _allowed_cpus(session, stuck)
    spare = _idle_shares(session, whole, allowed if limit else cpus)
    if limit:
        count = sum(row.online for row in session.topology)
        evidence.append(f"may use {len(allowed)} of {count_noun(count, 'CPU')} ({limit})")
        for cpu in [*spare][:1]:
            evidence.append(f"CPU {cpu} is {whole_percent(spare[cpu])} idle")
    if short_lived is not None:
        evidence.append(f"children of {short_lived.parent} ran {short_lived.run_s:.2f} s")
    if not awaited_tasks:
        evidence.append(f"most of {UNKNOWN_NEIGHBOUR}" if ran_s else UNKNOWN_NEIGHBOUR)
    if busiest_task is not None and not neighbours and not mutual and short_lived is None:
        name = _task_name(session, *busiest_task)
        evidence.append(f"{name}[{busiest_task[0]}] ran there {ran_s[busiest_task]:.2f} s")
    for pid, comm in neighbours[:1]:
        if owner := process_owner(session.details.get(str(pid), {})):
            evidence.append(f"{safe_text(comm, MAX_NAME)} is of {owner}")
    has_room = any(share > MIN_ROOM for share in spare.values())
    hint = ""
    if limit == "cpuset" and spare:
        hint = f"a cpuset of more CPUs than {ranges(allowed)}: cpuset.cpus, docker --cpuset-cpus"
    elif limit == "mask" and spare and (has_room or mutual or not neighbours):
        hint = f"taskset -acp {ranges({*allowed, *spare})} {min(stuck)}"
    elif neighbours:
        hint = remedy_against(session, *neighbours[0])
    elif short_lived is not None:
        hint = f"chrt --idle --pid 0 {short_lived.pid}, whose later children inherit it"
    elif mutual and not has_room:
        usable = allowed.intersection(session.topology[row].cpu for row in session.shown)
        hint = f"no more than {count_noun(len(usable), 'thread')} at a time, one for each CPU"
        if limit:
            hint = f"a {limit} of more CPUs, or no more than {count_noun(len(usable), 'thread')}"
    belief = confidence(*WAIT_CAUSE, counted=short_lived is None) if awaited_tasks else "unknown"
    preposition = "for" if mutual else "behind"
    return _WaitReason(culprit, awaited_tasks, evidence, neighbours, preposition, hint, belief)


def _group_key(session: Session, pid: int, comm: str) -> tuple[str, ...]:
    """Returns a task's group: its name, user, control group and parent, '' where unknown. Tasks
    that only share the name are other programs."""
    details = session.details.get(str(pid), {})
    keys = "user", "group", "parent"
    return _task_name(session, pid, comm), *(str(details.get(key, "")) for key in keys)


def _task_name(session: Session, pid: int, comm: str) -> str:
    """Returns the name of a task; for threads of QEMU, that of their VM."""
    command = session.details.get(str(pid), {}).get("command")
    if isinstance(command, str) and (match := _VM_PATTERN.match(command)):
        return f"VM {safe_text(match[1], MAX_NAME)}"
    return safe_text(comm, MAX_NAME)


def _kernel_cause(session: Session, pid: int, comm: str) -> str:
    """Returns the cause of a kernel thread's work; '' for a program."""
    if "command" in session.details.get(str(pid), {}):
        return ""
    return next((cause for name, cause in KERNEL_THREADS.items() if comm.startswith(name)), "")


def remedy_against(session: Session, pid: int, comm: str) -> str:
    """Returns the remedy against a process or kernel thread for which other tasks wait."""
    cause = _kernel_cause(session, pid, comm)
    return cause_of(cause).remedy if cause else f"chrt --idle --all-tasks --pid 0 {pid}"


@dataclass(frozen=True)
class ShortLivedProcesses:
    """Processes of one parent that started and ended between two scans of tasks."""

    pid: int
    """PID of their parent."""
    parent: str
    child_names: str
    run_s: float


def _short_lived_processes(
    session: Session, tasks: Tasks, cpus: Sequence[int], excluded_pids: Collection[int],
    min_run_s: float,
) -> ShortLivedProcesses | None:  # fmt: skip
    """Returns the processes of one parent that ran most between scans and may run on these CPUs;
    None if none ran for `min_run_s`."""
    online = {row.cpu for row in session.topology if row.online}
    by_parent: dict[int, dict[str, TaskTimes]] = {}
    for (pid, child, cpu), task in tasks.items():
        if cpu == UNKNOWN_CPU and pid not in excluded_pids:
            mask = _parse_cpu_list(session.details.get(str(pid), {}).get("affinity"), online)
            if not mask or not mask.isdisjoint(cpus):
                by_parent.setdefault(pid, {})[child] = task
    run_s = {pid: sum(task.run_s for task in parts.values()) for pid, parts in by_parent.items()}
    worst = max(run_s, key=lambda pid: run_s[pid], default=0)
    if not run_s or run_s[worst] < min_run_s:
        return None
    parts = by_parent[worst]
    child = max((name for name in parts if name), key=lambda name: parts[name].run_s, default="")
    comm = next(iter(parts.values())).comm
    children = f"short-lived {safe_text(child, MAX_NAME)}" if child else "short-lived children"
    parent = f"{safe_text(comm, MAX_NAME)}[{worst}]"
    return ShortLivedProcesses(worst, parent, children, run_s[worst])


def _named_neighbours(
    tasks: Tasks, cpu: int, neighbours: Sequence[tuple[int, str]], pids: Collection[int]
) -> list[str]:
    """Returns the names of two tasks that share a CPU about equally; [] if there are more, or if
    one waits much more than the other or hardly at all."""
    both = [(pid, comm, task) for (pid, comm, task_cpu), task in tasks.items()
            if task_cpu == cpu and (pid in pids or (pid, comm) in neighbours)]  # fmt: skip
    if len(both) != 2 or len(pids) + len(neighbours) != 2:
        return []
    shares = [task.wait_s / task.wanted_s if task.wanted_s else 0.0 for _, _, task in both]
    if abs(shares[0] - shares[1]) > MAX_WAIT_DIFFERENCE or min(shares) < MIN_WAIT_SHARE:
        return []
    return sorted(f"{safe_text(comm, MAX_NAME)}[{pid}]" for pid, comm, _ in both)


def lost_percent(lost_s: float, wanted_s: float) -> str:
    return f"{100 * lost_s / wanted_s if wanted_s else 0:.0f} %"


def victim_share(lost_s: float, wanted_s: float, span_s: float) -> float:
    """Returns the share of their own time that tasks lost; 0 if they needed little CPU time."""
    return lost_s / wanted_s if wanted_s >= max(1.0, MIN_DEMAND_CPUS * span_s) else 0.0


def _without_quotas(run_times: RunTimes, times: Mapping[Any, TaskTimes]) -> dict[Any, TaskTimes]:
    rest = dict(times)
    for throttled in run_times.throttled_tasks(times):
        for key in throttled.keys:
            rest[key] = _with_wait(times[key], times[key].wait_s * (1 - throttled.share))
            rest[key].longest_s = 0.0
    return rest


def _with_wait(task: TaskTimes, wait_s: float) -> TaskTimes:
    rest_s = task.wanted_s - task.wait_s + wait_s
    part = rest_s / task.wanted_s if task.wanted_s > 0 else 0.0
    by_cpu = {cpu: seconds * part for cpu, seconds in task.by_cpu.items()}
    return replace(task, wait_s=wait_s, by_cpu=by_cpu)


def _sum_times(times: Iterable[TaskTimes], comm: str = "") -> TaskTimes:
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


def run_times_of_others(
    tasks: Tasks, cpus: Sequence[int], excluded_pids: Collection[int]
) -> dict[tuple[int, str], float]:
    """Returns the seconds that processes outside `excluded_pids` ran on these CPUs, by PID and
    name."""
    ran_s: dict[tuple[int, str], float] = {}
    for (pid, comm, cpu), task_times in tasks.items():
        if cpu in cpus and pid not in excluded_pids:
            ran_s[pid, comm] = ran_s.get((pid, comm), 0.0) + task_times.run_s
    return ran_s


def _idle_shares(
    session: Session, whole: Interval, waiting_cpus: Collection[int]
) -> dict[int, float]:
    """Returns the idle share of each CPU outside `waiting_cpus` with room for more work, idlest
    first."""
    util = whole.values["util"]
    idle = {session.topology[row].cpu: 1 - float(util[row]) for row in session.shown
            if session.online[row] and session.topology[row].cpu not in waiting_cpus}  # fmt: skip
    return {cpu: idle[cpu] for cpu in sorted(idle, key=lambda cpu: -idle[cpu])
            if idle[cpu] >= MIN_IDLE}  # fmt: skip


def _allowed_cpus(session: Session, pids: Iterable[int]) -> tuple[str, set[int]]:
    """Returns how these processes are restricted to some CPUs ("mask" or "cpuset"; '' if they are
    not, or if it is unknown), and the CPUs that they may use."""
    online = {row.cpu for row in session.topology if row.online}
    allowed_cpus: set[int] = set()
    by_cpuset = True
    for pid in pids:
        details = session.details.get(str(pid), {})
        mask, cpuset = (_parse_cpu_list(details.get(key), online) for key in ("affinity", "cpuset"))
        if not mask:
            continue  # only the processes that ran most are described
        allowed_cpus |= mask
        by_cpuset &= bool(cpuset) and mask >= cpuset
    if not allowed_cpus or allowed_cpus == online:
        return "", online
    return "cpuset" if by_cpuset else "mask", allowed_cpus


def _parse_cpu_list(text: object, online: set[int]) -> set[int]:
    """Parses a list of CPUs such as 0-3,8. Returns the online ones; an empty set for other text."""
    bounds = re.findall(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text) if isinstance(text, str) else []
    spans = [(int(first), int(last or first)) for first, last in bounds]
    return {cpu for cpu in online if any(first <= cpu <= last for first, last in spans)}
