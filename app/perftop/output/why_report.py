"""The report of `perftop why`: the causes that cost most, the tasks that other tasks waited for,
causes that were ruled out, and causes that cannot be measured here. This module only reports; the
detectors are elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import Any

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import length, many, percent, ranges, rough, safe
from perftop.model.belief import Confidence, confidence
from perftop.model.evaluation import TICK_S
from perftop.model.kinds import CAPS, KINDS, Cap, Episode, cause_of
from perftop.model.machine_totals import MEMORY, OF_BEST
from perftop.model.tasks import MAX_TASKS_PER_CPU
from perftop.output.sentences import (
    MAX_SENTENCE,
    as_clause,
    culprits,
    evidence_json,
    losers,
    pieces,
    sentence,
    short_place_text,
    text,
)
from perftop.output.sentences import subject as cause_subject
from perftop.session.interval import Interval
from perftop.session.losses import (
    QUOTA,
    STEAL,
    STOPPED,
    UNEXPLAINED,
    WAIT_CAUSE,
    Cause,
    LossSums,
    Totals,
)
from perftop.session.missing import lasting_reasons, names_by_reason, why_unknown
from perftop.session.session import Session
from perftop.session.task_times import STOPPED_BY, JobTime, RunTimes, TaskTimes

MIN_SHARE = 0.01
"""Minimum share of the time that a cause must cost to be named."""
MIN_VICTIM_SHARE = 0.05
"""Share of their own time that tasks must lose for the cause to be named even if it costs less than
MIN_SHARE of the whole."""
MAX_CAUSES = 4
"""Maximum number of causes that are named; further causes are only counted."""
WHOLE = 0.97
"""Minimum share of the observed time from which a cause is reported as active all the time."""
STILL_NS = 1_000_000_000
"""A cause that was last active less than this time in ns before the end counts as still active."""
SPARE_UTIL = 0.5
"""Utilisation below which a governor that follows demand may choose a low clock."""
MAX_STEAL_CPUS = 3
"""Maximum number of CPUs whose stolen time is listed per CPU."""
MAX_NAME = 15
MAX_OWNER = 40


@dataclass(frozen=True)
class Finding:
    cause: Cause
    share: float
    lost_s: float
    text: str
    by: str
    """The cause in a few words, for use inside a sentence."""
    cpus: list[int]
    for_s: float | None
    """Seconds of the observed time in which the cause was active; None if unknown."""
    running: bool
    confidence: Confidence
    evidence: list[str]
    hint: str
    """A remedy; '' if none is known."""
    details: dict[str, Any] = field(default_factory=dict)
    """The evidence, in the form of an episode's JSON line."""
    headline: str = ""
    """Who loses how much to what and where, without a full stop; '' if the answer must state the
    share of the whole."""
    victim_share: float = 0.0
    """Share of their own time that the tasks in the headline lose; 0 if they wanted little."""

    @property
    def unit(self) -> str:
        kind = KINDS.get(self.cause[0])
        return "cycles" if kind is not None and kind.of_cycles else "time"


@dataclass(frozen=True)
class Check:
    """A possible loss that was measured."""

    key: str
    looked_for: str
    """Name of the loss in the table; '' if the loss is only listed among the ruled-out ones."""
    found: str
    """The measured result as text."""
    share: float
    """Share of the time that was lost in this way."""
    brief: str
    """The result in a few words, for the list of ruled-out losses."""


@dataclass(frozen=True)
class Report:
    job: str | None
    """Name of the watched job; None if the report is about all busy CPUs."""
    sums: LossSums
    findings: list[Finding]
    """All causes of losses, the costliest first."""
    checks: list[Check]
    not_seen: list[tuple[str, str, str | None]]
    """Name, reason and fix of each loss that cannot be measured here."""
    times: RunTimes
    whole: Interval
    """The numbers of the span."""
    spent: JobTime | None
    """What the threads of the job did; None: no job is watched, or it is not known."""
    hides: str
    """A sentence on losses that may be mistaken for others because of unavailable measurements; ''
    if there are none."""
    elapsed_s: float
    samples: int
    suspect: int
    past: bool
    """Whether the span is over, so that sentences on it are in the past tense."""

    @property
    def named(self) -> list[Finding]:
        """The causes that cost at least MIN_SHARE, or whose victims lose MIN_VICTIM_SHARE."""
        return [one for one in self.findings
                if one.share >= MIN_SHARE or one.victim_share >= MIN_VICTIM_SHARE]  # fmt: skip


