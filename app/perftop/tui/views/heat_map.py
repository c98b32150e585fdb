"""The heat map: a cell for each core, with the core's two CPUs as its halves, grouped by L3 and
package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan, nan
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import BindingType

from perftop.base.text import MISSING, ClockUnit, ranges
from perftop.draw import theme
from perftop.draw.columns import DOUBTED_SIGN, Run, cut, fit
from perftop.draw.strips import (
    OFFLINE_LEVEL,
    Line,
    Piece,
    fit_line,
    heat_ramp,
    justify,
    level_cell,
    level_pair_cells,
    panel_title,
    safe_cells,
    width,
    wrap_line,
)
from perftop.model.kinds import Episode
from perftop.model.tasks import parse_task
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import Reasons, displayed_values, doubt_texts, suspect_rows
from perftop.tui.shared import episode_style
from perftop.tui.shared.canvas import ClickTarget, PanelLine
from perftop.tui.shared.cores import Core, Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.keys import bindings
from perftop.tui.shared.loss_panels import CoreLoss, losing_cores, worst_core_lines
from perftop.tui.shared.package_line import PackageLines
from perftop.tui.shared.panels import (
    PANEL_KINDS,
    PaneledView,
    core_number_pieces,
    core_panel,
    episode_panel,
)
from perftop.tui.shared.row_numbers import (
    Scale,
    ViewSettings,
    field_scale,
    selected_field,
    session_clock_unit,
    value_unit,
)
from perftop.tui.shared.tables import title_key
from perftop.tui.shared.verdict import VERDICT_STEP_NS, is_past, verdict_at
from perftop.tui.views.heat_layout import (
    CellSize,
    HeatLayout,
    LinePart,
    heat_layout,
    package_groups,
    ring_edges,
    ring_side,
)

HEADER_LINES, FOOTER_LINES = 2, 1
MIN_WIDTH_FOR_SIDE, SIDE_SHARE, SIDE_GAP = 140, 0.37, 3
"""Minimum width of a screen with the worst cores beside the map, in cells; the share of the width
that they get; and the number of blank cells before them."""
MIN_HEIGHT_FOR_NUMBERS, NUMBER_LINES, REMEDY_LINES = 35, 14, 4
"""Minimum number of lines beside the map at which the remedy for the verdict and the numbers of the
selected core are shown there, and the numbers of lines that these two get."""
NUMBER_WIDTH = 4
"""Width, in columns, of cells that show values as numbers."""
LOSSES_WIDTH, MARKERS_WIDTH = 52, 42
"""Width in cells of the cores that lose most, in the legend, and of the meaning of markers. The
first is reserved so that nothing moves when a core begins to lose something."""
MIN_WIDTH_FOR_RAMP = 100
"""Minimum width, in cells, at which all steps of the ramp are shown; below it, every other step."""
NO_LOSS_TEXT = "no core loses anything to an episode"
_NO_LAYOUT = HeatLayout(CellSize(1, 1, 0, has_halves=True), [])


class HeatValues:
    """The values of one field (a number) in one interval. Lists have an entry for each CPU, by
    position."""

    def __init__(
        self, session: Session, interval: Interval, settings: ViewSettings, cores: Cores,
        row_episodes: RowEpisodes, previous: HeatValues | None,
    ) -> None:  # fmt: skip
        row_episodes.update(interval)
        self.session, self.interval, self.cores = session, interval, cores
        self.ascii = settings.ascii
        self.clock = session_clock_unit(session, settings.units)
        """Unit of the clocks in the line of the selected core."""
        self.field, self.other_names = selected_field(session, settings.metric)
        """The field, and the names of the fields that the metric key shows next, in order."""
        values = np.where(interval.online, displayed_values(self.field, session, interval), nan)
        is_same_field = previous is not None and previous.field == self.field
        previous_scale = previous.scale if previous is not None and is_same_field else None
        self.scale: Scale = field_scale(self.field, values[session.selected], previous_scale)
        self.unit = value_unit(self.field, self.clock, self.scale.high)
        self.values: list[float] = values.tolist()
        is_suspect = suspect_rows(self.field.key, session, interval)
        self.suspect_positions: set[int] = set(np.flatnonzero(is_suspect).tolist())
        self.levels = np.where(interval.online, self.scale.levels(values), OFFLINE_LEVEL).tolist()
        """The step of each CPU on the heat ramp."""
        clock = session_clock_unit(session, settings.units, ghz_if_unknown=True)
        self.packages = PackageLines(session, interval, cores, row_episodes, clock)

    def text(self, value: float) -> str:
        return _value_text(value, self.unit, self.unit.digits)

    def cpu_cells(self, cell: CellSize, letters: Sequence[str]) -> list[tuple[Run, ...]]:
        """Returns the cell of each CPU. `letters`: styles of numbers, by step of the heat ramp."""
        size, has_halves = cell.width, cell.has_halves and not self.field.of_core
        coloured_cells = [level_cell(level, size, self.ascii) for level in self.levels]
        if size != NUMBER_WIDTH or has_halves:
            return coloured_cells
        digits = int(self.field.is_small) if self.field.unit == "ratio" else self.unit.digits
        return [
            ((f"{_value_text(value, self.unit, digits)[:NUMBER_WIDTH].rstrip('.'):>3} "
              [:NUMBER_WIDTH], letters[level]),) if level >= 0 else coloured
            for value, level, coloured in zip(self.values, self.levels, coloured_cells, strict=True)
        ]  # fmt: skip

    # --- the lines above the map

    def title(self, cell: CellSize, size: int, hidden_text: str) -> list[Run]:
        """Returns the first line: the field, the heat ramp with its ends, the meaning of rings, and
        `hidden_text`, which says how many cores are not visible."""
        low, high = self.text(self.scale.low), self.text(self.scale.high)
        if self.field.unit == "ratio":
            low, high = (f"{100 * end:.0f}" for end in (self.scale.low, self.scale.high))
        steps = heat_ramp(ascii_=self.ascii)
        if size < MIN_WIDTH_FOR_RAMP and not self.ascii:
            steps = steps[1::2]
        pieces: list[Piece] = [
            (0, [(" heat map", "bright"), (" · ", "faint"), (self.field.plain_name, "text")]),
            (2, [(f"{low} ", "dim"), *steps, (f" {high} {self.unit.name}".rstrip(), "dim")]),
        ]
        if hidden_text:
            pieces.append((1, [(hidden_text, "bright")]))
        if cell.blank_lines:
            pieces.append((3, [("┏━┓", "alarm"), (" loses now   ", "dim"), ("┌─┐", "over"),
                               (" within 1 min", "dim")]))  # fmt: skip
        runs = fit_line(pieces, size - 1, 3)
        label = "   next: "
        room, text = size - width(runs) - len(label), ""
        for name in self.other_names:
            longer_text = f"{text} · {name}" if text else name
            if len(longer_text) > room:
                break
            text = longer_text
        return [*runs, (label, "faint"), (text, "dim")] if text else runs

    def legend(
        self, cell: CellSize, size: int, losses: Sequence[CoreLoss], *, is_requested: bool
    ) -> list[Run]:
        """Returns the second line: how to read a cell, and the cores that lose most. `losses`: the
        cores with losses, if they are not listed beside the map. `is_requested`: whether the user
        asked for the worst core although no core loses anything."""
        wordings, room = self._cell_explanations(cell), size - LOSSES_WIDTH
        wording = next((runs for runs in wordings if width(runs) <= room), wordings[-1])
        start: list[Run] = [(" ", "text"), *wording]
        if size - width(start) - LOSSES_WIDTH >= MARKERS_WIDTH:
            idle = "idle or " if self.field.while_running else ""
            start += [
                ("   – ", "faint"), (f"{idle}unknown  ", "dim"), (DOUBTED_SIGN, "dim"),
                (" doubtful  ", "dim"), (theme.NEITHER, "neither"), (" off", "dim"),
            ]  # fmt: skip
        room = size - width(start) - 3
        right = self._worst(losses, room)
        if is_requested and len(NO_LOSS_TEXT) <= room:
            right = [(NO_LOSS_TEXT, "bright")]
        return justify(start, right, size - 1)

    def _worst(self, losses: Sequence[CoreLoss], room: int) -> list[Run]:
        """Lists the worst cores that fit, and the number of further cores with losses."""
        runs: list[Run] = []
        kind = "core" if self.cores.has_pairs else "CPU"
        for i, loss in enumerate(losses):
            name = f"{f'{kind} ' if not i else '  '}{self.cores.name(loss.row, '')}"
            share: Run = (f" {loss.share_text}".rstrip(), loss.style)
            more_text = f"  +{len(losses) - i}"
            if width(runs) + len(name) + len(share[0]) + len(more_text) > room:
                return [*runs, (more_text, "dim")] if runs else []
            runs += [(name, "bright"), share]
        return runs

    def _cell_explanations(self, cell: CellSize) -> list[list[Run]]:
        """Returns explanations of a cell, the longest first."""
        cores = self.cores
        if not cores.has_pairs or self.field.of_core or cores.max_threads == 1:
            return [[(f"a cell is a {'core' if cores.has_pairs else 'CPU'}", "dim")], []]
        if cores.max_threads > 2:
            last, order = cores.max_threads - 1, "row by row" if self.ascii else "from above"
            short_text = f"lp0–{last} {order}"
            long_text = f"lp0 to lp{last} {order}"
        elif cell.has_halves and not self.ascii:
            pair: list[Run] = [(theme.LP0, "lp0"), (" lp0  ", "dim"), (theme.LP1, "lp1"),
                               (" lp1", "dim")]  # fmt: skip
            return [[("a cell is a core: ", "dim"),
                     (theme.LP0, "lp0"), (" upper half lp0, ", "dim"),
                     (theme.LP1, "lp1"), (" lower half lp1", "dim")], pair]  # fmt: skip
        elif cell.has_halves:
            long_text, short_text = "left lp0, right lp1", "lp0 lp1"
        else:
            long_text = short_text = "lp0 above lp1"
        return [[(f"a cell is a core: {long_text}", "dim")], [(short_text, "dim")]]

    # --- the line of the selected core

    def core_runs(self, i: int, size: int) -> list[Run]:
        """Returns a line on the core in row `i`: its numbers, its tasks, and reasons to doubt the
        numbers."""
        core, cores = self.cores.rows[i], self.cores
        name = f" {'core' if cores.has_pairs else 'CPU'} {cores.name(i, '')}"
        pieces: list[Piece] = [(0, [(theme.CURSOR_SIGNS[0], "mark"), (name, "bright")])]
        if cores.has_pairs:
            pieces.append((5, [(f"cpus {cores.cpu_lists[i]}", "dim")]))
        states = ("both",) if len(core.cpus) > 1 else ()
        keys = dict.fromkeys((self.field.key, "busy_hz", "ipc", "turbo_ceiling_hz", *states))
        pieces += core_number_pieces(self.session, self.interval, [*core.cpus], keys, self.clock)
        tasks = (parse_task(self.interval.tasks.get(str(cpu))) for cpu in core.cpus)
        if names := [safe_cells(f"{task.comm[:24]} {task.pid}") for task in tasks if task]:
            pieces.append((7, [(" · ".join(names), "text")]))
        suspect_texts = "; ".join(dict.fromkeys(self._suspect_texts(core)))
        if not suspect_texts:
            return fit_line(pieces, size - 1, 2)
        runs = fit_line(pieces, size - 1 - min(len(suspect_texts) + 2, size // 2), 2)
        return [*runs, ("  ", "text"), (cut(suspect_texts, size - 3 - width(runs)), "text")]

    def _suspect_texts(self, core: Core) -> Iterator[str]:
        """Yields the reasons why values of this core are suspect or unknown."""
        interval, key = self.interval, self.field.key
        for row in core.positions:
            for reason in doubt_texts(interval, row):
                yield f"{DOUBTED_SIGN} {safe_cells(reason)}"
        bounds = interval.split.method[core.core_position] == "bounds"
        for row in core.positions:
            is_hidden = interval.is_at_rest[row] and self.field.while_running
            if interval.online[row] and isnan(self.values[row]) and not is_hidden:
                reason = Reasons(self.session).short_reason(key, row, bounds=bounds)
                yield f"{MISSING}: {safe_cells(reason)}"


def _value_text(value: float, unit: ClockUnit, digits: int) -> str:
    """Returns the value as text; MISSING if the value or the unit's factor is unknown."""
    scaled_value = value * unit.per_hz
    return f"{scaled_value:.{digits}f}" if isfinite(scaled_value) else MISSING


