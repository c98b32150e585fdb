"""The layout of the heat map: the position of every core, and rings around cores that lose
something."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from math import ceil

from perftop.draw.columns import Run
from perftop.draw.strips import join_cells
from perftop.session.session import Session
from perftop.tui.shared.choice import Places

# --- The position of every core in the heat map, for a width and a height. Measured values have no
# influence, so that nothing moves when values change.

BLOCK_GAP = 2
"""Number of columns between blocks of one package."""
PACKAGE_GAP = 3
"""Number of columns between packages that are side by side."""
MIN_HEADING = 24
"""Minimum width, in columns, of a package's heading if packages are side by side."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cores that are drawn together: those of an L3 if the package has several L3s, else all cores
    of the package."""

    label: str
    rows: tuple[int, ...]
    """Indices of the cores in the list of places."""


Package = list[Group]


@dataclass(frozen=True, slots=True)
class Cell:
    """Size of a core's cell in columns and lines. The column to the left of a cell is for marks."""

    width: int
    height: int
    blank_lines: int
    """Number of empty lines for rings around the cell: 2: one above and one below; 1: one between
    two rows of cells, shared by their rings; 0: no rings are drawn."""
    has_halves: bool
    """Whether two threads share a line of the cell; else each thread has its own line."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a line: the heading of a package, a label, or cells."""

    x: int
    width: int
    cells: tuple[int, ...] = ()
    line: int = 0
    """Line of the screen within the cells' height; 0 is the top line."""
    label: str = ""
    package: int = -1


@dataclass(slots=True)
class HeatLayout:
    cell: Cell
    lines: list[list[Part]]
    spots: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By row: the column of the mark to the left of the cell, and the cell's first line."""

    def __post_init__(self) -> None:
        for y, line in enumerate(self.lines):
            for part in line:
                for i, row in enumerate(part.cells):
                    self.spots.setdefault(row, (part.x + i * (self.cell.width + 1), y))


def packages(session: Session, places: Places) -> tuple[list[Package], list[int | None]]:
    """Returns the groups of cores of each package, with the L3s of a die next to each other; and
    the packages' IDs."""
    rows_of: dict[int | None, dict[tuple[int | None, int | None], list[int]]] = {}
    for row, place in enumerate(places.places):
        dies = (session.topology[position].die for position in place.rows)
        die = next((die for die in dies if die is not None), None)
        rows_of.setdefault(place.package, {}).setdefault((die, place.l3), []).append(row)
    cache_groups = [_groups(caches) for caches in rows_of.values()]
    if all(len(group.rows) == 1 for group in chain(*cache_groups)):  # each core has its own L3
        cache_groups = [[Group("", tuple(row for group in groups for row in group.rows))]
                 for groups in cache_groups]  # fmt: skip
    return cache_groups, list(rows_of)


def _groups(caches: dict[tuple[int | None, int | None], list[int]]) -> Package:
    """Returns the groups of a package. `caches`: its rows, by die and L3. A label names the die
    only if there are several dies and the L3 alone does not identify it."""
    dies = list(dict.fromkeys(die for die, _ in caches))
    one_cache_each = len(caches) == len(dies)
    groups = []
    for die, l3 in sorted(caches, key=lambda key: dies.index(key[0])):
        names_no_die = len(dies) == 1 or (one_cache_each and l3 is not None)
        parts = [f"die {die}"] if die is not None and not names_no_die else []
        parts += [f"L3 {l3}"] if l3 is not None else []
        label = " ".join(parts) if len(caches) > 1 else ""
        groups.append(Group(label, tuple(caches[die, l3])))
    return groups


