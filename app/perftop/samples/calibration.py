"""How many ticks of the TSC one tick of an SMT event is: settled by the frames themselves.

Tables and CPUID give candidates, and they are wrong often enough (a workstation's crystal under a
server's model number). But what the siblings count bounds the factor from both sides, for example
`(r0 - r1) / one0 <= k <= r0 / one0`. A sample speaks for the candidates that lie within its bounds.
One that none of them explains was disturbed, or the counter was taken by somebody: it speaks for
nobody. The first candidate that explains nearly as many samples as the best one serves; old samples
fade. Live and replayed frames settle it alike.
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
DISTURBED_SHARE = 0.1
"""Of the samples seen: late reads and strangers may make so many speak for a wrong candidate."""
MEMORY = 4096
"""Samples of a core after which all that was seen is halved: what is true now counts for more."""
TIGHT = 0.03
"""Bounds this close to each other, relatively, leave no room for another candidate: the closest
ones known, of a 24 and a 25 MHz crystal, lie 4 % apart (a Cascade Lake-X of 3 GHz: 125 and 120),
and MARGIN goes off on both sides."""
BLUR_S = 300e-6
"""Siblings may be read this far from each other; what they counted in between is not the same."""
State = Literal["uncalibrated", "settled", "refused"]


@dataclass(slots=True)
class _Candidate:
    factor: float
    why: str
    explains: float = 0.0
    """Samples within whose bounds it lies ..."""
    tight: float = 0.0
    """... and those of them that leave no room for another candidate."""

    def explained(self, low: Floats, high: Floats) -> Bools:
        inside: Bools = (self.factor * (1 + MARGIN) >= low) & (self.factor * (1 - MARGIN) <= high)
        return inside


@dataclass(slots=True)
class Calibration:
    """The factor of one counter."""

    candidates: list[_Candidate]
    seen: float = 0.0
    """Samples that some candidate explains."""
    strange: float = 0.0
    """Tight samples that none explains."""
    _settled: bool = False

    @property
    def chosen(self) -> _Candidate | None:
        """None: refused, for none of the candidates explains what is counted. Only until one does:
        a counter whose factor was settled once is taken by somebody, not of another factor."""
        best = self._best()
        refused = self.strange >= LEAST_EVIDENCE and self.strange > best.tight
        return None if refused and not self._settled else best

    def _best(self) -> _Candidate:
        most = max(candidate.explains for candidate in self.candidates)
        room = max(LEAST_EVIDENCE - 1.0, DISTURBED_SHARE * self.seen)
        return next(c for c in self.candidates if c.explains >= most - room)

    @property
    def factor(self) -> float:
        chosen = self.chosen
        return chosen.factor if chosen else float("nan")

    @property
    def state(self) -> State:
        if self.chosen is None:
            return "refused"
        return "settled" if self._settled else "uncalibrated"

    def observe(self, low: Floats, high: Floats) -> None:
        """Bounds of the factor from samples that had enough to say; NaN: they had not."""
        known = np.isfinite(low) & np.isfinite(high) & (low <= high)
        low, high = low[known], high[known]
        tight, some = _tight(low, high), np.zeros(len(low), bool)
        for candidate in self.candidates:
            inside = candidate.explained(low, high)
            some |= inside
            candidate.explains += float(inside.sum())
            candidate.tight += float((inside & tight).sum())
        self.seen += float(some.sum())
        self.strange += float((tight & ~some).sum())
        best = self._best()
        self._settled |= best.tight >= LEAST_EVIDENCE and best.tight > self.strange
        if self.seen + self.strange > MEMORY:
            self._fade()

    def _fade(self) -> None:
        self.seen, self.strange = self.seen / 2, self.strange / 2
        for candidate in self.candidates:
            candidate.explains, candidate.tight = candidate.explains / 2, candidate.tight / 2


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
