"""The overview of a small machine: a chart of the history of each CPU or core. `ChartPage` creates
the lines, and maps lines to cores and cells to times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, zip_longest

from textual import events

from perftop.base.text import ClockUnit, clock_time
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import merge_runs, overlay
from perftop.model.kinds import KINDS, Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview import chart_numbers
from perftop.tui.overview.chart_cells import (
    GAP,
    SUMS_WIDTH,
    ChartDrawer,
    ChartLayout,
    Lines,
    UnitCharts,
    chart_layout,
)
from perftop.tui.overview.chart_numbers import ChartUnit, UnitValues
from perftop.tui.overview.task_lanes import TaskLanes
from perftop.tui.shared import time_axis
from perftop.tui.shared.cores import Cores, package_name
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.panels import PaneledView
from perftop.tui.shared.row_numbers import RowNumbers, ViewSettings, session_clock_unit
from perftop.tui.shared.time_axis import Axis

CURSOR_STROKE = "│"
COLOURED_GLYPHS = frozenset({"colour", "sixteen"})
_EPISODE_SIGNS = frozenset(kind.marker for kind in KINDS.values())
GroupKey = tuple[int | None, int | None]
"""Package and L3."""


class ChartPage:
    def __init__(
        self,
        session: Session,
        cores: Cores,
        settings: ViewSettings,
        positions: Sequence[int] | None = None,
    ) -> None:
        """`positions`: positions of the cores in the session's lists; None: all cores of `cores`,
        of which a bar marks the selected one."""
        self._session, self._cores, self._settings = session, cores, settings
        self._positions = positions
        # The chart of SMT states shows at most two threads.
        self.has_counters = bool(session.evaluator.variants["busy_hz"]) and cores.max_threads <= 2
        self.layout: ChartLayout | None = None
        """The layout that was chosen last; None if the charts do not fit."""
        self._order: Sequence[int] | None = None
        self._units: list[ChartUnit] = []
        self._drawer: ChartDrawer
        self.lanes: TaskLanes
        """The tasks on the units. These two do not exist before the first lines."""
        self._inputs: object = None
        """The inputs, apart from the history, from which the charts and axes were drawn."""
        self._unit_charts: list[UnitCharts] = []
        self._legend: list[Run] = []
        self._axis_lines: dict[int, list[list[Run]]] = {}
        """The axis, and the line of times if there is one, by index of the unit above them."""
        self.lines: list[list[Run]] = []
        self.rows: list[tuple[int | None, ...]] = []
        """The index in `Cores.rows` of the core that each side of each line shows, or None."""

    def choose_layout(self, height: int, width: int, min_panel_lines: int = 4) -> bool:
        """Chooses the layout for this size. Returns whether charts fit."""
        session, cores, positions = self._session, self._cores, self._positions
        self.layout = None
        can_be_drawn = positions is not None or cores.max_threads <= 2
        if can_be_drawn and cores.rows:
            shown_cores = session.selected_cores() if positions is None else positions
            cpu_counts = [len(session.cores[position]) for position in shown_cores]
            charts = len(cpu_counts) if self.has_counters else sum(cpu_counts)
            rows = range(len(cores.rows)) if positions is None else ()
            groups, clocks = [self._group(row) for row in rows], self.has_counters
            self.layout = chart_layout(
                charts, height, width, groups, min_panel_lines, clocks=clocks
            )
        return self.layout is not None

    @property
    def axis(self) -> Axis:
        return self._drawer.history.axis

    def make_lines(self, interval: Interval, order: Sequence[int]) -> None:
        """Draws the lines for this interval. `order`: indexes in `Cores.rows`, as drawn."""
        session, layout, settings = self._session, self.layout, self._settings
        assert layout is not None
        if order != self._order:
            self._order = order
            self._units = chart_numbers.chart_units(self._cores, order, clocks=self.has_counters)
            self._drawer = ChartDrawer(session, self._units, settings, clocks=self.has_counters)
            self.lanes = TaskLanes(session, self._units)
        has_moved = self._drawer.history.update(layout.columns, interval, settings)
        clock = session_clock_unit(session, settings.units, ghz_if_unknown=True)
        episodes = time_axis.visible_episodes(self.axis, session)
        shown_episodes = [(id(e), e.end_ns) for e in (*episodes, *session.marks)]
        choices = settings.glyphs, settings.grouping, settings.cpu, settings.window_s
        ranges_ns = settings.range_ns, settings.ranges_ns
        inputs = layout, self._drawer, shown_episodes, choices, ranges_ns, clock
        if has_moved or inputs != self._inputs:
            self._inputs = inputs
            self._draw_charts(layout, episodes, clock)
        self._episodes = RowEpisodes(session, interval)
        numbers, running = RowNumbers(session, self._cores, interval), self._episodes.running
        values = chart_numbers.unit_values(numbers, self._units, clock, running)
        sides = [self._side_lines(layout, indexes, values) for indexes in self._sides(layout)]
        parts = [*zip_longest(*sides, fillvalue=(list[Run](), None))]
        self.rows = [tuple(row for _, row in line) for line in parts]
        self.lines, size, gap = [line[-1][0] for line in parts], layout.side_width, " " * GAP
        if len(sides) > 1:
            self.lines = [[*merge_runs(a, size), (gap, "text"), *b] for (a, _), (b, _) in parts]
        if self.has_counters:
            self.rows.insert(0, (None,) * layout.sides)
            self.lines.insert(0, self._legend)

    def _sides(self, layout: ChartLayout) -> list[range]:
        """Returns the indexes of the units of each side."""
        count = len(self._units)
        side_size = -(-count // layout.sides)
        return [range(first, min(first + side_size, count)) for first in range(0, count, side_size)]

    def _group(self, row: int) -> GroupKey:
        core = self._cores.rows[row]
        return core.package, core.l3

    # --- charts, redrawn only when the history or a setting changes

    def _draw_charts(self, layout: ChartLayout, episodes: list[Episode], clock: ClockUnit) -> None:
        """Draws the charts, the texts beside them that change only with them, and the axes, which
        show the episodes of the charts above them."""
        axis, settings, glyphs = self.axis, self._settings, self._settings.glyphs
        span_ns = self._drawer.span_ns
        causes = [*episodes, *self._session.ramps.unfinished_climbs()]
        self._unit_charts = self._drawer.draw(layout, causes, clock)
        queues = lanes = [Lines()] * len(self._units)
        if layout.lane_rows or self._positions is not None:
            self.lanes.update(axis, self._drawer.busy_shares(), span_ns, settings.grouping)
        if layout.queue_rows:
            queues = self.lanes.queue_lines(layout.queue_rows, glyphs)
        if layout.lane_rows:
            lanes = self.lanes.lane_lines(layout.lane_rows, glyphs, self._drawer.cuts)
        for i, (unit, charts) in enumerate(zip(self._units, self._unit_charts, strict=True)):
            is_marked = self._positions is None and settings.cpu in unit.core.cpus
            bar: Run = (chart_numbers.SELECTION_BAR, "key") if is_marked else (" ", "text")
            labels = [(f"+{task}", "faint") for task in range(len(queues[i]), 0, -1)]
            labels += charts.labels
            labels += [("" if row else "who", "dim") for row in range(len(lanes[i]))]
            left_runs = [(f"{label:>{layout.left_width - 2}} ", style) for label, style in labels]
            lines = zip(left_runs, [*queues[i], *charts.lines, *lanes[i]], strict=True)
            charts.lines = [[bar, left_run, *line] for left_run, line in lines]
            if layout.has_causes:
                span_s, has_colours = (span_ns[1] - span_ns[0]) / 1e9, glyphs in COLOURED_GLYPHS
                charts.lines_beside = chart_numbers.lost_time_lines(
                    charts.lost_s, span_s, layout.clock_rows, colour=has_colours
                )
            elif layout.has_sums:
                window = f"  sum of {self.lanes.window_s(i):.1f} s "
                rule = theme.RULE * (SUMS_WIDTH - len(unit.name) - len(window))
                gap = " " * (GAP + 1), "text"
                charts.title_end = [gap, (unit.name, "bright"), (window, "dim"), (rule, "rule")]
                sums = self.lanes.sum_lines(i, layout.rows, glyphs)
                charts.lines_beside = [[gap, *runs] for runs in sums]
        self._legend = chart_numbers.legend_line(clock, layout.width, colour=glyphs == "colour")
        margin: Run = " " * layout.left_width, "text"
        ticks, self._axis_lines = time_axis.ticks(axis, self._session.unix_s), {}
        has_times = layout.has_times_line
        for side in self._sides(layout):
            for i in side if layout.has_own_axes else side[-1:]:
                units = [self._units[k] for k in ((i,) if layout.has_own_axes else side)]
                cpus = {cpu for unit in units for cpu in unit.cpus}
                shown, inside = [e for e in episodes if not cpus.isdisjoint(e.cpus)], not has_times
                line = time_axis.tick_line(
                    axis, shown, ticks, times_inside=inside, marks=self._session.marks
                )
                self._axis_lines[i] = [[margin, *line]]
                if i == side[-1] and has_times:
                    self._axis_lines[i].append([margin, *time_axis.times_line(axis, ticks)])

    # --- lines, made at each refresh

    def _side_lines(
        self, layout: ChartLayout, indexes: range, values_of_units: Sequence[UnitValues]
    ) -> list[tuple[list[Run], int | None]]:
        """Returns the lines of one side, each with the row of the core that it shows."""
        lines, settings = list[tuple[list[Run], int | None]](), self._settings
        groups = [self._group(unit.row) for unit in self._units]
        # Each group needs only one heading if equal groups are adjacent.
        changes = sum(a != b for a, b in pairwise(groups))
        has_headings = 0 < changes < len({*groups})
        has_caches = len(self._cores.rows_by_group) > self._cores.package_count
        chart_width = layout.left_width + layout.columns
        rows, has_title, colour = layout.clock_rows, layout.has_title, settings.glyphs == "colour"
        for i in indexes:
            unit, charts = self._units[i], self._unit_charts[i]
            if has_headings and (i == indexes[0] or groups[i] != groups[i - 1]):
                members = [self._units[k] for k in indexes if groups[k] == groups[i]]
                package, l3 = groups[i]
                name = f"L3 {l3}" if has_caches and l3 is not None else package_name(package)
                running, size = self._episodes.running, layout.side_width
                heading = chart_numbers.group_heading(name, members, running, size)
                lines.append((heading, None))
            elif i != indexes[0]:
                lines += [([], None)] * layout.gap_lines
            values, charts_lines = values_of_units[i], [*charts.lines]
            if rows:
                numbers = chart_numbers.numbers_beside_clock(
                    values, charts.clock_ends_hz, rows, layout.clock_width, has_title=has_title
                )
                for row, runs in enumerate(numbers):
                    charts_lines[row] = [*charts_lines[row], *runs]
            for row, runs in enumerate(charts.lines_beside):
                charts_lines[row] = [*charts_lines[row], *runs]
            if has_title:
                title = chart_numbers.title_runs(values, chart_width, colour=colour)
                lines.append(([*title, *charts.title_end], unit.row))
            else:
                name = unit.name.partition(" ")[2]
                left_runs = [values.marker, (f"{name:>4}", "bright")]
                charts_lines[0] = overlay(charts_lines[0], 1, left_runs)
            axis_lines = self._axis_lines.get(i, [])
            if axis_lines and i == indexes[-1]:
                axis_lines = [*axis_lines[:-1], self._draw_label(layout, axis_lines[-1])]
            if settings.cursor_ns is not None:
                ranges, left = settings.ranges_ns.values(), layout.left_width
                charts_lines = [
                    time_axis.fade_outside(runs, self.axis, ranges, left) for runs in charts_lines
                ]
                cell, stroke = self.axis.bin_at(settings.cursor_ns), [(CURSOR_STROKE, "bright")]
                if 0 <= cell < self.axis.columns:
                    charts_lines = [overlay(runs, left + cell, stroke) for runs in charts_lines]
            lines += [(runs, unit.row) for runs in (*charts_lines, *axis_lines)]
        return lines

    def _draw_label(self, layout: ChartLayout, line: list[Run]) -> list[Run]:
        """Returns the line of times with the time of the cursor and the selected ranges in place of
        other times. The markers of episodes stay. The cursor's time is left out if there is no
        room beside the cursor: the header has it, too."""
        settings = self._settings
        if settings.cursor_ns is None:
            return line
        axis, first, cells = self.axis, layout.left_width, layout.columns
        single_cells = [(char, style) for chars, style in line for char in chars]
        signs = [(x, run) for x, run in enumerate(single_cells) if run[0] in _EPISODE_SIGNS]
        used_cells, brackets = {x for x, _ in signs}, list[tuple[int, Run]]()
        for name, range_ns in settings.ranges_ns.items():
            start_ns, end_ns = range_ns
            begin, end = (max(0, min(cells, axis.bin_at(ns) + 1)) for ns in range_ns)
            size = max(end - begin, len("├A┤"))
            wordings = f" {name} {(end_ns - start_ns) / 1e9:.1f} s ", f" {name} ", name
            words = next(words for words in wordings if len(words) + 2 <= size)
            begin = first + min(begin, cells - size)
            style = "key" if range_ns == settings.range_ns else "dim"
            brackets.append((begin, (f"├{words:─^{size - 2}}┤", style)))
            used_cells |= {*range(begin - 1, begin + size + 1)}
        for is_over_times in (True, False):  # a bracket removes times, but no other bracket
            for x, bracket in brackets:
                line = overlay(line, x, [bracket], whole_words=is_over_times)
        for x, run in signs:
            line = overlay(line, x, [run])
        label = f" {clock_time(self._session.unix_s(settings.cursor_ns))} "
        middle = first + axis.bin_at(settings.cursor_ns) - len(label) // 2
        starts = range(first, first + cells - len(label) + 1)
        for x in sorted(starts, key=lambda x: abs(x - middle)):  # the nearest place that is free
            if abs(x - middle) > len(label):
                break
            if used_cells.isdisjoint(range(x, x + len(label))):
                return overlay(line, x, [(label, "label")], whole_words=True)
        return line

    # --- the core and the time at a cell

    def row_at(self, x: int, y: int) -> int | None:
        """Returns the index in `Cores.rows` of the core at cell `x` of line `y`, or None."""
        if self.layout is None or not 0 <= y < len(self.rows):
            return None
        return self.rows[y][-1 if x >= self.layout.side_width else 0]

    def time_at(self, x: int, y: int) -> int | None:
        """Returns the time (monotonic ns) that cell `x` of line `y` shows; None outside charts."""
        if self.layout is None or self.row_at(x, y) is None:
            return None
        axis, size = self.axis, self.layout.side_width
        column = x - size - GAP if x >= size and self.layout.sides > 1 else x
        column -= self.layout.left_width
        if not axis.blank_cells <= column < axis.columns:
            return None
        return min(axis.now_ns, axis.end_ns - (axis.columns - 1 - column) * axis.bin_ns)


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
