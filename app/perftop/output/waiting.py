"""Explains waits for a CPU: which tasks waited most, which tasks ran on their CPUs meanwhile, and
whether an affinity mask or a cpuset kept the waiting tasks off other CPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
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
from perftop.model.confidence import Confidence, TaskOnCpu, confidence, evidence_json
from perftop.model.control_groups import (
    allowed_cpus,
    has_only_id,
    parse_cpu_list,
    process_owner,
)
from perftop.model.kinds import cause_of
from perftop.output.report import MAX_CAUSES, MIN_VICTIM_SHARE, Finding, Report
from perftop.output.sentences import MAX_SENTENCE, MAX_SHORT_CPUS, cpus_text, short_cpus_text
from perftop.session.interval import Interval
from perftop.session.losses import WAIT_CAUSE
from perftop.session.session import Session
from perftop.session.task_times import (
    NO_TIMES,
    PERFTOP_NAMES,
    UNKNOWN_CPU,
    RunTimes,
    TaskTimes,
    sum_times,
)

MAX_NAME_LENGTH, MAX_STATE = 15, 40
MIN_WAIT_SHARE = 0.05
"""Minimum share of a task's running and waiting time for which it waited, to count as waiting."""
MIN_BLAME_SHARE = 0.1
"""Minimum time that a task must have run on the CPUs of the waiting tasks, as a share of their
waiting time, to be named."""
MIN_NAMED_SHARE = 0.6
"""Minimum share of all other tasks' running time for a task to be named alone as the cause, and for
some tasks to be counted as the cause. For a group's own tasks: a share of their waiting time."""
MIN_LEADER_SHARE = 0.3
"""Minimum running time of one of the other tasks, as a share of the time of all, to be named."""
MIN_CROWDED_CPUS = 1.05
"""Minimum demand in CPUs of a group's tasks on one CPU that proves that they compete. Tasks with
less demand may have run one after the other."""
MIN_OTHERS_FACTOR = 1.1
"""Minimum waiting time of all tasks, as a multiple of the group's, for other tasks to be said to
wait, too."""
MIN_GROUP_RUN_SHARE = 0.25
"""Minimum running time of a group's own tasks, as a share of their waiting time, for them to have
waited for each other."""
MAX_WAIT_DIFFERENCE = 0.1
"""Maximum difference between the waiting shares of two tasks that are said to wait equally."""
MIN_TRUNCATED_SHARE = 0.25
"""Minimum share of the time in which some tasks on a CPU were not sampled, for the waiting time to
be reported as a lower bound."""
MIN_DEMAND_CPUS = 0.1
"""Minimum demand of a group in CPUs for its lost share to be reported."""
MIN_FREE_SHARE, MIN_IDLE_SHARE = 0.5, 0.1
"""Minimum idle share of a CPU with room for one more task: for one that always runs
(MIN_FREE_SHARE), and for one that runs at times (MIN_IDLE_SHARE)."""
MIN_EXPLAINED_SHARE = 0.5
"""Minimum running time of other tasks, as a share of the waiting time, to be the cause of the wait.
If the scanned tasks ran for less, processes that ended between two scans are considered."""
KERNEL_THREADS = {
    "ksoftirqd/": "softirq", "irq/": "irq", "kswapd": "reclaim", "kcompactd": "compaction",
    "khugepaged": "compaction", "idle_inject/": "idle-injection", "kidle_inj": "idle-injection",
}  # fmt: skip
"""The cause of the work that kernel threads do for other tasks, by prefix of their names."""
MIN_LONGEST_WAIT_S = 0.1
"""Minimum time in s of a single wait that is reported."""
MAX_IDLE_EXIT_S, MIN_IDLE_EXIT_SHARE = 1e-3, 0.25
"""Maximum mean wait in s, and minimum idle share of the CPUs, for waits that are due to idle
states. The deepest states of servers take up to 0.3 ms to leave."""
_VM_PATTERN = re.compile(r"\S*(?:qemu|kvm)\S* (?:.* )?-name (?:guest=)?([^\s,]+)")
"""Matches the command line of QEMU, with the name of the VM."""
IDLE_PRIORITY = "SCHED_IDLE"
"""Low priority of a process that runs only if no other one is ready, as in its details."""
VM_THREAD = "thread"
"""Noun for the tasks of a VM. Their waits are steal in the guest."""
UNKNOWN_NEIGHBOUR = "what ran there is unknown"
OWN_TASKS = "each other"
"""Used for the waiting tasks themselves in the list of tasks that they waited for."""


