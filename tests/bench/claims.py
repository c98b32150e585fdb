"""Simulates how often each claim of `diff` and `stat -r` is wrong. Prints the rate before these
claims were examined, the rate now with its binomial error, and the allowed range. Prints the same
for figures on samples whose true values are known, which have no such error. Exits with 1 if one is
outside its range.

Run by hand: PYTHONPATH=tests/support python tests/bench/claims.py [TRIALS] (3,000: a minute)
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from core_clocks import drops_of_a_noisy_clock
from known_truths import (
    UnreadCycles,
    bursts_of_steal,
    lost_share_at_half_the_clock,
    seconds_after_a_suspend,
    session_in_batches,
    steal_from_ticks_in_short_samples,
    times_of_two_tasks_on_a_cpu,
)
from random_runs import (
    METRICS,
    comparison_rows,
    margin,
    normal,
    rarely_slow,
    rate,
    rates_of_series,
    side,
    tick_time,
)
from task_scans import Machine, records_of_a_crowd

from perftop.output.compare import statistics
from perftop.output.compare.comparison import NOISE, Row, compare
from perftop.output.compare.readings import Reading


class Claim(NamedTuple):
    what: str
    before: float
    """The rate at commit 9eac8032 (2,000 trials of the same draws), or the figure."""
    now: float
    lowest: float
    """The lowest allowed rate now."""
    highest: float
    trials: float = math.inf
    """The number of trials of `now`. Infinite for a figure without a sampling error."""


CORRELATED = (
    (15, 0.0, 0.067),
    (30, 0.0, 0.190),
    (60, 0.0, 0.370),
    (30, 2.0, 0.127),
    (60, 2.0, 0.342),
)
"""Length of correlation in a recording of 300 samples, amount of white noise added to it, and, of
the pairs whose noise was known, the share reported as different at that commit."""


def share_with_a_difference(result: Iterable[list[Row]]) -> float:
    return rate(any(row.is_sure for row in rows) for rows in result)


def share_of_right_intervals(result: Iterable[list[Row]], change: float) -> float:
    """Share of the first rows whose interval contains the true change."""
    intervals = [rows[0].interval for rows in result]
    return rate(low <= change <= high for low, high in filter(None, intervals))


def sessions(trials: int, files: int) -> float:
    """Share of comparisons with a difference. Files differ by 3 %, runs of a file by 1 %."""
    draw, result = random.Random(files), []
    for _ in range(trials):
        sides: list[list[Reading]] = []
        for _ in "AB":
            readings: list[Reading] = []
            for file in range(files):
                mean = draw.gauss(100, 3)
                readings += side(["run_s"], lambda: draw.gauss(mean, 1), 5, file)  # noqa: B023
            sides.append(readings)
        result.append(compare([("", sides[0], sides[1])])[0].rows)
    return share_with_a_difference(result)


def contradictions(trials: int) -> float:
    """Share of tables in which a verdict and its interval disagree."""
    return rate(
        any(
            row.interval is not None
            and (row.interval[0] <= 0 <= row.interval[1]) != (row.verdict == NOISE)
            for row in rows
        )
        for rows in comparison_rows(trials, 5, normal(100, 1), normal(100, 1), METRICS)
    )


def claims(trials: int) -> Iterator[Claim]:
    before = iter((0.032, 0.020, 0.044, 0.015, 0.051, 0.006))
    for runs in (3, 6, 12):
        for name, same in (("normal", normal(100, 3)), ("rarely slow", rarely_slow(100, 0.03))):
            wrong = share_with_a_difference(comparison_rows(trials, runs, same, same, METRICS[:5]))
            what = f"{runs} equal runs per side, {name}, called different"
            yield Claim(what, next(before), wrong, 0, 0.05, trials)
    wrong = share_with_a_difference(comparison_rows(trials, 3, tick_time, tick_time, METRICS))
    yield Claim("equal times in ticks called different", 0.285, wrong, 0, 0.05, trials)
    yield Claim(
        "equal files of five runs called different", 0.459, sessions(trials, 3), 0, 0.05, trials
    )
    for ratio, old in ((1.1, 0.952), (1.86, 0.908), (3.0, 0.886)):
        result = comparison_rows(trials, 6, normal(100, 10), normal(100 * ratio, 10 * ratio))
        held = share_of_right_intervals(result, ratio - 1)
        yield Claim(f"the interval holds a ratio of {ratio:g}", old, held, 0.95, 0.96, trials)
    for runs, old in ((5, 0.517), (10, 0.518)):
        moved = statistics.smallest_difference(3.0, runs, 1)
        found = share_with_a_difference(
            comparison_rows(trials, runs, normal(100, 3), normal(100 + moved, 3))
        )
        yield Claim(f"the least difference of {runs} runs is found", old, found, 0.78, 0.86, trials)
    for runs, old in ((10, 0.136), (20, 0.119)):
        found = share_with_a_difference(
            comparison_rows(trials, runs, rarely_slow(100), rarely_slow(102))
        )
        yield Claim(
            f"2 % among rare slow runs are found by {runs} runs", old, found, 0.85, 1.0, trials
        )
    for runs, old in ((5, 0.258), (10, 0.195), (20, 0.195)):
        draw = random.Random(runs)
        sets = ([draw.gauss(1, 0.03) for _ in range(runs)] for _ in range(trials))
        wrong = rate(bool(statistics.outliers(values)) for values in sets)
        yield Claim(f"an outlier in {runs} healthy runs", old, wrong, 0, 0.01, trials)
    wrong = contradictions(trials // 4)
    yield Claim("a verdict contradicts its interval", 0.336, wrong, 0, 0)
    for length, white, old in CORRELATED:
        called, known = rates_of_series(trials // 4, length, white)
        name = f"one recording each, correlation {length / 300:.0%}, white noise {white:g}"
        yield Claim(name, old, called / max(known, 0.01), 0, 0.1, max(1, known * (trials // 4)))


def claims_on_samples() -> Iterator[Claim]:
    """Yields figures instead of rates. `before` is the figure for the same streams at that commit,
    which found no sample in two of the spans after a suspend."""
    share = lost_share_at_half_the_clock(util=0.45)
    yield Claim("loss at half the clock, 45 % busy; true: 0.5", 0.0, share, 0.49, 0.51)
    with TemporaryDirectory() as directory:
        records = records_of_a_crowd(Machine(Path(directory)), 1)
        seen_s = sum(wait for wait, _ in records["waits"]["0"] if wait is not None)
        yield Claim(
            "share seen of the waits of ten tasks on a CPU", 0.196, seen_s / 9.02, 0.99, 1.01
        )
        elapsed_s = seconds_after_a_suspend(Path(directory, "slept.perftop"))
        errors_s = [abs(s - true_s) for s, true_s in zip(elapsed_s, (15, 5, 10), strict=True)]
        yield Claim("largest error in s of a span after a suspend", 14.9, max(errors_s), 0, 1.1)
    times = times_of_two_tasks_on_a_cpu(seconds=2)
    yield Claim("waits are reported of a look of two seconds", 1, times.has_waits, 0, 0)
    task = times_of_two_tasks_on_a_cpu(seconds=3).tasks[1, "a", 0]
    share = task.wait_s / task.wanted_s
    yield Claim("share of waiting in a look of three seconds; true: 0.5", 0.4, share, 0.49, 0.51)
    stolen_s = steal_from_ticks_in_short_samples()
    yield Claim("steal in s of samples of 10 ms; true: 0.1", 0.07, stolen_s, 0.096, 0.1)
    session = session_in_batches(UnreadCycles(cores=2), 1)
    clock_hz = session.run_interval().values["busy_hz"][1]
    what = "clock in GHz of a run with an unread value; true: 2"
    yield Claim(what, math.nan, clock_hz / 1e9, 1.99, 2.01)
    spells, bursts = 400, 200
    _, false_count = drops_of_a_noisy_clock(0.02, spells)
    per_hour = false_count * 3600 / (14.5 * spells)
    yield Claim("false drops an hour at a clock noise of 2 %", 423, per_hour, 0, 5)
    _, false_count, _ = bursts_of_steal(0.03, bursts)
    per_hour = false_count * 3600 / (56 * bursts)
    yield Claim("false episodes an hour at a steal of 3 %", 1008, per_hour, 0, 5)


def main() -> int:
    trials, outside = int(sys.argv[1]) if sys.argv[1:] else 3000, 0
    for claim in chain(claims(trials), claims_on_samples()):
        share, least_share = claim.now, 1 / (claim.trials + 1)
        slack = margin(min(max(share, least_share), 1 - least_share), claim.trials)
        is_right = claim.lowest - slack <= share <= claim.highest + slack
        outside += not is_right
        print(f"{claim.what:55} {claim.before:7.3f} {share:6.3f} ± {slack:.3f}, "
              f"allowed {claim.lowest:g} to {claim.highest:g}{'' if is_right else ': WRONG'}",
              flush=True)  # fmt: skip
    return min(outside, 1)


if __name__ == "__main__":
    raise SystemExit(main())
