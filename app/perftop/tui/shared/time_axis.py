"""A time axis: the moment of each cell of a line, clock times, and markers for episodes. The newest
moment is at the right edge. The axis is drawn below its chart, never over values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, takewhile
from math import ceil

from perftop.base.format import time_of_day
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import foreign
from perftop.model.episode import Episode
from perftop.session.history import edges
from perftop.session.history_chunk import Times
from perftop.session.session import Session
from perftop.tui.shared import episode_style

Unix = Callable[[int], float]
"""Converts raw ns to Unix time in seconds; `Session.unix` is such a function."""

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
"""Possible distances of ticks, in seconds; such ticks fall on round clock times."""
FIT_S = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 25, 30, 35, 40, 50, 60, 75, 90, 105, 120, 150,
         180, 210, 240, 300, 360, 420, 500)  # fmt: skip
"""Lengths of the axis in seconds while the history is shorter than the window. There are few,
because the time per cell changes with each."""
TICK = "┬"
NAME = "│"
"""The character before the label of a mark."""
GAP = 3
"""Minimum cells between two clock times."""
_QUARTER_S = 900
_RULE: Run = (theme.RULE, "rule")


@dataclass(frozen=True, slots=True)
class Axis:
    """A time axis of adjacent bins of equal length. A bin contains the samples after its start, up
    to and including its end."""

    end_ns: int
    """Raw ns at which the last bin ends. It is a multiple of the bin length, so that the edges of
    bins do not change while time passes."""
    bin_ns: int
    bins: int
    """Number of bins; each bin is one cell."""
    now_ns: int
    """Raw ns of the newest moment, which is in the last bin."""

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.bins * self.bin_ns

    @property
    def width(self) -> int:
        return self.bins

    @property
    def edges(self) -> Times:
        found = edges(self.end_ns, self.bin_ns, self.bins)
        found[-1] = self.now_ns
        return found

    def bin(self, time_ns: int) -> int:
        """Returns the bin that contains this moment; below 0 or beyond the last bin if the moment
        is off the axis."""
        return -(-(time_ns - self.start_ns) // self.bin_ns) - 1

    def span(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Returns the first and the last bin on the axis that overlap this span; None if no bin
        does."""
        first = self.bin(start_ns + 1)  # a start on an edge belongs to the bin after the edge
        last = max(first, self.bin(end_ns))
        if last < 0 or first >= self.bins:
            return None
        return max(0, first), min(self.bins - 1, last)