Tasks = Mapping[tuple[int, str, int], TaskTimes]
"""Run and wait times of tasks by PID, name and CPU."""


@dataclass(frozen=True)
class _Waiters:
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


@dataclass(frozen=True)
class _WaitReason:
    culprit: str
    """The task or resource that they waited for, for use inside a sentence."""
    awaited_tasks: list[str]
    """The tasks that the group waited for, as text; empty if they are unknown."""
    awaited_summary: str
    """These tasks in few words, for a sentence without room for all."""
    evidence: list[str]
    neighbours: list[tuple[int, str]]
    """PID and name of the tasks that ran on the group's CPUs, the largest share first."""
    preposition: str
    """The preposition before the culprit in a sentence: `behind` other tasks, else `for`."""
    hint: str
    confidence: Confidence


def waiting_finding(report: Report, finding: Finding) -> Finding | None:
    """Returns the finding about waits for a CPU, with the tasks that waited most: those of the
    watched job or, if there is none, a group of tasks with one name. Other groups that lost at
    least MIN_VICTIM_SHARE are its `other_waits`. None if no task waited."""
    session, job, totals = report.session, report.job, report.totals
    times = totals.times
    tasks = _without_quota_waits(times, times.tasks)
    threads = _without_quota_waits(times, times.threads)
    by_cause, waited_s = totals.losses.by_cause, sum(task.wait_s for task in threads.values())
    if any(kind == "interrupt" for kind, _ in by_cause) and waited_s > 0:
        part = min(1.0, float(by_cause[WAIT_CAUSE].sum()) / waited_s)
        threads = {key: task.with_wait(part * task.wait_s) for key, task in threads.items()}
    located_tasks = {key: task for key, task in tasks.items() if key[2] != UNKNOWN_CPU}
    groups = [*islice(_find_waiters(session, job, threads, located_tasks), MAX_CAUSES)]
    findings = [
        _group_finding(report, finding, waiters, located_tasks, tasks)
        for i, waiters in enumerate(groups)
        if not i or waiters.victim_share(totals.elapsed_s) >= MIN_VICTIM_SHARE
    ]
    return replace(findings[0], other_waits=tuple(findings[1:])) if findings else None


