"""The time of the overview's charts: which columns there are and their values, and the axis below
them with round times and the episodes where they ran.

The newest column is at the right edge. Columns from before the history are blank and have no axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import theme
from perftop.draw.strips import Run, joined
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.column_ring import Lookup, Ring
from perftop.tui.shared.time_axis import TICK, Unix, round_times, strokes

STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""Distances of ticks, in seconds."""
_APART = 2
"""Minimum cells between two times."""


@dataclass(frozen=True, slots=True)
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
    """The texts at these columns, by cells of the axis."""
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
    are in the line, except over signs and over running episodes."""
    cells: list[Run] = [(" ", "text")] * span.free
    cells += [(theme.RULE, "rule")] * (span.cells - span.free)
    for cell, _ in marks:
        if 0 <= cell < span.cells and not inside:
            cells[cell] = (TICK, "faint")
    strokes(cells, episodes, span.now_ns, span.stretch)
    if inside:
        _write(cells, marks, span)
    return joined(cells)


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
    line, free = "", 0
    for cell, text in marks:
        first, last = _placed(cell, text, span.cells)
        if first >= free:
            line = line.ljust(first) + text
            free = last + _APART
    return [(line.ljust(span.cells), "dim")]


def _placed(cell: int, text: str, cells: int) -> tuple[int, int]:
    first = max(0, min(cell - len(text) // 2, cells - len(text)))
    return first, first + len(text)


# --- values

WIDEST = 4
"""Most columns in a bin while the history is short, so that it does not leave most of a chart
empty."""
_SHORTER = 0.6, 0.8
"""Parts of the usual bin that are bins while the history is short."""
_STEADY = 3
"""Intervals of another length after which bins change theirs; one alone was only late."""


class Past:
    """Series of columns by key, each for some CPUs or cores."""

    def __init__(
        self, session: Session, metrics: Sequence[str], rows: Sequence[int],
        lookups: dict[str, Lookup],
    ) -> None:  # fmt: skip
        """`metrics` of CPUs, given by position, and what else is looked up, by key."""
        self._session, self.metrics = session, metrics
        self._keys = "cpus", *lookups
        self._ring = Ring(
            {"cpus": lambda history, at: history.fields(metrics, rows, at), **lookups}
        )
        self._found: dict[str, Floats] = {}
        """(..., columns) by key."""
        self._step_ns = 0
        self._other = 0
        self.span = Span(0, 1, 1, 0, 0, 0)

    def read(self, interval: Interval, columns: int, window_s: float) -> None:
        """Looks up `columns` up to the end of this interval. Bins are whole samples: as long as an
        interval, or as the window needs, once there is enough history for it."""
        now_ns, history = interval.time_ns, self._session.history
        first_ns = None if history is None else history.first_ns
        since_ns = now_ns if first_ns is None else min(first_ns - 1, now_ns - 1)
        for bin_ns, wide in self._bins(self._step(interval), columns, window_s):
            end_ns = -(-now_ns // bin_ns) * bin_ns
            known = (end_ns - since_ns - 1) // bin_ns + 1
            if known * wide <= columns:
                break
        known = min(known * wide, columns // wide * wide)
        self.span = Span(end_ns, bin_ns, wide, columns, known, now_ns)
        if history is not None:
            self._ring.read(history, end_ns, bin_ns, self.span.bins, now_ns)
            self._found = {key: self._columns(self._ring[key]) for key in self._keys}

    def _bins(self, step_ns: int, columns: int, window_s: float) -> list[tuple[int, int]]:
        """Lengths of bins with their columns, from those that spread the history most."""
        sample_ns = self._session.hello.sample_ns
        usual = max(step_ns, _whole(window_s * 1e9 / columns, sample_ns))
        shorter = [_whole(part * usual, sample_ns) for part in _SHORTER]
        return [
            *((usual, wide) for wide in range(WIDEST, 1, -1)),
            *((bin_ns, 1) for bin_ns in shorter if bin_ns < usual),
            (usual, 1),
        ]

    def _step(self, interval: Interval) -> int:
        """Length of an interval, in whole samples."""
        sample_ns = self._session.hello.sample_ns
        step_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
        self._other = 0 if step_ns == self._step_ns else self._other + 1
        if not self._step_ns or self._other >= _STEADY:
            self._step_ns, self._other = step_ns, 0
        return self._step_ns

    def of(self, key: str) -> Floats:
        """(..., columns): the values of all columns; NaN where nothing is known."""
        found = self._found.get(key)
        return self.of_cpus[self.metrics.index(key)] if found is None else found

    @property
    def of_cpus(self) -> Floats:
        """(metrics, CPUs, columns)."""
        return self._found["cpus"]

    def _columns(self, values: Floats) -> Floats:
        """From the values of bins, (bins, ...)."""
        known = values.transpose(*range(1, values.ndim), 0)
        if self.span.wide == 1:
            return known
        known = known.repeat(self.span.wide, axis=-1)
        missing = self.span.columns - known.shape[-1]
        found = np.full((*known.shape[:-1], self.span.columns), np.nan)
        found[..., missing:] = known
        return found

    @property
    def dots(self) -> Span:
        """The span of a chart of which a cell is two columns."""
        return replace(self.span, per=2)


def _whole(ns: float, sample_ns: int) -> int:
    """At least this long, in whole samples."""
    return max(1, ceil(ns / sample_ns)) * sample_ns
