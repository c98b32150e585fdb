"""Charts: pure functions from values to cells. A chart has the height asked for and one column for
each value.

Colour only repeats what height, shape or the kind of line shows. A column without a known value is
blank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor, isfinite, isnan, log10
from typing import Literal

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats, Ints
from perftop.draw import braille, theme
from perftop.draw.braille import Codes, codes_of, dot_rows
from perftop.draw.moving import Column, blank
from perftop.draw.strips import Run
from perftop.draw.theme import AREAS, GRADES

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


def row_grades(rows: int) -> Ints:
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
    colours = _AT[f"{name}-0"] + row_grades(lines)[::-1, None]
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
        line = int(dot_rows(np.array([value]), low, high, 4 * lines)[0]) // 4
        found.setdefault(line, value)
    return found


# --- stacked areas

Look = Literal["colour", "sixteen", "shapes", "ascii"]
"""What cells are made of: two colours; shapes in colours of the terminal, whose background is not
known; shapes that need no colour; those that ASCII has."""


def look(theme_name: str, *, no_color: bool, ascii_: bool) -> Look:
    if ascii_ or no_color:
        return "ascii" if ascii_ else "shapes"
    return "sixteen" if theme.PALETTES[theme_name].ansi else "colour"


LEAST_STEAL = 0.004
"""Share from which steal is seen, however low the chart is."""
QUIET, OVER, HOT = 0, 1, 2
"""Steal of a column: outside of episodes, during one that is over, during one that runs."""
SIGNED = 8
"""Minimum rows of a chart whose full hot cells carry the sign of steal."""
_HANGING = " ▁▂▃▀▅▆▔█"
"""Cells of which the ground is the lower part, by its height."""
_SHAPES = frozenset({4, 7})
"""Those of these heights that are drawn in the colour of the upper part, which leaves no seams
where a terminal does not fill its cells."""
_USER, _KERNEL, _IDLE, _STEAL = range(4)
_BOTH, _OPEN, _OWN, _REST = range(4)
_MADE = 4096
"""Columns of each chart, and cells of columns, that are kept."""


# --- two kinds a cell

Last = Literal["equal", "weak", "firm"]
"""What becomes of the last kind in a cell of three: it goes if it is the smallest, it goes before
the second kind, or it stays."""


def two_kinds(parts: Sequence[int], last: Last = "equal") -> tuple[int, int, int]:
    """The two kinds that are drawn in a cell, lower and upper, and the height of the lower one.
    `parts`: eighths by kind, from the base of the cell. The smallest of three goes."""
    sizes: dict[int, float] = {kind: size for kind, size in enumerate(parts) if size}
    if _STEAL in sizes and last == "firm":
        sizes[_STEAL] = 9
    elif {_STEAL, _KERNEL} <= sizes.keys() and last == "weak":
        sizes[_STEAL] = min(sizes[_STEAL], sizes[_KERNEL] - 0.5)
    largest = sorted(sizes, key=lambda kind: (-sizes[kind], kind))[:2]
    lower, upper = min(largest), max(largest)
    return lower, upper, sum(parts[:upper]) if lower != upper else 8


def _in_cell(ends: Sequence[int], row: int) -> tuple[int, ...]:
    """Eighths of each kind in the cell of a row, counted from the base. `ends`: the upper ends of
    the kinds in eighths, from the base."""
    tops = [min(max(end - 8 * row, 0), 8) for end in ends]
    return tuple([upper - lower for lower, upper in pairwise((0, *tops))])


def _rounded(share: float, height: int) -> int:
    return 0 if share <= 0 else height if share >= 1 else int(share * height + 0.5)


def grade(row: int, rows: int) -> int:
    """The step of colour of a row, counted from the base."""
    return int((row + 0.5) * GRADES / rows)


# --- where a CPU's time goes


def account(values: Sequence[float], rows: int, look: Look = "colour") -> Column:
    """The shares of user, kernel and steal, and the heat of steal: QUIET, OVER or HOT. User and
    kernel grow from the floor, steal hangs from the ceiling; idle time is between them. Steal and
    kernel may be NaN where unknown; a column without the user's share is blank."""
    user, kernel, steal, heat = values
    if not isfinite(user):
        return blank(rows)
    kernel, steal = 0.0 if isnan(kernel) else kernel, 0.0 if isnan(steal) else steal
    height = 8 * rows
    hang = max(int(steal >= LEAST_STEAL), _rounded(steal, height))
    busy = min(_rounded(user + kernel, height), height - hang)
    return _account(min(_rounded(user, height), busy), busy, hang, int(heat), rows, look)


