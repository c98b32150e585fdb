"""Checks whether a sample can be true, before its numbers are shown.

Each gate compares two counts of the same time and names the counter to doubt. Fixed counters are
witnesses against programmable ones, which other programs can take; APERF, MPERF and the TSC, which
nobody programs, are witnesses against the fixed ones. (Counters that moved further than any clock
could drive them are caught earlier, where differences are taken.)

Siblings count the same core: the running times r0 and r1 of the threads bound an SMT event. They
come from fixed counters, so an event outside the bounds is doubted, not they. The same bounds are
evidence for the worth of the event's ticks.

Tolerances are shares of the span, plus the time that the reads at its ends took: counters are read
one after the other, so two of them never cover exactly the same span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.model.calibration import (
    MAX_READ_DISTANCE_S,
    MIN_COUNTED_SHARE,
    BoundsEvidence,
    Calibration,
    factor_bounds,
)
from perftop.model.counters import Counters
from perftop.model.delta import Delta, Doubt
from perftop.model.differences import MAX_IPC
from perftop.model.smt import TOLERANCE, Splitter, mean_known

SLACK = 0.01
"""Share of the span by which counts may differ; serial reads of real siblings missed bounds by 0.6
%."""
MIN_BUSY_S = 0.02
"""Running time by the system's account after which a counter must have moved; our own wake-ups take
a thousandth of it."""
MIN_WORKED_S = 5e-6
"""Running time by a witness after which a counter must have moved: less than any wake-up takes,
more than one tick of a crystal."""
MAX_CLOCK_DIFFERENCE = 0.02
"""Relative difference below which two clocks agree; turbo and halts cause far larger ones."""
SLOT_KEYS = ("topdown_retiring", "topdown_bad_speculation", "topdown_frontend", "topdown_backend")
"""Each issue slot goes one of these ways."""
CHECKED = {"ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions", *SLOT_KEYS}
WITNESSES = {
    "ref": ("cycles", "mperf"), "cycles": ("ref", "aperf"), "instructions": ("cycles",),
    "kernel_cycles": ("cycles",), "kernel_instructions": ("instructions",),
}  # fmt: skip
"""Counters that show that a CPU worked, by the counter that must have moved then."""
MAX_SLOT_ERROR = 0.02
"""Share of the slots by which the four may miss them: four fields, each right to 1 in 255."""
MIN_RUN_SHARE = 0.1
"""Share of the span that a CPU must have run before its clocks are first compared."""
MIN_TIME_DIFFERENCE = 1e-3
"""Share of the span by which the running times must differ before an event of one thread must have
moved. Threads with equal times may never have run alone: clock modulation halts both at once."""


class Gates:
    """The gates of one stream. They remember on which CPUs a counter has agreed with its witness.
    Only there a later difference raises a doubt, because a hypervisor or an odd model may let the
    two run at different rates."""

    def __init__(self, counters: Counters) -> None:
        rows = len(counters.hello.topology)
        self._agreed = {"ref": np.zeros(rows, bool), "cycles": np.zeros(rows, bool)}
        self._some = not CHECKED.isdisjoint(counters.key_at)
        """Whether the stream has counters to check."""

    def check(self, counters: Counters, delta: Delta) -> None:
        """Write the doubts into `delta`, which holds samples along its first axis."""
        if not self._some or "cpu" not in delta.tables:
            return
        samples = _CheckedSamples(counters, delta)
        _check_standstill(samples)
        agreed = self._check_clocks(samples)
        cycles, instructions = samples.moved("cycles"), samples.moved("instructions")
        if cycles is not None and instructions is not None:
            many = instructions > MAX_IPC * (cycles + samples.slack)
            samples.doubt("instructions", Doubt.IPC, many)
            samples.doubt("cycles", Doubt.IPC, many & ~agreed)
        for part, whole in (("kernel_cycles", cycles), ("kernel_instructions", instructions)):
            moved = samples.moved(part)
            if moved is not None and whole is not None:
                samples.doubt(part, Doubt.ABOVE, moved > whole * (1 + SLACK) + samples.slack)
        slots = samples.moved("slots")
        ways = [moved for key in SLOT_KEYS if (moved := samples.moved(key)) is not None]
        if slots is not None and len(ways) == len(SLOT_KEYS):
            error = np.abs(np.sum(ways, axis=0) - slots)
            wrong = error > MAX_SLOT_ERROR * slots + samples.slack
            for key in SLOT_KEYS:
                samples.doubt(key, Doubt.SLOTS, wrong)

    def _check_clocks(self, samples: _CheckedSamples) -> Bools:
        """Compare reference cycles with the TSC and MPERF, and cycles with APERF. Returns where
        cycles have agreed by then; without the axis of samples if that is not new."""
        ref = samples.moved("ref")
        if ref is not None and samples.counters.has_tsc:
            samples.doubt("ref", Doubt.FAST, ref > samples.ticks + samples.slack)
        agreed, least = self._agreed["cycles"], 4 * samples.slack
        for key, witness in (("ref", "mperf"), ("cycles", "aperf")):
            moved, other = samples.moved(key), samples.moved(witness)
            if moved is None or other is None:
                continue
            apart, before = np.abs(moved - other), self._agreed[key]
            unlike = apart > np.maximum(MAX_CLOCK_DIFFERENCE * np.maximum(moved, other), least)
            if np.count_nonzero(before) < before.size:
                agree = other > MIN_RUN_SHARE * samples.ticks
                agree &= apart < MAX_CLOCK_DIFFERENCE * other
                if np.count_nonzero(agree & ~before):  # seldom
                    by_now = np.logical_or.accumulate(np.concatenate([before[None], agree]))
                    before, self._agreed[key] = by_now[:-1], by_now[-1]
                    if key == "cycles":
                        agreed = by_now[1:]
            samples.doubt(key, Doubt.UNLIKE, before & unlike)
        return agreed


class _CheckedSamples:
    """Samples and their doubts so far; arrays are (samples, CPUs)."""

    def __init__(self, counters: Counters, delta: Delta) -> None:
        self.counters, self.delta = counters, delta
        self._moved: dict[str, Floats | None] = {}
        self._clean = not np.count_nonzero(delta.doubts)
        """Nothing is doubted yet."""
        table = delta.tables["cpu"]
        self.ticks: Floats = counters.tsc_ticks(delta) if counters.has_tsc else table.ticks
        """TSC ticks of each span."""
        self.slack: Floats = (SLACK + table.reads) * self.ticks
        """TSC ticks by which two counts of the span may differ."""
        hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
        self.worked_ticks = MIN_WORKED_S * hz

    def moved(self, key: str) -> Floats | None:
        """How far a counter moved; NaN where it is doubted already, so that it raises no doubt
        elsewhere."""
        if key not in self._moved:
            self._moved[key] = self.counters.moved(self.delta, key)
        moved = self._moved[key]
        if moved is None or self._clean or key not in self.counters.key_at:
            return moved
        return np.where(self.delta.doubts[..., self.counters.key_at[key]] == 0, moved, np.nan)

    def doubt(self, key: str, why: Doubt, rows: Bools) -> None:
        """Doubt a counter on these rows; a reason noted earlier stays."""
        if np.count_nonzero(rows):
            codes = self.delta.doubts[..., self.counters.key_at[key]]
            codes[rows & (codes == 0)] = why
            self._clean = False


def _check_standstill(samples: _CheckedSamples) -> None:
    """Doubt counters that do not move while the CPU works: a hypervisor may answer every read with
    the same number, or another program may have put another event in a counter's place."""
    read = samples.ticks > 0
    for key, witnesses in WITNESSES.items():
        moved = samples.moved(key)
        if moved is None or np.count_nonzero(moved) == moved.size:
            continue
        if not np.count_nonzero(still := (moved == 0) & read):
            continue
        if key == "ref" and (busy := _busy_s(samples.counters, samples.delta)) is not None:
            samples.doubt(key, Doubt.STILL, still & (busy > MIN_BUSY_S))
        for witness in witnesses:
            if (other := samples.moved(witness)) is not None:
                samples.doubt(key, Doubt.STILL, still & (other > samples.worked_ticks))


