"""The time axis below a chart: round times at even distances, and episodes where they ran.

Columns are those of the chart, the newest at its right edge. Columns from before the history have
no axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile

from perfprobe.frozen import frozen
from perftop.draw import theme
from perftop.draw.strips import Run, joined
from perftop.model.episode import Episode
from perftop.tui.shared.time_axis import TICK, Unix, round_times, strokes

STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""Distances of ticks, in seconds."""
_APART = 2
"""Minimum cells between two times."""


@frozen
class Span:
    """The time of a chart: columns of equal length, the last of which holds the newest moment."""

    end_ns: int
    """Raw ns at which the last column would end; a multiple of the length of a bin."""
    bin_ns: int
    wide: int
    """Columns in each bin."""
    columns: int
    known: int
    """Columns, from the right, that are not from before the history."""
    now_ns: int
    """Raw ns of the newest moment."""
    per: int = 1
    """Columns in a cell of the axis."""

    @property
    def cells(self) -> int:
        return self.columns // self.per

    @property
    def free(self) -> int:
        """Cells at the left that are from before the history."""
        return (self.columns - self.known) // self.per

    @property
    def bins(self) -> int:
        """Bins of which something is known or may be."""
        return self.columns // self.wide

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.bins * self.bin_ns

    @property
    def newest(self) -> int:
        """Number of the last column, counted since the time 0."""
        return self.end_ns // self.bin_ns * self.wide

    def column(self, time_ns: int) -> int:
        """The column of a moment, which may be off the chart."""
        before = (self.end_ns - time_ns) // self.bin_ns  # a moment on an edge is in the bin before
        return self.columns - (before + 1) * self.wide

    def stretch(self, episode: Episode) -> tuple[range, bool] | None:
        """The cells of an episode, and whether its start is seen; None if it is off the chart or
        begins later."""
        if episode.start_ns > self.now_ns:
            return None
        end_ns = self.now_ns if episode.end_ns is None else min(episode.end_ns, self.now_ns)
        first = self.column(episode.start_ns + 1)
        last = max(first, self.column(end_ns)) + self.wide - 1
        edge = self.columns - self.known
        if last < edge or first >= self.columns:
            return None
        seen = first >= edge
        first, last = max(edge, first), min(last, self.columns - 1)
        return range(first // self.per, last // self.per + 1), seen


def ticks(span: Span, step_s: int, unix: Unix) -> list[tuple[int, str]]:
    """Columns of round times and their names, from the left."""
    first_ns = span.end_ns - span.known * span.bin_ns // span.wide
    seen = takewhile(lambda one: one[0] <= span.now_ns, round_times(first_ns, step_s, unix))
    return [(span.column(at_ns), text) for at_ns, text in seen]


def in_cells(span: Span, columns: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """What stands at these columns, by cells of the axis."""
    found = ((column // span.per, text) for column, text in columns)
    return [(cell, text) for cell, text in found if cell >= span.free]


def step(span: Span, room: int) -> int:
    """The smallest distance of ticks, in seconds, that gives each `room` cells."""
    return next(
        (s for s in STEPS_S if s * 10**9 * span.wide >= room * span.per * span.bin_ns), STEPS_S[-1]
    )


def rule(
    span: Span, episodes: Iterable[Episode], marks: Iterable[tuple[int, str]], *, inside: bool
) -> list[Run]:
    """The line of the axis: a stroke for each episode with its sign at its start. `inside`: times
    stand in the line, except over signs and over what runs."""
    told = [*episodes]
    if not told and not inside:
        return [*_bare(span.free, span.cells, tuple(marks))]
    cells: list[Run] = [(" ", "text")] * span.free
    cells += [(theme.RULE, "rule")] * (span.cells - span.free)
    for cell, _ in marks:
        if 0 <= cell < span.cells and not inside:
            cells[cell] = (TICK, "faint")
    strokes(cells, told, span.now_ns, span.stretch)
    if inside:
        _write(cells, marks, span)
    return joined(cells)


@lru_cache(maxsize=64)
def _bare(free: int, cells: int, marks: tuple[tuple[int, str], ...]) -> Sequence[Run]:
    """A rule without episodes and times, which stays the same for as long as a bin lasts."""
    runs: list[Run] = [(" " * free, "text")]
    at = free
    for cell, _ in marks:
        if at <= cell < cells:
            runs += [(theme.RULE * (cell - at), "rule"), (TICK, "faint")]
            at = cell + 1
    return [run for run in (*runs, (theme.RULE * (cells - at), "rule")) if run[0]]


def _write(cells: list[Run], marks: Iterable[tuple[int, str]], span: Span) -> None:
    """Writes the times into the line, over its rule and over strokes of what has ended."""
    ended = (theme.CLOCK, "over"), (theme.CLOCK, "dim")
    bare = (theme.RULE, "rule"), (" ", "text"), *ended
    firm = {at for at, run in enumerate(cells) if run not in bare}
    free = span.free
    for cell, text in marks:
        first, last = _placed(cell, text, span.cells)
        taken = range(max(0, first - 1), min(span.cells, last + 1))
        if first < free or not firm.isdisjoint(taken):
            continue
        for near in taken:
            cells[near] = (" ", "text")
        cells[first:last] = [(sign, "dim") for sign in text]
        free = last + _APART


def times(span: Span, marks: Iterable[tuple[int, str]]) -> list[Run]:
    """The line below the axis: each time centred under its tick."""
    return [(_times(span.cells, tuple(marks)), "dim")]


@lru_cache(maxsize=64)
def _times(cells: int, marks: tuple[tuple[int, str], ...]) -> str:
    line, free = "", 0
    for cell, text in marks:
        first, last = _placed(cell, text, cells)
        if first >= free:
            line = line.ljust(first) + text
            free = last + _APART
    return line.ljust(cells)


def _placed(cell: int, text: str, cells: int) -> tuple[int, int]:
    first = max(0, min(cell - len(text) // 2, cells - len(text)))
    return first, first + len(text)
