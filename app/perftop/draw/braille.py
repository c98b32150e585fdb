"""Lines and areas of braille dots. A cell holds four dots in height and two in width, so it shows
two columns of values; where there is no braille, one.

Arrays of dots have a row a dot from the top and a column a dot from the left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints

Codes = np.ndarray[Any, np.dtype[np.uint32]]
"""Code points of characters, by line and cell."""

TALL, WIDE = 4, 2
"""Dots in a cell."""
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint32)
"""Bits of a braille character, by row and column of its dots."""
_FIRST = 0x2800
_LEFT, _RIGHT = (
    [sum(int(bit) for row, bit in enumerate(bits) if dots >> row & 1) for dots in range(1 << TALL)]
    for bits in _BITS.T
)
"""Bits of a braille character, by the dots of a column, as bits from the top."""
PLAIN = "'-_"
"""Dots in the upper, middle and lower third of a line, where there is no braille."""
PLAIN_AREA = " .:#"
"""Cells of an area by their height in thirds, where there is no braille."""


def codes_of(text: str) -> Codes:
    return np.array([ord(c) for c in text], np.uint32)


def dot_rows(values: Floats, low: Floats | float, high: Floats | float, rows: int) -> Ints:
    """The row of each value out of `rows`, counted from the top; -1 where it is unknown."""
    known = np.isfinite(values)
    share = np.clip((high - np.where(known, values, low)) / (high - low), 0.0, 1.0)
    return np.where(known, np.floor(share * (rows - 1) + 0.5), -1).astype(np.int64)


def line(
    values: Floats, low: Floats | float, high: Floats | float, rows: int,
    *, joined: Bools | bool = True, thick: int = 1,
) -> Bools:  # fmt: skip
    """(rows, values): the dots of a line, `thick` dots high; where `joined`, those between two
    steps are filled in. Unknown values have no dots."""
    at = dot_rows(values, low, high, rows - thick + 1)
    before = np.concatenate([at[:1], at[:-1]])
    before = np.where((before >= 0) & joined, before, at)
    row = np.arange(rows)[:, None]
    first, last = np.minimum(at, before), np.maximum(at, before) + thick - 1
    drawn: Bools = (at >= 0) & (row >= first) & (row <= last)
    return drawn


def sign(left: int, right: int) -> str:
    """The character of two columns of dots, as bits from the top; blank without dots."""
    bits = _LEFT[left] | _RIGHT[right]
    return chr(_FIRST + bits) if bits else " "


def codes(dots: Bools) -> Codes:
    """(lines, cells): the characters of these dots; a cell without dots is blank."""
    rows, columns = dots.shape
    cells = dots.reshape(rows // TALL, TALL, columns // WIDE, WIDE)
    bits = (cells * _BITS[None, :, None, :]).sum(axis=(1, 3), dtype=np.uint32)
    return np.where(bits > 0, bits + np.uint32(_FIRST), np.uint32(ord(" ")))


def plain_codes(dots: Bools) -> Codes:
    """(lines, cells): a line in ASCII, of dots of which three make a cell in height and one in
    width."""
    rows, columns = dots.shape
    cells = dots.reshape(rows // len(PLAIN), len(PLAIN), columns)
    count = cells.sum(axis=1)
    shape = np.where(count > 1, np.uint32(ord("|")), codes_of(PLAIN)[cells.argmax(axis=1)])
    return np.where(count > 0, shape, np.uint32(ord(" ")))
