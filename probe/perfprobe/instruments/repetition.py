"""Measuring until it is enough: rounds of ever more samples, until their mean stands still."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HELD = 3
"""So many rounds in a row must leave the mean where it is: one may do so by chance."""
CONFIDENCE = 0.95
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23,
            2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09)  # fmt: skip
"""Student's t, two-sided, for CONFIDENCE and 1, 2, … degrees of freedom."""
_NORMAL = 1.96
ANOTHER = math.sqrt(2)
"""A second measurement errs as much as the first: by so much more the two may be apart."""


@dataclass(frozen=True, slots=True)
class Limits:
    seconds: float
    """No round begins after them, and none that would not be over by then, but for one of
    `first` samples."""
    count: int
    """Of samples in all."""
    first: int = 64
    """Samples in the first round; later ones have a multiple of them."""
    growth: int = 4
    most: int = 4096
    """Samples in a round: what is stored of one shall stay in the nearest cache."""
    longest_s: float = math.inf
    """Of a round, but for one of `first` samples: how rounds differ can only be told of several."""
    least_s: float = 0.0
    """Before them a mean is not believed to stand still: what disturbs comes with the kernel's
    timer, or slower."""


@dataclass(frozen=True, slots=True)
class Repeated:
    mean: float
    """Of all rounds, each weighted by its samples."""
    error: float | None
    """Half of the interval around it that holds the truth with CONFIDENCE, from how the rounds
    differ; not less than `epsilon`, below which nobody looked. None: of one round nobody can
    say."""
    count: int
    settled: bool
    """The mean moved less than asked for. Else there was no more time, or there were enough
    samples: then the error is all that can be said."""


def repeat(
    measure: Callable[[int], float],
    epsilon: float,
    limits: Limits,
    clock: Callable[[], float] = time.monotonic,
) -> Repeated:
    """`measure(n)` takes n samples and gives their mean. Until the weighted mean moves less than
    `epsilon` of itself, or a limit is reached; always one round."""
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
            return Repeated(mean, _at_least(epsilon, mean, error(rounds)), count, settled)
        begun = now


def _room(limits: Limits, size: int, took: float, left: float) -> int:
    """Samples for which there is time, at the pace of the last round."""
    if left <= 0:
        return 0
    took = max(took, 1e-9)  # a clock may stand still for a short round
    return max(limits.first, int(size * min(left, limits.longest_s) / took))


def _at_least(epsilon: float, mean: float, found: float | None) -> float | None:
    return None if found is None else max(found, epsilon * abs(mean))


def together(parts: Sequence[Repeated]) -> Repeated:
    """Of the same thing, measured again later: what drifts slowly shows between the parts only. The
    error is how far another such mean may be from this one, as who repeats it will see."""
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
    """Of the weighted mean: rounds are independent, and their own noise is not looked at, so what
    moves from round to round (a clock, a neighbour) counts as well."""
    if len(rounds) < 2:
        return None
    mean = weighted(rounds)
    total = sum(size for size, _ in rounds)
    squares = math.fsum((size * (one - mean)) ** 2 for size, one in rounds)
    spread = math.sqrt(len(rounds) / (len(rounds) - 1) * squares) / total
    # Of ever larger rounds the last few are nearly all that counts.
    effective = total**2 / sum(size**2 for size, _ in rounds)
    freedom = max(1, round(effective) - 1)
    return spread * (_STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL)
