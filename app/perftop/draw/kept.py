"""Charts that are kept from one refresh to the next.

The cells of a column follow from its values alone. As time passes, columns move to the left and
keep their values. So what was drawn of them moves along, and only the columns from the first one on
that has another value than it had are drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw.moving import Column, Row, rows_of

Draw = Callable[[Sequence[float]], Column]
"""From the values of a column to its cells."""


class _Picture(NamedTuple):
    values: Floats
    newest: int
    frame: Hashable
    rows: list[list[Row]]
    """By chart, from the top."""


class Kept:
    """Charts of one kind, one picture after the other."""

    def __init__(self) -> None:
        self._held: _Picture | None = None

    def rows(self, draw: Draw, values: Floats, newest: int, frame: Hashable) -> list[list[Row]]:
        """The rows of all charts. `values`: (charts, columns, kinds). `newest`: number of the
        newest column, so that it is known how far columns have moved. `frame`: all else that
        decides what is drawn."""
        held, rows = self._held, None
        if held is not None and held.frame == frame and held.values.shape == values.shape:
            rows = _moved(held, draw, values, newest - held.newest)
        if rows is None:
            rows = [rows_of(map(draw, columns)) for columns in values.tolist()]
        self._held = _Picture(values, newest, frame, rows)
        return rows


def _moved(held: _Picture, draw: Draw, values: Floats, gone: int) -> list[list[Row]] | None:
    """The picture without its first columns; None if nothing else of it could stay."""
    columns = values.shape[1]
    if not 0 <= gone < columns:
        return None
    before, now = held.values[:, gone:], values[:, : columns - gone]
    others = (before.view(np.int64) != now.view(np.int64)).any(axis=(0, 2))  # NaN equals NaN
    changed = np.flatnonzero(others)
    first = int(changed[0]) if len(changed) else columns - gone
    if first == columns:
        return held.rows
    if not first:
        return None
    tails = ([*zip(*map(draw, fresh), strict=True)] for fresh in values[:, first:].tolist())
    return [
        [row.moved(gone, tail) for row, tail in zip(*both, strict=True)]
        for both in zip(held.rows, tails, strict=True)
    ]
