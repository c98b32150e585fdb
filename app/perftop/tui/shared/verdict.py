"""The verdict: the first line of `why` over the last seconds, up to the shown moment.

A live session is summed up from its start, so the last seconds are the difference of two totals. A
past moment is summed up again from history.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from perftop.base.text import length, many, percent, rough, running
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import Line, fit_runs, foreign, width
from perftop.model.kinds import KINDS, kind_of
from perftop.output.sentences import cost

if TYPE_CHECKING:
    from perftop.model.kinds import Episode
    from perftop.output.why_report import Report
    from perftop.session.interval import Interval
    from perftop.session.losses import Totals
    from perftop.session.session import Session

SPAN_NS = 10_000_000_000
"""Span of a verdict in ns."""
FIRST_NS = 3_000_000_000
"""Span in ns before the first verdict."""
STEP_NS = 1_000_000_000
"""Minimum time between two verdicts, in ns."""
MAX_READ = 40_000
"""Maximum number of samples of CPUs that are read again for a past moment."""
WARN, ALARM = 0.01, 0.05
"""Shares of their time that the victims lose, from which the line is orange or red."""
RECENT_NS = 3_000_000_000
"""Time in ns after which a cause has ended if it took nothing since."""
LAST_SHOWN_NS = 60_000_000_000
"""How long the last cause is shown after its end, in ns."""
CALM = "✓"
_NUMBER = re.compile(r"\d+(?:\.\d+)? %")


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    """The sentence, without a full stop at its end."""
    pieces: tuple[str, ...]
    """Evidence, the most important first."""
    sign: str
    severity: float
    """Share of their time that the victims lose; 0 if nothing is lost or known."""
    cost: float = 0.0
    """CPUs that the cause costs."""
    cause: tuple[str, str] = "", ""
    acted_ns: int = 0
    """Time for which the cause was active, in ns."""
    has_episodes: bool = False
    """Whether episodes describe the cause, too."""
    is_past: bool = False

    @property
    def level(self) -> int:
        """0: calm; 1: little is lost; 2: much is lost."""
        return (self.severity >= WARN) + (self.severity >= ALARM)

    @property
    def sign_style(self) -> str:
        return ("good" if self.sign == CALM else "dim", "warn", "alarm")[self.level]

    def outweighs(self, groups: Sequence[list[Episode]]) -> bool:
        """Whether tasks lose more, without an episode, than in the worst of these groups of
        episodes."""
        worst = next((alike for alike in groups if kind_of(alike[0]).wrong), None)
        unseen = self.level > 0 and not self.has_episodes
        return unseen and (worst is None or self.cost > cost(worst))


class _Verdicts:
    """The verdict on the shown moment of a session, computed at most once a second."""

    def __init__(self) -> None:
        self._states: deque[Totals] = deque()
        """Totals since the start at the end of each second of the last ten."""
        self._verdict: Verdict | None = None
        self._until_ns = 0
        """Raw time up to which the verdict is."""
        self._since: tuple[tuple[str, str], int] = ("", ""), 0
        """Cause of the last verdict with a loss, and the raw time since which it is the worst."""
        self._last: tuple[str, int] = "", -LAST_SHOWN_NS
        """Text of that verdict, and the raw time at which it was last true."""

    def at(self, session: Session, interval: Interval) -> Verdict:
        past = is_past(session, interval)
        end_ns = interval.time_ns if past else session.now_ns
        verdict = self._verdict
        if verdict is not None and verdict.is_past == past:
            age_ns = end_ns - self._until_ns
            if age_ns == 0 or (0 < age_ns < STEP_NS and not past):
                return verdict
        self._until_ns = end_ns
        if past:
            self._verdict = _past_verdict(session, interval)
        else:
            self._verdict = self._live_verdict(session, interval)
        return self._verdict

    def _of_last_seconds(self, session: Session, totals: Totals) -> Totals:
        """Returns the part of the session's `totals` that is in the last seconds."""
        states = self._states
        states.append(totals.copy())
        while len(states) > 1 and states[1].end_ns <= totals.end_ns - SPAN_NS:
            states.popleft()
        if totals.end_ns - totals.start_ns < SPAN_NS + STEP_NS // 2:
            return totals
        first_ns = totals.end_ns - SPAN_NS
        reads = len(session.topology) * SPAN_NS // session.hello.sample_ns
        if abs(states[0].end_ns - first_ns) <= STEP_NS or (len(states) > 1 and reads > MAX_READ):
            return totals.since(states[0])
        return session.totals_between(first_ns, totals.end_ns) or totals

    def _live_verdict(self, session: Session, interval: Interval) -> Verdict:
        """Returns the verdict on the last seconds, with the time since which its cause is the
        worst. If the cause took nothing recently, it has ended: then the verdict is on the time
        since."""
        now_ns = session.now_ns
        totals = session.totals()
        verdict = _verdict(session, self._of_last_seconds(session, totals), interval)
        before = [state for state in self._states if state.end_ns <= now_ns - RECENT_NS]
        if verdict.level and before:
            recent = totals.since(before[-1])
            if not recent.losses.share(verdict.cause) >= WARN:
                verdict = _verdict(session, recent, interval)
        if not verdict.level:
            text, end_ns = self._last
            self._since = ("", ""), 0
            if now_ns - end_ns >= LAST_SHOWN_NS:
                return verdict
            ago = running((now_ns - end_ns) // 10**9)
            return replace(verdict, pieces=(f"{ago} ago: {text}", *verdict.pieces))
        if self._since[0] != verdict.cause:
            self._since = verdict.cause, now_ns - verdict.acted_ns
        self._last = verdict.text, now_ns
        lasting = f"for {running((now_ns - self._since[1]) // 10**9)}"
        return replace(verdict, pieces=(lasting, *verdict.pieces))


_KEPT: WeakKeyDictionary[Session, _Verdicts] = WeakKeyDictionary()


def is_past(session: Session, interval: Interval) -> bool:
    return not interval.seq or session.log.recording is not None


def verdict_at(session: Session, interval: Interval) -> Verdict | None:
    """Returns the verdict on the span that ends with the interval. For the newest interval of a
    live session, it ends with the newest sample. None if the session keeps no sums for it."""
    if session.history is None if is_past(session, interval) else not session.accounts:
        return None
    return _KEPT.setdefault(session, _Verdicts()).at(session, interval)


def _past_verdict(session: Session, interval: Interval) -> Verdict:
    step_ns, cpus = session.hello.sample_ns, len(session.topology)
    span_ns = max(round(interval.elapsed_s * 1e9), min(SPAN_NS, MAX_READ * step_ns // cpus))
    end_ns = interval.time_ns
    totals = session.totals_between(end_ns - span_ns, end_ns)
    if totals is None:
        text = "No verdict: the samples of this moment are not kept"
        return Verdict(text, (), theme.UNKNOWN, 0.0, is_past=True)
    return _verdict(session, totals, interval, past=True)


def _verdict(
    session: Session, totals: Totals, interval: Interval, *, past: bool = False
) -> Verdict:
    from perftop.output.why_report import report
    from perftop.output.why_text import answer

    if not past and totals.end_ns - session.run.start_ns < FIRST_NS:
        text = f"Watching: {totals.elapsed_s:.0f} of {SPAN_NS // 10**9} s seen"
        return Verdict(text, ("a first verdict after 3 s",), "…", 0.0)
    if not totals.samples:
        return Verdict(f"No verdict: no samples in {length(SPAN_NS)}", (), theme.UNKNOWN, 0.0,
                       is_past=past)  # fmt: skip
    why = report(session, totals.start_ns, past=past, totals=totals, whole=interval)
    text = answer(session, why).removesuffix(".")
    if not why.named:
        sign = CALM if why.times.has_waits and isfinite(why.sums.lost_ratio) else "·"
        return Verdict(text, _calm_pieces(session, why), sign, 0.0, is_past=past)
    first = why.named[0]
    pieces = (f"{percent(why.sums.lost_ratio)} % of all time lost", *first.evidence)
    sign = KINDS[first.cause[0]].sign if first.cause[0] in KINDS else theme.UNKNOWN
    return Verdict(
        text, pieces, sign, max(first.share, first.victim_share),
        first.lost_s / max(1e-9, why.elapsed_s), first.cause,
        round(1e9 * (why.elapsed_s if first.for_s is None else first.for_s)),
        not first.headline, past,
    )  # fmt: skip


def _calm_pieces(session: Session, why: Report) -> tuple[str, ...]:
    """Returns how much was looked at."""
    online = sum(bool(session.online[row]) for row in session.shown)
    pieces = []
    if why.job is None and online and isfinite(why.sums.lost_ratio):
        busy = float(why.sums.wanted_s[session.shown].sum()) / (online * why.elapsed_s)
        pieces.append(f"CPUs {rough(min(1.0, busy))} busy")
    return (*pieces, f"{length(round(why.elapsed_s * 1e9))}, {many(why.samples, 'sample')}")


def verdict_line(verdict: Verdict, size: int, more: Sequence[str] = ()) -> Line:
    """Returns the verdict in `size` cells, with the pieces of its evidence that fit. `more`: pieces
    to be added."""
    level, text = verdict.level, foreign(verdict.text)
    style = verdict.sign_style if level else "text"
    alarming = level == 2 and not verdict.is_past
    runs: list[Run] = [
        (theme.CHOSEN_SIGN if alarming else " ", "alarm" if alarming else "text"), (" ", "text"),
        (verdict.sign, verdict.sign_style), (" ", "text"),
    ]  # fmt: skip
    key, at = "bright" if level else "text", 0
    for number in _NUMBER.finditer(text) if level else ():
        runs += [(text[at : number.start()], key), (number[0], style)]
        at = number.end()
    runs.append((text[at:], key))
    if width(runs) > size:
        return fit_runs(runs, size, style), "victim" if alarming else "calm"
    for piece in map(foreign, (*verdict.pieces, *more)):
        if width(runs) + 3 + len(piece) < size:
            runs += [(" · ", "faint"), (piece, "text" if level else "dim")]
    return runs, "victim" if alarming else "calm"
