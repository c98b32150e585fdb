"""Student's and Welch's tests against printed tables and examples computed by hand; error rates by
simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from nightly import cases_by_day
from random_runs import margin, rates_of_series

from perftop.output.compare import statistics

PRINTED = [
    (1, 0.975, 12.706), (2, 0.95, 2.920), (4, 0.975, 2.776), (8, 0.975, 2.306), (10, 0.995, 3.169),
    (30, 0.975, 2.042), (120, 0.975, 1.980), (1e6, 0.975, 1.960),
]  # fmt: skip
"""Degrees of freedom, share and t, from printed tables."""


@pytest.mark.parametrize(("df", "share", "t"), PRINTED)
def test_quantiles_equal_those_of_the_table(df: float, share: float, t: float) -> None:
    assert statistics.t_quantile(share, df) == pytest.approx(t, abs=0.0006)


def difference_of(
    a: Sequence[float], b: Sequence[float], *, is_share: bool = False
) -> statistics.Difference:
    estimates = statistics.estimate(a), statistics.estimate(b)
    difference = statistics.difference(*estimates, is_share=is_share)
    assert difference is not None
    return difference


def test_an_estimate_equals_the_worked_example() -> None:
    """Sum of squares 0.9374, so a standard deviation of 0.4841 and 2.776 x 0.2165 on each side."""
    estimate = statistics.estimate([42.06, 41.02, 40.97, 41.05, 40.90])
    assert estimate.mean == pytest.approx(41.2)
    assert estimate.half_width == pytest.approx(0.601, abs=0.0005)
    least = (2.306 + 0.889) * 0.4841 * math.sqrt(2 / 5)
    assert statistics.smallest_difference(estimate.sd, 5) == pytest.approx(least, abs=0.001)
    assert math.isinf(statistics.estimate([3.0]).half_width)


def test_welch_equals_the_worked_example() -> None:
    """Variances 1 and 4 of four and five values: an error of sqrt(0.25 + 0.8), and 1.05^2 / (0.0625
    / 3 + 0.64 / 4) = 6.097 degrees of freedom; t is 4 / 1.0247 = 3.904. Shares are compared without
    logarithms."""
    a, b = [9.0, 10.0, 10.0, 11.0], [12.0, 14.0, 14.0, 14.0, 16.0]
    a = [0.10 + (x - 10) * math.sqrt(1.5) / 100 for x in a]
    b = [0.14 + (x - 14) * math.sqrt(2) / 100 for x in b]
    comparison = difference_of(a, b, is_share=True)
    assert comparison.value == pytest.approx(0.04)
    half = 2.437 * 0.010247
    assert comparison.interval(0.95) == pytest.approx((0.04 - half, 0.04 + half), abs=3e-5)
    assert comparison.probability == pytest.approx(0.0077, abs=0.0003)


def test_a_single_value_is_assumed_to_vary_like_the_others() -> None:
    comparison = difference_of([0.10, 0.11, 0.12], [0.15], is_share=True)
    low, high = comparison.interval(0.95)
    assert (high - low) / 2 == pytest.approx(4.303 * 0.01 * math.sqrt(4 / 3), abs=2e-5)
    assert statistics.difference(statistics.estimate([10.0]), statistics.estimate([15.0])) is None


def test_constant_values_may_vary_within_their_ticks() -> None:
    """An error of 1 / sqrt(12) each, with 2 degrees of freedom."""
    same = difference_of([2.0, 2.0], [2.0, 2.0])
    assert (same.probability, same.interval(0.95)) == (1.0, (0.0, 0.0))
    values = [0.02, 0.02, 0.03, 0.03]
    a, b = (statistics.estimate(part, statistics.resolution(values)) for part in
            (values[:2], values[2:]))  # fmt: skip
    other = statistics.difference(a, b, is_share=True)
    assert other is not None
    assert other.probability == pytest.approx(
        statistics.tail_probability(math.sqrt(12), 2), abs=1e-6
    )


def test_ranks_equal_the_worked_example() -> None:
    """Among the 20 ways to choose three of six values, one has no inverted pair, one has one, two
    have two: p of two pairs is 2 x 4 / 20."""
    result = statistics.ranked_difference([1.0, 2.0, 4.0], [3.0, 5.0, 6.0])
    assert result.probability == pytest.approx(2 * 2 / 20)
    result = statistics.ranked_difference([1.0, 2.0, 5.0], [3.0, 4.0, 6.0])
    assert result.probability == pytest.approx(2 * 4 / 20)
    assert result.value == pytest.approx(1.0), "the median of nine ratios is 4 / 2"
    assert result.interval(0.8) == pytest.approx((3 / 5 - 1, 6.0 - 1))
    assert result.interval(0.95) == pytest.approx((-1.0, math.expm1(statistics.MAX_LOG_RATIO)))


def test_ranks_of_many_values_are_normally_distributed() -> None:
    few, many = statistics._rank_tail(50, 50), statistics._rank_tail(50, 51)
    assert many[1100] == pytest.approx(few[1075], rel=0.06)


def test_holm_equals_the_worked_example() -> None:
    """The first two are significant, at a fourth and a third of 5 %; the third is not, at half of
    it, and the fourth has the same interval."""
    chances, levels = zip(*statistics.holm_correction([0.01, 0.04, 0.03, 0.005]), strict=True)
    assert chances == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert levels == pytest.approx([1 - 0.05 / 3, 0.975, 0.975, 1 - 0.05 / 4])
    assert statistics.holm_correction([]) == []


def test_outliers_equal_those_of_the_printed_table() -> None:
    """Grubbs' limits at 0.01, two-sided: 1.764 for five values, 2.482 for ten."""
    assert statistics.outliers([44.06, 41.02, 40.97, 41.05, 40.90]) == [0]
    assert statistics.outliers([42.06, 41.02, 40.97, 41.05, 40.90]) == [], "less than 5 %"
    assert statistics.outliers([1.0, 1.0, 9.0]) == [], "of three values none is the odd one"
    for count, limit, step in ((5, 1.764, 0.2), (10, 2.482, 0.02)):
        value, rest = 12.0, [10.0 + (-1) ** i for i in range(count - 1)]
        while not statistics.outliers([*rest, value]):
            value += step
        estimate = statistics.estimate([*rest, value])
        assert (value - estimate.mean) / estimate.sd == pytest.approx(limit, abs=0.003)