class HeatMap(PaneledView):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("heat")]
    HAS_LOSS_CHART: ClassVar[bool] = True
    HINTS: ClassVar[tuple[str, ...]] = ("metric", "heat_worst", "open", "units")

    _row_episodes: RowEpisodes
    _heat: HeatValues | None = None
    _heat_layout = _NO_LAYOUT
    _worst_requested = False
    """Whether the user asked for the worst core, but no core loses anything."""
    _package_ids: Sequence[int | None] = ()
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
        self._row_episodes = RowEpisodes(self.session)
        # The old layout does not fit other rows, and the widget may not have a size yet.
        self._heat_layout, self.line_count, self._losses = _NO_LAYOUT, 0, ()

    def make_layout(self) -> None:
        cores = self.cores
        is_wide = self.size.width >= MIN_WIDTH_FOR_SIDE and not self.is_tiny
        self.side_width = round(SIDE_SHARE * self.size.width) if is_wide else 0
        groups, ids = package_groups(self.session, cores)
        selected = self.selected_row
        selected_package = None if selected is None else cores.rows[selected].package
        if self._is_zoomed and selected_package in ids:
            groups, ids = [groups[ids.index(selected_package)]], [selected_package]
        self._package_ids = ids
        names = [cores.name(i, "topology") for i in range(len(cores.rows))]
        offline_lines = 1 if cores.offline_cpus else 0
        header_lines = 0 if self.is_tiny else HEADER_LINES
        height = self.size.height - FOOTER_LINES - offline_lines - header_lines
        losing = {cores.rows[loss.row].package for loss in self._losses} | {selected_package}
        calm_packages, folded = [i for i, id_ in enumerate(ids) if id_ not in losing], set[int]()
        while True:
            self._heat_layout = heat_layout(
                groups, ids, names, cores.max_threads, self.width, height,
                ascii_=self.settings.ascii, folded=folded,
            )  # fmt: skip
            if len(self._heat_layout.lines) <= height or not calm_packages:
                break
            folded.add(calm_packages.pop())
        self._folded_packages = frozenset(ids[i] for i in folded)
        texts = [f" off   CPUs {ranges(cores.offline_cpus)}"] if offline_lines else []
        texts += [] if cores.rows else [" no CPU matches the filter"]
        self._heat_layout.lines += [[LinePart(0, len(text), label=text)] for text in texts]
        self.line_count = len(self._heat_layout.lines)

    def make_lines(self) -> None:
        """Makes the marks of cells, and the lines above, below and beside the map."""
        heat = self._heat = HeatValues(
            self.session, self.interval, self.settings, self.cores, self._row_episodes, self._heat
        )
        self._losses = losing_cores(
            self.session, self.interval, self.cores, self._row_episodes, heat.packages.victims
        )
        cores = self.cores.rows
        if not self._folded_packages.isdisjoint(cores[loss.row].package for loss in self._losses):
            self.make_layout()  # unfolds a package if one of its cores now has a loss
        cell = self._heat_layout.cell
        self._cpu_cells = heat.cpu_cells(cell, theme.letter_styles(self.app.theme))
        self._make_marks(heat)
        losses = [] if self.side_width else self._losses
        self.header_lines = [] if self.is_tiny else [
            heat.title(cell, self.width, self._hidden_text()),
            heat.legend(cell, self.width, losses, is_requested=self._worst_requested),
        ]  # fmt: skip
        selected = self.selected_row
        foot = [] if selected is None else heat.core_runs(selected, self.size.width)
        kinds = PANEL_KINDS
        if self._losses and not self.side_width:
            kinds = ("losses", *PANEL_KINDS[1:])
        elif self.side_width and not self._losses:
            kinds = ("who",)  # what happened is beside the map
        panels = self.make_panels(self.spare_lines - FOOTER_LINES, kinds=kinds)
        self.footer_lines = [*panels, (foot, "chosen")]
        self._make_side(selected)

    def _make_marks(self, heat: HeatValues) -> None:
        """Makes the markers beside cells: a sign for suspect values; a ring around a core with a
        loss or, without room, the episode's marker; and the cursor, which replaces all others."""
        left_markers, right_markers = dict[int, Run](), dict[int, Run]()
        for row, core in enumerate(self.cores.rows) if heat.suspect_positions else ():
            if not heat.suspect_positions.isdisjoint(core.positions):
                left_markers[row] = (DOUBTED_SIGN, "dim")
        selected = self.selected_row
        for loss in self._losses:
            if self._heat_layout.cell.blank_lines:
                left_markers[loss.row] = right_markers[loss.row] = ring_side(loss)
            elif loss.is_running:
                left_markers[loss.row] = episode_style.marker(loss.episode), loss.style
                if loss.row == selected:
                    right_markers[loss.row] = left_markers[loss.row]
        has_rings = self._heat_layout.cell.blank_lines > 0
        self._edges = ring_edges(self._heat_layout, self._losses) if has_rings else {}
        if selected is not None:
            left_markers[selected] = theme.CURSOR_SIGNS[0], "mark"
            right_markers.setdefault(selected, (theme.CURSOR_SIGNS[1], "mark"))
        self._left_markers, self._right_markers = left_markers, right_markers

    def _make_side(self, selected: int | None) -> None:
        """Makes the lines beside the map: the worst cores, and the numbers of the selected one."""
        size, height = self.side_width - SIDE_GAP, self.size.height - FOOTER_LINES
        if size <= 0:
            self.side_lines = []
            return
        numbers, room = list[PanelLine](), height
        if height >= MIN_HEIGHT_FOR_NUMBERS:
            room = height - NUMBER_LINES - REMEDY_LINES
            numbers = core_panel(self.session, self.interval, self.settings, size, NUMBER_LINES)
            numbers = [*self._remedy_lines(size), *numbers]
        step_ns = 1 if is_past(self.session, self.interval) else VERDICT_STEP_NS
        moment = self.interval.time_ns // step_ns
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
            self._worst = inputs, lines[:room]
        lines = self._worst[1]
        lines = [*lines, *[([], None)] * (room - len(lines)), *numbers]
        self.side_lines = [[(" " * SIDE_GAP, "text"), *runs] for runs, _ in lines]
        self._side_targets = [target for _, target in lines]

    def _remedy_lines(self, size: int) -> list[PanelLine]:
        """Returns the remedy for the verdict under a title; blank lines if none is known."""
        is_range = self.settings.range_ns is not None
        verdict = verdict_at(self.session, self.interval, is_range=is_range)
        lines: list[PanelLine] = []
        if verdict is not None and verdict.remedy:
            key = title_key(self.settings.captions["try"], "copy", size)
            lines.append((panel_title("try", "", size, key), None))
            first, *rest = wrap_line(safe_cells(verdict.remedy), size - 2)
            texts = [first, fit(" ".join(rest), size - 2)]  # the key shows a longer one in full
            lines += [([(f"  {text}", "key")], None) for text in texts]
        return [*lines, *[([], None)] * REMEDY_LINES][:REMEDY_LINES]

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
        zoom = f"package {self._package_ids[0]} only · " if self._is_zoomed else ""
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
            elif part.package < 0:
                runs.append((part.label, "dim"))
            else:
                assert self._heat is not None
                id_ = self._package_ids[part.package]
                is_folded = id_ in self._folded_packages
                runs += self._heat.packages.line(id_, part.width, is_folded=is_folded)
            x = part.x + part.width
        return runs, "calm"

    def _cells(self, part: LinePart) -> list[Run]:
        """Returns one line of adjacent cells with their marks."""
        heat, cell, ascii_ = self._heat, self._heat_layout.cell, self.settings.ascii
        assert heat is not None
        runs: list[Run] = []
        levels, width, gap = heat.levels, cell.width, (" ", "text")
        left_markers, right_markers, closing_run = self._left_markers, self._right_markers, gap
        is_of_core = heat.field.of_core
        for row in part.cells:
            runs.append(left_markers.get(row, closing_run))
            closing_run = right_markers.get(row, gap)
            cpus = self.cores.rows[row].positions
            is_single = is_of_core or len(cpus) == 1
            if cell.has_halves and not is_single:
                pair = [levels[cpu_row] for cpu_row in cpus[2 * part.line : 2 * part.line + 2]]
                runs += level_pair_cells(*pair, *[OFFLINE_LEVEL] * (2 - len(pair)), width, ascii_)
            elif not is_single and part.line >= len(cpus):
                runs += level_cell(OFFLINE_LEVEL, width, ascii_)
            elif is_single:  # an offline sibling has no value
                cpu_row = max(cpus, key=levels.__getitem__)
                with_number = self._cpu_cells[cpu_row]
                runs += level_cell(levels[cpu_row], width, ascii_) if part.line else with_number
            else:
                runs += self._cpu_cells[cpus[part.line]]
        return [*runs, closing_run]

    # --- the cursor

    def draw_selection(self) -> None:
        self._worst_requested = False
        super().draw_selection()

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
            candidates = [(abs(cell_x - x), row) for row, (cell_x, cell_y) in positions.items()
                          if cell_y == y and (cell_x - x) * dx > 0]  # fmt: skip
            if candidates:
                self.select_row(min(candidates)[1])
        elif lines := {cell_y for _, cell_y in positions.values() if (cell_y - y) * dy > 0}:
            self._select_nearest(x, min(lines, key=lambda line: abs(line - y)))

    def action_page(self, pages: int) -> None:
        positions, selected = self._heat_layout.cell_positions, self.selected_row
        if selected in positions:
            x, y = positions[selected]
            goal = y + pages * max(1, self.height - 1)
            lines = {cell_y for _, cell_y in positions.values()}
            self._select_nearest(x, min(sorted(lines), key=lambda line: abs(line - goal)))

    def _select_nearest(self, x: int, y: int) -> None:
        """Selects the core in line `y` whose cell is nearest to column `x`."""
        positions = self._heat_layout.cell_positions
        candidates = [(abs(cell_x - x), row) for row, (cell_x, cell_y) in positions.items()
                      if cell_y == y]  # fmt: skip
        self.select_row(min(candidates)[1])

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
        else:
            self._worst_requested = True
            self.draw()

    def action_zoom(self) -> None:
        """Switches between the package of the selected core and all packages."""
        self._is_zoomed = not self._is_zoomed
        self.lay_out()

    def on_click(self, event: events.Click) -> None:
        row = None
        if self.side_lines and event.x >= self.width and event.y < len(self.side_lines):
            target = self._side_targets[event.y]
            if isinstance(target, Episode):
                self.post_message(self.EpisodeClicked(target))
            row = self.cores.row_of_cpu.get(target) if isinstance(target, int) else None
        elif not self.handle_footer_click(event) and (y := self.line_at(event.y)) is not None:
            for part in self._heat_layout.lines[y]:
                i = (event.x - part.x) // (self._heat_layout.cell.width + 1)
                if part.cells and 0 <= i < len(part.cells):
                    row = part.cells[i]
        if row is not None:
            self.select_row(row)
            if event.chain == 2:
                self.open_core()
