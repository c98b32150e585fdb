"""Statistics of repeated measurements: spread, histogram and clock step of many whole numbers, and
repetition until the mean is stable. A round is a number of samples that are measured together;
later rounds are larger."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

TRIMMED_SHARE = 0.05
"""Share of the samples that a trimmed mean leaves out at each end. One interrupt in a million
samples would dominate the variance, although it has nothing to do with the measured code."""
DISTURBED_FACTOR = 10
"""Multiple of the median above which a sample counts as disturbed."""
HISTOGRAM_BINS = 24
HISTOGRAM_TAIL = 0.01
"""Share of the largest samples that a histogram counts but does not draw, because they would
squeeze all others into one bin."""

Counts = Counter[int]
"""Number of samples by value."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of samples. `mean` and `sigma` (standard deviation) are of the trimmed samples."""

    count: int
    least: int
    median: float
    mean: float
    sigma: float
    mean_all: float
    disturbed_share: float
    """Share of samples beyond DISTURBED_FACTOR times the median."""


def describe_spread(counts: Counts) -> Spread:
    total = counts.total()
    median = (_nth_sample(counts, (total - 1) // 2) + _nth_sample(counts, total // 2)) / 2
    trimmed = _trim(counts)
    mean = fmean(trimmed, trimmed.values())
    sigma = math.sqrt(fmean([(value - mean) ** 2 for value in trimmed], trimmed.values()))
    share = sum(n for value, n in counts.items() if value > DISTURBED_FACTOR * median) / total
    mean_all = fmean(counts, counts.values())
    return Spread(total, min(counts), median, mean, sigma, mean_all, share)


def trimmed_mean(values: Iterable[int]) -> float:
    trimmed = _trim(Counter(values))
    return fmean(trimmed, trimmed.values())


def _nth_sample(counts: Counts, index: int) -> int:
    ordered = sorted(counts)
    return ordered[bisect_right([*accumulate(counts[value] for value in ordered)], index)]


def _trim(counts: Counts) -> Counts:
    """Returns the samples without TRIMMED_SHARE of them at each end."""
    cut_count = int(TRIMMED_SHARE * counts.total())
    first, end, position, trimmed = cut_count, counts.total() - cut_count, 0, Counter[int]()
    for value, n in sorted(counts.items()):
        n_kept = min(position + n, end) - max(position, first)
        position += n
        if n_kept > 0:
            trimmed[value] = n_kept
    return trimmed


# --- histogram ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Histogram:
    first: int
    """Lower edge of the first bin."""
    width: int
    counts: list[int]
    outlier_count: int
    """Number of samples above the last bin."""


def histogram(counts: Counts, step: float | None = None) -> Histogram:
    """Returns at most HISTOGRAM_BINS bins of equal width. The width is a multiple of `step`, by
    which the clock advances; otherwise some bins would cover fewer possible values than others."""
    total = counts.total()
    first, last = min(counts), _nth_sample(counts, total - 1 - int(HISTOGRAM_TAIL * total))
    width = -(-(last - first + 1) // HISTOGRAM_BINS)
    if step is not None and step > 1:
        width = math.ceil(-(-width // step) * step)
    bins = [0] * ((last - first) // width + 1)
    for value, n in counts.items():
        if (index := (value - first) // width) < len(bins):
            bins[index] += n
    return Histogram(first, width, bins, total - sum(bins))


# --- clock step -----------------------------------------------------------------------------------

MIN_DISTINCT = 4
"""Minimum number of distinct differences needed to find a clock's step; fewer differences are
multiples of many numbers."""
MAX_DIFFERENCES = 500
MIN_FRACTIONAL_STEP = 3.0
"""Minimum step of a clock that is not a whole number. Readings are rounded to whole numbers, so a
smaller step looks like 1."""


def common_step(differences: Iterable[int]) -> float | None:
    """Returns a clock's step, from differences between its readings; 1 if all steps are possible,
    None if too few differences are distinct. A step need not be whole: 10 ns of a 2.45 GHz clock
    are 24.5 ticks. Readings are whole, so each difference is within 1 of a multiple."""
    distinct = sorted({abs(d) for d in differences} - {0})[:MAX_DIFFERENCES]
    if len(distinct) < MIN_DISTINCT:
        return None
    divisor = math.gcd(*distinct)
    if divisor > 1:
        return float(divisor)
    for parts in range(1, int(distinct[0] / MIN_FRACTIONAL_STEP) + 1):
        candidate = _fitting_step(distinct, parts)
        if candidate is not None:
            return candidate
    return 1.0


def _fitting_step(distinct: list[int], parts: int) -> float | None:
    """Returns the clock's step if the smallest difference is `parts` steps and all others are
    multiples of that step; otherwise None."""
    low, high = (distinct[0] - 1) / parts, (distinct[0] + 1) / parts
    for difference in distinct[1:]:
        min_parts = math.floor((difference - 1) / high) + 1
        max_parts = math.ceil((difference + 1) / low) - 1 if low > 0 else min_parts + 1
        if min_parts == max_parts:  # otherwise the number of steps would be ambiguous
            low = max(low, (difference - 1) / min_parts)
            high = min(high, (difference + 1) / min_parts)
        if min_parts > max_parts or low >= high:
            return None
    step, error = (low + high) / 2, (high - low) / 2
    # Differences whose error exceeds half a step do not count; MIN_DISTINCT others must agree.
    agreement_count = 0
    for difference in distinct:
        multiple = round(difference / step)
        tolerance = 1 + multiple * error
        if tolerance < step / 2:
            agreement_count += 1
            if abs(difference - multiple * step) >= tolerance:
                return None
    return step if step >= MIN_FRACTIONAL_STEP and agreement_count >= MIN_DISTINCT else None


# --- repetition -----------------------------------------------------------------------------------

STABLE_ROUNDS = 3
"""Number of consecutive rounds that must leave the mean unchanged before it counts as stable."""
CONFIDENCE = 0.95
_T_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
            2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09)  # fmt: skip
"""Two-sided Student's t for CONFIDENCE and 1, 2, … degrees of freedom."""
_Z_QUANTILE = 1.96
DIFFERENCE_FACTOR = math.sqrt(2)
"""Factor from the error of one mean to the difference of two means with that error."""


@dataclass(frozen=True, slots=True)
class RepeatLimits:
    """Limits of repeated rounds of samples."""

    max_s: float
    """Maximum time of all rounds together. Only the first round may end later."""
    max_samples: int
    first_round_samples: int = 64
    """Samples in the first round; later rounds have a multiple of that number."""
    round_growth: int = 4
    """Factor by which each round is larger than the previous one."""
    max_round_samples: int = 4096
    """Maximum number of samples in a round; the samples of a round should fit into the L1 cache."""
    max_round_s: float = math.inf
    """Maximum time of each round except the first."""
    min_s: float = 0.0
    """Minimum time before a mean counts as stable: disturbances may be as rare as timer ticks."""


@dataclass(frozen=True, slots=True)
class RepeatedMean:
    """The mean of repeated rounds of samples, and its error."""

    mean: float
    """Mean of all rounds, weighted by their samples."""
    error: float | None
    """Half the width of the interval that contains the true mean with probability CONFIDENCE, from
    the differences between rounds; None for a single round."""
    count: int
    is_stable: bool
    """Whether the mean became stable before a limit was reached."""


def repeat_until_stable(
    measure: Callable[[int], float],
    epsilon: float,
    limits: RepeatLimits,
    clock: Callable[[], float] = time.monotonic,
) -> RepeatedMean:
    """Calls `measure(n)`, which takes n samples and returns their mean, until the weighted mean
    changes by less than `epsilon` of itself or a limit is reached; at least once."""
    start = round_start = clock()
    size, stable_rounds, mean = limits.first_round_samples, 0, math.nan
    rounds: list[tuple[int, float]] = []
    while True:
        rounds.append((size, measure(size)))
        now_s = clock()
        old_mean, mean = mean, weighted_mean(rounds)
        stable_rounds = stable_rounds + 1 if abs(mean - old_mean) <= epsilon * abs(mean) else 0
        is_settled = stable_rounds >= STABLE_ROUNDS and now_s - start >= limits.min_s
        count = sum(size for size, _ in rounds)
        left_s, round_s = start + limits.max_s - now_s, now_s - round_start
        # The next round must end in the time left, if its samples take as long as the last ones.
        # A coarse clock may not advance in a short round.
        fitting = int(size * min(left_s, limits.max_round_s) / max(round_s, 1e-9))
        left = max(limits.first_round_samples, fitting) if left_s > 0 else 0
        size = min(size * limits.round_growth, limits.max_round_samples, left)
        size = min(size, limits.max_samples - count)
        size -= size % limits.first_round_samples
        if is_settled or size <= 0:
            spread_error = standard_error(rounds)
            min_error = None if spread_error is None else max(spread_error, epsilon * abs(mean))
            return RepeatedMean(mean, min_error, count, is_settled)
        round_start = now_s


def combined_mean(parts: Sequence[RepeatedMean]) -> RepeatedMean:
    """Combines means of one quantity that were measured at different times, so that the error
    includes slow drift. The error is the possible distance of one more such mean."""
    counted = [(part.count, part.mean) for part in parts]
    estimates = (standard_error(counted), *(part.error for part in parts))
    errors = [error for error in estimates if error is not None]
    return RepeatedMean(
        weighted_mean(counted),
        DIFFERENCE_FACTOR * max(errors) if errors else None,
        sum(part.count for part in parts),
        all(part.is_stable for part in parts),
    )


def weighted_mean(rounds: Sequence[tuple[int, float]]) -> float:
    sizes, means = zip(*rounds, strict=True)
    return fmean(means, sizes)


def standard_error(rounds: Sequence[tuple[int, float]]) -> float | None:
    """Returns the error of the weighted mean, from the differences between rounds, so that it
    includes changes of the clock and the load; None for one round. `rounds` are pairs of number of
    samples and mean, assumed to be independent."""
    if len(rounds) < 2:
        return None
    mean = weighted_mean(rounds)
    total = sum(size for size, _ in rounds)
    squares = math.fsum((size * (value - mean)) ** 2 for size, value in rounds)
    spread = math.sqrt(len(rounds) / (len(rounds) - 1) * squares) / total
    # Rounds become larger, so the last few have nearly all the weight.
    effective = total**2 / sum(size**2 for size, _ in rounds)
    freedom = max(1, round(effective) - 1)
    return spread * (_T_QUANTILES[freedom - 1] if freedom <= len(_T_QUANTILES) else _Z_QUANTILE)