def _busy_s(counters: Counters, delta: Delta) -> Floats | None:
    """Seconds that each CPU was not idle, by the system's account; None if the stream has none."""
    busy, idle, poll = (counters.moved(delta, key) for key in ("busy_s", "idle_s", "poll_s"))
    if busy is not None or idle is None:
        return busy
    block = counters.columns["idle_s"].block
    elapsed: Floats = delta.tables[block].ticks / counters.stamp_hz
    return elapsed - idle - (0.0 if poll is None else poll)


@dataclass(slots=True)
class SiblingCounts:
    """Cores with the same number of threads, in some samples: arrays are (samples, threads, cores),
    because numpy is slow along a last axis of two."""

    rows: Ints
    """(threads, cores) positions of CPUs."""
    uneven: Bools
    """(samples, cores): the siblings were read over different spans, so nothing can be compared."""
    r: Floats
    """The share of the span that each thread ran."""
    x: Floats
    """Ticks of the event in use per TSC tick of the span."""


class Evidence(NamedTuple):
    """Evidence of some samples for the factor of an event."""

    calibration: Calibration
    by_sample: list[tuple[BoundsEvidence, ...]]
    """By sample, in the order in which it is used."""


class SiblingGates:
    """The gates between siblings of one stream. `splitter` owns the cores and the calibrations."""

    def __init__(self, counters: Counters, splitter: Splitter) -> None:
        self._counters, self._splitter = counters, splitter

    def counts(self, delta: Delta, util: Floats, online: Bools) -> list[SiblingCounts]:
        """Counts of siblings with the event in use; none if there is no such event."""
        key, groups = self._key(), list[SiblingCounts]()
        if key is None:
            return groups
        for group in self._splitter.groups(online):
            if group.threads == 2 or (group.threads > 2 and key == "any_thread"):
                rows = group.by_thread
                uneven = self._splitter.uneven(rows, delta)
                x = self._splitter.shares(key, delta).take(rows, axis=-1)
                groups.append(SiblingCounts(rows, uneven, util.take(rows, axis=-1), x))
        return groups

    def evidence(self, siblings: list[SiblingCounts], delta: Delta) -> Evidence | None:
        """Evidence for the factor of the event in use. A doubted event counts too, because a wrong
        factor makes every sample doubtful."""
        key = self._key()
        calibration = self._splitter.calibrations.get(key or "")
        if key is None or calibration is None:
            return None
        by_group: list[list[BoundsEvidence]] = []
        for group in siblings:
            low, high = self._factor_bounds(key, group, delta)
            ways, cores = low.shape[1:]
            if np.count_nonzero(group.uneven):
                low = np.where(group.uneven[:, None], np.nan, low)
            every = calibration.judge(low.reshape(-1, cores), high.reshape(-1, cores))
            by_group += [every[way::ways] for way in range(ways)]
        return Evidence(calibration, [*zip(*by_group, strict=True)])

    def _factor_bounds(self, key: str, group: SiblingCounts, delta: Delta) -> tuple[Floats, Floats]:
        """(samples, ways, cores): by each of two threads, or by all of them together."""
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
        for bounds in evidence.by_sample[sample] if evidence.by_sample else ():
            evidence.calibration.observe(bounds)

    def check(self, siblings: list[SiblingCounts], delta: Delta) -> Codes:
        """The doubts of `delta` and those about SMT events."""
        key, doubts = self._key(), delta.doubts
        if key is None:
            return doubts
        at, copied = self._counters.key_at[key], False
        for group in siblings:
            codes = self._codes(key, group, delta)
            if codes is None:
                continue
            if not copied:
                doubts, copied = doubts.copy(), True
            # A program that takes the event of one thread takes that of the other: without the
            # first, nothing supports the second.
            codes = np.where(codes == 0, codes.max(axis=1, keepdims=True), codes)
            np.copyto(codes, 0, where=group.uneven[:, None])
            before = doubts[:, group.rows, at]
            doubts[:, group.rows, at] = np.where(before == 0, codes, before)
        return doubts

    def _codes(self, key: str, group: SiblingCounts, delta: Delta) -> Codes | None:
        """The doubts about the event by (samples, threads, cores); None: there are none."""
        counters, table, rows, r = self._counters, delta.tables["cpu"], group.rows, group.r
        slack = TOLERANCE + table.reads.take(rows, axis=-1).max(axis=1, keepdims=True)
        x = group.x * self._splitter.factor(key)
        low, high = _bounds(key, r)
        outside, still = (x < low - slack) | (x > high + slack), x == 0
        if np.count_nonzero(still):
            hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
            ran = r * counters.tsc_ticks(delta)[..., rows] > MIN_WORKED_S * hz
            still &= ran if key == "distributed" else ran.any(axis=1, keepdims=True)
            if key == "one_thread":  # never alone, although their running times differ
                apart = r.max(axis=1, keepdims=True) - r.min(axis=1, keepdims=True)
                least = MIN_TIME_DIFFERENCE + slack - TOLERANCE
                still &= still.all(axis=1, keepdims=True) & (apart > least)
        wrong = _disagree(key, r, x, slack) if len(rows) == 2 else np.zeros(1, bool)
        if not any(np.count_nonzero(mask) for mask in (outside, still, wrong)):
            return None
        codes = np.zeros(x.shape, np.uint8)
        codes[outside] = Doubt.OUTSIDE
        codes[still] = Doubt.STILL
        fresh = wrong & (codes == 0).all(axis=1, keepdims=True)
        np.copyto(codes, np.uint8(Doubt.APART), where=fresh)
        return codes

    def _key(self) -> str | None:
        key = self._splitter.any_counter()
        return key if key in self._counters.key_at else None


