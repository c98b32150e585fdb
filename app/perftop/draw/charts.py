"""Charts: these functions turn the values of columns into cells. A chart has the requested height,
and its newest column is at the right.

Colour only repeats what height, shape or the kind of line shows. A column without a known value is
blank. In charts of stacked areas, each column takes one cell; in lines and areas of dots, two
columns share a cell.

Values are first rounded, as arrays, to eighths or dots of a cell. This leaves few different columns
of cells, and most of them are cached, because a machine's charts have thousands of cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor, log10
from typing import Literal

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.draw import braille, theme
from perftop.draw.braille import Codes, codes_of, dot_rows
from perftop.draw.columns import Run
from perftop.draw.strips import joined
from perftop.draw.theme import AREAS, GRADES

Column = tuple[Run, ...]
"""The cells of a column of a chart, from the top."""
Look = Literal["colour", "sixteen", "shapes", "ascii"]
"""How the cells of charts are drawn: "colour": with a foreground and a background colour;
"sixteen": shapes in the terminal's own colours, where the background is unknown; "shapes": shapes
that need no colour; "ascii": ASCII characters."""


def look(theme_name: str, *, no_color: bool, ascii_: bool) -> Look:
    if ascii_ or no_color:
        return "ascii" if ascii_ else "shapes"
    return "sixteen" if theme.PALETTES[theme_name].ansi else "colour"


def rows_of(columns: Iterable[Column]) -> list[list[Run]]:
    """Returns the lines of a chart, from the top."""
    return [joined(cells) for cells in zip(*columns, strict=True)]


def grade(row: int, rows: int) -> int:
    """Returns the colour step of a row of an area; rows are counted from the base of the area."""
    return int((row + 0.5) * GRADES / rows)


# --- stacked areas

SIGNIFICANT_STEAL = 0.004
"""Minimum share of steal that is always drawn, however few rows the chart has."""
QUIET, OVER, HOT = 0, 1, 2
"""Kind of a column's steal: outside episodes, during an ended episode, during a running one."""
_SIGN_ROWS = 8
"""Minimum rows of a chart in which cells full of steal show the steal sign during an episode."""
_HANGING = " ▁▂▃▀▅▆▔█"
"""Characters that leave the lower part of the cell to the background, indexed by the height of that
part in eighths. Only the heights in _SHAPES have such a character; the others are placeholders."""
_SHAPES = frozenset({4, 7})
"""Heights, in eighths, for which a character of _HANGING is used, in the colour of the upper part.
This leaves no seams in terminals whose glyphs do not fill the cell."""
_USER, _KERNEL, _IDLE, _STEAL = range(4)
_MADE = 4096
"""Maximum number of cached columns, and of cached cells, for each kind of chart."""
Last = Literal["equal", "weak", "firm"]
"""How steal is treated if a cell would show three kinds: "equal": steal is left out if it is the
smallest; "weak": steal is left out before kernel; "firm": steal is never left out."""


def two_kinds(parts: Sequence[int], last: Last = "equal") -> tuple[int, int, int]:
    """Returns the two kinds that are drawn in a cell, lower and upper, and the height of the lower
    kind in eighths. `parts`: eighths of each kind, from the base of the cell. Of three kinds, the
    smallest is left out, subject to `last`."""
    sizes: dict[int, float] = {kind: size for kind, size in enumerate(parts) if size}
    if _STEAL in sizes and last == "firm":
        sizes[_STEAL] = 9
    elif {_STEAL, _KERNEL} <= sizes.keys() and last == "weak":
        sizes[_STEAL] = min(sizes[_STEAL], sizes[_KERNEL] - 0.5)
    largest = sorted(sizes, key=lambda kind: (-sizes[kind], kind))[:2]
    lower, upper = min(largest), max(largest)
    return lower, upper, sum(parts[:upper]) if lower != upper else 8


def _in_cell(ends: Sequence[int], row: int) -> tuple[int, ...]:
    """Returns the eighths of each kind in the cell of a row; rows are counted from the base.
    `ends`: the upper ends of the kinds, in eighths from the base."""
    tops = [min(max(end - 8 * row, 0), 8) for end in ends]
    return tuple([upper - lower for lower, upper in pairwise((0, *tops))])


