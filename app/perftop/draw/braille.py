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

TALL, WIDE = 4, 2
"""Height and width of a cell, in dots."""
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint32)
"""Bits of a braille character, by row and column of its dots."""
_FIRST = 0x2800
_LEFT, _RIGHT = (
    [sum(int(bit) for row, bit in enumerate(bits) if dots >> row & 1) for dots in range(1 << TALL)]
    for bits in _BITS.T
)
"""Bits of a braille character, indexed by the dots of its left or right column. In the index, bit 0
is the top dot."""
PLAIN = "'-_"
"""ASCII characters for a dot in the upper, middle and lower third of a cell, used without
braille."""
PLAIN_AREA = " .:#"
"""ASCII characters of an area, by their height in thirds of a cell, used without braille."""


def codes_of(text: str) -> Codes:
    return np.array([ord(c) for c in text], np.uint32)


def dot_rows(values: Floats, low: Floats | float, high: Floats | float, rows: int) -> Ints:
    """Returns the row of each value, 0 to `rows` - 1 from the top; -1 for unknown values."""
    known = np.isfinite(values)
    share = np.clip((high - np.where(known, values, low)) / (high - low), 0.0, 1.0)
    return np.where(known, np.floor(share * (rows - 1) + 0.5), -1).astype(np.int64)


def line(
    values: Floats, low: Floats | float, high: Floats | float, rows: int,
    *, joined: Bools | bool = True, thick: int = 1,
) -> Bools:  # fmt: skip
    """Returns the dots of a line, (rows, values), `thick` dots high. Where `joined` is true, the
    dots between a value and the previous one are filled in. Unknown values have no dots."""
    at = dot_rows(values, low, high, rows - thick + 1)
    before = np.concatenate([at[:1], at[:-1]])
    before = np.where((before >= 0) & joined, before, at)
    row = np.arange(rows)[:, None]
    first, last = np.minimum(at, before), np.maximum(at, before) + thick - 1
    drawn: Bools = (at >= 0) & (row >= first) & (row <= last)
    return drawn


def sign(left: int, right: int) -> str:
    """Returns the character for two columns of dots, each given as bits with bit 0 at the top; a
    blank if there are no dots."""
    bits = _LEFT[left] | _RIGHT[right]
    return chr(_FIRST + bits) if bits else " "


def codes(dots: Bools) -> Codes:
    """Returns the braille characters of these dots, (lines, cells); cells without dots are
    blank."""
    rows, columns = dots.shape
    cells = dots.reshape(rows // TALL, TALL, columns // WIDE, WIDE)
    bits = (cells * _BITS[None, :, None, :]).sum(axis=(1, 3), dtype=np.uint32)
    return np.where(bits > 0, bits + np.uint32(_FIRST), np.uint32(ord(" ")))


def plain_codes(dots: Bools) -> Codes:
    """Returns the ASCII characters of a line, (lines, cells). A cell is three dots high and one dot
    wide."""
    rows, columns = dots.shape
    cells = dots.reshape(rows // len(PLAIN), len(PLAIN), columns)
    count = cells.sum(axis=1)
    shape = np.where(count > 1, np.uint32(ord("|")), codes_of(PLAIN)[cells.argmax(axis=1)])
    return np.where(count > 0, shape, np.uint32(ord(" ")))
