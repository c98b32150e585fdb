"""Explains waits for a CPU: which tasks waited most, which tasks ran on their CPUs meanwhile, and
whether an affinity mask or a cpuset kept the waiting tasks off other CPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    process_owner,
)
from perftop.model.kinds import cause_of
from perftop.output.report import MAX_CAUSES, MIN_VICTIM_SHARE, Finding, Report
from perftop.output.sentences import MAX_SENTENCE, MAX_SHORT_CPUS, cpus_text, short_cpus_text
from perftop.output.waiters import (
    MAX_NAME_LENGTH,
    MIN_CROWDED_CPUS,
    MIN_NAMED_SHARE,
    MIN_WAIT_SHARE,
    VM_THREAD,
    Rivals,
    Tasks,
    Waiters,
    find_rivals,
    find_waiters,
    task_name,
)
from perftop.session.interval import Interval
from perftop.session.losses import WAIT_CAUSE
from perftop.session.session import Session
from perftop.session.task_times import (
    NO_TIMES,
    UNKNOWN_CPU,
    RunTimes,
    TaskTimes,
    sum_times,
)

MAX_STATE = 40
MIN_OTHERS_FACTOR = 1.1
"""Minimum waiting time of all tasks, as a multiple of the group's, for other tasks to be said to
wait, too."""
MAX_WAIT_DIFFERENCE = 0.1
"""Maximum difference between the waiting shares of two tasks that are said to wait equally."""
MIN_TRUNCATED_SHARE = 0.25
"""Minimum share of the time in which some tasks on a CPU were not sampled, for the waiting time to
be reported as a lower bound."""
MIN_FREE_SHARE, MIN_IDLE_SHARE = 0.5, 0.1
"""Minimum idle share of a CPU with room for one more task: for one that always runs
(MIN_FREE_SHARE), and for one that runs at times (MIN_IDLE_SHARE)."""
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
IDLE_PRIORITY = "SCHED_IDLE"
"""Low priority of a process that runs only if no other one is ready, as in its details."""
UNKNOWN_NEIGHBOUR = "what ran there is unknown"
OWN_TASKS = "each other"
"""Used for the waiting tasks themselves in the list of tasks that they waited for."""


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
    groups = [*islice(find_waiters(session, job, threads, located_tasks), MAX_CAUSES)]
    findings = [
        _group_finding(report, finding, waiters, located_tasks, tasks)
        for i, waiters in enumerate(groups)
        if not i or waiters.victim_share(totals.elapsed_s) >= MIN_VICTIM_SHARE
    ]
    return replace(findings[0], other_waits=tuple(findings[1:])) if findings else None


def _group_finding(
    report: Report, finding: Finding, waiters: Waiters, located_tasks: Tasks, tasks: Tasks
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
    ends = _sentence_ends(session, reason, cpus)
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
        place = short_cpus_text(session.topology, cpus, MAX_SENTENCE)
        each = f"each {wait_verb} {share} of its time"
        headlines = [f"{' and '.join(pair)} {share_verb} {place}: {each}"]
    return replace(
        finding, text=f"{subject} {verb} {ends[0]}{more}",
        culprit=reason.culprit if job is not None else waiters.name, evidence=evidence,
        hint=reason.hint, cpus=cpus, confidence=reason.confidence,
        active_s=_active_s(report, finding, waiters),
        headline=next((text for text in headlines if len(text) < MAX_SENTENCE), headlines[-1]),
        victim_share=waiters.victim_share(span_s),
        waiting_tasks=frozenset(waiters.members) if job is None else frozenset(),
        culprit_tasks=(*victim, *neighbours), details=details,
        awaited=f"{reason.preposition} {reason.awaited_summary}" if reason.awaited_tasks else "",
    )  # fmt: skip


def _active_s(report: Report, finding: Finding, waiters: Waiters) -> float | None:
    """Returns the seconds for which the tasks waited or, of a job, for which its episodes lasted:
    at least the wait of any of its threads, which begins before the episode. None if unknown."""
    if report.job is None:
        return min(report.totals.times.waiting_s, report.span_ns / 1e9)
    if finding.active_s is None:
        return None
    return max(finding.active_s, *(task.wait_s for task in waiters.waiting_members.values()))


def _sentence_ends(session: Session, reason: _WaitReason, cpus: Sequence[int]) -> list[str]:
    """Returns what tasks wait for, and on which CPUs, for the end of a sentence: all of it, then
    shortened."""
    is_everywhere = len(cpus) == len(session.selected)
    places = [short_cpus_text(session.topology, cpus, n) for n in (MAX_SENTENCE, MAX_SHORT_CPUS)]
    if not reason.awaited_tasks:
        return ["for a CPU"] if is_everywhere else [f"for {place}" for place in places]
    on_cpus = [""] if is_everywhere else [f" on {place}" for place in places]
    awaited = join_words(reason.awaited_tasks), reason.awaited_summary
    return [f"{reason.preposition} {''.join(parts)}" for parts in product(awaited, on_cpus)]


def _waiters_text(waiters: Waiters, *, with_threads: bool) -> str:
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


def _wait_evidence(waiters: Waiters, pronoun: str, bound_text: str, notes: list[str]) -> list[str]:
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


def _find_reason(
    report: Report, waiters: Waiters, located_tasks: Tasks, all_tasks: Tasks, covered_s: float
) -> _WaitReason:
    """Returns the reason for the group's wait (tasks on its CPUs, its own members, processes that
    ended between two scans, or idle states), and the mask or cpuset that kept it off other CPUs.
    `located_tasks`: those of `all_tasks` with a known CPU. `covered_s`: span of these records."""
    session, interval = report.session, report.interval
    rivals = find_rivals(session, waiters, located_tasks, all_tasks, covered_s)
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
            evidence.append(f"{task_name(session, pid, comm)}[{pid}] ran there {ran_s:.2f} s")
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


def _idle_reason(session: Session, waiters: Waiters, interval: Interval) -> _WaitReason | None:
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


def _awaited_tasks(session: Session, waiters: Waiters, rivals: Rivals) -> tuple[str, list[str]]:
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
        name, more_count = task_name(session, pid, comm), len(rivals.neighbours) - 1
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
    session: Session, rivals: Rivals, limit: str, allowed: set[int],
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
    if rivals.neighbours:
        first = rivals.neighbours[0]
        priority, has_cause = _low_priority(session, waiting_pids), _kernel_cause(session, *first)
        if has_cause or priority in {"", _low_priority(session, first[:1])}:
            return remedy_against(session, *first)
        command = "chrt --other --pid 0" if priority == IDLE_PRIORITY else "renice 0 -p"
        return f"{command} {min(waiting_pids)}"
    if rivals.members_compete and not (rivals.explains_wait or has_room):
        usable = allowed.intersection(session.topology[row].cpu for row in session.selected)
        fewer_threads = f"no more than {count_noun(len(usable), 'thread')}"
        if limit:
            return f"a {limit} of more CPUs, or {fewer_threads}"
        return f"{fewer_threads} at a time, one for each CPU"
    return ""


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