def _group_finding(
    report: Report, finding: Finding, waiters: _Waiters, located_tasks: Tasks, tasks: Tasks
) -> Finding:
    """Returns the finding about a group of waiting tasks. Its confidence is `measured` if they
    waited for tasks that ran on the same CPUs, `inferred` if the CPUs of those tasks are unknown,
    and `unknown` if the tasks are. `located_tasks`: those of `tasks` with a known CPU."""
    session, job, times = report.session, report.job, report.totals.times
    span_s = report.totals.elapsed_s
    covered_s = span_s if job is not None else min(span_s, times.covered_s)
    reason = _find_reason(report, waiters, located_tasks, tasks, covered_s)
    total, cpus = waiters.total_times, waiters.cpus
    # A process that wants more than one CPU has several threads.
    has_threads = job is None and total.wanted_s > MIN_CROWDED_CPUS * covered_s
    is_single = len(waiters.waiting_members) == 1 and not has_threads

    full_s = max(times.truncated_s.get(cpu, 0.0) for cpu in cpus)
    is_crowded = job is None and full_s >= MIN_TRUNCATED_SHARE * covered_s
    bound_text = "at least " if is_crowded else ""
    notes = ["only a CPU's busiest tasks are sampled"] if is_crowded else []
    notes += ["steal for the guest"] if job is None and waiters.noun == VM_THREAD else []
    pronoun = "it" if is_single else "they"
    evidence = [*_wait_evidence(waiters, pronoun, bound_text, notes), *reason.evidence]
    all_times, more = sum_times(located_tasks.values()), ""
    if job is None and all_times.wait_s > MIN_OTHERS_FACTOR * total.wait_s:
        evidence.append(f"all tasks {all_times.wait_s:.2f} of {all_times.wanted_s:.1f} s")
        more = "; others too"

    subject = _waiters_text(waiters, with_threads=job is not None)
    if has_threads and len(waiters.members) == 1:
        subject = f"threads of {subject}"
    has_namesake = waiters.name in {comm for _, comm in reason.neighbours}
    if job is None and len(waiters.members) == 1 and has_namesake:
        subject += f"[{min(waiters.pids)}]"
    verb = "waited" if report.past_tense else "waits" if is_single else "wait"
    places = [short_cpus_text(session.topology, cpus, n) for n in (MAX_SENTENCE, MAX_SHORT_CPUS)]
    is_everywhere = len(cpus) == len(session.selected)
    ends = ["for a CPU"] if is_everywhere else [f"for {place}" for place in places]
    if reason.awaited_tasks:
        on_cpus = [""] if is_everywhere else [f" on {place}" for place in places]
        awaited = join_words(reason.awaited_tasks), reason.awaited_summary
        ends = [f"{reason.preposition} {''.join(parts)}" for parts in product(awaited, on_cpus)]
    is_own = OWN_TASKS in reason.awaited_tasks
    victim = [TaskOnCpu(min(waiters.pids), waiters.name, cpus[0])] if is_own else []
    neighbours = [
        TaskOnCpu(*task, max(cpus, key=lambda cpu: located_tasks.get((*task, cpu), NO_TIMES).run_s))
        for task in reason.neighbours
    ]
    details = finding.details | evidence_json({"who": neighbours})
    if not neighbours:
        del details["who"]  # it would be who ran in one episode
    share = lost_percent(total.wait_s, total.wanted_s)
    lost_text = f"{bound_text}{share} of {'its' if is_single else 'their'} time"
    headlines = [f"{subject} {verb} {lost_text} {end}" for end in ends]
    pair = _equal_pair_names(located_tasks, cpus, reason.neighbours, waiters.pids)
    if job is None and pair:
        share_verb, wait_verb = ("shared", "waited") if report.past_tense else ("share", "waits")
        headlines = [
            f"{' and '.join(pair)} {share_verb} {places[0]}: each {wait_verb} {share} of its time"
        ]
    return replace(
        finding, text=f"{subject} {verb} {ends[0]}{more}",
        culprit=reason.culprit if job is not None else waiters.name, evidence=evidence,
        hint=reason.hint, cpus=cpus, confidence=reason.confidence,
        active_s=min(times.waiting_s, report.span_ns / 1e9) if job is None else finding.active_s,
        headline=next((text for text in headlines if len(text) < MAX_SENTENCE), headlines[-1]),
        victim_share=waiters.victim_share(span_s),
        waiting_tasks=frozenset(waiters.members) if job is None else frozenset(),
        culprit_tasks=(*victim, *neighbours), details=details,
        awaited=f"{reason.preposition} {reason.awaited_summary}" if reason.awaited_tasks else "",
    )  # fmt: skip


def _waiters_text(waiters: _Waiters, *, with_threads: bool) -> str:
    """Returns the waiting tasks as the subject of a sentence, such as "2 of 4 threads of lmp"."""
    waiting, members, name = waiters.waiting_members, waiters.members, waiters.name
    by_wait = sorted(waiting.values(), key=lambda task: -task.wait_s)
    names = (safe_text(task.comm, MAX_NAME_LENGTH) for task in by_wait if task.comm)
    comms = [*dict.fromkeys(names)]
    if with_threads and len(comms) > 1:
        name = f"{name} ({', '.join(comms[:2])})"
    several_text = f"{count_noun(len(members), waiters.noun)} of {name}"
    waiters_text = several_text if len(members) > 1 else waiters.name
    return f"{len(waiting)} of {waiters_text}" if len(waiting) < len(members) else waiters_text


def _wait_evidence(waiters: _Waiters, pronoun: str, bound_text: str, notes: list[str]) -> list[str]:
    """Returns evidence of how long the tasks waited. `pronoun`: stands for them. `notes`:
    explanations of the sum."""
    total, waiting = waiters.total_times, waiters.waiting_members
    digits = 1 if total.wanted_s >= 1 else 2
    wait_text = f"{total.wait_s:.2f} of {total.wanted_s:.{digits}f} s"
    evidence = [f"{pronoun} waited {bound_text}{wait_text}", *notes]
    if total.longest_s >= MIN_LONGEST_WAIT_S:
        evidence.append(f"once for {short_duration(total.longest_s)} or longer")
    if len(waiting) > 1:
        shares = (task.wait_s / task.wanted_s for task in waiting.values() if task.wanted_s > 0)
        evidence.append(f"one of them {whole_percent(max(shares))} of its time")
    return evidence


