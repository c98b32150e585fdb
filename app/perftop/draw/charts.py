"""Charts: pure functions from values to cells. A chart has the height asked for and one column for
each value.

Colour only repeats what height, shape or the kind of line shows. A column without a known value is
blank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats, Ints
from perftop.draw import braille, theme
from perftop.draw.area_colours import AREAS, GRADES
from perftop.draw.braille import Codes, codes_of, rows_of
from perftop.draw.moving import Column
from perftop.draw.strips import Run

KEYS = ("text", "dim", "faint", "clock", "alarm", "both", "lp0", "lp1", "neither", "unknown",
        "cyan", "warn", *(f"{area}-{i}" for area in AREAS for i in range(GRADES)))  # fmt: skip
_AT = {key: i for i, key in enumerate(KEYS)}
_RULE = "│"


@frozen
class Chart:
    """Cells by line from the top, then by column."""

    codes: Codes
    keys: Ints
    """Styles of the cells, as positions in KEYS."""

    def lines(self) -> list[list[Run]]:
        """The chart as runs, line by line; neighbouring cells of one style form one run."""
        return lines_of(self.codes, self.keys, KEYS)

    def columns(self) -> list[Column]:
        """The chart as cells, column by column."""
        cells = zip(self.codes.T.tolist(), self.keys.T.tolist(), strict=True)
        return [
            tuple((chr(code), KEYS[key]) for code, key in zip(*column, strict=True))
            for column in cells
        ]


RATES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)
"""Possible ends of the scale of instructions per cycle."""

ANY = tuple(step * 10.0**power for power in range(13) for step in (1, 2, 5))
"""Possible ends of the scale of a number of any size."""


def lines_of(codes: Codes, keys: Ints, names: Sequence[str]) -> list[list[Run]]:
    """Cells as runs, line by line; neighbouring cells of one style form one run. `keys`: styles as
    positions in `names`."""
    lines, columns = codes.shape
    text = codes.astype("<u4").tobytes().decode("utf-32-le")
    ends = np.ones((lines, columns), bool)
    ends[:, :-1] = keys[:, 1:] != keys[:, :-1]
    at = np.flatnonzero(ends)
    found: list[list[Run]] = [[] for _ in range(lines)]
    start = 0
    for end, style in zip((at + 1).tolist(), keys.ravel()[at].tolist(), strict=True):
        found[start // columns].append((text[start:end], names[style]))
        start = end
    return found


def key(name: str) -> int:
    """The position of a style in KEYS, for callers that colour columns."""
    return _AT[name]


# --- an area


def grades(rows: int) -> Ints:
    """The step of colour of each row, counted from the base."""
    return ((np.arange(rows) + 0.5) * GRADES / rows).astype(np.intp)


def area(shares: Floats, lines: int, name: str, *, ascii_: bool = False) -> Chart:
    """Columns from the bottom up for shares from 0 to 1, in the colours of one of AREAS, which
    grow lighter from line to line. A share of 0 is a thin line; an unknown one is blank."""
    ramp = codes_of(theme.LEVELS_PLAIN if ascii_ else theme.LEVELS)
    known = np.isfinite(shares)
    share = np.clip(np.where(known, shares, 0.0), 0.0, 1.0)
    eighths = np.maximum(1, np.ceil(share * 8 * lines - 1e-9)).astype(int) * known
    below = 8 * np.arange(lines - 1, -1, -1)[:, None]
    level = np.clip(eighths - below, 0, 8)
    colours = _AT[f"{name}-0"] + grades(lines)[::-1, None]
    return Chart(ramp[level], np.where(level > 0, colours, _AT["text"]))


# --- a line and its limit


def graph(
    values: Floats, limits: Floats, keys: Ints, low: float, high: float, lines: int,
    *, ascii_: bool = False,
) -> Chart:  # fmt: skip
    """A stepped line and its dotted limit, with `low` at the bottom and `high` at the top; values
    beyond these are drawn on the edge. `keys`: the style of each column."""
    dots, columns = (len(braille.PLAIN), 1) if ascii_ else (braille.TALL, braille.WIDE)
    rows = lines * dots
    line = braille.line(np.repeat(values, columns), low, high, rows)
    limit = braille.line(np.repeat(limits, columns), low, high, rows, joined=False)
    limit[:, 1::2] = False
    there, limited = (
        part.reshape(lines, dots, -1, columns).any(axis=(1, 3)) for part in (line, limit)
    )
    if ascii_:
        codes = braille.plain_codes(line)
        codes[limited & ~there] = ord(".")
    else:
        codes = braille.codes(line | limit)
    style = np.where(there, keys[None, :], np.where(limited, _AT["dim"], _AT["text"]))
    return Chart(codes, style)


def ruled(columns: Sequence[Column], rules: Mapping[int, str]) -> list[Column]:
    """The chart with vertical rules below its line, by column from the left, each with a word at
    its foot. Each word is one line lower than the word before it; a word without free cells is left
    out."""
    made = [list(column) for column in columns]
    for at in rules:
        signs = [sign for sign, _ in columns[at]]
        first = next((line for line, sign in enumerate(signs) if sign != " "), len(signs))
        for line in range(first, len(signs)):
            if signs[line] == " ":
                made[at][line] = _RULE, "faint"
    words = {at: word for at, word in rules.items() if word}
    for line, (at, word) in enumerate(words.items(), len(made[0]) - len(words)):
        cells = range(at + 1, at + 1 + len(word))
        free = cells.stop <= len(columns) and all(columns[cell][line][0] == " " for cell in cells)
        if line > 0 and free:
            for cell, sign in zip(cells, word, strict=True):
                made[cell][line] = sign, "dim"
    return [*map(tuple, made)]


# --- scales


STEPS = (1.0, 2.0, 2.5, 5.0)
"""Readable distances between the marks of a scale, as multiples of a power of ten."""


def step(span: float, most: int) -> float:
    """The smallest readable distance at which a span has at most `most` marks."""
    least = span / max(1, most)
    power = 10.0 ** floor(log10(least))
    return next((s * power for s in STEPS if s * power >= least * (1 - 1e-9)), 10 * power)


def span(values: Floats, unit: float, held: tuple[float, float] | None) -> tuple[float, float]:
    """Ends of a scale that holds all values, as multiples of `unit`. The ends held so far stay
    while they span at most twice what is needed, because a scale that changes often is hard to
    read. A scale spans at least two units; the extra room is below the values, because clocks
    drop."""
    there = values[np.isfinite(values)]
    if not len(there):
        return held or (0.0, 2 * unit)
    high = unit * max(2, ceil(float(there.max()) / unit))
    low = min(unit * floor(float(there.min()) / unit), high - 2 * unit)
    if held and held[0] <= low and high <= held[1] and held[1] - held[0] <= 2 * (high - low):
        return held
    return low, high


def top(values: Floats, ends: Sequence[float], held: float | None) -> float:
    """The end of a scale from 0: the first of `ends` that holds all values. The end held so far
    stays if it is that one or the next larger one."""
    there = values[np.isfinite(values)]
    most = float(there.max()) if len(there) else 0.0
    at = next((i for i, end in enumerate(ends) if most <= end), len(ends) - 1)
    if held is not None and held in ends[at : at + 2]:
        return held
    return ends[at]


def marks(low: float, high: float, lines: int, most: int) -> dict[int, float]:
    """Round values on a scale, by the line in which each stands."""
    apart = step(high - low, most)
    first = ceil(low / apart - 1e-9)
    found: dict[int, float] = {}
    for i in range(first, floor(high / apart + 1e-9) + 1):
        value = i * apart
        line = int(rows_of(np.array([value]), low, high, 4 * lines)[0]) // 4
        found.setdefault(line, value)
    return found
