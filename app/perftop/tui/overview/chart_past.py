"""What the charts of the overview show of the past: a value for each column, for all charts
together."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from perfprobe.frozen import replace
from perftop.base.arrays import Floats
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.chart_axis import Span
from perftop.tui.shared.column_ring import Lookup, Ring

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
