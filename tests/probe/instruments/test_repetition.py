"""Repetition until a mean is stable, on a simulated clock and with noise of a known mean."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.instruments.measurement import (
    STABLE_ROUNDS,
    RepeatedMean,
    RepeatLimits,
    combined_mean,
    repeat_until_stable,
    standard_error,
    weighted_mean,
)


class SimulatedMeasurement:
    """A clock that advances by the cost of samples, and a measurement that records its rounds."""

    def __init__(self, cost_s: float, value: Callable[[int], float]) -> None:
        self.now = 100.0
        self.cost_s = cost_s
        self.value = value
        self.rounds: list[tuple[int, float]] = []
        self.begun: list[float] = []

    def clock(self) -> float:
        return self.now

    def measure(self, size: int) -> float:
        self.begun.append(self.now - 100.0)
        self.now += self.cost_s * size
        self.rounds.append((size, self.value(len(self.rounds))))
        return self.rounds[-1][1]

    def run(self, epsilon: float, limits: RepeatLimits) -> RepeatedMean:
        return repeat_until_stable(self.measure, epsilon, limits, self.clock)


limits_ = st.builds(
    RepeatLimits,
    max_s=st.floats(1e-4, 2),
    max_samples=st.integers(8, 20_000),
    first_round_samples=st.sampled_from([1, 8, 64]),
    round_growth=st.integers(2, 8),
    max_round_samples=st.sampled_from([64, 1024, 4096]),
    max_round_s=st.floats(1e-3, 10),
    min_s=st.floats(0, 1),
)
values_ = st.lists(st.floats(1, 1e6), min_size=1, max_size=40)


@given(limits_, values_, st.floats(1e-6, 1e-3), st.floats(1e-4, 0.5))
def test_repetition_stays_within_its_limits(
    limits: RepeatLimits, values: list[float], cost: float, epsilon: float
) -> None:
    machine = SimulatedMeasurement(cost, lambda i: values[i % len(values)])
    result = machine.run(epsilon, limits)
    sizes = [size for size, _ in machine.rounds]
    assert result.count == sum(sizes)
    assert sizes[0] == limits.first_round_samples
    assert result.count <= max(limits.max_samples, limits.first_round_samples)
    for size, begun in zip(sizes[1:], machine.begun[1:], strict=True):
        assert size % limits.first_round_samples == 0
        assert limits.first_round_samples <= size <= limits.max_round_samples
        assert begun < limits.max_s
        if size > limits.first_round_samples:
            assert begun + size * cost <= limits.max_s * (1 + 1e-6) + 1e-9
            assert size * cost <= limits.max_round_s * (1 + 1e-6)
    assert min(values) * 0.999999 <= result.mean <= max(values) * 1.000001


@given(limits_, values_, st.floats(1e-6, 1e-3), st.floats(1e-4, 0.5))
def test_a_settled_mean_is_stable(
    limits: RepeatLimits, values: list[float], cost: float, epsilon: float
) -> None:
    machine = SimulatedMeasurement(cost, lambda i: values[i % len(values)])
    result = machine.run(epsilon, limits)
    sizes = list(accumulate(size for size, _ in machine.rounds))
    sums = accumulate(size * mean for size, mean in machine.rounds)
    means = [total / size for total, size in zip(sums, sizes, strict=True)]
    moves = [abs(b - a) <= epsilon * abs(b) for a, b in pairwise(means)]
    held = len(moves) >= STABLE_ROUNDS and all(moves[-STABLE_ROUNDS:])
    assert result.is_stable == (held and machine.now - 100.0 >= limits.min_s)
    if result.error is not None:
        assert result.error >= epsilon * result.mean * 0.999999


def test_a_constant_settles_quickly() -> None:
    machine = SimulatedMeasurement(1e-6, lambda _: 42.0)
    result = machine.run(0.01, RepeatLimits(max_s=10, max_samples=10**9))
    assert [size for size, _ in machine.rounds] == [64, 256, 1024, 4096]
    assert result == RepeatedMean(42.0, 0.42, 64 + 256 + 1024 + 4096, is_stable=True)


def test_one_round_has_no_error() -> None:
    result = SimulatedMeasurement(1.0, lambda _: 7.0).run(
        0.01, RepeatLimits(max_s=1, max_samples=10**9)
    )
    assert (result.mean, result.error, result.is_stable) == (7.0, None, False)


def test_the_interval_contains_the_truth_with_its_confidence() -> None:
    """The noise is Gaussian, 1/sqrt(n) in a round of n. Tests growing and constant rounds."""
    for sizes in ([64 * 2**i for i in range(8)], [64] * 10, [64, 256, 1024, *[4096] * 10]):
        generator = random.Random(7)
        inside = 0
        for _ in range(1000):
            rounds = [(n, generator.gauss(50.0, 10 / math.sqrt(n))) for n in sizes]
            result = standard_error(rounds)
            assert result is not None
            inside += abs(weighted_mean(rounds) - 50.0) <= result
        assert 900 <= inside <= 990, (sizes[:4], inside)


@pytest.mark.parametrize("freedom", [*range(1, 21), 1000])
def test_few_rounds_use_students_t(freedom: int) -> None:
    """The reference is the sum of Student's density within the error."""
    rounds = [(1, 50.0 + i % 2) for i in range(freedom + 1)]
    mean, n = weighted_mean(rounds), freedom + 1
    sigma = math.sqrt(sum((one - mean) ** 2 for _, one in rounds) / freedom / n)
    result = standard_error(rounds)
    assert result is not None
    scale = math.exp(math.lgamma(n / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    width = result / sigma / 5000
    within = 2 * width * scale * sum(
        (1 + ((i + 0.5) * width) ** 2 / freedom) ** (-n / 2) for i in range(5000)
    )  # fmt: skip
    assert within == pytest.approx(0.95, abs=2e-3)


def test_differing_parts_widen_the_error() -> None:
    alike = [RepeatedMean(50.0, 0.1, 1000, is_stable=True)] * 3
    whole = combined_mean(alike)
    assert (whole.mean, whole.count, whole.is_stable) == (50.0, 3000, True)
    assert whole.error == pytest.approx(0.1414, abs=1e-4)
    apart = [RepeatedMean(50.0 + 5 * i, 0.1, 1000, is_stable=i < 2) for i in range(3)]
    result = combined_mean(apart)
    assert (result.mean, result.is_stable) == (55.0, False)
    assert result.error is not None
    assert result.error > 5.0
    assert combined_mean(alike[:1]).error == pytest.approx(0.1414, abs=1e-4)
    assert combined_mean([RepeatedMean(7.0, None, 64, is_stable=False)]).error is None
