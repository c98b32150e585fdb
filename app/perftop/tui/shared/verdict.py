"""The verdict is the first line of `perftop why` for the last seconds before the shown moment or,
for a watched job that has ended, its whole run. In a live session, sums over the last seconds are
differences of sums since its start; for a past moment, they are computed from the history."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, nan
from typing import TYPE_CHECKING, NamedTuple

from perftop.base.text import (
    brief_duration,
    count_noun,
    long_duration,
    percent,
    running_time,
    short_duration,
    short_percent,
    time_of_day,
)
from perftop.draw import theme
from perftop.draw.charts import Glyphs
from perftop.draw.columns import Run
from perftop.draw.strips import Line, Piece, fit_line, fit_runs, justify, safe_cells, width
from perftop.model.kinds import KINDS, Episode, cause_of
from perftop.output.sentences import group_key
from perftop.session.loss_history import LossHistory, history_edges
from perftop.session.losses import (
    CAUSE_ENDED_AFTER_NS,
    FIRST_VERDICT_NS,
    VERDICT_SPAN_NS,
    VERDICT_STEP_NS,
)
from perftop.session.selection import max_read_ns
from perftop.session.task_times import NO_TIMES

if TYPE_CHECKING:
    from perftop.model.tasks import TaskSnapshot
    from perftop.output.report import Finding, Report
    from perftop.session.interval import Interval
    from perftop.session.run_sums import Totals
    from perftop.session.session import Session

MIN_STEADY_STEP_NS, MIN_CALM_STEP_NS = 2_000_000_000, 5_000_000_000
"""Minimum time in ns between two verdicts while no episode begins or ends, and if, in addition,
nothing was lost for a minute. The span of a verdict is a multiple of each."""
MIN_WARNING_SHARE, MIN_ALARM_SHARE = 0.01, 0.05
"""Minimum share of their time that victims lose for the line to be orange or red."""
MIN_PAST_SHARE = 0.2
"""Minimum loss in a span for the loss to a cause to have lasted until then, as a share of the worst
loss to that cause."""
MAX_LAST_CAUSE_NS = 60_000_000_000
"""Time in ns for which the last cause is shown after its end."""
HISTORY_CELLS = 18
"""Width in cells of the history of losses below the verdict."""
CALM_SIGN = "✓"
_NUMBER = re.compile(r"\d+(?:\.\d+)? %")


def loss_level(share: float) -> int:
    """Returns 0 for a lost share that is small or unknown, 1 for a warning, 2 for an alarm."""
    return (share >= MIN_WARNING_SHARE) + (share >= MIN_ALARM_SHARE)


def loss_cell(share: float, eighths: int = 8, max_eighths: int = 8) -> Run:
    """Returns a cell with a bar for a lost share, blank if unknown. `eighths`: height of the bar
    for the share 1; it is at most `max_eighths` high."""
    if not isfinite(share):
        return " ", "text"
    bar = theme.LEVELS[max(1, min(max_eighths, round(eighths * share)))]
    return bar, ("rule", "warn", "hot")[loss_level(share)]


class Loss(NamedTuple):
    """The loss to one cause, as a share of the time that tasks wanted to run."""

    share: float
    marker: str
    name: str


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    """The sentence, without a full stop at its end."""
    evidence: tuple[str, ...]
    marker: str
    severity: float
    """Share of their time that victims lose; at least MIN_ALARM_SHARE while an episode runs."""
    cause: tuple[str, str] = "", ""
    active_ns: int = 0
    duration_text: str = ""
    """How long the cause has been the worst, as text; '' if nothing is lost."""
    is_past: bool = False
    losses: tuple[Loss, ...] = ()
    """The losses by cause, the greatest first, without overlaps."""
    wanted_s: float = nan
    """Seconds for which tasks ran or wanted to run; NaN if unknown."""
    span_s: float = 0.0
    loss_history: tuple[float, ...] = ()
    """Lost shares of HISTORY_CELLS parts of the last ten minutes; NaN where unknown."""
    remedy: str = ""
    """A remedy for the cause; '' if that is unknown or nothing is lost."""
    wait_start_ns: int | None = None
    """Monotonic time in ns since which tasks have waited for a CPU, if that is the cause."""
    report: Report | None = field(default=None, compare=False)
    """The report whose first line is the verdict, without checks; None if there is none."""

    def with_first_evidence(self, piece: str) -> Verdict:
        return replace(self, evidence=(piece, *self.evidence))

    def with_current_state(self, verdict: Verdict | None) -> Verdict:
        """Returns this verdict on a past moment, with the verdict on the present added to its
        evidence."""
        if verdict is None or verdict.report is None:
            return self
        lost = f"{percent(verdict.lost_share)} %" if verdict.level else "nothing"
        return replace(self, evidence=(*self.evidence[:1], f"now: {lost} lost", *self.evidence[1:]))

    @property
    def loss(self) -> tuple[object, ...]:
        """The key that identifies the loss in later verdicts."""
        return self.cause, self.wait_start_ns

    @property
    def lost_share(self) -> float:
        return sum(loss.share for loss in self.losses)

    @property
    def level(self) -> int:
        """0: calm; 1: little is lost; 2: much is lost."""
        return loss_level(self.severity)

    @property
    def marker_style(self) -> str:
        alarm = "warn" if self.is_past else "alarm"
        return ("good" if self.marker == CALM_SIGN else "dim", "warn", alarm)[self.level]


class _VerdictCache:
    """The verdict on the shown moment of a session, computed at most every VERDICT_STEP_NS."""

    def __init__(self, session: Session) -> None:
        from perftop.output.recent_losses import RecentLosses

        self.losses = RecentLosses(session)
        self._verdict: Verdict | None = None
        self._job_verdict: Verdict | None = None
        """The verdict on a watched job that has ended; None while it runs."""
        self._inputs = 0.0, False
        """Inputs of the last verdict: the length in s of the selected range (0: no range), and
        whether all episodes of a recording were known."""
        self._until_ns = 0
        """Monotonic time in ns at which the verdict's span ends."""
        self._waiting_s = 0.0
        """Seconds for which tasks had waited in this session at the last verdict."""
        self._running: tuple[list[Episode], int] = [], 0
        """The running episodes, and the monotonic time in ns at which they last changed."""
        self._worst_since_ns = 0
        """Monotonic time in ns since which the cause of the current loss has been the costliest."""
        self._worst: Verdict | None = None
        """The verdict of the greatest severity on the current loss; None if nothing is lost."""
        self._last_loss: tuple[object, str, int] = None, "", -MAX_LAST_CAUSE_NS
        """Key of the last loss, a text about it with its duration, and its end (monotonic ns)."""

    def compute(self, session: Session, interval: Interval, *, is_range: bool) -> Verdict:
        is_past = session.is_past(interval)
        end_ns = interval.time_ns if is_past else session.now_ns
        verdict = self._verdict
        recording = session.log.recording
        knows_episodes = recording is not None and recording.is_complete
        basis = interval.elapsed_s if is_range else 0.0, knows_episodes
        has_same_basis, self._inputs = basis == self._inputs, basis
        if verdict is not None and has_same_basis:
            age_ns = end_ns - self._until_ns
            if age_ns == 0 or (not is_past and 0 < age_ns < self._step_ns(session, verdict)):
                return verdict
        self._until_ns = end_ns
        if is_past:
            self._verdict = _past_verdict(session, interval, is_range=is_range)
        else:
            self._verdict = self._live_verdict(session)
        shares = loss_history(session).shares(history_edges(end_ns, HISTORY_CELLS)).tolist()
        self._verdict = replace(self._verdict, loss_history=(*shares,))
        return self._verdict

    def _step_ns(self, session: Session, verdict: Verdict) -> int:
        """Returns the minimum time in ns from this verdict to the next. It is longer while the same
        episodes run and either tasks still wait or nothing is lost."""
        if session.running != self._running[0]:
            self._running = [*session.running], session.now_ns
        has_changed = session.now_ns - self._running[1] <= CAUSE_ENDED_AFTER_NS + VERDICT_STEP_NS
        waited_s = session.run.times.waiting_s - self._waiting_s
        is_calm = not (verdict.level or waited_s > MIN_WARNING_SHARE * verdict.wanted_s)
        if has_changed or not verdict.span_s or not (is_calm or (verdict.level and waited_s)):
            return VERDICT_STEP_NS
        was_calm = self._until_ns - self._last_loss[2] >= MAX_LAST_CAUSE_NS
        is_full = 1e9 * verdict.span_s >= VERDICT_SPAN_NS
        return MIN_CALM_STEP_NS if is_calm and was_calm and is_full else MIN_STEADY_STEP_NS

    def _live_verdict(self, session: Session) -> Verdict:
        """Returns the verdict on the last seconds, with the time since which its cause is the
        worst. If the cause has ended, the verdict covers only the time since its end."""
        now_ns, self._waiting_s = session.now_ns, session.run.times.waiting_s
        totals = self.losses.add_totals(session)
        if session.neighbours.watched_job.has_ended and totals.times.threads:
            if self._job_verdict is None:
                self._worst = None  # the verdict on the whole job includes this loss
                tasks = session.recent_snapshot
                verdict = _compute_verdict(session, totals.copy(), tasks, is_past=True)
                self._job_verdict = verdict.with_first_evidence(_whole_run_text(verdict))
            return self._job_verdict
        self._job_verdict = None
        verdict = _make_verdict(session, *self.losses.last_seconds(session, totals))
        earlier_totals = [
            state for state in self.losses.states if state.end_ns <= now_ns - CAUSE_ENDED_AFTER_NS
        ]
        if verdict.level and earlier_totals:
            recent_losses = totals.losses.minus(earlier_totals[-1].losses)
            has_ended = not recent_losses.share(verdict.cause) >= MIN_WARNING_SHARE
            if verdict.report is not None and now_ns - earlier_totals[-1].end_ns < VERDICT_SPAN_NS:
                has_ended |= self.losses.waits.has_ended(verdict.report)
            if has_ended:
                newest_totals = totals.minus(earlier_totals[-1])
                verdict = _compute_verdict(session, newest_totals, session.recent_snapshot)
        if verdict.level and verdict.report is not None:
            start_ns = self.losses.waits.start_ns(verdict.report.named_findings[0])
            verdict = replace(verdict, wait_start_ns=start_ns)
        if self._worst is not None and (not verdict.level or verdict.loss != self._worst.loss):
            self._end_loss(self._worst, session, totals)
        if not verdict.level:
            _, text, end_ns = self._last_loss
            if now_ns - end_ns >= MAX_LAST_CAUSE_NS:
                return verdict
            ago_text = running_time((now_ns - end_ns) // 10**9)
            return verdict.with_first_evidence(f"{ago_text} ago {text}")
        if self._worst is None:
            last_loss, _, end_ns = self._last_loss
            start_ns = now_ns - verdict.active_ns
            # The seconds of an earlier episode do not count.
            running = [e.start_ns for e in session.running if group_key(e) == verdict.cause]
            start_ns = max(start_ns, min(running, default=start_ns))
            is_same = verdict.loss == last_loss
            self._worst_since_ns = max(start_ns, end_ns) if is_same else start_ns
            if verdict.wait_start_ns is not None:
                self._worst_since_ns = verdict.wait_start_ns
        if self._worst is None or verdict.severity > self._worst.severity:
            self._worst = verdict
        lasted_s = (now_ns - self._worst_since_ns) // 10**9
        if not lasted_s:
            return verdict
        duration_text = f"for {running_time(lasted_s)}"
        return replace(verdict, duration_text=duration_text).with_first_evidence(duration_text)

    def _end_loss(self, worst: Verdict, session: Session, totals: Totals) -> None:
        """Stores the sentence about an ended loss. `worst`: its verdict when it was most severe."""
        assert worst.report is not None
        start_ns, end_ns = self._worst_since_ns, session.now_ns
        # Tasks on one of many CPUs can lose much of their time, but little of the machine's.
        worst_share = worst.report.named_findings[0].share
        min_share = min(MIN_WARNING_SHARE, MIN_PAST_SHARE * worst_share)
        for state in reversed(self.losses.states):
            is_lost = totals.losses.minus(state.losses).share(worst.cause) >= min_share
            # If the screen was paused, it is unknown when the loss ended during the pause.
            if is_lost and end_ns - state.end_ns <= VERDICT_SPAN_NS:
                break
            end_ns = state.end_ns
        past_verdict = _compute_verdict(
            session, worst.report.totals, session.snapshot, is_past=True
        )
        length_text = running_time(max(1, (end_ns - start_ns) // 10**9))
        self._worst = None
        self._last_loss = worst.loss, f"for {length_text}: {past_verdict.text}", end_ns


def verdict_at(session: Session, interval: Interval, *, is_range: bool = False) -> Verdict | None:
    """Returns the verdict on the interval with `is_range`, or else on the span that ends with the
    interval or, live, with the newest sample; None if the session has no sums for the span."""
    if session.history is None if session.is_past(interval) else not session.run.tracks_losses:
        return None
    caches: dict[bool, _VerdictCache] = session.caches["verdict"]
    key = session.is_past(interval)  # the verdict on the present is kept while the past is shown
    if key not in caches:
        caches[key] = _VerdictCache(session)
    return caches[key].compute(session, interval, is_range=is_range)


def loss_history(session: Session) -> LossHistory:
    """Returns the losses that the live verdicts or the pass over the recording have found."""
    if session.log.recording is not None:
        return session.log.recording.loss_history
    caches: dict[bool, _VerdictCache] = session.caches["verdict"]
    return caches[False].losses.history if False in caches else LossHistory([None])


def _past_verdict(session: Session, interval: Interval, *, is_range: bool) -> Verdict:
    span_ns = round(interval.elapsed_s * 1e9)
    if not is_range:
        span_ns = max(span_ns, min(VERDICT_SPAN_NS, max_read_ns(session)))
    hello, end_ns = session.hello, interval.time_ns
    recording, seen_ns = session.log.recording, end_ns - hello.raw_ns
    if recording is not None and not is_range and seen_ns < FIRST_VERDICT_NS:
        known_ns = session.until_ns - hello.raw_ns
        if not recording.is_complete or known_ns >= FIRST_VERDICT_NS:
            return _pending_verdict(seen_ns / 1e9)
    # The moment is the end of a job, whose whole recording is in the history and short enough.
    begin_ns, whole_ns = session.past.begin_ns, session.until_ns - hello.raw_ns
    is_at_end = recording is not None and recording.is_complete and seen_ns >= whole_ns
    has_job = session.neighbours.watched_job.name is not None and not is_range
    has_whole_run = begin_ns is not None and begin_ns <= hello.raw_ns + hello.sample_ns
    is_whole_run = is_at_end and has_job and has_whole_run and seen_ns <= max_read_ns(session)
    if is_whole_run:
        span_ns = seen_ns
    totals = session.totals_between(end_ns - span_ns, end_ns)
    if totals is None:
        text = "No verdict: the samples of this moment are not kept"
        return Verdict(text, (), theme.UNKNOWN, 0.0, is_past=True)
    verdict = _compute_verdict(session, totals, interval.snapshot, is_past=True)
    if is_range or not verdict.level:  # the evidence of a calm verdict names the span
        return verdict
    text = _whole_run_text(verdict) if is_whole_run else _past_span_text(session, totals)
    return verdict.with_first_evidence(text)


def _whole_run_text(verdict: Verdict) -> str:
    return f"in all {long_duration(round(1e9 * verdict.span_s))}"


def _past_span_text(session: Session, totals: Totals) -> str:
    span = long_duration(round(1e9 * totals.elapsed_s))
    return f"{span} until {time_of_day(session.unix_s(totals.end_ns))}"


def _pending_verdict(measured_s: float) -> Verdict:
    """Returns a placeholder for the first verdict while too little time has been measured for
    one."""
    text = f"Watching: {measured_s:.0f} of {VERDICT_SPAN_NS // 10**9} s seen"
    pieces = ("a first verdict after 3 s, a firm one after 10 s",)
    return Verdict(text, pieces, "…", 0.0, span_s=measured_s)


def _compute_verdict(
    session: Session, totals: Totals, snapshot: TaskSnapshot, *, is_past: bool = False
) -> Verdict:
    """Returns the verdict on the span of these totals. `snapshot`: the tasks at its end."""
    from perftop.output.recent_losses import make_report

    report = make_report(session, totals, snapshot, is_past=is_past)
    return _make_verdict(session, totals, report, is_past=is_past)


def _make_verdict(
    session: Session, totals: Totals, report: Report | None, *, is_past: bool = False
) -> Verdict:
    """Returns the verdict on these totals. `report`: the report on them, if there is one."""
    from perftop.output.why_text import answer

    if not is_past and totals.end_ns - session.run.start_ns < FIRST_VERDICT_NS:
        return _pending_verdict(totals.elapsed_s)
    if report is None:
        text = f"No verdict: no samples in {long_duration(VERDICT_SPAN_NS)}"
        return Verdict(text, (), theme.UNKNOWN, 0.0, is_past=is_past)
    text = answer(report).removesuffix(".")
    losses, wanted_s = _losses_by_name(report.findings), report.sums.whole_s
    if report.is_too_short:
        losses, wanted_s = (), nan
    span_s = totals.elapsed_s
    if not report.named_findings:
        is_known = totals.times.has_waits and isfinite(report.lost_ratio)
        sign = CALM_SIGN if is_known else "·"
        busy = report.interval.values.mean("util", session.selected)
        is_busy_known = report.job is None and isfinite(busy)
        busy_pieces = (f"CPUs {short_percent(busy)} busy",) if is_busy_known else ()
        samples = count_noun(totals.span.sample_count, "sample")
        span = f"{long_duration(round(1e9 * span_s))}, {samples}"
        pieces = (_past_span_text(session, totals), samples) if is_past else (span,)
        tasks = totals.times.tasks if report.job is None else totals.times.threads
        longest = max(tasks.values(), key=lambda task: task.longest_s, default=NO_TIMES)
        if longest.longest_s:
            wait = f"longest wait {brief_duration(longest.longest_s)} or more ({longest.comm})"
            pieces = wait, *pieces
        pieces = *busy_pieces, *pieces
        verdict = Verdict(text, pieces, sign, 0.0)
    else:
        first = report.named_findings[0]
        has_episodes = first.active_s is not None and first.cause[1] != "scheduler"
        running = MIN_ALARM_SHARE if first.is_running and has_episodes else 0.0
        is_new = has_episodes and first.text not in text
        pieces = (*((first.text,) if is_new else ()), *first.evidence)
        severity, sign = max(first.share, first.victim_share, running), _marker(first.cause[0])
        active_ns = round(1e9 * (span_s if first.active_s is None else first.active_s))
        verdict = Verdict(text, pieces, sign, severity, first.cause, active_ns, remedy=first.hint)
    return replace(
        verdict, is_past=is_past, losses=losses, wanted_s=wanted_s, span_s=span_s, report=report
    )


def _marker(kind: str) -> str:
    return KINDS[kind].marker if kind in KINDS else theme.UNKNOWN


def _losses_by_name(findings: Sequence[Finding]) -> tuple[Loss, ...]:
    """Returns the losses, the greatest first, with short names of their causes. Findings with one
    name are added up: heat, for example, can stop CPUs and also lower their clock."""
    losses: dict[str, Loss] = {}
    for finding in findings:
        kind, cause = finding.cause
        short_text = cause_of(cause).short_text
        name = short_text or ("clock" if finding.unit == "cycles" else "halts")
        name = kind if kind == "ramp" else name
        if kind == "neighbour" and cause != "scheduler":
            name = finding.culprit
        known_loss = losses.get(name, Loss(0.0, _marker(kind), name))
        losses[name] = known_loss._replace(share=known_loss.share + finding.share)
    return tuple(sorted(losses.values(), key=lambda loss: -loss.share))


def verdict_line(verdict: Verdict, size: int, extra_evidence: Sequence[str] = ()) -> Line:
    """Returns the verdict in `size` cells, with the evidence and `extra_evidence` that fit."""
    level, text = verdict.level, safe_cells(verdict.text)
    style = verdict.marker_style if level else "text"
    edge, line_state = _edge_and_state(verdict)
    blank: Run = (" ", "text")
    runs: list[Run] = [edge, blank, (verdict.marker, verdict.marker_style), blank]
    text_style, position = "bright" if level else "text", 0
    for number in _NUMBER.finditer(text) if level else ():
        runs += [(text[position : number.start()], text_style), (number[0], style)]
        position = number.end()
    runs.append((text[position:], text_style))
    if width(runs) > size:
        return fit_runs(runs, size, style), line_state
    for piece in map(safe_cells, (*verdict.evidence, *extra_evidence)):
        if width(runs) + 3 + len(piece) < size:
            runs += [(" · ", "faint"), (piece, "text" if level else "dim")]
    return runs, line_state


def _edge_and_state(verdict: Verdict) -> tuple[Run, theme.LineState]:
    """Returns the first cell and the state of both rows of a verdict: red if much is lost now."""
    if verdict.level == 2 and not verdict.is_past:
        return (theme.SELECTED_SIGN, "alarm"), "victim"
    return (" ", "text"), "calm"


# --- the second row

MAX_BAR_WIDTH, MIN_BAR_WIDTH = 40, 26
"""Cells of the bar on a wide and on a narrow screen."""
MIN_WIDTH_FOR_BAR, MIN_WIDTH_FOR_WORDS = 140, 100
"""Minimum width in cells of a screen with the longer bar, and of one with words beside it."""
_CAUSE_STYLES = "loss-9", "steal", "over"
"""Styles of the second and of further causes in the bar."""
SHAPES_BY_GLYPHS = {"shapes": "▒░", "ascii": "x:"}
"""Characters for causes in the bar, used in turn, on a screen without colour or in ASCII."""
_VERBS = {"scheduler": "waited", "quota": "stopped", "stopped": "stopped"}
"""Verbs for tasks that lose time, by cause. For other causes, the verb is "lost"."""


def loss_line(
    verdict: Verdict, size: int, keys: Sequence[Piece], glyphs: Glyphs, label: str = "lost"
) -> Line:
    """Returns the row below the verdict: the lost share, a bar of the time that tasks wanted, its
    parts in words, and the history of losses. `keys`: keys for the right end, if they fit.
    `glyphs`: how causes are distinguished in the bar."""
    edge, line_state = _edge_and_state(verdict)
    style = verdict.marker_style if verdict.level or verdict.marker == CALM_SIGN else "text"
    is_known = bool(verdict.losses) or verdict.wanted_s > 0
    number = f"{percent(verdict.lost_share)} %" if is_known else "–"
    runs: list[Run] = [edge, (f"{label:>7} ", "dim"), (f"{number:<6}", style), (" ", "text")]
    bar_width = MAX_BAR_WIDTH if size >= MIN_WIDTH_FOR_BAR else MIN_BAR_WIDTH
    runs += _bar(verdict, bar_width, SHAPES_BY_GLYPHS.get(glyphs, ""))
    end = [*fit_line([*keys], size - width(runs) - 4, 3), (" ", "text")]
    room = size - width(runs) - width(end)
    strip: list[Run] = [("10 min ", "dim"), *map(loss_cell, verdict.loss_history)]
    wordings: list[list[Run]] = [[(verdict.duration_text, "text")]]
    if not verdict.duration_text or size >= MIN_WIDTH_FOR_WORDS:
        wordings = _loss_words(verdict)
    words_width = min(map(width, wordings), default=0)
    strip_width = width(strip) + (8 + words_width if words_width else 6)
    if any(map(isfinite, verdict.loss_history)) and strip_width <= room:
        end = [*strip, ("   ", "text"), *end]
        room -= width(strip) + 3
    words = next((w for w in wordings if width(w) + 5 <= room), [])
    return justify([*runs, ("  ", "text"), *words], end, size), line_state


def _bar(verdict: Verdict, size: int, shapes: str) -> list[Run]:
    """Returns a bar of the time that tasks wanted: first they ran, then they lost time to each
    cause. During the first VERDICT_SPAN_NS of a live session, it is shorter."""
    is_whole = verdict.is_past or verdict.span_s >= VERDICT_SPAN_NS / 1e9
    length_cells = size if is_whole else round(size * verdict.span_s / (VERDICT_SPAN_NS / 1e9))
    if not verdict.wanted_s > 0 or not length_cells:
        return [(" " * size, "text")]
    worst_style = "warn" if verdict.level < 2 or verdict.is_past else "alarm"
    keys = ["user-8", worst_style, *_CAUSE_STYLES]
    ends = [1 - verdict.lost_share]
    for loss in verdict.losses:
        ends.append(ends[-1] + loss.share)
    runs: list[Run] = []
    drawn_cells = 0
    for i, end in enumerate(ends):
        eighths = round(8 * length_cells * min(1.0, end))
        key = keys[min(i, len(keys) - 1)]
        if shapes:
            cells = round(eighths / 8) - drawn_cells
            sign = theme.USER if not i else shapes[(i - 1) % 2]
            runs.append((sign * cells, "text"))
            drawn_cells += max(0, cells)
            continue
        cells = eighths // 8 - drawn_cells
        if cells > 0:
            runs.append((theme.USER * cells, key))
            drawn_cells += cells
        if eighths % 8 and eighths // 8 == drawn_cells and i + 1 < len(ends):
            next_key = keys[min(i + 1, len(keys) - 1)]
            runs.append((" ▏▎▍▌▋▊▉"[eighths % 8], f"{key}/{next_key}"))
            drawn_cells += 1
    return [*runs, (" " * (size - width(runs)), "text")]


def _loss_words(verdict: Verdict) -> list[list[Run]]:
    """Returns texts that explain the parts of the bar, the longest first."""
    costly = [loss for loss in verdict.losses if loss.share >= MIN_WARNING_SHARE]
    if verdict.report is None and not costly:
        is_growing = 0 < verdict.span_s < VERDICT_SPAN_NS / 1e9
        return [[("grows as seconds come in" if is_growing else "", "dim")]]
    if verdict.report is None or len(costly) > 1:
        runs: list[Run] = []
        wordings = []
        for loss in costly:
            before = ("   " if runs else "") + (f"{loss.marker} " if loss.marker else "")
            runs = [*runs, (before, "dim"), (percent(loss.share), "text")]
            runs.append((f" {safe_cells(loss.name)}", "dim"))
            wordings.append(runs)
        return wordings[::-1]
    if not verdict.wanted_s > 0:
        return []
    lost_s = verdict.lost_share * verdict.wanted_s
    ran_text, lost_text = (
        short_duration(s) if s < 0.01 else f"{s:.{1 if s >= 1 else 2}f} s"
        for s in (verdict.wanted_s - lost_s, lost_s)
    )
    findings = verdict.report.findings
    verb = _VERBS.get(findings[0].cause[1], "lost") if findings else "lost"
    parts: list[Run] = [("ran ", "dim"), (ran_text, "text"), (f", {verb} ", "dim")]
    parts.append((lost_text, "text"))
    base_text = f"of the time tasks want{'ed' if verdict.is_past else ''}: "
    return [[(base_text, "dim"), *parts], parts]