def _eighths(shares: Floats, rows: int) -> Ints:
    """Returns shares (0 to 1) in eighths of a cell, where a share of 1 fills `rows` cells."""
    return np.floor(np.clip(shares, 0.0, 1.0) * (8 * rows) + 0.5).astype(int)


def account(columns: Floats, rows: int, look: Look = "colour") -> list[Column]:
    """Returns the chart of how a CPU's time is used. `columns`: (columns, 4): the shares of user,
    kernel and steal, then QUIET, OVER or HOT. User and kernel grow from the bottom, steal hangs
    from the top, and idle time is between them. A column without a user share is blank; an unknown
    kernel or steal share counts as 0."""
    unknown = ~np.isfinite(columns[:, 0])
    user, kernel, steal, heat = np.nan_to_num(columns).T
    hang = np.maximum(steal >= SIGNIFICANT_STEAL, _eighths(steal, rows))
    busy = np.minimum(_eighths(user + kernel, rows), 8 * rows - hang)
    low = np.where(unknown, -1, np.minimum(_eighths(user, rows), busy))
    ends = zip(*(it.tolist() for it in (low, busy, hang, heat.astype(int))), strict=True)
    return [_account(*column, rows, look) for column in ends]


@lru_cache(maxsize=_MADE)
def _account(user: int, busy: int, hang: int, heat: int, rows: int, look: Look) -> Column:
    """Returns one column of `account`. `user` and `busy`: the upper ends of user and of kernel;
    `hang`: the height of steal; all in eighths. `user` is -1 if the column is unknown."""
    if user < 0:
        return ((" ", "text"),) * rows
    ends = user, busy, 8 * rows - hang, 8 * rows
    cell = _account_cell if look == "colour" else _account_shape
    return tuple(cell(_in_cell(ends, row), heat, row, rows, look) for row in reversed(range(rows)))


@lru_cache(maxsize=_MADE)
def _account_cell(parts: tuple[int, ...], heat: int, row: int, rows: int, _: Look) -> Run:
    lower, upper, level = two_kinds(parts, "weak" if heat == QUIET else "firm")
    step = grade(row, rows)
    names = f"user-{step}", f"kernel-{step}", "", ("steal", "steal", "hot")[heat]
    below, above = names[lower], names[upper]
    if lower != upper:
        if (lower, upper, heat) == (_IDLE, _STEAL, QUIET) and level in _SHAPES:
            return _HANGING[level], above
        return theme.LEVELS[level], f"{below or 'ground'}/{above}" if above else below
    if lower == _STEAL and heat != QUIET and rows >= _SIGN_ROWS:
        return theme.STEAL, "alarm/hot-back" if heat == HOT else "over/over-back"
    return (" ", "text") if lower == _IDLE else (theme.LEVELS[8], below)


def _account_shape(parts: Sequence[int], heat: int, row: int, rows: int, look: Look) -> Run:
    """Returns a cell in the shape of its largest kind. Except in ASCII, the end of the busy part is
    drawn in eighths, and steal that takes less than half of the cell is a thin line at its top."""
    user, system, idle, lost = parts
    kind = _STEAL if lost and lost == max(parts) else parts.index(max(parts))
    sign = (theme.USER + theme.KERNEL + " " + theme.STEAL)[kind]
    if look != "ascii" and kind != _STEAL:
        if user + system and idle:
            sign = theme.LEVELS[user + system]
            kind = _KERNEL if system > user else _USER
        elif lost and idle + lost == 8:
            sign, kind = theme.EDGE, _STEAL
    step = grade(row, rows)
    stolen = "steal", "over", "alarm"
    return sign, (f"user-{step}", f"kernel-{step}", "text", stolen[heat])[kind]