def report(
    session: Session, first_ns: int, name: str | None = None, *, past: bool = False,
    totals: Totals | None = None, whole: Interval | None = None,
) -> Report:  # fmt: skip
    """Returns the report on a session, or on a part of it. `first_ns`: raw time of the first frame.
    `name`: name of the command that perftop ran. `past`: true if the span is over. `totals`: sums
    of the part, whose numbers are `whole`."""
    is_whole_run = totals is None
    if totals is None:
        totals = replace(session.totals(), start_ns=first_ns)
    whole = whole or session.whole()
    sums, job = totals.losses, name or _job(session, totals.times)
    episodes = session.episodes(totals.start_ns, totals.end_ns)
    findings = []
    for cause, share in sums.shares().items():
        if share > 0:
            findings.append(_finding(session, totals, whole, cause, episodes, job, past=past))
    reasons = names_by_reason(lasting_reasons(session), lambda missing: _NAMES.get(missing.what))
    unseen = [(", ".join(what), why, fix) for (why, fix), what in reasons.items()]
    spent = totals.times.job_time()
    if not totals.times.has_waits:
        short = "too short to tell" if totals.times.wait_snapshots else ""
        why = short or "known after 3 s, if the kernel reports it"
        unseen.append(("waiting for a CPU", why, None))
    halts = session.whole().values.mean("involuntary", session.shown)
    if session.evaluator.chosen["involuntary"] and not np.isfinite(halts):
        why = why_unknown(session, session.whole(), session.shown, "involuntary")
        unseen.append(("halts", why, None))
    return Report(
        job, sums, findings,
        checks(session, totals, whole, episodes, is_whole_run=is_whole_run),
        unseen or [OWN_WAITS if spent is None else SLEEP], totals.times, whole, spent,
        _hides(session), totals.elapsed_s, totals.sample_count, totals.suspect_count, past,
    )  # fmt: skip


_NAMES = {
    "busy_hz": "clock", "ipc": "IPC", "involuntary": "halts", "turbo_ceiling_hz": "turbo ceiling",
    "steal": "steal", "tasks": "who runs", "smt": "SMT states", OF_BEST: "memory bandwidth",
}  # fmt: skip
"""By key, names of the numbers without which a cause can go undetected."""
OWN_WAITS = ("a program's own waits", "locks, disks, network are not counted", None)
SLEEP = ("why it slept", "locks, network and timers are not told apart", None)
"""Losses that no counter shows; reported if everything else was measured."""


def _hides(session: Session) -> str:
    if not session.evaluator.chosen["busy_hz"]:
        vm = session.hello.virtualisation is not None
        outside = " or a busy sibling outside" if vm else ""
        return f"A low clock{outside} would look like slow code here."
    if not session.reader.turbo.cpus.any():
        return "No turbo table is known: clocks are compared with the base clock."
    return ""


def _job(session: Session, times: RunTimes) -> str | None:
    """Returns the name of the watched job; None if no job is watched. A job that is watched by its
    PID has the name of most of its threads."""
    name = session.neighbours.watched_job.name
    if name is None or not name.isdecimal():
        return None if name is None else safe(name, MAX_NAME + 1)
    names = [one.comm for one in times.threads.values()]
    return safe(max(set(names), key=names.count), MAX_NAME + 1) if names else f"process {name}"


# --- one cause


