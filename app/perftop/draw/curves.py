"""Lines and areas of dots over time: a core's clock under its ceiling, and its IPC.

Pure functions from the values of columns to cells; a cell holds two columns. Unknown columns are
blank. As in `areas`, values are rounded to dots, and most cells are found among those made before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite

from perftop.draw import braille, theme
from perftop.draw.areas import Look, grade
from perftop.draw.moving import Column
from perftop.draw.strips import Run

AWAKE, ASLEEP, LOST = 0, 1, 2
"""A column of a line: at work, mostly asleep, during an episode that runs."""
_TALL: Mapping[Look, int] = {
    "colour": braille.TALL, "sixteen": braille.TALL, "shapes": braille.TALL,
    "ascii": len(braille.PLAIN),
}  # fmt: skip
"""Dots in a cell by its height."""
_MADE = 4096
"""Cells of each chart that are kept."""


def clock(
    columns: Sequence[Sequence[float]], ends: tuple[float, float], rows: int, look: Look = "colour"
) -> list[Column]:
    """The line of a clock under its ceiling; of each column both, and AWAKE, ASLEEP or LOST.
    `ends`: the lowest and highest clock of the scale. The first of at least two rows is the ceiling
    at the highest; where it is lower, dots below show it. A lost piece has a ground of its own."""
    low, high = ends
    dots = _TALL[look] * (rows - 1)
    thick = 1 if look == "ascii" else 2
    near = high - (high - low) / (2 * dots)
    marks: list[tuple[int, int, int, bool]] = []
    before = -1
    for i, (hz, ceiling, _) in enumerate(_drawn(columns, look)):
        at = _row(hz, ends, dots - thick + 1)
        lead = before if before >= 0 and at >= 0 else at
        limit = _row(ceiling, ends, dots) if i % 2 == 0 and ceiling < near else -1
        marks.append((min(at, lead), max(at, lead) + thick - 1, limit, ceiling >= near))
        before = at
    wide = _wide(look)
    return [
        _clock(*marks[at * wide : (at + 1) * wide], how=how, rows=rows, look=look)
        for at, how in enumerate(_worst(columns, 2))
    ]


def _row(value: float, ends: tuple[float, float], rows: int) -> int:
    """The row of a value out of `rows`, counted from the top; -1 if it is unknown."""
    if not isfinite(value):
        return -1
    low, high = ends
    return int(min(max((high - value) / (high - low), 0.0), 1.0) * (rows - 1) + 0.5)


@lru_cache(maxsize=_MADE)
def _clock(*marks: tuple[int, int, int, bool], how: int, rows: int, look: Look) -> Column:
    """A cell's column of lines. `marks`: by column of dots the first and last dot of the line, that
    of the limit, and whether the limit is at the top; -1: there is none."""
    lost, tall = how == LOST, _TALL[look]
    lines = [(2 << last) - (1 << first) if first >= 0 else 0 for first, last, *_ in marks]
    limits = [1 << limit if limit >= 0 else 0 for *_, limit, _ in marks]
    clear, limit = ("text/drop-back", "faint/drop-back") if lost else ("text", "rule")
    top = any(at_top for *_, at_top in marks)
    cells: list[Run] = [(theme.LIMIT, limit) if top else (" ", clear)]
    for row in range(rows - 1):
        line, below = (_part(dots, tall * row, tall) for dots in (lines, limits))
        if look == "ascii":
            sign = _plain(line[0]) or ("." if any(below) else " ")
        else:
            sign = braille.sign(*(a | b for a, b in zip(line, below, strict=True)))
        if any(line) or (lost and any(below)):
            cells.append((sign, ("clock", "faint", "alarm/drop-back")[how]))
        else:
            cells.append((sign, limit if any(below) else clear))
    return tuple(cells)


def _part(columns: Sequence[int], first: int, tall: int) -> list[int]:
    """The dots of one cell, as bits from the top."""
    return [column >> first & (1 << tall) - 1 for column in columns]


def _plain(dots: int) -> str:
    """A column of dots in ASCII; '' if there are none."""
    if dots & dots - 1:
        return "|"
    return braille.PLAIN[dots.bit_length() - 1] if dots else ""


def rate(
    columns: Sequence[Sequence[float]], high: float, rows: int, look: Look = "colour"
) -> list[Column]:
    """An area from 0 to `high`, the top of the scale; of each column the value, and AWAKE or LOST.
    What is lost is red."""
    most, wide = _TALL[look] * rows, _wide(look)
    heights = [
        max(1, int(min(value / high, 1.0) * most + 0.5)) if isfinite(value) and value > 0 else 0
        for value, _ in _drawn(columns, look)
    ]
    return [
        _rate(*heights[at * wide : (at + 1) * wide], lost=how == LOST, rows=rows, look=look)
        for at, how in enumerate(_worst(columns, 1))
    ]


@lru_cache(maxsize=_MADE)
def _rate(*heights: int, lost: bool, rows: int, look: Look) -> Column:
    """A cell's column of lines. `heights`: dots, by column of them."""
    cells, tall = list[Run](), _TALL[look]
    for row in reversed(range(rows)):
        parts = [min(max(height - tall * row, 0), tall) for height in heights]
        if look == "ascii":
            sign = braille.PLAIN_AREA[parts[0]]
        else:
            sign = braille.sign(*((1 << tall) - (1 << tall - part) for part in parts))
        key = f"{'loss' if lost else 'ipc'}-{grade(row, rows)}"
        cells.append((sign, key if sign != " " else "text"))
    return tuple(cells)


def _wide(look: Look) -> int:
    """Columns of dots in a cell."""
    return 1 if look == "ascii" else braille.WIDE


def _drawn(columns: Sequence[Sequence[float]], look: Look) -> Sequence[Sequence[float]]:
    """The columns that are drawn: in ASCII the newer of each two stands for both."""
    return columns[1::2] if look == "ascii" else columns


def _worst(columns: Sequence[Sequence[float]], kind: int) -> list[int]:
    """By cell the worst of its two columns."""
    how = [int(column[kind]) for column in columns]
    return [*map(max, how[::2], how[1::2])]