def states(columns: Floats, rows: int, look: Look = "colour") -> list[Column]:
    """Returns the chart of a core's SMT states. `columns`: (columns, 4): the share of time in which
    both threads ran, the share of undetermined states, and the shares in which only the first or
    only the second thread ran. The first thread is drawn above the middle, the second below it, and
    both around it; dots are time in which neither ran. A share of 1 fills half of `rows`, which is
    even. Columns in which the share of both is unknown are blank."""
    both, open_, lp0, lp1 = np.fmax(columns, 0.0).T  # unknown shares become 0
    half = rows // 2
    near, far = _eighths(both, half), _eighths(both + open_, half)
    near = np.where(np.isfinite(columns[:, 0]), near, -1)
    above, below = (_eighths(both + open_ + own, half) for own in (lp0, lp1))
    ends = zip(*(it.tolist() for it in (near, far, above, below)), strict=True)
    return [_states(*column, half, look) for column in ends]


@lru_cache(maxsize=_MADE)
def _states(both: int, open_: int, lp0: int, lp1: int, half: int, look: Look) -> Column:
    """Returns one column of `states`. The arguments `both` to `lp1` are the outer ends of these
    kinds, in eighths from the middle; `both` is -1 if the column is unknown."""
    if both < 0:
        return ((" ", "text"),) * (2 * half)
    cell = _half_cell if look == "colour" else _half_shape
    above, below = (
        [cell(_in_cell((both, open_, own, 8 * half), row), grade(row, half), look, upwards=upwards)
         for row in range(half)]
        for own, upwards in ((lp0, True), (lp1, False))
    )  # fmt: skip
    return (*above[::-1], *below)


@lru_cache(maxsize=_MADE)
def _half_cell(parts: tuple[int, ...], step: int, _: Look, *, upwards: bool) -> Run:
    lower, upper, level = two_kinds(parts)
    names = f"both-{step}", "unknown", f"lp{0 if upwards else 1}-{step}", ""
    near, far = names[lower], names[upper]
    if lower == upper:
        return (theme.LEVELS[8], near) if near else (theme.NEITHER, "neither")
    if upwards:
        return theme.LEVELS[level], f"{near}/{far}" if far else near
    level = 8 - level  # blocks grow from the bottom, so the far kind is the foreground here
    if not far and level in _SHAPES:
        return _HANGING[level], near
    return theme.LEVELS[level], f"{far or 'ground'}/{near}"


def _half_shape(parts: Sequence[int], step: int, look: Look, *, upwards: bool) -> Run:
    """Returns a cell in the shape of its largest state. In 16 colours, a single thread has its own
    colour but the same shape as both threads."""
    kind = parts.index(max(parts))
    own, shape = ("lp0", theme.LP0) if upwards else ("lp1", theme.LP1)
    shape = theme.BOTH if look == "sixteen" else shape
    signs = theme.BOTH, theme.UNKNOWN, shape, theme.NEITHER
    return signs[kind], (f"both-{step}", "unknown", f"{own}-{step}", "neither")[kind]


# --- lines and areas of dots

AWAKE, ASLEEP, LOST = 0, 1, 2
"""State of a column: the CPU was busy, it was mostly asleep, or a running episode affects it."""


def _dots(look: Look) -> tuple[int, int]:
    """Returns the height and the width of a cell, in dots."""
    return (len(braille.PLAIN), 1) if look == "ascii" else (braille.TALL, braille.WIDE)


def _drawn(columns: Floats, look: Look) -> Floats:
    """Returns the columns that are drawn: all of them, or in ASCII only the newer column of each
    pair."""
    return columns[1::2] if look == "ascii" else columns


def _worst(how: Floats) -> list[int]:
    """Returns the worse state (AWAKE, ASLEEP or LOST) of the two columns of each cell."""
    found: list[int] = how.astype(int).reshape(-1, 2).max(axis=1).tolist()
    return found


