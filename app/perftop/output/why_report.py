"""The report of `perftop why`: findings on the costliest causes, and losses that cannot be measured
here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, nan

import numpy as np

from perftop.base.text import count_noun, long_duration, percent, ranges, safe_text
from perftop.model.confidence import (
    ClockCap,
    combined_confidence,
    confidence,
    evidence_json,
    evidence_texts,
)
from perftop.model.evaluation import MEMORY_SHARE, TICK_S
from perftop.model.kinds import (
    BANDWIDTH_CAPS,
    CLOCK_CAPS,
    INTERRUPT_REMEDIES,
    KINDS,
    STEAL_CAUSE,
    Episode,
    cause_of,
)
from perftop.model.tasks import STOP_REASONS
from perftop.output.report import (
    MAX_OWNER_LENGTH,
    MAX_SPARE_UTIL,
    Finding,
    Report,
    has_unread_cpu,
    seen_share,
)
from perftop.output.sentences import culprits, job_name, mid_sentence, sentence, text, victims
from perftop.output.sentences import subject_of as cause_subject
from perftop.output.waiters import MAX_NAME_LENGTH, victim_share
from perftop.output.waiting import UNKNOWN_NEIGHBOUR, lost_percent, waiting_finding
from perftop.session.interval import Interval
from perftop.session.losses import QUOTA_CAUSE, STOPPED_CAUSE, UNEXPLAINED, WAIT_CAUSE, CauseKey
from perftop.session.run_sums import Totals
from perftop.session.session import Session
from perftop.session.task_times import RunTimes
from perftop.session.values import lasting_reasons, names_by_reason, unknown_reason

MIN_ALWAYS_SHARE = 0.97
"""Minimum share of the observed time in which a cause was active "all the time"."""
MAX_STILL_ACTIVE_NS = 1_000_000_000
"""Maximum age in ns of the last activity of a cause that counts as still active."""
MAX_CORE_SHARE = 0.5
"""Maximum sum of the shares of a core's tasks at which it has room for another task."""
MIN_CAPPED_LOSS = 0.7
"""Minimum lost share of the IPC for which a sibling's resctrl cap on memory bandwidth is blamed. On
Intel CPUs, the cap slows the whole core, which costs more than sharing the core does."""
MAX_LISTED_STEAL_CPUS = 3
"""Maximum number of CPUs for which stolen time is listed by CPU."""


def report(
    session: Session, *, is_past: bool = False,
    totals: Totals | None = None, interval: Interval | None = None,
) -> Report:  # fmt: skip
    """Returns the report on a session, or on the part with these `totals` and this `interval`.
    `is_past`: whether the span is over."""
    is_whole_run, run = totals is None, session.command_run
    totals = totals or session.run.totals()
    share_seen, job = nan, job_name(session)
    has_ended = is_whole_run and session.watches_command and run.end is not None
    if has_ended and isfinite(run.cpu_s):
        seen_s = sum(thread.run_s for thread in totals.times.threads.values())
        share_seen = seen_share(seen_s, run.cpu_s)
    empty = Report(
        session, totals, interval or session.run_interval(),
        session.episodes(totals.start_ns, totals.end_ns),
        None if job is None else safe_text(job, MAX_NAME_LENGTH + 1), is_past,
        is_past or has_ended, is_whole_run, seen_share=share_seen,
    )  # fmt: skip
    shares = totals.losses.shares()
    findings = [_finding(empty, cause) for cause, share in shares.items() if share > 0]
    return replace(empty, findings=findings)


# --- findings on causes