def _finding(
    session: Session, totals: Totals, whole: Interval, cause: Cause, episodes: Sequence[Episode],
    job: str | None, *, past: bool,
) -> Finding:  # fmt: skip
    now_ns, sums, times = totals.end_ns, totals.losses, totals.times
    span_ns = now_ns - totals.start_ns
    kind, lost_s = KINDS.get(cause[0]), sums.by_cause[cause]
    causes = [cause, ("neighbour", "hypervisor")] if cause == STEAL else [cause]
    alike = [e for e in episodes if (e.kind, e.cause) in causes]
    cpus = [row.cpu for row, s in zip(session.topology, lost_s.tolist(), strict=True)
            if s > 0.05 * float(lost_s.max())]  # fmt: skip
    alike.sort(key=lambda e: -e.lost_s(now_ns))
    if cause[0] == "interrupt":  # an episode is of one CPU, where the job may not run
        alike = [e for e in alike if not {*cpus}.isdisjoint(e.cpus)]
    worst = alike[0] if alike else None
    running = not past and (
        not alike or any(e.end_ns is None or e.end_ns > now_ns - STILL_NS for e in alike)
    )
    known = alike or [Episode(cause[0], cpus, now_ns, cause=cause[1])]
    if cause[0] == "interrupt" and worst is not None:
        known = [replace(worst, cpus=cpus, depth=_mean_depth(alike, now_ns))]
    names = [job] if job else losers(session, known, whole.tasks)
    words = text(sentence(session.topology, known, names, over=not running))
    # The sentence already contains the clocks.
    drop = {"busy_hz", "ceiling_hz"} if kind is not None and kind.of_cycles else {"owner", "line"}
    shown = {} if worst is None else {k: v for k, v in worst.evidence.items() if k not in drop}
    finding = Finding(
        cause, sums.share(cause), float(lost_s.sum()), words, _by(cause, worst), cpus,
        _acted_s(alike, now_ns, span_ns), running,
        confidence(*cause) if worst is None else worst.confidence, pieces(cause[1], shown),
        _hint(session, cause, worst, cpus), {} if worst is None else evidence_json(worst.evidence),
    )  # fmt: skip
    if cause[1] == UNEXPLAINED:
        evidence = ["no limit was seen to act"]
        rows = [row for row in session.shown if session.topology[row].cpu in cpus]
        if cause[0] == "turbo-drop" and whole.values.mean("util", rows) < SPARE_UTIL:
            evidence.append("with time to spare, so the governor may have chosen this clock")
        return replace(finding, confidence="unknown", evidence=evidence)
    if cause == STEAL:
        how = confidence(*STEAL, error=TICK_S, effect=finding.lost_s)
        return replace(finding, confidence=how, evidence=[_stolen(session, lost_s, cpus, span_ns)])
    if cause == QUOTA:
        return _quota(finding, times, job, totals.elapsed_s, past=past)
    if cause == STOPPED and times.threads:
        return _stopped(finding, times, job)
    if cause == WAIT_CAUSE and (waits := queue(session, job, totals, whole, past=past)) is not None:
        for_s = finding.for_s if job else min(times.waiting_s, span_ns / 1e9)
        return replace(
            finding, text=waits.text, by=waits.by, evidence=waits.evidence, hint=waits.hint,
            cpus=waits.cpus, for_s=for_s,
            confidence=confidence(*WAIT_CAUSE) if waits.known else "unknown",
            headline=waits.headline, victim_share=waits.share,
        )  # fmt: skip
    if cause[0] == "neighbour" and worst is not None and job is None:
        return replace(finding, headline=finding.text, victim_share=worst.depth or 0.0)
    return finding


def _quota(
    finding: Finding, times: RunTimes, job: str | None, span_s: float, *, past: bool
) -> Finding:
    """Returns the finding on CPU quotas, in words of the group that lost most."""
    tasks = times.threads if job is not None else times.tasks
    throttled = times.throttled(tasks)
    if not throttled:
        return finding
    worst = throttled[0]
    quota = worst.quota
    names = Counter(tasks[key].comm for key in worst.keys)
    who = job or safe(names.most_common(1)[0][0], MAX_NAME)
    allowed = f"{quota.cpus:.3g} {'CPU' if quota.cpus == 1 else 'CPUs'}"
    owner = "" if quota.owner == who else f" of {safe(quota.owner, MAX_OWNER)}"
    whose = owner and f" (quota{owner})"
    evidence = [f"{who} stood still {worst.wait_s:.2f} of {worst.wanted_s:.1f} s"]
    if quota.period_count:
        evidence.append(
            f"throttled in {percent(quota.throttled_count / quota.period_count)} % of periods"
        )
    if len(throttled) > 1:
        evidence.append(f"{many(len(throttled) - 1, 'more group')} too")
    details = {"group": quota.group, "owner": quota.owner, "cpus": quota.cpus,
               "periods": quota.period_count, "throttled_periods": quota.throttled_count,
               "throttled_s": round(quota.throttled_s, 3)}  # fmt: skip
    return replace(
        finding, text=f"{who} may use no more than {allowed}{whose}",
        by=f"its CPU quota of {allowed}" if job is not None else who,
        evidence=evidence, confidence=confidence(*QUOTA), details=details,
        headline=f"{who} {'lost' if past else 'loses'} {_much(worst.wait_s, worst.wanted_s)} "
                 f"of its time to a quota of {allowed}{owner}",
        victim_share=_victim_share(worst.wait_s, worst.wanted_s, span_s),
    )  # fmt: skip


