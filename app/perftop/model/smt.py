"""The four SMT states of a physical core (neither thread runs, only the first, only the second,
both), and the calibration of the events that measure them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.counters import Cores, Counters
from perftop.model.delta import Delta
from perftop.model.evaluation import Values

# --- Calibration. The factor of an SMT event is the number of TSC ticks per tick of the event.
#
# The factor is learned from the frames. Tables and CPUID give candidates, and some of them are
# wrong: a table may give a workstation's crystal frequency for a server with the same model number.
#
# The siblings' counts bound the factor k from both sides, for example `(r0 - r1) / one0 <= k <= r0
# / one0`. Here r0 and r1 are the siblings' reference cycles, and one0 is the count of the event on
# sibling 0. A sample supports the candidates within its bounds. If there are none, it was
# disturbed, or another program took the counter; it then supports no candidate.
#
# The first candidate that nearly as many samples support as the best one is used. Older samples
# have less weight. Live and replayed frames give the same result.

MARGIN = 0.005
"""Tolerance of the bounds, as a share of the factor. Errors of reading and rounding are smaller."""
MIN_COUNTED_SHARE = 0.02
"""Minimum share of the span for which a thread must have run, so that its counts bound the factor.
In less time, errors of reading and rounding dominate."""
MIN_SAMPLES = 3
"""Minimum number of samples for a decision, because a single sample may be disturbed."""
MAX_DISTURBED_SHARE = 0.1
"""Maximum share of samples that support a wrong candidate due to late reads or other programs."""
HALVING_SAMPLES = 4096
"""Number of samples after which all sums are halved, so that recent samples weigh more."""
MAX_TIGHT_WIDTH = 0.03
"""Relative distance between two bounds below which no two candidates fit between them. The closest
known candidates, for crystals of 24 and 25 MHz, are 4 % apart (120 and 125 on a Cascade Lake-X of 3
GHz), and MARGIN applies at both ends."""
MAX_READ_DISTANCE_S = 300e-6
"""Maximum time in s between the reads of two siblings, and so the difference of their spans."""
State = Literal["uncalibrated", "settled", "refused"]


class _Candidate(NamedTuple):
    factor: float
    why: str


REFUSED_INDEX = -1
"""Index that means that all candidates are refused."""


@dataclass(slots=True)
class Calibration:
    """The calibration of one counter: the candidates for its factor, and the candidate in use."""

    candidates: list[_Candidate]
    candidate: _Candidate | None = field(init=False)
    """The candidate in use; None if no candidate explains the counts, so that all are refused. A
    settled factor is never refused: later contradictions mean that another program took the
    counter.
    """
    _sums: list[float] = field(init=False)
    """Sums of the columns of `evidence_rows`."""
    _is_settled: bool = False

    def __post_init__(self) -> None:
        self.candidate = self.candidates[0]
        self._sums = [0.0] * (2 * len(self.candidates) + 2)

    @property
    def factor(self) -> float:
        return self.candidate.factor if self.candidate else float("nan")

    @property
    def state(self) -> State:
        if self.candidate is None:
            return "refused"
        return "settled" if self._is_settled else "uncalibrated"

    def evidence_rows(self, low: Floats, high: Floats) -> Ints:
        """Returns the evidence in each sample, as a row of counts of cores. `low` and `high`,
        (samples, cores), are bounds of the factor; NaN where too little was counted.

        The columns count: for each candidate, the cores whose bounds include it; for each
        candidate, those of them whose bounds are too tight for a second candidate; the cores that
        some candidate explains; the cores that no candidate explains although their bounds are
        tight."""
        is_known = np.isfinite(low) & np.isfinite(high) & (low <= high)
        is_tight = (high - low < MAX_TIGHT_WIDTH * high) & is_known
        factors = np.array([candidate.factor for candidate in self.candidates])[:, None, None]
        is_inside = (factors * (1 + MARGIN) >= low) & (factors * (1 - MARGIN) <= high) & is_known
        any_inside = is_inside.any(axis=0)
        of_sample = [any_inside, is_tight & ~any_inside]
        evidence = np.concatenate([is_inside, is_inside & is_tight, of_sample])
        return np.asarray(evidence.sum(axis=-1).T)

    def add_evidence(self, evidence: Ints) -> int:
        """Adds evidence, (samples, rows per sample, columns of `evidence_rows`), up to the first
        sample that would change the candidate in use or the state. If that is the very first
        sample, adds only this one. Returns the number of samples used."""
        samples, row_count, numbers = map(int, evidence.shape)
        if not row_count:
            return samples
        rows = evidence.reshape(samples * row_count, numbers)
        previous_state = self._sums, self._is_settled
        index = None if self.candidate is None else self.candidates.index(self.candidate)
        outcome = REFUSED_INDEX if index is None else 2 * index + self._is_settled
        changes = np.flatnonzero(self._add_rows(rows).reshape(samples, row_count)[:, -1] != outcome)
        if not len(changes):
            return samples
        self._sums, self._is_settled = previous_state
        used_samples = max(1, int(changes[0]))
        self._add_rows(rows[: used_samples * row_count])
        return used_samples

    def _add_rows(self, rows: Ints) -> Ints:
        """Adds rows of evidence. Returns a code for candidate and state after each row."""
        outcomes, count = [], len(self.candidates)
        while len(rows):
            sums = np.add.accumulate(np.concatenate([np.array([self._sums]), rows]))[1:]
            full_rows = np.flatnonzero(sums[:, -2] + sums[:, -1] > HALVING_SAMPLES)
            sums = sums[: full_rows[0] + 1] if len(full_rows) else sums
            rows_of_sums, best_candidates = np.arange(len(sums)), _best_candidates(sums, count)
            tight_count = sums[rows_of_sums, count + best_candidates]
            is_certain = (tight_count >= MIN_SAMPLES) & (tight_count > sums[:, -1])
            is_settled = np.logical_or.accumulate(is_certain) | self._is_settled
            if len(full_rows):
                sums[-1] /= 2
                best_candidates[-1] = _best_candidates(sums[-1:], count)[0]
                tight_count = sums[rows_of_sums, count + best_candidates]
            is_refused = (sums[:, -1] >= MIN_SAMPLES) & (sums[:, -1] > tight_count) & ~is_settled
            outcomes.append(np.where(is_refused, REFUSED_INDEX, 2 * best_candidates + is_settled))
            self._sums, self._is_settled = sums[-1].tolist(), bool(is_settled[-1])
            self.candidate = None if is_refused[-1] else self.candidates[best_candidates[-1]]
            rows = rows[len(sums) :]
        return np.concatenate(outcomes)


def _best_candidates(sums: Floats, count: int) -> Ints:
    """Returns, for each row of `sums`, the index of the first candidate that nearly as many samples
    support as the best one. `count`: number of candidates."""
    support_counts = sums[:, :count]
    tolerated_count = np.maximum(MIN_SAMPLES - 1.0, MAX_DISTURBED_SHARE * sums[:, -2])
    is_near_best: Bools = support_counts >= (support_counts.max(axis=1) - tolerated_count)[:, None]
    return np.asarray(is_near_best.argmax(axis=1))


def calibrations(multipliers: Sequence[wire.Multiplier]) -> dict[str, Calibration]:
    """Returns the calibrations of counters with candidates in hello, the likeliest first."""
    candidates_by_counter: dict[str, dict[float, _Candidate]] = {}
    for item in multipliers:
        candidate = _Candidate(item.factor, item.why)
        candidates_by_counter.setdefault(item.counter, {}).setdefault(item.factor, candidate)
    counters = candidates_by_counter.items()
    return {counter: Calibration([*by_factor.values()]) for counter, by_factor in counters}


def factor_bounds(
    counter: str, own_share: Floats, counted_ticks: Floats, other_share: Floats, span_s: Floats
) -> tuple[Floats, Floats]:
    """Returns the low and high bounds of a counter's factor, in TSC ticks per tick. `own_share`,
    `other_share`: unhalted shares of two siblings. `counted_ticks`: ticks of the counter per TSC
    tick. All arrays have the same shape."""
    with np.errstate(divide="ignore", invalid="ignore"):
        slack = MAX_READ_DISTANCE_S / span_s
        if (
            counter == "one_thread"
        ):  # a thread ran alone for a time between own_share - other_share and own_share
            low, high = np.maximum(own_share - other_share, 0), own_share
            counted_share = own_share
        else:  # for "distributed", counted_ticks is the sum of both threads
            total = own_share + other_share
            high = np.minimum(1.0, total) if counter == "any_thread" else total
            low = counted_share = np.maximum(own_share, other_share)
        low, high = np.maximum(low - slack, 0) / counted_ticks, (high + slack) / counted_ticks
        is_usable = (counted_share > MIN_COUNTED_SHARE) & (counted_ticks > 0)
    return np.where(is_usable, low, np.nan), np.where(is_usable, high, np.nan)


# --- The four states of a physical core, computed from its siblings' counts: neither of its logical
# processors runs, only the first (lp0), only the second (lp1), or both.
#
# All values are fractions of each sibling's own span, so that reads at slightly different times do
# not appear as states. With the unhalted fractions r0 and r1, and ANY, the fraction in which at
# least one thread ran:
#
#     neither = 1 - ANY    lp0 = ANY - r1    lp1 = ANY - r0    both = r0 + r1 - ANY
#
# ANY is checked first. r0 and r1 bound ANY. If it is outside the bounds by more than the tolerance,
# the event that gave it is suspect. Otherwise, ANY is clamped to the bounds, so that no state is
# negative and the four states add up to 1.

STATES = ("neither", "lp0", "lp1", "both")
MAX_SPAN_DIFFERENCE = 0.02
"""Relative difference between the siblings' spans above which no states are reported. One sibling
may have come online in between, or may have been read late."""
ANY_COUNTERS = ("one_thread", "any_thread", "distributed")
"""Counters from which ANY can be computed, best first."""
TRACED_COUNTERS = ("neither_s", "lp0_s", "lp1_s", "both_s")
"""Counters of core scope: seconds in each state, from the kernel's idle transitions."""
TOLERANCE = 0.01
"""Maximum distance of ANY from its bounds, as a share of the measured span. On real siblings, which
are read one after the other, the worst of 816 measurements was 0.6 % outside. After another program
had reprogrammed a counter, it was nearly the whole span.
"""
METHODS = (None, "single", "one-thread", "any-thread", "distributed", "traced", "bounds")
"""Methods to compute the states. A method's code is its index."""
SINGLE_METHOD, ANY_THREAD, TRACE, BOUNDS = (
    METHODS.index(name) for name in ("single", "any-thread", "traced", "bounds")
)


