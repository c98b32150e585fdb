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
PLAIN = "'-_"
"""Dots in the upper, middle and lower third of a line, where there is no braille."""
_PLAIN_AREA = " .:#"
"""Cells of an area by their height in thirds, where there is no braille."""


def codes_of(text: str) -> Codes:
    return np.array([ord(c) for c in text], np.uint32)


def rows_of(values: Floats, low: Floats | float, high: Floats | float, rows: int) -> Ints:
    """The row of each value out of `rows`, counted from the top."""
    share = np.clip((high - values) / (high - low), 0.0, 1.0)
    return np.floor(share * (rows - 1) + 0.5).astype(np.int64)


def line(
    values: Floats, low: Floats | float, high: Floats | float, rows: int,
    *, joined: Bools | bool = True, thick: int = 1,
) -> Bools:  # fmt: skip
    """(rows, values): the dots of a line, `thick` dots high; where `joined`, those between two
    steps are filled in. Unknown values have no dots."""
    known = np.isfinite(values)
    high_dots = rows - thick + 1
    at = np.where(known, rows_of(np.where(known, values, low), low, high, high_dots), -1)
    before = np.concatenate([at[:1], at[:-1]])
    before = np.where((before >= 0) & joined, before, at)
    row = np.arange(rows)[:, None]
    first, last = np.minimum(at, before), np.maximum(at, before) + thick - 1
    drawn: Bools = known & (row >= first) & (row <= last)
    return drawn


def area(values: Floats, high: Floats | float, rows: int) -> Bools:
    """(rows, values): dots from the bottom up to each value. Of a known value above 0 at least one
    dot is seen."""
    known = np.isfinite(values)
    share = np.clip(np.where(known, values, 0.0) / high, 0.0, 1.0)
    dots = np.where(share > 0, np.maximum(1, np.floor(share * rows + 0.5)), 0)
    return np.arange(rows, 0, -1)[:, None] <= dots


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


def plain_area(dots: Bools) -> Codes:
    """(lines, cells): an area in ASCII, of dots as `plain_codes` takes them."""
    rows, columns = dots.shape
    height = dots.reshape(rows // len(PLAIN), len(PLAIN), columns).sum(axis=1)
    found: Codes = codes_of(_PLAIN_AREA)[height]
    return found
