"""Lines and areas of braille dots. A cell is four dots high and two dots wide, so it shows two
columns of values; without braille, a cell shows one column.

In arrays of dots, the first index counts dots from the top, the second counts dots from the left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints

Codes = np.ndarray[Any, np.dtype[np.uint32]]
"""Code points of characters, by line and cell."""

CELL_DOT_ROWS, CELL_DOT_COLUMNS = 4, 2
"""Height and width of a cell, in dots."""
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint32)
"""Bits of a braille character, by row and column of its dots."""
_FIRST_CODE = 0x2800
_LEFT_BITS, _RIGHT_BITS = (
    [
        sum(int(bit) for row, bit in enumerate(bits) if dots >> row & 1)
        for dots in range(1 << CELL_DOT_ROWS)
    ]
    for bits in _BITS.T
)
"""Bits of a braille character, indexed by the dots of its left or right column. In the index, bit 0
is the top dot."""
ASCII_DOTS = "'-_"
"""ASCII characters for a dot in the upper, middle and lower third of a cell, used without
braille."""
ASCII_AREA = " .:#"
"""ASCII characters of an area, by their height in thirds of a cell, used without braille."""


def codes_of(text: str) -> Codes:
    return np.array([ord(c) for c in text], np.uint32)


def dot_rows(values: Floats, low: Floats | float, high: Floats | float, rows: int) -> Ints:
    """Returns the row of each value, 0 to `rows` - 1 from the top; -1 for unknown values."""
    is_known = np.isfinite(values)
    share = np.clip((high - np.where(is_known, values, low)) / (high - low), 0.0, 1.0)
    return np.where(is_known, np.floor(share * (rows - 1) + 0.5), -1).astype(np.int64)


def line(
    values: Floats, low: Floats | float, high: Floats | float, rows: int,
    *, joined: Bools | bool = True, thickness: int = 1,
) -> Bools:  # fmt: skip
    """Returns the dots of a line, (rows, values), `thickness` dots high. Where `joined` is true, a
    value and the previous value are joined by dots. Unknown values have no dots."""
    top_rows = dot_rows(values, low, high, rows - thickness + 1)
    previous_rows = np.concatenate([top_rows[:1], top_rows[:-1]])
    previous_rows = np.where((previous_rows >= 0) & joined, previous_rows, top_rows)
    row = np.arange(rows)[:, None]
    first, last = (
        np.minimum(top_rows, previous_rows),
        np.maximum(top_rows, previous_rows) + thickness - 1,
    )
    dots: Bools = (top_rows >= 0) & (row >= first) & (row <= last)
    return dots


def sign(left: int, right: int) -> str:
    """Returns the character for two columns of dots, each given as bits with bit 0 at the top; a
    blank if there are no dots."""
    bits = _LEFT_BITS[left] | _RIGHT_BITS[right]
    return chr(_FIRST_CODE + bits) if bits else " "


def codes(dots: Bools) -> Codes:
    """Returns the braille characters of these dots, (lines, cells); cells without dots are
    blank."""
    rows, columns = dots.shape
    cells = dots.reshape(
        rows // CELL_DOT_ROWS, CELL_DOT_ROWS, columns // CELL_DOT_COLUMNS, CELL_DOT_COLUMNS
    )
    bits = (cells * _BITS[None, :, None, :]).sum(axis=(1, 3), dtype=np.uint32)
    return np.where(bits > 0, bits + np.uint32(_FIRST_CODE), np.uint32(ord(" ")))


def ascii_codes(dots: Bools) -> Codes:
    """Returns the ASCII characters of a line, (lines, cells). A cell is three dots high and one dot
    wide."""
    rows, columns = dots.shape
    cells = dots.reshape(rows // len(ASCII_DOTS), len(ASCII_DOTS), columns)
    count = cells.sum(axis=1)
    shape = np.where(count > 1, np.uint32(ord("|")), codes_of(ASCII_DOTS)[cells.argmax(axis=1)])
    return np.where(count > 0, shape, np.uint32(ord(" ")))
