"""Lanes: one field of each CPU over time, as cells in the colours of the heat ramp or, with room
for several lines, as areas. They are the time view, and fill spare lines of other views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts, theme
from perftop.draw.columns import Run, fit
from perftop.draw.strips import (
    UNKNOWN_LEVEL,
    half_cells,
    join_cells,
    pack_step_pairs,
    panel_title,
    restyle_cells,
)
from perftop.model.numbers import Number
from perftop.model.smt import STATES
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import displayed_values
from perftop.tui.shared import time_axis
from perftop.tui.shared.canvas import PanelLine
from perftop.tui.shared.cores import Core, Cores
from perftop.tui.shared.row_numbers import (
    Scale,
    field_scale,
    selected_field,
    session_clock_unit,
    value_unit,
)
from perftop.tui.shared.tables import title_key
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


# --- the panel

LABEL_WIDTH = 9
FIXED_LINES = 3
"""Lines of the panel besides lanes: the title, the axis and its times."""
MAX_LANE_HEIGHT = 8


def panel_height(cores: Sequence[Core], room: int) -> int:
    """Returns the height of the panel for these cores, so that no line is blank; 0 if `room` lines
    are too few for a line of each core. A line has at most two CPUs."""
    cpus, room = sum(len(core.cpus) for core in cores), room - FIXED_LINES
    if not cpus or room < len(cores) or cpus > max(2 * len(cores), room):
        return 0
    return FIXED_LINES + (cpus * min(MAX_LANE_HEIGHT, room // cpus) or len(cores))


def lanes_panel(
    session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
) -> list[PanelLine]:
    """Returns the panel "over time": the selected field of every CPU over time."""
    cores = Cores(session, settings.mask, interval.cores.lists).rows
    axis_width = width - LABEL_WIDTH
    field, _ = selected_field(session, settings.metric)
    axis = time_axis.fit_axis(
        interval.time_ns, settings.window_s, max(1, axis_width), session.past.first_ns
    )
    lanes = MetricLanes(session, field, axis, cores, ascii_=settings.ascii)
    lanes.update(range(len(cores)))
    lanes.choose_scale(displayed_values(field, session, interval)[session.selected])
    unit = value_unit(
        field, session_clock_unit(session, settings.units, ghz_if_unknown=True), lanes.scale.high
    )
    digits = 0 if field.unit == "ratio" else unit.digits
    ends = (f"{end * unit.per_hz:.{digits}f}" for end in (lanes.scale.low, lanes.scale.high))
    key = title_key(settings.captions["time"], "time", width)
    scale_text = f"{field.plain_name} of every CPU, {' to '.join(ends)} {unit.name}".rstrip()
    lines: list[PanelLine] = [(panel_title("over time", scale_text, width, key), None)]
    cpus = [(row, lane, cpu) for row, core in enumerate(cores)
            for lane, cpu in enumerate(core.cpus[:1] if field.of_core else core.cpus)]  # fmt: skip
    lane_height = min(MAX_LANE_HEIGHT, max(0, height - FIXED_LINES) // max(1, len(cpus)))
    if not lane_height:  # the CPUs of a core share a line, in the colours of the heat ramp
        for row, core in enumerate(cores):
            label = fit(f"  {','.join(map(str, core.cpus))}", LABEL_WIDTH)
            style = "text" if settings.cpu in core.cpus else "dim"
            runs = lanes.flat_lane(row, range(len(lanes.values[row])))
            lines.append(([(label, style), *faded_lane(runs, axis, settings)], core.cpus[0]))
        cpus = []
    area_height = lane_height - (lane_height > 2)  # an empty line separates tall lanes
    for row, lane, cpu in cpus:
        name = fit(f"  CPU {cpu}", LABEL_WIDTH), "text" if cpu == settings.cpu else "dim"
        for runs in lanes.tall_lane(row, lane, area_height):
            lines.append(([name, *faded_lane(runs, axis, settings)], cpu))
            name = " " * LABEL_WIDTH, "text"
        lines += [([], cpu)] * (lane_height - area_height)
    ticks = time_axis.ticks(axis, session.unix)
    axis_line = time_axis.tick_line(
        axis, time_axis.visible_episodes(axis, session), ticks, marks=session.marks
    )
    for runs in (axis_line, time_axis.times_line(axis, ticks)):
        lines.append(([(" " * LABEL_WIDTH, "text"), *runs], None))
    return lines