def fitted(now_ns: int, window_s: float, room: int, first_ns: int | None = None) -> Axis:
    """Returns the finest axis of `room` cells that covers the window, or the part of the window
    since `first_ns`. The distance of the ticks is a multiple of the bin length. Bins may be shorter
    than the sampling interval."""
    window_ns = window_s * 1e9
    if first_ns is not None:
        past_ns = now_ns - first_ns
        window_ns = min(window_ns, next((s * 1e9 for s in FIT_S if s * 1e9 >= past_ns), window_ns))
    least_ns = max(1, ceil(window_ns / room))
    steps_ns = (s * 10**9 for s in STEPS_S if s * 10**9 >= _label_width(s) * least_ns)
    step_ns = next(steps_ns, None)
    bin_ns = least_ns if step_ns is None else step_ns // (step_ns // least_ns)
    return Axis(-(-now_ns // bin_ns) * bin_ns, bin_ns, room, now_ns)


# --- clock times


def _label_width(step_s: int) -> int:
    """Returns the cells needed for a clock time and the gap after it."""
    return len(time_of_day(0, step_s)) + GAP


def ticks(axis: Axis, unix: Unix) -> list[tuple[int, str]]:
    """Returns the cells of round clock times and their texts, from the left."""
    steps_s = (s for s in STEPS_S if s * 10**9 >= _label_width(s) * axis.bin_ns)
    moments = round_times(axis.start_ns, next(steps_s, STEPS_S[-1]), unix)
    found = (((at_ns - axis.start_ns) // axis.bin_ns, text) for at_ns, text in moments)
    return list(takewhile(lambda tick: tick[0] < axis.bins, found))


def round_times(since_ns: int, step_s: int, unix: Unix) -> Iterator[tuple[int, str]]:
    """Yields, without end, the moments from `since_ns` on (in raw ns) at which local time is a
    multiple of the step, each with its clock time as text."""
    zero_ns = round(unix(0) * 1e9)  # converted once; otherwise rounding would make ticks jitter
    start_ns = zero_ns + since_ns
    local_s = _utc_offset_s(start_ns // (_QUARTER_S * 10**9))
    first = -(-(start_ns + local_s * 10**9) // (step_s * 10**9))
    for at_s in count(first * step_s - local_s, step_s):
        yield at_s * 10**9 - zero_ns, _clock(at_s, step_s)


@lru_cache(maxsize=16)
def _utc_offset_s(quarter: int) -> int:
    """Returns the offset of local time from UTC, in seconds, for a quarter of an hour given by its
    number since the epoch. Time zones change their offset only between two quarters."""
    return time.localtime(quarter * _QUARTER_S).tm_gmtoff


_clock = lru_cache(maxsize=256)(time_of_day)
"""Formats a clock time; cached, because a tick stays on the axis for many refreshes."""


def times(axis: Axis, unix: Unix) -> str:
    """Returns a line as wide as the axis, with a clock time below each tick."""
    line = " " * axis.width
    for cell, text in ticks(axis, unix):
        start = cell - len(text) // 2
        if start >= 0 and start + len(text) <= axis.width:
            line = line[:start] + text + line[start + len(text) :]
    return line


# --- episodes


def episodes(axis: Axis, session: Session) -> list[Episode]:
    """Returns the episodes that ran at any moment of the axis."""
    return session.episodes(axis.start_ns, axis.now_ns)


def mildest_first(episodes: Iterable[Episode]) -> list[Episode]:
    """Returns the episodes in drawing order: the worst episode is drawn last, over the others."""
    return sorted(episodes, key=episode_style.rank, reverse=True)


def mark(episode: Episode, shown_ns: int | None = None) -> Run:
    """Returns the marker and the style of an episode, for an axis or a row. The style also shows
    whether the episode had ended by `shown_ns`."""
    over = shown_ns is not None and episode.end_ns is not None and episode.end_ns <= shown_ns
    return episode_style.sign(episode), episode_style.severity(episode, over=over)


def cells(axis: Axis, episode: Episode, shown_ns: int) -> tuple[range, bool] | None:
    """Returns the cells of an episode at the moment `shown_ns`, and whether its start is on the
    axis; None if the episode is not visible."""
    if episode.start_ns > shown_ns:
        return None
    seen = axis.span(episode.start_ns, shown_ns if episode.end_ns is None else episode.end_ns)
    return seen and (range(seen[0], seen[1] + 1), episode.start_ns >= axis.start_ns)


def begins(axis: Axis, episodes: Iterable[Episode], shown_ns: int) -> dict[int, Run]:
    """Returns the markers of the cells in which episodes begin; if two begin in one cell, the
    marker of the worse episode."""
    signs = {}
    for episode in mildest_first(episodes):
        seen = cells(axis, episode, shown_ns)
        if seen is not None and seen[1]:
            signs[seen[0].start] = mark(episode, shown_ns)
    return signs


def strokes(
    line: list[Run], episodes: Iterable[Episode], shown_ns: int,
    cells_of: Callable[[Episode], tuple[range, bool] | None],
) -> None:  # fmt: skip
    """Writes each episode onto the line: a marker where it begins, a stroke while it lasts.
    `cells_of`: returns the cells of an episode, and whether its start is among them."""
    for episode in mildest_first(episodes):
        if (seen := cells_of(episode)) is not None:
            cells, begins = seen
            sign, style = mark(episode, shown_ns)
            line[cells.start : cells.stop] = [(theme.CLOCK, style)] * len(cells)
            if begins:
                line[cells.start] = (sign, style)


def rule(axis: Axis, episodes: Iterable[Episode], shown_ns: int, blank: int = 0) -> list[Run]:
    """Returns the line of the axis, with a marker where each episode begins and a stroke while it
    lasts. The first `blank` cells are from before the history and are empty."""
    line: list[Run] = [(" ", "text")] * blank + [_RULE] * (axis.width - blank)
    strokes(line, episodes, shown_ns, lambda episode: cells(axis, episode, shown_ns))
    return line


def history(
    axis: Axis, episodes: Iterable[Episode], shown_ns: int, first_ns: int | None, unix: Unix,
    steps: Iterable[int] = (), marks: Iterable[Episode] = (), *, inside: bool = False,
) -> list[Run]:  # fmt: skip
    """Returns the line of the axis with ticks. If the history does not reach the left end of the
    axis, the line states the time at which the history begins. Free cells show the labels of
    `marks`, and a faint sign at the cells in `steps`. `inside`: clock times are written into free
    cells of the line, because they have no line of their own."""
    blank = axis.bins if first_ns is None else min(axis.bins, max(0, axis.bin(first_ns)))
    line = rule(axis, episodes, shown_ns, blank)
    free = {cell for cell, run in enumerate(line) if run == _RULE}
    for moment in marks:
        free -= _write_name(line, axis, moment, shown_ns)
    for cell in free.intersection(steps):
        line[cell] = (theme.STEP, "faint")
    for cell, text in ticks(axis, unix):
        start = cell - len(text) // 2
        if inside and free.issuperset(range(start - 1, start + len(text) + 1)):
            line[start - 1 : start + len(text) + 1] = [(c, "dim") for c in f" {text} "]
        elif not inside and cell in free:
            line[cell] = (TICK, "faint")
    if first_ns is not None and blank:
        since = f"{time_of_day(unix(first_ns))} "
        texts = (f"history from {since}", f"from {since}", "")
        line[:blank] = [(next(t for t in texts if len(t) <= blank).rjust(blank), "dim")]
    return line


def _write_name(line: list[Run], axis: Axis, moment: Episode, shown_ns: int) -> set[int]:
    """Writes a stroke, which may replace the stroke of an episode, and the mark's label to the
    right of it, up to the next cell in use. Returns the cells written."""
    seen, taken = cells(axis, moment, shown_ns), set()
    text = NAME + foreign(moment.evidence["label"])
    free: tuple[str, ...] = theme.RULE, theme.CLOCK
    for cell, sign in zip(range(seen[0].start, axis.width) if seen else (), text, strict=False):
        if line[cell][0] not in free:
            break
        line[cell], free = (sign, "dim"), (theme.RULE,)
        taken.add(cell)
    return taken
