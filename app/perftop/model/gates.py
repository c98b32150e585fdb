"""Checks whether a sample can be true, before its numbers reach the screen.

Each gate compares two counts of the same time and names the counter to doubt. Fixed counters are
witnesses against programmable ones, which other programs can take; APERF, MPERF and the TSC, which
nobody programs, are witnesses against the fixed ones. (Counters that moved further than any clock
could drive them are caught earlier, where differences are taken.)

Tolerances are shares of the span, plus the time that the reads at its ends took: counters are read
one after the other, so two of them never cover exactly the same span.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.model.calibration import BLUR_S, MIN_COUNTED_SHARE, Calibration, Told, factor_bounds
from perftop.model.counters import Counters
from perftop.model.delta import Delta, Doubt
from perftop.model.differences import MAX_IPC
from perftop.model.smt import TOLERANCE, Splitter, mean_known

SLACK = 0.01
"""Share of the span by which counts may differ; serial reads of real siblings missed bounds by 0.6
%."""
BUSY_S = 0.02
"""Seconds of running by the system's account after which a counter must have moved; our own
wake-ups take a thousandth of it."""
WORKED_S = 5e-6
"""Seconds of running by a witness after which a counter must have moved: less than any wake-up
takes, more than one tick of a crystal."""
AGREED = 0.02
"""Relative difference below which two clocks agree; turbo and halts cause far larger ones."""
WAYS = ("topdown_retiring", "topdown_bad_speculation", "topdown_frontend", "topdown_backend")
"""Each issue slot goes one of these ways."""
CHECKED = {"ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions", *WAYS}
WITNESSES = {
    "ref": ("cycles", "mperf"), "cycles": ("ref", "aperf"), "instructions": ("cycles",),
    "kernel_cycles": ("cycles",), "kernel_instructions": ("instructions",),
}  # fmt: skip
"""Counters that show that a CPU worked, by the counter that must have moved then."""
SLOTS_APART = 0.02
"""Share of the slots by which the four may miss them: four fields, each right to 1 in 255."""
MIN_RUN_SHARE = 0.1
"""Minimum share of the span that a CPU must have run before its clocks are first compared."""


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
        doubt = _Noted(counters, delta)
        _standstill(doubt)
        _parts(doubt, self._clocks(doubt))
        _slots(doubt)

    def _clocks(self, doubt: _Noted) -> Bools:
        """Compare reference cycles with the TSC and MPERF, and cycles with APERF. Returns where
        cycles have agreed by then; without the axis of samples if nothing new tells that."""
        ref = doubt.moved("ref")
        if ref is not None and doubt.counters.has_tsc:
            doubt.note("ref", Doubt.FAST, ref > doubt.ticks + doubt.slack)
        agreed, least = self._agreed["cycles"], 4 * doubt.slack
        for key, witness in (("ref", "mperf"), ("cycles", "aperf")):
            mine, other = doubt.moved(key), doubt.moved(witness)
            if mine is None or other is None:
                continue
            apart, before = np.abs(mine - other), self._agreed[key]
            unlike = apart > np.maximum(AGREED * np.maximum(mine, other), least)
            if np.count_nonzero(before) < before.size:
                agree = (other > MIN_RUN_SHARE * doubt.ticks) & (apart < AGREED * other)
                if np.count_nonzero(agree & ~before):  # seldom
                    by_now = np.logical_or.accumulate(np.concatenate([before[None], agree]))
                    before, self._agreed[key] = by_now[:-1], by_now[-1]
                    if key == "cycles":
                        agreed = by_now[1:]
            doubt.note(key, Doubt.UNLIKE, before & unlike)
        return agreed


def _parts(doubt: _Noted, agreed: Bools) -> None:
    """Compare instructions with cycles, and kernel counts with total counts. `agreed`: where cycles
    have agreed with their witness."""
    cycles, instructions = doubt.moved("cycles"), doubt.moved("instructions")
    if cycles is not None and instructions is not None:
        many = instructions > MAX_IPC * (cycles + doubt.slack)
        doubt.note("instructions", Doubt.IPC, many)
        doubt.note("cycles", Doubt.IPC, many & ~agreed)
    for part, whole in (("kernel_cycles", cycles), ("kernel_instructions", instructions)):
        moved = doubt.moved(part)
        if moved is not None and whole is not None:
            doubt.note(part, Doubt.ABOVE, moved > whole * (1 + SLACK) + doubt.slack)


def _slots(doubt: _Noted) -> None:
    """Compare the four ways of issue slots with the slots, where a CPU worked long enough for the
    steps of 8 bits not to matter."""
    every = doubt.moved("slots")
    if every is None:
        return
    parts = [doubt.moved(key) for key in WAYS]
    if any(part is None for part in parts):
        return
    total = np.sum([part for part in parts if part is not None], axis=0)
    apart = np.abs(total - every) > SLOTS_APART * every + doubt.slack
    for key in WAYS:
        doubt.note(key, Doubt.SLOTS, apart)


class _Noted:
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
        self.little = WORKED_S * (counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan)

    def moved(self, key: str) -> Floats | None:
        """How far a counter moved; NaN where it is doubted already, so that it raises no doubt
        elsewhere."""
        if key not in self._moved:
            self._moved[key] = self.counters.moved(self.delta, key)
        moved = self._moved[key]
        if moved is None or self._clean or key not in self.counters.key_at:
            return moved
        return np.where(self.delta.doubts[..., self.counters.key_at[key]] == 0, moved, np.nan)

    def note(self, key: str, why: Doubt, rows: Bools) -> None:
        """Doubt a counter on these rows; a reason noted earlier stays."""
        if np.count_nonzero(rows):
            codes = self.delta.doubts[..., self.counters.key_at[key]]
            codes[rows & (codes == 0)] = why
            self._clean = False


def _standstill(doubt: _Noted) -> None:
    """Doubt counters that do not move while the CPU works: a hypervisor may answer every read with
    the same number, or another program may have put another event in a counter's place."""
    read = doubt.ticks > 0
    for key, signs in WITNESSES.items():
        moved = doubt.moved(key)
        if moved is None or np.count_nonzero(moved) == moved.size:
            continue
        if not np.count_nonzero(still := (moved == 0) & read):
            continue
        if key == "ref" and (busy := _busy_s(doubt.counters, doubt.delta)) is not None:
            doubt.note(key, Doubt.STILL, still & (busy > BUSY_S))
        for sign in signs:
            if (other := doubt.moved(sign)) is not None:
                doubt.note(key, Doubt.STILL, still & (other > doubt.little))


def _busy_s(counters: Counters, delta: Delta) -> Floats | None:
    """Seconds that each CPU was not idle, by the account that the stream has; None if it has
    none."""
    busy = counters.moved(delta, "busy_s")
    idle = counters.moved(delta, "idle_s")
    if busy is not None or idle is None:
        return busy
    poll = counters.moved(delta, "poll_s")
    block = counters.columns["idle_s"].block
    elapsed: Floats = delta.tables[block].ticks / counters.stamp_hz
    return elapsed - idle - (0.0 if poll is None else poll)


UNLIKE = 1e-3
"""Share of the span by which the running times must differ before an event of one thread must have
moved. Threads with equal times may never have run alone: clock modulation halts both at once."""


@dataclass(frozen=True, slots=True)
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
        enough = (lowest > MIN_COUNTED_SHARE) & (share > 0)
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)
