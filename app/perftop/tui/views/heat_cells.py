"""The cells of the heat map: the position of each core, rings around cores that lose something, and
the values of cells. The cores of one L3 or package form a group, which is drawn together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from math import ceil, isnan, nan

import numpy as np

from perftop.base.text import MISSING, cut
from perftop.draw import theme
from perftop.draw.columns import SUSPECT_SIGN, Run
from perftop.draw.strips import (
    OFFLINE_LEVEL,
    Piece,
    fit_line,
    heat_ramp,
    join_cells,
    justify,
    level_cell,
    safe_cells,
    width,
)
from perftop.model.tasks import parse_task
from perftop.session.session import Session
from perftop.session.values import Reasons, displayed_values, doubt_texts, suspect_rows
from perftop.tui.shared import row_numbers
from perftop.tui.shared.core_numbers import core_number_pieces
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.loss_panels import CoreLoss
from perftop.tui.shared.package_line import PackageLines
from perftop.tui.shared.row_numbers import Scale, ViewSettings

# --- The position of every core. It depends on the size of the screen but not on measured values,
# so that nothing moves when they change.

BLOCK_GAP = 2
"""Blank columns between groups of cores that are side by side in a package."""
PACKAGE_GAP = 3
"""Blank columns between packages that are side by side."""
MIN_HEADING_WIDTH = 24
"""Minimum width, in columns, of a package's heading if packages are side by side."""


@dataclass(frozen=True, slots=True)
class CellGroup:
    """Cores that are drawn together: those of an L3, or of a package that has only one."""

    label: str
    rows: tuple[int, ...]
    """Indexes of the cores in `Cores.rows`."""


Groups = list[CellGroup]
Packages = Mapping[int | None, Groups]
"""The groups of each package, by ID of the package."""


@dataclass(frozen=True, slots=True)
class CellSize:
    """Size of a core's cell in columns and lines. The column to the left of a cell is for marks."""

    width: int
    height: int
    blank_lines: int
    """Number of blank lines for rings. 2: one above and one below each cell; 1: one between two
    rows of cells, shared by the rings of both; 0: no rings."""
    has_halves: bool
    """Whether two threads share a line of the cell; else each thread has its own line."""


@dataclass(frozen=True, slots=True)
class LineSection:
    """A part of a line of the heat map: the heading of a package, a label, or cells."""

    x: int
    width: int
    cells: tuple[int, ...] = ()
    """The rows of the cores whose cells are in this part."""
    line: int = 0
    """Index of the line within the height of the cells; 0 is the top line."""
    label: str = ""
    package: int | None = None
    """ID of the package if this is its heading."""
    is_heading: bool = False


@dataclass(slots=True)
class HeatLayout:
    cell: CellSize
    lines: list[list[LineSection]]
    cell_positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The column of the mark left of a core's cell, and the first line of the cell, by row."""

    def __post_init__(self) -> None:
        for y, line in enumerate(self.lines):
            for part in line:
                for i, row in enumerate(part.cells):
                    self.cell_positions.setdefault(row, (part.x + i * (self.cell.width + 1), y))


def package_groups(session: Session, cores: Cores) -> Packages:
    """Returns the groups of cores of each package, sorted by die."""
    caches_by_package: dict[int | None, dict[tuple[int | None, int | None], list[int]]] = {}
    for row, core in enumerate(cores.rows):
        dies = (session.topology[position].die for position in core.positions)
        die = next((die for die in dies if die is not None), None)
        caches = caches_by_package.setdefault(core.package, {})
        caches.setdefault((die, core.l3), []).append(row)
    packages: dict[int | None, Groups] = {}
    for package, caches in caches_by_package.items():
        die_ids = list(dict.fromkeys(die for die, _ in caches))
        has_one_cache_per_die = len(caches) == len(die_ids)
        packages[package] = []
        for die, l3 in sorted(caches, key=lambda key: die_ids.index(key[0])):
            # the label names the die if the L3 alone would be ambiguous
            is_l3_unique = len(die_ids) == 1 or (has_one_cache_per_die and l3 is not None)
            parts = [f"die {die}"] if die is not None and not is_l3_unique else []
            parts += [f"L3 {l3}"] if l3 is not None else []
            label = " ".join(parts) if len(caches) > 1 else ""
            packages[package].append(CellGroup(label, tuple(caches[die, l3])))
    return _join_single_cores(packages)