def _finding(report: Report, cause: CauseKey) -> Finding:
    """Returns the finding on a cause, from its episodes and `_add_details`."""
    session, sums = report.session, report.totals.losses
    start_ns, now_ns = report.totals.start_ns, report.totals.end_ns
    lost_s = sums.by_cause[cause]
    rows = np.flatnonzero(lost_s > 0.05 * lost_s.max()).tolist()
    cpus = [session.topology[row].cpu for row in rows]
    causes = [cause, ("neighbour", "hypervisor")] if cause == STEAL_CAUSE else [cause]
    episodes = [e for e in report.episodes if (e.kind, e.cause) in causes]
    if cause[0] == "interrupt":  # such an episode is on one CPU, on which the job may not run
        episodes = [e for e in episodes if not {*cpus}.isdisjoint(e.cpus)]
    episodes.sort(key=lambda e: -e.lost_s(now_ns, start_ns))
    worst = episodes[0] if episodes else None
    active_since_ns = now_ns - MAX_STILL_ACTIVE_NS
    is_active = any(e.end_ns is None or e.end_ns > active_since_ns for e in episodes)
    running = not report.is_past and (is_active or not episodes)
    described = episodes or [Episode(cause[0], cpus, now_ns, cause=cause[1])]
    if cause[0] == "interrupt" and worst is not None:
        ran_s = sum(e.span_s(e.start_ns, now_ns) * len(e.cpus) for e in episodes)
        mean_depth = sum(e.lost_s(now_ns) for e in episodes) / ran_s if ran_s > 0 else 0.0
        described = [replace(worst, cpus=cpus, depth=mean_depth)]
    names = [report.job] if report.job else victims(session, described, report.interval.tasks)
    past_tense = report.past_tense or not running
    sentence_text = text(sentence(session.topology, described, names, past_tense=past_tense))
    # The sentence already contains the clocks.
    is_cycles = cause[0] in KINDS and KINDS[cause[0]].costs_cycles
    implied_keys = {"busy_hz", "ceiling_hz"} if is_cycles else {"owner", "line"}
    who = {task for episode in episodes for task in culprits(episode)}
    if worst is not None and cause[1] == "sibling" and who:
        # Each episode names the siblings in its own package, and each of them costs the job time.
        by_cpu = sorted(who, key=lambda task: (task.cpu, task.pid))
        worst = replace(worst, evidence=worst.evidence | {"who": by_cpu})
    evidence = {} if worst is None else worst.evidence
    extra_evidence = {k: value for k, value in evidence.items() if k not in implied_keys}
    lost_parts = [(e.confidence, e.lost_s(now_ns, start_ns)) for e in episodes]
    finding = Finding(
        cause, sums.share(cause), float(lost_s.sum()), sentence_text, _culprit_name(cause, worst),
        cpus, _active_s(episodes, now_ns, now_ns - start_ns), running,
        combined_confidence(lost_parts) if episodes else confidence(*cause, counted=False),
        evidence_texts(cause[1], extra_evidence),
        remedy(session, cause, worst, cpus), worst, evidence_json(evidence),
    )  # fmt: skip
    return _add_details(report, finding)


def _add_details(report: Report, finding: Finding) -> Finding:
    """Returns the finding with the details that the episodes of its cause do not contain."""
    session, times, job = report.session, report.totals.times, report.job
    cause, worst = finding.cause, finding.worst
    if cause[1] == UNEXPLAINED:
        pieces = ["no active limit was found"]
        rows = sorted(
            {session.position[cpu] for cpu in finding.cpus}.intersection(session.selected)
        )
        if cause[0] == "turbo-drop" and report.interval.values.mean("util", rows) < MAX_SPARE_UTIL:
            pieces.append("the CPUs were mostly idle, so the governor may have chosen this clock")
        return replace(finding, confidence="unknown", evidence=pieces)
    if cause == STEAL_CAUSE:
        level = confidence(*STEAL_CAUSE, error=TICK_S, effect=finding.lost_s)
        return replace(finding, confidence=level, evidence=[_stolen_text(report, finding.cpus)])
    if cause == QUOTA_CAUSE:
        return _quota_finding(report, finding)
    if cause == STOPPED_CAUSE and times.threads:
        return _stopped_finding(finding, times, job)
    if cause == WAIT_CAUSE:
        waits = waiting_finding(report, finding)
        if waits is not None:
            return waits
        if worst is None:
            return replace(finding, confidence="unknown", evidence=[UNKNOWN_NEIGHBOUR])
    caps = safe_text(session.hello.settings.get(BANDWIDTH_CAPS.key, ""), MAX_OWNER_LENGTH)
    is_intel = session.hello.identity.vendor == "GenuineIntel"
    is_deep = worst is not None and (worst.depth or 0.0) >= MIN_CAPPED_LOSS
    if cause == ("neighbour", "sibling") and caps and is_intel and is_deep:
        pieces = [f"resctrl caps the memory bandwidth of both siblings ({caps})"]
        pieces += finding.evidence
        finding = replace(finding, evidence=pieces, hint=BANDWIDTH_CAPS.remedy)
    if cause[0] == "neighbour" and worst is not None and job is None:
        return replace(finding, headline=finding.text, victim_share=worst.depth or 0.0)
    return finding


