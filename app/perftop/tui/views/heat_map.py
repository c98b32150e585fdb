"""The heat map: a cell for each core, whose halves are its CPUs, grouped by L3 and package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from perftop.base.text import fit, ranges
from perftop.draw import strips, theme
from perftop.draw.columns import SUSPECT_SIGN, Run
from perftop.draw.strips import Line
from perftop.session.losses import VERDICT_STEP_NS
from perftop.tui.shared import episode_style
from perftop.tui.shared.canvas import ClickTarget, PanelLine
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.keys import bindings
from perftop.tui.shared.loss_panels import (
    CoreLoss,
    losing_cores,
    package_loss_lines,
    worst_core_lines,
)
from perftop.tui.shared.panels import (
    PANEL_KINDS,
    PaneledView,
    PanelKind,
    episode_panel,
)
from perftop.tui.shared.tables import title_key
from perftop.tui.views import heat_cells
from perftop.tui.views.heat_cells import CellSize, HeatLayout, HeatValues, LineSection, Packages

HEADER_LINES, FOOTER_LINES = 2, 1
MIN_WIDTH_FOR_SIDE, SIDE_SHARE, SIDE_GAP = 140, 0.37, 3
"""Minimum width of a screen with the worst cores beside the map, in cells; the share of the width
that they get; and the number of blank cells before them."""
MIN_HEIGHT_FOR_REMEDY, REMEDY_LINES = 35, 4
"""Minimum number of lines beside the map at which the losses of packages and the remedy for the
verdict are shown there, and the number of lines that the remedy gets."""
_NO_LAYOUT = HeatLayout(CellSize(1, 1, 0, has_halves=True), [])


class HeatMap(PaneledView):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("heat")]
    HAS_LOSS_CHART: ClassVar[bool] = True
    HINTS: ClassVar[tuple[str, ...]] = ("metric", "heat_worst", "open", "units")

    _heat: HeatValues | None = None
    _heat_layout = _NO_LAYOUT
    _packages: Packages
    """The packages that are drawn."""
    _is_zoomed = False
    """Whether only the package of the selected core is drawn."""
    _folded_packages: frozenset[int | None] = frozenset()
    """The packages shown only by their heading, for lack of room."""
    _losses: Sequence[CoreLoss] = ()
    _left_markers: dict[int, Run]
    """Markers to the left of cells, by row."""
    _right_markers: dict[int, Run]
    _edges: Mapping[int, list[Run]]
    """The upper and lower edges of rings, by line of the layout."""
    _cpu_cells: Sequence[tuple[Run, ...]]
    """The cell of each CPU, by position."""
    _worst: tuple[object, list[PanelLine]] = None, []
    """A cache: the lines of the worst cores, and the inputs that they were made from."""

    # --- lines from an interval

    def reset(self) -> None:
        # The old layout does not fit other rows, and the widget may not have a size yet.
        self._heat_layout, self.line_count, self._losses = _NO_LAYOUT, 0, ()

    def make_layout(self) -> None:
        cores = self.cores
        is_wide = self.size.width >= MIN_WIDTH_FOR_SIDE and not self.is_tiny
        self.side_width = round(SIDE_SHARE * self.size.width) if is_wide else 0
        packages, selected = heat_cells.package_groups(self.session, cores), self.selected_row
        selected_package = None if selected is None else cores.rows[selected].package
        if self._is_zoomed and selected_package in packages:
            packages = {selected_package: packages[selected_package]}
        self._packages = packages
        names = [cores.name(i, "topology") for i in range(len(cores.rows))]
        offline_lines = 1 if cores.offline_cpus else 0
        header_lines = 0 if self.is_tiny else HEADER_LINES
        height = self.size.height - FOOTER_LINES - offline_lines - header_lines
        losing = {cores.rows[loss.row].package for loss in self._losses} | {selected_package}
        calm_packages = [package for package in packages if package not in losing]
        threads, ascii_, folded = cores.max_threads, self.settings.ascii, set[int | None]()
        while True:
            self._heat_layout = heat_cells.heat_layout(
                packages, names, threads, self.width, height, ascii_=ascii_, folded=folded
            )
            if len(self._heat_layout.lines) <= height or not calm_packages:
                break
            folded.add(calm_packages.pop())
        self._folded_packages = frozenset(folded)
        texts = [f" off   CPUs {ranges(cores.offline_cpus)}"] if offline_lines else []
        texts += [] if cores.rows else [" no CPU matches the filter"]
        self._heat_layout.lines += [[LineSection(0, len(text), label=text)] for text in texts]
        self.line_count = len(self._heat_layout.lines)

    def make_lines(self) -> None:
        episodes = RowEpisodes(self.session, self.interval)
        heat = self._heat = HeatValues(episodes, self.settings, self.cores, self._heat)
        self._losses = losing_cores(self.cores, episodes, heat.packages.victims)
        cores = self.cores.rows
        if not self._folded_packages.isdisjoint(cores[loss.row].package for loss in self._losses):
            self.make_layout()  # unfolds a package if one of its cores now has a loss
        cell = self._heat_layout.cell
        self._cpu_cells = heat.cpu_cells(cell, theme.letter_styles(self.app.theme))
        # The markers beside cells: a sign for suspect values; a ring around a core with a loss or,
        # without room, the episode's marker; and the cursor, which replaces all others.
        left_markers, right_markers = dict[int, Run](), dict[int, Run]()
        for row, core in enumerate(cores) if heat.suspect_positions else ():
            if not heat.suspect_positions.isdisjoint(core.positions):
                left_markers[row] = (SUSPECT_SIGN, "dim")
        selected, has_rings = self.selected_row, self._heat_layout.cell.blank_lines > 0
        for loss in self._losses:
            if has_rings:
                stroke = heat_cells.STROKES[loss.is_running][heat_cells.UP + heat_cells.DOWN]
                left_markers[loss.row] = right_markers[loss.row] = stroke, loss.style
            elif loss.is_running:
                left_markers[loss.row] = episode_style.marker(loss.episode), loss.style
                if loss.row == selected:
                    right_markers[loss.row] = left_markers[loss.row]
        self._edges = heat_cells.ring_edges(self._heat_layout, self._losses) if has_rings else {}
        if selected is not None:
            left_markers[selected] = theme.CURSOR_SIGNS[0], "mark"
            right_markers.setdefault(selected, (theme.CURSOR_SIGNS[1], "mark"))
        self._left_markers, self._right_markers = left_markers, right_markers
        losses = None if self.side_width else self._losses
        self.header_lines = []
        if not self.is_tiny:
            title = heat.title(cell, self.width, self._hidden_text())
            self.header_lines = [title, heat.legend(cell, self.width, losses)]
        foot = [] if selected is None else heat.core_runs(selected, self.size.width)
        is_beside = self.side_width and not self._losses  # its panel is beside the map
        kinds: tuple[PanelKind, ...] = ("who",) if is_beside else PANEL_KINDS
        panels = self.make_panels(self.spare_lines - FOOTER_LINES, kinds=kinds)
        self.footer_lines = [*panels, (foot, "chosen")]
        self._make_side(selected)

    def _make_side(self, selected: int | None) -> None:
        size, height = self.side_width - SIDE_GAP, self.size.height - FOOTER_LINES
        if size <= 0:
            self.side_lines = []
            return
        is_high = height >= MIN_HEIGHT_FOR_REMEDY
        room = height - is_high * (REMEDY_LINES + 1)
        package_lines = self.cores.package_count + 1
        has_packages = is_high and package_lines <= room // 2  # guests can have a package per CPU
        room -= has_packages * package_lines
        step_ns = 1 if self.session.is_past(self.interval) else VERDICT_STEP_NS
        moment = self.interval.time_ns // step_ns, self.session.log.indexed_until_ns
        loss_states = [(loss.row, loss.is_running) for loss in self._losses]
        inputs = moment, loss_states, selected, size, room, self.session, self.settings.range_ns
        if self._worst[0] != inputs:
            lines = worst_core_lines(
                self.session, self.interval, self.cores, self._losses, selected, size, room
            )
            if not self._losses:
                lines.append(([], None))
                rest = room - len(lines)
                lines += episode_panel(self.session, self.interval, self.settings, size, rest)
            lines = [*lines[:room], *[([], None)] * (room - len(lines))]
            if has_packages:
                lines += package_loss_lines(self.session, self.interval.time_ns, self.cores, size)
            self._worst = inputs, lines
        lines = self._worst[1]
        if is_high:
            lines = [*lines, *[([], None)] * (REMEDY_LINES + 1)]
            if (verdict := self.verdict) is not None and verdict.remedy:
                key = title_key(self.settings.captions["try"], "copy", size)
                first, *others = strips.wrap_line(strips.safe_cells(verdict.remedy), size - 2)
                texts = first, fit(" ".join(others), size - 2)  # a key shows a cut text in full
                remedy_lines = [strips.panel_title("try", "", size, key)]
                remedy_lines += [[(f"  {text}", "key")] for text in texts]
                lines[-REMEDY_LINES:-1] = [(runs, None) for runs in remedy_lines]
        self.side_lines = [[(" " * SIDE_GAP, "text"), *runs] for runs, _ in lines]
        self._side_targets = [target for _, target in lines]

    def _hidden_text(self) -> str:
        """Returns a text with the number of cores that are not visible, and of those among them
        that lose something; '' if all are visible."""
        end = self.top_line + max(1, self.size.height - HEADER_LINES - FOOTER_LINES)
        lines = self._heat_layout.lines[self.top_line : end]
        rows = {row for line in lines for part in line for row in part.cells}
        count = len(self.cores.rows)
        if len(rows) == count:
            return ""
        losing = sum(loss.is_running and loss.row not in rows for loss in self._losses)
        losing_text = f" ({losing} {'loses' if losing == 1 else 'lose'})" if losing else ""
        zoom = f"package {next(iter(self._packages))} only · " if self._is_zoomed else ""
        return f"{zoom}{count - len(rows)} of {count} out of sight{losing_text}"

    def target_at(self, x: int, y: int) -> ClickTarget:
        return super().target_at(x, y - FOOTER_LINES)  # The last line of the map is not a panel.

    # --- lines

    def line(self, y: int) -> Line:
        if y in self._edges and not self._heat_layout.lines[y]:
            return self._edges[y], "calm"
        runs: list[Run] = []
        x = 0
        for part in self._heat_layout.lines[y]:
            runs.append((" " * (part.x - x), "text"))
            if part.cells:
                runs += self._cells(part)
            elif not part.is_heading:
                runs.append((part.label, "dim"))
            else:
                assert self._heat is not None
                is_folded = part.package in self._folded_packages
                runs += self._heat.packages.line(part.package, part.width, is_folded=is_folded)
            x = part.x + part.width
        return runs, "calm"

    def _cells(self, part: LineSection) -> list[Run]:
        heat, cell, ascii_ = self._heat, self._heat_layout.cell, self.settings.ascii
        assert heat is not None
        runs: list[Run] = []
        levels, width, gap = heat.levels, cell.width, (" ", "text")
        left_markers, right_markers, closing_run = self._left_markers, self._right_markers, gap
        is_of_core = heat.field.is_per_core
        for row in part.cells:
            runs.append(left_markers.get(row, closing_run))
            closing_run = right_markers.get(row, gap)
            cpus = self.cores.rows[row].positions
            is_single = is_of_core or len(cpus) == 1
            if cell.has_halves and not is_single:
                pair = [levels[cpu_row] for cpu_row in cpus[2 * part.line : 2 * part.line + 2]]
                runs += strips.level_pair_cells(
                    *pair, *[strips.OFFLINE_LEVEL] * (2 - len(pair)), width, ascii_
                )
            elif not is_single and part.line >= len(cpus):
                runs += strips.level_cell(strips.OFFLINE_LEVEL, width, ascii_)
            elif is_single:  # an offline sibling has no value
                cpu_row = max(cpus, key=levels.__getitem__)
                with_number = self._cpu_cells[cpu_row]
                runs += (
                    strips.level_cell(levels[cpu_row], width, ascii_) if part.line else with_number
                )
            else:
                runs += self._cpu_cells[cpus[part.line]]
        return [*runs, closing_run]

    # --- the cursor

    def scroll_to_cursor(self) -> None:
        """Scrolls to the selected core, including a heading directly above it."""
        selected = self.selected_row
        if selected in self._heat_layout.cell_positions:
            first = last = self._heat_layout.cell_positions[selected][1]
            last += self._heat_layout.cell.height - 1
            if first and not any(part.cells for part in self._heat_layout.lines[first - 1]):
                first -= 1
            self.reveal_lines(first, last)

    def action_cell(self, dx: int, dy: int) -> None:
        """Selects the next cell on this line, or the nearest cell on the next line with cells."""
        positions, selected = self._heat_layout.cell_positions, self.selected_row
        if selected not in positions:
            return
        x, y = positions[selected]
        if dx:
            self._select_nearest(x, y, dx)
        elif lines := {cell_y for _, cell_y in positions.values() if (cell_y - y) * dy > 0}:
            self._select_nearest(x, min(lines, key=lambda line: abs(line - y)))

    def action_page(self, pages: int) -> None:
        positions, selected = self._heat_layout.cell_positions, self.selected_row
        if selected in positions:
            x, y = positions[selected]
            goal = y + pages * max(1, self.height - 1)
            lines = {cell_y for _, cell_y in positions.values()}
            self._select_nearest(x, min(sorted(lines), key=lambda line: abs(line - goal)))

    def _select_nearest(self, x: int, y: int, dx: int = 0) -> None:
        """Selects the core in line `y` whose cell is nearest to column `x`. `dx`: -1 for a cell to
        the left of that column, 1 for one to the right of it. Does nothing without such a cell."""
        positions = self._heat_layout.cell_positions.items()
        cells = [(cell_x - x, row) for row, (cell_x, cell_y) in positions if cell_y == y]
        distances = [(abs(distance), row) for distance, row in cells if distance * dx >= abs(dx)]
        if distances:
            self.select_row(min(distances)[1])

    def action_end(self, direction: int) -> None:
        rows = list(self._heat_layout.cell_positions)
        if rows:
            self.select_row(rows[0] if direction < 0 else rows[-1])

    def action_worst(self) -> None:
        """Selects the core that loses most; when repeated, the next one."""
        selected = self.selected_row
        if rows := [loss.row for loss in self._losses]:
            next_index = rows.index(selected) + 1 if selected in rows else 0
            self.select_row(rows[next_index % len(rows)])

    def action_zoom(self) -> None:
        """Switches between the package of the selected core and all packages."""
        self._is_zoomed = not self._is_zoomed
        self.lay_out()

    def on_click(self, event: events.Click) -> None:
        if self.side_lines and event.x >= self.width and event.y < len(self.side_lines):
            self.follow_click(event, self._side_targets[event.y])
        elif not self.handle_footer_click(event) and (y := self.line_at(event.y)) is not None:
            for part in self._heat_layout.lines[y]:
                i = (event.x - part.x) // (self._heat_layout.cell.width + 1)
                if part.cells and 0 <= i < len(part.cells):
                    self.follow_click(event, self.cores.rows[part.cells[i]].cpus[0])