@dataclass(frozen=True)
class SmtShares:
    """Shares of the time in each SMT state, by core, or by sample and core; NaN where unknown."""

    states: Floats  # (cores, 4)
    low: Floats  # (cores, 4), for method "bounds" only
    high: Floats
    active_threads: Floats  # mean number of unhalted threads
    method_codes: Ints
    """(cores): code of the method used for each core."""

    @cached_property
    def method(self) -> list[str | None]:
        return [METHODS[code] for code in self.method_codes.tolist()]

    @property
    def usual_method(self) -> str | None:
        """The most frequent method among cores with several threads; None if there are no such
        cores."""
        pairs = self.method_codes[self.method_codes > SINGLE_METHOD]
        return METHODS[int(np.bincount(pairs).argmax())] if len(pairs) else None

    def mean(self, state: str, cores: Sequence[int] | slice = slice(None)) -> float:
        """Returns the mean share of a state over those of these cores with a known share, else
        NaN."""
        shares = self.states[cores, STATES.index(state)]
        known_shares = shares[np.isfinite(shares)]
        return float(known_shares.mean()) if len(known_shares) else float("nan")

    def shares(self, core: int) -> dict[str, float]:
        return dict(zip(STATES, self.states[core].tolist(), strict=True))

    def __getitem__(self, samples: int | slice) -> SmtShares:
        states, low, high = self.states[samples], self.low[samples], self.high[samples]
        return SmtShares(
            states, low, high, self.active_threads[samples], self.method_codes[samples]
        )


