"""What charts show of the past: a value for each column, for all charts together.

Columns that have passed do not change, so at each refresh only the newest are looked up. Imports
numpy, as the session does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from perftop.base.arrays import Floats
from perftop.session.history import History, edges
from perftop.session.interval import Interval
from perftop.session.sample_history import Times
from perftop.session.session import Session
from perftop.tui.overview.chart_axis import Span

Lookup = Callable[[History, Times], Floats]
"""Values of some bins, given by their edges; the first axis is that of the bins."""
WIDEST = 4
"""Columns in a bin while the history is short, so that it does not leave most of a chart empty."""
_STEADY = 3
"""Intervals of another length after which bins change theirs; one alone was only late."""


class Past:
    """Series of columns by key, each for some CPUs or cores."""

    def __init__(self, session: Session, lookups: dict[str, Lookup]) -> None:
        self._session, self._lookups = session, lookups
        self._step_ns = 0
        self._other = 0
        self._held: dict[str, Floats] = {}
        """Values by key, (bins, ...), of the bins that end at `_end_ns`."""
        self._of: tuple[int, int, int] | None = None
        """Length and number of the bins that are held, and the newest moment in them."""
        self.span = Span(0, 1, 1, 0, 0, 0)

    def read(self, interval: Interval, columns: int, window_s: float) -> None:
        """Looks up `columns` up to the end of this interval. Columns are whole intervals, as many
        as the window needs at least."""
        step_ns = self._step(interval)
        bin_ns = step_ns * max(1, -(-round(window_s * 1e9) // (columns * step_ns)))
        now_ns, history = interval.time_ns, self._session.history
        first_ns = None if history is None else history.first_ns
        end_ns = -(-now_ns // bin_ns) * bin_ns
        since_ns = now_ns if first_ns is None else min(first_ns - 1, now_ns - 1)
        known = (end_ns - since_ns - 1) // bin_ns + 1
        wide = next((w for w in (WIDEST, 2) if known * w <= columns), 1)
        known = min(known * wide, columns // wide * wide)
        self.span = Span(end_ns, bin_ns, wide, columns, known, now_ns)
        if history is not None:
            self._fill(history)

    def _step(self, interval: Interval) -> int:
        """Length of an interval, in whole samples."""
        sample_ns = self._session.hello.sample_ns
        step_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
        self._other = 0 if step_ns == self._step_ns else self._other + 1
        if not self._step_ns or self._other >= _STEADY:
            self._step_ns, self._other = step_ns, 0
        return self._step_ns

    def _fill(self, history: History) -> None:
        span, bins = self.span, self.span.bins
        moved = bins
        if self._of is not None and self._of[:2] == (span.bin_ns, bins):
            before_ns = self._of[2]
            held_end_ns = -(-before_ns // span.bin_ns) * span.bin_ns
            ahead = (span.end_ns - held_end_ns) // span.bin_ns
            # The newest bin that is held may have been looked up before it was over.
            if 0 <= ahead < bins and span.now_ns >= before_ns:
                moved = ahead + (before_ns < held_end_ns)
                self._shift(ahead, moved)
        self._of = span.bin_ns, bins, span.now_ns
        if not moved:
            return
        at = edges(span.end_ns, span.bin_ns, moved)
        at[-1] = span.now_ns
        for key, lookup in self._lookups.items():
            found = lookup(history, at)
            held = self._held.get(key) if moved < bins else None
            self._held[key] = found if held is None else np.concatenate([held, found])

    def _shift(self, ahead: int, moved: int) -> None:
        """Keeps the bins that stay, without the last `moved - ahead`."""
        for key, values in self._held.items():
            self._held[key] = values[ahead : len(values) - (moved - ahead)]

    def of(self, key: str) -> Floats:
        """(..., columns): the values of all columns; NaN where nothing is known."""
        values, span = self._held.get(key), self.span
        if values is None:
            raise KeyError(key)
        found: Floats = np.moveaxis(np.repeat(values, span.wide, axis=0), 0, -1)
        missing = span.columns - found.shape[-1]
        if missing:
            blank = np.full((*found.shape[:-1], missing), np.nan)
            found = np.concatenate([blank, found], axis=-1)
        return found

    @property
    def dots(self) -> Span:
        """The span of a chart of which a cell is two columns."""
        return replace(self.span, per=2)


def metric(key: str, rows: Sequence[int]) -> Lookup:
    return lambda history, at: history.field(key, rows, at)


def states(cores: Sequence[Sequence[int]]) -> Lookup:
    """(bins, cores, 4)."""
    return lambda history, at: history.states(cores, at)


def bounds(cores: Sequence[Sequence[int]]) -> Lookup:
    """(bins, cores, 8): the lowest shares of the states, then the highest."""
    return lambda history, at: np.concatenate(history.bounds(cores, at), axis=2)


def ceiling(cores: Sequence[Sequence[int]]) -> Lookup:
    return lambda history, at: history.ceiling(cores, at)


def chosen(session: Session, keys: Iterable[str], rows: Sequence[int]) -> dict[str, Lookup]:
    """Lookups of those metrics that this stream has."""
    return {key: metric(key, rows) for key in keys if session.evaluator.chosen[key]}
