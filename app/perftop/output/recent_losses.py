"""The losses of a session in its last seconds, and the episodes of tasks that wait for a CPU. The
screen of a live stream computes them, and for a replay the pass over the recording."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.model.tasks import TaskSnapshot
from perftop.output.report import MIN_VICTIM_SHARE, Finding, Report
from perftop.output.waiters import MIN_WAIT_SHARE
from perftop.output.why_report import report
from perftop.session.loss_history import LossHistory
from perftop.session.losses import (
    CAUSE_ENDED_AFTER_NS,
    FIRST_VERDICT_NS,
    VERDICT_SPAN_NS,
    VERDICT_STEP_NS,
    WAIT_CAUSE,
)
from perftop.session.run_sums import Totals
from perftop.session.selection import max_read_ns
from perftop.session.session import Session


def make_report(
    session: Session, totals: Totals, snapshot: TaskSnapshot, *, is_past: bool = False
) -> Report | None:
    """Returns the report on the span of these totals; None if the session has just begun, or the
    span has no samples. `snapshot`: the tasks at its end."""
    has_just_begun = not is_past and totals.end_ns - session.run.start_ns < FIRST_VERDICT_NS
    if has_just_begun or not totals.span.sample_count:
        return None
    interval = session.interval_for(totals, snapshot)
    return report(session, is_past=is_past, totals=totals, interval=interval)


class RecentLosses:
    """The losses of a session over time and in its last seconds. Both must be updated about once
    per VERDICT_STEP_NS."""

    def __init__(self, session: Session) -> None:
        self.history = LossHistory([row.package for row in session.hello.topology])
        self.states: deque[Totals] = deque()
        """Totals since the session's start, as they were at each of the last ten seconds."""
        self.waits = WaitEpisodes()
        self.due_ns = 0
        """Raw time at which the next update is due."""

    def add_totals(self, session: Session) -> Totals:
        """Adds the losses until now to the history. Returns the totals since the start."""
        totals, self.due_ns = session.run.totals(), session.now_ns + VERDICT_STEP_NS
        wanted_s = totals.losses.wanted_s + totals.losses.waited_s
        self.history.add_losses(totals.start_ns, totals.end_ns, wanted_s, totals.losses.by_cause)
        return totals

    def last_seconds(self, session: Session, totals: Totals) -> tuple[Totals, Report | None]:
        """Returns the part of the session's `totals` that belongs to the last seconds, and the
        report on it. Begins and ends the episodes of waiting tasks."""
        recent = self._last_totals(session, totals.copy())  # the session's totals grow
        recent_report = make_report(session, recent, session.recent_snapshot)
        if recent_report is not None:
            self.waits.update(session, recent_report, self.states)
        return recent, recent_report

    def _last_totals(self, session: Session, totals: Totals) -> Totals:
        states = self.states
        states.append(totals)
        while len(states) > 1 and states[1].end_ns <= totals.end_ns - VERDICT_SPAN_NS:
            states.popleft()
        first_ns = totals.end_ns - VERDICT_SPAN_NS
        if first_ns < totals.start_ns + VERDICT_STEP_NS // 2:
            return totals
        # A busy machine that is late to redraw cannot afford to read the history again.
        if first_ns - VERDICT_SPAN_NS // 2 <= states[0].end_ns <= first_ns + VERDICT_STEP_NS:
            return totals.minus(states[0])
        if first_ns <= totals.start_ns + VERDICT_SPAN_NS // 2:
            return totals
        if session.history is None:
            return totals.minus(states[-2]) if len(states) > 1 else totals
        span_ns = min(VERDICT_SPAN_NS, max_read_ns(session))
        return session.totals_between(totals.end_ns - span_ns, totals.end_ns) or totals


# --- Episodes of tasks that wait for a CPU, from the reports of successive seconds. Detectors only
# report waits of a watched job.

MAX_STEP_NS = 10_000_000_000
"""Maximum time in ns between two totals whose difference shows when tasks waited. It is longer if,
for example, the screen was stopped."""
MAX_VICTIMS = 2
"""Maximum number of waiting tasks in the evidence. With two, sentences leave out their PIDs."""
MIN_WAIT_S = 0.005
"""Minimum wait in s between two totals that counts."""


@dataclass(slots=True, eq=False)
class _Wait:
    episode: Episode
    worst: Finding
    """The finding with the greatest loss of these tasks."""
    worst_totals: Totals
    latest: Finding
    """The latest finding about these tasks; others with their name may start and end."""
    last_ns: int
    """Time up to which the tasks waited."""
    is_listed: bool = False


def find_waits(report: Report) -> list[Finding]:
    """Returns the findings on groups of tasks that lose much of their time to waits."""
    first = next((f for f in report.findings if f.cause == WAIT_CAUSE), None)
    waits = [] if first is None else [first, *first.other_waits]
    return [f for f in waits if f.waiting_tasks and f.victim_share >= MIN_VICTIM_SHARE]


