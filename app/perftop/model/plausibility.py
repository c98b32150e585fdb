"""Checks whether the counts of a sample are plausible, before numbers are computed from them.

A check compares two counts of the same time. If they disagree, the less reliable counter is marked
as suspect. The other one is called the witness. Programmable counters, which other programs can
take, are compared with fixed counters. Fixed counters are compared with APERF, MPERF and the TSC,
which no program changes. (`model.differences` rejects counters that advanced faster than any
clock.)

Counts of multiplexed events are scaled up, so they are estimates. Estimates are neither checked nor
used as witnesses.

SMT events count for the whole core. The unhalted times r0 and r1 of the core's threads come from
fixed counters and bound each SMT event. An event outside the bounds is suspect. The same bounds
show how many TSC ticks one tick of the event is worth.

Tolerances are shares of the span, plus the duration of the reads at both of its ends. Counters are
read one after the other, so two of them never cover exactly the same span.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.model.counters import Counters
from perftop.model.delta import MAX_IPC, Delta, Doubt
from perftop.model.smt import (
    MAX_READ_DISTANCE_S,
    MIN_COUNTED_SHARE,
    TOLERANCE,
    Splitter,
    factor_bounds,
    known_mean,
)

SLACK_SHARE = 0.01
"""Share of the span by which two counts may differ. On real siblings, which are read one after the
other, counts exceeded their bounds by up to 0.6 %."""
MIN_BUSY_S = 0.02
"""Minimum busy time in s, according to the kernel, in which a working counter must advance. The
probe's own wake-ups take a thousandth of this time."""
MIN_WORKED_S = 5e-6
"""Minimum running time in s, according to a witness, in which a working counter must advance:
shorter than any wake-up, longer than a tick of a crystal."""
MAX_CLOCK_DIFFERENCE = 0.02
"""Relative difference below which two clocks agree. Turbo and halts cause far larger ones."""
SLOT_KEYS = ("topdown_retiring", "topdown_bad_speculation", "topdown_frontend", "topdown_backend")
"""Counters of the four possible uses of an issue slot. Each slot has exactly one use."""
CHECKED_KEYS = {"ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions", *SLOT_KEYS}
WITNESSES = {
    "ref": ("cycles", "mperf"), "cycles": ("ref", "aperf"), "instructions": ("cycles",),
    "kernel_cycles": ("cycles",), "kernel_instructions": ("instructions",),
}  # fmt: skip
"""The witnesses of each counter. If a witness advanced, the counter must have advanced."""
MAX_SLOT_ERROR = 0.02
"""Maximum error of the sum of the counters in SLOT_KEYS, as a share of the issue slots. The
hardware reports each counter in steps of 1/255."""
MAX_IDLE_DIFFERENCE = 0.5
"""Maximum difference between busy times from idle transitions and from /proc/stat, as a share of
the span. /proc/stat has a resolution of a tick, and it is read a little later."""
MIN_IDLE_DIFFERENCE_S = 0.03
"""Difference in s that is always tolerated: three ticks."""
MIN_RUN_SHARE = 0.1
"""Minimum share of the span for which a CPU must have run before its clocks are first compared."""
MIN_TIME_DIFFERENCE = 1e-3
"""Minimum difference between the unhalted times of siblings, as a share of the span, that proves
that one of them ran alone. Siblings with equal times may never have run alone, because clock
modulation halts both at once."""


