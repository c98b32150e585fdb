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
from perftop.base.arrays import Floats

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


@dataclass(slots=True)
class _Candidate:
    factor: float
    why: str
    explains: float = 0.0
    """Number of samples whose bounds include the factor ..."""
    tight: float = 0.0
    """... and number of those samples whose bounds leave no room for another candidate."""


class BoundsEvidence(NamedTuple):
    """Evidence of one sample for the factor of a counter, as numbers of cores."""

    explains: list[int]
    """By candidate: the number of cores whose bounds include its factor ..."""
    tight: list[int]
    """... and the number of those cores whose bounds leave no room for another candidate."""
    explained: int
    """Number of cores whose sample some candidate explains."""
    unexplained: int
    """Number of cores whose sample no candidate explains, although its bounds are tight."""


@dataclass(slots=True)
class Calibration:
    """The calibration of one counter: its candidates, and the factor in use."""

    candidates: list[_Candidate]
    explained: float = 0.0
    """Number of samples that some candidate explains."""
    unexplained: float = 0.0
    """Number of samples with tight bounds that no candidate explains."""
    chosen: _Candidate | None = field(init=False)
    """The candidate in use; None if all candidates are refused because none explains the counts. A
    factor that was once settled is never refused: later contradictions mean that another program
    took the counter."""
    _settled: bool = False

    def __post_init__(self) -> None:
        self.chosen = self.candidates[0]

    def _best(self) -> _Candidate:
        most = max([candidate.explains for candidate in self.candidates])
        room = max(MIN_SAMPLES - 1.0, MAX_DISTURBED_SHARE * self.explained)
        return next(c for c in self.candidates if c.explains >= most - room)

    @property
    def factor(self) -> float:
        return self.chosen.factor if self.chosen else float("nan")

    @property
    def state(self) -> State:
        if self.chosen is None:
            return "refused"
        return "settled" if self._settled else "uncalibrated"

    def judge(self, low: Floats, high: Floats) -> list[BoundsEvidence]:
        """Returns the evidence of each of several samples, from their bounds of the factor,
        (samples, cores). Bounds are NaN where too little was counted."""
        known = np.isfinite(low) & np.isfinite(high) & (low <= high)
        tight = (high - low < MAX_TIGHT_WIDTH * high) & known
        factors = np.array([candidate.factor for candidate in self.candidates])[:, None, None]
        inside = (factors * (1 + MARGIN) >= low) & (factors * (1 - MARGIN) <= high) & known
        some, count = inside.any(axis=0), len(inside)
        cores = np.concatenate([inside, inside & tight, [some, tight & ~some]]).sum(axis=-1)
        return [BoundsEvidence(c[:count], c[count:-2], *c[-2:]) for c in cores.T.tolist()]

    def observe(self, evidence: BoundsEvidence) -> None:
        """Adds the evidence of one sample."""
        for candidate, explains, tight in zip(
            self.candidates, evidence.explains, evidence.tight, strict=True
        ):
            candidate.explains += explains
            candidate.tight += tight
        self.explained += evidence.explained
        self.unexplained += evidence.unexplained
        best = self._best()
        self._settled |= best.tight >= MIN_SAMPLES and best.tight > self.unexplained
        if self.explained + self.unexplained > HALVING_SAMPLES:
            self.explained, self.unexplained = self.explained / 2, self.unexplained / 2
            for candidate in self.candidates:
                candidate.explains, candidate.tight = candidate.explains / 2, candidate.tight / 2
            best = self._best()
        refused = self.unexplained >= MIN_SAMPLES and self.unexplained > best.tight
        self.chosen = None if refused and not self._settled else best


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
    counter: str, r: Floats, x: Floats, other: Floats, span_s: Floats
) -> tuple[Floats, Floats]:
    """Returns the low and high bounds of a counter's factor. `r` and `other` are the unhalted
    shares of two siblings; `x` is the share of their span that the counter advanced, in its own
    ticks. All arrays have the same shape."""
    with np.errstate(divide="ignore", invalid="ignore"):
        blur = MAX_READ_DISTANCE_S / span_s
        if counter == "one_thread":  # alone, a thread ran for r - other to r
            low, high = np.maximum(r - other, 0), r
            counted = r
        else:  # any_thread; or distributed, for which x is the sum of both threads
            high = np.minimum(1.0, r + other) if counter == "any_thread" else r + other
            low = counted = np.maximum(r, other)
        low, high = np.maximum(low - blur, 0) / x, (high + blur) / x
        enough = (counted > MIN_COUNTED_SHARE) & (x > 0)
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)
