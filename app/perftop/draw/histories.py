"""Histories beside numbers: a cell a span of time, the newest at the right edge.

Pure; callers make the cells of all rows at once as arrays, and a line is kept for as long as its
cells are the same.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

import numpy as np

from perftop.base.arrays import Codes, Floats
from perftop.draw import theme
from perftop.draw.strips import Run

QUIET = 0.02
"""Shares below this draw nothing."""
_NONE = 0
_LOST = 16
"""Added to the height of a cell in which an episode ran."""


def steps(shares: Floats) -> Codes:
    """Shares (0 to 1) as steps of the field: 1 to theme.HEAT, 0 for what draws nothing."""
    known = np.nan_to_num(shares)
    found = np.clip(np.ceil(known * theme.HEAT), 0, theme.HEAT)
    return np.where(known < QUIET, _NONE, found).astype(np.uint8)


def paired(upper: Codes, lower: Codes) -> Codes:
    """Steps of two threads in one cell."""
    return upper << np.uint8(4) | lower


@lru_cache(maxsize=4096)
def halves(cells: bytes) -> tuple[Run, ...]:
    """A line of `paired` cells: the first thread above the second."""
    return tuple([_half(cell, len([*same])) for cell, same in groupby(cells)])


def _half(cell: int, wide: int) -> Run:
    upper, lower = cell >> 4, cell & 15
    if not cell:
        return " " * wide, "text"
    if upper == lower:
        return theme.BOTH * wide, f"field{upper - 1}"
    if upper and lower:
        return theme.LP0 * wide, f"field{upper - 1}/field{lower - 1}"
    return (theme.LP0 if upper else theme.LP1) * wide, f"field{max(upper, lower) - 1}"


def heights(values: Floats, top: float) -> Codes:
    """Values as heights in eighths of a line, at least 1; 0 where unknown."""
    with np.errstate(invalid="ignore", divide="ignore"):
        eighths = np.clip(np.ceil(8 * values / top), 1, 8)
    return np.where(np.isfinite(eighths), eighths, _NONE).astype(np.uint8)


def lost(cells: Codes, first: int) -> Codes:
    """The cells, with those from `first` on marked as lost."""
    cells[first:] += np.uint8(_LOST) * (cells[first:] > 0)
    return cells


@lru_cache(maxsize=4096)
def columns(cells: bytes, key: str, *, ascii_: bool) -> tuple[Run, ...]:
    """A line of `heights`, in the style `key`; red where an episode ran."""
    levels = theme.LEVELS_PLAIN if ascii_ else theme.LEVELS
    return tuple(
        [
            ("".join([levels[cell & 15] for cell in same]), "alarm" if red else key)
            for red, same in groupby(cells, key=_LOST.__le__)
        ]
    )


@lru_cache(maxsize=4096)
def field(cells: bytes, *, ascii_: bool) -> tuple[Run, ...]:
    """A line of `steps`: height and luminance both show the share."""
    levels = theme.LEVELS_PLAIN if ascii_ else theme.LEVELS
    return tuple([_level(cell, len([*same]), levels) for cell, same in groupby(cells)])


def _level(cell: int, wide: int, levels: str) -> Run:
    if not cell:
        return " " * wide, "text"
    return levels[max(1, round(8 * cell / theme.HEAT))] * wide, f"field{cell - 1}"
