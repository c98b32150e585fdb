"""Means with confidence intervals (Student), differences of two means (Welch) or medians (Mann and
Whitney), outliers (Grubbs), and the number of runs that a difference needs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean, median, variance

CONFIDENCE = 0.95
"""Confidence of all intervals of a comparison together. 1 - CONFIDENCE is the probability that
noise is reported as a difference."""
TEST_POWER = 0.8
"""Probability that a difference as large as `smallest_difference` is found."""
MAX_RUNS_NEEDED = 1000
"""Maximum number of runs that `runs_needed` returns."""
OUTLIER_LEVEL = 0.01
"""Probability that an outlier is reported in a normal sample."""
MIN_OUTLIER_SHARE = 0.05
"""Minimum distance of an outlier from the median, as a share of the median."""
MIN_VALUES = 4
"""Minimum number of values among which there can be an outlier."""
MIN_RANKED_VALUES = 6
"""Minimum number of values on each side for the rank test. With fewer, no result is significant
after the correction for several rows."""
HEAVY_TAIL_SDS = 5.0
"""Distance of a value from the median of its side, in standard deviations estimated from the MAD,
above which the rank test is used."""
SDS_IN_MAD = 1.4826
"""Factor from the MAD of normal noise to its standard deviation."""
MAX_EXACT_VALUES = 100
"""Maximum number of values for the exact distribution of ranks. With more values, it is
approximated."""
MAX_PAIRS = 250_000
"""Maximum number of pairs of values in the rank test. More pairs would hardly change the result."""
MAX_LOG_RATIO = 50.0
"""Maximum logarithm of a ratio. An interval that reaches it is unbounded."""
BLOCK_COUNTS = 32, 16, 8
"""Numbers of blocks into which a series is divided, the finest first. Long blocks show slow changes
that noise hides in short ones."""
MIN_BLOCKS = BLOCK_COUNTS[-1]
MAX_CORRELATION = 0.6
"""Maximum correlation of neighbours among the finest blocks. Above it, a series changes too slowly
for its length, and its error is unknown."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated mean of a population, from a sample of its values."""

    mean: float
    error: float
    """Standard error; NaN for a single value."""
    count: float
    """Number of independent values that the mean is based on."""

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval; infinite for a single value."""
        if not self.has_error:
            return math.inf
        return t_quantile(0.5 + CONFIDENCE / 2, self.count - 1) * self.error

    @property
    def sd(self) -> float:
        return self.error * math.sqrt(self.count)

    @property
    def has_error(self) -> bool:
        """Whether the variation of the values is known."""
        return not math.isnan(self.error)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between A and B: B - A for shares, else B / A - 1."""

    value: float
    probability: float
    """Probability of a difference at least this large between samples of one population."""
    interval: Callable[[float], tuple[float, float]]
    """Returns the ends of the interval with this confidence. It excludes 0 if and only if 1 -
    `probability` exceeds the confidence."""
    is_ranked: bool = False
    """Whether medians are compared, by ranks."""


def estimate(values: Sequence[float], step: float = 0.0) -> Estimate:
    """Returns the estimate of the mean. `step`: resolution of the values. Equal values may still
    differ by up to a step."""
    count, mean = len(values), fmean(values)
    if count < 2:
        return Estimate(mean, math.nan, count)
    return Estimate(mean, math.sqrt(max(variance(values, mean), step * step / 12) / count), count)


def resolution(values: Sequence[float]) -> float:
    """Returns the smallest distance between different values; 0 if all are equal."""
    return min((high - low for low, high in pairwise(sorted({*values}))), default=0.0)


