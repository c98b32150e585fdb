"""The overview: a chart for each core if they fit the screen, otherwise a grid with a line for
each core, grouped by package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual import events

from perftop.base.text import ranges
from perftop.draw import strips
from perftop.draw.columns import Run, column_at
from perftop.draw.strips import text
from perftop.session.values import COLUMNS_BY_KEY
from perftop.tui.overview import columns
from perftop.tui.overview.charts import ChartedView, ChartPage
from perftop.tui.overview.rows import GridData, row_lines
from perftop.tui.shared.canvas import MARKS_WIDTH, CursorCanvas, mark_selected
from perftop.tui.shared.cores import Cores, ViewLine
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.package_line import PackageLines
from perftop.tui.shared.panels import MIN_HEIGHT, PanelKind, PanelRow
from perftop.tui.shared.row_numbers import ordered_rows, session_clock_unit

_FIXED_ORDERS = frozenset({"topology", "CPU number"})
"""Orders of rows that do not depend on measured values."""
MIN_WIDTH_OF_THREE, MIN_COUNTED_WIDTH_OF_THREE = 200, 140
"""Minimum widths, in cells, for three panels below charts: without counters, and with counters."""


# --- the lines of the grid: lines that scroll, and lines of packages that are always visible

FoldMode = Literal["needed", "never", "always"]
FOLD_MODES: tuple[FoldMode, ...] = ("needed", "never", "always")
MIN_LINES_PER_PACKAGE = 3
"""Minimum number of lines on the screen per package for which the lines of packages are fixed."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    fixed_above: Sequence[ViewLine]
    """Lines of packages that are always visible, above the scrolling lines."""
    lines: Sequence[ViewLine]
    fixed_below: Sequence[ViewLine]
    """Lines of packages that are always visible, below the scrolling lines."""
    order: Sequence[int]
    """All rows in display order, including rows of folded packages."""
    is_grouped: bool = True
    """Whether the rows of each package are below the line of the package."""


def arrange_lines(
    cores: Cores, room: int, fold: FoldMode, cpu: int | None, order: list[int] | None, *, tiny: bool
) -> Arrangement:
    """Returns the arrangement of lines. `order`: the order of rows; None: by topology. `fold`:
    "needed" folds packages without `cpu` until all fit into `room` lines. `tiny`: rows only."""
    packages = list(dict.fromkeys(core.package for core in cores.rows))
    all_lines = _lines_without_l3(cores, ())
    rows = [line.row for line in all_lines if line.kind == "row"] if order is None else [*order]
    row_lines = [ViewLine("row", row) for row in rows]
    if tiny or not any(line.kind == "package" for line in all_lines):
        offline_lines = [line for line in all_lines if line.kind == "off" and not tiny]
        return Arrangement([], [*row_lines, *offline_lines], [], rows)
    has_fixed_lines = len(packages) * MIN_LINES_PER_PACKAGE <= room
    if order is not None or (fold == "never" and has_fixed_lines and len(all_lines) > room):
        lines = _lines_without_l3(cores, packages) if has_fixed_lines else []
        package_lines = [line for line in lines if line.kind == "folded"]
        return Arrangement(package_lines, row_lines, [], rows, is_grouped=False)
    if fold == "never" or (fold == "needed" and len(all_lines) <= room):
        return Arrangement([], all_lines, [], rows)
    open_package = next((core.package for core in cores.rows if cpu in core.cpus), packages[0])
    folded = [package for package in packages if package != open_package or fold == "always"]
    for package in tuple(folded) if fold == "needed" else ():  # unfold the packages that still fit
        other_packages = [other for other in folded if other != package]
        if len(_lines_without_l3(cores, other_packages)) <= room:
            folded = other_packages
    lines = _lines_without_l3(cores, folded)
    if len(lines) <= room or fold == "always" or not has_fixed_lines:
        return Arrangement([], lines, [], rows)
    row_indexes = [i for i, line in enumerate(lines) if line.kind == "row"]
    first, last = row_indexes[0], row_indexes[-1] + 1
    return Arrangement(lines[:first], lines[first:last], lines[last:], rows)


def _lines_without_l3(cores: Cores, fold: Sequence[int | None]) -> list[ViewLine]:
    return [line for line in cores.view_lines(fold) if line.kind != "l3"]


# --- the view


