"""Distributions of a number on both sides, as rows of eighth blocks on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perftop.base.text import EIGHTHS, columns
from perftop.output.compare.comparison import Comparison, Row
from perftop.output.compare.reading import Reading

BINS = 32
STEPS = " .:-=+*#"
"""What is drawn where only ASCII can be."""
MOST = 3
"""Numbers that are drawn: those that differ, and the run time."""
FEWEST = 3
"""Values on each side of which a picture is made."""
TRIM = 0.005
"""Share of the values at each end that the axis does not make room for."""


def pictures(one: Comparison, *, unicode: bool) -> list[str]:
    found: list[str] = []
    rows = [row for row in one.rows if row.sure or row.number.key == "run_s"]
    for row in rows:
        sides = [_values(side, row.number.key, one.blocks) for side in (one.a, one.b)]
        if min(map(len, sides)) >= FEWEST and len(found) < 2 * MOST:
            found += _drawn(row, *sides, unicode=unicode)
    return found


def _values(readings: Sequence[Reading], key: str, samples: bool) -> list[float]:
    """A value for each run, or, with `samples`, for each sample of the only run."""
    if samples:
        return readings[0].samples.get(key, [])
    return [one.numbers[key] for one in readings if key in one.numbers]


def _drawn(row: Row, a: Sequence[float], b: Sequence[float], *, unicode: bool) -> Iterator[str]:
    low, high = _ends([*a, *b])
    signs, number = EIGHTHS if unicode else STEPS, row.number
    for at, (name, values) in enumerate((("A", a), ("B", b))):
        label = f"{number.label:<{16 - len(number.unit)}}{number.unit}" if at == 0 else " " * 16
        ends = [number.show(end, row.a) if at == 0 else "" for end in (low, high)]
        yield f"  {label}{ends[0]:>8} {_bars(values, low, high, signs)} {ends[1]:<8}{name}"


def _ends(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    cut = int(TRIM * len(ordered))
    return ordered[cut], ordered[-1 - cut]


def _bars(values: Sequence[float], low: float, high: float, signs: str) -> str:
    """A cell a bin. What is beyond the ends counts in the last bin there."""
    counts = [0] * BINS
    for value in values:
        place = int((value - low) / (high - low) * BINS) if high > low else BINS // 2
        counts[min(max(place, 0), BINS - 1)] += 1
    return columns(counts, signs)
