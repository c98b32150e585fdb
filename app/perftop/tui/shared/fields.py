"""The fields, which are the numbers that a heat map or a time axis can show for every CPU: the
metrics of the registry, and the SMT states of the CPU's core."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.format import GHZ, ClockUnit, clock_unit, rate_unit
from perftop.draw import columns
from perftop.draw.theme import HEAT
from perftop.model.numbers import PER_KI, Number
from perftop.session.session import Session
from perftop.session.values import by_key

_FIRST = ("util", "busy_hz", "ipc", "involuntary", "both", "steal", "kernel_cycles")
"""Keys of the fields that are listed first, in this order."""
_TOPS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible upper ends of the scale of a small share. The lowest end keeps noise dark. There are few
ends, so that the scale seldom changes."""
_STEP = {"Hz": 2e8, "1": 0.5}
"""The ends of a scale are multiples of these steps, by unit."""
_SLACK = 2.5
"""Maximum width of a scale, as a multiple of the needed width; a wider scale is replaced."""


def clock_of(session: Session, units: str, *, known: bool = False) -> ClockUnit:
    """Returns the unit of clocks. In multiples of an unknown base clock, values are NaN; if `known`
    is set, the unit is GHz in this case."""
    base = session.hello.base_hz
    unit = clock_unit(units, math.nan if base is None else base.hz)
    return GHZ if known and math.isnan(unit.per_hz) else unit


def unit_in(field: Number, clock: ClockUnit, most: float = 0.0) -> ClockUnit:
    """Returns the unit of a field's values. `most`: the highest value of a rate."""
    if field.rate:
        return rate_unit(most)
    if field.unit == "Hz":
        return clock
    return ClockUnit("%", 100.0, 1) if field.unit == "ratio" else ClockUnit("", 1.0, 2)


def placed(number: Number, clock: ClockUnit, width: int) -> columns.Column:
    """Returns a table column for the number."""
    scale, digits = number.scale(clock)
    return columns.Column(
        number.key, number.name(clock), width, scale=scale, digits=digits, prefixed=number.rate,
        shows=number,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale that maps values to steps of the heat ramp."""

    low: float
    high: float

    def levels(self, values: Floats) -> np.ndarray:
        """Returns steps from 0 to HEAT - 1; -1 where the value is unknown."""
        with np.errstate(invalid="ignore"):
            share = (values - self.low) / (self.high - self.low)
            steps = np.clip(share * HEAT, 0, HEAT - 1)
            return np.where(np.isnan(values), -1, steps).astype(int)

    def holds(self, other: Scale) -> bool:
        """Returns whether this scale covers the other scale and is at most _SLACK times as wide."""
        inside = self.low <= other.low and other.high <= self.high
        return inside and self.high - self.low <= _SLACK * (other.high - other.low)


def fields(session: Session) -> list[Number]:
    """Returns the fields that this stream has, in the order in which the metric key cycles through
    them."""
    known = [key for key, chosen in session.evaluator.chosen.items() if chosen]
    if any(len(core) == 2 for core in session.cores):
        known += ["both", "neither"]
    first = [key for key in _FIRST if key in known]
    keys = first + [key for key in known if key not in first]
    known_columns = by_key(session)
    return [known_columns[key] for key in keys]


def chosen_field(session: Session, metric: str) -> tuple[Number, list[str]]:
    """Returns the field with this key, else the first field; and the names of the fields after
    it."""
    known = fields(session)
    at = next((i for i, field in enumerate(known) if field.key == metric), 0)
    return known[at], [other.words for other in known[at + 1 :] + known[:at]]


def _end(top: float) -> float:
    """Returns the upper end of the scale of a number without a limit: 1, 2 or 5 times a power of
    ten."""
    power = 10.0 ** math.floor(math.log10(max(top, 1e-3)))
    return next(power * step for step in (1, 2, 5, 10) if top <= power * step)


def scale(field: Number, values: Floats, before: Scale | None = None) -> Scale:
    """Returns a scale that shows differences between CPUs: a scale of shares starts at 0, a scale
    of clocks ranges from about the slowest to the fastest clock. `before`, the scale in use, is
    returned while it still fits."""
    known = values[np.isfinite(values)]
    least, top = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    if field.unit == "ratio":
        high = next((end for end in _TOPS if top <= end), 1.0) if field.small else 1.0
        fresh = Scale(0.0, high)
    elif field.rate or field.key.endswith(PER_KI):
        fresh = Scale(0.0, _end(top))
    else:
        step = _STEP[field.unit]
        high = max(step * math.ceil(top / step), 1.0)
        low = step * math.floor(min(least, 0.75 * high) / step) if field.unit == "Hz" else 0.0
        fresh = Scale(low, high)
    return before if before is not None and before.holds(fresh) else fresh
