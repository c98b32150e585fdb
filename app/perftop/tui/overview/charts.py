"""The overview of a small machine: a chart of the history of each CPU or core. `ChartPage` makes
the lines, and maps lines to cores and cells to times. `ChartLayout` says how many charts fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import Literal

from textual import events

from perftop.base.text import ClockUnit, clock_time
from perftop.draw import theme
from perftop.draw.charts import Glyphs
from perftop.draw.columns import Run, cut
from perftop.draw.strips import merge_runs, overlay, restyle_cells, width
from perftop.model.kinds import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview import chart_numbers, clock_columns
from perftop.tui.overview.chart_cells import (
    MIN_WIDTH_FOR_SUMS,
    SUMS_WIDTH,
    ChartDrawer,
    TaskLanes,
    UnitCharts,
)
from perftop.tui.overview.chart_numbers import (
    CAUSES_WIDTH,
    LEFT_WIDTH,
    MIN_WIDTH_FOR_CAUSES,
    RIGHT_WIDTH,
    SCALE_WIDTH,
    WIDE_LEFT_WIDTH,
    ChartUnit,
    UnitReader,
    UnitValues,
    chart_units,
    lowered_metric_name,
)
from perftop.tui.panels.panels import MIN_HEIGHT, PaneledView
from perftop.tui.shared import time_axis
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.row_numbers import RowReader, session_clock_unit
from perftop.tui.shared.time_axis import Axis, Tick
from perftop.tui.shared.verdict import is_past
from perftop.tui.shared.view_settings import ViewSettings

_GAP = 4
"""Cells between the charts of states and of the clock, and after the numbers of the clock."""
CURSOR_STROKE = "│"
_STATE_LEGENDS: tuple[Sequence[Run], ...] = (
    (("above ", "dim"), ("lp0", "lp0"), ("  below ", "dim"), ("lp1", "lp1"),
     ("  round the middle ", "dim"), ("both", "both"), ("  dots ", "dim"), ("neither", "text")),
    (("above ", "dim"), ("lp0", "lp0"), ("  below ", "dim"), ("lp1", "lp1"),
     ("  middle ", "dim"), ("both", "both")),
    (("lp0", "lp0"), (" / ", "dim"), ("lp1", "lp1"), ("  ", "dim"), ("both", "both")),
)  # fmt: skip


class ChartPage:
    def __init__(
        self, session: Session, cores: Cores, positions: Sequence[int] | None = None
    ) -> None:
        """`positions`: positions of the cores in the session's lists; None: all cores of `cores`,
        of which a bar marks the selected one."""
        self._session, self._cores, self._positions = session, cores, positions
        # The chart of SMT states shows at most two threads.
        self.has_counters = bool(session.evaluator.variants["busy_hz"]) and cores.max_threads <= 2
        self._reader, self._episodes = RowReader(session, cores), RowEpisodes(session)
        self._layout: ChartLayout | None = None
        self._drawer: ChartDrawer | None = None
        self._order: Sequence[int] = ()
        self._units: list[ChartUnit] = []
        self._lanes: TaskLanes | None = None
        self._inputs: object = None
        """The inputs, apart from the history, from which the charts and axes were drawn."""
        self._unit_charts: list[UnitCharts] = []
        self._axis_lines: list[list[list[Run]]] = []
        self.lines: list[list[Run]] = []
        self.rows: list[int | None] = []
        """The index in `Cores.rows` of the core that each line shows, or None. If there are two
        columns of charts, it is that of the left column."""
        self.right_rows: list[int | None] = []
        """Like `rows`, for the right of two columns of charts."""

    def choose_layout(self, height: int, width: int) -> bool:
        """Chooses the layout for this size. Returns whether charts fit."""
        session, cores, positions = self._session, self._cores, self._positions
        self._layout = None
        can_be_drawn = positions is not None or cores.max_threads <= 2
        if can_be_drawn and cores.rows and session.history is not None:
            shown_cores = session.selected_cores() if positions is None else positions
            cpu_counts = [len(session.cores[position]) for position in shown_cores]
            charts = len(cpu_counts) if self.has_counters else sum(cpu_counts)
            packages = cores.package_count if positions is None else 1
            self._layout = chart_layout(
                charts, height, width, packages=packages, counted=self.has_counters,
                l3_count=clock_columns.heading_count(cores),
            )  # fmt: skip
        return self._layout is not None

    @property
    def lanes(self) -> TaskLanes:
        """The tasks that ran on the drawn units."""
        assert self._lanes is not None
        return self._lanes

    @property
    def width(self) -> int:
        """Width of the charts, with the texts beside them, in cells."""
        return self._layout.width if self._layout else 0

    @property
    def panel_height(self) -> int:
        """Number of lines left below the charts."""
        return self._layout.panel_lines if self._layout else 0

    def make_lines(
        self, interval: Interval, order: Sequence[int], settings: ViewSettings, glyphs: Glyphs
    ) -> None:
        """Makes the lines for this interval. `order`: indexes in `Cores.rows`, in the order in
        which the charts are drawn."""
        session, layout = self._session, self._layout
        assert layout is not None
        if self._drawer is None or order != self._order:
            self._order = order
            self._units = chart_units(self._cores, order, counted=self.has_counters)
            self._drawer = ChartDrawer(session, self._units, counted=self.has_counters)
            self._lanes = TaskLanes(session, self._units)
        now_ns = interval.time_ns if settings.pinned_ns is None else settings.pinned_ns
        past = self._drawer.history
        has_moved = past.read(
            layout.columns, settings.window_s, now_ns, is_past=is_past(session, interval)
        )
        episodes = time_axis.visible_episodes(past.axis, session)
        shown_episodes = [(id(e), e.end_ns) for e in (*episodes, *session.marks)]
        span_ns = settings.range_ns or past.axis.window_ns(settings.window_s)
        inputs = (
            layout, glyphs, self._drawer, shown_episodes, span_ns, settings.grouping, settings.cpu,
        )  # fmt: skip
        if has_moved or inputs != self._inputs:
            self._inputs = inputs
            rows = layout.area_rows, layout.rows, layout.rate_rows
            causes = [*episodes, *session.ramps.unfinished_climbs()]
            self._unit_charts = self._drawer.draw(causes, *rows, glyphs, span_ns)
            if layout.lane_rows or self._positions is not None:
                self.lanes.read(past.axis, self._drawer.busy_shares(), span_ns, settings.grouping)
            if layout.lane_rows:
                tasks = (self.lanes.queue_lines(layout.queue_rows, glyphs),
                         self.lanes.lane_lines(layout.lane_rows, glyphs))  # fmt: skip
                for unit_charts, queue, lane in zip(self._unit_charts, *tasks, strict=True):
                    unit_charts.area_lines = [*queue, *unit_charts.area_lines, *lane]
            for i, unit_charts in enumerate(self._unit_charts):
                if layout.has_causes:
                    unit_charts.cause_lines = chart_numbers.lost_time_lines(
                        unit_charts.lost_s, (span_ns[1] - span_ns[0]) / 1e9, layout.rows,
                        colour=glyphs in {"colour", "sixteen"},
                    )  # fmt: skip
                self._add_scale_and_sums(layout, unit_charts, i, settings, glyphs)
            dot_axes = [replace(past.axis, cell_columns=2)] if layout.has_counters else []
            axes = [(axis, time_axis.ticks(axis, session.unix)) for axis in (past.axis, *dot_axes)]
            last_unit = self._units[-1]
            self._axis_lines = [
                self._make_axis(layout, unit, episodes, axes, last=unit is last_unit)
                if layout.has_own_axes or unit is last_unit else []
                for unit in self._units
            ]  # fmt: skip
        clock = session_clock_unit(session, settings.units, ghz_if_unknown=True)
        self._episodes.read(interval)
        reader = UnitReader(self._reader.read(interval), self._units, clock, self._episodes)
        self.lines, self.rows = [], []
        if layout.kind == "columns":
            self._add_columns(layout, reader, settings, clock, glyphs)
            return
        packages = [unit.package for unit in self._units]
        is_grouped, title_lines = _are_contiguous(packages), int(layout.kind == "titled")
        for i, (unit, unit_charts) in enumerate(zip(self._units, self._unit_charts, strict=True)):
            begins = i == 0 or (is_grouped and unit.package != packages[i - 1])
            if layout.heading_lines and begins:
                marker, name = reader.package_marker(unit.package), f" {unit.package_name}"
                heading = merge_runs([(" ", "text"), marker, (name, "bright")], layout.left_width)
                rule: list[Run] = [(theme.RULE * (layout.width - layout.left_width - 1), "rule")]
                heading += rule if i else self._legend(layout, clock.name, glyphs)
                self._add(None, [heading])
            values = reader.unit_values(unit, is_selected=self._is_selected(unit, settings))
            if title_lines:
                size = layout.left_width + layout.columns
                title = chart_numbers.title_runs(values, size, colour=glyphs == "colour")
                lines = [[*title, *unit_charts.title_end], *unit_charts.area_lines]
            else:
                lines = _lines_with_numbers_beside(layout, values, unit_charts)
            lines[title_lines:] = self._draw_cursor(lines[title_lines:], settings)
            lines += self._axis_lines[i]
            if unit is not self._units[-1]:
                self._add(unit.row, lines)
                self._add(None, [[]] * layout.gap_lines)
                continue
            lines[-1] = self._draw_label(lines[-1], settings)
            self._add(unit.row, lines)

    def _is_selected(self, unit: ChartUnit, settings: ViewSettings) -> bool:
        return self._positions is None and settings.cpu in self._cores.rows[unit.row].cpus

    def _add_scale_and_sums(
        self, layout: ChartLayout, charts: UnitCharts, i: int, settings: ViewSettings,
        glyphs: Glyphs,
    ) -> None:  # fmt: skip
        """Adds the sums of tasks to the area of unit `i` and, below a title, the scale."""
        unit, lanes, gap = self._units[i], self.lanes, (" " * _GAP, "text")
        if layout.kind == "titled":
            is_selected = self._is_selected(unit, settings)
            bar = (chart_numbers.SELECTION_BAR, "key") if is_selected else (" ", "text")
            marks = chart_numbers.scale_marks(layout.area_rows, layout.queue_rows)
            scale = [(f"{mark} ", "faint") for mark in marks]
            scale += [(f"{'' if row else 'who':>{SCALE_WIDTH - 2}} ", "dim")
                      for row in range(layout.lane_rows)]  # fmt: skip
            charts.area_lines = [[bar, mark, *area] for mark, area in zip(
                scale, charts.area_lines, strict=True)]  # fmt: skip
        if layout.has_sums:
            window = f"  sum of {lanes.window_s(i):.1f} s "
            rule = theme.RULE * (SUMS_WIDTH - len(unit.name) - len(window))
            charts.title_end = [gap, (unit.name, "bright"), (window, "dim"), (rule, "rule")]
            charts.area_lines = [[*area, gap, *part] for area, part in zip(
                charts.area_lines, lanes.sum_lines(i, layout.rows, glyphs), strict=True)
            ]  # fmt: skip

    def _add_columns(
        self, layout: ChartLayout, reader: UnitReader, settings: ViewSettings, clock: ClockUnit,
        glyphs: Glyphs,
    ) -> None:  # fmt: skip
        """Adds the lines of two columns of charts."""
        size, half = clock_columns.column_width(layout.width), (len(self._units) + 1) // 2
        self._add(None, [clock_columns.legend_line(clock, layout.width, glyphs)])
        groups = [clock_columns.group_of(self._cores, unit.row) for unit in self._units]
        is_grouped = _are_contiguous(groups)
        sides: list[tuple[list[list[Run]], list[int | None]]] = []
        for units_of_side in (range(half), range(half, len(self._units))):
            lines, rows = list[list[Run]](), list[int | None]()
            for i in units_of_side:
                unit, begins = self._units[i], i == units_of_side[0] or groups[i] != groups[i - 1]
                if begins and is_grouped:
                    units = [self._units[k] for k in units_of_side if groups[k] == groups[i]]
                    lines.append(clock_columns.group_heading(self._cores, units, reader, size))
                elif i != units_of_side[0]:
                    lines += [[]] * layout.gap_lines
                rows += [None] * (len(lines) - len(rows))
                is_selected = settings.cpu in self._cores.rows[unit.row].cpus
                values = reader.unit_values(unit, is_selected=is_selected)
                lines += clock_columns.unit_lines(values, self._unit_charts[i], layout.rows)
                rows += [unit.row] * layout.rows
            sides.append((lines, rows))
        (left, left_rows), (right, right_rows) = sides
        for a, b, row, right_row in zip_longest(left, right, left_rows, right_rows):
            line = [*merge_runs(a or [], size), (" " * clock_columns.GAP, "text"), *(b or [])]
            if row is not None or right_row is not None:
                (line,) = self._draw_cursor([line], settings)
            self._add(row, [line])
        self.right_rows = [None, *right_rows]
        last_lines = self._axis_lines[-1]
        self._add(None, [*last_lines[:-1], self._draw_label(last_lines[-1], settings)])

    def row_at(self, x: int, y: int) -> int | None:
        """Returns the index in `Cores.rows` of the core at cell `x` of line `y`; None if there is
        none."""
        layout = self._layout
        if layout is None or not 0 <= y < len(self.rows):
            return None
        if layout.kind == "columns" and x > clock_columns.column_width(layout.width):
            return self.right_rows[y] if y < len(self.right_rows) else None
        return self.rows[y]

    def chart_cells(self) -> list[tuple[int, int, int]]:
        """Returns, for each of the charts side by side, its first cell, its width in cells, and the
        number of columns of time in each of its cells."""
        layout = self._layout
        assert layout is not None
        if layout.kind == "columns":
            right = clock_columns.column_width(layout.width) + clock_columns.GAP
            return [(x + layout.left_width, layout.chart_width, 2) for x in (0, right)]
        spans = [(layout.left_width, layout.columns, 1)]
        if layout.has_counters:
            x = layout.left_width + layout.columns + _GAP
            spans.append((x, layout.chart_width, 2))
            if layout.has_rates:
                spans.append((x + layout.chart_width + layout.clock_right + _GAP - 1,
                              layout.chart_width, 2))  # fmt: skip
        return spans

    def time_at(self, x: int, y: int) -> int | None:
        """Returns the time (monotonic ns) that cell `x` of line `y` shows; None outside charts."""
        if self._drawer is None or self.row_at(x, y) is None:
            return None
        axis = self._drawer.history.axis
        for first, cells, cell_columns in self.chart_cells():
            column = (x - first + 1) * cell_columns - 1
            if 0 <= x - first < cells and column >= axis.columns - axis.known_columns:
                return min(axis.now_ns, axis.end_ns - (axis.columns - 1 - column) * axis.bin_ns)
        return None

    def _draw_cursor(self, lines: list[list[Run]], settings: ViewSettings) -> list[list[Run]]:
        """Returns the lines of a chart with the time cursor, if there is one; cells outside the
        selected ranges are faded."""
        if settings.cursor_ns is None or self._drawer is None:
            return lines
        axis, faded = self._drawer.history.axis, theme.FADED_PREFIX
        for first, cells, cell_columns in reversed(self.chart_cells()):
            ranges = settings.ranges_ns.values()
            for begin, end in time_axis.cells_outside(axis, cells, cell_columns, ranges):
                lines = [restyle_cells(runs, first + begin, first + end, faded) for runs in lines]
            x = first + axis.bin_at(settings.cursor_ns) // cell_columns
            if first <= x < first + cells:
                lines = [overlay(line, x, [(CURSOR_STROKE, "bright")]) for line in lines]
        return lines

    def _draw_label(self, line: list[Run], settings: ViewSettings) -> list[Run]:
        """Returns the line of times with the time of the cursor and the selected ranges in place of
        other times."""
        if settings.cursor_ns is None or self._drawer is None or self._layout is None:
            return line
        axis = self._drawer.history.axis
        first, cells, cell_columns = self.chart_cells()[0]
        axis = replace(axis, cell_columns=cell_columns)
        text = f" {clock_time(self._session.unix(settings.cursor_ns))} "
        x = first + axis.bin_at(settings.cursor_ns) // cell_columns - len(text) // 2
        label_starts = [max(first, min(first + cells - len(text), x))]
        used, brackets = set[int](), list[tuple[int, Run]]()
        named_ranges = settings.ranges_ns.items() if self._layout.has_times_line else ()
        for name, range_ns in named_ranges:
            start_ns, end_ns = range_ns
            begin, end = (max(0, min(cells, (axis.bin_at(ns) + 1) // cell_columns))
                          for ns in range_ns)  # fmt: skip
            size = max(end - begin, len("├A┤"))
            wordings = f" {name} {(end_ns - start_ns) / 1e9:.1f} s ", f" {name} ", name
            words = next(words for words in wordings if len(words) + 2 <= size)
            begin = first + min(begin, cells - size)
            style = "key" if range_ns == settings.range_ns else "dim"
            brackets.append((begin, (f"├{words:─^{size - 2}}┤", style)))
            used |= {*range(begin - 1, begin + size + 1)}
            if end_ns == settings.cursor_ns:  # the time is written beside the bracket
                label_starts = [begin + size + 1, begin - len(text) - 1]
        for is_over_times in (True, False):  # a bracket removes times, but no other bracket
            for x, bracket in brackets:
                line = overlay(line, x, [bracket], whole_words=is_over_times)
        for x in label_starts:
            is_inside = first <= x <= first + cells - len(text)
            if is_inside and used.isdisjoint(range(x, x + len(text))):
                return overlay(line, x, [(text, "label")], whole_words=True)
        return line

    def _add(self, row: int | None, lines: list[list[Run]]) -> None:
        self.lines += lines
        self.rows += [row] * len(lines)

    def _legend(self, layout: ChartLayout, clock_unit: str, glyphs: Glyphs) -> list[Run]:
        """Returns the legend of the charts below the heading of the first package."""
        is_pair = any(unit.is_pair for unit in self._units)
        lane: list[Run] = [("   lowest: who runs", "dim")] if layout.lane_rows else []
        if is_pair:
            legends = ([*legend, *end] for legend in _STATE_LEGENDS for end in (lane, []))
            legend = next((runs for runs in legends if width(runs) <= layout.columns), [])
        else:
            chars = theme.USER, theme.USER if glyphs == "colour" else theme.KERNEL
            legend = [(chars[0], "user-9"), (" user   ", "dim"),
                      (chars[1], "kernel-9"), (" kernel", "dim")]  # fmt: skip
            if self._session.hello.virtualisation is not None:
                legend += [("   ", "text"), (theme.STEAL, "over"), (" steal, from above", "dim")]
            legend += lane if width([*legend, *lane]) <= layout.columns else []
        if not layout.has_counters:
            return legend
        words = f"clock under its ceiling, {clock_unit}"
        room = layout.chart_width + layout.clock_right
        if len(words) > room:
            words = f"clock, {clock_unit}"
        clock = merge_runs([(words, "dim")], room)
        runs = [*merge_runs(legend, layout.columns), (" " * _GAP, "text"), *clock]
        if layout.has_rates:
            wordings = ("IPC of the busier or losing thread", "IPC of one thread")
            words = next((w for w in wordings if is_pair and len(w) <= layout.chart_width), "IPC")
            runs += [(" " * (_GAP - 1), "text"), *merge_runs([(words, "dim")], layout.chart_width)]
        return runs

    def _make_axis(
        self, layout: ChartLayout, unit: ChartUnit, episodes: list[Episode],
        axes: Sequence[tuple[Axis, list[Tick]]], *, last: bool,
    ) -> list[list[Run]]:  # fmt: skip
        """Returns the line with the axes of a unit's charts and, below the last unit, the line of
        times. `axes`: axes whose cells have one and, if clocks are counted, two columns, with their
        ticks. An axis shows the episodes that make the number of its chart worse, or, with two
        columns of charts, the episodes on the cores of its column."""

        def on_units(units_of_axis: Sequence[ChartUnit]) -> list[Episode]:
            cpus = {cpu for unit in units_of_axis for cpu in unit.cpus}
            return [e for e in episodes if not cpus.isdisjoint(e.cpus)]

        spans = self.chart_cells()
        if layout.kind == "columns":
            half = (len(self._units) + 1) // 2
            shown = [on_units(self._units[:half]), on_units(self._units[half:])]
        else:
            axis_episodes = on_units([unit] if layout.has_own_axes else self._units)
            right_names = ("clock", "IPC")[: len(spans) - 1]
            shown = [[e for e in axis_episodes if lowered_metric_name(e) not in right_names]]
            for name in right_names:
                shown.append([e for e in axis_episodes if lowered_metric_name(e) == name])
        line, times, end = list[Run](), list[Run](), 0
        for i, (first, cells, cell_columns) in enumerate(spans):
            axis, ticks = axes[cell_columns - 1]
            marks = [] if i else self._session.marks
            blank: Run = (" " * (first - end), "text")
            line += [blank, *time_axis.tick_line(
                axis, shown[i], ticks, times_inside=not layout.has_times_line, marks=marks
            )]  # fmt: skip
            times += [blank, *time_axis.times_line(axis, ticks)]
            end = first + cells
        return [line, times] if last and layout.has_times_line else [line]


def _are_contiguous(groups: Sequence[object]) -> bool:
    """Returns whether equal groups are adjacent, so that each group needs only one heading."""
    return sum(a != b for a, b in pairwise(groups)) < len({*groups})


def _lines_with_numbers_beside(
    layout: ChartLayout, values: UnitValues, charts: UnitCharts
) -> list[list[Run]]:
    rows = layout.rows
    left = chart_numbers.left_lines(values, rows)
    if not layout.has_counters:
        return [[*block, *area] for block, area in zip(left, charts.area_lines, strict=True)]
    right = chart_numbers.numbers_beside_clock(
        values, (charts.low_hz, charts.high_hz), rows, ipc=not layout.has_rates
    )
    lines = [
        [*block, *area, (" " * _GAP, "text"), *clock, *numbers]
        for block, area, clock, numbers in zip(
            left, charts.area_lines, charts.clock_lines, right, strict=True
        )
    ]
    if layout.has_causes:
        lines = [[*line, *cause] for line, cause in zip(lines, charts.cause_lines, strict=True)]
    if layout.has_rates:
        rate: list[list[Run]] = [*charts.rate_lines]
        if len(rate) < rows:
            size = layout.chart_width
            names = [cut(name, size) for name in values.tasks]
            rate = [merge_runs(chart_numbers.task_runs(names, size), size), *rate]
        beside_rate = chart_numbers.numbers_beside_rate(values, rows)
        for line, area, numbers in zip(lines, rate, beside_rate, strict=True):
            line += [(" " * (_GAP - 1), "text"), *area, *numbers]
    return lines


class ChartedView(PaneledView):
    """A view with charts. A click in a chart picks a moment, a drag picks a range."""

    _drag_start: tuple[int, int] | None = None
    """The cell of the widget in which the mouse button was pressed."""
    shown_charts: ChartPage | None = None
    """The charts at the top of the scrolling lines; None if there are none."""

    def _time_at(self, x: int, y: int) -> int | None:
        """Returns the time (monotonic ns) that a cell of the widget shows; None outside charts."""
        charts, line = self.shown_charts, self.line_at(y)
        return None if charts is None or line is None else charts.time_at(x, line)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._drag_start = event.x, event.y

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Picks the clicked moment, or the range over which the mouse was dragged."""
        start, self._drag_start = self._drag_start, None
        first_ns = None if start is None else self._time_at(*start)
        last_ns = self._time_at(event.x, event.y)
        if first_ns is not None and last_ns is not None:
            self.post_message(self.TimePicked(min(first_ns, last_ns), max(first_ns, last_ns)))


