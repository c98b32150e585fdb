"""Comparison of what siblings count of the same core. It gives doubts about SMT events, and
evidence for the worth of their ticks.

The running times r0 and r1 of the threads bound an SMT event of their core. They come from fixed
counters, so an event outside the bounds is doubted, not they.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.samples.calibration import BLUR_S, LEAST_SHARE, factor_bounds
from perftop.samples.counters import Counters, Delta
from perftop.samples.doubt import Doubt
from perftop.samples.gates import WORKED_S
from perftop.samples.smt import TOLERANCE, Splitter

UNLIKE = 1e-3
"""Share of the span by which the running times must differ before an event of one thread must have
moved. Threads with equal times may never have run alone: clock modulation halts both at once."""


class SiblingGates:
    """The gates between siblings of one stream. `splitter` owns the cores and the calibrations."""

    def __init__(self, counters: Counters, splitter: Splitter) -> None:
        self._counters, self._splitter = counters, splitter

    def learn(self, counters: Counters, delta: Delta, util: Floats, online: Bools) -> None:
        """Use the sample as evidence for the event's factor. A doubted event is used too, because a
        wrong factor makes every sample doubtful."""
        for key, rows, r in self._groups(delta, util, online):
            calibration = self._splitter.calibrations.get(key)
            if calibration is None:
                continue
            x = self._splitter.shares(key, delta)[rows]
            block = counters.columns[key].block
            span_s = delta.tables[block].ticks[rows] / counters.stamp_hz
            if rows.shape[1] > 2:
                calibration.observe(*_bounds_of_many(r, x, span_s[:, 0]))
                continue
            if key == "distributed":
                x = np.broadcast_to(x.sum(axis=1, keepdims=True), x.shape)
            for at, other in ((0, 1), (1, 0)):
                found = factor_bounds(key, r[:, at], x[:, at], r[:, other], span_s[:, at])
                calibration.observe(*found)

    def check(self, counters: Counters, delta: Delta, util: Floats, online: Bools) -> None:
        """Write the doubts into `delta`."""
        hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
        for key, rows, r in self._groups(delta, util, online):
            table = delta.tables["cpu"]
            with np.errstate(divide="ignore", invalid="ignore"):
                reads = (table.width[rows] / table.ticks[rows]).max(axis=1)
            slack = (TOLERANCE + np.nan_to_num(reads, posinf=0.0))[:, None]
            x = self._splitter.shares(key, delta)[rows] * self._splitter.factor(key)
            ran = r * counters.tsc_ticks(delta)[rows] > WORKED_S * hz
            codes = np.zeros(x.shape, np.uint8)
            low, high = _bounds(key, r)
            codes[(x < low - slack) | (x > high + slack)] = Doubt.OUTSIDE
            if key == "one_thread":  # never alone, although their running times differ
                unlike = np.ptp(r, axis=1) > UNLIKE + slack[:, 0] - TOLERANCE
                codes[(x == 0).all(axis=1) & ran.any(axis=1) & unlike] = Doubt.STILL
            else:
                moves = ran if key == "distributed" else ran.any(axis=1, keepdims=True)
                codes[(x == 0) & moves] = Doubt.STILL
            if rows.shape[1] == 2:
                _compare(key, r, x, slack, codes)
            # A program that takes the event of one thread takes that of the other: without the
            # first, nothing supports the second.
            worst = codes.max(axis=1, keepdims=True)
            codes = np.where(codes == 0, worst, codes)
            of_key = delta.doubts[:, counters.key_at[key]]
            of_key[rows] = np.where(of_key[rows] == 0, codes, of_key[rows])

    def _groups(
        self, delta: Delta, util: Floats, online: Bools
    ) -> Iterator[tuple[str, np.ndarray, Floats]]:
        """Cores grouped by number of threads: event, positions (cores, threads), and the share of
        the span that each thread ran. Cores whose siblings were read over different spans are left
        out."""
        key = self._splitter.counted()
        if key is None or key not in self._counters.key_at:
            return
        threads = self._splitter.threads(online)
        for count in sorted({len(rows) for rows in threads if len(rows) > 1}):
            if count > 2 and key != "any_thread":
                continue
            rows = np.array([found for found in threads if len(found) == count])
            rows = rows[~self._splitter.uneven(rows, delta)]
            if len(rows):
                yield key, rows, util[rows]


def _bounds(key: str, r: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest share that the event of each CPU (cores, threads) can have counted, by how
    long each thread ran."""
    if key == "distributed":
        return r / 2, r
    if key == "one_thread":
        return np.maximum(r - r[:, ::-1], 0.0), r
    most = np.minimum(1.0, r.sum(axis=1, keepdims=True))
    return r.max(axis=1, keepdims=True), most


def _compare(key: str, r: Floats, x: Floats, slack: Floats, codes: np.ndarray) -> None:
    """Doubt both events of a core if they disagree on ANY and neither is doubted already."""
    if key == "distributed":
        any_ = x.sum(axis=1, keepdims=True)
        low, high = r.max(axis=1, keepdims=True), np.minimum(1.0, r.sum(axis=1, keepdims=True))
        wrong = (any_ < low - 2 * slack) | (any_ > high + 2 * slack)
    else:
        each = r[:, ::-1] + x if key == "one_thread" else x
        wrong = np.abs(each[:, :1] - each[:, 1:]) > 2 * slack
    fresh = wrong & (codes == 0).all(axis=1, keepdims=True)
    codes[np.broadcast_to(fresh, codes.shape)] = Doubt.APART


def _bounds_of_many(r: Floats, x: Floats, span_s: Floats) -> tuple[Floats, Floats]:
    """Bounds as in `factor_bounds`, for an any-thread event of cores with more than two threads."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share, blur = np.nanmean(x, axis=1), BLUR_S / span_s
        lowest = r.max(axis=1)
        low, high = (lowest - blur) / share, (np.minimum(1.0, r.sum(axis=1)) + blur) / share
        enough = (lowest > LEAST_SHARE) & (share > 0)
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)