def _stolen_text(report: Report, cpus: Sequence[int]) -> str:
    lost_s = report.totals.losses.by_cause[STEAL_CAUSE]
    stolen_text = f"{lost_s.sum():.2f} s on {count_noun(len(cpus), 'CPU')}"
    if len(cpus) <= MAX_LISTED_STEAL_CPUS:
        position = report.session.position
        stolen_text = " and ".join(f"{lost_s[position[cpu]]:.2f} s on CPU {cpu}" for cpu in cpus)
    return f"steal {stolen_text}, in {long_duration(report.span_ns)}"


def _quota_finding(report: Report, finding: Finding) -> Finding:
    """Returns the finding on CPU quotas, with the group that lost most."""
    times, job = report.totals.times, report.job
    tasks = times.threads if job is not None else times.tasks
    throttled = times.throttled_tasks(tasks)
    if not throttled:
        return finding
    confidences = [
        (confidence(*QUOTA_CAUSE, counted=group.is_counted), group.wait_s) for group in throttled
    ]
    worst = throttled[0]
    quota = worst.quota
    names = Counter(tasks[key].comm for key in worst.keys)
    subject = job or safe_text(names.most_common(1)[0][0], MAX_NAME_LENGTH)
    allowed = f"{quota.cpus:.3g} {'CPU' if quota.cpus == 1 else 'CPUs'}"
    owner = "" if quota.owner == subject else f" of {safe_text(quota.owner, MAX_OWNER_LENGTH)}"
    owner_text, verb = owner and f" (quota{owner})", "lost" if report.past_tense else "loses"
    evidence = [f"{subject} was stopped for {worst.wait_s:.2f} of {worst.wanted_s:.1f} s"]
    if quota.period_count:
        share = percent(quota.throttled_count / quota.period_count)
        evidence.append(f"throttled in {share} % of periods")
    if len(throttled) > 1:
        evidence.append(f"{count_noun(len(throttled) - 1, 'more group')} too")
    details = {"group": quota.group, "owner": quota.owner, "cpus": quota.cpus,
               "periods": quota.period_count, "throttled_periods": quota.throttled_count,
               "throttled_s": round(quota.throttled_s, 3)}  # fmt: skip
    return replace(
        finding, text=f"{subject} may use no more than {allowed}{owner_text}",
        culprit=f"its CPU quota of {allowed}" if job is not None else subject,
        evidence=evidence, confidence=combined_confidence(confidences), details=details,
        headline=f"{subject} {verb} {lost_percent(worst.wait_s, worst.wanted_s)} "
                 f"of its time to a quota of {allowed}{owner}",
        victim_share=victim_share(worst.wait_s, worst.wanted_s, report.totals.elapsed_s),
    )  # fmt: skip


def _stopped_finding(finding: Finding, times: RunTimes, job: str | None) -> Finding:
    """Returns the finding on stopped threads, with the thread that was stopped for longest."""
    threads = times.threads
    (pid, _), worst = max(threads.items(), key=lambda pair: pair[1].stop_loss_s)
    state = max(STOP_REASONS, key=lambda letter: worst.by_state.get(letter, 0.0))
    comm, reason = safe_text(worst.comm, MAX_NAME_LENGTH), STOP_REASONS[state]
    subject = job if job is not None and len(threads) == 1 else comm
    other_count = sum(thread.stopped_s > 0 for thread in threads.values()) - 1
    state_text = "D, its group is frozen" if state == "F" else state
    evidence = [f"state of {comm}[{pid}]: {state_text}"]
    evidence += [f"{count_noun(other_count, 'more thread')} too"] if other_count else []
    fixes = {"T": f"kill -CONT {pid}", "t": "detach the debugger", "F": "thaw its control group"}
    text = f"{subject} was stopped for {worst.stopped_s:.1f} of {worst.elapsed_s:.1f} s ({reason})"
    level = confidence(*STOPPED_CAUSE, error=worst.state_error_s, effect=worst.stopped_s)
    return replace(
        finding, text=text, culprit=reason, evidence=evidence, hint=fixes[state],
        confidence=level, is_running=False, headline=text,
    )  # fmt: skip


