"""Statistics of many whole numbers, most of them alike: spread, histogram, and the step of the
clock that they were read from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from perfprobe.frozen import frozen

TRIM = 0.05
"""Share of samples left out at either end: interrupts do not belong to the code that they
interrupt, and one in a million would dominate the variance."""
FAR = 10
"""A sample beyond this multiple of the median was disturbed."""
BINS = 24
BEYOND = 0.01
"""Share of samples at the upper end that is counted but not drawn: it would squeeze all others into
one bin."""

Counts = Counter[int]


@frozen
class Spread:
    count: int
    least: int
    median: float
    mean: float
    """Mean of the trimmed samples; sigma is theirs too."""
    sigma: float
    mean_all: float
    far: float
    """Share of samples beyond FAR times the median."""


def spread(counts: Counts) -> Spread:
    total = counts.total()
    ordered = sorted(counts.items())
    median = (_at(ordered, (total - 1) // 2) + _at(ordered, total // 2)) / 2
    kept = list(_trimmed(ordered, total))
    mean = _mean(kept)
    variance = math.fsum(n * (value - mean) ** 2 for value, n in kept) / sum(n for _, n in kept)
    far = sum(n for value, n in ordered if value > FAR * median) / total
    return Spread(total, ordered[0][0], median, mean, math.sqrt(variance), _mean(ordered), far)


def trimmed_mean(values: Iterable[int]) -> float:
    counts = Counter(values)
    return _mean(list(_trimmed(sorted(counts.items()), counts.total())))


def _mean(pairs: list[tuple[int, int]]) -> float:
    return sum(value * n for value, n in pairs) / sum(n for _, n in pairs)


def _at(ordered: list[tuple[int, int]], index: int) -> int:
    for value, n in ordered:
        index -= n
        if index < 0:
            return value
    raise IndexError


def _trimmed(ordered: list[tuple[int, int]], total: int) -> Iterator[tuple[int, int]]:
    cut = int(TRIM * total)
    first, end, position = cut, total - cut, 0
    for value, n in ordered:
        n_kept = min(position + n, end) - max(position, first)
        position += n
        if n_kept > 0:
            yield value, n_kept


# --- what is drawn --------------------------------------------------------------------------------


@frozen
class Histogram:
    first: int
    """Where the first bin begins."""
    width: int
    counts: list[int]
    beyond: int
    """Number of samples above the last bin."""


def histogram(counts: Counts, step: float | None = None) -> Histogram:
    """At most BINS bins of equal width, a multiple of the clock's step: another width would show
    gaps that the samples do not have."""
    ordered = sorted(counts.items())
    total = counts.total()
    first, last = ordered[0][0], _at(ordered, total - 1 - int(BEYOND * total))
    width = -(-(last - first + 1) // BINS)
    if step is not None and step > 1:
        width = math.ceil(-(-width // step) * step)
    bins = [0] * ((last - first) // width + 1)
    beyond = 0
    for value, n in ordered:
        index = (value - first) // width
        if index < len(bins):
            bins[index] += n
        else:
            beyond += n
    return Histogram(first, width, bins, beyond)


# --- the grid -------------------------------------------------------------------------------------

DISTINCT = 4
"""Minimum number of different differences; fewer fit many grids."""
LOOKED_AT = 500
COARSEST = 3.0
"""Minimum step that is no whole number. Finer ones cannot be told from 1, because readings are
rounded to whole numbers."""


def step(differences: Iterable[int]) -> float | None:
    """The step in which a clock moves, from differences of its readings; 1: no steps are visible,
    None: too few differences are different.

    A step need not be a whole number (10 ns of a 2.45 GHz clock are 24.5 ticks). Readings are then
    rounded, and each difference is within 1 of a multiple.
    """
    distinct = sorted({abs(d) for d in differences} - {0})[:LOOKED_AT]
    if len(distinct) < DISTINCT:
        return None
    whole = math.gcd(*distinct)
    if whole > 1:
        return float(whole)
    for parts in range(1, int(distinct[0] / COARSEST) + 1):
        found = _fitting(distinct, parts)
        if found is not None:
            return found
    return 1.0


def _fitting(distinct: list[int], parts: int) -> float | None:
    """The step if the smallest difference has `parts` of it and all others fit, else None."""
    low, high = (distinct[0] - 1) / parts, (distinct[0] + 1) / parts
    for difference in distinct[1:]:
        fewest = math.floor((difference - 1) / high) + 1
        most = math.ceil((difference + 1) / low) - 1 if low > 0 else fewest + 1
        if fewest == most:  # else the number of steps is ambiguous
            low = max(low, (difference - 1) / fewest)
            high = min(high, (difference + 1) / fewest)
        if fewest > most or low >= high:
            return None
    middle = (low + high) / 2
    return middle if middle >= COARSEST and _fits(distinct, middle, high - middle) else None


def _fits(distinct: list[int], grid: float, error: float) -> bool:
    """Whether all differences lie near multiples. Only those whose error is below half a step can
    tell, and at least DISTINCT of them must."""
    told = 0
    for difference in distinct:
        multiple = round(difference / grid)
        near = 1 + multiple * error
        if near < grid / 2:
            told += 1
            if abs(difference - multiple * grid) >= near:
                return False
    return told >= DISTINCT