def clock(
    columns: Floats, ends: tuple[float, float], rows: int, look: Look = "colour"
) -> list[Column]:
    """Returns the chart of a clock and its ceiling. `columns`: (columns, 3): the clock, the
    ceiling, and AWAKE, ASLEEP or LOST. `ends`: the lowest and highest clock of the scale. `rows`:
    at least two. The first row shows the ceiling where it is at the highest clock; a lower ceiling
    is drawn as dots in the rows below. Columns that are LOST have their own background."""
    tall, wide = _dots(look)
    dots, thick, (low, high) = tall * (rows - 1), 1 if look == "ascii" else 2, ends
    hz, ceiling, _ = _drawn(columns, look).T
    at = dot_rows(hz, low, high, dots - thick + 1)
    before = np.concatenate([[-1], at[:-1]])
    lead = np.where((before >= 0) & (at >= 0), before, at)
    near = high - (high - low) / (2 * dots)
    dotted = (np.arange(len(hz)) % 2 == 0) & (ceiling < near)
    limit = np.where(dotted, dot_rows(ceiling, low, high, dots), -1)
    first, last = np.minimum(at, lead), np.maximum(at, lead) + thick - 1
    marks = [*zip(*(it.tolist() for it in (first, last, limit, ceiling >= near)), strict=True)]
    return [
        _clock(*marks[cell * wide : (cell + 1) * wide], how=how, rows=rows, look=look)
        for cell, how in enumerate(_worst(columns[:, 2]))
    ]


@lru_cache(maxsize=_MADE)
def _clock(*marks: tuple[int, int, int, bool], how: int, rows: int, look: Look) -> Column:
    """Returns the cells of one column of a clock chart, from the top. `marks`, for each column of
    dots: the first and last dot of the line, the dot of the ceiling (-1: none), and whether the
    ceiling is at the top of the scale."""
    lost, (tall, _) = how == LOST, _dots(look)
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
    """Returns the dots of one cell, as bits with bit 0 at the top, for each column of dots.
    `first`: the cell's top dot; `tall`: its height in dots."""
    return [column >> first & (1 << tall) - 1 for column in columns]


def _plain(dots: int) -> str:
    """Returns the ASCII character for a column of dots; '' if there are none."""
    if dots & dots - 1:
        return "|"
    return braille.PLAIN[dots.bit_length() - 1] if dots else ""


def rate(columns: Floats, high: float, rows: int, look: Look = "colour") -> list[Column]:
    """Returns an area chart on a scale from 0 to `high`. `columns`: (columns, 2): the value, and
    AWAKE or LOST. Columns that are LOST are red."""
    tall, wide = _dots(look)
    values = np.nan_to_num(_drawn(columns, look)[:, 0], posinf=0.0)
    dots = np.floor(np.minimum(values / high, 1.0) * (tall * rows) + 0.5).astype(int)
    heights = np.where(values > 0, np.maximum(dots, 1), 0).tolist()
    return [
        _rate(*heights[cell * wide : (cell + 1) * wide], lost=how == LOST, rows=rows, look=look)
        for cell, how in enumerate(_worst(columns[:, 1]))
    ]


@lru_cache(maxsize=_MADE)
def _rate(*heights: int, lost: bool, rows: int, look: Look) -> Column:
    """Returns the cells of one column of a `rate` chart, from the top. `heights`: the height of
    each column of dots, in dots."""
    cells, (tall, _) = list[Run](), _dots(look)
    for row in reversed(range(rows)):
        parts = [min(max(height - tall * row, 0), tall) for height in heights]
        if look == "ascii":
            sign = braille.PLAIN_AREA[parts[0]]
        else:
            sign = braille.sign(*((1 << tall) - (1 << tall - part) for part in parts))
        key = f"{'loss' if lost else 'ipc'}-{grade(row, rows)}"
        cells.append((sign, key if sign != " " else "text"))
    return tuple(cells)


# --- charts as arrays of cells

KEYS = ("text", "dim", "clock", *(f"{area}-{i}" for area in AREAS for i in range(GRADES)))
"""Styles that cells of a `Chart` can have."""
_AT = {key: i for i, key in enumerate(KEYS)}


