"""Runs with random values, and the rates of results over many comparisons of such runs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

from perftop.output.compare import statistics
from perftop.output.compare.comparison import Row, compare
from perftop.output.compare.readings import Reading

METRICS = ["run_s", "cpu_s", "waited_s", "disk_s", "others_cpus", "busy_hz", "ipc", "instructions",
        "power_w", "energy_j"]  # fmt: skip
"""Metrics that are not shares."""
Draw = Callable[[random.Random], float]


def margin(share: float, trials: float) -> float:
    """Returns two standard errors of a rate."""
    return 2 * math.sqrt(share * (1 - share) / trials)


def side(
    keys: Iterable[str], values: Callable[[], float], runs: int, file: int = 0
) -> list[Reading]:
    return [Reading({key: values() for key in keys}, {}, {}, file=file) for _ in range(runs)]


def comparison_rows(
    trials: int, runs: int, a: Draw, b: Draw, keys: Iterable[str] = ("run_s",), seed: int = 1
) -> list[list[Row]]:
    """Returns the rows of comparisons of two sides, whose values are drawn by `a` and `b`."""
    draw = random.Random(seed)
    results = []
    for _ in range(trials):
        of_a, of_b = side(keys, lambda: a(draw), runs), side(keys, lambda: b(draw), runs)
        results.append(compare([("", of_a, of_b)])[0].rows)
    return results


def rate(events: Iterable[bool]) -> float:
    counted = list(events)
    return sum(counted) / len(counted)


def normal(mean: float, sd: float) -> Draw:
    return lambda draw: draw.gauss(mean, sd)


def tick_time(draw: random.Random) -> float:
    """Returns 0.10 or 0.11 at random, like a time in s that is counted in ticks of 10 ms."""
    return 0.10 if draw.random() < 0.5 else 0.11


def rarely_slow(mean: float, sd: float = 0.003) -> Draw:
    """Draws runs that vary by a share of `sd`; a tenth of them take 20 to 50 % longer."""
    return lambda draw: (
        mean * draw.gauss(1, sd) * (draw.uniform(1.2, 1.5) if draw.random() < 0.1 else 1)
    )


def series(draw: random.Random, length: float, white: float) -> list[float]:
    """Draws 300 values about 10, with noise that is correlated over `length` values, and white
    noise."""
    keeps = math.exp(-1 / length) if length else 0.0
    step, value, result = math.sqrt(1 - keeps * keeps), draw.gauss(0, 1), []
    for _ in range(300):
        value = keeps * value + step * draw.gauss(0, 1)
        result.append(10 + value + white * draw.gauss(0, 1))
    return result


def rates_of_series(trials: int, length: float, white: float) -> tuple[float, float]:
    """Returns two shares of pairs of equal recordings: those reported as different, and those with
    an estimate of the noise."""
    draw, called, known = random.Random(int(length)), 0, 0
    for _ in range(trials):
        a, b = (statistics.estimate_of_series(series(draw, length, white), [1.0] * 300)
                for _ in "AB")  # fmt: skip
        if a.has_error and b.has_error:
            result = statistics.difference(a, b)
            known += 1
            called += result is not None and result.probability < 0.05
    return called / trials, known / trials
