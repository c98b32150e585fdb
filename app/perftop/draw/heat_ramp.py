"""Values drawn as cells of a line: levels of the heat ramp, as colours or as characters of
increasing density, and histories beside numbers.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import groupby

import numpy as np

from perftop.base.arrays import Codes, Floats
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import join_cells

UNKNOWN, OFF = -1, -2
"""Special levels: of an unknown value, and of an offline CPU."""
DENSITY = "_:;=+co*#&%@"
"""The heat ramp in ASCII, from sparse to dense. None of its characters is used for anything else on
the screen."""
FAINT = 3
"""Minimum step of the ramp whose colour is used for characters; the colours of lower steps are too
close to the background."""
_SIGN: dict[int, Run] = {UNKNOWN: ("–", "faint"), OFF: (theme.NEITHER, "neither")}


@lru_cache(maxsize=256)
def full_cell(level: int, width: int, ascii_: bool) -> tuple[Run, ...]:
    if level < 0:
        sign, key = _SIGN[level]
        return ((f"{sign:^{width}}", key),)
    if ascii_:
        return ((DENSITY[level] * width, f"heat{max(FAINT, level)}"),)
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
    return [full_cell(level, 1, ascii_)[0] for level in range(theme.HEAT)]


# --- histories beside numbers: one cell for each interval, the newest at the right

QUIET_SHARE = 0.02
"""Shares below this are not drawn."""
_NONE_LOST = 0
_LOST = 16
"""Flag added to the height of a cell during which an episode ran."""


def steps(shares: Floats) -> Codes:
    """Returns shares (0 to 1) as steps from 1 to theme.HEAT; 0 where nothing is drawn."""
    known_shares = np.fmax(shares, 0.0)
    heat_steps = np.minimum(np.ceil(known_shares * theme.HEAT), theme.HEAT)
    return np.where(known_shares < QUIET_SHARE, _NONE_LOST, heat_steps).astype(np.uint8)


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
        return theme.BOTH, f"field{upper - 1}"
    if upper and lower:
        return theme.LP0, f"field{upper - 1}/field{lower - 1}"
    return theme.LP0 if upper else theme.LP1, f"field{max(upper, lower) - 1}"


@cache
def level(step: int, *, ascii_: bool) -> Run:
    """Returns the run for one of the steps from `steps`; height and luminance both show the
    share."""
    if not step:
        return " ", "text"
    levels = theme.LEVELS_PLAIN if ascii_ else theme.LEVELS
    return levels[max(1, round(8 * step / theme.HEAT))], f"field{step - 1}"


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
    cells[first:] += np.uint8(_LOST) * (cells[first:] > 0)
    return cells


@lru_cache(maxsize=4096)
def columns(cells: bytes, key: str, *, ascii_: bool) -> tuple[Run, ...]:
    """Returns the runs for a line of cells from `heights`, in the style `key`; cells during which
    an episode ran are red."""
    levels = theme.LEVELS_PLAIN if ascii_ else theme.LEVELS
    return tuple(
        [
            ("".join([levels[cell & 15] for cell in column_cells]), "alarm" if is_lost else key)
            for is_lost, column_cells in groupby(cells, key=_LOST.__le__)
        ]
    )