def _stopped(finding: Finding, times: RunTimes, job: str | None) -> Finding:
    """Returns the finding on stopped threads, in words of the one that was stopped for longest."""
    threads = times.threads
    (pid, _), worst = max(threads.items(), key=lambda pair: pair[1].stop_loss_s)
    state = max(STOPPED_BY, key=lambda letter: worst.by_state.get(letter, 0.0))
    who, by = safe(worst.comm, MAX_NAME), STOPPED_BY[state]
    who = job if job is not None and len(threads) == 1 else who
    others = sum(one.stopped_s > 0 for one in threads.values()) - 1
    seen = "D, its group is frozen" if state == "F" else state
    evidence = [f"state of {safe(worst.comm, MAX_NAME)}[{pid}]: {seen}"]
    evidence += [f"{many(others, 'more thread')} too"] if others else []
    fixes = {"T": f"kill -CONT {pid}", "t": "detach the debugger", "F": "thaw its control group"}
    text = f"{who} was stopped for {worst.stopped_s:.1f} of {worst.elapsed_s:.1f} s ({by})"
    return replace(
        finding, text=text, by=by, evidence=evidence, hint=fixes[state],
        confidence=confidence(*STOPPED), running=False, headline=text,
    )  # fmt: skip


def _mean_depth(episodes: Sequence[Episode], now_ns: int) -> float:
    """Returns the lost share in all episodes together."""
    span_s = sum(e.span_s(e.start_ns, now_ns) * len(e.cpus) for e in episodes)
    return sum(e.lost_s(now_ns) for e in episodes) / span_s if span_s > 0 else 0.0


def _by(cause: Cause, worst: Episode | None) -> str:
    kind, name = cause
    if worst is not None and (who := culprits(worst)):
        return who[0].comm
    if kind == "neighbour":
        return f"others that {'saturate memory bandwidth' if name == 'memory' else 'share cores'}"
    if name == UNEXPLAINED:
        return "halts" if kind == "involuntary-halt" else "a low clock"
    if kind == "ramp":
        return "the ramp-up of its clock"
    known = worst or Episode(kind, [], 0, cause=name)
    return as_clause(cause_of("license").subject if kind == "license" else cause_subject(known))


def _hint(session: Session, cause: Cause, worst: Episode | None, cpus: Sequence[int]) -> str:
    if worst is not None and isinstance(cap := worst.evidence.get("cap"), Cap):
        return CAPS[cap.by][1] if cap.by in CAPS else cause_of("policy").remedy
    who = culprits(worst) if worst is not None else []
    if who and cause[1] == "sibling":
        cores = [core for core in session.cores if not set(cpus).isdisjoint(core)]
        taken = {cpu for core in cores for cpu in core}
        free = [row.cpu for row in session.topology if row.online and row.cpu not in taken]
        return f"taskset -acp {ranges(free)} {who[0].pid}" if free else ""
    if who and cause[1] == "memory":
        return f"run {who[0].comm}[{who[0].pid}] at another time or on another package"
    return cause_of(cause[1]).remedy


def _stolen(session: Session, lost_s: Floats, cpus: Sequence[int], span_ns: int) -> str:
    if len(cpus) <= MAX_STEAL_CPUS:
        parts = [f"{lost_s[session.position[cpu]]:.2f} s on CPU {cpu}" for cpu in cpus]
        return f"steal {' and '.join(parts)}, in {length(span_ns)}"
    return f"steal {lost_s.sum():.2f} s on {many(len(cpus), 'CPU')}, in {length(span_ns)}"


