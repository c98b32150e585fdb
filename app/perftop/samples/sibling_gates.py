"""Comparison of what siblings count of the same core. It gives doubts about SMT events, and
evidence for the worth of their ticks.

The running times r0 and r1 of the threads bound an SMT event of their core. They come from fixed
counters, so an event outside the bounds is doubted, not they.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.samples.calibration import BLUR_S, LEAST_SHARE, Calibration, Told, factor_bounds
from perftop.samples.counters import Counters
from perftop.samples.delta import Delta
from perftop.samples.doubt import Doubt
from perftop.samples.gates import WORKED_S
from perftop.samples.smt import TOLERANCE, Splitter, mean_known

UNLIKE = 1e-3
"""Share of the span by which the running times must differ before an event of one thread must have
moved. Threads with equal times may never have run alone: clock modulation halts both at once."""


@frozen
class _Siblings:
    """Cores with the same number of threads, in some samples: arrays are (samples, cores[, …])."""

    rows: Ints
    """(cores, threads) positions of CPUs."""
    uneven: Bools
    """Where the siblings were read over different spans: nothing can be compared."""
    r: Floats
    """The share of the span that each thread ran."""


class Evidence(NamedTuple):
    """What some samples tell about the factor of an event."""

    calibration: Calibration
    told: list[tuple[Told, ...]]
    """By sample, in order of use."""


class SiblingGates:
    """The gates between siblings of one stream. `splitter` owns the cores and the calibrations."""

    def __init__(self, counters: Counters, splitter: Splitter) -> None:
        self._counters, self._splitter = counters, splitter

    def evidence(self, delta: Delta, util: Floats, online: Bools) -> Evidence | None:
        """What samples tell about the factor of the event in use. A doubted event tells it too,
        because a wrong factor makes every sample doubtful."""
        key = self._key()
        calibration = self._splitter.calibrations.get(key or "")
        if key is None or calibration is None:
            return None
        told: list[list[Told]] = []
        for group in self._groups(key, delta, util, online):
            low, high = self._factor_bounds(key, group, delta)
            ways, cores = low.shape[1:]
            low = np.where(group.uneven[:, None], np.nan, low)
            every = calibration.told(low.reshape(-1, cores), high.reshape(-1, cores))
            told += [every[way::ways] for way in range(ways)]
        return Evidence(calibration, [*zip(*told, strict=True)])

    def _factor_bounds(self, key: str, group: _Siblings, delta: Delta) -> tuple[Floats, Floats]:
        """(samples, ways, cores): what each of two threads says, or all of them together."""
        counters, r = self._counters, group.r
        x = self._splitter.shares(key, delta)[..., group.rows]
        block = counters.columns[key].block
        span_s = delta.tables[block].ticks[..., group.rows] / counters.stamp_hz
        if group.rows.shape[1] > 2:
            low, high = _bounds_of_many(r, x, span_s[..., 0])
            return low[:, None], high[:, None]
        if key == "distributed":
            x = np.broadcast_to(x.sum(axis=-1, keepdims=True), x.shape)
        low, high = factor_bounds(key, r, x, r[..., ::-1], span_s)
        return low.swapaxes(1, 2), high.swapaxes(1, 2)

    def learn(self, evidence: Evidence, sample: int) -> None:
        """Use one of these samples as evidence."""
        for told in evidence.told[sample] if evidence.told else ():
            evidence.calibration.observe(told)

    def check(self, delta: Delta, util: Floats, online: Bools) -> Codes:
        """The doubts of `delta` and those about SMT events."""
        key, doubts = self._key(), delta.doubts
        if key is None:
            return doubts
        of_key = doubts[..., self._counters.key_at[key]].copy()
        for group in self._groups(key, delta, util, online):
            codes = self._codes(key, group, delta)
            if not codes.any():
                continue
            # A program that takes the event of one thread takes that of the other: without the
            # first, nothing supports the second.
            codes = np.where(codes == 0, codes.max(axis=-1, keepdims=True), codes)
            codes[group.uneven] = 0
            before = of_key[..., group.rows]
            of_key[..., group.rows] = np.where(before == 0, codes, before)
        if not of_key.any():
            return doubts
        doubts = doubts.copy()
        doubts[..., self._counters.key_at[key]] = of_key
        return doubts

    def _codes(self, key: str, group: _Siblings, delta: Delta) -> Codes:
        counters, table, rows, r = self._counters, delta.tables["cpu"], group.rows, group.r
        hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            reads = (table.width / table.ticks)[..., rows.T].max(axis=-2)
        slack = (TOLERANCE + np.where(np.isfinite(reads), reads, 0.0))[..., None]
        x = self._splitter.shares(key, delta)[..., rows] * self._splitter.factor(key)
        ran = r * counters.tsc_ticks(delta)[..., rows] > WORKED_S * hz
        codes = np.zeros(x.shape, np.uint8)
        low, high = _bounds(key, r)
        codes[(x < low - slack) | (x > high + slack)] = Doubt.OUTSIDE
        if key == "one_thread":  # never alone, although their running times differ
            unlike = np.ptp(r, axis=-1) > UNLIKE + slack[..., 0] - TOLERANCE
            codes[(x == 0).all(axis=-1) & ran.any(axis=-1) & unlike] = Doubt.STILL
        else:
            moves = ran if key == "distributed" else ran.any(axis=-1, keepdims=True)
            codes[(x == 0) & moves] = Doubt.STILL
        if rows.shape[1] == 2:
            _compare(key, r, x, slack, codes)
        return codes

    def _key(self) -> str | None:
        key = self._splitter.counted()
        return key if key in self._counters.key_at else None

    def _groups(self, key: str, delta: Delta, util: Floats, online: Bools) -> Iterator[_Siblings]:
        for group in self._splitter.groups(online):
            if group.threads == 2 or (group.threads > 2 and key == "any_thread"):
                uneven = self._splitter.uneven(group.rows, delta)
                yield _Siblings(group.rows, uneven, util[..., group.rows])


def _bounds(key: str, r: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest share that the event of each CPU (…, cores, threads) can have counted, by
    how long each thread ran."""
    if key == "distributed":
        return r / 2, r
    if key == "one_thread":
        return np.maximum(r - r[..., ::-1], 0.0), r
    most = np.minimum(1.0, r.sum(axis=-1, keepdims=True))
    return r.max(axis=-1, keepdims=True), most