# --- how many charts fit, and their height


MAX_CHARTS = 16
"""Maximum number of charts. A machine that needs more is shown as a grid."""
MAX_TITLED_CHARTS = 4
"""Maximum number of charts that have a line of numbers above each. If there are more, the numbers
are beside the charts."""
MIN_WIDTH = 60
"""Minimum width of a screen with charts, in cells."""
MIN_WIDTH_FOR_RATES = 112
"""Minimum width of a screen with an IPC chart beside the clock chart, in cells."""
_MIN_HEIGHT_FOR_GAPS, _MIN_HEIGHT_FOR_TIMES = 28, 22
"""Minimum lines of a view with gaps between charts, and with a separate line of times."""
_MAX_ROWS = ((1, 12), (2, 10), (4, 6), (8, 4), (MAX_CHARTS, 3))
"""Pairs (charts, rows): up to `charts` charts have at most `rows` rows each, including their lanes,
or more in a view with more than _GROWTH_HEIGHT lines."""
_MAX_ROWS_IF_LOW = ((1, 7), (2, 5), (4, 2))
"""Like _MAX_ROWS, for a view with fewer than _MIN_HEIGHT_FOR_TIMES lines."""
_LANE_ROWS = (10, 4), (4, 2), (2, 1)
"""Pairs (rows, lane rows): of a chart with at least `rows` rows, the lane has `lane rows`."""
_QUEUE_ROWS = (10, 2), (4, 1), (2, 0)
"""Pairs (rows, queue rows): of a chart with at least `rows` rows, waiting tasks have `queue
rows`."""
_GROWTH_HEIGHT = 42
"""Number of lines of a view beyond which charts become higher."""
_GROWTH_SHARE = 0.75
"""Share of the lines beyond _GROWTH_HEIGHT that charts get; the panels get the rest."""


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """A layout of charts, axes and panels."""

    width: int
    has_counters: bool
    """Whether clocks are counted and have charts."""
    kind: Literal["titled", "beside", "columns"]
    """Whether numbers are above the charts, beside them, or in two columns of clock charts."""
    rows: int
    """Lines of each chart, including its lane."""
    gap_lines: int
    """Blank lines between charts."""
    has_own_axes: bool
    """Whether each chart has an axis; else only the last chart has one."""
    has_times_line: bool
    """Whether times have a line below the axis; else they are written into the axis."""
    blank_lines: int
    """Blank lines before the panels."""
    heading_lines: int
    """Number of heading lines, which name packages; the first also has the legend."""
    panel_lines: int
    """Number of lines left for the panels."""
    lane_rows: int = 0
    """Number of lines that show tasks, below each chart of states or of CPU time."""
    queue_rows: int = 0
    """Number of lines that show waiting tasks, above each chart of CPU time."""
    clock_right: int = RIGHT_WIDTH
    """Width of the numbers, and of the lost seconds if shown, right of a clock chart, in cells."""

    @property
    def area_rows(self) -> int:
        """Lines of each chart of states or of CPU time; 0 if there are only clocks."""
        if self.kind == "columns":
            return 0
        return self.rows - self.lane_rows - self.queue_rows

    @property
    def has_sums(self) -> bool:
        """Whether the sums of tasks are shown to the right of the charts."""
        return not self.has_counters and self.rows >= 4 and self.width >= MIN_WIDTH_FOR_SUMS

    @property
    def has_causes(self) -> bool:
        """Whether the seconds lost by cause are shown beside each clock chart."""
        return self.clock_right > RIGHT_WIDTH

    @property
    def left_width(self) -> int:
        """Width of the texts to the left of a chart, in cells."""
        if self.kind == "beside":
            return WIDE_LEFT_WIDTH if self.rows == 2 else LEFT_WIDTH
        return SCALE_WIDTH if self.kind == "titled" else clock_columns.NAME_WIDTH

    @property
    def has_rates(self) -> bool:
        """Whether there is an IPC chart beside each clock chart."""
        return self.has_counters and self.kind == "beside" and self.width >= MIN_WIDTH_FOR_RATES

    @property
    def rate_rows(self) -> int:
        """Lines of an IPC chart, above which there is a line of tasks if there are more than two
        rows; 0 if there is no IPC chart."""
        return 0 if not self.has_rates else self.rows - 1 if self.rows > 2 else self.rows

    @property
    def chart_width(self) -> int:
        """Width of a chart of the clock or the IPC, in cells."""
        if self.kind == "columns":
            return clock_columns.chart_width(self.width)
        room = self.width - self.left_width - self.clock_right - _GAP
        return (room - RIGHT_WIDTH - _GAP + 2) // 4 if self.has_rates else room // 3

    @property
    def columns(self) -> int:
        """Columns of time of each chart. A cell of a clock or IPC chart has two columns."""
        if self.has_counters:
            return 2 * self.chart_width
        return self.width - self.left_width - 1 - (SUMS_WIDTH + _GAP if self.has_sums else 0)