@pytest.mark.parametrize("length", cases_by_day([0, 5, 15, 30, 60], [5, 30]))
@pytest.mark.parametrize("white", [0.0, 2.0])
def test_correlated_noise_is_not_reported_as_a_difference(length: float, white: float) -> None:
    """Up to a fifth of a recording, alone or beside white noise that hides it. Once, a third of the
    pairs whose noise was reported as known were reported as different."""
    called, known = rates_of_series(200, length, white)
    assert called <= 0.08 * known + margin(0.08, max(1, round(200 * known))) * known
    assert known > 0.9 or length > 0
    assert known > 0.3 or not white, "most of this noise is known"


def test_a_ratio_of_sums_weights_its_parts() -> None:
    """Cycles over seconds: a block in which a CPU hardly ran has little weight."""
    cycles, ran = [3.0, 3.0, 0.001] * 20, [1.0, 1.0, 0.001] * 20
    estimate = statistics.estimate_of_series(cycles, ran)
    assert estimate.mean == pytest.approx(sum(cycles) / sum(ran))
    assert estimate.error < 0.001


def test_correlation_increases_the_error() -> None:
    """Two of four values are high: neighbours are correlated by 1/32 among values, and negatively
    among pairs, whose error is larger."""
    estimate = statistics.estimate_of_series([1.0, 1.0, -1.0, -1.0] * 8, [1.0] * 32)
    assert estimate.count == 16
    assert estimate.error == pytest.approx(math.sqrt(1 / 15))


def test_a_drifting_series_has_no_interval() -> None:
    estimate = statistics.estimate_of_series([float(i) for i in range(400)], [1.0] * 400)
    assert estimate.mean == pytest.approx(199.5)
    assert not estimate.has_error
    slow = statistics.estimate_of_series([1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0, 1.0], [1.0] * 8)
    assert not slow.has_error, "a correlation of (3 / 8 * 8 + 1) / 5"