class PlausibilityChecks:
    """Checks that compare counters of the same CPU. They only doubt a counter on CPUs where it has
    agreed with its witness before: on unusual CPUs and in guests, their rates may differ."""

    def __init__(self, counters: Counters) -> None:
        rows = len(counters.hello.topology)
        self._clock_agreed = {"ref": np.zeros(rows, bool), "cycles": np.zeros(rows, bool)}
        self._traced = {"busy_s", "stat_idle_s", "stat_iowait_s"} <= counters.key_indexes.keys()
        """Whether the stream has idle times from both idle transitions and /proc/stat."""
        self._is_needed = self._traced or not CHECKED_KEYS.isdisjoint(counters.key_indexes)

    def check(self, counters: Counters, delta: Delta) -> None:
        """Writes the doubts into `delta`, which has samples along its first axis."""
        if not self._is_needed or "cpu" not in delta.tables:
            return
        samples = _CheckedSamples(counters, delta)
        if self._traced:
            _check_idle_times(samples)
        _check_standstill(samples)
        clock_agreed = self._check_clocks(samples)
        cycles, instructions = samples.increments("cycles"), samples.increments("instructions")
        if cycles is not None and instructions is not None:
            is_impossible = instructions > MAX_IPC * (cycles + samples.slack)
            samples.mark_suspect("instructions", Doubt.IPC, is_impossible)
            samples.mark_suspect("cycles", Doubt.IPC, is_impossible & ~clock_agreed)
        for part, whole in (("kernel_cycles", cycles), ("kernel_instructions", instructions)):
            increments = samples.increments(part)
            if increments is not None and whole is not None:
                limit = whole * (1 + SLACK_SHARE) + samples.slack
                samples.mark_suspect(part, Doubt.ABOVE, increments > limit)
        slots = samples.increments("slots")
        counts = [
            increment for key in SLOT_KEYS if (increment := samples.increments(key)) is not None
        ]
        if slots is not None and len(counts) == len(SLOT_KEYS):
            error = np.abs(np.sum(counts, axis=0) - slots)
            is_wrong = error > MAX_SLOT_ERROR * slots + samples.slack
            for key in SLOT_KEYS:
                samples.mark_suspect(key, Doubt.SLOTS, is_wrong)

    def _check_clocks(self, samples: _CheckedSamples) -> Bools:
        """Compares reference cycles with the TSC and MPERF, and cycles with APERF. Returns a mask
        of the CPUs whose cycles have agreed with APERF so far: (samples, CPUs), or only (CPUs)."""
        ref = samples.increments("ref")
        if ref is not None and samples.counters.has_tsc:
            samples.mark_suspect("ref", Doubt.FAST, ref > samples.ticks + samples.slack)
        clock_agreed, min_difference = self._clock_agreed["cycles"], 4 * samples.slack
        for key, witness in (("ref", "mperf"), ("cycles", "aperf")):
            increments, witness_ticks = samples.increments(key), samples.increments(witness)
            if increments is None or witness_ticks is None:
                continue
            difference, agreed_before = np.abs(increments - witness_ticks), self._clock_agreed[key]
            limit = MAX_CLOCK_DIFFERENCE * np.maximum(increments, witness_ticks)
            is_unlike = difference > np.maximum(limit, min_difference)
            if np.count_nonzero(agreed_before) < agreed_before.size:
                can_agree = witness_ticks > MIN_RUN_SHARE * samples.ticks
                can_agree &= difference < MAX_CLOCK_DIFFERENCE * witness_ticks
                if np.count_nonzero(can_agree & ~agreed_before):  # rarely true
                    has_agreed = np.concatenate([agreed_before[None], can_agree])
                    agreed_so_far = np.logical_or.accumulate(has_agreed)
                    agreed_before, self._clock_agreed[key] = agreed_so_far[:-1], agreed_so_far[-1]
                    if key == "cycles":
                        clock_agreed = agreed_so_far[1:]
            samples.mark_suspect(key, Doubt.UNLIKE, agreed_before & is_unlike)
        return clock_agreed


