"""Values as cells of one line: bars, braille dots, and levels of the heat ramp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import groupby

import numpy as np

from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import join_cells

# --- Bars as runs of text. All functions are pure; every bar has exactly the requested width.

_SMT_SHAPES = ((theme.BOTH, "bar-both"), (theme.LP0, "bar-lp0"), (theme.LP1, "bar-lp1"))
"""Shapes and styles of SMT states in a bar. The colours are a step darker than those in legends,
so that red stands out most."""
_ACCOUNT_SHAPES = ((theme.USER, "user-9"), (theme.KERNEL, "kernel-9"), (theme.STEAL, "over"))


def stacked_bar(shares: Sequence[float], shapes: Sequence[Run], width: int) -> list[Run]:
    """Returns a bar of these shares side by side; the remainder up to 1 is drawn as `neither`. The
    ends of the parts are rounded, not their lengths, so rounding errors do not add up."""
    ends: list[int] = []
    end = 0.0
    for share in shares:
        end += share
        ends.append(round(end * width))
    return [*_cached_bar(tuple(ends), tuple(shapes), width)]


@lru_cache(maxsize=4096)
def _cached_bar(ends: Sequence[int], shapes: Sequence[Run], width: int) -> Sequence[Run]:
    """Returns the bar whose parts end at these cells. Cached, as there are few different bars."""
    runs: list[Run] = []
    drawn_cells = 0
    for end, (shape, key) in zip(ends, shapes, strict=True):
        cells = min(width, end) - drawn_cells
        if cells > 0:
            runs.append((shape * cells, key))
            drawn_cells += cells
    if drawn_cells < width:
        runs.append((theme.NEITHER * (width - drawn_cells), "neither"))
    return runs


def smt(states: Sequence[float], width: int) -> list[Run]:
    """Returns the bar of a core's four states, given in the order neither, lp0, lp1, both."""
    _, lp0, lp1, both = states
    return stacked_bar((both, lp0, lp1), _SMT_SHAPES, width)


def single_thread(share: float, width: int, thread: int | None) -> list[Run]:
    """Returns the bar of a core on which only one thread is online: full cells if the core has no
    other thread (`thread` is None), else half cells."""
    shape = (theme.BOTH, "bar-lp0") if thread is None else _SMT_SHAPES[1 + min(thread, 1)]
    return stacked_bar((share,), (shape,), width)


def bounded_smt(lower_bounds: Sequence[float], width: int) -> list[Run]:
    """Returns the bar of states known only within bounds: the lower bound of each state, and the
    undetermined remainder as `unknown`."""
    neither, lp0, lp1, both = (0.0 if math.isnan(share) else share for share in lower_bounds)
    undetermined = 1 - neither - lp0 - lp1 - both
    return stacked_bar(
        (both, lp0, lp1, undetermined), (*_SMT_SHAPES, (theme.UNKNOWN, "unknown")), width
    )


def slots(retiring: float, frontend: float, speculation: float, width: int) -> list[Run]:
    """Returns the bar of issue slots: slots whose instruction retired, slots that the front end
    left empty, and slots discarded after wrong speculation. The remainder are slots that the back
    end blocked."""
    return stacked_bar((retiring, frontend, speculation), _ACCOUNT_SHAPES, width)


def account(user: float, kernel: float, steal: float, width: int) -> list[Run]:
    """Returns the bar of a CPU's user, kernel and steal shares, as accounted by the system."""
    return stacked_bar((user, kernel, steal), _ACCOUNT_SHAPES, width)


# --- Lines of braille dots. A cell is four dots high and two dots wide, so it shows two columns of
# values; in ASCII, a cell is three dots high and shows one column.
#
# In arrays of dots, the first index counts dots from the top, the second counts dots from the left.

