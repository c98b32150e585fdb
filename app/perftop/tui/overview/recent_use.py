"""What CPUs have used lately, for the short strips in rows. Brings numpy, as the session does."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

from perftop.session.history import edges
from perftop.session.interval import Interval
from perftop.session.session import Session


class Recent:
    """Utilisation of the last `bins` spans, each as long as an interval; the newest is the last."""

    def __init__(self, session: Session, interval: Interval, bins: int) -> None:
        sample_ns = session.hello.sample_ns
        span_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
        self._history = session.history
        self._edges = edges(interval.time_ns, span_ns, bins)
        self._bins = bins
        self._known: dict[int, list[float]] = {}

    def fetch(self, rows: Iterable[int]) -> None:
        """Of these CPUs (by position) at once: many cost little more than one."""
        wanted = [row for row in rows if row not in self._known]
        if self._history is None or not wanted:
            return
        field = self._history.field("util", wanted, self._edges)
        self._known.update(zip(wanted, field.T.tolist(), strict=True))

    def of(self, row: int) -> list[float]:
        if row not in self._known:
            self.fetch([row])
        return self._known.get(row) or [nan] * self._bins
