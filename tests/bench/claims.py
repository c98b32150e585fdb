"""Prints how often `diff` and `stat -r` are wrong, for each of their claims, by simulation: the
rate before these claims were examined, the rate now with its binomial error, and what is allowed.
Exits with 1 if a rate is outside.

Run by hand: PYTHONPATH=tests/support python tests/bench/claims.py [TRIALS] (3,000: a minute)
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator

from drawn_runs import (
    MANY,
    error,
    normal,
    rarely_slow,
    rate,
    rates_of_series,
    side,
    tables,
    ticks,
)

from perftop.output.compare import statistics
from perftop.output.compare.comparison import NOISE, Row, compare
from perftop.output.compare.readings import Reading

Claim = tuple[str, float, float, float, float]
"""The kind of error, its rate at commit 9eac8032 (2,000 trials of the same draws), its rate now,
and the lowest and the highest allowed rate."""

CORRELATED = (
    (15, 0.0, 0.067),
    (30, 0.0, 0.190),
    (60, 0.0, 0.370),
    (30, 2.0, 0.127),
    (60, 2.0, 0.342),
)
"""Lengths of correlation in a recording of 300 samples, the white noise beside it, and the share of
pairs that were called different at that commit, of those whose noise was known."""


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
        for rows in tables(trials, 5, normal(100, 1), normal(100, 1), MANY)
    )


def claims(trials: int) -> Iterator[Claim]:
    before = iter((0.032, 0.020, 0.044, 0.015, 0.051, 0.006))
    for runs in (3, 6, 12):
        for name, same in (("normal", normal(100, 3)), ("rarely slow", rarely_slow(100, 0.03))):
            wrong = share_with_a_difference(tables(trials, runs, same, same, MANY[:5]))
            what = f"{runs} equal runs a side, {name}, called different"
            yield what, next(before), wrong, 0, 0.05
    wrong = share_with_a_difference(tables(trials, 3, ticks, ticks, MANY))
    yield "equal times in ticks called different", 0.285, wrong, 0, 0.05
    yield "equal files of five runs called different", 0.459, sessions(trials, 3), 0, 0.05
    for ratio, old in ((1.1, 0.952), (1.86, 0.908), (3.0, 0.886)):
        result = tables(trials, 6, normal(100, 10), normal(100 * ratio, 10 * ratio))
        held = share_of_right_intervals(result, ratio - 1)
        yield f"the interval holds a ratio of {ratio:g}", old, held, 0.95, 0.96
    for runs, old in ((5, 0.517), (10, 0.518)):
        moved = statistics.smallest_difference(3.0, runs, 1)
        found = share_with_a_difference(
            tables(trials, runs, normal(100, 3), normal(100 + moved, 3))
        )
        yield f"the least difference of {runs} runs is found", old, found, 0.78, 0.86
    for runs, old in ((10, 0.136), (20, 0.119)):
        found = share_with_a_difference(tables(trials, runs, rarely_slow(100), rarely_slow(102)))
        yield f"2 % among rare slow runs are found by {runs} runs", old, found, 0.85, 1.0
    for runs, old in ((5, 0.258), (10, 0.195), (20, 0.195)):
        draw = random.Random(runs)
        sets = ([draw.gauss(1, 0.03) for _ in range(runs)] for _ in range(trials))
        wrong = rate(bool(statistics.outliers(values)) for values in sets)
        yield f"an outlier in {runs} healthy runs", old, wrong, 0, 0.01
    wrong = contradictions(trials // 4)
    yield "a verdict contradicts its interval", 0.336, wrong, 0, 0
    for length, white, old in CORRELATED:
        called, known = rates_of_series(trials // 4, length, white)
        name = f"one recording each, correlation {length / 300:.0%}, white noise {white:g}"
        yield name, old, called / max(known, 0.01), 0, 0.1


def main() -> int:
    trials, outside = int(sys.argv[1]) if sys.argv[1:] else 3000, 0
    for what, before, share, least, most in claims(trials):
        slack = error(min(max(share, 1 / trials), 1 - 1 / trials), trials)
        is_right = least - slack <= share <= most + slack
        outside += not is_right
        print(f"{what:55} {before:6.3f} {share:6.3f} ± {slack:.3f}, allowed {least:g} to {most:g}"
              f"{'' if is_right else ': WRONG'}", flush=True)  # fmt: skip
    return min(outside, 1)


if __name__ == "__main__":
    raise SystemExit(main())