def _find_waiters(
    session: Session, job: str | None, threads: Mapping[Any, TaskTimes], tasks: Tasks
) -> Iterator[_Waiters]:
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
        details, name = session.details.get(str(pid), {}), _task_name(session, pid, comm)
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
) -> Iterator[_Waiters]:
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
    yield _Waiters(name, noun, pids, members, waiting, total, cpus)


@dataclass(frozen=True)
class _Rivals:
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


def _find_rivals(
    session: Session, waiters: _Waiters, located_tasks: Tasks, all_tasks: Tasks, covered_s: float
) -> _Rivals:
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
    return _Rivals(
        ran_s, explains_wait, neighbours, members_compete, members_explain_wait, short_lived
    )


def _find_reason(
    report: Report, waiters: _Waiters, located_tasks: Tasks, all_tasks: Tasks, covered_s: float
) -> _WaitReason:
    """Returns the reason for the group's wait (tasks on its CPUs, its own members, processes that
    ended between two scans, or idle states), and the mask or cpuset that kept it off other CPUs.
    `located_tasks`: those of `all_tasks` with a known CPU. `covered_s`: span of these records."""
    session, interval = report.session, report.interval
    rivals = _find_rivals(session, waiters, located_tasks, all_tasks, covered_s)
    is_known = rivals.members_compete or rivals.explains_wait or rivals.short_lived is not None
    if not is_known and (reason := _idle_reason(session, waiters, interval)) is not None:
        return reason
    waiting_pids = {key[0] if isinstance(key, tuple) else key for key in waiters.waiting_members}
    online = {row.cpu for row in session.topology if row.online}
    limit, allowed = allowed_cpus(session.details, waiting_pids, online)
    excluded, util = allowed if limit else {*waiters.cpus}, interval.values["util"]
    rows = {session.topology[row].cpu: row for row in session.selected if session.online[row]}
    idle = [(1 - float(util[row]), cpu) for cpu, row in rows.items() if cpu not in excluded]
    idle.sort(key=lambda pair: -pair[0])
    idle_shares = {cpu: share for share, cpu in idle if share >= MIN_IDLE_SHARE}
    """Idle shares of the other CPUs with room for work, the idlest first."""
    priority = _low_priority(session, waiting_pids)
    evidence = [f"low priority: {priority}"] if priority else []
    if limit:
        count = sum(row.online for row in session.topology)
        evidence.append(f"may use {len(allowed)} of {count_noun(count, 'CPU')} ({limit})")
        evidence += [
            f"CPU {cpu} is {whole_percent(idle_shares[cpu])} idle" for cpu in [*idle_shares][:1]
        ]
    culprit, awaited_tasks = _awaited_tasks(session, waiters, rivals)
    if rivals.short_lived is not None:
        parent, ran_s = rivals.short_lived.parent, rivals.short_lived.run_s
        evidence.append(f"children of {parent} ran {ran_s:.2f} s")
    elif not rivals.neighbours and not rivals.members_compete:
        if not awaited_tasks:
            evidence.append(f"most of {UNKNOWN_NEIGHBOUR}" if rivals.ran_s else UNKNOWN_NEIGHBOUR)
        for (pid, comm), ran_s in [*rivals.ran_s.items()][:1]:
            evidence.append(f"{_task_name(session, pid, comm)}[{pid}] ran there {ran_s:.2f} s")
    for pid, comm in rivals.neighbours[:1]:
        owner = process_owner(session.details.get(str(pid), {}))
        if owner and not has_only_id(owner):
            evidence.append(f"{safe_text(comm, MAX_NAME_LENGTH)} is of {owner}")
    counted = rivals.short_lived is None
    cause_confidence = confidence(*WAIT_CAUSE, counted=counted) if awaited_tasks else "unknown"
    awaited_summary = next(iter(awaited_tasks), "")
    if rivals.members_compete and not rivals.members_explain_wait:
        awaited_summary += " and others"
    return _WaitReason(
        culprit, awaited_tasks, awaited_summary, evidence, rivals.neighbours,
        "for" if rivals.members_compete else "behind",
        _wait_remedy(session, rivals, limit, allowed, idle_shares, waiting_pids), cause_confidence,
    )  # fmt: skip


