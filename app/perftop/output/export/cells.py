"""Numbers and texts as cells: arrays of byte strings of equal length, with NUL bytes between and
around their characters, which are dropped on output. Digits are looked up in tables that have the
text of every number of four digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from perftop.base.arrays import Floats

Cells = np.ndarray[Any, np.dtype[np.bytes_]]
"""The length of a cell is a multiple of WORD_BYTES."""
WORD_BYTES = 8

# --- Integers: groups of four digits.

_NUMBERS, _PLACE_VALUES = np.arange(10_000)[:, None], np.array([1000, 100, 10, 1])
_ALL_DIGITS = (_NUMBERS // _PLACE_VALUES % 10 + ord("0")).astype(np.uint8)
_HIGHEST_DIGITS = np.where(_NUMBERS < _PLACE_VALUES, 0, _ALL_DIGITS).astype(np.uint8)
_LOWEST_DIGITS = np.where(_NUMBERS % (10 * _PLACE_VALUES) == 0, 0, _ALL_DIGITS).astype(np.uint8)
_LAST_GROUP = np.concatenate([_ALL_DIGITS, [[0, 0, 0, ord("0")]], _HIGHEST_DIGITS[1:]])
_GROUP_TABLES = [
    table.astype(np.uint8).view(np.uint32).ravel()
    for table in (*[np.concatenate([_ALL_DIGITS, _HIGHEST_DIGITS])] * 3, _LAST_GROUP)
]
"""Texts of the groups of four digits of an integer below 10**16: with all digits, and without
leading zeros for the first group that is not 0."""


def whole_cells(values: Floats) -> Cells:
    """Returns the text of each integer; an empty cell where it is unknown."""
    is_known = np.isfinite(values)
    known_values = np.where(is_known, values, 0.0)
    if not np.logical_and.reduce((known_values >= 0) & (known_values < 1e16)):
        return text_cells(f"{int(v)}" if v == v else "" for v in values.tolist())  # noqa: PLR0124
    cells = np.zeros((len(values), len(_GROUP_TABLES)), np.uint32)
    numbers = higher_digits = known_values.astype(np.int64)
    for index, table in enumerate(_GROUP_TABLES):
        digits = numbers // 10 ** (4 * (len(_GROUP_TABLES) - 1 - index))
        index_in_table = (
            digits - 10_000 * higher_digits + 10_000 * (higher_digits == 0)
            if index
            else digits + 10_000
        )
        cells[:, index] = table.take(index_in_table)
        higher_digits = digits
    cells[~is_known] = 0
    return _as_cells(cells)


def _as_cells(words: np.ndarray[Any, Any]) -> Cells:
    """Returns the words of each row as a cell."""
    return words.view(f"S{words.shape[1] * words.itemsize}")[:, 0]


# --- Numbers with seven digits. A cell has three parts of eight bytes: a sign and the zeros before
# the digits; the digits, with a decimal point; and the zeros or the exponent after the digits.

MAX_FORMATTED_VALUES = 1 << 12
"""Maximum number of values that are formatted at once. More do not fit into the caches of a CPU."""
_MAX_SAFE_DISTANCE = 0.4999
"""Maximum distance of a scaled number from the nearest integer for it to be rounded safely. A
number closer to a half is formatted by `repr`."""
_DIGITS, _POINT, _ZEROS, _MINUS = 7, ord("."), 0x30303030303030, ord("-") << 16
_MIN_EXPONENT, _MAX_EXPONENT, _MIN_PLAIN_EXPONENT = -16, 11, -4
"""Decimal exponents for which seven digits of a number can be scaled precisely. Numbers below the
last are printed with an exponent."""
_EXPONENTS = np.arange(_MIN_EXPONENT, _MAX_EXPONENT + 1)
_SCALE_UP, _SCALE_DOWN = (
    10.0 ** np.maximum(powers, 0) for powers in (_DIGITS - 1 - _EXPONENTS, _EXPONENTS - _DIGITS + 1)
)
"""Factor and divisor, by exponent, that move the decimal point to just after the seventh digit."""
_LAST_DIGITS = (_LOWEST_DIGITS.view(np.uint32).ravel().astype(np.uint64)) << 24
_FIRST_DIGITS = np.concatenate([_ALL_DIGITS[:1000], _LOWEST_DIGITS[:1000]])
_FIRST_DIGITS = _FIRST_DIGITS.view(np.uint32).ravel().astype(np.uint64) >> 8
"""Texts of the first three of seven digits and of the last four, without trailing zeros, as bytes
at their place. The second half of _FIRST_DIGITS is for numbers without last digits."""


def _parts_of_exponent(exponent: int) -> tuple[int, int, int, int, int]:
    """Returns, as bytes in integers: the text before the digits and the text after them, the zeros
    of digits that are always printed, a mask of the digits before the point, and the point."""
    prefix, suffix, whole_digits, min_digits = b"", b"", exponent + 1, exponent + 2
    if exponent < _MIN_PLAIN_EXPONENT:
        suffix, whole_digits, min_digits = b"e-%02d" % -exponent, 1, 1
    elif exponent < 0:
        prefix, whole_digits, min_digits = b"0." + b"0" * (-1 - exponent), _DIGITS, 0
    elif exponent >= _DIGITS - 1:
        suffix, whole_digits, min_digits = b"0" * (exponent - _DIGITS + 1) + b".0", _DIGITS, _DIGITS
    mask = (1 << 8 * whole_digits) - 1
    point = _POINT << 8 * whole_digits if whole_digits < _DIGITS else 0
    return (
        int.from_bytes(prefix.rjust(8, b"\0"), "little"), int.from_bytes(suffix, "little"),
        _ZEROS & ((1 << 8 * min_digits) - 1), mask, point,
    )  # fmt: skip


_PREFIXES, _SUFFIXES, _ALWAYS_PRINTED, _WHOLE_MASK, _POINT_BYTE = np.array(
    [_parts_of_exponent(exponent) for exponent in _EXPONENTS.tolist()], np.uint64
).T.copy()


def number_cells(values: Floats) -> Cells:
    """Returns `repr(json_number(value))` of each value; an empty cell where it is not finite."""
    cells = np.zeros((len(values), 3), np.uint64)
    for first in range(0, len(values), MAX_FORMATTED_VALUES):
        part = slice(first, first + MAX_FORMATTED_VALUES)
        _write_numbers(cells[part], values[part])
    return _as_cells(cells)


def _write_numbers(cells: np.ndarray[Any, Any], values: Floats) -> None:
    is_finite, magnitude = np.isfinite(values), np.abs(values)
    is_plain = (magnitude >= 10.0**_MIN_EXPONENT) & (magnitude < 10.0 ** (_MAX_EXPONENT + 1))
    magnitude = np.where(is_plain, magnitude, 1.0)
    exponent = np.floor(np.log10(magnitude)).astype(np.intp) - _MIN_EXPONENT
    scaled = magnitude * _SCALE_UP.take(exponent) / _SCALE_DOWN.take(exponent)
    units = np.rint(scaled)
    is_plain &= (np.abs(scaled - units) <= _MAX_SAFE_DISTANCE) & (units < 10.0**_DIGITS)
    units *= is_plain
    first_digits = np.floor(units / 1e4)
    last_digits = units - first_digits * 1e4
    first_index = (first_digits + 1000.0 * (last_digits == 0)).astype(np.intp)
    digits = _FIRST_DIGITS.take(first_index) | _LAST_DIGITS.take(last_digits.astype(np.intp))
    digits |= _ALWAYS_PRINTED.take(exponent)
    whole_digits = digits & _WHOLE_MASK.take(exponent)
    digits = (digits ^ whole_digits) << 8 | whole_digits | _POINT_BYTE.take(exponent)
    cells[:, 0], cells[:, 1], cells[:, 2] = (
        _PREFIXES.take(exponent),
        digits,
        _SUFFIXES.take(exponent),
    )
    # Setting a few rows by index takes a tenth of the time of setting them by mask.
    cells[np.flatnonzero(values < 0), 0] |= _MINUS
    has_no_decimals = (exponent < _MIN_PLAIN_EXPONENT - _MIN_EXPONENT) & (digits < 1 << 16)
    cells[np.flatnonzero(has_no_decimals), 1] &= 0xFF
    cells[np.flatnonzero(~is_finite)] = 0
    for index in np.flatnonzero(is_finite & ~is_plain & (values != 0)).tolist():
        text = repr(float(f"{values[index]:.7g}")).encode()
        cells[index] = np.frombuffer(text.ljust(cells.shape[1] * 8, b"\0"), np.uint64)


# --- Other cells.


def exact_cells(values: Floats) -> Cells:
    """Returns the shortest text that identifies each number exactly; '' where unknown."""
    distinct, index = np.unique(values, return_inverse=True)  # formatting takes longer
    texts = ("" if v != v else repr(v) for v in distinct.tolist())  # noqa: PLR0124
    return text_cells(texts).take(index)


def boolean_cells(values: Floats) -> Cells:
    return text_cells(["false", "true"]).take(values.astype(int))


def text_cells(texts: Iterable[str]) -> Cells:
    cells = np.array([text.encode() for text in texts], np.bytes_)
    return cells.astype(f"S{-(-cells.itemsize // WORD_BYTES) * WORD_BYTES}")


def rounded_numbers(values: Floats) -> Floats:
    """Returns `json_number(value)` of each value; NaN where it is not finite."""
    texts = ("%.7g " * values.size % tuple(values.ravel().tolist())).split()
    numbers = np.array([*map(float, texts)]).reshape(values.shape)
    return np.where(np.isfinite(numbers), numbers, np.nan)