@dataclass(frozen=True, slots=True)
class _Form:
    """Parameters of a layout to try."""

    cell: Cell
    box: int
    """Width of a package, in columns."""
    boxes_per_row: int
    """Number of packages side by side."""
    margin: int
    """Width of labels in columns, the same in all packages."""
    headings: bool
    labels: bool

    def blocks(self, groups: Package) -> tuple[int, int]:
        """Returns the number of cells in a line of a group (0 if none fit), and the number of
        groups side by side. All groups are as wide as the widest group, so that they align in
        columns."""
        fit = (self.box - self.margin - 1) // (self.cell.width + 1)
        max_rows = max(len(group.rows) for group in groups)
        if fit <= 0:
            return 0, 1
        if max_rows > fit:  # lines of equal length, if these use more than half of the width
            even_split = next((n for n in range(fit, fit // 2, -1) if max_rows % n == 0), None)
            return even_split or ceil(max_rows / ceil(max_rows / fit)), 1
        boxes_beside = max(1, (self.box + BLOCK_GAP) // (self.width_of_cells(max_rows) + BLOCK_GAP))
        return max_rows, ceil(len(groups) / ceil(len(groups) / boxes_beside))

    def width_of_cells(self, cells: int) -> int:
        """Returns the width of this many cells with their label, in columns."""
        return self.margin + cells * (self.cell.width + 1) + 1

    def height_of(self, groups: Package) -> int:
        """Returns the number of lines of a package, including its heading."""
        cells_per_line, groups_beside = self.blocks(groups)
        blocks = (groups[i : i + groups_beside] for i in range(0, len(groups), groups_beside))
        rows = sum(ceil(max(len(g.rows) for g in block) / cells_per_line) for block in blocks)
        lines = rows * (self.cell.height + self.cell.blank_lines) + (self.cell.blank_lines == 1)
        return self.headings + lines


def layout(packages: Sequence[Package], ids: Sequence[int | None], names: Sequence[str],
           threads: int, width: int, height: int, *, ascii_: bool,
           folded: Collection[int] = ()) -> HeatLayout:  # fmt: skip
    """Returns the layout with the largest cells that shows everything. If even the smallest cells
    do not fit, labels are dropped, then headings; if they still do not fit, the map scrolls.
    `folded`: indices of the packages that are drawn as their heading only."""
    *_, small_cell = _cell_sizes(threads, ascii_=ascii_)
    if not packages:
        return HeatLayout(small_cell, [])
    single_cores = len(packages) > 1 and all(len(p) == len(p[0].rows) == 1 for p in packages)
    whole_packages = _whole_packages(packages, ids)
    for headings, labels in ((True, True), (True, False), (False, True), (False, False)):
        if folded and not headings:
            break
        drawn_packages = packages if headings else whole_packages
        margin = int(headings)
        if labels:
            texts = (g.label or names[row] for g in chain(*drawn_packages) for row in g.rows)
            margin = 1 + max(map(len, texts))
        for cell in _cell_sizes(threads, ascii_=ascii_):
            for boxes_per_row in range(1, len(drawn_packages) + 1):
                box = (width - PACKAGE_GAP * (boxes_per_row - 1)) // boxes_per_row
                form = _Form(cell, box, boxes_per_row, margin, headings, labels)
                if (boxes_per_row > 1 and box < MIN_HEADING) or (headings and single_cores):
                    break
                if not all(form.blocks(groups)[0] for groups in drawn_packages):
                    continue
                heights = [1 if i in folded else form.height_of(groups)
                           for i, groups in enumerate(drawn_packages)]  # fmt: skip
                starts = range(0, len(heights), boxes_per_row)
                if sum(max(heights[i : i + boxes_per_row]) for i in starts) <= height:
                    return HeatLayout(cell, _place_boxes(drawn_packages, names, form, folded))
    form = _Form(small_cell, width, 1, 1, headings=True, labels=False)
    is_usable = all(form.blocks(groups)[0] for groups in packages)
    lines = _place_boxes(packages, names, form, folded) if is_usable else []
    return HeatLayout(small_cell, lines)


def _cell_sizes(threads: int, *, ascii_: bool) -> Iterator[Cell]:
    """Yields the cell sizes to try, the best first. In ASCII, siblings are side by side, so widths
    are even."""
    height = ceil(threads / 2)
    for blank_lines in (2, 1):
        yield Cell(4, max(2, threads), blank_lines, has_halves=False)
    for blank_lines in (1, 0):
        for width in (4, 3, 2, 1):
            if (width > 1 or not blank_lines) and not (ascii_ and threads > 1 and width % 2):
                yield Cell(width, height, blank_lines, has_halves=threads > 1)


def _whole_packages(packages: Sequence[Package], ids: Sequence[int | None]) -> list[Package]:
    """Returns the machine as a single package, whose groups are the real packages."""
    rows = [tuple(row for group in package for row in group.rows) for package in packages]
    if all(len(package) == 1 for package in rows):
        return [[Group("", tuple(chain(*rows)))]]
    names = ["" if len(ids) == 1 else "p?" if i is None else f"p{i}" for i in ids]
    return [[Group(name, group_rows) for name, group_rows in zip(names, rows, strict=True)]]


def _place_boxes(
    packages: Sequence[Package], names: Sequence[str], form: _Form, folded: Collection[int]
) -> list[list[Part]]:
    boxes = []
    for i, groups in enumerate(packages):
        head = [[Part(0, form.box, package=i)]] if form.headings else []
        boxes.append(head + ([] if i in folded else _blocks(groups, names, form)))
    lines: list[list[Part]] = []
    for first in range(0, len(boxes), form.boxes_per_row):
        boxes_in_line = boxes[first : first + form.boxes_per_row]
        lines += [
            [replace(part, x=part.x + i * (form.box + PACKAGE_GAP))
             for i, parts in enumerate(parts_of_boxes) for part in parts]
            for parts_of_boxes in zip_longest(*boxes_in_line, fillvalue=list[Part]())
        ]  # fmt: skip
    return lines


def _blocks(groups: Package, names: Sequence[str], form: _Form) -> list[list[Part]]:
    """Returns the lines of a package below its heading."""
    cells_per_line, groups_beside = form.blocks(groups)
    lines: list[list[Part]] = []
    above, below = form.cell.blank_lines > 0, form.cell.blank_lines > 1
    for first in range(0, len(groups), groups_beside):
        block = groups[first : first + groups_beside]
        for start in range(0, max(len(group.rows) for group in block), cells_per_line):
            lines += [[]] * above
            for line in range(form.cell.height):
                parts: list[Part] = []
                for i, group in enumerate(block):
                    x = i * (form.width_of_cells(cells_per_line) + BLOCK_GAP)
                    cells = group.rows[start : start + cells_per_line]
                    if form.labels and cells and not line:
                        # A group without a label shows the name of the line's first core.
                        text = f" {'' if start else group.label:<{form.margin - 1}}"
                        if not group.label:
                            text = f"{names[group.rows[start]]:>{form.margin}}"
                        parts.append(Part(x, form.margin, label=text))
                    if cells:
                        width = len(cells) * (form.cell.width + 1) + 1
                        parts.append(Part(x + form.margin, width, cells, line))
                lines.append(parts)
            lines += [[]] * below
    return [*lines, []] if form.cell.blank_lines == 1 else lines


# --- rings around cores that lose something. Rings that touch share a line.

RIGHT, LEFT, DOWN, UP = 1, 2, 4, 8
"""Directions into which the strokes of a cell lead; cells of rings add them up."""
_STROKES = {True: " ╺╸━╻┏┓┳╹┗┛┻┃┣┫╋", False: " ╶╴─╷┌┐┬╵└┘┴│├┤┼"}
"""Signs of the strokes, indexed by whether the core loses now and by the sum of the directions."""


@dataclass(frozen=True, slots=True)
class Ring:
    row: int
    text: str
    """The text in its upper edge; '' for none."""
    is_running: bool

    @property
    def style(self) -> str:
        return "alarm" if self.is_running else "over"

    @property
    def side(self) -> Run:
        return _STROKES[self.is_running][UP + DOWN], self.style


def ring_edges(plan: HeatLayout, rings: Sequence[Ring]) -> dict[int, list[Run]]:
    """Returns the lines with the upper and lower edges of rings, by line of the layout. Rings of
    cores that lose now are drawn over the others."""
    strokes: dict[int, dict[int, tuple[int, Ring]]] = {}
    texts: dict[int, dict[int, Run]] = {}
    cell_width = plan.cell.width
    for ring in sorted(rings, key=lambda ring: ring.is_running):
        if ring.row not in plan.spots:
            continue
        left, top = plan.spots[ring.row]
        for y, inward in ((top - 1, DOWN), (top + plan.cell.height, UP)):
            corners = {left: RIGHT + inward, left + cell_width + 1: LEFT + inward}
            cells = strokes.setdefault(y, {})
            for x in range(left, left + cell_width + 2):
                cells[x] = cells.get(x, (0, ring))[0] | corners.get(x, LEFT + RIGHT), ring
        if len(ring.text) <= cell_width:
            for x, sign in enumerate(ring.text, left + (cell_width - len(ring.text)) // 2 + 1):
                texts.setdefault(top - 1, {})[x] = sign, ring.style
    edges: dict[int, list[Run]] = {}
    for y, cells in strokes.items():
        line: list[Run] = [(" ", "text")] * (max(cells) + 1)
        for x, (directions, ring) in cells.items():
            line[x] = _STROKES[ring.is_running][directions], ring.style
        for x, run in texts.get(y, {}).items():
            line[x] = run
        edges[y] = join_cells(line)
    return edges
