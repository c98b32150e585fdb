"""The time axis of charts: the time of each cell, the values of its bins (a bin is the time that a
chart column covers), round times, and markers of episodes. The newest time is at the right edge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import ceil

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import player_time, time_of_day
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import join_cells, restyle_cells, safe_cells
from perftop.model.kinds import Episode
from perftop.session.history import History, Times
from perftop.session.session import Session
from perftop.tui.shared import episode_style

ToUnixTime = Callable[[int], float]
"""Function that converts monotonic ns to Unix time in seconds, such as `Session.unix_s`."""
Tick = tuple[int, str]
"""A tick of a time axis: its cell, and its time as text."""

TICK_STEPS_NS = tuple(
    round(seconds * 1e9)
    for seconds in (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400)
)
"""Possible distances between ticks, in ns; such ticks fall on round times."""
MIN_AXIS_NS = 10**9
"""Minimum length in ns of the axis while the history is shorter than the window."""
REDRAW_PERIOD_NS = 1_000_000_000
"""Time in ns between two redraws of charts, sums and sentences, as between task records."""
MIN_CELL_NS = 500_000_000
"""Minimum time that a cell of a small chart beside or below a number covers, in ns."""
TICK_SIGN = "┬"
MARK_STROKE = "│"
MIN_TIME_GAP = 3
RELATIVE_WIDTH = 8
"""Cells for a time relative to the zero of the axis, such as -1:30:00."""
_SECOND_NS = 10**9
_QUARTER_S = 900
_RULE: Run = (theme.RULE, "rule")
_ENDED_STROKES = (theme.STROKE, "over"), (theme.STROKE, "dim")


@dataclass(frozen=True, slots=True)
class Axis:
    """A time axis of adjacent, equal bins. A bin contains samples after its start up to its end."""

    end_ns: int
    """Monotonic time in ns at which the last bin ends. On a moving axis, it is a multiple of the
    bin length, so that bins keep their edges."""
    bin_ns: int
    columns: int
    """Number of columns of the chart, each a bin and a cell of the screen."""
    now_ns: int
    """Monotonic time in ns of the newest moment; it may be earlier than `end_ns`."""
    first_ns: int | None = None
    """Monotonic time in ns at which the history begins; None if it covers the whole axis."""

    @property
    def redraw_key(self) -> tuple[int | None, ...]:
        """A key that is equal for axes on which the same charts are recent enough."""
        return self.now_ns // REDRAW_PERIOD_NS, self.bin_ns, self.columns, self.first_ns

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.columns * self.bin_ns

    @property
    def blank_cells(self) -> int:
        """Number of cells, from the left, that are before the start of the history."""
        first_ns = self.start_ns if self.first_ns is None else self.first_ns
        return max(0, min(self.columns, -((self.start_ns - first_ns) // self.bin_ns) - 1))

    @property
    def edges(self) -> Times:
        """The start of the first bin and the ends of all bins, none later than now."""
        bounds = np.arange(self.columns + 1, dtype=np.int64) * self.bin_ns + self.start_ns
        return np.minimum(bounds, self.now_ns)

    def window_ns(self, window_s: float) -> tuple[int, int]:
        """Returns the start and the end, in ns, of the last `window_s` seconds or of a shorter
        history. They do not depend on the chart's width, as bins do."""
        start_ns = self.now_ns - round(window_s * 1e9)
        return max(start_ns, self.first_ns or start_ns, self.start_ns), self.now_ns

    def bin_at(self, time_ns: int) -> int:
        """Returns the index of the bin with this time; negative or too high off the axis."""
        return -(-(time_ns - self.start_ns) // self.bin_ns) - 1

    def cell_after(self, time_ns: int) -> int:
        """Returns the cell with this time. A time on an edge belongs to the cell after it."""
        return self.bin_at(time_ns + 1)

    def episode_cells(self, episode: Episode) -> tuple[range, bool] | None:
        """Returns the cells of an episode, and whether its start is visible; None if none is."""
        if episode.start_ns > self.now_ns:
            return None
        end_ns = self.now_ns if episode.end_ns is None else min(episode.end_ns, self.now_ns)
        first = self.bin_at(episode.start_ns + 1)
        last = max(first, self.bin_at(end_ns))
        edge = self.blank_cells
        if last < edge or first >= self.columns:
            return None
        return range(max(edge, first), min(last, self.columns - 1) + 1), first >= edge


def fade_outside(
    runs: list[Run], axis: Axis, ranges: Iterable[tuple[int, int]], left_width: int = 0
) -> list[Run]:
    """Returns a line of a chart, faded outside these ranges of time (ns); unchanged without ranges.
    The axis begins after `left_width` cells."""
    cells = [[max(0, min(axis.columns, axis.bin_at(ns) + 1)) for ns in ends] for ends in ranges]
    begin = 0
    for start, end in sorted([*cells, [axis.columns, axis.columns]]) if cells else ():
        runs = restyle_cells(runs, left_width + begin, left_width + start, theme.FADED_PREFIX)
        begin = max(begin, end)
    return runs


def fit_axis(now_ns: int, window_s: float, room: int, first_ns: int | None = None) -> Axis:
    """Returns the finest axis of `room` cells that covers the window or, as long as the history
    fits into that, only half of the window, a quarter, and so on. The history begins at `first_ns`.
    Ticks are multiples of the bin length apart. Bins may be shorter than a sample."""
    window_ns = window_s * 1e9
    if first_ns is not None:
        while now_ns - first_ns <= window_ns / 2 >= MIN_AXIS_NS:
            window_ns /= 2
    min_bin_ns = max(1, ceil(window_ns / room))
    step_ns = _step_ns(min_bin_ns, is_clock_time=True)
    bin_ns = min_bin_ns if step_ns is None else step_ns // (step_ns // min_bin_ns)
    return Axis(-(-now_ns // bin_ns) * bin_ns, bin_ns, room, now_ns, first_ns)


# --- the values of bins

Lookup = Callable[[History, Times], Floats]
"""Function that reads the values of bins from the history, given their edges: (bins, ...)."""


class BinValues:
    """The values that a lookup reads for the bins of an axis. Complete bins do not change, so only
    the newest bins are looked up at each refresh."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self.values: Floats
        """The values, (bins, ...); NaN where unknown. They do not exist before the first update."""
        self._axis: Axis | None = None
        self._begin_ns = 0
        """Monotonic time in ns at which the history began when the bins were read."""

    def update(self, history: History, axis: Axis) -> int:
        """Updates the values for the bins of this axis, whose end is a multiple of the bin length.
        Returns the number of bins that were looked up, which are the newest."""
        last, begin_ns = self._axis, history.begin_ns or 0
        moved = new_bins = axis.columns
        if (
            last is not None
            and (last.bin_ns, last.columns) == (axis.bin_ns, axis.columns)
            and (last.now_ns <= axis.now_ns and last.end_ns <= axis.end_ns)
            and self._begin_ns <= begin_ns  # otherwise older samples were added to the history
        ):
            moved = (axis.end_ns - last.end_ns) // axis.bin_ns
            # The newest stored bin may have been incomplete.
            new_bins = min(moved + (last.now_ns != last.end_ns), axis.columns)
        self._axis, self._begin_ns = axis, begin_ns
        if new_bins:
            values = self._lookup(history, axis.edges[-new_bins - 1 :])
            if kept_bins := axis.columns - new_bins:
                values = np.concatenate([self.values[moved : moved + kept_bins], values])
            self.values = values
        return new_bins


# --- round times


@lru_cache(maxsize=64)
def _step_ns(cell_ns: float, *, is_clock_time: bool) -> int | None:
    """Returns the smallest distance in ns between ticks that leaves room for their times, or None.
    `cell_ns`: time of each cell. Clock times have no tenths."""
    for step_ns in TICK_STEPS_NS:
        if not is_clock_time:
            width = RELATIVE_WIDTH
        else:
            width = len(time_of_day(0, step_ns // _SECOND_NS)) if step_ns >= _SECOND_NS else 0
        if width and step_ns >= (width + MIN_TIME_GAP) * cell_ns:
            return step_ns
    return None


def ticks(axis: Axis, unix: ToUnixTime | None) -> list[Tick]:
    """Returns the cells of round times and their texts, from the left. Times before the history are
    left out. `unix`: None if times are relative to the zero of the axis instead of clock times."""
    step_ns = _step_ns(axis.bin_ns, is_clock_time=unix is not None) or TICK_STEPS_NS[-1]
    blank = axis.blank_cells
    shown_ticks: list[Tick] = []
    for time_ns, text in round_times(axis.start_ns, step_ns, unix):
        if time_ns >= axis.end_ns:
            break
        cell = axis.cell_after(time_ns)
        if cell >= blank:
            shown_ticks.append((cell, text))
    return shown_ticks


def round_times(since_ns: int, step_ns: int, unix: ToUnixTime | None) -> Iterator[tuple[int, str]]:
    """Yields round moments from `since_ns` on, without end: the time in ns, and its text. Local
    time, or time since the zero of the axis, is then a multiple of the step."""
    # Converted only once: rounding each time would make ticks jitter.
    zero_ns = 0 if unix is None else round(unix(0) * 1e9)
    start_ns = zero_ns + since_ns
    offset_s = 0 if unix is None else _utc_offset_s(start_ns // (_QUARTER_S * _SECOND_NS))
    first = -(-(start_ns + offset_s * _SECOND_NS) // step_ns)
    for time_ns in count(first * step_ns - offset_s * _SECOND_NS, step_ns):
        if unix is None:
            text = relative_time(time_ns, step_ns)
        else:
            text = _clock_text(time_ns // _SECOND_NS, step_ns // _SECOND_NS)
        yield time_ns - zero_ns, text


@lru_cache(maxsize=16)
def _utc_offset_s(quarter: int) -> int:
    """Returns the offset of local time from UTC in seconds, in a quarter of an hour given by its
    number since the epoch. Offsets change only between quarters."""
    return time.localtime(quarter * _QUARTER_S).tm_gmtoff


_clock_text = lru_cache(maxsize=256)(time_of_day)
"""Formats a clock time; cached, because a tick stays on the axis for many refreshes."""


def relative_time(time_ns: int, step_ns: int) -> str:
    """Formats a time relative to the zero of the axis, such as 0.5 s, 20 s or -1:30:00."""
    if step_ns < 60 * _SECOND_NS:
        return f"{time_ns / 1e9:.{0 if step_ns >= _SECOND_NS else 1}f} s"
    return f"{'-' if time_ns < 0 else ''}{player_time(abs(time_ns))}"


def times_line(axis: Axis, ticks: Iterable[Tick]) -> list[Run]:
    """Returns the line below the axis: times centred under their ticks, if they fit the axis."""
    line, cells = "", axis.columns
    for cell, text in ticks:
        start = cell - len(text) // 2
        if 0 <= start <= cells - len(text):
            line = line.ljust(start) + text
    return [(line.ljust(cells), "dim")]


# --- episodes


def visible_episodes(axis: Axis, session: Session) -> list[Episode]:
    """Returns the episodes that ran at any moment of the axis."""
    return session.log.listed_in_range(axis.start_ns, axis.now_ns)


def sort_by_severity(episodes: Iterable[Episode]) -> list[Episode]:
    """Returns the episodes in drawing order: the worst one is last and covers the others."""
    return sorted(episodes, key=episode_style.severity_key, reverse=True)


def start_markers(axis: Axis, episodes: Iterable[Episode]) -> dict[int, Run]:
    """Returns, for each cell in which episodes begin, the marker of the worst."""
    chars = {}
    for episode in sort_by_severity(episodes):
        visible = axis.episode_cells(episode)
        if visible is not None and visible[1]:
            chars[visible[0].start] = episode_style.marker_run(episode, axis.now_ns)
    return chars


def draw_episodes(line: list[Run], axis: Axis, episodes: Iterable[Episode]) -> None:
    """Draws episodes onto a line of single cells: a marker at the start, then a stroke."""
    for episode in sort_by_severity(episodes):
        if (visible := axis.episode_cells(episode)) is not None:
            cells, has_start = visible
            marker, style = episode_style.marker_run(episode, axis.now_ns)
            line[cells.start : cells.stop] = [(theme.STROKE, style)] * len(cells)
            if has_start:
                line[cells.start] = (marker, style)


def draw_mark(line: list[Run], axis: Axis, mark: Episode) -> range:
    """Draws a mark onto a line of single cells: a stroke, which may cover the stroke of an episode,
    and the label at its right, up to the next used cell. Returns the cells drawn."""
    visible = axis.episode_cells(mark)
    start = end = visible[0].start if visible else axis.columns
    text = MARK_STROKE + safe_cells(mark.evidence["label"])
    free: tuple[str, ...] = theme.RULE, " ", theme.STROKE
    for char in text[: axis.columns - start]:
        if line[end][0] not in free:
            break
        line[end], free = (char, "dim"), (theme.RULE, " ")
        end += 1
    return range(start, end)


def axis_rule(axis: Axis, episodes: Iterable[Episode]) -> list[Run]:
    """Returns the line of the axis, by cell, with a marker where each episode begins and a stroke
    while it lasts. Cells before the history are empty."""
    blank = axis.blank_cells
    line: list[Run] = [(" ", "text")] * blank + [_RULE] * (axis.columns - blank)
    draw_episodes(line, axis, episodes)
    return line


def tick_line(
    axis: Axis,
    episodes: Iterable[Episode],
    ticks: Iterable[Tick],
    *,
    times_inside: bool = False,
    marks: Iterable[Episode] = (),
    history_start: float | None = None,
) -> list[Run]:
    """Returns the line of the axis with ticks and the labels of `marks`. `times_inside`: times are
    in this line, but cover no markers or running episodes. `history_start`: Unix time at which the
    history begins, for the cells before it."""
    line = axis_rule(axis, episodes)
    label_cells = {cell for moment in marks for cell in draw_mark(line, axis, moment)}
    free = {cell for cell, run in enumerate(line) if run == _RULE} - label_cells
    if not times_inside:
        for cell in {cell for cell, _ in ticks} & free:
            line[cell] = (TICK_SIGN, "faint")
    else:
        free_runs = _RULE, (" ", "text"), *_ENDED_STROKES
        used_cells = label_cells | {cell for cell, run in enumerate(line) if run not in free_runs}
        for cell, text in ticks:
            start = cell - len(text) // 2 - 1
            cells = range(start, start + len(text) + 2)
            is_inside = axis.blank_cells <= start and cells.stop <= axis.columns
            if is_inside and used_cells.isdisjoint(cells):
                line[start : cells.stop] = [(char, "dim") for char in f" {text} "]
    if history_start is not None and axis.blank_cells:
        start_text = f"{time_of_day(history_start)} "
        texts = f"history from {start_text}", f"from {start_text}", ""
        text = next(text for text in texts if len(text) <= axis.blank_cells)
        line[: axis.blank_cells] = [(char, "dim") for char in text.rjust(axis.blank_cells)]
    return join_cells(line)