class _CheckedSamples:
    """Samples and the doubts about them so far. Arrays are (samples, CPUs)."""

    def __init__(self, counters: Counters, delta: Delta) -> None:
        self.counters, self.delta = counters, delta
        self._increments: dict[str, Floats | None] = {}
        self._is_clean = not np.count_nonzero(delta.doubts)
        table = delta.tables["cpu"]
        self.ticks: Floats = counters.tsc_ticks(delta) if counters.has_tsc else table.ticks
        self.slack: Floats = (SLACK_SHARE + table.reads) * self.ticks
        """Tolerated difference of two counts, in TSC ticks."""
        hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
        self.worked_ticks = MIN_WORKED_S * hz

    def increments(self, key: str) -> Floats | None:
        """Returns a counter's increments; NaN where it cannot be a witness."""
        if key not in self._increments:
            increments = self.counters.increments(self.delta, key)
            if increments is not None and key in self.counters.multiplexed:
                is_estimated = self.counters.is_estimated(self.delta, key)
                increments = np.where(is_estimated, np.nan, increments)
            self._increments[key] = increments
        increments = self._increments[key]
        if increments is None or self._is_clean or key not in self.counters.key_indexes:
            return increments
        return np.where(
            self.delta.doubts[..., self.counters.key_indexes[key]] == 0, increments, np.nan
        )

    def mark_suspect(self, key: str, code: Doubt, rows: Bools) -> None:
        """Marks a counter as suspect in these rows. Earlier doubts are kept."""
        if np.count_nonzero(rows):
            codes = self.delta.doubts[..., self.counters.key_indexes[key]]
            codes[rows & (codes == 0)] = code
            self._is_clean = False


def _check_standstill(samples: _CheckedSamples) -> None:
    """Marks counters as suspect that do not advance while the CPU runs. A hypervisor may answer
    every read with the same number, or another program may have chosen another event."""
    is_read = samples.ticks > 0
    for key, witnesses in WITNESSES.items():
        increments = samples.increments(key)
        if increments is None or np.count_nonzero(increments) == increments.size:
            continue
        if not np.count_nonzero(stands_still := (increments == 0) & is_read):
            continue
        if key == "ref" and (busy_s := _busy_s(samples.counters, samples.delta)) is not None:
            samples.mark_suspect(key, Doubt.STILL, stands_still & (busy_s > MIN_BUSY_S))
        for witness in witnesses:
            if (witness_ticks := samples.increments(witness)) is not None:
                has_worked = witness_ticks > samples.worked_ticks
                samples.mark_suspect(key, Doubt.STILL, stands_still & has_worked)


def _check_idle_times(samples: _CheckedSamples) -> None:
    """Compares busy time from idle transitions with busy time from /proc/stat, unless /proc/stat
    was read so late that the spans differ."""
    counters, tables = samples.counters, samples.delta.tables
    busy_s, idle_s, iowait_s = map(samples.increments, ("busy_s", "stat_idle_s", "stat_iowait_s"))
    if busy_s is None or idle_s is None or iowait_s is None:
        return
    blocks = (counters.columns[key].block for key in ("busy_s", "stat_idle_s"))
    span_s, stat_span_s = (tables[block].ticks / counters.stamp_hz for block in blocks)
    limit_s = np.maximum(MAX_IDLE_DIFFERENCE * span_s, MIN_IDLE_DIFFERENCE_S)
    spans_agree = np.abs(span_s - stat_span_s) < span_s / 4
    is_apart = np.abs(busy_s - (stat_span_s - idle_s - iowait_s)) > limit_s
    samples.mark_suspect("busy_s", Doubt.IDLE, is_apart & spans_agree)


def _busy_s(counters: Counters, delta: Delta) -> Floats | None:
    """Returns each CPU's seconds without idle time, by the kernel's count; None if not counted."""
    keys = "busy_s", "idle_s", "poll_s"
    busy_s, idle_s, poll_s = (counters.increments(delta, key) for key in keys)
    if busy_s is not None or idle_s is None:
        return busy_s
    block = counters.columns["idle_s"].block
    elapsed: Floats = delta.tables[block].ticks / counters.stamp_hz
    return elapsed - idle_s - (0.0 if poll_s is None else poll_s)


@dataclass(slots=True)
class SiblingCounts:
    """The counts of all cores with the same number of threads, in several samples. Arrays are
    (samples, threads, cores), because numpy is slow along a last axis of length two."""

    rows: Ints
    """(threads, cores): index of each thread in `hello.topology`."""
    spans_differ: Bools
    """Mask (samples, cores) of the cores that cannot be checked, because the siblings were read
    over different spans or a count is an estimate."""
    run_shares: Floats
    """Share of the span for which each thread was unhalted."""
    event_shares: Floats
    """Ticks of the SMT event per TSC tick."""