def key(name: str) -> int:
    """Returns the position of a style in KEYS, for callers that colour columns."""
    return _AT[name]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as arrays of cells, (lines from the top, columns)."""

    codes: Codes
    keys: Ints
    """Styles of the cells, as positions in KEYS."""

    def lines(self) -> list[list[Run]]:
        """Returns the chart as runs, line by line. Neighbouring cells of one style form one run."""
        return rows_of(self.columns())

    def columns(self) -> list[Column]:
        """Returns the cells of the chart, column by column."""
        cells = zip(self.codes.T.tolist(), self.keys.T.tolist(), strict=True)
        return [
            tuple((chr(code), KEYS[key]) for code, key in zip(*column, strict=True))
            for column in cells
        ]


def area(shares: Floats, lines: int, name: str, *, ascii_: bool = False) -> Chart:
    """Returns a chart of columns that grow from the bottom, for shares from 0 to 1. `name`: one of
    AREAS, whose colours change from line to line. A share of 0 is a thin line; an unknown share is
    blank."""
    ramp = codes_of(theme.LEVELS_PLAIN if ascii_ else theme.LEVELS)
    known = np.isfinite(shares)
    share = np.clip(np.where(known, shares, 0.0), 0.0, 1.0)
    eighths = np.maximum(1, np.ceil(share * 8 * lines - 1e-9)).astype(int) * known
    below = 8 * np.arange(lines - 1, -1, -1)[:, None]
    level = np.clip(eighths - below, 0, 8)
    colours = _AT[f"{name}-0"] + np.array([[grade(row, lines)] for row in reversed(range(lines))])
    return Chart(ramp[level], np.where(level > 0, colours, _AT["text"]))


def graph(
    values: Floats, limits: Floats, keys: Ints, low: float, high: float, lines: int,
    *, ascii_: bool = False,
) -> Chart:  # fmt: skip
    """Returns a chart of a stepped line and its dotted limit, with `low` at the bottom and `high`
    at the top; values beyond these ends are drawn at the edge. `keys`: the style of each column, as
    a position in KEYS."""
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


_RULE = "│"


def ruled(columns: Sequence[Column], rules: Mapping[int, str]) -> list[Column]:
    """Returns the chart with vertical rules added below its line. `rules`: the word at the foot of
    each rule, by column from the left. Each word is one line below the previous word; a word that
    would cover other cells is left out."""
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

RATES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)
"""Possible upper ends of a scale of instructions per cycle."""

ANY = tuple(step * 10.0**power for power in range(13) for step in (1, 2, 5))
"""Possible upper ends of a scale for numbers of any size."""


STEPS = (1.0, 2.0, 2.5, 5.0)
"""Readable distances between the marks of a scale, as multiples of a power of ten."""


def step(span: float, most: int) -> float:
    """Returns the smallest readable distance between marks that divides `span` into at most `most`
    parts."""
    least = span / max(1, most)
    power = 10.0 ** floor(log10(least))
    return next((s * power for s in STEPS if s * power >= least * (1 - 1e-9)), 10 * power)


def span(values: Floats, unit: float, held: tuple[float, float] | None) -> tuple[float, float]:
    """Returns the ends of a scale that covers all values, as multiples of `unit`. The previous ends
    (`held`) are kept while they cover all values and at most twice the range needed, because a
    scale that changes often is hard to read. A scale spans at least two units; the extra room is
    below the values, because clocks drop."""
    there = values[np.isfinite(values)]
    if not len(there):
        return held or (0.0, 2 * unit)
    high = unit * max(2, ceil(float(there.max()) / unit))
    low = min(unit * floor(float(there.min()) / unit), high - 2 * unit)
    if held and held[0] <= low and high <= held[1] and held[1] - held[0] <= 2 * (high - low):
        return held
    return low, high


def top(values: Floats, ends: Sequence[float], held: float | None) -> float:
    """Returns the upper end of a scale from 0: the first of `ends` that covers all values. The
    previous end (`held`) is kept if it is this end or the next larger one."""
    there = values[np.isfinite(values)]
    most = float(there.max()) if len(there) else 0.0
    at = next((i for i, end in enumerate(ends) if most <= end), len(ends) - 1)
    if held is not None and held in ends[at : at + 2]:
        return held
    return ends[at]


def marks(low: float, high: float, lines: int, most: int) -> dict[int, float]:
    """Returns the round values to print beside a scale of `lines` lines, by line. `most`: as in
    `step`."""
    apart = step(high - low, most)
    first = ceil(low / apart - 1e-9)
    found: dict[int, float] = {}
    for i in range(first, floor(high / apart + 1e-9) + 1):
        value = i * apart
        line = int(dot_rows(np.array([value]), low, high, 4 * lines)[0]) // 4
        found.setdefault(line, value)
    return found