CELL_DOT_ROWS, CELL_DOT_COLUMNS = 4, 2
"""Height and width of a cell, in dots."""
_LEFT_BITS, _RIGHT_BITS = (
    [sum(bit for row, bit in enumerate(bits) if dots >> row & 1) for dots in range(16)]
    for bits in ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
)
"""Bits of a braille character, indexed by the dots of its left or right column. In the index, bit 0
is the top dot."""
ASCII_DOTS = "'-_"
"""ASCII characters for a dot in the upper, middle and lower third of a cell."""


def dot_rows(values: Floats, low: float, high: float, rows: int) -> Ints:
    """Returns the row of each value, 0 to `rows` - 1 from the top; -1 for unknown values."""
    is_known = np.isfinite(values)
    share = np.clip((high - np.where(is_known, values, low)) / (high - low), 0.0, 1.0)
    return np.where(is_known, np.floor(share * (rows - 1) + 0.5), -1).astype(np.int64)


def line(values: Floats, low: float, high: float, rows: int, *, joined: bool = True) -> Bools:
    """Returns the dots of a line, (rows, values). If `joined`, dots join a value and the previous
    value. Unknown values have no dots."""
    value_rows = dot_rows(values, low, high, rows)
    previous_rows = np.concatenate([value_rows[:1], value_rows[:-1]])
    previous_rows = np.where((previous_rows >= 0) & joined, previous_rows, value_rows)
    row = np.arange(rows)[:, None]
    first, last = np.minimum(value_rows, previous_rows), np.maximum(value_rows, previous_rows)
    dots: Bools = (value_rows >= 0) & (row >= first) & (row <= last)
    return dots


def braille_sign(left: int, right: int) -> str:
    """Returns the braille character for two columns of dots, each given as bits with bit 0 at the
    top; a blank if there are no dots."""
    bits = _LEFT_BITS[left] | _RIGHT_BITS[right]
    return chr(0x2800 + bits) if bits else " "


