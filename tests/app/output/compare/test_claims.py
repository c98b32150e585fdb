"""Claims of `diff` and `stat -r`, by simulation: how often noise is reported as a difference, how
often intervals contain the true value, how often a difference is detected. All rates have a
binomial error."""

from __future__ import annotations

import random
from functools import cache

import pytest
from nightly import cases_by_day
from random_runs import (
    METRICS,
    Draw,
    comparison_rows,
    margin,
    normal,
    rarely_slow,
    rate,
    side,
    tick_time,
)

from perftop.output.compare import statistics
from perftop.output.compare.answer import (
    headline,
)
from perftop.output.compare.comparison import (
    NOISE,
    compare,
)
from perftop.output.compare.readings import Reading

# --- no difference


NOISE_CASES = [
    (runs, same, METRICS[:5])
    for runs in (3, 6, 12)
    for same in (normal(100, 3), rarely_slow(100, 0.03))
]
DAILY_NOISE = [*NOISE_CASES[:2], (3, tick_time, METRICS)]
"""All values of three runs can be the same tick on each side."""


@pytest.mark.parametrize(
    ("runs", "same", "keys"), cases_by_day([*NOISE_CASES[2:], *DAILY_NOISE], DAILY_NOISE)
)
def test_noise_is_reported_as_a_difference_in_at_most_1_of_20_tables(
    runs: int, same: Draw, keys: list[str]
) -> None:
    result = comparison_rows(300, runs, same, same, keys)
    assert rate(any(row.is_clear for row in rows) for rows in result) <= 0.05 + margin(0.05, 300)


@cache
def sessions(files: int) -> float:
    """Share of comparisons that report a difference, with `files` files a side and five runs each.
    Sessions differ by 0.7 %, the runs of a session by 0.3 %."""
    draw, called, trials = random.Random(files), 0, 300
    for _ in range(trials):
        sides = []
        for _ in "AB":
            readings: list[Reading] = []
            for file in range(files):
                mean = draw.gauss(100, 0.7)
                readings += side(["run_s"], lambda: draw.gauss(mean, 0.3), 5, file)  # noqa: B023
            sides.append(readings)
        called += compare([("", sides[0], sides[1])])[0].rows[0].is_clear
    return called / trials


@pytest.mark.parametrize("files", cases_by_day([2, 3], [3]))
def test_runs_of_several_files_are_compared_by_files(files: int) -> None:
    assert sessions(files) <= 0.05 + margin(0.05, 300)
    assert sessions(1) > 0.3, "one file a side does not show the spread of sessions"


# --- intervals


@pytest.mark.parametrize("ratio", cases_by_day([1.1, 3.0], [3.0]))
def test_the_interval_of_a_ratio_contains_the_true_ratio(ratio: float) -> None:
    """The runs of A vary by 10 %, which adds to the noise of B / A."""
    result = comparison_rows(600, 6, normal(100, 10), normal(100 * ratio, 10 * ratio))
    intervals = [rows[0].interval for rows in result]
    held = rate(low <= ratio - 1 <= high for low, high in filter(None, intervals))
    assert 0.95 - margin(0.95, 600) <= held <= 0.95 + margin(0.95, 600)


def test_no_interval_exceeds_possible_values() -> None:
    wide = comparison_rows(50, 3, normal(100, 40), normal(30, 20))
    assert min(rows[0].interval[0] for rows in wide if rows[0].interval) >= -1
    shares = comparison_rows(
        50, 3, lambda draw: draw.uniform(0, 0.05), lambda draw: draw.uniform(0.9, 1), ["util"]
    )
    assert all(
        -1 <= low <= high <= 1 for rows in shares for low, high in filter(None, [rows[0].interval])
    )
    (row,) = compare([("", side(["util"], iter([0.02, 0.0, 0.01]).__next__, 3),
                       side(["util"], iter([0.0, 0.01, 0.0]).__next__, 3))])[0].rows  # fmt: skip
    assert row.interval is not None
    assert row.interval[0] >= -0.035, "B is no negative share"