def chart_layout(
    chart_count: int, height: int, width: int, *, packages: int, counted: bool, l3_count: int = 1
) -> ChartLayout | None:
    """Returns the most spacious layout for this many charts; None if they do not fit. `counted`:
    whether clocks are counted; charts then show SMT states, for which they need an even number of
    lines. `l3_count`: number of headings of L3s in a column of charts."""
    if not 0 < chart_count <= MAX_CHARTS or width < MIN_WIDTH:
        return None
    if counted and chart_count >= clock_columns.MIN_CORES and width >= clock_columns.MIN_WIDTH:
        return _two_column_layout(chart_count, height, width, l3_count)
    beside = counted or chart_count > MAX_TITLED_CHARTS
    kind: Literal["titled", "beside"] = "beside" if beside else "titled"
    headings = packages if beside else 0
    table = _MAX_ROWS_IF_LOW if height < _MIN_HEIGHT_FOR_TIMES else _MAX_ROWS
    max_rows = next((rows for max_charts, rows in table if chart_count <= max_charts), 0)
    max_rows += int(_GROWTH_SHARE * max(0, height - _GROWTH_HEIGHT)) // chart_count
    for rows in range(max_rows, 1, -1):
        lanes = next(lane_rows for min_rows, lane_rows in _LANE_ROWS if rows >= min_rows)
        lanes -= counted and (rows - lanes) % 2
        queue = 0 if beside else next(lines for min_rows, lines in _QUEUE_ROWS if rows >= min_rows)
        lanes -= queue if lanes > 1 else 0
        has_causes = counted and rows > 2 and width >= MIN_WIDTH_FOR_CAUSES
        for gap, axes, times, blank in ((1, not beside, True, 1), (0, False, True, 1),
                                        (0, False, False, 0)):  # fmt: skip
            min_height = _MIN_HEIGHT_FOR_GAPS if gap else _MIN_HEIGHT_FOR_TIMES if times else 0
            used = headings + chart_count * (rows + (not beside)) + (chart_count - 1) * gap
            used += (chart_count if axes else 1) + times + blank
            min_panels = 8 if gap else 5 if times else 4
            if height >= min_height and height - used >= min_panels:
                return ChartLayout(
                    width, counted, kind, rows, gap, axes, times, blank, headings, height - used,
                    lanes, queue, RIGHT_WIDTH + CAUSES_WIDTH * has_causes,
                )  # fmt: skip
    return None


def _two_column_layout(charts: int, height: int, width: int, headings: int) -> ChartLayout | None:
    """Returns the layout of clock charts in two columns; None if they do not fit."""
    lines = (charts + 1) // 2
    for gap in (1, 0):
        room = height - 3 - headings - gap * (lines - headings) - MIN_HEIGHT
        if (rows := room // lines) >= 3:
            rows = min(rows, 3 + int(_GROWTH_SHARE * max(0, height - _GROWTH_HEIGHT)) // lines)
            used = 3 + headings + gap * (lines - headings) + lines * rows
            return ChartLayout(
                width, True, "columns", rows, gap, has_own_axes=False, has_times_line=True,
                blank_lines=0, heading_lines=headings, panel_lines=height - used,
            )  # fmt: skip
    return None