class Overview(ChartedView, CursorCanvas):
    HINTS: ClassVar[tuple[str, ...]] = "open", "order", "fold"

    _charts: ChartPage
    _chart_room = 0
    """Number of lines for which the layout of the charts was chosen."""
    _grid: GridData | None = None
    """The data of the grid; None while charts are shown."""
    _packages: PackageLines
    _fold_mode: FoldMode = "needed"
    _arrangement = Arrangement([], [], [], [])
    _row_lines: Mapping[int, strips.Line] = {}
    """Lines of the visible rows, by row, without the mark of the selected row."""
    _top_ipc = 0.0
    """Upper end of the IPC scale. It only grows, so that past cells rarely change."""

    # --- lines from an interval

    def reset(self) -> None:
        self._charts, self._grid = ChartPage(self.session, self.cores, self.settings), None
        self._arrangement, self.line_count = Arrangement([], [], [], []), 0

    def make_layout(self) -> None:
        self._chart_room = self.size.height
        if not self.is_tiny and self._charts.choose_layout(self._chart_room, self.width):
            self._grid, self.shown_charts = None, self._charts
            return
        self.shown_charts = None
        if self._grid is None:
            self.footer_lines = []
            episodes = RowEpisodes(self.session, self.interval)
            self._grid = GridData(self.session, self.cores, self.interval, [], episodes)
        grid = self._grid
        grid.clock = session_clock_unit(self.session, self.settings.units, ghz_if_unknown=True)
        width = self.width - MARKS_WIDTH - 1
        grid.columns = columns.grid_columns(self.session, self.cores, width, grid.clock)
        room_by_key = {column.key: column.room for column in grid.columns}
        busy, ipc = room_by_key.get("work", 0), room_by_key.get("past ipc", 0)
        grid.histories = None
        if busy or ipc:
            cores, ascii_ = self.cores.rows, self.settings.ascii
            grid.histories = columns.RowHistories(self.session, cores, busy, ipc, ascii_=ascii_)
        self._arrange(grid)

    def make_lines(self) -> None:
        if self._grid is None:
            self._make_charts()
            return
        self._grid.episodes = RowEpisodes(self.session, self.interval)
        self._grid.interval = self.interval
        self._packages = PackageLines(self.cores, self._grid.episodes, self._grid.clock)
        if self.settings.order not in _FIXED_ORDERS:
            self._arrange(self._grid)
        self._make_rows(self._grid)

    def line(self, y: int) -> strips.Line:
        if self._grid is None:
            return self._charts.lines[y], "calm"
        line = self._arrangement.lines[y]
        if line.kind == "row":
            if line.row not in self._row_lines:  # the row has just been scrolled into view
                self._make_rows(self._grid)
            drawn_line = self._row_lines[line.row]
        else:
            drawn_line = self._heading(line), "calm"
        is_selected = line.kind in {"row", "folded"} and self.cpu_of_line(y) == self.settings.cpu
        return mark_selected(drawn_line) if is_selected else drawn_line

    # --- charts

    def _make_charts(self) -> None:
        charts, layout = self._charts, self._charts.layout
        assert layout is not None
        order = ordered_rows(self.cores, self.settings, self.session, self.interval)
        charts.make_lines(self.interval, order)
        self._arrangement = Arrangement([], [], [], order)
        self.line_count, self.header_lines = len(charts.lines), []
        width, height = layout.width, self._chart_room - self.line_count
        gap = int(height > layout.panel_lines)
        shares: tuple[int, ...] = (37, 38)
        if width >= MIN_COUNTED_WIDTH_OF_THREE:
            shares = (44, 44, 62) if charts.has_counters else (60, 37)
            if self.settings.cursor_ns is not None and not charts.has_counters:
                shares = 54, 42, 54
        if width >= MIN_WIDTH_OF_THREE and not charts.has_counters:
            shares = 60, 100, 70
        panels: tuple[PanelKind, ...] = ("selected", "who", "happened")
        row = PanelRow(panels[-len(shares) :], shares, width, height - gap)
        self.footer_lines = self.draw_panels(row, gap)

    # --- rows

    def _arrange(self, grid: GridData) -> None:
        settings, order = self.settings, None
        if settings.order != "topology" or settings.reverse:
            order = ordered_rows(self.cores, settings, self.session, self.interval)
        room = self.size.height - (not self.is_tiny)
        arrangement = arrange_lines(
            self.cores, room, self._fold_mode, settings.cpu, order, tiny=self.is_tiny
        )
        self._arrangement, self.line_count = arrangement, len(arrangement.lines)
        # Without the line of its package above it, a row also names the package.
        grid.order = settings.order if arrangement.is_grouped else "every package"

    def _make_rows(self, grid: GridData) -> None:
        lines = self._arrangement.lines[self.top_line : self.top_line + self.height]
        visible_rows = [line.row for line in lines if line.kind == "row"]
        if grid.histories is not None:
            top_ipc = max(self._top_ipc, grid.episodes.ipc_alone)
            grid.histories.update(self.interval, visible_rows, top_ipc)
            self._top_ipc = grid.histories.top_ipc
        self._row_lines = row_lines(grid, visible_rows)
        self._draw_fixed_lines(grid)

    def _heading(self, line: ViewLine) -> list[Run]:
        if line.kind == "off":
            return [(f"   off   CPUs {ranges(self.cores.offline_cpus)}", "dim")]
        package = self.cores.rows[line.row].package
        return self._packages.line(package, self.width, is_folded=line.kind == "folded")

    def _draw_fixed_lines(self, grid: GridData) -> None:
        arrangement, order, reverse = self._arrangement, self.settings.order, self.settings.reverse
        self.header_lines = []
        if not self.is_tiny:
            heading = columns.grid_headings(grid.columns, order, reverse=reverse)
            self.header_lines = [heading, *map(self._heading, arrangement.fixed_above)]
        self.footer_lines = [(self._heading(line), "calm") for line in arrangement.fixed_below]
        fixed_lines = len(self.header_lines) + len(self.footer_lines)
        room = self.size.height - fixed_lines - max(1, self.line_count)
        if not self.is_tiny and room > 0:
            axis = columns.axis_line(grid.columns, self.session, self.interval)
            is_blank = not text(axis).strip()  # a blank line is already a gap
            gap = int(room > MIN_HEIGHT + 1 and not is_blank)
            self.footer_lines += [(axis, "calm"), *self.make_panels(room - 1, gap)]

    # --- the cursor. In charts it moves from line to line; in rows it opens folded packages.

    def cpu_of_line(self, y: int) -> int | None:
        """Returns the first CPU of the line's core; None for headings. A folded package stands for
        the selected core if that is in the package, else for its first core."""
        cores = self.cores.rows
        if self._grid is None:
            row = self._charts.rows[y][0]
            return None if row is None else cores[row].cpus[0]
        line = self._arrangement.lines[y]
        if line.kind == "row":
            return cores[line.row].cpus[0]
        if line.kind != "folded":
            return None
        cpus = [cores[row].cpus[0] for row in self.cores.package_rows(cores[line.row].package)[0]]
        return self.settings.cpu if self.settings.cpu in cpus else cpus[0]

    def draw_selection(self) -> None:
        if self._grid is None:
            super().draw_selection()
            return
        old = self._arrangement
        self._arrange(self._grid)  # the cursor may have moved into a folded package
        new = self._arrangement
        if (len(old.fixed_above), old.lines) == (len(new.fixed_above), new.lines):
            super().draw_selection()
        else:
            self.lay_out()

    def _select(self, index: int) -> None:
        """Selects the row at this index of the display order, even if its package is folded."""
        if order := self._arrangement.order:  # empty if no CPU matches the filter
            self.select_row(order[max(0, min(len(order) - 1, index))])

    def action_move(self, steps: int) -> None:
        """Moves the cursor by cores, or, if all packages are folded, by packages."""
        arrangement, row = self._arrangement, self.selected_row
        if self._fold_mode == "always" and any(line.kind == "folded" for line in arrangement.lines):
            super().action_move(steps)
        else:
            index = arrangement.order.index(row) if row in arrangement.order else 0
            self._select(index + steps)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.height - 1))

    def action_end(self, direction: int) -> None:
        self._select(0 if direction < 0 else len(self._arrangement.order) - 1)

    @property
    def hints(self) -> tuple[str, ...]:
        return self.HINTS[:2] if self._grid is None else self.HINTS  # charts are not folded

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables folding while charts are shown, because they have no packages to fold."""
        is_available = action != "fold" or self._grid is not None
        return is_available and super().check_action(action, parameters)

    def action_fold(self) -> None:
        self._fold_mode = FOLD_MODES[(FOLD_MODES.index(self._fold_mode) + 1) % len(FOLD_MODES)]
        self.lay_out()

    async def on_click(self, event: events.Click) -> None:  # type: ignore[override]
        """Selects a clicked core in charts, sorts by a clicked heading, or opens a clicked package.
        Other clicks are handled by `CursorCanvas`."""
        arrangement, line_below = self._arrangement, event.y - len(self.header_lines) - self.height
        y = self.line_at(event.y)
        if self._grid is None and y is not None:
            if (row := self._charts.row_at(event.x, y)) is not None:
                event.prevent_default()  # a line may have two cores
                self._select(arrangement.order.index(row))
                if event.chain == 2:
                    self.open_core()
            return
        fixed = event.y < len(self.header_lines) or 0 <= line_below < len(arrangement.fixed_below)
        if self._grid is None or not fixed:
            return
        event.prevent_default()  # the order of the lines may change
        if event.y > 0 or not self.header_lines:
            fixed_lines = arrangement.fixed_above[event.y - 1 :]
            lines = arrangement.fixed_below[line_below:] if line_below >= 0 else fixed_lines
            if lines and lines[0].row >= 0:  # there may be fewer lines since the click
                self._select(arrangement.order.index(lines[0].row))
            return
        column = column_at(self._grid.columns, event.x - MARKS_WIDTH)
        if column is not None and (
            column.key in columns.ORDER_BY_COLUMN or column.key in COLUMNS_BY_KEY
        ):
            await self.sort_by(columns.ORDER_BY_COLUMN.get(column.key, column.key))
