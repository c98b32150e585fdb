"""The time view: one metric of every CPU over time, the newest values at the right edge. If all
CPUs fit on the screen, each has one or more lines, its lane; otherwise two siblings share a line,
as the upper and lower halves of its cells. In a lane of several lines, the height also shows the
value. Lines and widths depend only on the CPUs and the screen, so that new values move nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isnan, nan
from typing import ClassVar

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.base.text import ClockUnit, duration, fit, ranges, rate_unit, time_of_day
from perftop.draw import charts, strips, theme
from perftop.draw.columns import Column, Run
from perftop.draw.strips import Line, Piece
from perftop.model.kinds import Episode
from perftop.model.numbers import Number
from perftop.model.smt import STATES
from perftop.session.session import Session
from perftop.session.values import displayed_values, suspect_rows
from perftop.tui.shared import episode_style, row_numbers, time_axis
from perftop.tui.shared.canvas import CursorCanvas, mark_selected
from perftop.tui.shared.cores import Core, Cores, ViewLine, package_name, width_of_names
from perftop.tui.shared.panels import PaneledView
from perftop.tui.shared.row_numbers import Scale
from perftop.tui.shared.time_axis import Axis

HEADER_LINES = 2
MIN_HEIGHT_FOR_TIMES = 24
"""Minimum number of lines at which clock times have a separate line below the axis."""
MAX_LANE_HEIGHT = 16
PANEL_HEIGHT, MIN_LANE_HEIGHT = 10, 3
"""Number of lines reserved for panels if each CPU has at least MIN_LANE_HEIGHT lines."""
NUMBER_WIDTH = 7
"""Width of a number, in cells, including the gap to its left."""
MAX_CPU_LIST = 12
"""Maximum width of the list of a core's CPUs, in cells."""


@dataclass(frozen=True, slots=True)
class LaneLine:
    """One of the lines that scroll."""

    view_line: ViewLine
    line_in_core: int = 0
    """Index of the line within the core's lines."""
    lanes: tuple[int, ...] = ()
    """Indexes, within the core, of the one or two CPUs on this line."""
    line_in_lane: int = 0
    """Index of the line within the lines of its CPU; 0 is the top line."""


@dataclass(frozen=True, slots=True)
class TimelineLayout:
    """The lines that scroll, and the widths of their parts."""

    lines: list[LaneLine]
    has_own_lines: bool
    """Whether each CPU has its own lines; else two CPUs share a line."""
    lane_height: int
    """Number of lines of a CPU; 1 if two CPUs share a line."""
    core_width: int
    """Width of the core's name, in cells."""
    cpus_width: int
    """Width of the list of the core's CPUs, in cells; 0 if it is not shown."""

    @property
    def label_width(self) -> int:
        return 1 + self.core_width + self.cpus_width + 1

    @property
    def numbers_per_line(self) -> int:
        """Number of values side by side on a line."""
        return 1 if self.has_own_lines else 2

    @property
    def right_width(self) -> int:
        """Number of cells to the right of the strip, for values, a blank, a marker and a margin."""
        return NUMBER_WIDTH * self.numbers_per_line + 3


_NO_LAYOUT = TimelineLayout([], has_own_lines=True, lane_height=1, core_width=0, cpus_width=0)


