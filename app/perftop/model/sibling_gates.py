"""Comparison of what siblings count of the same core. It gives doubts about SMT events, and
evidence for the worth of their ticks.

The running times r0 and r1 of the threads bound an SMT event of their core. They come from fixed
counters, so an event outside the bounds is doubted, not they.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.model.calibration import BLUR_S, LEAST_SHARE, Calibration, Told, factor_bounds
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.doubt import Doubt
from perftop.model.gates import WORKED_S
from perftop.model.smt import TOLERANCE, Splitter, mean_known

UNLIKE = 1e-3
"""Share of the span by which the running times must differ before an event of one thread must have
moved. Threads with equal times may never have run alone: clock modulation halts both at once."""


@frozen
class _Siblings:
    """Cores with the same number of threads, in some samples: arrays are (samples, threads, cores),
    for numpy is slow along a last axis of two."""

    rows: Ints
    """(threads, cores) positions of CPUs."""
    uneven: Bools
    """(samples, cores): where the siblings were read over different spans, nothing can be
    compared."""
    r: Floats
    """The share of the span that each thread ran."""
    x: Floats
    """Ticks of the event in use per TSC tick of the span."""


class Evidence(NamedTuple):
    """What some samples tell about the factor of an event."""

    calibration: Calibration
    told: list[tuple[Told, ...]]
    """By sample, in order of use."""


class SiblingGates:
    """The gates between siblings of one stream. `splitter` owns the cores and the calibrations."""

    def __init__(self, counters: Counters, splitter: Splitter) -> None:
        self._counters, self._splitter = counters, splitter

    def look(self, delta: Delta, util: Floats, online: Bools) -> list[_Siblings]:
        """Siblings with the event in use; none if there is no such event."""
        key, found = self._key(), list[_Siblings]()
        if key is None:
            return found
        for group in self._splitter.groups(online):
            if group.threads == 2 or (group.threads > 2 and key == "any_thread"):
                rows = group.by_thread
                uneven = self._splitter.uneven(rows, delta)
                x = self._splitter.shares(key, delta).take(rows, axis=-1)
                found.append(_Siblings(rows, uneven, util.take(rows, axis=-1), x))
        return found

    def evidence(self, siblings: list[_Siblings], delta: Delta) -> Evidence | None:
        """What samples tell about the factor of the event in use. A doubted event tells it too,
        because a wrong factor makes every sample doubtful."""
        key = self._key()
        calibration = self._splitter.calibrations.get(key or "")
        if key is None or calibration is None:
            return None
        told: list[list[Told]] = []
        for group in siblings:
            low, high = self._factor_bounds(key, group, delta)
            ways, cores = low.shape[1:]
            if np.count_nonzero(group.uneven):
                low = np.where(group.uneven[:, None], np.nan, low)
            every = calibration.told(low.reshape(-1, cores), high.reshape(-1, cores))
            told += [every[way::ways] for way in range(ways)]
        return Evidence(calibration, [*zip(*told, strict=True)])

    def _factor_bounds(self, key: str, group: _Siblings, delta: Delta) -> tuple[Floats, Floats]:
        """(samples, ways, cores): what each of two threads says, or all of them together."""
        counters, r, x = self._counters, group.r, group.x
        block = counters.columns[key].block
        span_s = delta.tables[block].ticks.take(group.rows, axis=-1) / counters.stamp_hz
        if len(group.rows) > 2:
            low, high = _bounds_of_many(r, x, span_s[:, 0])
            return low[:, None], high[:, None]
        if key == "distributed":
            x = x[:, :1] + x[:, 1:]
        return factor_bounds(key, r, x, r[:, ::-1], span_s)

    def learn(self, evidence: Evidence, sample: int) -> None:
        """Use one of these samples as evidence."""
        for told in evidence.told[sample] if evidence.told else ():
            evidence.calibration.observe(told)

    def check(self, siblings: list[_Siblings], delta: Delta) -> Codes:
        """The doubts of `delta` and those about SMT events."""
        key, doubts = self._key(), delta.doubts
        if key is None:
            return doubts
        at, fresh = self._counters.key_at[key], False
        for group in siblings:
            codes = self._codes(key, group, delta)
            if codes is None:
                continue
            if not fresh:
                doubts, fresh = doubts.copy(), True
            # A program that takes the event of one thread takes that of the other: without the
            # first, nothing supports the second.
            codes = np.where(codes == 0, codes.max(axis=1, keepdims=True), codes)
            np.copyto(codes, 0, where=group.uneven[:, None])
            before = doubts[:, group.rows, at]
            doubts[:, group.rows, at] = np.where(before == 0, codes, before)
        return doubts

    def _codes(self, key: str, group: _Siblings, delta: Delta) -> Codes | None:
        """The doubts about the event by (samples, threads, cores); None: there are none."""
        counters, table, rows, r = self._counters, delta.tables["cpu"], group.rows, group.r
        slack = TOLERANCE + table.reads.take(rows, axis=-1).max(axis=1, keepdims=True)
        x = group.x * self._splitter.factor(key)
        low, high = _bounds(key, r)
        outside, still = (x < low - slack) | (x > high + slack), x == 0
        if np.count_nonzero(still):
            hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
            ran = r * counters.tsc_ticks(delta)[..., rows] > WORKED_S * hz
            still &= ran if key == "distributed" else ran.any(axis=1, keepdims=True)
            if key == "one_thread":  # never alone, although their running times differ
                apart = r.max(axis=1, keepdims=True) - r.min(axis=1, keepdims=True)
                still &= still.all(axis=1, keepdims=True) & (apart > UNLIKE + slack - TOLERANCE)
        wrong = _disagree(key, r, x, slack) if len(rows) == 2 else np.zeros(1, bool)
        if not any(np.count_nonzero(found) for found in (outside, still, wrong)):
            return None
        codes = np.zeros(x.shape, np.uint8)
        codes[outside] = Doubt.OUTSIDE
        codes[still] = Doubt.STILL
        fresh = wrong & (codes == 0).all(axis=1, keepdims=True)
        np.copyto(codes, np.uint8(Doubt.APART), where=fresh)
        return codes

    def _key(self) -> str | None:
        key = self._splitter.counted()
        return key if key in self._counters.key_at else None


def _bounds(key: str, r: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest share of the event of each CPU (samples, threads, cores) that can have
    been counted, by how long each thread ran."""
    if key == "distributed":
        return r / 2, r
    if key == "one_thread":
        return np.maximum(r - r[:, ::-1], 0.0), r
    return r.max(axis=1, keepdims=True), np.minimum(1.0, _together(r))


