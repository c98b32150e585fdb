"""An axis of time: which cells of a line are which moment, the clock times beside it, and what went
on when. The newest is at the right edge. Pure; only `edges` brings numpy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from perftop.base.times import clock
from perftop.draw import theme
from perftop.draw.strips import Run, foreign
from perftop.samples.episode import Episode
from perftop.session.history import edges
from perftop.session.sample_history import Times
from perftop.session.session import Session
from perftop.tui.shared import episode_style

Unix = Callable[[int], float]
"""From raw ns to Unix time, as a session knows it."""

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
"""Distances of ticks that fall on clock times people look for."""
TICK = "│"
LATE_NS, LATE_SAMPLES = 6_000_000_000, 4
"""Episodes are told in the order in which they were seen to end: after the longer of these at most,
where a gap in the samples had to be waited for."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Bins side by side, all equally long; a bin holds what ended after its start up to its end."""

    end_ns: int
    """Raw; of the last bin, and a multiple of their length, so that bins stay what they are while
    time goes on."""
    bin_ns: int
    bins: int
    wide: int
    """Cells of a bin."""
    now_ns: int
    """Where time stands: in the last bin, which holds nothing later."""

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.bins * self.bin_ns

    @property
    def width(self) -> int:
        """In cells."""
        return self.bins * self.wide

    @property
    def edges(self) -> Times:
        found = edges(self.end_ns, self.bin_ns, self.bins)
        found[-1] = self.now_ns
        return found

    def bin(self, time_ns: int) -> int:
        """The bin that holds this moment; below 0 or beyond the last one where it is not seen."""
        return -(-(time_ns - self.start_ns) // self.bin_ns) - 1

    def span(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """The first and the last bin with something of this span, as far as they are seen."""
        first = self.bin(start_ns + 1)  # it began when the bin before had ended
        last = max(first, self.bin(end_ns))
        if last < 0 or first >= self.bins:
            return None
        return max(0, first), min(self.bins - 1, last)


def fitted(now_ns: int, sample_ns: int, window_s: float, room: int) -> Axis:
    """The finest axis of at most `room` cells on which the window has room: bins are whole samples,
    and where there is more room than samples, samples are several cells wide."""
    samples = max(1, round(window_s * 1e9 / sample_ns))
    wide = max(1, room // samples)
    bins = max(1, room // wide)
    bin_ns = -(-samples // bins) * sample_ns
    return Axis(-(-now_ns // bin_ns) * bin_ns, bin_ns, bins, wide, now_ns)


def times(axis: Axis, unix: Unix) -> str:
    """Ticks with their clock times to the right of them, in a line as wide as the axis."""
    zero_ns = round(unix(0) * 1e9)  # once and for all: else ticks tremble by a rounding
    start_ns = zero_ns + axis.start_ns
    step_s = next((s for s in STEPS_S if _fits(axis, s)), STEPS_S[-1])
    local_s = time.localtime(start_ns // 10**9).tm_gmtoff
    first = -(-(start_ns + local_s * 10**9) // (step_s * 10**9))
    line = ""
    for tick in range(first, first + axis.bins + 1):
        moment_s = tick * step_s - local_s
        at = (moment_s * 10**9 - start_ns) // axis.bin_ns * axis.wide
        text = TICK + clock(moment_s, step_s)
        if at + len(text) >= axis.width:
            break
        line = line.ljust(at)[:at] + text
    return line.ljust(axis.width)


def _fits(axis: Axis, step_s: int) -> bool:
    """Ticks so far apart leave room for their clock times."""
    return step_s * 10**9 * axis.wide >= (len(clock(0, step_s)) + 3) * axis.bin_ns


def episodes(axis: Axis, session: Session) -> list[Episode]:
    """Those that run, and those that have ended since the axis begins."""
    least_ns = axis.start_ns - max(LATE_NS, LATE_SAMPLES * session.hello.sample_ns)
    ended = takewhile(lambda e: (e.end_ns or 0) >= least_ns, reversed(session.ended))
    return [*session.running, *ended]


def mildest_first(episodes: Iterable[Episode]) -> list[Episode]:
    """What is drawn later is drawn over it."""
    return sorted(episodes, key=episode_style.rank, reverse=True)


def mark(episode: Episode, shown_ns: int | None = None) -> Run:
    """How an episode is marked, on an axis and in rows: its kind, and how bad it is; a moment at
    which it is over says that, too."""
    over = shown_ns is not None and episode.end_ns is not None and episode.end_ns <= shown_ns
    return episode_style.sign(episode), episode_style.severity(episode, over=over)


def cells(axis: Axis, episode: Episode, shown_ns: int) -> tuple[range, bool] | None:
    """Where it is seen when time stands at `shown_ns`, and whether its beginning is."""
    if episode.start_ns > shown_ns:
        return None
    seen = axis.span(episode.start_ns, shown_ns if episode.end_ns is None else episode.end_ns)
    if seen is None:
        return None
    first, last = seen
    found = range(first * axis.wide, (last + 1) * axis.wide)
    return found, episode.start_ns >= axis.start_ns


def begins(axis: Axis, episodes: Iterable[Episode], shown_ns: int) -> dict[int, Run]:
    """Signs by cell, where episodes begin; of two at one moment that of the worse."""
    signs = {}
    for episode in mildest_first(episodes):
        seen = cells(axis, episode, shown_ns)
        if seen is not None and seen[1]:
            signs[seen[0].start] = mark(episode, shown_ns)
    return signs


def rule(axis: Axis, episodes: Iterable[Episode], shown_ns: int, blank: int = 0) -> list[Run]:
    """The line of the axis: a sign where each episode begins, a stroke while it lasts. The first
    `blank` cells are of a time of which nothing is known."""
    line: list[Run] = [(" ", "text")] * blank + [(theme.RULE, "rule")] * (axis.width - blank)
    for episode in mildest_first(episodes):
        seen = cells(axis, episode, shown_ns)
        if seen is not None:
            sign, key = mark(episode, shown_ns)
            for cell in seen[0]:
                line[cell] = (theme.CLOCK, key)
            if seen[1]:
                line[seen[0].start] = (sign, key)
    return line


def history(
    axis: Axis, episodes: Iterable[Episode], shown_ns: int, first_ns: int | None, unix: Unix,
    steps: Iterable[int] = (), marks: Iterable[Episode] = (),
) -> list[Run]:  # fmt: skip
    """The line of the axis, and where history does not reach back to its left end, from when on
    there is any. Where nothing else is told: `marks` by their names, and `steps`, cells with a
    faint sign."""
    begin = axis.bins if first_ns is None else min(axis.bins, max(0, axis.bin(first_ns)))
    blank = begin * axis.wide
    line = rule(axis, episodes, shown_ns, blank)
    for moment in marks:
        _name(line, axis, moment, shown_ns)
    for cell in steps:
        if line[cell] == (theme.RULE, "rule"):
            line[cell] = (theme.STEP, "faint")
    if first_ns is not None and blank:
        since = f"{clock(unix(first_ns))} "
        texts = (f"history from {since}", f"from {since}", "")
        line[:blank] = [(next(t for t in texts if len(t) <= blank).rjust(blank), "dim")]
    return line


def _name(line: list[Run], axis: Axis, moment: Episode, shown_ns: int) -> None:
    """A tick, also while an episode lasts, with its label to the right of it, up to what is told
    there."""
    seen = cells(axis, moment, shown_ns)
    if seen is None:
        return
    text = TICK + foreign(moment.evidence["label"])
    free: tuple[str, ...] = theme.RULE, theme.CLOCK
    for cell, sign in zip(range(seen[0].start, axis.width), text, strict=False):
        if line[cell][0] not in free:
            break
        line[cell], free = (sign, "dim"), (theme.RULE,)