def culprit_of(finding: Finding, *, has_job: bool) -> tuple[str, str]:
    """Returns the task that a finding blames in a few words, and its CPU if it acts on only one;
    '' for unknown ones. `has_job`: whether the finding is about a watched job."""
    if finding.confidence == "unknown":
        return "", ""
    name = ""
    if finding.cause == WAIT_CAUSE:
        others = (
            t.comm for t in finding.culprit_tasks if (t.pid, t.comm) not in finding.waiting_tasks
        )
        name = finding.culprit if has_job and finding.culprit_tasks else next(others, "")
    elif finding.worst is not None:
        name = next((task.comm for task in culprits(finding.worst)), "")
    place = f"CPU {finding.cpus[0]}" if len(finding.cpus) == 1 else ""
    return safe_text(name, MAX_OWNER_LENGTH), place


def _culprit_name(cause: CauseKey, worst: Episode | None) -> str:
    kind, name = cause
    blamed_tasks = [] if worst is None else culprits(worst)
    if cause == ("turbo-drop", "license") and worst is not None and "self" in worst.evidence:
        return "its own wide SIMD code"
    if blamed_tasks:
        comm = blamed_tasks[0].comm
        return f"wide SIMD code of {comm}" if name == "license" else comm
    if kind == "neighbour":
        act = {"memory": "saturate memory bandwidth", "cache": "fill the L3"}
        return f"others that {act.get(name, 'share cores')}"
    if name == UNEXPLAINED:
        return "halts" if kind == "involuntary-halt" else "a low clock"
    if kind == "ramp":
        return "the ramp-up of its clock"
    episode = worst or Episode(kind, [], 0, cause=name)
    return mid_sentence(
        cause_of("license").subject if kind == "license" else cause_subject(episode)
    )


MAX_MOVED_TASKS = 8
"""Maximum number of tasks that a remedy's command moves to other CPUs."""


def remedy(session: Session, cause: CauseKey, worst: Episode | None, cpus: Sequence[int]) -> str:
    """Returns a remedy for a cause that acts on these CPUs; '' if none is known. `worst`: the
    costliest episode of the cause."""
    if worst is not None and isinstance(cap := worst.evidence.get("cap"), ClockCap):
        return CLOCK_CAPS[cap.name][1] if cap.name in CLOCK_CAPS else cause_of("policy").remedy
    if worst is not None and "power_limit_before_w" in worst.evidence:
        managers = ", ".join(session.hints.power_managers[:2])
        changer = f"{managers} here or the BMC" if managers else ""
        return f"find what lowers it at run time: {changer or 'thermald, the BMC, a power manager'}"
    if worst is not None and (line := str(worst.evidence.get("line", ""))):
        for name, remedy in INTERRUPT_REMEDIES.items():
            if line.startswith(name):
                return remedy
    tasks = culprits(worst) if worst is not None else []
    culprit = next(iter(tasks), None)
    if culprit is not None and cause[1] == "sibling":
        other_cores = [core for core in session.cores if {*cpus}.isdisjoint(core)]
        online = {row.cpu for row in session.topology if row.online}
        used_shares = [
            sum(a.task.share for cpu in core for a in session.snapshot.activity_on(str(cpu)))
            for core in other_cores
            if not online.isdisjoint(core)
        ]
        if min(used_shares, default=1.0) >= MAX_CORE_SHARE:
            return f"run {culprit.comm}[{culprit.pid}] at another time: no other core has room"
        free = online.intersection(cpu for core in other_cores for cpu in core)
        pids = [*dict.fromkeys(str(task.pid) for task in tasks)]
        if len(pids) == 1:
            return f"taskset -acp {ranges(free)} {culprit.pid}"
        listed, count = " ".join(pids[:MAX_MOVED_TASKS]), len(pids) - MAX_MOVED_TASKS
        more = f"  # and {count} more tasks" if count > 0 else ""
        return f"for p in {listed}; do taskset -acp {ranges(free)} $p; done{more}"
    if culprit is not None and cause[1] in {"memory", "cache"}:
        resource = "package" if cause[1] == "memory" else "L3"
        return f"run {culprit.comm}[{culprit.pid}] at another time or on another {resource}"
    return cause_of(cause[1]).remedy


