"""How many ticks of the TSC one tick of an SMT event is: settled by the frames themselves.

Tables and CPUID give candidates, and they are wrong often enough (a workstation's crystal under a
server's model number). But what the siblings count bounds the factor from both sides, for example
`(r0 - r1) / one0 <= k <= r0 / one0`. A candidate outside the bounds of many samples is refuted; the
first one left serves. Live and replayed frames settle it alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats

MARGIN = 0.005
"""Of the factor: read skew and tick quanta move a bound by less in the spans that are looked at."""
LEAST_SHARE = 0.02
"""Of the span that must have been counted: below it, skew and quanta weigh too much."""
LEAST_EVIDENCE = 3
"""Samples of a core that must speak: one may be a disturbance."""
TIGHT = 0.03
"""Bounds this close to each other, relatively, leave no room for another candidate: the closest
ones known, of a 24 and a 25 MHz crystal, lie 4 % apart (a Cascade Lake-X of 3 GHz: 125 and 120),
and MARGIN goes off on both sides."""
BLUR_S = 300e-6
"""Siblings may be read this far from each other; what they counted in between is not the same."""
REFUSED_SHARE = 0.5
"""Of the tight samples, that lie elsewhere: a foreign program that takes the counter over halfway
makes samples suspect before it makes the factor wrong."""

State = Literal["uncalibrated", "settled", "refused"]


@dataclass(slots=True)
class _Candidate:
    factor: float
    why: str
    against: int = 0
    """Samples whose bounds it lies outside of ..."""
    against_tight: int = 0
    """... and those of them whose bounds were tight."""

    def judge(self, low: Floats, high: Floats) -> None:
        outside = (self.factor * (1 + MARGIN) < low) | (self.factor * (1 - MARGIN) > high)
        self.against += int(outside.sum())
        self.against_tight += int((outside & _tight(low, high)).sum())


@dataclass(slots=True)
class Calibration:
    """The factor of one counter."""

    candidates: list[_Candidate]
    tight: int = 0
    """Samples that by themselves settle the factor."""

    @property
    def chosen(self) -> _Candidate | None:
        """The candidate with least against it, of equals the first; None: refused."""
        least = min(c.against for c in self.candidates)
        best = next(c for c in self.candidates if c.against < least + LEAST_EVIDENCE)
        wrong = best.against_tight
        refused = wrong >= LEAST_EVIDENCE and wrong > REFUSED_SHARE * self.tight
        return None if refused else best

    @property
    def factor(self) -> float:
        chosen = self.chosen
        return chosen.factor if chosen else float("nan")

    @property
    def state(self) -> State:
        chosen = self.chosen
        if chosen is None:
            return "refused"
        for_it = self.tight - chosen.against_tight
        return "settled" if for_it >= LEAST_EVIDENCE else "uncalibrated"

    def observe(self, low: Floats, high: Floats) -> None:
        """Bounds of the factor from samples that had enough to say; NaN: they had not."""
        known = np.isfinite(low) & np.isfinite(high) & (low <= high)
        low, high = low[known], high[known]
        self.tight += int(_tight(low, high).sum())
        for candidate in self.candidates:
            candidate.judge(low, high)


def _tight(low: Floats, high: Floats) -> Bools:
    tight: Bools = high - low < TIGHT * high
    return tight


def calibrations(multipliers: Sequence[wire.Multiplier]) -> dict[str, Calibration]:
    """One for each counter that hello has candidates for, in hello's order of belief."""
    found: dict[str, Calibration] = {}
    for item in multipliers:
        calibration = found.setdefault(item.counter, Calibration([]))
        if all(c.factor != item.factor for c in calibration.candidates):
            calibration.candidates.append(_Candidate(item.factor, item.why))
    return found


def factor_bounds(
    counter: str, r: Floats, x: Floats, other: Floats, span_s: Floats
) -> tuple[Floats, Floats]:
    """What siblings with unhalted shares `r` and `other` say of the factor of a counter that moved
    by the share `x` of their span in its own ticks. Shapes alike."""
    with np.errstate(divide="ignore", invalid="ignore"):
        blur = BLUR_S / span_s
        if counter == "one_thread":  # alone is less than unhalted, and more than what is left
            low, high = np.maximum(r - other, 0), r
            counted = r
        else:  # any_thread; distributed: x is the sum over both
            high = np.minimum(1.0, r + other) if counter == "any_thread" else r + other
            low = counted = np.maximum(r, other)
        low, high = np.maximum(low - blur, 0) / x, (high + blur) / x
        enough = (counted > LEAST_SHARE) & (x > 0)
    return np.where(enough, low, np.nan), np.where(enough, high, np.nan)