def _compare(key: str, r: Floats, x: Floats, slack: Floats, codes: np.ndarray) -> None:
    """Doubt both events of a core if they disagree on ANY and neither is doubted already."""
    if key == "distributed":
        any_ = x.sum(axis=-1, keepdims=True)
        low, high = r.max(axis=-1, keepdims=True), np.minimum(1.0, r.sum(axis=-1, keepdims=True))
        wrong = (any_ < low - 2 * slack) | (any_ > high + 2 * slack)
    else:
        each = r[..., ::-1] + x if key == "one_thread" else x
        wrong = np.abs(each[..., :1] - each[..., 1:]) > 2 * slack
    fresh = wrong & (codes == 0).all(axis=-1, keepdims=True)
    codes[np.broadcast_to(fresh, codes.shape)] = Doubt.APART


def _bounds_of_many(r: Floats, x: Floats, span_s: Floats) -> tuple[Floats, Floats]:
    """Bounds as in `factor_bounds`, for an any-thread event of cores with more than two threads."""
    share = mean_known(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        blur = BLUR_S / span_s
        lowest, together = r.max(axis=-1), np.minimum(1.0, r.sum(axis=-1))
        low, high = (lowest - blur) / share, (together + blur) / share
        enough = (lowest > LEAST_SHARE) & (share > 0)
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)