class SiblingChecks:
    """Checks that compare siblings, and learns the factors of SMT events. `splitter` provides the
    cores and the calibrations."""

    def __init__(self, counters: Counters, splitter: Splitter) -> None:
        self._counters, self._splitter = counters, splitter

    def counts(self, delta: Delta, util: Floats, online: Bools) -> list[SiblingCounts]:
        """Returns the counts of the SMT event in use: one element for all cores with two threads,
        one for all cores with four, and so on; [] if no event is in use."""
        key, groups = self._event_key(), list[SiblingCounts]()
        if key is None:
            return groups
        for group in self._splitter.groups(online):
            if group.threads == 2 or (group.threads > 2 and key == "any_thread"):
                rows = group.by_thread
                spans_differ = self._splitter.spans_differ(rows, delta)
                if key in self._counters.multiplexed:
                    estimated = self._counters.is_estimated(delta, key)
                    spans_differ = spans_differ | estimated.take(rows, axis=-1).any(axis=-2)
                x = self._splitter.shares(key, delta).take(rows, axis=-1)
                groups.append(SiblingCounts(rows, spans_differ, util.take(rows, axis=-1), x))
        return groups

    def learn(self, siblings: list[SiblingCounts], delta: Delta) -> int:
        """Learns the factor (TSC ticks per count) of the SMT event in use, up to the first sample
        that would change the factor (see `Calibration.add_evidence`). Suspect samples are used,
        too, because a wrong factor makes every count suspect. Returns the number of samples
        used."""
        key, samples = self._event_key(), len(delta.doubts)
        calibration = self._splitter.calibrations.get(key or "")
        if key is None or calibration is None:
            return samples
        rows = [np.zeros((samples, 0, 2 * len(calibration.candidates) + 2), np.int64)]
        for group in siblings:
            # Bounds of the factor, (samples, n, cores). With two threads, n is 2: each thread's
            # count gives bounds. With more, n is 1: only all counts together give bounds.
            run_shares, event_shares = group.run_shares, group.event_shares
            ticks = delta.tables[self._counters.columns[key].block].ticks
            span_s = ticks.take(group.rows, axis=-1) / self._counters.stamp_hz
            if len(group.rows) > 2:
                bounds = _event_bounds_of_large_cores(run_shares, event_shares, span_s[:, 0])
                low, high = (part[:, None] for part in bounds)
            else:
                if key == "distributed":
                    event_shares = event_shares[:, :1] + event_shares[:, 1:]
                shares = run_shares, event_shares, run_shares[:, ::-1]
                low, high = factor_bounds(key, *shares, span_s)
            row_count, cores = low.shape[1:]
            if np.count_nonzero(group.spans_differ):
                low = np.where(group.spans_differ[:, None], np.nan, low)
            outcomes = calibration.evidence_rows(low.reshape(-1, cores), high.reshape(-1, cores))
            rows.append(outcomes.reshape(samples, row_count, -1))
        return calibration.add_evidence(np.concatenate(rows, axis=1))

    def check(self, siblings: list[SiblingCounts], delta: Delta) -> Codes:
        """Returns the doubt codes in `delta`, with those of SMT events added."""
        key, doubts = self._event_key(), delta.doubts
        if key is None:
            return doubts
        index, is_copied = self._counters.key_indexes[key], False
        for group in siblings:
            codes = self._doubt_codes(key, group, delta)
            if codes is None:
                continue
            if not is_copied:
                doubts, is_copied = doubts.copy(), True
            # A program that takes the event counter of one thread also takes the sibling's, so if
            # one count is wrong, the other cannot be trusted either.
            codes = np.where(codes == 0, codes.max(axis=1, keepdims=True), codes)
            np.copyto(codes, 0, where=group.spans_differ[:, None])
            codes_before = doubts[:, group.rows, index]
            doubts[:, group.rows, index] = np.where(codes_before == 0, codes, codes_before)
        return doubts

    def _doubt_codes(self, key: str, group: SiblingCounts, delta: Delta) -> Codes | None:
        """Returns the doubts about the event, (samples, threads, cores); None if there are none."""
        counters, table, rows = self._counters, delta.tables["cpu"], group.rows
        slack = TOLERANCE + table.reads.take(rows, axis=-1).max(axis=1, keepdims=True)
        r, x = group.run_shares, group.event_shares * self._splitter.factor(key)
        low, high = _event_bounds(key, r)
        is_outside, stands_still = (x < low - slack) | (x > high + slack), x == 0
        if np.count_nonzero(stands_still):
            hz = counters.hello.tsc_hz.hz if counters.hello.tsc_hz else np.nan
            has_run = r * counters.tsc_ticks(delta)[..., rows] > MIN_WORKED_S * hz
            stands_still &= has_run if key == "distributed" else has_run.any(axis=1, keepdims=True)
            if key == "one_thread":  # no thread ran alone, although their running times differ
                difference = r.max(axis=1, keepdims=True) - r.min(axis=1, keepdims=True)
                differs = difference > MIN_TIME_DIFFERENCE + slack - TOLERANCE
                stands_still &= stands_still.all(axis=1, keepdims=True) & differs
        is_wrong = _threads_disagree(key, r, x, slack) if len(rows) == 2 else np.zeros(1, bool)
        if not any(np.count_nonzero(mask) for mask in (is_outside, stands_still, is_wrong)):
            return None
        codes = np.zeros(x.shape, np.uint8)
        codes[is_outside] = Doubt.OUTSIDE
        codes[stands_still] = Doubt.STILL
        is_new = is_wrong & (codes == 0).all(axis=1, keepdims=True)
        np.copyto(codes, np.uint8(Doubt.APART), where=is_new)
        return codes

    def _event_key(self) -> str | None:
        key = self._splitter.any_counter()
        return key if key in self._counters.key_indexes else None


