"""Student and Welch against printed tables and cases worked out by hand; what they promise, by
simulation."""

from __future__ import annotations

import math
import random

import pytest

from perftop.base import statistics

PRINTED = [
    (1, 0.975, 12.706), (2, 0.95, 2.920), (4, 0.975, 2.776), (8, 0.975, 2.306), (10, 0.995, 3.169),
    (30, 0.975, 2.042), (120, 0.975, 1.980), (1e6, 0.975, 1.960),
]  # fmt: skip
"""Degrees of freedom, share and t, from the table in any book."""


@pytest.mark.parametrize(("df", "share", "t"), PRINTED)
def test_quantiles_are_those_of_the_table(df: float, share: float, t: float) -> None:
    assert statistics.t_quantile(share, df) == pytest.approx(t, abs=0.0006)


@pytest.mark.parametrize("t", [0.1, 1.0, 5.0, 40.0])
def test_one_and_two_degrees_of_freedom_have_closed_forms(t: float) -> None:
    assert statistics.beyond(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-9)
    assert statistics.beyond(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6)


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
    found = statistics.difference(a, b)
    assert found is not None
    assert found.mean == pytest.approx(4.0)
    assert found.df == pytest.approx(6.097, abs=0.001)
    assert found.half == pytest.approx(2.437 * 1.0247, abs=0.003)
    assert found.p == pytest.approx(0.0077, abs=0.0003)


def test_a_single_value_is_taken_to_vary_as_the_others_do() -> None:
    found = statistics.difference([10.0, 11.0, 12.0], [15.0])
    assert found is not None
    assert found.half == pytest.approx(4.303 * math.sqrt(4 / 3), abs=0.002)
    assert statistics.difference([10.0], [15.0]) is None


def test_values_that_never_vary_differ_for_certain_or_not_at_all() -> None:
    same, other = (statistics.difference([2.0, 2.0], [b, b]) for b in (2.0, 3.0))
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
    held = 0
    for _ in range(trials):
        values = [draw.gauss(100, 1) for _ in range(count)]
        found = statistics.estimate(values)
        assert found.half == pytest.approx(t * found.sd / math.sqrt(count))
        held += abs(found.mean - 100) <= found.half
    return held / trials


def called(trials: int, moved: float) -> float:
    """Share of pairs of five and eight values of unequal spread whose difference is called one."""
    draw = random.Random(7)
    found = 0
    for _ in range(trials):
        a = [draw.gauss(100, 1) for _ in range(5)]
        b = [draw.gauss(100 + moved, 3) for _ in range(8)]
        told = statistics.difference(a, b)
        assert told is not None
        found += told.p < 0.05
        assert (told.p < 0.05) == (abs(told.mean) > told.half)
    return found / trials


@pytest.mark.parametrize("count", [3, 10])
def test_the_interval_holds_the_mean_as_often_as_it_says(count: int) -> None:
    assert 0.93 <= covered(1500, count) <= 0.97


@pytest.mark.nightly
@pytest.mark.parametrize("count", [2, 3, 5, 10, 20])
def test_intervals_of_any_length_hold_the_mean_as_often_as_they_say(count: int) -> None:
    assert 0.945 <= covered(20000, count) <= 0.955


@pytest.mark.nightly
def test_welch_calls_noise_a_difference_in_one_of_twenty() -> None:
    assert 0.044 <= called(5000, 0.0) <= 0.056
    assert called(1000, 6.0) > 0.95