def _disagree(key: str, r: Floats, x: Floats, slack: Floats) -> Bools:
    """(samples, 1, cores) where the events of two threads disagree on ANY."""
    if key == "distributed":
        any_ = x[:, :1] + x[:, 1:]
        low, high = r.max(axis=1, keepdims=True), np.minimum(1.0, _together(r))
        return np.asarray((any_ < low - 2 * slack) | (any_ > high + 2 * slack))
    each = r[:, ::-1] + x if key == "one_thread" else x
    return np.asarray(np.abs(each[:, :1] - each[:, 1:]) > 2 * slack)


def _together(r: Floats) -> Floats:
    """(samples, 1, cores): the sum over the threads. Along another axis numpy would add up more
    than two in another order, to another last digit."""
    return np.asarray(np.ascontiguousarray(r.swapaxes(1, 2)).sum(axis=2)[:, None])


def _bounds_of_many(r: Floats, x: Floats, span_s: Floats) -> tuple[Floats, Floats]:
    """Bounds as in `factor_bounds`, for an any-thread event of cores with more than two threads."""
    share = mean_known(np.ascontiguousarray(x.swapaxes(1, 2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        blur = BLUR_S / span_s
        lowest, together = r.max(axis=1), np.minimum(1.0, _together(r)[:, 0])
        low, high = (lowest - blur) / share, (together + blur) / share
        enough = (lowest > LEAST_SHARE) & (share > 0)
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)
