"""Prints how often `diff` and `stat -r` are wrong, for each of their claims, by simulation: the
rate, its binomial error, and what is allowed. Exits with 1 if a rate is outside.

Run by hand: PYTHONPATH=tests/support python tests/bench/claims.py [TRIALS] (3,000: a minute)
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator

from drawn_runs import MANY, error, normal, rarely_slow, rate, side, tables, ticks

from perftop.output.compare import statistics
from perftop.output.compare.comparison import Row, compare
from perftop.output.compare.readings import Reading

Claim = tuple[str, float, float, float]
"""The kind of error, its rate, and the lowest and the highest allowed rate."""


def any_sure(result: Iterable[list[Row]]) -> float:
    return rate(any(row.is_sure for row in rows) for rows in result)


def holding(result: Iterable[list[Row]], change: float) -> float:
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
    return any_sure(result)


def claims(trials: int) -> Iterator[Claim]:
    for runs in (3, 6, 12):
        for name, same in (("normal", normal(100, 3)), ("rarely slow", rarely_slow(100, 0.03))):
            wrong = any_sure(tables(trials, runs, same, same, MANY[:5]))
            yield f"{runs} equal runs a side, {name}, called different", wrong, 0, 0.05
    yield (
        "equal times in ticks called different",
        any_sure(tables(trials, 3, ticks, ticks, MANY)),
        0,
        0.05,
    )
    yield "equal files of five runs called different", sessions(trials, 3), 0, 0.05
    for ratio in (1.1, 1.86, 3.0):
        result = tables(trials, 6, normal(100, 10), normal(100 * ratio, 10 * ratio))
        yield f"the interval holds a ratio of {ratio:g}", holding(result, ratio - 1), 0.95, 0.96
    for runs in (5, 10):
        moved = statistics.smallest_difference(3.0, runs, 1)
        result = tables(trials, runs, normal(100, 3), normal(100 + moved, 3))
        yield f"the least difference of {runs} runs is found", any_sure(result), 0.78, 0.86
    for runs in (10, 20):
        result = tables(trials, runs, rarely_slow(100), rarely_slow(102))
        yield f"2 % among rare slow runs are found by {runs} runs", any_sure(result), 0.85, 1.0
    for runs in (5, 10, 20):
        draw = random.Random(runs)
        sets = ([draw.gauss(1, 0.03) for _ in range(runs)] for _ in range(trials))
        wrong = rate(bool(statistics.outliers(values)) for values in sets)
        yield f"an outlier in {runs} healthy runs", wrong, 0, 0.01


def main() -> int:
    trials, outside = int(sys.argv[1]) if sys.argv[1:] else 3000, 0
    for what, share, least, most in claims(trials):
        slack = error(min(max(share, 1 / trials), 1 - 1 / trials), trials)
        is_right = least - slack <= share <= most + slack
        outside += not is_right
        print(f"{what:55} {share:6.3f} ± {slack:.3f}, allowed {least:g} to {most:g}"
              f"{'' if is_right else ': WRONG'}", flush=True)  # fmt: skip
    return min(outside, 1)


if __name__ == "__main__":
    raise SystemExit(main())