def _idle_reason(session: Session, waiters: _Waiters, interval: Interval) -> _WaitReason | None:
    """Returns idle states as the reason if the waits are as short as the time that CPUs need to
    leave these states, and the CPUs were often idle."""
    cpus, total = waiters.cpus, waiters.total_times
    mean_s = total.wait_s / total.switches if total.switches else inf
    rows = [row for row in session.selected if session.topology[row].cpu in cpus]
    idle = 1 - interval.values.mean("util", rows)
    is_short = mean_s <= MAX_IDLE_EXIT_S and total.wait_s >= MIN_WAIT_SHARE * total.wanted_s
    if not (is_short and idle >= MIN_IDLE_EXIT_SHARE):
        return None
    evidence = [
        f"{total.switches} wake-ups, {brief_duration(mean_s)} each",
        f"{cpus_text(session.topology, cpus)} {whole_percent(idle)} idle",
    ]
    if deepest := session.hello.settings.get("deepest_idle_state"):
        evidence.append(f"deepest state: {safe_text(deepest, MAX_STATE)} by its driver")
    return _WaitReason(
        cause_of("idle-exit").name, [state := "the end of idle states"], state, evidence, [], "for",
        cause_of("idle-exit").remedy, confidence(*WAIT_CAUSE, counted=False),
    )  # fmt: skip


def _awaited_tasks(session: Session, waiters: _Waiters, rivals: _Rivals) -> tuple[str, list[str]]:
    """Returns what the group waited for in a few words, and the names of the tasks that it waited
    for; [] if they are unknown."""
    if rivals.short_lived is not None:
        culprit = rivals.short_lived.child_names
        return culprit, [f"{culprit} of {rivals.short_lived.parent}"]
    culprit = "other tasks" if len(waiters.members) == 1 else "waiting for a CPU"
    awaited_tasks: list[str] = []
    own_names = {waiters.name, *(times.comm for times in waiters.members.values())}
    if rivals.members_compete:
        culprit, awaited_tasks = "its own threads", [OWN_TASKS]
    for pid, comm in rivals.neighbours[:1]:
        name, more_count = _task_name(session, pid, comm), len(rivals.neighbours) - 1
        named_s = [rivals.ran_s[task] for task in rivals.neighbours]
        min_s = MIN_NAMED_SHARE * sum(rivals.ran_s.values())
        is_sole, others = named_s[0] >= min_s, f"{more_count} more" if more_count else ""
        others = others if sum(named_s) >= min_s else "other tasks"
        if rivals.explains_wait or not rivals.members_compete:
            culprit = cause_of(cause).name if (cause := _kernel_cause(session, pid, comm)) else name
            culprit += f"[{pid}]" if culprit in own_names else ""
            culprit += "" if is_sole else f" and {others}"
        names = [f"{name}[{pid}]", *([others] if others else [])]
        awaited_tasks += names if rivals.members_compete else [join_words(names)]
    if rivals.members_compete and not (rivals.members_explain_wait or rivals.explains_wait):
        culprit += " and other tasks"  # too short-lived to be sampled
        awaited_tasks += [] if rivals.neighbours else ["other tasks"]
    if rivals.explains_wait and not rivals.neighbours:  # each ran too little to be named
        return "many other tasks", [*awaited_tasks, f"{len(rivals.ran_s)} other tasks"]
    return culprit, awaited_tasks


def _wait_remedy(
    session: Session, rivals: _Rivals, limit: str, allowed: set[int],
    spare: Mapping[int, float], waiting_pids: Collection[int],
) -> str:  # fmt: skip
    """Returns a remedy; '' if none is known. `limit`: "mask" or "cpuset" if it restricts the
    processes `waiting_pids` to the CPUs `allowed`, else ''. `spare`: idle shares of other CPUs."""
    has_room = any(share > MIN_FREE_SHARE for share in spare.values())
    if limit == "cpuset" and spare:
        return f"a cpuset of more CPUs than {ranges(allowed)}: cpuset.cpus, docker --cpuset-cpus"
    if limit == "mask" and spare and (has_room or rivals.members_compete or not rivals.neighbours):
        return f"taskset -acp {ranges({*allowed, *spare})} {min(waiting_pids)}"
    if rivals.short_lived is not None:
        return f"chrt --idle --pid 0 {rivals.short_lived.pid}, whose later children inherit it"
    if rivals.neighbours and (priority := _low_priority(session, waiting_pids)):
        command = "chrt --other --pid 0" if priority == IDLE_PRIORITY else "renice 0 -p"
        return f"{command} {min(waiting_pids)}"
    if rivals.neighbours:
        return remedy_against(session, *rivals.neighbours[0])
    if rivals.members_compete and not (rivals.explains_wait or has_room):
        usable = allowed.intersection(session.topology[row].cpu for row in session.selected)
        fewer_threads = f"no more than {count_noun(len(usable), 'thread')}"
        if limit:
            return f"a {limit} of more CPUs, or {fewer_threads}"
        return f"{fewer_threads} at a time, one for each CPU"
    return ""


