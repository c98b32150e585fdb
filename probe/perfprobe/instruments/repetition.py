"""Measures in rounds of growing size until the mean no longer moves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from perfprobe.frozen import frozen

HELD = 3
"""Number of consecutive rounds that must leave the mean unchanged; one may do so by chance."""
CONFIDENCE = 0.95
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
            2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09)  # fmt: skip
"""Two-sided Student's t for CONFIDENCE and 1, 2, … degrees of freedom."""
_NORMAL = 1.96
ANOTHER = math.sqrt(2)
"""Factor from the error of one mean to the difference of two means with that error."""


@frozen
class Limits:
    seconds: float
    """Time for all rounds. Only a round of `first` samples may end later."""
    count: int
    """Maximum number of samples in all rounds."""
    first: int = 64
    """Samples in the first round; later rounds have a multiple of it."""
    growth: int = 4
    most: int = 4096
    """Maximum number of samples in a round; their storage should stay in the L1 cache."""
    longest_s: float = math.inf
    """Maximum time of a round, except one of `first` samples: the error needs several rounds."""
    least_s: float = 0.0
    """Minimum time before a mean counts as settled: disturbances come at the rate of the kernel's
    timer or slower."""


@frozen
class Repeated:
    mean: float
    """Mean of all rounds, weighted by their samples."""
    error: float | None
    """Half the width of the interval that holds the true mean with CONFIDENCE, from the differences
    between rounds; at least `epsilon` of the mean. None: there was only one round."""
    count: int
    settled: bool
    """The mean stopped moving. False: time or samples ran out before, and only the error tells how
    good it is."""


def repeat(
    measure: Callable[[int], float],
    epsilon: float,
    limits: Limits,
    clock: Callable[[], float] = time.monotonic,
) -> Repeated:
    """Calls `measure(n)`, which takes n samples and returns their mean, until the weighted mean
    moves less than `epsilon` of itself or a limit is reached; at least once."""
    start = begun = clock()
    size, held, count = limits.first, 0, 0
    rounds: list[tuple[int, float]] = []
    mean, total = math.nan, 0.0
    while True:
        latest = measure(size)
        now = clock()
        rounds.append((size, latest))
        count += size
        total += size * latest
        before, mean = mean, total / count
        held = held + 1 if abs(mean - before) <= epsilon * abs(mean) else 0
        settled = held >= HELD and now - start >= limits.least_s
        room = _room(limits, size, now - begun, start + limits.seconds - now)
        size = min(size * limits.growth, limits.most, limits.count - count, room)
        size -= size % limits.first
        if settled or size <= 0:
            found = error(rounds)
            least = None if found is None else max(found, epsilon * abs(mean))
            return Repeated(mean, least, count, settled)
        begun = now


def _room(limits: Limits, size: int, took: float, left: float) -> int:
    """Number of samples that fit into the time left, at the pace of the last round."""
    if left <= 0:
        return 0
    took = max(took, 1e-9)  # a clock may stand still for a short round
    return max(limits.first, int(size * min(left, limits.longest_s) / took))


def together(parts: Sequence[Repeated]) -> Repeated:
    """Combines measurements of the same thing at different times; slow drift shows only between
    them. The error is how far the mean of another such measurement may be from this one."""
    counted = [(part.count, part.mean) for part in parts]
    errors = [one for one in (error(counted), *(part.error for part in parts)) if one is not None]
    return Repeated(
        weighted(counted),
        ANOTHER * max(errors) if errors else None,
        sum(part.count for part in parts),
        all(part.settled for part in parts),
    )


def weighted(rounds: Sequence[tuple[int, float]]) -> float:
    total = sum(size for size, _ in rounds)
    return math.fsum(size * mean for size, mean in rounds) / total


def error(rounds: Sequence[tuple[int, float]]) -> float | None:
    """Error of the weighted mean from the differences between rounds, which are taken to be
    independent. So it includes what changes from round to round (a clock, a neighbour)."""
    if len(rounds) < 2:
        return None
    mean = weighted(rounds)
    total = sum(size for size, _ in rounds)
    squares = math.fsum((size * (one - mean)) ** 2 for size, one in rounds)
    spread = math.sqrt(len(rounds) / (len(rounds) - 1) * squares) / total
    # Rounds grow, so the last few have nearly all the weight.
    effective = total**2 / sum(size**2 for size, _ in rounds)
    freedom = max(1, round(effective) - 1)
    return spread * (_STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL)