def _active_s(episodes: Sequence[Episode], now_ns: int, span_ns: int) -> float | None:
    """Returns the seconds of the last `span_ns` in which an episode was active, or None."""
    if not episodes:
        return None
    active_ns, until_ns = 0, now_ns - span_ns
    for episode in sorted(episodes, key=lambda e: e.start_ns):
        end_ns = now_ns if episode.end_ns is None else min(episode.end_ns, now_ns)
        active_ns += max(0, end_ns - max(episode.start_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return active_ns / 1e9


# --- losses that cannot be measured here

_UNMEASURED_NAMES = {
    "busy_hz": "clock", "ipc": "IPC", "involuntary": "halts", "turbo_ceiling_hz": "turbo ceiling",
    "steal": "steal", "tasks": "who runs", "smt": "SMT states", MEMORY_SHARE: "memory bandwidth",
    "pressure": "waiting for memory", "l3_memory_bytes": "remote memory",
}  # fmt: skip
"""Names of the numbers, by key, without which causes can go undetected."""
UNMEASURED_PROGRAM_WAITS = ("a program's own waits (locks, disks, network)", "needs --watch", None)
UNMEASURED_JOB_WAITS = ("its own waits (locks, disks, network)", "thread states unknown", None)
SLEEP_REASONS = ("why it slept", "locks, network and timers cannot be distinguished", None)
L3_CAPACITY = ("L3 cache taken by others", "not counted", "-e cache-misses")
"""The unmeasured loss for L3 capacity; not listed if a chosen event counts misses."""
UnmeasuredLoss = tuple[str, str, str | None]
"""Name of a loss that cannot be measured here, the reason, and how it could be measured."""


def unmeasured_losses(report: Report) -> list[UnmeasuredLoss]:
    """Returns the losses that cannot be measured here, with reasons."""
    session, times, interval = report.session, report.totals.times, report.interval
    hidden = {"l3_memory_bytes"} if len({row.node for row in session.topology}) < 2 else set[str]()
    reasons = names_by_reason(
        lasting_reasons(session),
        lambda missing: None if missing.what in hidden else _UNMEASURED_NAMES.get(missing.what),
    )
    losses = [(", ".join(names), reason, fix) for (reason, fix), names in reasons.items()]
    variants = session.evaluator.variants
    if not times.has_waits:
        short = "too short to tell" if times.wait_snapshots else ""
        reason = short or "known after 3 s, if the kernel reports it"
        losses.append(("waiting for a CPU", reason, None))
    halts = interval.values.mean("involuntary", session.selected)
    if variants["involuntary"] and not isfinite(halts):
        run = session.run_interval()
        if not isfinite(run.values.mean("involuntary", session.selected)):
            reason = unknown_reason(session, run, session.selected, "involuntary")
            losses.append(("halts", reason, None))
    if not losses and report.job_time is not None:
        losses = [SLEEP_REASONS]  # only the reasons for the sleep are unknown
    elif not losses:
        is_watched = session.neighbours.watched_job.name is not None
        losses = [UNMEASURED_JOB_WAITS if is_watched else UNMEASURED_PROGRAM_WAITS]
    if variants["ipc"] and not session.neighbours.cache.is_available:
        is_intel = session.hello.identity.vendor == "GenuineIntel"
        losses.append(L3_CAPACITY if is_intel else (*L3_CAPACITY[:2], None))
    if variants["ipc"] and has_unread_cpu(report):
        losses.append(("losses to others in the package", "not all of its CPUs are read", None))
    return losses
