"""One field over time for each row of the time view, as cells in the colours of the heat ramp."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts, theme
from perftop.draw.cells import FAINT, UNKNOWN, full_cell, half_cells
from perftop.draw.columns import Run
from perftop.model.numbers import Number
from perftop.model.smt import STATES
from perftop.session.session import Session
from perftop.tui.shared.places import Place
from perftop.tui.shared.sheet import Scale, field_scale
from perftop.tui.shared.time_axis import Axis

_KNOWN_CODES = theme.HEAT + 1
"""Number of values that half of a cell can have: unknown, or a step of the heat ramp."""
_AREAS = {"ipc": "ipc", "system": "kernel", "kernel_cycles": "kernel",
          "kernel_instructions": "kernel"}  # fmt: skip
"""Colours of tall lanes by field, as in the charts of the overview; all other fields have the
colours of user time."""


class Lanes:
    """The values of one field along one time axis. The rows in sight are read from the history
    together, which costs little more than reading a single row."""

    def __init__(
        self, session: Session, field: Number, axis: Axis, places: Sequence[Place], *, ascii_: bool
    ) -> None:
        self._session, self._field, self.axis, self._places = session, field, axis, places
        self._ascii = ascii_
        self.scale = Scale(0.0, 1.0)
        self.values: dict[int, Floats] = {}
        """Arrays of values (lanes, bins), by row."""
        self._areas: dict[tuple[int, int], list[list[Run]]] = {}
        """The lines of tall lanes, by row and lane."""

    def read(self, rows: Sequence[int]) -> None:
        """Reads those of the rows that have not been read yet."""
        rows = [row for row in dict.fromkeys(rows) if row not in self.values]
        history, places = self._session.past, [self._places[row] for row in rows]
        edges = self.axis.edges
        if self._field.of_core:
            states = history.states([place.cpus for place in places], edges)
            lanes = states[:, :, STATES.index(self._field.key)].T
        else:
            cpus = [cpu for place in places for cpu in place.rows]
            lanes = history.field(self._field.key, cpus, edges).T
        end = 0
        for row, place in zip(rows, places, strict=True):
            start, end = end, end + (1 if self._field.of_core else len(place.rows))
            self.values[row] = lanes[start:end]

    def choose_scale(self, values_now: Floats, previous: Scale | None) -> None:
        """Chooses the scale for the rows read so far and for `values_now`, the present values of
        all CPUs. The previous scale `previous` is kept while it suits these values."""
        values = np.concatenate([*(block.ravel() for block in self.values.values()), values_now])
        self.scale = field_scale(self._field, values, previous)

    def flat_lane(self, row: int, lanes: Sequence[int]) -> list[Run]:
        """Returns a line with one lane in whole cells, or with two lanes in the halves of cells."""
        levels = self.scale.levels(self.values[row][[*lanes]])
        return half_cell_line(levels[0], levels[-1], ascii_=self._ascii)

    def tall_lane(self, row: int, lane: int, lines: int) -> list[list[Run]]:
        """Returns a lane that is several lines high, in which the height also shows the value."""
        if (row, lane) not in self._areas:
            low, high = self.scale.low, self.scale.high
            share = (self.values[row][lane] - low) / (high - low)
            colours = _AREAS.get(self._field.key, "user")
            area = charts.area(share, lines, colours, ascii_=self._ascii)
            self._areas[row, lane] = area.lines()
        return self._areas[row, lane]


def half_cell_line(upper: np.ndarray, lower: np.ndarray, *, ascii_: bool) -> list[Run]:
    """Returns a line of cells. `upper` and `lower`: the steps of the heat ramp for the halves of
    cells; -1 for unknown values. Equal neighbouring cells form one run."""
    cells = _cells(ascii_=ascii_)
    codes = ((upper + 1) * _KNOWN_CODES + lower + 1).astype(np.uint8).tobytes()
    runs: list[Run] = []
    for code, codes_of_run in groupby(codes):
        shape, key = cells[code]
        runs.append((shape * len(list(codes_of_run)), key))
    return runs


@cache
def _cells(*, ascii_: bool) -> list[Run]:
    """Returns the cells for all pairs of levels, ordered by the upper and then the lower level.
    Both start with the level of unknown values."""
    levels = range(UNKNOWN, theme.HEAT)
    return [_cell(upper, lower, ascii_=ascii_) for upper in levels for lower in levels]


def _cell(upper: int, lower: int, *, ascii_: bool) -> Run:
    if max(upper, lower) < 0:
        return " ", "text"
    if not ascii_:
        return half_cells(upper, lower, 1, ascii_)[0]
    shape, _ = full_cell(upper, 1, ascii_)[0]
    return shape, f"heat{max(FAINT, upper)}"
