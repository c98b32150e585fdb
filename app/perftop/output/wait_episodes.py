"""Episodes of tasks that wait for a CPU, from the reports of successive seconds. Detectors only
report waits of a watched job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perftop.model.kinds import Episode
from perftop.output.report import MIN_VICTIM_SHARE, Finding, Report
from perftop.output.waiting import MIN_WAIT_SHARE
from perftop.output.why_report import brief_report
from perftop.session.losses import CAUSE_ENDED_AFTER_NS, WAIT_CAUSE, Totals
from perftop.session.session import Session

MAX_STEP_NS = 10_000_000_000
"""Maximum time in ns between two totals to know when tasks waited; the screen may have paused."""
MIN_WAIT_S = 0.005
"""Minimum wait in s between two totals that counts."""


@dataclass(slots=True, eq=False)
class _Wait:
    episode: Episode
    worst: Finding
    """The finding with the greatest loss of these tasks."""
    worst_totals: Totals
    latest: Finding
    """The latest finding of these tasks: others of their name may come and go."""
    last_ns: int
    """Time up to which the tasks waited."""


def waits_of(report: Report) -> list[Finding]:
    """Returns the findings on groups of tasks that lose much of their time to waits."""
    first = next((f for f in report.findings if f.cause == WAIT_CAUSE), None)
    waits = [] if first is None else [first, *first.other_waits]
    return [f for f in waits if f.waiting_tasks and f.victim_share >= MIN_VICTIM_SHARE]


class WaitEpisodes:
    """The running waits of a session. Tasks that wait on the same CPUs share an episode, which is
    about the group that waited most when it began."""

    def __init__(self) -> None:
        self._waits: list[_Wait] = []

    def start_ns(self, finding: Finding) -> int | None:
        """Returns the start of the running episode of a wait; None if there is none."""
        wait = self._wait_of(finding)
        return None if wait is None else wait.episode.start_ns

    def _wait_of(self, finding: Finding) -> _Wait | None:
        if not finding.waiting_tasks:
            return None
        same = (w for w in self._waits if _are_same_tasks(w.latest, finding))
        others = (w for w in self._waits if not set(finding.cpus).isdisjoint(w.episode.cpus))
        return next(same, None) or next(others, None)

    def update(self, session: Session, report: Report, recent_totals: Sequence[Totals]) -> None:
        """Begins, describes and ends episodes, and passes them to the session's log. `report`: on
        the last seconds; `recent_totals`: since the start, at moments of these seconds."""
        now_ns, described = recent_totals[-1].end_ns, list[_Wait]()
        for finding in waits_of(report):
            start_ns, last_ns = _times_of_wait(finding, recent_totals)
            wait = self._wait_of(finding)
            if wait is None and now_ns - last_ns < CAUSE_ENDED_AFTER_NS:
                episode = Episode(WAIT_CAUSE[0], [], start_ns, cause=WAIT_CAUSE[1])
                self._waits.append(_Wait(episode, finding, report.totals, finding, last_ns))
                described.append(self._waits[-1])
                _describe(episode, finding)
            elif wait in described:
                continue
            elif wait is not None and _are_same_tasks(wait.latest, finding):
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
        session.log.running_losses = [wait.episode for wait in self._waits]

    def _end(self, session: Session, wait: _Wait) -> None:
        """Lists the episode with a sentence on its worst seconds in the past tense."""
        wait.episode.end_ns = wait.last_ns
        if wait.last_ns <= wait.episode.start_ns:
            return
        interval = session.interval_for(wait.worst_totals, session.snapshot)
        past = brief_report(session, is_past=True, totals=wait.worst_totals, interval=interval)
        same = (f for f in waits_of(past) if _are_same_tasks(f, wait.worst))
        _describe(wait.episode, next(same, wait.worst))
        session.log.add_loss(wait.episode)


def _are_same_tasks(a: Finding, b: Finding) -> bool:
    """Returns whether two findings are about one group. Another user's may have the same name."""
    return a.culprit == b.culprit and not a.waiting_tasks.isdisjoint(b.waiting_tasks)


def _describe(episode: Episode, finding: Finding) -> None:
    episode.cpus, episode.depth = finding.cpus, finding.victim_share
    episode.confidence = finding.confidence
    episode.evidence = {"label": finding.headline, "text": " · ".join(finding.evidence),
                        "loser": finding.culprit}  # fmt: skip
    if finding.takers:
        episode.evidence["who"] = [*finding.takers]


def _times_of_wait(finding: Finding, recent_totals: Sequence[Totals]) -> tuple[int, int]:
    """Returns the start and the end (raw times in ns) of the last time in which these tasks waited
    for at least MIN_WAIT_SHARE of the time that they wanted; the start of the totals if they never
    did. If there is only one total, returns the time in which any task waited."""
    now_ns = recent_totals[-1].end_ns
    keys = [key for key in recent_totals[-1].times.tasks if key[:2] in finding.waiting_tasks]

    def times(totals: Totals) -> tuple[float, float]:
        known = [t for key in keys if (t := totals.times.tasks.get(key)) is not None]
        return sum(t.wait_s for t in known), sum(t.wanted_s for t in known)

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
