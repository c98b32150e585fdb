"""Student and Welch against printed tables and cases worked out by hand; what they promise, by
simulation."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from perftop.output.compare import statistics

PRINTED = [
    (1, 0.975, 12.706), (2, 0.95, 2.920), (4, 0.975, 2.776), (8, 0.975, 2.306), (10, 0.995, 3.169),
    (30, 0.975, 2.042), (120, 0.975, 1.980), (1e6, 0.975, 1.960),
]  # fmt: skip
"""Degrees of freedom, share and t, from the table in any book."""


@pytest.mark.parametrize(("df", "share", "t"), PRINTED)
def test_quantiles_are_those_of_the_table(df: float, share: float, t: float) -> None:
    assert statistics.t_quantile(share, df) == pytest.approx(t, abs=0.0006)


def compared(a: Sequence[float], b: Sequence[float]) -> statistics.Difference | None:
    return statistics.difference(statistics.estimate(a), statistics.estimate(b))


def test_an_estimate_is_that_of_the_worked_example() -> None:
    """Sum of squares 0.9374, so a standard deviation of 0.4841 and 2.776 x 0.2165 on each side."""
    found = statistics.estimate([42.06, 41.02, 40.97, 41.05, 40.90])
    assert found.mean == pytest.approx(41.2)
    assert found.half == pytest.approx(0.601, abs=0.0005)
    assert statistics.least_difference(found.sd, 5) == pytest.approx(0.706, abs=0.001)
    assert math.isinf(statistics.estimate([3.0]).half)


def test_welch_is_that_of_the_worked_example() -> None:
    """Variances 1 and 4 of four and five: an error of sqrt(0.25 + 0.8), and
    1.05^2 / (0.0625 / 3 + 0.64 / 4) = 6.097 degrees of freedom; the t is 4 / 1.0247 = 3.904."""
    a, b = [9.0, 10.0, 10.0, 11.0], [12.0, 14.0, 14.0, 14.0, 16.0]
    a = [10 + (x - 10) * math.sqrt(1.5) for x in a]
    b = [14 + (x - 14) * math.sqrt(2) for x in b]
    found = compared(a, b)
    assert found is not None
    assert found.mean == pytest.approx(4.0)
    assert found.df == pytest.approx(6.097, abs=0.001)
    assert found.half == pytest.approx(2.437 * 1.0247, abs=0.003)
    assert found.p == pytest.approx(0.0077, abs=0.0003)


def test_a_single_value_is_taken_to_vary_as_the_others_do() -> None:
    found = compared([10.0, 11.0, 12.0], [15.0])
    assert found is not None
    assert found.half == pytest.approx(4.303 * math.sqrt(4 / 3), abs=0.002)
    assert compared([10.0], [15.0]) is None


def test_values_that_never_vary_differ_for_certain_or_not_at_all() -> None:
    same, other = (compared([2.0, 2.0], [b, b]) for b in (2.0, 3.0))
    assert same is not None
    assert other is not None
    assert (same.p, other.p, other.half) == (1.0, 0.0, 0.0)


def test_holm_is_that_of_the_worked_example() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == []


def test_a_value_far_from_the_median_is_apart() -> None:
    assert statistics.apart([42.06, 41.02, 40.97, 41.05, 40.90]) == [0]
    assert statistics.apart([41.0, 41.0, 41.0, 41.0, 41.1]) == [], "less than half a per cent"
    assert statistics.apart([1.0, 1.0, 9.0]) == [], "of three values none is the odd one"


def covered(trials: int, count: int) -> float:
    """Share of intervals of normal values that hold the true mean."""
    draw = random.Random(count)
    t = statistics.t_quantile(0.975, count - 1)
    made = [statistics.estimate([draw.gauss(100, 1) for _ in range(count)]) for _ in range(trials)]
    assert made[0].half == pytest.approx(t * made[0].error)
    return sum(abs(one.mean - 100) <= t * one.error for one in made) / trials


def called(trials: int, moved: float) -> float:
    """Share of pairs of five and eight values of unequal spread whose difference is called one."""
    draw = random.Random(7)
    found = 0
    for _ in range(trials):
        a = [draw.gauss(100, 1) for _ in range(5)]
        b = [draw.gauss(100 + moved, 3) for _ in range(8)]
        told = compared(a, b)
        assert told is not None
        found += told.p < 0.05
    return found / trials


@pytest.mark.parametrize("count", [3, 10])
def test_the_interval_holds_the_mean_as_often_as_it_says(count: int) -> None:
    assert 0.93 <= covered(4000, count) <= 0.97


def course(draw: random.Random, count: int, length: float, moved: float) -> list[float]:
    """Noise whose neighbours are alike for so many samples, about a mean of 10 + moved."""
    keeps = math.exp(-1 / length) if length else 0.0
    step, value, found = math.sqrt(1 - keeps * keeps), draw.gauss(0, 1), []
    for _ in range(count):
        value = keeps * value + step * draw.gauss(0, 1)
        found.append(10 + moved + value)
    return found


def of_courses(trials: int, count: int, length: float, moved: float = 0.0) -> tuple[float, float]:
    """Shares of pairs of recordings whose difference is called one, and of which none is told."""
    draw, called, untold = random.Random(int(length) + count), 0, 0
    for _ in range(trials):
        made = [course(draw, count, length, at * moved) for at in range(2)]
        a, b = (statistics.estimate_of_series(one, [1.0] * count) for one in made)
        told = statistics.difference(a, b) if a.known and b.known else None
        untold += told is None
        called += told is not None and told.p < 0.05
    return called / trials, untold / trials


@pytest.mark.parametrize("length", [0, 5, 60])
def test_noise_whose_neighbours_are_alike_is_called_no_difference(length: float) -> None:
    """Taken sample by sample, half of them would be."""
    called, untold = of_courses(150, 300, length)
    assert called <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 150)
    assert untold < 0.1 or length > 0


def test_a_ratio_of_sums_weighs_its_parts() -> None:
    """Cycles over seconds: a block in which a CPU hardly ran hardly counts."""
    cycles, ran = [3.0, 3.0, 0.001] * 20, [1.0, 1.0, 0.001] * 20
    found = statistics.estimate_of_series(cycles, ran)
    assert found.mean == pytest.approx(sum(cycles) / sum(ran))
    assert found.error < 0.001


def test_remaining_correlation_increases_the_error() -> None:
    """Sixteen blocks of which each two are alike, and opposite to the next two: the correlation of
    neighbours is 0 over all, 1/16 less than of noise in the mean, so that 14.1 count."""
    parts = [1.0, 1.0, -1.0, -1.0] * 8
    found = statistics.estimate_of_series(parts, [1.0] * 32)
    r = 1 / 32 + 1 / 32
    assert found.count == pytest.approx(32 * (1 - r) / (1 + r))
    assert found.error == pytest.approx(math.sqrt(32 / 31 / found.count))


def test_a_drifting_series_has_no_interval() -> None:
    found = statistics.estimate_of_series([float(i) for i in range(400)], [1.0] * 400)
    assert found.mean == pytest.approx(199.5)
    assert not found.known