def estimate_of_series(amounts: Sequence[float], sizes: Sequence[float]) -> Estimate:
    """Returns the ratio of two sums, estimated from their parts in time slices of equal length. As
    neighbouring slices are correlated, their variation would underestimate the error. So slices are
    joined into blocks, whose correlation gives the number of independent values. Several block
    lengths are tried, and the one with the largest error is used."""
    mean, blocks = sum(amounts) / sum(sizes), list[list[float]]()
    """For each block length, the deviations of the blocks from `mean`, weighted with their size."""
    for length in (len(amounts) // count for count in BLOCK_COUNTS if count <= len(amounts)):
        last = len(amounts) // length * length
        mean_size = sum(sizes[:last]) * length / last
        parts = (slice(first, first + length) for first in range(0, last, length))
        deviations = [sum(amounts[part]) - mean * sum(sizes[part]) for part in parts]
        middle = fmean(deviations)
        blocks.append([(deviation - middle) / mean_size for deviation in deviations])
    if not blocks or _correlation(blocks[0]) > MAX_CORRELATION:
        return Estimate(mean, math.nan, 1)
    estimates = []
    for deviations in blocks:
        count, correlation = len(deviations), min(_correlation(deviations), MAX_CORRELATION)
        independent = count * (1 - correlation) / (1 + correlation)
        squares = sum(part * part for part in deviations)
        error = math.sqrt(squares / (count - 1) / independent)
        estimates.append(Estimate(mean, error, independent))
    return max(estimates, key=lambda estimate: estimate.error)


def _correlation(deviations: Sequence[float]) -> float:
    """Returns the correlation of neighbours, at least 0. It is corrected, because in a series of
    `count` values it seems lower by (1 + 3 * correlation) / count (Kendall)."""
    squares, count = sum(part * part for part in deviations), len(deviations)
    products = sum(x * y for x, y in pairwise(deviations))
    return max(0.0, (products / squares * count + 1) / (count - 3)) if squares > 0 else 0.0


def difference(a: Estimate, b: Estimate, *, is_share: bool = False) -> Difference | None:
    """Returns the difference of two means by Welch's test. A side with an unknown error is assumed
    to vary as much as the other; None if both are unknown. Positive numbers are compared by
    logarithms, so that the noise of A counts, too, and no interval goes below -100 %."""
    if not (a.has_error or b.has_error):
        return None
    in_logs = not is_share and a.mean > 0 and b.mean > 0
    scale = 1.0 if is_share else abs(a.mean)
    # Errors in the unit of the difference. The error of a logarithm is the relative error.
    error_a, error_b = (side.error / (side.mean if in_logs else scale) for side in (a, b))
    if a.has_error and b.has_error:
        squared = error_a**2 + error_b**2
        parts = error_a**4 / (a.count - 1) + error_b**4 / (b.count - 1)
        df = squared**2 / parts if parts > 0 else a.count + b.count - 2.0
    else:
        repeated, error, single = (a, error_a, b) if a.has_error else (b, error_b, a)
        squared, df = error**2 * (1 + repeated.count / single.count), repeated.count - 1.0
    change = math.log(b.mean / a.mean) if in_logs else (b.mean - a.mean) / scale
    error = math.sqrt(squared)
    p = tail_probability(abs(change) / error, df) if error > 0 else float(change == 0)

    def interval(level: float) -> tuple[float, float]:
        half_width = t_quantile(0.5 + level / 2, df) * error if error > 0 else 0.0
        low, high = change - half_width, change + half_width
        if in_logs:
            return math.expm1(low), math.expm1(min(high, MAX_LOG_RATIO))
        if is_share:  # A share is between 0 and 1.
            around_a = a.half_width if a.has_error else 1.0
            return max(low, -min(1.0, a.mean + around_a)), min(high, 1 - max(0, a.mean - around_a))
        return max(low, -1.0) if a.mean > 0 and b.mean >= 0 else low, high

    return Difference(math.expm1(change) if in_logs else change, p, interval)


def has_heavy_tails(a: Sequence[float], b: Sequence[float]) -> bool:
    """Returns whether to compare medians instead of means: some values are far from the rest of
    their side, and there are enough values for the rank test."""
    if min(len(a), len(b)) < MIN_RANKED_VALUES or len(a) * len(b) > MAX_PAIRS:
        return False
    distances = [abs(value - median(side)) for side in (a, b) for value in side]
    return max(distances) > HEAVY_TAIL_SDS * SDS_IN_MAD * median(distances)


def ranked_difference(
    a: Sequence[float], b: Sequence[float], *, is_share: bool = False
) -> Difference:
    """Returns the median of all differences between a value of B and one of A (Hodges and Lehmann),
    tested by ranks (Mann and Whitney)."""
    in_logs = not is_share and min(*a, *b) > 0
    scale = 1.0 if is_share or in_logs else abs(median(a))
    if in_logs:
        a, b = [math.log(value) for value in a], [math.log(value) for value in b]
    differences = sorted((y - x) / scale for x in a for y in b)
    tail = _rank_tail(len(a), len(b))
    # Equal values count in both directions.
    inverted_count = min(
        bisect_right(differences, 0), len(differences) - bisect_left(differences, 0)
    )

    def interval(level: float) -> tuple[float, float]:
        ends = bisect_right(tail, (1 - level) / 2)
        if ends == 0:
            low, high = -math.inf, math.inf
        else:
            low, high = differences[ends - 1], differences[-ends]
        return (math.expm1(low), math.expm1(min(high, MAX_LOG_RATIO))) if in_logs else (low, high)

    middle = median(differences)
    p = min(1.0, 2 * tail[inverted_count])
    return Difference(math.expm1(middle) if in_logs else middle, p, interval, is_ranked=True)


@lru_cache
def _rank_tail(count_a: int, count_b: int) -> list[float]:
    """Returns probabilities, assuming one population for A and B. Element u is the probability that
    in at most u of all pairs of a value of A and one of B, the value of B is smaller."""
    pairs = count_a * count_b
    if count_a + count_b > MAX_EXACT_VALUES:
        normal = NormalDist(pairs / 2, math.sqrt(pairs * (count_a + count_b + 1) / 12))
        return [normal.cdf(u + 0.5) for u in range(pairs + 1)]
    counts = [1] + [0] * pairs  # the coefficients of the Gaussian binomial
    for i in range(1, count_a + 1):
        for u in range(pairs, count_b + i - 1, -1):
            counts[u] -= counts[u - count_b - i]
        for u in range(i, pairs + 1):
            counts[u] += counts[u - i]
    return [counted / math.comb(count_a + count_b, count_a) for counted in accumulate(counts)]


def smallest_difference(sd: float, count: float, rows: int = 1) -> float:
    """Returns the smallest difference of two means that is found with probability TEST_POWER. `sd`:
    standard deviation. `count`: values per side. `rows`: rows of a comparison."""
    df, level = 2 * count - 2, (1 - CONFIDENCE) / rows
    return (t_quantile(1 - level / 2, df) + t_quantile(TEST_POWER, df)) * sd * math.sqrt(2 / count)


def runs_needed(sd: float, change: float, rows: int = 1) -> int:
    """Returns the number of values per side that is needed to find a difference of `change` with
    probability TEST_POWER; at most MAX_RUNS_NEEDED."""
    insufficient, sufficient = 1, MAX_RUNS_NEEDED
    while sufficient - insufficient > 1:
        middle = (insufficient + sufficient) // 2
        is_enough = smallest_difference(sd, middle, rows) <= change
        insufficient, sufficient = (insufficient, middle) if is_enough else (middle, sufficient)
    return sufficient


def holm_correction(probabilities: Sequence[float]) -> list[tuple[float, float]]:
    """Returns, for each of several differences that are tested together, its probability, corrected
    by Holm's method, and the confidence of the interval that agrees with it."""
    corrected, greatest, factor = [(1.0, CONFIDENCE)] * len(probabilities), 0.0, len(probabilities)
    for rank, i in enumerate(sorted(range(len(probabilities)), key=probabilities.__getitem__)):
        # After the first difference that is not significant, the factor stays the same.
        factor = len(probabilities) - rank if greatest < 1 - CONFIDENCE else factor
        greatest = max(greatest, min(1.0, (len(probabilities) - rank) * probabilities[i]))
        corrected[i] = greatest, 1 - (1 - CONFIDENCE) / factor
    return corrected


def outliers(values: Sequence[float]) -> list[int]:
    """Returns the indices of the outliers in ascending order, by repeated Grubbs' tests."""
    candidates, outlier_indices = list(range(len(values))), []
    while (count := len(candidates)) >= MIN_VALUES:
        sample = [values[i] for i in candidates]
        mean, middle = fmean(sample), median(sample)
        farthest = max(candidates, key=lambda i: abs(values[i] - mean))
        t = t_quantile(1 - OUTLIER_LEVEL / (2 * count), count - 2)
        limit = (count - 1) / math.sqrt(count) * math.sqrt(t * t / (count - 2 + t * t))
        if abs(values[farthest] - mean) <= limit * math.sqrt(variance(sample, mean)):
            break
        if abs(values[farthest] - middle) < MIN_OUTLIER_SHARE * abs(middle):
            break
        outlier_indices.append(farthest)
        candidates.remove(farthest)
    return sorted(outlier_indices)


def tail_probability(t: float, df: float) -> float:
    """Returns the probability that Student's t with `df` degrees of freedom is further from 0 than
    `t`, on either side."""
    return _incomplete_beta(df / (df + t * t), df / 2, 0.5)


def t_quantile(share: float, df: float) -> float:
    """Returns the quantile of Student's t for this share of its distribution with `df` degrees of
    freedom, by bisection to 1e-9. `share` must be at least 0.5."""
    low, high = 0.0, 2.0
    while tail_probability(high, df) > 2 * (1 - share):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        is_below = tail_probability(middle, df) > 2 * (1 - share)
        low, high = (middle, high) if is_below else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    if not 0 < x < 1:
        return min(1.0, max(0.0, x))
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_beta = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    factor = math.exp(log_beta + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300  # the rest is a continued fraction, by Lentz's method
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
    return factor * value
