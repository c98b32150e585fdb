"""The worth of one tick of an SMT event in TSC ticks, learned from the frames themselves.

Tables and CPUID give candidates for this factor. Some are wrong: for example, a workstation's
crystal frequency for a server with the same model number. The siblings' counts bound the factor
from both sides, for example `(r0 - r1) / one0 <= k <= r0 / one0`. A sample is evidence for the
candidates within its bounds. A sample that no candidate explains was disturbed, or another program
took the counter; it supports no candidate. The first candidate that explains nearly as many samples
as the best one is used. Older samples count for less. Live and replayed frames give the same
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints

MARGIN = 0.005
"""Tolerance of the bounds, as a share of the factor. Read skew and tick quanta move a bound by less
over the spans used."""
MIN_COUNTED_SHARE = 0.02
"""Minimum share of the span that must be counted. Below it, read skew and quantisation dominate."""
MIN_SAMPLES = 3
"""Minimum number of samples for a decision, because a single sample may be disturbed."""
MAX_DISTURBED_SHARE = 0.1
"""Maximum share of the samples that late reads and other programs may attribute to a wrong
candidate."""
HALVING_SAMPLES = 4096
"""Number of samples after which all sums are halved, so that recent samples weigh more."""
MAX_TIGHT_WIDTH = 0.03
"""Relative distance between two bounds below which no second candidate fits between them. The
closest known candidates, for crystals of 24 and 25 MHz, are 4 % apart (a Cascade Lake-X of 3 GHz:
125 and 120), and MARGIN is subtracted on both sides."""
MAX_READ_DISTANCE_S = 300e-6
"""Maximum time between the reads of two siblings; their counts may differ by as much."""
State = Literal["uncalibrated", "settled", "refused"]


class _Candidate(NamedTuple):
    factor: float
    why: str


REFUSED_INDEX = -1
"""The outcome of evidence by which all candidates are refused."""


@dataclass(slots=True)
class Calibration:
    """The calibration of one counter: its candidates, and the factor in use."""

    candidates: list[_Candidate]
    chosen: _Candidate | None = field(init=False)
    """The candidate in use; None if all candidates are refused because none explains the counts. A
    factor that was once settled is never refused: later contradictions mean that another program
    took the counter."""
    _sums: list[float] = field(init=False)
    """Sums of the evidence, in the order that `judge` describes."""
    _is_settled: bool = False

    def __post_init__(self) -> None:
        self.chosen = self.candidates[0]
        self._sums = [0.0] * (2 * len(self.candidates) + 2)

    @property
    def explained(self) -> float:
        """Number of samples that some candidate explains."""
        return self._sums[-2]

    @property
    def factor(self) -> float:
        return self.chosen.factor if self.chosen else float("nan")

    @property
    def state(self) -> State:
        if self.chosen is None:
            return "refused"
        return "settled" if self._is_settled else "uncalibrated"

    def judge(self, low: Floats, high: Floats) -> Ints:
        """Returns the evidence of several samples, from their bounds of the factor, (samples,
        cores), which are NaN where too little was counted. The evidence of a sample is a row of
        numbers of cores: by candidate, those whose bounds include its factor; by candidate, those
        of them whose bounds leave no room for another candidate; those that some candidate
        explains; and those that none explains, although their bounds are tight."""
        is_known = np.isfinite(low) & np.isfinite(high) & (low <= high)
        is_tight = (high - low < MAX_TIGHT_WIDTH * high) & is_known
        factors = np.array([candidate.factor for candidate in self.candidates])[:, None, None]
        is_inside = (factors * (1 + MARGIN) >= low) & (factors * (1 - MARGIN) <= high) & is_known
        any_inside = is_inside.any(axis=0)
        evidence = np.concatenate(
            [is_inside, is_inside & is_tight, [any_inside, is_tight & ~any_inside]]
        )
        return np.asarray(evidence.sum(axis=-1).T)

    def observe(self, evidence: Ints) -> int:
        """Uses samples as evidence, (samples, rows of a sample, numbers): either all samples that
        leave the candidate in use and the state as they are, or one sample that changes them.
        Returns the number of samples that were used."""
        samples, ways, numbers = map(int, evidence.shape)
        if not ways:
            return samples
        rows, previous_state = (
            evidence.reshape(samples * ways, numbers),
            (self._sums, self._is_settled),
        )
        index = None if self.chosen is None else self.candidates.index(self.chosen)
        outcome = REFUSED_INDEX if index is None else 2 * index + self._is_settled
        changes = np.flatnonzero(self._add(rows).reshape(samples, ways)[:, -1] != outcome)
        if not len(changes):
            return samples
        self._sums, self._is_settled = previous_state
        used_samples = max(1, int(changes[0]))
        self._add(rows[: used_samples * ways])
        return used_samples

    def _add(self, rows: Ints) -> Ints:
        """Adds rows of evidence. Returns a number for the candidate in use and the state after
        each."""
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
            self.chosen = None if is_refused[-1] else self.candidates[best_candidates[-1]]
            rows = rows[len(sums) :]
        return np.concatenate(outcomes)


def _best_candidates(sums: Floats, count: int) -> Ints:
    """Returns, for rows of sums, the index of the first candidate that explains nearly as many
    samples as the best one."""
    explains = sums[:, :count]
    room = np.maximum(MIN_SAMPLES - 1.0, MAX_DISTURBED_SHARE * sums[:, -2])
    is_near_best: Bools = explains >= (explains.max(axis=1) - room)[:, None]
    return np.asarray(is_near_best.argmax(axis=1))


def calibrations(multipliers: Sequence[wire.Multiplier]) -> dict[str, Calibration]:
    """Returns a calibration for each counter that has candidates in hello, which lists the most
    likely candidate first."""
    by_counter: dict[str, dict[float, _Candidate]] = {}
    for item in multipliers:
        candidate = _Candidate(item.factor, item.why)
        by_counter.setdefault(item.counter, {}).setdefault(item.factor, candidate)
    return {
        counter: Calibration([*candidates.values()]) for counter, candidates in by_counter.items()
    }


def factor_bounds(
    counter: str, r: Floats, x: Floats, other_share: Floats, span_s: Floats
) -> tuple[Floats, Floats]:
    """Returns the low and high bounds of a counter's factor. `r` and `other_share` are the unhalted
    shares of two siblings; `x` is the share of their span that the counter advanced, in its own
    ticks. All arrays have the same shape."""
    with np.errstate(divide="ignore", invalid="ignore"):
        blur = MAX_READ_DISTANCE_S / span_s
        if counter == "one_thread":  # alone, a thread ran for r - other to r
            low, high = np.maximum(r - other_share, 0), r
            counted_share = r
        else:  # any_thread; or distributed, for which x is the sum of both threads
            high = np.minimum(1.0, r + other_share) if counter == "any_thread" else r + other_share
            low = counted_share = np.maximum(r, other_share)
        low, high = np.maximum(low - blur, 0) / x, (high + blur) / x
        is_usable = (counted_share > MIN_COUNTED_SHARE) & (x > 0)
    return np.where(is_usable, low, np.nan), np.where(is_usable, high, np.nan)