def exact_states(r0: Floats, r1: Floats, any_running: Floats) -> Floats:
    """Returns the shares of STATES, (n, 4), with `any_running` clamped so that none is negative.
    `r0`, `r1`: unhalted shares of two siblings. `any_running`: share in which at least one ran."""
    low = np.maximum(r0, r1)
    high = np.minimum(1.0, r0 + r1)
    any_share = np.minimum(np.maximum(any_running, low), np.maximum(low, high))
    shares = np.empty((*any_share.shape, len(STATES)))
    for index, share in enumerate(
        (1 - any_share, any_share - r1, any_share - r0, r0 + r1 - any_share)
    ):
        np.maximum(share, 0.0, out=shares[..., index])
    return shares


def state_bounds(r0: Floats, r1: Floats) -> tuple[Floats, Floats]:
    """Returns the lowest and the highest possible share of each state, (n, 4) each. `r0`, `r1`:
    unhalted shares of two siblings."""
    min_both = np.maximum(0.0, r0 + r1 - 1)
    max_both = np.minimum(r0, r1)
    low = np.stack([1 - r0 - r1 + min_both, r0 - max_both, r1 - max_both, min_both], axis=-1)
    high = np.stack([1 - r0 - r1 + max_both, r0 - min_both, r1 - min_both, max_both], axis=-1)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """The cores that have the same number of online threads."""

    cores: Ints
    by_thread: Ints
    """(threads, cores): each online thread's index in hello. numpy prefers a long last axis."""

    @property
    def threads(self) -> int:
        return len(self.by_thread)


