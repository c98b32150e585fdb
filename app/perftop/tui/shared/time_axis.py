"""A time axis: the moment of each cell of a line, clock times, and signs for episodes. The newest
moment is at the right edge. It is drawn below what it measures, never over values.
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
"""Converts raw ns to Unix time in seconds; a session has the relation."""

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
"""Distances of ticks, in seconds, that fall on round clock times."""
FIT_S = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 25, 30, 35, 40, 50, 60, 75, 90, 105, 120, 150,
         180, 210, 240, 300, 360, 420, 500)  # fmt: skip
"""Lengths of an axis while history is shorter than its window: few, as the length of a cell changes
with each."""
TICK = "┬"
NAME = "│"
"""Begins the name of a mark."""
GAP = 3
"""Minimum cells between two clock times."""
_QUARTER_S = 900
_RULE: Run = (theme.RULE, "rule")


@dataclass(frozen=True, slots=True)
class Axis:
    """Bins of equal length, side by side; a bin holds the samples after its start up to its end."""

    end_ns: int
    """Raw ns at which the last bin ends; a multiple of the bin length, so that a bin keeps
    its span while time passes."""
    bin_ns: int
    bins: int
    """Number of bins; each is a cell."""
    now_ns: int
    """Raw ns of the newest moment; it is in the last bin, which holds nothing later."""

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
        """The bin that holds this moment; below 0 or beyond the last bin if it is off the axis."""
        return -(-(time_ns - self.start_ns) // self.bin_ns) - 1

    def span(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """The first and the last bin on the axis that overlap this span; None if none does."""
        first = self.bin(start_ns + 1)  # a start on a boundary is in the bin after it
        last = max(first, self.bin(end_ns))
        if last < 0 or first >= self.bins:
            return None
        return max(0, first), min(self.bins - 1, last)


def fitted(now_ns: int, window_s: float, room: int, first_ns: int | None = None) -> Axis:
    """The finest axis of `room` cells that covers the window, or as much of it as there has been
    since `first_ns`. The distance of its ticks is a multiple of its bins, which may be shorter than
    a sample."""
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
    """Cells of a clock time and the gap to the next one."""
    return len(time_of_day(0, step_s)) + GAP


def ticks(axis: Axis, unix: Unix) -> list[tuple[int, str]]:
    """Cells of round clock times, and these as text; from the left."""
    steps_s = (s for s in STEPS_S if s * 10**9 >= _label_width(s) * axis.bin_ns)
    moments = round_times(axis.start_ns, next(steps_s, STEPS_S[-1]), unix)
    found = (((at_ns - axis.start_ns) // axis.bin_ns, text) for at_ns, text in moments)
    return list(takewhile(lambda tick: tick[0] < axis.bins, found))


def round_times(since_ns: int, step_s: int, unix: Unix) -> Iterator[tuple[int, str]]:
    """Moments, in raw ns from `since_ns` on and without end, at which the local clock shows a
    multiple of the step; and what it shows."""
    zero_ns = round(unix(0) * 1e9)  # converted once: else rounding makes ticks jitter
    start_ns = zero_ns + since_ns
    local_s = _utc_offset_s(start_ns // (_QUARTER_S * 10**9))
    first = -(-(start_ns + local_s * 10**9) // (step_s * 10**9))
    for at_s in count(first * step_s - local_s, step_s):
        yield at_s * 10**9 - zero_ns, _clock(at_s, step_s)


@lru_cache(maxsize=16)
def _utc_offset_s(quarter: int) -> int:
    """By how much local time is ahead in a quarter of an hour, counted since the epoch: zones
    change theirs between two of these."""
    return time.localtime(quarter * _QUARTER_S).tm_gmtoff


_clock = lru_cache(maxsize=256)(time_of_day)
"""A tick stays on an axis for many refreshes."""


def times(axis: Axis, unix: Unix) -> str:
    """A line as wide as the axis, with the clock times of ticks below them."""
    line = " " * axis.width
    for cell, text in ticks(axis, unix):
        start = cell - len(text) // 2
        if start >= 0 and start + len(text) <= axis.width:
            line = line[:start] + text + line[start + len(text) :]
    return line


# --- episodes


def episodes(axis: Axis, session: Session) -> list[Episode]:
    """Episodes that ran at any moment of the axis."""
    return session.episodes(axis.start_ns, axis.now_ns)


def mildest_first(episodes: Iterable[Episode]) -> list[Episode]:
    """Episodes in drawing order: the worst is drawn last, over the others."""
    return sorted(episodes, key=episode_style.rank, reverse=True)


def mark(episode: Episode, shown_ns: int | None = None) -> Run:
    """Sign and style of an episode, on an axis and in rows; the style also shows whether it has
    ended by `shown_ns`."""
    over = shown_ns is not None and episode.end_ns is not None and episode.end_ns <= shown_ns
    return episode_style.sign(episode), episode_style.severity(episode, over=over)


def cells(axis: Axis, episode: Episode, shown_ns: int) -> tuple[range, bool] | None:
    """The cells of an episode at the moment `shown_ns`, and whether its start is on the axis; None
    if it is not visible."""
    if episode.start_ns > shown_ns:
        return None
    seen = axis.span(episode.start_ns, shown_ns if episode.end_ns is None else episode.end_ns)
    return seen and (range(seen[0], seen[1] + 1), episode.start_ns >= axis.start_ns)


def begins(axis: Axis, episodes: Iterable[Episode], shown_ns: int) -> dict[int, Run]:
    """Signs by cell, where episodes begin; of two in one cell the worse is kept."""
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
    """Writes each episode onto the line: a stroke while it lasts, a sign where it begins.
    `cells_of`: its cells, and whether its start is among them."""
    for episode in mildest_first(episodes):
        if (seen := cells_of(episode)) is not None:
            cells, begins = seen
            sign, style = mark(episode, shown_ns)
            line[cells.start : cells.stop] = [(theme.CLOCK, style)] * len(cells)
            if begins:
                line[cells.start] = (sign, style)


def rule(axis: Axis, episodes: Iterable[Episode], shown_ns: int, blank: int = 0) -> list[Run]:
    """The line of the axis: a sign where each episode begins, a stroke while it lasts. The first
    `blank` cells are from before the history and stay empty."""
    line: list[Run] = [(" ", "text")] * blank + [_RULE] * (axis.width - blank)
    strokes(line, episodes, shown_ns, lambda episode: cells(axis, episode, shown_ns))
    return line


def history(
    axis: Axis, episodes: Iterable[Episode], shown_ns: int, first_ns: int | None, unix: Unix,
    steps: Iterable[int] = (), marks: Iterable[Episode] = (), *, inside: bool = False,
) -> list[Run]:  # fmt: skip
    """The line of the axis, with ticks. If history does not reach its left end, the line has the
    time at which it begins. Free cells show the names of `marks`, and a faint sign at the cells in
    `steps`. `inside`: clock times are in the line where it is free, as they have no other line."""
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
    """Writes a stroke and the mark's label to the right of it, up to the next cell in use; returns
    the cells that it took. The stroke may replace that of an episode."""
    seen, taken = cells(axis, moment, shown_ns), set()
    text = NAME + foreign(moment.evidence["label"])
    free: tuple[str, ...] = theme.RULE, theme.CLOCK
    for cell, sign in zip(range(seen[0].start, axis.width) if seen else (), text, strict=False):
        if line[cell][0] not in free:
            break
        line[cell], free = (sign, "dim"), (theme.RULE,)
        taken.add(cell)
    return taken
