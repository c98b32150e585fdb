"""A time axis: the moment of each cell of a line, clock times, and signs for episodes. The newest
moment is at the right edge. Pure; only `edges` imports numpy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perftop.base.times import clock
from perftop.draw import theme
from perftop.draw.strips import Run, foreign
from perftop.samples.episode import Episode
from perftop.session.history import edges
from perftop.session.sample_history import Times
from perftop.session.session import Session
from perftop.tui.shared import episode_style

Unix = Callable[[int], float]
"""Converts raw ns to Unix time in seconds; a session has the relation."""

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
"""Distances of ticks, in seconds, that fall on round clock times."""
TICK = "│"


@dataclass(frozen=True, slots=True)
class Axis:
    """Bins of equal length, side by side; a bin holds the samples after its start up to its end."""

    end_ns: int
    """Raw ns at which the last bin ends; a multiple of the bin length, so that a bin covers the
    same span while time goes on."""
    bin_ns: int
    bins: int
    wide: int
    """Cells in each bin."""
    now_ns: int
    """Raw ns of the newest moment; it lies in the last bin, which holds nothing later."""

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.bins * self.bin_ns

    @property
    def width(self) -> int:
        """Width of the axis in cells."""
        return self.bins * self.wide

    @property
    def edges(self) -> Times:
        found = edges(self.end_ns, self.bin_ns, self.bins)
        found[-1] = self.now_ns
        return found

    def bin(self, time_ns: int) -> int:
        """The bin that holds this moment; below 0 or beyond the last bin if it is off the axis."""
        return -(-(time_ns - self.start_ns) // self.bin_ns) - 1

    def span(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """The first and the last bin on the axis that overlap this span; None if none does."""
        first = self.bin(start_ns + 1)  # a start on a boundary is in the bin after it
        last = max(first, self.bin(end_ns))
        if last < 0 or first >= self.bins:
            return None
        return max(0, first), min(self.bins - 1, last)


def fitted(now_ns: int, sample_ns: int, window_s: float, room: int) -> Axis:
    """The finest axis of at most `room` cells that covers the window. Bins are whole samples; if
    there is more room than samples, a bin is several cells wide."""
    samples = max(1, round(window_s * 1e9 / sample_ns))
    wide = max(1, room // samples)
    bins = max(1, room // wide)
    bin_ns = -(-samples // bins) * sample_ns
    return Axis(-(-now_ns // bin_ns) * bin_ns, bin_ns, bins, wide, now_ns)


def times(axis: Axis, unix: Unix) -> str:
    """A line as wide as the axis, with ticks and their clock times to the right of them."""
    zero_ns = round(unix(0) * 1e9)  # converted once: else rounding makes ticks jitter
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
    """Whether ticks at this distance leave room for their clock times."""
    return step_s * 10**9 * axis.wide >= (len(clock(0, step_s)) + 3) * axis.bin_ns


def episodes(axis: Axis, session: Session) -> list[Episode]:
    """Episodes that ran at any moment of the axis."""
    return session.episodes(axis.start_ns, axis.now_ns)


def mildest_first(episodes: Iterable[Episode]) -> list[Episode]:
    """Episodes in drawing order: the worst is drawn last, over the others."""
    return sorted(episodes, key=episode_style.rank, reverse=True)


def mark(episode: Episode, shown_ns: int | None = None) -> Run:
    """Sign and style of an episode, on an axis and in rows; the style also says whether it is over
    at `shown_ns`."""
    over = shown_ns is not None and episode.end_ns is not None and episode.end_ns <= shown_ns
    return episode_style.sign(episode), episode_style.severity(episode, over=over)


def cells(axis: Axis, episode: Episode, shown_ns: int) -> tuple[range, bool] | None:
    """The cells of an episode at the moment `shown_ns`, and whether its start is on the axis; None
    if it is not visible."""
    if episode.start_ns > shown_ns:
        return None
    seen = axis.span(episode.start_ns, shown_ns if episode.end_ns is None else episode.end_ns)
    if seen is None:
        return None
    first, last = seen
    found = range(first * axis.wide, (last + 1) * axis.wide)
    return found, episode.start_ns >= axis.start_ns


def begins(axis: Axis, episodes: Iterable[Episode], shown_ns: int) -> dict[int, Run]:
    """Signs by cell, where episodes begin; of two in one cell the worse is kept."""
    signs = {}
    for episode in mildest_first(episodes):
        seen = cells(axis, episode, shown_ns)
        if seen is not None and seen[1]:
            signs[seen[0].start] = mark(episode, shown_ns)
    return signs


def rule(axis: Axis, episodes: Iterable[Episode], shown_ns: int, blank: int = 0) -> list[Run]:
    """The line of the axis: a sign where each episode begins, a stroke while it lasts. The first
    `blank` cells are from before the history and stay empty."""
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
    """The line of the axis. If history does not reach its left end, the line says when history
    begins. Free cells show the names of `marks`, and a faint sign at the cells in `steps`."""
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
    """Writes a tick and the mark's label to the right of it, up to the next cell in use. The tick
    may stand on the stroke of an episode."""
    seen = cells(axis, moment, shown_ns)
    if seen is None:
        return
    text = TICK + foreign(moment.evidence["label"])
    free: tuple[str, ...] = theme.RULE, theme.CLOCK
    for cell, sign in zip(range(seen[0].start, axis.width), text, strict=False):
        if line[cell][0] not in free:
            break
        line[cell], free = (sign, "dim"), (theme.RULE,)
