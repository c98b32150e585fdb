"""Charts that are kept from one refresh to the next.

The cells of a chart follow from the values of its columns; those of a line also from the column
before, which they are joined to. As time passes, columns move to the left and keep their values. So
what was drawn of them moves along, and only the cells from the first one on of which a column has
another value than it had are drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw.moving import Column, Row, rows_of

Columns = Sequence[Sequence[float]]
"""The values of some columns."""
Draw = Callable[[int, Columns], Sequence[Column]]
"""From the number of a chart and the values of some of its columns to their cells."""


def apart(cells: Callable[[Sequence[float]], Column]) -> Draw:
    """Draws charts in which the cells of a column follow from its own values alone."""
    return lambda _, columns: [cells(column) for column in columns]


class _Picture(NamedTuple):
    values: Floats
    newest: int
    frame: Hashable
    rows: list[list[Row]]
    """By chart, from the top."""
    ends: Sequence[Sequence[Column]] = ()
    """By chart, the columns of cells that were drawn last, at its right end."""


class Kept:
    """Charts of one kind, one picture after the other."""

    def __init__(self, per: int = 1, *, joined: bool = False) -> None:
        """`per`: columns in a cell. `joined`: the cells are those of a line."""
        self._per, self._joined = per, joined
        self._held: dict[int, _Picture] = {}
        """By the part of a cell that the newest column is in, as only whole cells can move."""

    def rows(self, draw: Draw, values: Floats, newest: int, frame: Hashable) -> list[list[Row]]:
        """The rows of all charts. `values`: (charts, columns, kinds). `newest`: number of the
        newest column, so that it is known how far columns have moved. `frame`: all else that
        decides what is drawn."""
        held, made = self._held.get(newest % self._per), None
        if held is not None and held.frame == frame and held.values.shape == values.shape:
            made = self._moved(held, draw, values, newest)
        if made is None:
            rows = [rows_of(draw(i, columns)) for i, columns in enumerate(values.tolist())]
            made = _Picture(values, newest, frame, rows)
        self._held[newest % self._per] = made
        return made.rows

    def _moved(self, held: _Picture, draw: Draw, values: Floats, newest: int) -> _Picture | None:
        """The picture without its first columns; None if nothing else of it could stay."""
        columns, per, gone = values.shape[1], self._per, newest - held.newest
        if not 0 <= gone < columns:
            return None
        before, now = held.values[:, gone:], values[:, : columns - gone]
        others = (before.view(np.int64) != now.view(np.int64)).any(axis=(0, 2))  # NaN equals NaN
        changed = np.flatnonzero(others)
        first = (int(changed[0]) if len(changed) else columns - gone) // per
        if first * per == columns:
            return held._replace(values=values, newest=newest)
        if first <= self._joined:
            return None
        leads: list[Column | None] = [None] * len(values)
        if self._joined and gone:  # nothing leads to the first cell any more
            leads = [draw(i, some)[0] for i, some in enumerate(values[:, :per].tolist())]
        # Of a line, the cell before the first is drawn, too, so that it leads on from there.
        begin = (first - self._joined) * per
        tails = [draw(i, some)[self._joined :] for i, some in enumerate(values[:, begin:].tolist())]
        if not gone and tails == held.ends:  # values have changed by less than can be drawn
            return held._replace(values=values)
        rows = [
            [row.moved(gone // per, tail, lead[y] if lead else None)
             for y, (row, tail) in enumerate(zip(rows, zip(*cells, strict=True), strict=True))]
            for rows, cells, lead in zip(held.rows, tails, leads, strict=True)
        ]  # fmt: skip
        return _Picture(values, newest, held.frame, rows, tails)