class Splitter:
    """Splits each core's time into SMT states."""

    def __init__(self, counters: Counters, cores: Cores) -> None:
        self._counters = counters
        self.calibrations = calibrations(counters.hello.multipliers)
        self._methods = set(counters.hello.smt_methods)
        """Methods that hello allows; if empty, all methods are allowed."""
        methods = ((key, key.replace("_", "-")) for key in ANY_COUNTERS if key in counters.columns)
        self._counted_keys = [key for key, method in methods if self._is_allowed(method)]
        """Available counters from which ANY can be computed, best first."""
        self._rows_by_key = {key: counters.is_counted(key) for key in self._counted_keys}
        self.regroup(cores)

    def regroup(self, cores: Cores) -> None:
        self._cores = cores
        self._groups_by_size: tuple[bytes, list[CoreGroup]] = (b"", [])

    def groups(self, online: Bools) -> list[CoreGroup]:
        """Returns the cores, grouped by their number of online CPUs in ascending order. Cores
        without an online CPU are left out."""
        online_bytes = online.tobytes()
        if self._groups_by_size[0] != online_bytes:
            cores_by_size: dict[int, list[tuple[int, list[int]]]] = {}
            for i, rows in enumerate(self._cores.rows.tolist()):
                online_rows = [row for row in rows if row >= 0 and online[row]]
                if online_rows:
                    cores_by_size.setdefault(len(online_rows), []).append((i, online_rows))
            groups = []
            for _, members in sorted(cores_by_size.items()):
                cores, rows = zip(*members, strict=True)
                groups.append(CoreGroup(np.array(cores), np.ascontiguousarray(np.array(rows).T)))
            self._groups_by_size = online_bytes, groups
        return self._groups_by_size[1]

    def split(self, delta: Delta, values: Values, online: Bools) -> SmtShares:
        """Returns the shares of the states over the span, or over each of several samples. Each
        core uses the best method that its counters allow."""
        util = values["util"]
        shape = (*util.shape[:-1], len(self._cores.lists))
        states, low, high = np.full((3, *shape, len(STATES)), np.nan)
        result = SmtShares(states, low, high, np.full(shape, np.nan), np.zeros(shape, np.int64))
        for group in self.groups(online):
            if group.threads == 1:
                cores, r = group.cores, util[..., group.by_thread[0]]
                zero = np.where(np.isnan(r), np.nan, 0.0)
                for state, share in enumerate((1 - r, r, zero, zero)):
                    states[..., cores, state] = share
                result.active_threads[..., cores] = r
                result.method_codes[..., cores] = SINGLE_METHOD
            elif group.threads == 2:
                self._split_pairs(result, group, util, delta)
            else:
                self._split_large_cores(result, group, util, delta)
        return result

    def _split_pairs(self, split: SmtShares, group: CoreGroup, util: Floats, delta: Delta) -> None:
        spans_differ, cores = self.spans_differ(group.by_thread, delta), group.cores
        r0, r1 = (util.take(rows, axis=-1) for rows in group.by_thread)
        if np.count_nonzero(spans_differ):
            r0, r1 = (np.where(spans_differ, np.nan, r) for r in (r0, r1))
        split.active_threads[..., cores] = r0 + r1
        codes, any_running = self._any_running(group.by_thread, r0, r1, delta)
        if (name := self.any_counter()) in self._counters.multiplexed:
            is_uncounted = self._counters.is_partly_counted(delta, name)
            if np.count_nonzero(is_uncounted):  # use the states from idle transitions instead
                lacks_count = is_uncounted.take(group.by_thread, axis=-1).any(axis=-2)
                codes = np.where(lacks_count, 0, codes)
        split.states[..., cores, :] = shares = exact_states(r0, r1, any_running)
        split.method_codes[..., cores] = codes
        if np.count_nonzero(codes) == codes.size:
            return
        traced = self._traced_states(cores, delta)
        is_traced = (codes == 0) & np.isfinite(traced).all(axis=-1)
        is_bounded = ((codes == 0) & ~is_traced)[..., None]
        traced_states = np.where(is_traced[..., None], traced, np.nan)
        split.states[..., cores, :] = np.where((codes > 0)[..., None], shares, traced_states)
        low, high = state_bounds(r0, r1)
        split.low[..., cores, :] = np.where(is_bounded, low, np.nan)
        split.high[..., cores, :] = np.where(is_bounded, high, np.nan)
        fallback = np.where(is_traced, TRACE, BOUNDS)
        split.method_codes[..., cores] = np.where(codes, codes, fallback)

    def spans_differ(self, by_thread: Ints, delta: Delta) -> Bools:
        """Returns a mask of the cores whose siblings were read over different spans."""
        ticks = delta.tables["cpu"].ticks.take(by_thread, axis=-1)
        longest, shortest = np.maximum.reduce(ticks, axis=-2), np.minimum.reduce(ticks, axis=-2)
        return np.asarray(longest - shortest > MAX_SPAN_DIFFERENCE * longest)

    def _traced_states(self, cores: Ints, delta: Delta) -> Floats:
        """Returns the shares of the states from the kernel's idle transitions, (cores, 4); NaN
        where they are not traced, or where a sibling's state was unknown for part of the span."""
        columns = [c for key in TRACED_COUNTERS if (c := self._counters.columns.get(key))]
        if len(columns) < len(TRACED_COUNTERS) or not self._is_allowed("traced"):
            return np.full((len(cores), 4), np.nan)
        table = delta.tables[columns[0].block]
        rows = self._cores.block_row[cores]
        increments = np.stack([table.increments[..., rows, c.index] for c in columns], axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = increments.sum(axis=-1)
            elapsed = table.ticks[..., rows] / self._counters.stamp_hz
            is_whole = (np.abs(total / elapsed - 1) <= TOLERANCE) & (rows >= 0)
            # One value may decrease by some ns between two reads, although the sum of all four
            # cannot.
            increments_up = np.clip(increments, 0, None)
            shares = increments_up / increments_up.sum(axis=-1)[..., None]
        return np.where(is_whole[..., None], shares, np.nan)

    def _any_running(self, pair: Ints, r0: Floats, r1: Floats, delta: Delta) -> tuple[Ints, Floats]:
        """Returns, for each pair of siblings, the code of the method and ANY; 0 and NaN without a
        method. `pair`: (threads, cores)."""
        name = self.any_counter()
        if name is None:
            return np.zeros(pair.shape[1], np.int64), np.full(pair.shape[1], np.nan)
        shares = self.shares(name, delta) * self.factor(name)
        first, second = (shares.take(rows, axis=-1) for rows in pair)
        if name == "distributed":
            first = second = first + second
        elif name == "one_thread":
            first, second = r1 + first, r0 + second
        any_running = (first + second) / 2
        if np.count_nonzero(np.isnan(any_running)):
            # If only one sibling has the counter, its value is used.
            any_running = np.where(np.isnan(first), second, any_running)
            any_running = np.where(np.isnan(second), first, any_running)
        code = METHODS.index(name.replace("_", "-"))
        return np.where(self._rows_by_key[name][pair].any(axis=0), code, 0), any_running

    def any_counter(self) -> str | None:
        """Returns the best counter for ANY whose factor is not refused; None if there is none."""
        for key in self._counted_keys:
            calibration = self.calibrations.get(key)
            if calibration is None or calibration.candidate is not None:
                return key
        return None

    @property
    def counter_and_factor(self) -> tuple[str | None, float]:
        """The counter from which ANY is computed, and the counter's factor."""
        key = self.any_counter()
        return key, 0.0 if key is None else self.factor(key)

    def _is_allowed(self, method: str) -> bool:
        return not self._methods or method in self._methods

    def factor(self, key: str) -> float:
        """Returns the TSC ticks per tick of the counter; 1 if the hello message has no candidates
        for it."""
        calibration = self.calibrations.get(key)
        return calibration.factor if calibration else 1.0

    def shares(self, key: str, delta: Delta) -> Floats:
        """Returns the counter's ticks per TSC tick, by CPU."""
        column = self._counters.columns[key]
        increments = delta.tables[column.block].increments[..., column.index]
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = increments / self._counters.tsc_ticks(delta, column.block)
        return share

    def _split_large_cores(
        self, split: SmtShares, group: CoreGroup, util: Floats, delta: Delta
    ) -> None:
        """Writes the states of cores with more than two threads into `split`. Only the share of
        `neither` is known, exactly or as a range."""
        rows = np.ascontiguousarray(group.by_thread.T)
        r = util[..., rows]
        total = r.sum(axis=-1)
        split.active_threads[..., group.cores] = total
        lower_bound, upper_bound = r.max(axis=-1), np.fmin(1.0, total)
        if self.any_counter() != "any_thread":
            split.method_codes[..., group.cores] = BOUNDS
            split.low[..., group.cores, 0] = 1 - upper_bound
            split.high[..., group.cores, 0] = 1 - lower_bound
            return
        split.method_codes[..., group.cores] = ANY_THREAD
        mean = known_mean(self.shares("any_thread", delta)[..., rows])
        any_running = np.clip(mean * self.factor("any_thread"), lower_bound, upper_bound)
        split.states[..., group.cores, 0] = np.where(np.isfinite(mean), 1 - any_running, np.nan)


def known_mean(values: Floats) -> Floats:
    """Returns the mean of the known values of each core's threads; NaN if none is known."""
    is_known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(is_known, values, 0.0).sum(axis=-1) / is_known.sum(axis=-1))


def core_lists(topology: Sequence[wire.Cpu]) -> list[list[int]]:
    """Returns the CPUs of each core, for a topology that has changed since hello. CPUs belong to
    the same core if their package, die and core number are the same."""
    cpus_by_core: dict[tuple[int | None, int | None, int | None], list[int]] = {}
    single_cores: list[list[int]] = []
    for row in topology:
        if row.core is None:
            if row.online:
                single_cores.append([row.cpu])
        else:
            cpus_by_core.setdefault((row.package, row.die, row.core), []).append(row.cpu)
    return list(cpus_by_core.values()) + single_cores