def _acted_s(episodes: Sequence[Episode], now_ns: int, span_ns: int) -> float | None:
    """Returns the seconds of the last `span_ns` in which at least one of the episodes was active;
    None without episodes."""
    if not episodes:
        return None
    whole, until_ns = 0, now_ns - span_ns
    for episode in sorted(episodes, key=lambda e: e.start_ns):
        end_ns = now_ns if episode.end_ns is None else min(episode.end_ns, now_ns)
        whole += max(0, end_ns - max(episode.start_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return whole / 1e9


# --- waiting for a CPU

MIN_WAIT = 0.05
"""Minimum share of its time that a task must have waited to count as waiting."""
MIN_BLAME = 0.1
"""Minimum time that another task must have run on the CPUs of the waiting tasks to be named, as a
share of their waiting time."""
CROWDED = 1.05
"""Minimum demand of tasks of one group on a single CPU, in CPUs, that proves that they compete.
With less demand they may have run one after the other."""
MAX_UNEQUAL = 0.1
"""Maximum difference of the shares of their time that two tasks wait if both wait equally."""
MIN_FULL = 0.1
"""Minimum share of the time in which a CPU had more tasks than are seen, from which the waiting is
a lower bound."""
MIN_WANTED = 0.1
"""Minimum CPUs that tasks must want for their own loss to count, and not only that of the whole."""
ROOM, MIN_IDLE = 0.5, 0.1
"""Idle shares of a CPU, above which it could have run one more task, and from which some of one."""
UNKNOWN_NEIGHBOUR = "what ran there is not known"


@dataclass(frozen=True)
class Queue:
    """The group of tasks that waited most, and the tasks that they waited for."""

    text: str
    by: str
    evidence: list[str]
    hint: str
    cpus: list[int]
    known: bool
    """Whether it is known which tasks they waited for."""
    headline: str
    share: float
    """Share of their own time that they waited; 0 if they wanted little."""


Tasks = Mapping[tuple[int, str, int], TaskTimes]
"""Run and wait times of tasks by PID, name and CPU."""


def queue(
    session: Session, job: str | None, totals: Totals | None = None,
    whole: Interval | None = None, *, past: bool = False,
) -> Queue | None:  # fmt: skip
    """Returns the tasks that waited most; None if no task waited. `job`: name of the watched job;
    None selects, among all tasks, the group of tasks with one name that waited most. `totals`,
    `whole` and `past` as in `report`."""
    times = session.run_times if totals is None else totals.times
    start_ns = session.run.start_ns if totals is None else totals.start_ns
    span_s = ((session.now_ns if totals is None else totals.end_ns) - start_ns) / 1e9
    tasks = _without_quotas(times, times.tasks)
    members: Mapping[Any, TaskTimes] = _without_quotas(times, times.threads)
    name, what, pids = job or "", "thread", {pid for pid, _ in times.threads}
    if job is None:
        waits: dict[str, float] = {}
        for (_, comm, _), one in tasks.items():
            waits[comm] = waits.get(comm, 0.0) + one.wait_s
        comm = max(waits, key=lambda name: waits[name], default="")
        by_pid: dict[int, list[TaskTimes]] = {}
        for (pid, other, _), task in tasks.items():
            if other == comm:
                by_pid.setdefault(pid, []).append(task)
        pids, members = {*by_pid}, {pid: _sum(parts) for pid, parts in by_pid.items()}
        name, what = safe(comm, MAX_NAME), "task"
    waiting = {key: one for key, one in members.items() if one.wait_s > MIN_WAIT * one.wanted_s}
    if not waiting:
        most = max(members, key=lambda key: members[key].wait_s, default=None)
        if most is None or not members[most].wait_s:
            return None
        waiting = {most: members[most]}
    group = _sum(members.values())
    cpus = sorted({max(one.by_cpu, key=lambda cpu: one.by_cpu[cpu]) for one in waiting.values()})
    ran_s = run_beside(tasks, cpus, pids)
    neighbours = [who for who in sorted(ran_s, key=lambda who: -ran_s[who])
                 if ran_s[who] >= MIN_BLAME * group.wait_s]  # fmt: skip
    stuck = {key[0] if isinstance(key, tuple) else key for key in waiting}
    limit, allowed = _allocation(session, stuck)
    mutual = len(members) > 1 and any(group.by_cpu[cpu] > CROWDED * span_s for cpu in cpus)

    by = "its own threads" if mutual else "waiting for a CPU"
    if len(members) == 1:
        by = "others on its CPU"
    if neighbours and not (mutual and group.run_s > sum(ran_s.values())):
        by = safe(neighbours[0][1], MAX_NAME)
    for_whom = ["each other"] if mutual else []
    for pid, comm in neighbours[:1]:
        more = f" and {len(neighbours) - 1} more" if neighbours[1:] else ""
        for_whom.append(f"{safe(comm, MAX_NAME)}[{pid}]{more}")
    comms = [*dict.fromkeys(safe(one.comm, MAX_NAME) for one in waiting.values() if one.comm)]
    whose = f"{name} ({', '.join(comms[:2])})" if len(comms) > 1 else name
    who = f"{many(len(members), what)} of {whose}" if len(members) > 1 else name
    who = f"{len(waiting)} of {who}" if len(waiting) < len(members) else who
    verb = "waited" if past else "waits" if len(waiting) == 1 else "wait"
    behind = f"{verb} {'for' if mutual else 'behind'} {' and '.join(for_whom)} on"
    place = short_place_text(session.topology, cpus, cpus[0])

    they = "they" if len(waiting) > 1 else "it"
    digits = 1 if group.wanted_s >= 1 else 2
    crowded = job is None and any(times.full_s.get(cpu, 0.0) >= MIN_FULL * span_s for cpu in cpus)
    least = "at least " if crowded else ""
    evidence = [f"{they} waited {least}{group.wait_s:.2f} of {group.wanted_s:.{digits}f} s"]
    evidence += [f"only the {MAX_TASKS_PER_CPU} busiest of a CPU are seen"] if crowded else []
    if len(waiting) > 1:
        slowest = max(one.wait_s / one.wanted_s for one in waiting.values() if one.wanted_s > 0)
        evidence.append(f"the slowest {rough(slowest)} of its time")
    spare = _spare(session, whole or session.whole(), allowed if limit else cpus)
    if limit:
        count = sum(row.online for row in session.topology)
        evidence.append(f"may use {len(allowed)} of {many(count, 'CPU')} ({limit})")
        evidence += [f"CPU {cpu} is {rough(share)} idle" for cpu, share in [*spare.items()][:1]]
    evidence += [] if for_whom else [UNKNOWN_NEIGHBOUR]
    everyone = _sum(tasks.values())
    if job is None and everyone.wait_s > 1.1 * group.wait_s:
        evidence.append(f"all tasks {everyone.wait_s:.2f} of {everyone.wanted_s:.1f} s")
    has_room = any(share > ROOM for share in spare.values())
    hint = ""
    if limit == "cpuset" and spare:
        hint = f"a cpuset of more CPUs than {ranges(allowed)}: cpuset.cpus, docker --cpuset-cpus"
    elif limit == "mask" and spare and (has_room or mutual or not neighbours):
        hint = f"taskset -acp {ranges({*allowed, *spare})} {min(stuck)}"
    elif neighbours:
        hint = f"chrt --idle --all-tasks --pid 0 {neighbours[0][0]}"
    elif mutual and not has_room:
        usable = allowed.intersection(session.topology[row].cpu for row in session.shown)
        hint = f"no more than {many(len(usable), 'thread')} at a time, one for each CPU"
        hint += " that it may use" if limit else ""
    share = _much(group.wait_s, group.wanted_s)
    headline = f"{who} {verb} {least}{share} of {'their' if len(waiting) > 1 else 'its'} time"
    everywhere = len(cpus) == len(session.shown)
    ends = (
        [behind.removeprefix(f"{verb} "), f"{'for' if mutual else 'behind'} {for_whom[0]} on"]
        if for_whom
        else ["for"]
    )
    tries = [f"{headline} {end.removesuffix(' on')}" if everywhere and for_whom
             else f"{headline} {end} {place}" for end in ends]  # fmt: skip
    if job is None and len(cpus) == 1 and (pair := _pair(tasks, cpus[0], neighbours, pids)):
        shared, waited = ("shared", "waited") if past else ("share", "waits")
        tries = [f"{' and '.join(pair)} {shared} {place}: each {waited} {share} of its time"]
    headline = next((text for text in tries if len(text) < MAX_SENTENCE), tries[-1])
    return Queue(
        f"{who} {behind if for_whom else f'{verb} for'} {place}",
        by if job is not None else name,
        evidence, hint, cpus, bool(for_whom), headline,
        _victim_share(group.wait_s, group.wanted_s, span_s),
    )  # fmt: skip


def _pair(
    tasks: Tasks, cpu: int, neighbours: Sequence[tuple[int, str]], pids: Collection[int]
) -> list[str]:
    """Returns the names of the two tasks that share a CPU about equally; [] if there are more, or
    if one of them waits much more than the other."""
    both = [(pid, comm, one) for (pid, comm, at), one in tasks.items()
            if at == cpu and (pid in pids or (pid, comm) in neighbours)]  # fmt: skip
    if len(both) != 2 or len(pids) + len(neighbours) != 2:
        return []
    shares = [one.wait_s / one.wanted_s if one.wanted_s else 0.0 for _, _, one in both]
    if abs(shares[0] - shares[1]) > MAX_UNEQUAL:
        return []
    return sorted(f"{safe(comm, MAX_NAME)}[{pid}]" for pid, comm, _ in both)


def _much(lost_s: float, wanted_s: float) -> str:
    return f"{100 * lost_s / wanted_s if wanted_s else 0:.0f} %"


def _victim_share(lost_s: float, wanted_s: float, span_s: float) -> float:
    return lost_s / wanted_s if wanted_s >= max(1.0, MIN_WANTED * span_s) else 0.0


def _without_quotas(run_times: RunTimes, times: Mapping[Any, TaskTimes]) -> dict[Any, TaskTimes]:
    """Returns the times without the waiting that is due to quotas."""
    rest = dict(times)
    for throttled in run_times.throttled(times):
        for key in throttled.keys:
            task = times[key]
            kept = task.wanted_s - task.wait_s * throttled.share
            by_cpu = {cpu: s * kept / task.wanted_s for cpu, s in task.by_cpu.items()}
            rest[key] = replace(task, wait_s=task.wait_s * (1 - throttled.share), by_cpu=by_cpu)
    return rest


def _sum(times: Iterable[TaskTimes]) -> TaskTimes:
    run_s, wait_s, by_cpu = 0.0, 0.0, dict[int, float]()
    for task in times:
        run_s += task.run_s
        wait_s += task.wait_s
        for cpu, wanted_s in task.by_cpu.items():
            by_cpu[cpu] = by_cpu.get(cpu, 0.0) + wanted_s
    return TaskTimes("", run_s, wait_s, by_cpu)


def run_beside(
    tasks: Tasks, cpus: Sequence[int], own: Collection[int]
) -> dict[tuple[int, str], float]:
    """Returns the seconds that other processes than `own` ran on these CPUs, by PID and name."""
    ran_s: dict[tuple[int, str], float] = {}
    for (pid, comm, cpu), one in tasks.items():
        if cpu in cpus and pid not in own:
            ran_s[pid, comm] = ran_s.get((pid, comm), 0.0) + one.run_s
    return ran_s


def _spare(session: Session, whole: Interval, taken: Collection[int]) -> dict[int, float]:
    """Returns the idle share of the other CPUs that had room for more work, the idlest first."""
    util = whole.values["util"]
    idle = {session.topology[row].cpu: 1 - float(util[row]) for row in session.shown
            if session.online[row] and session.topology[row].cpu not in taken}  # fmt: skip
    with_room = {cpu: share for cpu, share in idle.items() if share >= MIN_IDLE}
    return dict(sorted(with_room.items(), key=lambda pair: -pair[1]))


def _allocation(session: Session, pids: Iterable[int]) -> tuple[str, set[int]]:
    """Returns what keeps these processes from some CPUs ("mask" or "cpuset"; '' if nothing does, or
    if that is not known), and the CPUs that they may use."""
    online = {row.cpu for row in session.topology if row.online}
    allowed: set[int] = set()
    by_cpuset = True
    for pid in pids:
        details = session.details.get(str(pid), {})
        mask, cpuset = (_listed(details.get(key), online) for key in ("affinity", "cpuset"))
        if not mask:
            return "", online
        allowed |= mask
        by_cpuset &= bool(cpuset) and mask >= cpuset
    if not allowed or allowed == online:
        return "", online
    return "cpuset" if by_cpuset else "mask", allowed


def _listed(text: object, online: set[int]) -> set[int]:
    """Returns the online CPUs of a list such as 0-3,8; none if it is no such list."""
    found = re.findall(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text) if isinstance(text, str) else []
    spans = [(int(first), int(last or first)) for first, last in found]
    return {cpu for cpu in online if any(first <= cpu <= last for first, last in spans)}


# --- possible losses


INTERRUPT_COUNTERS = "stat_irq_s", "stat_softirq_s"


def checks(
    session: Session, totals: Totals, whole: Interval, episodes: Sequence[Episode], *,
    is_whole_run: bool = True,
) -> list[Check]:  # fmt: skip
    """Returns the losses that can be measured here, the costliest first."""
    sums, chosen = totals.losses, session.evaluator.chosen
    shares = sums.shares()
    results: list[Check] = []
    if chosen["busy_hz"] and (clocks := _mean_clocks(session, whole)):
        share = sum(s for (kind, _), s in shares.items() if kind in KINDS and KINDS[kind].of_cycles)
        results.append(
            Check("clock", "a clock below its ceiling", clocks, share, f"clock ({clocks})")
        )
    if totals.times.has_waits:
        share = shares.get(WAIT_CAUSE, 0.0)
        waited_s = sums.by_cause[WAIT_CAUSE].sum() if WAIT_CAUSE in sums.by_cause else 0.0
        waited = f"{waited_s:.1f} s of {sums.whole_s:.0f} s"
        brief = f"waiting for a CPU ({percent(share)} %)"
        results.append(Check("wait", "tasks waiting for a CPU", waited, share, brief))
    irq = [session.counters.rates(session.run.delta, key) for key in INTERRUPT_COUNTERS]
    if is_whole_run and irq[0] is not None and irq[1] is not None:
        small = _small(float(np.nanmean(irq[0] + irq[1])))
        share = sum(s for (kind, _), s in shares.items() if kind == "interrupt")
        results.append(
            Check("interrupts", "interrupts", f"{small} of time", share, f"interrupts ({small})")
        )
    pressure = whole.machine.get("pressure_memory", nan)
    if isfinite(pressure):
        small = _small(pressure)
        share = sum(s for (kind, _), s in shares.items() if kind == "memory-stall")
        brief = f"waiting for memory ({small})"
        results.append(
            Check("memory-stalls", "tasks waiting for memory", f"{small} of time", share, brief)
        )
    halts = whole.values.mean("involuntary", session.shown)
    if chosen["involuntary"] and np.isfinite(halts):
        small = _small(halts)
        smi = whole.counts.get("smi")
        seen = f"{small} of all time"
        if smi is not None and np.isfinite(smi).any():
            seen = many(int(np.nanmax(smi)), "SMI")
        share = sum(
            s for (kind, _), s in shares.items() if kind in {"involuntary-halt", "throttle"}
        )
        results.append(
            Check("halts", "involuntary halts", seen, share, f"involuntary halts ({small})")
        )
    if any(len(core) > 1 for core in session.cores) and chosen["ipc"]:
        share = shares.get(("neighbour", "sibling"), 0.0)
        seen = "none ran slower than it ran alone"
        results.append(Check("sibling", "tasks slowed by a sibling", seen, share, "siblings"))
    if OF_BEST in whole.machine and chosen["ipc"]:
        share = shares.get(("neighbour", "memory"), 0.0)
        moved = sum(whole.machine[name] for name in MEMORY) / 1e9
        seen = f"{moved:.1f} GB/s" if isfinite(moved) else "not read"
        brief = f"memory bandwidth ({seen})"
        results.append(Check("memory", "saturated memory bandwidth", seen, share, brief))
    if chosen["steal"]:
        small = _small(whole.values.mean("steal", session.shown))
        seen = f"{small} of all time" if session.hello.virtualisation else "no hypervisor"
        results.append(Check("steal", "steal", seen, shares.get(STEAL, 0.0), f"steal ({small})"))
    heat = whole.machine.get("temperature_c", nan)
    if isfinite(heat) and not any(e.cause == "thermal" for e in episodes):
        results.append(Check("heat", "", f"{heat:.0f} °C", 0.0, f"heat ({heat:.0f} °C)"))
    return sorted(results, key=lambda check: -check.share)


def _small(share: float) -> str:
    return f"{100 * share:.{2 if share < 0.001 else 1}f} %" if isfinite(share) else "unknown"


def _mean_clocks(session: Session, whole: Interval) -> str:
    """Returns the mean clock and ceiling of the busy cores; '' if no core was busy."""
    cores = session.reader.cores
    if len(whole.ceilings.low_hz) != len(cores.lists):
        return ""
    ceiling = cores.by_cpu(whole.ceilings.low_hz)
    busy, util = whole.values["busy_hz"], whole.values["util"]
    known = np.isfinite(busy) & np.isfinite(ceiling)
    rows = [row for row in session.shown if util[row] >= 0.1 and known[row]]
    if not rows:
        return ""
    clock, limit = (float(np.average(part[rows], weights=util[rows])) for part in (busy, ceiling))
    active = len({int(cores.of_cpu[row]) for row in rows})
    return f"{clock / 1e9:.2f} of {limit / 1e9:.2f} GHz, {many(active, 'core')} active"