@lru_cache(maxsize=_MADE)
def _account(user: int, busy: int, hang: int, heat: int, rows: int, look: Look) -> Column:
    """The upper ends of what users and both do, and the height of steal, in eighths."""
    ends = user, busy, 8 * rows - hang, 8 * rows
    cell = _account_cell if look == "colour" else _account_shape
    return tuple(cell(_in_cell(ends, row), heat, row, rows, look) for row in reversed(range(rows)))


@lru_cache(maxsize=_MADE)
def _account_cell(
    parts: tuple[int, ...], heat: int, row: int, rows: int, _: Look
) -> tuple[str, str]:
    lower, upper, level = two_kinds(parts, "weak" if heat == QUIET else "firm")
    step = grade(row, rows)
    names = f"user-{step}", f"kernel-{step}", "", ("steal", "steal", "hot")[heat]
    below, above = names[lower], names[upper]
    if lower != upper:
        if (lower, upper, heat) == (_IDLE, _STEAL, QUIET) and level in _SHAPES:
            return _HANGING[level], above
        return theme.LEVELS[level], f"{below or 'ground'}/{above}" if above else below
    if lower == _STEAL and heat != QUIET and rows >= SIGNED:
        return theme.STEAL, "alarm/hot-back" if heat == HOT else "over/over-back"
    return (" ", "text") if lower == _IDLE else (theme.LEVELS[8], below)


def _account_shape(
    parts: Sequence[int], heat: int, row: int, rows: int, look: Look
) -> tuple[str, str]:
    """A whole cell of a shape for each kind. Outside of ASCII, eighths show where the busy part
    ends, and a thin line at the ceiling the steal that takes less than half a cell."""
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


# --- the four states of a core


def states(values: Sequence[float], rows: int, look: Look = "colour") -> Column:
    """The shares of both, of what may be both or one of them, of the first and of the second
    thread: a core's cell made tall. The first thread is above the middle, the second below it,
    round the middle both; dots are rest. Shares of 1 fill half of the even number of `rows`.
    Columns in which both is unknown are blank."""
    both, open_, lp0, lp1 = values
    if not isfinite(both):
        return blank(rows)
    height, shared = 4 * rows, max(0.0, both)
    near = _rounded(shared, height)
    shared += max(0.0, open_)  # unknown, too
    far, half = _rounded(shared, height), rows // 2
    above, below = (
        _half(near, far, _rounded(shared + max(0.0, own), height), half, look, upwards=upwards)
        for own, upwards in ((lp0, True), (lp1, False))
    )
    return (*above[::-1], *below)


@lru_cache(maxsize=_MADE)
def _half(both: int, open_: int, own: int, rows: int, look: Look, *, upwards: bool) -> Column:
    """Half of a core, from the middle. The upper ends of the kinds in eighths, from there."""
    ends = both, open_, own, 8 * rows
    cell = _half_cell if look == "colour" else _half_shape
    return tuple(
        cell(_in_cell(ends, row), grade(row, rows), look, upwards=upwards) for row in range(rows)
    )


@lru_cache(maxsize=_MADE)
def _half_cell(parts: tuple[int, ...], step: int, _: Look, *, upwards: bool) -> tuple[str, str]:
    lower, upper, level = two_kinds(parts)
    names = f"both-{step}", "unknown", f"lp{0 if upwards else 1}-{step}", ""
    near, far = names[lower], names[upper]
    if lower == upper:
        return (theme.LEVELS[8], near) if near else (theme.NEITHER, "neither")
    if upwards:
        return theme.LEVELS[level], f"{near}/{far}" if far else near
    level = 8 - level  # blocks grow from the floor of a cell, so the far kind is drawn on the near
    if not far and level in _SHAPES:
        return _HANGING[level], near
    return theme.LEVELS[level], f"{far or 'ground'}/{near}"


def _half_shape(parts: Sequence[int], step: int, look: Look, *, upwards: bool) -> tuple[str, str]:
    """A whole cell, in the shapes of the four states; in 16 colours these tell one thread from
    both."""
    kind = parts.index(max(parts))
    own, shape = ("lp0", theme.LP0) if upwards else ("lp1", theme.LP1)
    shape = theme.BOTH if look == "sixteen" else shape
    signs = theme.BOTH, theme.UNKNOWN, shape, theme.NEITHER
    return signs[kind], (f"both-{step}", "unknown", f"{own}-{step}", "neither")[kind]


# --- lines and areas of dots: a clock under its ceiling, and a rate

AWAKE, ASLEEP, LOST = 0, 1, 2
"""A column of a line: at work, mostly asleep, during an episode that runs."""
_TALL: Mapping[Look, int] = {
    "colour": braille.TALL, "sixteen": braille.TALL, "shapes": braille.TALL,
    "ascii": len(braille.PLAIN),
}  # fmt: skip
"""Dots in a cell by its height."""
_MADE_curves = 4096
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


@lru_cache(maxsize=_MADE_curves)
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


@lru_cache(maxsize=_MADE_curves)
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
