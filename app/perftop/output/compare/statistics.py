"""Means with their intervals, and differences of two of them, by Student and Welch.

Without a library: these are a few sums over some hundred values at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, variance

LEVEL = 0.95
"""Confidence of all intervals; 1 - LEVEL is the chance that noise is called a difference."""
MIN_OUTLIER_SDS = 3.0
"""Distance from the median, in MAD scaled to a standard deviation, of an outlier."""
SDS_IN_MAD = 1.4826
"""Standard deviations of normal noise in a MAD."""
MIN_OUTLIER_SHARE = 0.005
"""Distance from the median, as a share of it, below which no value is an outlier, however close
together the others are."""
MAX_BLOCKS, MIN_BLOCKS = 32, 8
MAX_CORRELATION = 0.7
"""Maximum correlation of neighbouring blocks, times the root of their number. A quarter of all pure
noise has more, which makes its error less well known, but not wrong."""
MIN_VALUES = 4
"""Minimum number of values among which there can be an outlier."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a population, from a sample."""

    mean: float
    error: float
    """Standard error; NaN of a single value."""
    count: float
    """Independent values that it rests on."""

    @property
    def half(self) -> float:
        """Half of the 95 % interval; infinite for a single value."""
        return t_quantile(0.5 + LEVEL / 2, self.count - 1) * self.error if self.known else math.inf

    @property
    def sd(self) -> float:
        return self.error * math.sqrt(self.count)

    @property
    def known(self) -> bool:
        """Whether it is known how the values vary."""
        return not math.isnan(self.error)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means: the second less the first."""

    mean: float
    half: float
    p: float
    """Chance of a difference at least as large if there were none."""
    df: float


def estimate(values: Sequence[float]) -> Estimate:
    count, mean = len(values), fmean(values)
    error = math.sqrt(variance(values, mean) / count) if count > 1 else math.nan
    return Estimate(mean, error, count)


def estimate_of_series(amounts: Sequence[float], sizes: Sequence[float]) -> Estimate:
    """The ratio of two sums, from their parts in slices of time of equal length.

    Neighbouring slices are correlated, so they vary less than the ratio does. They are joined into
    MAX_BLOCKS blocks, and these in pairs until the correlation of neighbours is below
    MAX_CORRELATION / sqrt(blocks), which is what noise alone has. The error is then increased by
    the correlation that remains, as if there were fewer blocks. If even MIN_BLOCKS are correlated,
    the ratio changes too slowly and its error is unknown."""
    whole = sum(amounts) / sum(sizes)
    length = max(1, len(amounts) // MAX_BLOCKS)
    while (count := len(amounts) // length) >= MIN_BLOCKS:
        parts = _pulls(amounts, sizes, whole, length)
        squares = sum(part * part for part in parts)
        alike = sum(x * y for x, y in pairwise(parts)) / squares if squares > 0 else 0.0
        if alike <= MAX_CORRELATION / math.sqrt(count):
            alike = max(0.0, alike + 1 / count)  # of noise it is -1 / count in the mean
            fewer = count * (1 - alike) / (1 + alike)
            return Estimate(whole, math.sqrt(squares / (count - 1) / fewer), fewer)
        length *= 2
    return Estimate(whole, math.nan, 1)


def _pulls(
    amounts: Sequence[float], sizes: Sequence[float], whole: float, length: int
) -> list[float]:
    """Distance of each block above or below the whole, weighted with its size."""
    last = len(amounts) // length * length
    mean_size = sum(sizes[:last]) * length / last
    pulls = [
        sum(amounts[at : at + length]) - whole * sum(sizes[at : at + length])
        for at in range(0, last, length)
    ]
    middle = fmean(pulls)
    return [(part - middle) / mean_size for part in pulls]


def difference(a: Estimate, b: Estimate) -> Difference | None:
    """The difference by Welch's test; None if both errors are unknown. If one is, that side is
    taken to vary as much as the other."""
    if not (a.known or b.known):
        return None
    if a.known and b.known:
        of_a, of_b = a.error**2, b.error**2
        squared = of_a + of_b
        parts = of_a**2 / (a.count - 1) + of_b**2 / (b.count - 1)
        df = squared**2 / parts if parts > 0 else a.count + b.count - 2.0
    else:
        several, other = (a, b) if a.known else (b, a)
        squared, df = several.sd**2 * (1 / several.count + 1 / other.count), several.count - 1.0
    moved, error = b.mean - a.mean, math.sqrt(squared)
    if error == 0:
        return Difference(moved, 0.0, 0.0 if moved else 1.0, df)
    p = beyond(abs(moved) / error, df)
    return Difference(moved, t_quantile(0.5 + LEVEL / 2, df) * error, p, df)


def least_difference(sd: float, count: float) -> float:
    """Smallest difference of two means, of `count` values each, that is more than noise."""
    return t_quantile(0.5 + LEVEL / 2, 2 * count - 2) * sd * math.sqrt(2 / count)


def holm(chances: Sequence[float]) -> list[float]:
    """Chances corrected by Holm for the number of differences that are tested together."""
    corrected, least = [0.0] * len(chances), 0.0
    for place, at in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - place) * chances[at]))
        corrected[at] = least
    return corrected


def apart(values: Sequence[float]) -> list[int]:
    """Positions of the outliers, ascending."""
    if len(values) < MIN_VALUES:
        return []
    middle = median(values)
    sd = SDS_IN_MAD * median(abs(value - middle) for value in values)
    least = max(MIN_OUTLIER_SDS * sd, MIN_OUTLIER_SHARE * abs(middle))
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