def _event_bounds(key: str, run_shares: Floats) -> tuple[Floats, Floats]:
    """Returns the lowest and highest possible share of the event, (samples, threads, cores), given
    the unhalted share of each thread."""
    if key == "distributed":
        return run_shares / 2, run_shares
    if key == "one_thread":
        return np.maximum(run_shares - run_shares[:, ::-1], 0.0), run_shares
    return run_shares.max(axis=1, keepdims=True), np.minimum(1.0, _sum_of_threads(run_shares))


def _threads_disagree(key: str, run_shares: Floats, event_shares: Floats, slack: Floats) -> Bools:
    """Returns a mask (samples, 1, cores) of the cores whose two threads disagree about the share of
    the span in which at least one thread ran."""
    if key == "distributed":
        any_ = event_shares[:, :1] + event_shares[:, 1:]
        low = run_shares.max(axis=1, keepdims=True)
        high = np.minimum(1.0, _sum_of_threads(run_shares))
        return np.asarray((any_ < low - 2 * slack) | (any_ > high + 2 * slack))
    by_thread = run_shares[:, ::-1] + event_shares if key == "one_thread" else event_shares
    return np.asarray(np.abs(by_thread[:, :1] - by_thread[:, 1:]) > 2 * slack)


def _sum_of_threads(run_shares: Floats) -> Floats:
    """Returns the sums over threads, (samples, 1, cores). Along another axis, numpy would add more
    than two threads in another order, which changes the last digit."""
    return np.asarray(np.ascontiguousarray(run_shares.swapaxes(1, 2)).sum(axis=2)[:, None])


def _event_bounds_of_large_cores(
    run_shares: Floats, event_shares: Floats, span_s: Floats
) -> tuple[Floats, Floats]:
    """Returns bounds of an any-thread event's factor, for cores with more than two threads."""
    share = known_mean(np.ascontiguousarray(event_shares.swapaxes(1, 2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        tolerance = MAX_READ_DISTANCE_S / span_s
        lowest, total = run_shares.max(axis=1), np.minimum(1.0, _sum_of_threads(run_shares)[:, 0])
        low, high = (lowest - tolerance) / share, (total + tolerance) / share
        is_usable = (lowest > MIN_COUNTED_SHARE) & (share > 0)
    return np.where(is_usable, low, np.nan), np.where(is_usable, high, np.nan)
