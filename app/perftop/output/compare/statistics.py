"""Means with confidence intervals (Student), and differences of two means (Welch).

No library is needed for these few sums over a few hundred values at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, variance

LEVEL = 0.95
"""Confidence of all intervals; 1 - LEVEL is the probability that noise is reported as a
difference."""
MIN_OUTLIER_SDS = 3.0
"""Minimum distance of an outlier from the median, in standard deviations that are estimated by the
MAD."""
SDS_IN_MAD = 1.4826
"""Factor from the MAD of normal noise to its standard deviation."""
MIN_OUTLIER_SHARE = 0.005
"""Minimum distance of an outlier from the median, as a share of the median, however close together
the other values are."""
MAX_BLOCKS, MIN_BLOCKS = 32, 8
MAX_CORRELATION = 0.7
"""Maximum correlation of neighbouring blocks, times the square root of their number. A quarter of
all pure noise exceeds it; its error is then less precise, but not wrong."""
MIN_VALUES = 4
"""Minimum number of values among which there can be an outlier."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a population, from a sample."""

    mean: float
    error: float
    """Standard error; NaN for a single value."""
    count: float
    """Number of independent values that the mean is based on."""

    @property
    def half(self) -> float:
        """Half of the 95 % interval; infinite for a single value."""
        return t_quantile(0.5 + LEVEL / 2, self.count - 1) * self.error if self.known else math.inf

    @property
    def sd(self) -> float:
        return self.error * math.sqrt(self.count)

    @property
    def known(self) -> bool:
        """Whether the variation of the values is known."""
        return not math.isnan(self.error)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two means: the second minus the first."""

    mean: float
    half: float
    p: float
    """Probability of a difference at least as large if both populations had the same mean."""
    df: float


def estimate(values: Sequence[float]) -> Estimate:
    count, mean = len(values), fmean(values)
    error = math.sqrt(variance(values, mean) / count) if count > 1 else math.nan
    return Estimate(mean, error, count)


def estimate_of_series(amounts: Sequence[float], sizes: Sequence[float]) -> Estimate:
    """Returns the ratio of two sums, estimated from their parts in time slices of equal length.

    Neighbouring slices are correlated, so their variation underestimates the error of the ratio.
    They are joined into MAX_BLOCKS blocks, and blocks are joined in pairs until the correlation of
    neighbours is below MAX_CORRELATION / sqrt(blocks), as for noise alone. The error is then
    increased by the remaining correlation, as if there were fewer blocks. If even MIN_BLOCKS blocks
    are correlated, the ratio changes too slowly and its error is unknown."""
    whole = sum(amounts) / sum(sizes)
    length = max(1, len(amounts) // MAX_BLOCKS)
    while (count := len(amounts) // length) >= MIN_BLOCKS:
        parts = _pulls(amounts, sizes, whole, length)
        squares = sum(part * part for part in parts)
        alike = sum(x * y for x, y in pairwise(parts)) / squares if squares > 0 else 0.0
        if alike <= MAX_CORRELATION / math.sqrt(count):
            alike = max(0.0, alike + 1 / count)  # for noise, its mean is -1 / count
            fewer = count * (1 - alike) / (1 + alike)
            return Estimate(whole, math.sqrt(squares / (count - 1) / fewer), fewer)
        length *= 2
    return Estimate(whole, math.nan, 1)


def _pulls(
    amounts: Sequence[float], sizes: Sequence[float], whole: float, length: int
) -> list[float]:
    """Returns each block's deviation from the overall ratio, weighted with the size of the
    block."""
    last = len(amounts) // length * length
    mean_size = sum(sizes[:last]) * length / last
    pulls = [
        sum(amounts[at : at + length]) - whole * sum(sizes[at : at + length])
        for at in range(0, last, length)
    ]
    middle = fmean(pulls)
    return [(part - middle) / mean_size for part in pulls]


def difference(a: Estimate, b: Estimate) -> Difference | None:
    """Returns the difference by Welch's test; None if both errors are unknown. If one error is
    unknown, that side is assumed to vary as much as the other."""
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
    """Returns the smallest difference of two means, of `count` values each, that exceeds the
    noise."""
    return t_quantile(0.5 + LEVEL / 2, 2 * count - 2) * sd * math.sqrt(2 / count)


def holm(chances: Sequence[float]) -> list[float]:
    """Returns the probabilities, corrected by Holm's method for the number of differences that are
    tested together."""
    corrected, least = [0.0] * len(chances), 0.0
    for place, at in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - place) * chances[at]))
        corrected[at] = least
    return corrected


def apart(values: Sequence[float]) -> list[int]:
    """Returns the positions of the outliers, in ascending order."""
    if len(values) < MIN_VALUES:
        return []
    middle = median(values)
    sd = SDS_IN_MAD * median(abs(value - middle) for value in values)
    least = max(MIN_OUTLIER_SDS * sd, MIN_OUTLIER_SHARE * abs(middle))
    return [at for at, value in enumerate(values) if abs(value - middle) > least]


def beyond(t: float, df: float) -> float:
    """Returns the probability that Student's t is further from 0 than `t`, on either side."""
    return _beta(df / (df + t * t), df / 2, 0.5)


def t_quantile(share: float, df: float) -> float:
    """Returns the t below which this share of the distribution is, by bisection to 1e-9. `share`
    must be at least 0.5."""
    low, high = 0.0, 2.0
    while beyond(high, df) > 2 * (1 - share):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, df) > 2 * (1 - share) else (low, middle)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """Returns the regularised incomplete beta function."""
    if not 0 < x < 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    whole = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(whole + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Returns the continued fraction of the incomplete beta function, by Lentz's method; x must be
    at most (a + 1) / (a + b + 2)."""
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
