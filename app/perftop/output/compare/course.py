"""The course of a recording's numbers in time, in slices of a few samples each. The noise of a
single run is estimated from it."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.statistics import FEWEST_BLOCKS, Estimate, estimate_of_course
from perftop.model.episode import LOW_CLOCK
from perftop.model.numbers import INDEX
from perftop.model.smt import STATES
from perftop.output.compare.numbers import MOST_EVENTS, NUMBERS
from perftop.output.run_summary import working
from perftop.session.session import Session

METRIC_KEYS = tuple(key for key in NUMBERS if key in INDEX)
REST = "both", "power_w"
MOST = 2048
"""Slices. Beyond, two become one, and later ones have twice as many samples."""


class Course:
    """Begins where it is made."""

    def __init__(self, session: Session) -> None:
        self._session = session
        registry = session.evaluator.registry
        events = [*registry.events][:MOST_EVENTS]
        self._at = [registry.index[key] for key in (*METRIC_KEYS, *events)]
        self._added = registry.added[self._at]
        self._keys = (*METRIC_KEYS, *events, *REST)
        self._amounts, self._sizes = np.zeros((2, MOST, len(self._keys)))
        """A value is the amount in a slice by its size; both in the units of the metric."""
        self._ends_ns = np.zeros(MOST, np.int64)
        self._begin_ns = session.now_ns
        self._count, self._in_last, self._samples = 0, 0, 1
        """Whole slices, samples in the one that is being filled, and in a whole one."""

    def take(self) -> None:
        """Takes the newest sample of the session."""
        sample = self._session.sample
        if sample is None:
            return
        shown, at = self._session.shown, self._count
        top = sample.values.top[self._at][:, shown]
        bottom = sample.values.bottom[self._at][:, shown]
        known = np.isfinite(top) & np.isfinite(bottom)
        of_metrics = len(self._at)
        self._amounts[at, :of_metrics] += np.where(known, top, 0.0).sum(axis=1)
        sizes = np.where(known, bottom, 0.0).sum(axis=1)
        self._sizes[at, :of_metrics] += sizes / np.where(self._added, known.sum(axis=1), 1).clip(1)
        both = sample.split.states[:, STATES.index("both")]
        both = both[np.isfinite(both)]
        energy_j, span_s = self._energy()
        self._amounts[at, of_metrics:] += both.sum(), energy_j
        self._sizes[at, of_metrics:] += len(both), span_s
        self._ends_ns[at] = self._session.now_ns
        self._in_last += 1
        if self._in_last == self._samples:
            self._next()

    def _energy(self) -> tuple[float, float]:
        """Joules of all packages in the newest sample, and the seconds that this covers."""
        column, sample = self._session.counters.columns.get("energy_j"), self._session.sample
        if column is None or sample is None:
            return 0.0, 0.0
        table = sample.delta.tables[column.block]
        moved, ticks = table.moved[:, column.first], table.ticks
        if not np.isfinite(moved).all() or not (ticks > 0).all():
            return 0.0, 0.0  # most frames lack it: it is read once for several
        return float(moved.sum()), float(ticks.mean()) / self._session.counters.stamp_hz

    def _next(self) -> None:
        self._count, self._in_last = self._count + 1, 0
        if self._count < MOST:
            return
        for table in (self._amounts, self._sizes):
            table[: MOST // 2] = table[0::2] + table[1::2]
            table[MOST // 2 :] = 0.0
        self._ends_ns[: MOST // 2] = self._ends_ns[1::2]
        self._count, self._samples = MOST // 2, 2 * self._samples

    def estimates(self) -> dict[str, Estimate]:
        """By key of the number; those that were not counted are not there, and none of a
        stretch that is too short."""
        amounts, sizes = self._amounts[: self._count], self._sizes[: self._count]
        found: dict[str, Estimate] = {}
        if self._count < FEWEST_BLOCKS:
            return found
        for at, key in enumerate(self._keys):
            if sizes[:, at].sum() > 0:
                found[key] = estimate_of_course(amounts[:, at].tolist(), sizes[:, at].tolist())
        if self._session.reader.turbo.cpus.any():
            ran_s = amounts[:, self._keys.index("util")]
            if ran_s.sum() > 0:
                low_s = np.minimum(self._low_s(), ran_s)
                found["below_ceiling"] = estimate_of_course(low_s.tolist(), ran_s.tolist())
        return found

    def sums(self) -> dict[str, tuple[Floats, Floats, Floats]]:
        """By key: raw ns of the start and of the ends of the slices, and what both parts of the
        number had added up to at each of them."""
        none, count = np.zeros((1, len(self._keys))), self._count
        ends_ns = np.concatenate([[self._begin_ns], self._ends_ns[:count]]).astype(float)
        amounts, sizes = (
            np.cumsum(np.concatenate([none, table[:count]]), axis=0)
            for table in (self._amounts, self._sizes)
        )
        return {key: (ends_ns, amounts[:, at], sizes[:, at]) for at, key in enumerate(self._keys)}

    def _low_s(self) -> Floats:
        """By slice, seconds that CPUs ran below their ceiling, as if each had run evenly."""
        session, ends_ns = self._session, self._ends_ns[: self._count]
        begins_ns = np.concatenate([[self._begin_ns], ends_ns[:-1]])
        whole, low_s = session.whole(), np.zeros(self._count)
        for one in session.episodes(self._begin_ns, session.now_ns):
            if one.kind in LOW_CLOCK:
                end_ns = session.now_ns if one.end_ns is None else one.end_ns
                span_ns = np.minimum(ends_ns, end_ns) - np.maximum(begins_ns, one.start_ns)
                low_s += np.maximum(span_ns, 0) / 1e9 * working(session, whole, one)
        return low_s