def _join_single_cores(packages: Packages) -> Packages:
    """Returns one group for each package if each group has one core, such as one with its own L3;
    else the packages as they are."""
    if any(len(group.rows) > 1 for group in chain(*packages.values())):
        return packages
    return {package: [CellGroup("", _rows(groups))] for package, groups in packages.items()}


def _rows(groups: Groups) -> tuple[int, ...]:
    return tuple(row for group in groups for row in group.rows)


@dataclass(frozen=True, slots=True)
class _TrialLayout:
    """A layout to try."""

    cell: CellSize
    package_width: int
    packages_per_row: int
    margin: int
    """Width of the labels left of cells, in columns."""
    has_headings: bool
    has_labels: bool

    def fit_groups(self, groups: Groups) -> tuple[int, int]:
        """Returns the number of cells in a line of a group (0: none fit), and the number of groups
        side by side. All groups are as wide as the widest, so that they align in columns."""
        max_cells = (self.package_width - self.margin - 1) // (self.cell.width + 1)
        cores = max(len(group.rows) for group in groups)
        if max_cells <= 0:
            return 0, 1
        if cores > max_cells:  # Lines of equal length, if they use over half of the width.
            counts = range(max_cells, max_cells // 2, -1)
            even_split = next((n for n in counts if cores % n == 0), None)
            return even_split or ceil(cores / ceil(cores / max_cells)), 1
        group_width = self.width_of_cells(cores) + BLOCK_GAP
        max_groups = max(1, (self.package_width + BLOCK_GAP) // group_width)
        return cores, ceil(len(groups) / ceil(len(groups) / max_groups))

    def width_of_cells(self, cells: int) -> int:
        """Returns the width of this many cells with their label, in columns."""
        return self.margin + cells * (self.cell.width + 1) + 1

    def height_of(self, groups: Groups) -> int:
        """Returns the number of lines of a package, including its heading."""
        cells_per_line, groups_beside = self.fit_groups(groups)
        blocks = (groups[i : i + groups_beside] for i in range(0, len(groups), groups_beside))
        rows = sum(ceil(max(len(g.rows) for g in block) / cells_per_line) for block in blocks)
        lines = rows * (self.cell.height + self.cell.blank_lines) + (self.cell.blank_lines == 1)
        return self.has_headings + lines


def heat_layout(
    packages: Packages,
    names: Sequence[str],
    threads: int,
    width: int,
    height: int,
    *,
    ascii_: bool,
    folded: Collection[int | None] = (),
) -> HeatLayout:
    """Returns the layout with the largest cells that shows all cores. If not even the smallest
    cells fit, the layout has no labels; if that is not enough, no headings; and if that is not
    enough, the map scrolls. `folded`: packages of which only the heading is shown."""
    *_, small_cell = _cell_sizes(threads, ascii_=ascii_)
    if not packages:
        return HeatLayout(small_cell, [])
    single_cores = len(packages) > 1 and all(len(_rows(p)) == 1 for p in packages.values())
    # Without headings, the cores are those of one package, with a group for each real package.
    labels = {id_: "p?" if id_ is None else f"p{id_}" for id_ in packages if len(packages) > 1}
    real = [CellGroup(labels.get(id_, ""), _rows(groups)) for id_, groups in packages.items()]
    whole_machine = _join_single_cores({None: real})
    for has_headings, has_labels in ((True, True), (True, False), (False, True), (False, False)):
        if folded and not has_headings:
            break
        drawn_packages = packages if has_headings else whole_machine
        margin = int(has_headings)
        if has_labels:
            all_groups = chain(*drawn_packages.values())
            texts = (group.label or names[row] for group in all_groups for row in group.rows)
            margin = 1 + max(map(len, texts))
        for cell in _cell_sizes(threads, ascii_=ascii_):
            for per_row in range(1, len(drawn_packages) + 1):
                package_width = (width - PACKAGE_GAP * (per_row - 1)) // per_row
                is_too_narrow = per_row > 1 and package_width < MIN_HEADING_WIDTH
                if is_too_narrow or (has_headings and single_cores):
                    break
                trial = _TrialLayout(cell, package_width, per_row, margin, has_headings, has_labels)
                if not all(trial.fit_groups(groups)[0] for groups in drawn_packages.values()):
                    continue
                packages_drawn = drawn_packages.items()
                heights = [1 if id_ in folded else trial.height_of(g) for id_, g in packages_drawn]
                starts = range(0, len(heights), per_row)
                if sum(max(heights[i : i + per_row]) for i in starts) <= height:
                    return HeatLayout(cell, _join_packages(drawn_packages, names, trial, folded))
    trial = _TrialLayout(small_cell, width, 1, 1, has_headings=True, has_labels=False)
    is_usable = all(trial.fit_groups(groups)[0] for groups in packages.values())
    lines = _join_packages(packages, names, trial, folded) if is_usable else []
    return HeatLayout(small_cell, lines)


def _cell_sizes(threads: int, *, ascii_: bool) -> Iterator[CellSize]:
    """Yields the cell sizes to try, the best first. Halves side by side need even widths."""
    height = ceil(threads / 2)
    for blank_lines in (2, 1):
        yield CellSize(4, max(2, threads), blank_lines, has_halves=False)
    for blank_lines in (1, 0):
        for cells in (4, 3, 2, 1):
            if (cells > 1 or not blank_lines) and not (ascii_ and threads > 1 and cells % 2):
                yield CellSize(cells, height, blank_lines, has_halves=threads > 1)


def _join_packages(
    packages: Packages, names: Sequence[str], trial: _TrialLayout, folded: Collection[int | None]
) -> list[list[LineSection]]:
    boxes = []
    for id_, groups in packages.items():
        heading = LineSection(0, trial.package_width, package=id_, is_heading=True)
        cells = [] if id_ in folded else _package_lines(groups, names, trial)
        boxes.append([*([[heading]] if trial.has_headings else []), *cells])
    lines: list[list[LineSection]] = []
    for first in range(0, len(boxes), trial.packages_per_row):
        boxes_in_line = boxes[first : first + trial.packages_per_row]
        for parts_of_boxes in zip_longest(*boxes_in_line, fillvalue=list[LineSection]()):
            lines.append([])
            for i, parts in enumerate(parts_of_boxes):
                left = i * (trial.package_width + PACKAGE_GAP)
                lines[-1] += [replace(part, x=left + part.x) for part in parts]
    return lines


def _package_lines(
    groups: Groups, names: Sequence[str], trial: _TrialLayout
) -> list[list[LineSection]]:
    cells_per_line, groups_beside = trial.fit_groups(groups)
    lines: list[list[LineSection]] = []
    has_line_above, has_line_below = trial.cell.blank_lines > 0, trial.cell.blank_lines > 1
    for first in range(0, len(groups), groups_beside):
        block = groups[first : first + groups_beside]
        for start in range(0, max(len(group.rows) for group in block), cells_per_line):
            lines += [[]] * has_line_above
            for line in range(trial.cell.height):
                parts: list[LineSection] = []
                for i, group in enumerate(block):
                    x = i * (trial.width_of_cells(cells_per_line) + BLOCK_GAP)
                    cells = group.rows[start : start + cells_per_line]
                    if trial.has_labels and cells and not line:
                        # A group without a label shows the name of the line's first core.
                        text = f" {'' if start else group.label:<{trial.margin - 1}}"
                        if not group.label:
                            text = f"{names[group.rows[start]]:>{trial.margin}}"
                        parts.append(LineSection(x, trial.margin, label=text))
                    if cells:
                        width = len(cells) * (trial.cell.width + 1) + 1
                        parts.append(LineSection(x + trial.margin, width, cells, line))
                lines.append(parts)
            lines += [[]] * has_line_below
    return [*lines, []] if trial.cell.blank_lines == 1 else lines


# --- rings around cores that lose something. Rings that touch share a line.

RIGHT, LEFT, DOWN, UP = 1, 2, 4, 8
"""Bits for the directions in which strokes leave a character cell."""
STROKES = {True: " ╺╸━╻┏┓┳╹┗┛┻┃┣┫╋", False: " ╶╴─╷┌┐┬╵└┘┴│├┤┼"}
"""Box-drawing characters by the sum of their directions: heavy ones for cores that lose now, and
light ones for cores that lost something within the last minute."""


def ring_edges(layout: HeatLayout, rings: Sequence[CoreLoss]) -> dict[int, list[Run]]:
    """Returns the upper and lower edges of rings around cores, with the lost share in the upper
    edge, by line of the layout. Rings of cores that lose now are drawn over the others."""
    strokes: dict[int, dict[int, tuple[int, CoreLoss]]] = {}
    texts: dict[int, dict[int, Run]] = {}
    cell_width = layout.cell.width
    for ring in sorted(rings, key=lambda ring: ring.is_running):
        if ring.row not in layout.cell_positions:
            continue
        left, top = layout.cell_positions[ring.row]
        for y, direction in ((top - 1, DOWN), (top + layout.cell.height, UP)):
            corners = {left: RIGHT + direction, left + cell_width + 1: LEFT + direction}
            cells = strokes.setdefault(y, {})
            for x in range(left, left + cell_width + 2):
                cells[x] = cells.get(x, (0, ring))[0] | corners.get(x, LEFT + RIGHT), ring
        if (blank_cells := cell_width - len(text := ring.share_text)) >= 0:
            for x, char in enumerate(text, left + blank_cells // 2 + 1):
                texts.setdefault(top - 1, {})[x] = char, ring.style
    edges: dict[int, list[Run]] = {}
    for y, cells in strokes.items():
        line: list[Run] = [(" ", "text")] * (max(cells) + 1)
        for x, (directions, ring) in cells.items():
            line[x] = STROKES[ring.is_running][directions], ring.style
        for x, run in texts.get(y, {}).items():
            line[x] = run
        edges[y] = join_cells(line)
    return edges


# --- the values that the cells show

LOSSES_WIDTH, MARKERS_WIDTH = 52, 42
"""Width in cells of the cores that lose most, in the legend, and of the meaning of markers. The
first is reserved so that nothing moves when a core begins to lose something."""
MIN_WIDTH_FOR_RAMP = 100
"""Minimum width, in cells, at which all steps of the ramp are shown; below it, every other step."""
NUMBER_WIDTH = 4
"""Width, in columns, of cells that show values as numbers."""
NO_LOSS_TEXT = "no core loses anything to an episode"


class HeatValues:
    """The values of one field (a number) in one interval. Lists are by position of the CPU."""

    def __init__(
        self,
        episodes: RowEpisodes,
        settings: ViewSettings,
        cores: Cores,
        previous: HeatValues | None,
    ) -> None:
        self.session, self.interval, self.cores = episodes.session, episodes.interval, cores
        session, interval = self.session, self.interval
        self.ascii = settings.ascii
        self.clock = row_numbers.session_clock_unit(session, settings.units)
        """Unit of the clocks in the line of the selected core."""
        self.field, self.other_names = row_numbers.selected_field(session, settings.metric)
        """The field, and the names of the fields that the metric key shows next, in order."""
        values = np.where(interval.online, displayed_values(self.field, session, interval), nan)
        is_same_field = previous is not None and previous.field == self.field
        previous_scale = previous.scale if previous is not None and is_same_field else None
        self.scale: Scale = row_numbers.field_scale(
            self.field, values[session.selected], previous_scale
        )
        self.unit = row_numbers.value_unit(self.field, self.clock, self.scale.high)
        self.values: list[float] = values.tolist()
        is_suspect = suspect_rows(self.field.key, session, interval)
        self.suspect_positions: set[int] = set(np.flatnonzero(is_suspect).tolist())
        self.levels = np.where(interval.online, self.scale.levels(values), OFFLINE_LEVEL).tolist()
        """The step of each CPU on the heat ramp."""
        clock = row_numbers.session_clock_unit(session, settings.units, ghz_if_unknown=True)
        self.packages = PackageLines(cores, episodes, clock)

    def cpu_cells(self, cell: CellSize, styles: Sequence[str]) -> list[tuple[Run, ...]]:
        """Returns the cell of each CPU. `styles`: style keys of the numbers, by step of the heat
        ramp."""
        size, has_halves = cell.width, cell.has_halves and not self.field.is_per_core
        coloured_cells = [level_cell(level, size, self.ascii) for level in self.levels]
        if size != NUMBER_WIDTH or has_halves:
            return coloured_cells
        digits = int(self.field.is_small) if self.field.unit == "ratio" else self.unit.digits
        for i, (value, level) in enumerate(zip(self.values, self.levels, strict=True)):
            if level >= 0:
                text = row_numbers.value_text(value, self.unit, digits)[:NUMBER_WIDTH].rstrip(".")
                coloured_cells[i] = ((f"{text:>3} "[:NUMBER_WIDTH], styles[level]),)
        return coloured_cells

    # --- the lines above the map

    def title(self, cell: CellSize, size: int, hidden_text: str) -> list[Run]:
        """Returns the first line: the field, the heat ramp with its ends, the meaning of rings, and
        `hidden_text`, which says how many cores are not visible."""
        low, high = row_numbers.scale_ends(self.field, self.scale, self.unit)
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
            now, recent = ("┏━┓", "alarm"), ("┌─┐", "over")
            pieces.append((3, [now, (" loses now   ", "dim"), recent, (" within 1 min", "dim")]))
        runs = fit_line(pieces, size - 1, 3)
        label = "   next: "
        room, text = size - width(runs) - len(label), ""
        for name in self.other_names:
            longer_text = f"{text} · {name}" if text else name
            if len(longer_text) > room:
                break
            text = longer_text
        return [*runs, (label, "faint"), (text, "dim")] if text else runs

    def legend(self, cell: CellSize, size: int, losses: Sequence[CoreLoss] | None) -> list[Run]:
        """Returns the second line: how to read a cell, and the cores that lose most. `losses`: the
        cores with losses; None if they are listed beside the map."""
        cores, has_halves = self.cores, cell.has_halves
        explanation: list[Run] = [("a cell is a core: ", "dim")]
        short: list[Run] = []
        lp0, lp1 = (theme.LP0, "lp0"), (theme.LP1, "lp1")
        if not cores.has_pairs or self.field.is_per_core or cores.max_threads == 1:
            explanation = [(f"a cell is a {'core' if cores.has_pairs else 'CPU'}", "dim")]
        elif cores.max_threads > 2:
            last, order = cores.max_threads - 1, "row by row" if self.ascii else "from above"
            explanation.append((f"lp0 to lp{last} {order}", "dim"))
            short = [(f"lp0–{last} {order}", "dim")]
        elif has_halves and not self.ascii:
            explanation += [lp0, (" upper half lp0, ", "dim"), lp1, (" lower half lp1", "dim")]
            short = [lp0, (" lp0  ", "dim"), lp1, (" lp1", "dim")]
        else:
            text = "left lp0, right lp1" if has_halves else "lp0 above lp1"
            explanation.append((text, "dim"))
            short = [("lp0 lp1" if has_halves else text, "dim")]
        fits = width(explanation) <= size - LOSSES_WIDTH
        start: list[Run] = [(" ", "text"), *(explanation if fits else short)]
        if size - width(start) - LOSSES_WIDTH >= MARKERS_WIDTH:
            idle = "idle or " if self.field.while_running else ""
            start += [("   – ", "faint"), (f"{idle}unknown  {SUSPECT_SIGN} doubtful  ", "dim")]
            start += [(theme.NEITHER, "neither"), (" off", "dim")]
        room = size - width(start) - 3
        right = [] if losses is None else self._worst(losses, room)
        if losses is not None and not losses and len(NO_LOSS_TEXT) <= room:
            right = [(NO_LOSS_TEXT, "dim")]
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

    # --- the line of the selected core

    def core_runs(self, i: int, size: int) -> list[Run]:
        """Returns a line about the core in row `i`: numbers, tasks, and reasons to doubt
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
        interval, key = self.interval, self.field.key
        reasons = (reason for row in core.positions for reason in doubt_texts(interval, row))
        texts = [f"{SUSPECT_SIGN} {safe_cells(reason)}" for reason in reasons]
        bounds = interval.split.method[core.core_position] == "bounds"
        for row in core.positions:
            is_hidden = interval.is_at_rest[row] and self.field.while_running
            if interval.online[row] and isnan(self.values[row]) and not is_hidden:
                reason = Reasons(self.session).short_reason(key, row, bounds=bounds)
                texts.append(f"{MISSING}: {safe_cells(reason)}")
        if not texts:
            return fit_line(pieces, size - 1, 2)
        doubts = "; ".join(dict.fromkeys(texts))
        runs = fit_line(pieces, size - 1 - min(len(doubts) + 2, size // 2), 2)
        return [*runs, ("  ", "text"), (cut(doubts, size - 3 - width(runs)), "text")]
