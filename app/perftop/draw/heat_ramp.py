"""Values as cells of a line: levels of the heat ramp, as colours or as characters of growing
density, and histories beside numbers.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import groupby

import numpy as np

from perftop.base.arrays import Codes, Floats
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import joined

UNKNOWN, OFF = -1, -2
"""Values used in place of a level."""
DENSITY = "_:;=+co*#&%@"
"""The ramp in ASCII, from sparse to dense; no character has another meaning on the screen."""
FAINT = 3
"""Steps below this are too close to the background in colour for letters."""
_SIGN: dict[int, Run] = {UNKNOWN: ("–", "faint"), OFF: (theme.NEITHER, "neither")}


@lru_cache(maxsize=256)
def whole(level: int, wide: int, ascii_: bool) -> tuple[Run, ...]:
    if level < 0:
        sign, key = _SIGN[level]
        return ((f"{sign:^{wide}}", key),)
    if ascii_:
        return ((DENSITY[level] * wide, f"heat{max(FAINT, level)}"),)
    return ((theme.BOTH * wide, f"heat{level}"),)


@lru_cache(maxsize=1024)
def halves(upper: int, lower: int, wide: int, ascii_: bool) -> tuple[Run, ...]:
    """Two values in one line: one above the other, or in ASCII side by side."""
    if ascii_:
        return (*whole(upper, wide // 2, ascii_), *whole(lower, wide // 2, ascii_))
    if upper == lower or max(upper, lower) < 0:
        return whole(max(upper, lower), wide, ascii_)
    if min(upper, lower) >= 0:
        return ((theme.LP0 * wide, f"heat{upper}/heat{lower}"),)
    shape = theme.LP0 if upper >= 0 else theme.LP1
    known: Run = (shape * max(1, wide - 1), f"heat{max(upper, lower)}")
    return (known, _SIGN[min(upper, lower)]) if wide > 1 else (known,)


def ramp(*, ascii_: bool) -> list[Run]:
    return [whole(level, 1, ascii_)[0] for level in range(theme.HEAT)]


# --- histories beside numbers: a cell for each span of time, the newest at the right

QUIET = 0.02
"""Shares below this draw nothing."""
_NONE = 0
_LOST = 16
"""Added to the height of a cell in which an episode ran."""


def steps(shares: Floats) -> Codes:
    """Shares (0 to 1) as steps of the field: 1 to theme.HEAT, 0 for what draws nothing."""
    known = np.fmax(shares, 0.0)
    found = np.minimum(np.ceil(known * theme.HEAT), theme.HEAT)
    return np.where(known < QUIET, _NONE, found).astype(np.uint8)


def paired(upper: Codes, lower: Codes) -> Codes:
    """Steps of two threads in one cell."""
    return upper << np.uint8(4) | lower


@cache
def half(cell: int) -> Run:
    """One of `paired` cells: the first thread above the second."""
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
    """One of `steps`: height and luminance both show the share."""
    if not step:
        return " ", "text"
    levels = theme.LEVELS_PLAIN if ascii_ else theme.LEVELS
    return levels[max(1, round(8 * step / theme.HEAT))], f"field{step - 1}"


@lru_cache(maxsize=4096)
def history(cells: bytes, *, pair: bool, ascii_: bool) -> tuple[Run, ...]:
    """A line of `paired` cells, or of `steps`."""
    return tuple(joined([half(cell) if pair else level(cell, ascii_=ascii_) for cell in cells]))


def heights(values: Floats, top: float) -> Codes:
    """Values as heights in eighths of a line, at least 1; 0 where unknown."""
    with np.errstate(invalid="ignore", divide="ignore"):
        eighths = np.minimum(np.maximum(np.ceil(8 * values / top), 1), 8)
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