def test_intervals_agree_with_verdicts_and_with_each_other() -> None:
    """Half of the tables once had an interval without 0 beside the verdict "no difference", or the
    reverse."""
    result = comparison_rows(150, 5, normal(100, 1), normal(100, 1), METRICS)
    moved = comparison_rows(50, 5, normal(100, 1), normal(101.5, 1), METRICS)
    for rows in result + moved:
        for row in rows:
            assert row.interval is not None
            assert (row.interval[0] <= 0 <= row.interval[1]) == (row.verdict == NOISE)
    together = rate(
        all(row.interval and row.interval[0] <= 0 <= row.interval[1] for row in rows)
        for rows in result
    )
    assert together >= 0.95 - margin(0.95, 150)


# --- detected differences


@pytest.mark.parametrize(("runs", "rows"), cases_by_day([(5, 1), (10, 1), (5, 10)], [(5, 1)]))
def test_the_least_detectable_difference_is_detected_in_8_of_10(runs: int, rows: int) -> None:
    moved = statistics.smallest_difference(1.0, runs, rows)
    draw, result = random.Random(runs), []
    keys = METRICS[:rows]
    for _ in range(400):
        a = side(keys, lambda: draw.gauss(100, 1), runs)
        b = [Reading(one.numbers | {"run_s": draw.gauss(100 + moved, 1)}, {}, {})
             for one in side(keys, lambda: draw.gauss(100, 1), runs)]  # fmt: skip
        result.append(compare([("", a, b)])[0].rows[0].is_clear)
    assert rate(result) == pytest.approx(0.8, abs=0.04 + margin(0.8, 400))


@pytest.mark.parametrize(("mean_shift", "runs"), [(0.05, 2), (0.02, 3), (0.01, 4), (0.002, 64)])
def test_the_recommended_number_of_runs_detects_the_difference(
    mean_shift: float, runs: int
) -> None:
    """Two-sided, at 5 %: 2 (1.96 + 0.84)^2 (0.004 / mean_shift)^2 runs per side, and a few more
    because t replaces the normal quantiles."""
    needed = statistics.runs_needed(0.004, mean_shift)
    assert needed == runs
    assert statistics.smallest_difference(0.004, needed) <= mean_shift
    assert statistics.runs_needed(0.5, 0.001) == statistics.MAX_RUNS_NEEDED


@pytest.mark.parametrize("runs", [10, 20])
def test_a_difference_is_detected_despite_rare_slow_runs(runs: int) -> None:
    """Slow runs hide a difference of 2 % between means."""
    result = comparison_rows(200, runs, rarely_slow(100), rarely_slow(102))
    heavy = [rows[0] for rows in result if rows[0].is_ranked]
    assert len(heavy) > 100
    assert rate(rows[0].is_clear for rows in result) >= 0.85
    held = [row.interval[0] <= 0.02 <= row.interval[1] for row in heavy if row.interval]
    assert rate(held) >= 0.95 - margin(0.95, len(heavy))


def test_5_percent_more_work_is_detected_in_five_runs_under_load() -> None:
    """Other tasks vary the run time by 15 % and the CPU time by 0.6 %. Without more work, at most
    one headline in 20 may report a difference."""
    draw = random.Random(2)

    def runs(more: float) -> list[Reading]:
        return [Reading({"run_s": draw.gauss(2.6, 0.4), "cpu_s": draw.gauss(1.328, 0.008) * more,
                         "waited_s": draw.uniform(0.8, 1.7)}, {}, {})
                for _ in range(5)]  # fmt: skip

    same, different = (
        [headline(compare([("", runs(1.0), runs(more))])) for _ in range(50)]
        for more in (1.0, 1.05)
    )
    assert rate("no difference found" not in text for text in same) <= 0.05 + margin(0.05, 50)
    found = [text.startswith("B needs ") and " % more CPU time. Run time: " in text
             for text in different]  # fmt: skip
    assert rate(found) >= 0.95


# --- outliers


@pytest.mark.parametrize("runs", cases_by_day([5, 10, 20], [5, 10]))
@pytest.mark.parametrize("sd", cases_by_day([0.005, 0.1], [0.1]))
def test_at_most_1_of_100_healthy_sets_has_an_outlier(runs: int, sd: float) -> None:
    draw, trials = random.Random(runs), 400
    sets = ([draw.gauss(1, sd) for _ in range(runs)] for _ in range(trials))
    assert rate(bool(statistics.outliers(values)) for values in sets) <= 0.01 + margin(0.01, trials)