def dot_signs(dots: Bools, *, ascii_: bool) -> list[list[str]]:
    """Returns the characters of these dots, by line and cell; cells without dots are blank."""
    rows, columns = (len(ASCII_DOTS), 1) if ascii_ else (CELL_DOT_ROWS, CELL_DOT_COLUMNS)
    cells = dots.reshape(len(dots) // rows, rows, -1, columns)
    bits = (cells << np.arange(rows)[:, None, None]).sum(axis=1).tolist()
    if ascii_:
        signs = {0: " "} | {1 << row: sign for row, sign in enumerate(ASCII_DOTS)}
        return [[signs.get(column, "|") for (column,) in line] for line in bits]
    return [[braille_sign(*columns) for columns in line] for line in bits]


# --- Values drawn as cells of a line: levels of the heat ramp, as colours or as characters of
# increasing density, and histories beside numbers.

UNKNOWN, OFF = -1, -2
"""Levels of an unknown value and of an offline CPU."""
DENSITY = "_:;=+co*#&%@"
"""The heat ramp in ASCII, from sparse to dense. None of its characters is used for anything else on
the screen."""
MIN_LETTER_STEP = 3
"""Minimum step of the ramp whose colour is used for ASCII characters; the colours of lower steps
are too close to the background."""
_SIGN: dict[int, Run] = {UNKNOWN: ("–", "faint"), OFF: (theme.NEITHER, "neither")}


@lru_cache(maxsize=256)
def full_cell(level: int, width: int, ascii_: bool) -> tuple[Run, ...]:
    """Returns the cell of a level of the heat ramp."""
    if level < 0:
        sign, key = _SIGN[level]
        return ((f"{sign:^{width}}", key),)
    if ascii_:
        return ((DENSITY[level] * width, f"heat{max(MIN_LETTER_STEP, level)}"),)
    return ((theme.BOTH * width, f"heat{level}"),)


@lru_cache(maxsize=1024)
def half_cells(upper: int, lower: int, width: int, ascii_: bool) -> tuple[Run, ...]:
    """Returns the cells of two levels in one line: one above the other, or in ASCII side by
    side."""
    if ascii_:
        return (*full_cell(upper, width // 2, ascii_), *full_cell(lower, width // 2, ascii_))
    if upper == lower or max(upper, lower) < 0:
        return full_cell(max(upper, lower), width, ascii_)
    if min(upper, lower) >= 0:
        return ((theme.LP0 * width, f"heat{upper}/heat{lower}"),)
    shape = theme.LP0 if upper >= 0 else theme.LP1
    both_known: Run = (shape * max(1, width - 1), f"heat{max(upper, lower)}")
    return (both_known, _SIGN[min(upper, lower)]) if width > 1 else (both_known,)


def ramp(*, ascii_: bool) -> list[Run]:
    """Returns a cell of each level of the heat ramp, the lowest first."""
    return [full_cell(level, 1, ascii_)[0] for level in range(theme.HEAT)]


# --- histories beside numbers: one cell for each interval, the newest at the right

MIN_DRAWN_SHARE = 0.02
"""Smallest share that is drawn in a history."""
_NONE_LOST = 0
_LOST_FLAG = 16
"""Flag added to the height of a cell if an episode ran during its time."""


def steps(shares: Floats) -> Codes:
    """Returns shares (0 to 1) as steps from 1 to theme.HEAT; 0 where nothing is drawn."""
    known_shares = np.fmax(shares, 0.0)
    heat_steps = np.minimum(np.ceil(known_shares * theme.HEAT), theme.HEAT)
    return np.where(known_shares < MIN_DRAWN_SHARE, _NONE_LOST, heat_steps).astype(np.uint8)


def pair_codes(upper: Codes, lower: Codes) -> Codes:
    """Returns cells that each hold the steps of two threads."""
    return upper << np.uint8(4) | lower


@cache
def half_run(cell: int) -> Run:
    """Returns the run for one of the cells from `pair_codes`, with the first thread above the
    second."""
    upper, lower = cell >> 4, cell & 15
    if not cell:
        return " ", "text"
    if upper == lower:
        return theme.BOTH, f"heat{upper - 1}"
    if upper and lower:
        return theme.LP0, f"heat{upper - 1}/heat{lower - 1}"
    return theme.LP0 if upper else theme.LP1, f"heat{max(upper, lower) - 1}"


@cache
def level(step: int, *, ascii_: bool) -> Run:
    """Returns the run for one of the steps from `steps`; height and luminance both show the
    share."""
    if not step:
        return " ", "text"
    levels = theme.ASCII_LEVELS if ascii_ else theme.LEVELS
    return levels[round(8 * step / theme.HEAT)], f"heat{step - 1}"


@lru_cache(maxsize=4096)
def history(cells: bytes, *, pair: bool, ascii_: bool) -> tuple[Run, ...]:
    """Returns the runs for a line of cells, which are from `pair_codes` if `pair`, else from
    `steps`."""
    return tuple(
        join_cells([half_run(cell) if pair else level(cell, ascii_=ascii_) for cell in cells])
    )


def heights(values: Floats, top: float) -> Codes:
    """Returns values as heights in eighths of a line, at least 1; 0 for unknown values. `top`: the
    value that fills the line."""
    with np.errstate(invalid="ignore", divide="ignore"):
        eighths = np.minimum(np.maximum(np.ceil(8 * values / top), 1), 8)
    return np.where(np.isfinite(eighths), eighths, _NONE_LOST).astype(np.uint8)


def lost_cells(cells: Codes, first: int) -> Codes:
    """Marks the cells from `first` on as lost, in place, and returns the cells."""
    cells[first:] += np.uint8(_LOST_FLAG) * (cells[first:] > 0)
    return cells


@lru_cache(maxsize=4096)
def columns(cells: bytes, key: str, *, ascii_: bool) -> tuple[Run, ...]:
    """Returns the runs for a line of cells from `heights`, in the style `key`; cells during which
    an episode ran are red."""
    levels = theme.ASCII_LEVELS if ascii_ else theme.LEVELS
    return tuple(
        [
            ("".join([levels[cell & 15] for cell in column_cells]), "alarm" if is_lost else key)
            for is_lost, column_cells in groupby(cells, key=_LOST_FLAG.__le__)
        ]
    )