def _task_name(session: Session, pid: int, comm: str) -> str:
    """Returns the name of a task; for threads of QEMU, the name of their VM."""
    command = session.details.get(str(pid), {}).get("command")
    if isinstance(command, str) and (match := _VM_PATTERN.match(command)):
        return f"VM {safe_text(match[1], MAX_NAME_LENGTH)}"
    return safe_text(comm, MAX_NAME_LENGTH)


def _kernel_cause(session: Session, pid: int, comm: str) -> str:
    """Returns the cause of a kernel thread's work; '' for a program."""
    if "command" in session.details.get(str(pid), {}):
        return ""
    return next((cause for name, cause in KERNEL_THREADS.items() if comm.startswith(name)), "")


def _low_priority(session: Session, pids: Collection[int]) -> str:
    """Returns the low priority of the first of these processes, such as "nice 19"; '' if none."""
    text = session.details.get(str(min(pids)), {}).get("priority")
    return safe_text(text, MAX_NAME_LENGTH) if isinstance(text, str) else ""


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


def _equal_pair_names(
    tasks: Tasks, cpus: list[int], neighbours: Sequence[tuple[int, str]], pids: Collection[int]
) -> list[str]:
    """Returns the names of two tasks that share one CPU about equally; [] if there are more, or if
    one waits much more than the other, hardly at all, or mostly while a third task runs."""
    pair = [(pid, comm, task) for (pid, comm, task_cpu), task in tasks.items()
            if [task_cpu] == cpus and (pid in pids or (pid, comm) in neighbours)]  # fmt: skip
    if len(pair) != 2 or len(pids) + len(neighbours) != 2:
        return []
    times = [task for _, _, task in pair]
    shares = [task.wait_s / task.wanted_s if task.wanted_s else 0.0 for task in times]
    if abs(shares[0] - shares[1]) > MAX_WAIT_DIFFERENCE or min(shares) < MIN_WAIT_SHARE:
        return []
    if any(b.run_s < MIN_NAMED_SHARE * a.wait_s for a, b in (times, times[::-1])):
        return []
    return sorted(f"{safe_text(comm, MAX_NAME_LENGTH)}[{pid}]" for pid, comm, _ in pair)


def lost_percent(lost_s: float, wanted_s: float) -> str:
    return whole_percent(lost_s / wanted_s if wanted_s else 0.0)


def victim_share(lost_s: float, wanted_s: float, span_s: float) -> float:
    """Returns the share of their own time that tasks lost; 0 if they needed little CPU time."""
    return lost_s / wanted_s if wanted_s >= max(1.0, MIN_DEMAND_CPUS * span_s) else 0.0


def _without_quota_waits(
    run_times: RunTimes, times: Mapping[Any, TaskTimes]
) -> dict[Any, TaskTimes]:
    """Returns the times without the waits that a CPU quota caused."""
    remaining = dict(times)
    for throttled in run_times.throttled_tasks(times):
        for key in throttled.keys:
            remaining[key] = times[key].with_wait(times[key].wait_s * (1 - throttled.share))
            remaining[key].longest_s = 0.0
    return remaining


def other_run_times(
    tasks: Tasks, cpus: Sequence[int], excluded_pids: Collection[int]
) -> dict[tuple[int, str], float]:
    """Returns the seconds that processes not in `excluded_pids` ran on these CPUs."""
    ran_s: dict[tuple[int, str], float] = {}
    for (pid, comm, cpu), task_times in tasks.items():
        if cpu in cpus and pid not in excluded_pids:
            ran_s[pid, comm] = ran_s.get((pid, comm), 0.0) + task_times.run_s
    return ran_s
