"""Lanes: one field of each CPU over time, as cells in the colours of the heat ramp or, with room
for several lines, as areas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts, theme
from perftop.draw.columns import Run
from perftop.draw.strips import (
    UNKNOWN_LEVEL,
    half_cells,
    join_cells,
    pack_step_pairs,
    restyle_cells,
)
from perftop.model.numbers import Number
from perftop.model.smt import STATES
from perftop.session.session import Session
from perftop.tui.shared import time_axis
from perftop.tui.shared.cores import Core
from perftop.tui.shared.row_numbers import (
    Scale,
    field_scale,
)
from perftop.tui.shared.time_axis import Axis
from perftop.tui.shared.view_settings import ViewSettings

_AREAS = {"ipc": "ipc", "system": "kernel", "kernel_cycles": "kernel",
          "kernel_instructions": "kernel"}  # fmt: skip
"""Colours of tall lanes by field, as in the overview's charts; others have that of user time."""


class MetricLanes:
    """The values of one field along one time axis. Visible rows are read from the history together,
    which takes little longer than a single row."""

    def __init__(
        self, session: Session, field: Number, axis: Axis, cores: Sequence[Core], *, ascii_: bool
    ) -> None:
        self._session, self._field, self.axis, self._cores = session, field, axis, cores
        self._ascii = ascii_
        self.scale = Scale(0.0, 1.0)
        self.values: dict[int, Floats] = {}
        """Arrays of values (lanes, bins), by row."""
        self._areas: dict[tuple[int, int], list[list[Run]]] = {}
        """The lines of tall lanes, by row and lane."""

    def update(self, rows: Sequence[int]) -> None:
        """Reads the rows that have not been read yet."""
        rows = [row for row in dict.fromkeys(rows) if row not in self.values]
        history, cores = self._session.past, [self._cores[row] for row in rows]
        edges = self.axis.edges
        if self._field.of_core:
            states = history.states([core.cpus for core in cores], edges)
            lanes = states[:, :, STATES.index(self._field.key)].T
        else:
            cpus = [cpu for core in cores for cpu in core.positions]
            lanes = history.metric(self._field.key, cpus, edges).T
        end = 0
        for row, core in zip(rows, cores, strict=True):
            start, end = end, end + (1 if self._field.of_core else len(core.positions))
            self.values[row] = lanes[start:end]

    def choose_scale(self, values_now: Floats) -> None:
        """Chooses the scale for the rows read so far and for `values_now`, the present values of
        all CPUs. The last scale of this field is kept while it fits."""
        values = np.concatenate([*(block.ravel() for block in self.values.values()), values_now])
        scales: dict[str, Scale] = self._session.caches["scales of lanes"]  # by key of the field
        self.scale = field_scale(self._field, values, scales.get(self._field.key))
        scales[self._field.key] = self.scale

    def flat_lane(self, row: int, lanes: Sequence[int]) -> list[Run]:
        """Returns a line with one lane in whole cells, or with two lanes in the halves of cells."""
        levels = self.scale.levels(self.values[row][[*lanes]])
        cells = half_cells(ascii_=self._ascii)
        codes = pack_step_pairs(levels[0] - UNKNOWN_LEVEL, levels[-1] - UNKNOWN_LEVEL)
        return join_cells([cells[code] for code in codes.tolist()])

    def tall_lane(self, row: int, lane: int, lines: int) -> list[list[Run]]:
        """Returns a lane that is several lines high, in which the height also shows the value."""
        if (row, lane) not in self._areas:
            low, high = self.scale.low, self.scale.high
            share = (self.values[row][lane] - low) / (high - low)
            colours = _AREAS.get(self._field.key, "user")
            area = charts.area_chart(share, lines, colours, ascii_=self._ascii)
            self._areas[row, lane] = charts.chart_lines(area)
        return self._areas[row, lane]


def faded_lane(runs: list[Run], axis: Axis, settings: ViewSettings) -> list[Run]:
    """Returns a line of a lane, faded outside the selected ranges of time."""
    for begin, end in time_axis.cells_outside(axis, settings.ranges_ns.values()):
        runs = restyle_cells(runs, begin, end, theme.FADED_PREFIX)
    return runs
