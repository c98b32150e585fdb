"""Means with their intervals, and differences of two of them, by Student and Welch.

Without a library: these are a few sums over some hundred values at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

LEVEL = 0.95
"""Of all intervals; 1 - LEVEL is the chance that noise alone is called a difference."""
APART = 3.0
"""Distance from the median, in MAD scaled to a standard deviation, from which a value is apart."""
TO_SD = 1.4826
"""Standard deviations of normal noise in a MAD."""
LEAST_APART = 0.005
"""Share of the median below which nothing is apart, however close together the others are."""
FEWEST = 4
"""Values of which one can be apart."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a population, from a sample."""

    mean: float
    half: float
    """Half of the 95 % interval; infinite for a single value."""
    sd: float
    count: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two means, the second less the first."""

    mean: float
    half: float
    p: float
    """Chance of a difference at least as large if there were none."""
    df: float


def estimate(values: Sequence[float]) -> Estimate:
    count, mean = len(values), fmean(values)
    if count < 2:
        return Estimate(mean, math.inf, math.nan, count)
    sd = math.sqrt(variance(values, mean))
    return Estimate(mean, t_quantile(0.5 + LEVEL / 2, count - 1) * sd / math.sqrt(count), sd, count)


def difference(a: Sequence[float], b: Sequence[float]) -> Difference | None:
    """By Welch; None if no side has two values. Where one has a single value, that is taken to
    vary as the values of the other side do."""
    if max(len(a), len(b)) < 2:
        return None
    if min(len(a), len(b)) < 2:
        several = a if len(a) > len(b) else b
        squared, df = variance(several) * (1 + 1 / len(several)), len(several) - 1.0
    else:
        of_a, of_b = variance(a) / len(a), variance(b) / len(b)
        squared = of_a + of_b
        parts = of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1)
        df = squared**2 / parts if parts > 0 else len(a) + len(b) - 2.0
    moved, error = fmean(b) - fmean(a), math.sqrt(squared)
    if error == 0:
        return Difference(moved, 0.0, 0.0 if moved else 1.0, df)
    p = beyond(abs(moved) / error, df)
    return Difference(moved, t_quantile(0.5 + LEVEL / 2, df) * error, p, df)


def least_difference(sd: float, count: int) -> float:
    """Difference of two means of so many values each that is more than the noise."""
    return t_quantile(0.5 + LEVEL / 2, 2 * count - 2) * sd * math.sqrt(2 / count)


def holm(chances: Sequence[float]) -> list[float]:
    """The same chances when so many differences are looked at together, by Holm: in each place at
    least as large as in the one before."""
    found, least = [0.0] * len(chances), 0.0
    for place, at in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - place) * chances[at]))
        found[at] = least
    return found


def apart(values: Sequence[float]) -> list[int]:
    """Places of the values that lie APART from the median, ascending."""
    if len(values) < FEWEST:
        return []
    middle = median(values)
    sd = TO_SD * median(abs(value - middle) for value in values)
    least = max(APART * sd, LEAST_APART * abs(middle))
    return [at for at, value in enumerate(values) if abs(value - middle) > least]


def beyond(t: float, df: float) -> float:
    """Chance that Student's t lies further from 0 than this, on either side."""
    return _beta(df / (df + t * t), df / 2, 0.5)


def t_quantile(share: float, df: float) -> float:
    """The t below which this share lies, at least a half, by bisection to 1e-9."""
    low, high = 0.0, 2.0
    while beyond(high, df) > 2 * (1 - share):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, df) > 2 * (1 - share) else (low, middle)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if not 0 < x < 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    whole = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(whole + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Its continued fraction, by Lentz; x must be at most (a + 1) / (a + b + 2)."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    value = d
    for i in range(1, 300):
        for part in (
            i * (b - i) * x / ((a + 2 * i - 1) * (a + 2 * i)),
            -(a + i) * (a + b + i) * x / ((a + 2 * i) * (a + 2 * i + 1)),
        ):
            d = 1 / (1 + part * d or tiny)
            c = 1 + part / c or tiny
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