def _bounds(key: str, r: Floats) -> tuple[Floats, Floats]:
    """Lowest and highest possible share of the event of each CPU (samples, threads, cores), by how
    long each thread ran."""
    if key == "distributed":
        return r / 2, r
    if key == "one_thread":
        return np.maximum(r - r[:, ::-1], 0.0), r
    return r.max(axis=1, keepdims=True), np.minimum(1.0, _sum_of_threads(r))


def _disagree(key: str, r: Floats, x: Floats, slack: Floats) -> Bools:
    """(samples, 1, cores) where the events of two threads disagree on ANY."""
    if key == "distributed":
        any_ = x[:, :1] + x[:, 1:]
        low, high = r.max(axis=1, keepdims=True), np.minimum(1.0, _sum_of_threads(r))
        return np.asarray((any_ < low - 2 * slack) | (any_ > high + 2 * slack))
    by_thread = r[:, ::-1] + x if key == "one_thread" else x
    return np.asarray(np.abs(by_thread[:, :1] - by_thread[:, 1:]) > 2 * slack)


def _sum_of_threads(r: Floats) -> Floats:
    """(samples, 1, cores). Along another axis numpy would add up more than two in another order, to
    another last digit."""
    return np.asarray(np.ascontiguousarray(r.swapaxes(1, 2)).sum(axis=2)[:, None])


def _bounds_of_many(r: Floats, x: Floats, span_s: Floats) -> tuple[Floats, Floats]:
    """Bounds as in `factor_bounds`, for an any-thread event of cores with more than two threads."""
    share = mean_known(np.ascontiguousarray(x.swapaxes(1, 2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        blur = MAX_READ_DISTANCE_S / span_s
        lowest, together = r.max(axis=1), np.minimum(1.0, _sum_of_threads(r)[:, 0])
        low, high = (lowest - blur) / share, (together + blur) / share
        enough = (lowest > MIN_COUNTED_SHARE) & (share > 0)
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)