class WaitEpisodes:
    """The running waits of a session, one for each group of tasks. If groups wait on the same CPUs,
    only the one that began first is listed."""

    def __init__(self) -> None:
        self._waits: list[_Wait] = []

    def start_ns(self, finding: Finding) -> int | None:
        """Returns the start of the running wait of these tasks; None if there is none."""
        wait = self._find_wait(finding)
        return None if wait is None else wait.episode.start_ns

    def has_ended(self, report: Report) -> bool:
        """Returns whether the first finding concerns tasks that no longer wait, while others do.
        `report`: the report of the last `update`."""
        first = report.named_findings[:1]
        return any(f in first and self._find_wait(f) is None for f in find_waits(report))

    def _find_wait(self, finding: Finding) -> _Wait | None:
        return next((w for w in self._waits if _are_same_tasks(w.latest, finding)), None)

    def update(self, session: Session, report: Report, recent_totals: Sequence[Totals]) -> None:
        """Begins, describes and ends episodes, and passes them to the session's log. `report`: on
        the last seconds; `recent_totals`: since the start, at moments of these seconds."""
        now_ns, described = recent_totals[-1].end_ns, list[_Wait]()
        for finding in find_waits(report):
            start_ns, last_ns = _wait_period(finding, recent_totals)
            wait = self._find_wait(finding)
            if wait is None and now_ns - last_ns < CAUSE_ENDED_AFTER_NS:
                episode = Episode(WAIT_CAUSE[0], [], start_ns, cause=WAIT_CAUSE[1])
                wait = _Wait(episode, finding, report.totals, finding, last_ns)
                self._waits.append(wait)
            if wait is None or wait in described:
                continue
            described.append(wait)
            wait.latest = finding
            if finding.victim_share > wait.worst.victim_share:
                wait.worst, wait.worst_totals = finding, report.totals
            wait.last_ns = max(wait.last_ns, last_ns)
            _describe(wait.episode, finding)
        for wait in self._waits:
            if now_ns - wait.last_ns >= CAUSE_ENDED_AFTER_NS:
                self._end(session, wait)
        self._waits = [wait for wait in self._waits if wait.episode.end_ns is None]
        for wait in self._waits:
            cpus = set(wait.episode.cpus)
            rivals = [w for w in self._waits if w.is_listed and not cpus.isdisjoint(w.episode.cpus)]
            wait.is_listed |= not rivals
        session.log.session_losses = [wait.episode for wait in self._waits if wait.is_listed]

    def _end(self, session: Session, wait: _Wait) -> None:
        """Lists the episode with a sentence in the past tense about its worst seconds."""
        wait.episode.end_ns = wait.last_ns
        if wait.last_ns <= wait.episode.start_ns or not wait.is_listed:
            return
        interval = session.interval_for(wait.worst_totals, session.snapshot)
        past = report(session, is_past=True, totals=wait.worst_totals, interval=interval)
        same_culprit = (f for f in find_waits(past) if _are_same_tasks(f, wait.worst))
        _describe(wait.episode, next(same_culprit, wait.worst))
        session.log.add_loss(wait.episode)


def _are_same_tasks(a: Finding, b: Finding) -> bool:
    """Returns whether two findings are about one group. Another user's may have the same name."""
    return a.culprit == b.culprit and not a.waiting_tasks.isdisjoint(b.waiting_tasks)


def _describe(episode: Episode, finding: Finding) -> None:
    episode.cpus, episode.depth = finding.cpus, finding.victim_share
    episode.confidence = finding.confidence
    text, pids = " · ".join(finding.evidence), sorted({pid for pid, _ in finding.waiting_tasks})
    victims = [TaskOnCpu(pid, finding.culprit, finding.cpus[0]) for pid in pids[:MAX_VICTIMS]]
    episode.evidence = {"label": finding.headline, "text": text, "loser": victims}
    if finding.culprit_tasks:
        episode.evidence["who"] = [*finding.culprit_tasks]


def _wait_period(finding: Finding, recent_totals: Sequence[Totals]) -> tuple[int, int]:
    """Returns the start and the end (raw times in ns) of the last period in which these tasks
    waited for at least MIN_WAIT_SHARE of their wanted time; both are the start of the totals if
    there was none. If there is only one total, returns the period in which any task waited."""
    now_ns = recent_totals[-1].end_ns
    keys = [key for key in recent_totals[-1].times.tasks if key[:2] in finding.waiting_tasks]

    def times(totals: Totals) -> tuple[float, float]:
        known_times = [t for key in keys if (t := totals.times.tasks.get(key)) is not None]
        return sum(t.wait_s for t in known_times), sum(t.wanted_s for t in known_times)

    first = recent_totals[0]
    points = [(totals.end_ns, *times(totals)) for totals in recent_totals]
    if first.end_ns - first.start_ns <= CAUSE_ENDED_AFTER_NS:
        points.insert(0, (first.start_ns, 0.0, 0.0))
    if len(points) < 2:
        return now_ns - round(1e9 * (finding.active_s or 0.0)), now_ns
    start_ns = last_ns = points[0][0]
    was_waiting = False
    for (from_ns, *before), (until_ns, *after) in pairwise(points):
        wait_s, wanted_s = after[0] - before[0], after[1] - before[1]
        min_wait_s = max(MIN_WAIT_SHARE * wanted_s, MIN_WAIT_S)
        is_waiting = until_ns - from_ns <= MAX_STEP_NS and wait_s >= min_wait_s
        if is_waiting:
            start_ns = start_ns if was_waiting else from_ns
            last_ns = until_ns
        was_waiting = is_waiting
    return start_ns, last_ns