def timeline_layout(
    cores: Cores, lines: list[ViewLine], room: int, order: str, *, is_per_core: bool, ascii_: bool
) -> TimelineLayout:
    """Returns the layout of `lines` in `room` lines of the screen. `order`: the order of rows.
    `is_per_core`: whether the metric has one value for each core. `ascii_`: half cells cannot be
    drawn, so each CPU has its own lines."""
    rows = [line.row for line in lines if line.kind == "row"]
    counts = {row: 1 if is_per_core else len(cores.rows[row].cpus) for row in rows}
    lanes, headings = sum(counts.values()), len(lines) - len(counts)
    room -= headings
    each_lane = lanes <= room or ascii_ or max(counts.values(), default=1) == 1
    lanes_room = room - PANEL_HEIGHT if room - PANEL_HEIGHT >= MIN_LANE_HEIGHT * lanes else room
    lane_height = max(1, min(MAX_LANE_HEIGHT, lanes_room // max(1, lanes))) if each_lane else 1
    core = width_of_names([cores.name(row, order) for row in counts])
    cpus = 0
    if cores.has_pairs:
        names = cores.cpu_lists
        if each_lane and not is_per_core:
            names = [str(cpu) for row in counts for cpu in cores.rows[row].cpus]
        cpus = 2 + min(MAX_CPU_LIST, width_of_names(names))
    if headings:
        core = max(core, len("package 0") - cpus)
    lane_lines: list[LaneLine] = []
    for line in lines:
        if line.kind != "row":
            lane_lines.append(LaneLine(line))
            continue
        count = counts[line.row]
        for part in range(count * lane_height if each_lane else (count + 1) // 2):
            pair = range(2 * part, min(2 * part + 2, count))
            lane = (part // lane_height,) if each_lane else tuple(pair)
            lane_lines.append(LaneLine(line, part, lane, part % lane_height))
    return TimelineLayout(lane_lines, each_lane, lane_height, core, cpus)


class Timeline(PaneledView, CursorCanvas):
    HINTS: ClassVar[tuple[str, ...]] = ("metric", "open", "narrower", "wider", "order")

    _field: Number
    _unit: ClockUnit
    _other_fields: list[str]
    """Names of the fields that the metric key shows next, in order."""
    _timeline_layout = _NO_LAYOUT
    _has_headings: bool
    _axis: time_axis.Axis
    _chart_left: int
    """Number of cells to the left of the axis: the labels, and the remaining cells, which are too
    few for a bin of whole samples."""
    _right_width: int
    """Number of cells to the right of the axis, for numbers; 0 if they do not fit."""
    _values: dict[int, Floats]
    """The values along the axis, (lanes, bins), of each row that has been visible, by row."""
    _areas: dict[tuple[int, int], list[list[Run]]]
    """The lines of the tall lanes drawn so far, by row and lane."""
    _scale: Scale
    _values_now: list[float]
    """Values in the shown interval, by position of the CPU."""
    _is_suspect: list[bool]
    """Whether a counter of the value in `_values_now` is suspect, by position of the CPU."""
    _episodes_of_package: dict[int | None, list[Episode]]
    """Visible episodes on more than half of a package. They are shown in the package's heading."""
    _episodes_of_cpu: dict[int, list[Episode]]
    """The other visible episodes, by number of the CPU."""

    # --- lines from an interval

    def reset(self) -> None:
        # There is nothing to draw until there is a size.
        self.line_count, self._timeline_layout = 0, _NO_LAYOUT

    def make_layout(self) -> None:
        session = self.session
        self._field, self._other_fields = row_numbers.selected_field(session, self.settings.metric)
        self._unit = row_numbers.value_unit(
            self._field,
            row_numbers.session_clock_unit(session, self.settings.units, ghz_if_unknown=True),
        )
        self._timeline_layout = _NO_LAYOUT

    def make_lines(self) -> None:
        session, interval, settings = self.session, self.interval, self.settings
        if not self._timeline_layout.lines or settings.order not in {"topology", "CPU number"}:
            lines = self.cores.view_lines()
            if settings.order != "topology" or settings.reverse:
                rows = row_numbers.ordered_rows(self.cores, settings, session, interval)
                lines = [ViewLine("row", row) for row in rows]
            if self.is_tiny:
                lines = [line for line in lines if line.kind == "row"]
            self._has_headings = any(line.kind == "package" for line in lines)
            footer_lines = 2 if self.size.height >= MIN_HEIGHT_FOR_TIMES else 1
            height = self.size.height - (0 if self.is_tiny else HEADER_LINES + footer_lines)
            order, is_per_core, ascii_ = settings.order, self._field.is_per_core, settings.ascii
            self._timeline_layout = timeline_layout(
                self.cores, lines, height, order, is_per_core=is_per_core, ascii_=ascii_
            )
            self.line_count = len(self._timeline_layout.lines)
        layout = self._timeline_layout
        # Either all numbers are shown or none.
        has_room = self.width > layout.label_width + layout.right_width
        self._right_width = layout.right_width if has_room else 0
        room = max(1, self.width - layout.label_width - self._right_width)
        first_ns = session.past.first_ns
        self._axis = time_axis.fit_axis(interval.time_ns, settings.window_s, room, first_ns)
        self._chart_left = layout.label_width + room - self._axis.columns
        self._values, self._areas = {}, {}
        self._read_lanes(self._visible_rows())
        values = displayed_values(self._field, session, interval)
        scaled_values = [block.ravel() for block in self._values.values()]
        scaled_values.append(values[session.selected])
        scales: dict[str, Scale] = session.caches["scales of lanes"]  # by key of the field
        self._scale = scales[self._field.key] = row_numbers.field_scale(
            self._field, np.concatenate(scaled_values), scales.get(self._field.key)
        )
        if self._field.is_rate:
            self._unit = rate_unit(self._scale.high)
        self._values_now = values.tolist()
        self._is_suspect = suspect_rows(self._field.key, session, interval).tolist()
        episodes = time_axis.visible_episodes(self._axis, session)
        self._assign_episodes(episodes)
        self.header_lines, self.footer_lines = [], []
        if not self.is_tiny and self._right_width:
            self.header_lines = [self._legend(), self._heading_runs()]
            self.footer_lines = self._axis_lines(session, episodes)
            self.footer_lines += self.make_panels(self.spare_lines - len(self.footer_lines))

    def _visible_rows(self) -> list[int]:
        lane_lines = self._timeline_layout.lines[self.top_line : self.top_line + self.size.height]
        view_lines = (lane_line.view_line for lane_line in lane_lines)
        return [line.row for line in view_lines if line.kind == "row"]

    def _assign_episodes(self, episodes: list[Episode]) -> None:
        """Assigns each episode to the headings of packages or to its CPUs."""
        cores, row_of = self.cores, self.cores.row_of_cpu
        self._episodes_of_package, self._episodes_of_cpu = {}, {}
        for episode in episodes:
            rows = {row_of[cpu] for cpu in episode.cpus if cpu in row_of}
            for package in {cores.rows[row].package for row in rows}:
                affected = {row for row in rows if cores.rows[row].package == package}
                count = len(cores.package_rows(package)[0])
                if self._has_headings and 1 < len(affected) > count / 2:
                    self._episodes_of_package.setdefault(package, []).append(episode)
                    rows -= affected
            for cpu in episode.cpus:
                if row_of.get(cpu) in rows:
                    self._episodes_of_cpu.setdefault(cpu, []).append(episode)

    # --- fixed lines

    def _legend(self) -> list[Run]:
        low, high = row_numbers.scale_ends(self._field, self._scale, self._unit)
        high = f"{high} {self._unit.name}".rstrip()
        ramp = strips.heat_ramp(ascii_=self.settings.ascii)
        ends: list[Run] = [(f"{low} ", "dim"), *ramp, (f" {high}", "dim")]
        if self._timeline_layout.lane_height > 1:  # the height of a lane shows the value
            ends = [("from ", "dim"), (low, "text"), (" to ", "dim"), (high, "text")]
        cell_text = duration(float(f"{self._axis.bin_ns / 1e9:.2g}"))
        window: list[Run] = [("window ", "dim"), (duration(self.settings.window_s), "text")]
        pieces: list[Piece] = [
            (0, [("time ", "bright"), ("· ", "faint"), (self._field.plain_name, "text")]),
            (1, ends),
            (2, [*window, (", each cell ", "dim"), (cell_text, "text")]),
        ]
        if not self._timeline_layout.has_own_lines and self.cores.max_threads == 2:
            pieces.append((3, [(f"{theme.LP0} lp0 {theme.LP1} lp1", "dim")]))
        if self._other_fields:
            pieces.append((4, [("next: ", "faint"), (" · ".join(self._other_fields[:4]), "dim")]))
        return [(" ", "text"), *strips.fit_line(pieces, self.width - 1, 3)]

    def _heading_runs(self) -> list[Run]:
        layout, cores = self._timeline_layout, self.cores
        title = f" {'core' if cores.has_pairs else 'cpu':>{layout.core_width}}"
        if layout.cpus_width:
            is_cpu = layout.has_own_lines and not self._field.is_per_core
            title += fit("  cpu" if is_cpu else "  cpus", layout.cpus_width)
        value_name = "now" if self.settings.range_ns is None else "mean"
        pair = ["lp0", "lp1"] if cores.max_threads == 2 else ["", value_name]
        names = [value_name] if layout.has_own_lines else pair
        return [
            (fit(title, self._chart_left), "dim"),
            (" " * self._axis.columns, "text"),
            ("".join(f"{name:>{NUMBER_WIDTH}}" for name in names), "dim"),
        ]

    def _axis_lines(self, session: Session, episodes: list[Episode]) -> list[Line]:
        axis, interval = self._axis, self.interval
        times_inside = self.size.height < MIN_HEIGHT_FOR_TIMES
        ticks, first_ns = time_axis.ticks(axis, session.unix_s), axis.first_ns
        start_s, marks = None if first_ns is None else session.unix_s(first_ns), session.marks
        line = time_axis.tick_line(
            axis, episodes, ticks, times_inside=times_inside, marks=marks, history_start=start_s
        )
        left_margin: Run = (" " * self._chart_left, "text")
        time_run: Run = (f"{time_of_day(interval.time):>{self._right_width - 1}}", "text")
        if times_inside:
            return [([left_margin, *line, time_run], "calm")]
        times = time_axis.times_line(axis, ticks)
        return [([left_margin, *line], "calm"), ([left_margin, *times, time_run], "calm")]

    # --- lines that scroll

    def cpu_of_line(self, y: int) -> int | None:
        line = self._timeline_layout.lines[y].view_line
        return self.cores.rows[line.row].cpus[0] if line.kind == "row" else None

    def scroll_to_cursor(self) -> None:
        """Scrolls so that all lines of the selected core are visible."""
        super().scroll_to_cursor()
        first = last = self._cursor_line()
        while last + 1 < self.line_count and self.cpu_of_line(last + 1) == self.settings.cpu:
            last += 1
        self.reveal_lines(first, last)

    def line(self, y: int) -> Line:
        lane_line = self._timeline_layout.lines[y]
        if lane_line.view_line.kind == "off":
            return [(f" off   CPUs {ranges(self.cores.offline_cpus)}", "dim")], "calm"
        if lane_line.view_line.kind != "row":
            return self._heading(lane_line.view_line), "calm"
        runs = self._row(lane_line)
        if self.cpu_of_line(y) != self.settings.cpu:
            return runs, "calm"
        return mark_selected((runs, "calm")) if lane_line.line_in_core == 0 else (runs, "chosen")

    def _column(self) -> Column:
        _, factor, digits = self._unit
        return Column(self._field.key, "", NUMBER_WIDTH, scale=factor, digits=digits)

    def _heading(self, line: ViewLine) -> list[Run]:
        """Returns the heading of a package or an L3, with the mean of its CPUs. The heading of a
        package also shows its episodes over time."""
        core = self.cores.rows[line.row]
        if line.kind == "l3":
            rows = self.cores.rows_by_group[core.package, core.l3]
            name: Run = (fit(f"   L3 {core.l3}", self._chart_left), "dim")
            lane_runs: list[Run] = [(" " * self._axis.columns, "text")]
        else:
            rows, _, _ = self.cores.package_rows(core.package)
            name = (fit(f" {package_name(core.package)}", self._chart_left), "bright")
            episodes = self._episodes_of_package.get(core.package, [])
            lane_runs = time_axis.axis_rule(self._axis, episodes)
        if not self._right_width:
            return [name, *lane_runs]
        cpus = [cpu for row in rows for cpu in self.cores.rows[row].positions]
        if self._field.is_per_core:
            known_values = [v for cpu in cpus if not isnan(v := self._values_now[cpu])]
            value = sum(known_values) / len(known_values) if known_values else nan
        else:
            value = self.interval.values.mean(self._field.key, cpus)
        mean_text = "" if self._timeline_layout.has_own_lines else f"{'mean':>{NUMBER_WIDTH}}"
        text, style = self._column().cell(value)
        return [name, *lane_runs, (mean_text, "dim"), (f"{text:>{NUMBER_WIDTH}}", style)]

    def _row(self, lane_line: LaneLine) -> list[Run]:
        layout, row = self._timeline_layout, lane_line.view_line.row
        if row not in self._values:  # the row was scrolled into view
            self._read_lanes([*self._visible_rows(), row])
        if layout.lane_height == 1:
            levels = self._scale.levels(self._values[row][[*lane_line.lanes]])
            lane_runs = flat_lane(levels, ascii_=self.settings.ascii)
        else:
            lane_runs = self._tall_lane(row, lane_line.lanes[0])[lane_line.line_in_lane]
        lane_runs = time_axis.fade_outside(lane_runs, self._axis, self.settings.ranges_ns.values())
        label = fit(self._label(lane_line), self._chart_left - 1)
        runs: list[Run] = [(" ", "text"), (label, "dim")]
        if lane_line.line_in_lane or not self._right_width:
            return [*runs, *lane_runs]
        cpus = self.cores.rows[row].cpus
        shown_cpus = cpus if self._field.is_per_core else [cpus[lane] for lane in lane_line.lanes]
        episodes = [episode for cpu in shown_cpus for episode in self._episodes_of_cpu.get(cpu, [])]
        for cell, start in time_axis.start_markers(self._axis, episodes).items():
            lane_runs = strips.overlay(lane_runs, cell, [start])
        runs += [*lane_runs, *self._numbers(lane_line)]
        for episode in reversed(time_axis.sort_by_severity(episodes)):
            visible = self._axis.episode_cells(episode)
            if visible is not None and visible[0].stop == self._axis.columns:  # the episode runs
                sign, style = episode_style.marker_run(episode, self._axis.now_ns)
                return [*runs, (f" {sign}", style)]
        return [*runs, ("  ", "text")]

    def _read_lanes(self, rows: Sequence[int]) -> None:
        """Reads the rows that have not been read yet."""
        rows = [row for row in dict.fromkeys(rows) if row not in self._values]
        cores = [self.cores.rows[row] for row in rows]
        blocks = read_lanes(self.session, self._field, self._axis, cores)
        self._values.update(zip(rows, blocks, strict=True))

    def _tall_lane(self, row: int, lane: int) -> list[list[Run]]:
        """Returns the lines of a lane, in which the height also shows the value."""
        if (row, lane) not in self._areas:
            height, scale = self._timeline_layout.lane_height, self._scale
            gap = 1 if height > 2 else 0  # an empty line separates tall lanes
            share = (self._values[row][lane] - scale.low) / (scale.high - scale.low)
            colours, ascii_ = _AREAS.get(self._field.key, "user"), self.settings.ascii
            area = charts.area_chart(share, height - gap, colours, ascii_=ascii_)
            blank_line: list[Run] = [(" " * self._axis.columns, "text")]
            self._areas[row, lane] = [*charts.chart_lines(area), blank_line]
        return self._areas[row, lane]

    def _label(self, lane_line: LaneLine) -> str:
        """Returns the label of a line: the name of its core on the core's first line, and the
        number of its CPU, or a list of the core's CPUs."""
        layout, cores = self._timeline_layout, self.cores
        row, is_first = lane_line.view_line.row, lane_line.line_in_core == 0
        core, cpus = cores.name(row, self.settings.order) if is_first else "", ""
        if not layout.has_own_lines or self._field.is_per_core:
            cpus = cores.cpu_lists[row] if is_first else ""
        elif lane_line.line_in_lane == 0:
            cpus = str(cores.rows[row].cpus[lane_line.lanes[0]])
        cpu_text = fit("  " + cpus, layout.cpus_width) if layout.cpus_width else ""
        return f"{core:>{layout.core_width}}{cpu_text}"

    def _numbers(self, lane_line: LaneLine) -> Iterator[Run]:
        core = self.cores.rows[lane_line.view_line.row]
        interval, column = self.interval, self._column()
        for lane in lane_line.lanes:
            row = core.positions[lane]
            value = self._values_now[row]
            is_quiet = self._field.unit == "ratio" and value < strips.MAX_QUIET_SHARE
            text, style = column.cell(
                value,
                "dim" if is_quiet else "text",
                online=bool(interval.online[row]) or not isnan(value),
                resting=self._field.while_running and bool(interval.is_at_rest[row]),
                doubted=self._is_suspect[row],
            )
            yield column.pad(text), style
        missing_count = self._timeline_layout.numbers_per_line - len(lane_line.lanes)
        yield " " * NUMBER_WIDTH * missing_count, "text"


# --- Lanes: one field of each CPU over time, as cells in the colours of the heat ramp or, with room
# for several lines, as areas.

_KERNEL_FIELDS = "system", "kernel_cycles", "kernel_instructions"
_AREAS = {"ipc": "ipc", **dict.fromkeys(_KERNEL_FIELDS, "kernel")}
"""Colours of tall lanes by field, as in the overview's charts; others have that of user time."""


def read_lanes(session: Session, field: Number, axis: Axis, cores: Sequence[Core]) -> list[Floats]:
    """Returns the values of a field, (lanes, bins), of each core. Reading all visible cores at once
    takes little longer than reading one."""
    if field.is_per_core:
        states = session.past.states([core.cpus for core in cores], axis.edges)
        return [*states[:, :, [STATES.index(field.key)]].transpose(1, 2, 0)]
    cpus = [cpu for core in cores for cpu in core.positions]
    lanes = session.past.metric(field.key, cpus, axis.edges).T
    ends = accumulate(len(core.positions) for core in cores)
    return [lanes[end - len(core.positions) : end] for core, end in zip(cores, ends, strict=True)]


def flat_lane(levels: Ints, *, ascii_: bool) -> list[Run]:
    """Returns a line with one lane in whole cells, or with two lanes in the halves of cells, from
    their steps on the heat ramp, (lanes, bins)."""
    cells = strips.half_cells(ascii_=ascii_)
    steps = levels - strips.UNKNOWN_LEVEL
    codes = strips.pack_step_pairs(steps[0], steps[-1])
    return strips.join_cells([cells[code] for code in codes.tolist()])
