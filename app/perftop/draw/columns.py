"""Columns and their cells, for tables on the screen, in panels, or in plain text. A column declares
its heading, its width and the format of its numbers. `fit_columns` chooses the columns for a width,
`Column.cell` formats a number and chooses its style, `headings` and `join_columns` join cells into
lines, and `plain_text` removes the styles.

A cell is a run: text and the name of a style. The name is a meaning, never a colour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, TypeVar

from perftop.base.text import MISSING, fit, with_si_prefix

Run = tuple[str, str]
"""Text, whose every character is one cell wide, and the name of its style."""
AT_REST = "·"
"""Shown instead of a number that describes running time, for a CPU that hardly ran."""
UNKNOWN_TEXTS = MISSING, "–"
"""Texts for an unknown number: the normal one, and a shorter one for narrow cells."""
MAX_NARROW_WIDTH = 4
"""Maximum width in cells, including the gap, of a column that is too narrow for `n/a`."""
SUSPECT_SIGN, ESTIMATED_SIGN = "≁", "≈"
"""Prefixes of numbers: one from a suspect counter, and one from a multiplexed event."""
MAX_SIMILAR_ROWS = 5
"""Maximum number of similar items of a list that have a row each."""
RISING, FALLING = "▲", "▼"
"""Arrows before the heading of the column by which lines are sorted."""


@dataclass(slots=True)
class Column:
    """A column of a table. Do not change it: use `replace`. It is not frozen, because many columns
    are created at each refresh, and frozen ones take longer to create."""

    key: str
    heading: str
    width: int
    """Width in cells with the gap at the left; the minimum width if the column can grow."""
    is_left: bool = False
    """Whether the column is left-aligned, after `gap` cells, instead of right-aligned."""
    gap: int = 2
    rank: int = 0
    """If not all columns fit, the highest ranks are dropped first; rank 0 never is."""
    max_width: int = 0
    """Maximum width in cells of a column that can grow; 0 if it cannot."""
    weight: int = 1
    """Weight of the column when spare cells are distributed among columns of one growth rank."""
    growth_rank: int = 0
    """Columns of a lower growth rank grow to their maximum before columns of a higher one grow."""
    scale: float = 1.0
    """Factor that converts a value to the printed number."""
    digits: int = 0
    """Number of decimals of the printed number."""
    has_si_prefix: bool = False
    """Whether numbers are printed with one decimal and an SI prefix, such as 12.3k."""
    source: Any = None
    """Data from which the code that made the column gets its values."""

    @property
    def room(self) -> int:
        """Width in cells without the gap."""
        return max(0, self.width - self.gap)

    def pad(self, text: str) -> str:
        """Returns the text padded to the column's width. Left-aligned text is cut if necessary."""
        if self.is_left:
            return fit(" " * self.gap + text, self.width)
        return f"{text:>{self.width}}"

    def cell(
        self, value: float, style: str = "text", *, online: bool = True, resting: bool = False,
        doubted: bool = False, estimated: bool = False,
    ) -> Run:  # fmt: skip
        """Returns an unpadded cell. `resting`: the number describes running time, and the CPU
        hardly ran. `doubted`: a counter is suspect. `estimated`: counted part of the time."""
        if not online:
            return "off", "dim"
        if resting:
            return AT_REST, "faint"
        number = value * self.scale
        if isnan(number):
            text, style = UNKNOWN_TEXTS[self.width < MAX_NARROW_WIDTH], "faint"
        else:
            text = with_si_prefix(value) if self.has_si_prefix else f"{number:z.{self.digits}f}"
        if estimated:
            text = ESTIMATED_SIGN + text
        return (SUSPECT_SIGN + text, "dim") if doubted else (text, style)

    def numbers(self, values: Sequence[float], styles: Sequence[str]) -> list[Run]:
        """Returns right-aligned numbers without SI prefixes, formatted as by `cell` and `pad`."""
        spec, scale = f"z{self.width}.{self.digits}f", self.scale
        unknown: Run = self.pad(UNKNOWN_TEXTS[self.width < MAX_NARROW_WIDTH]), "faint"
        return [
            unknown if isnan(number := value * scale) else (format(number, spec), style)
            for value, style in zip(values, styles, strict=True)
        ]


Cell = Run | list[Run]
"""A cell of a line: text, padded to its column's width, or runs (such as a bar) after its gap."""


def number_run(value: float, digits: int, width: int = 0, style: str = "text") -> Run:
    """Returns a right-aligned number for use outside tables; `n/a` for NaN."""
    if isnan(value):
        return f"{MISSING:>{width}}", "faint"
    return f"{value:>{width}.{digits}f}", style


def fit_columns(columns: Iterable[Column], width: int) -> list[Column]:
    """Returns the columns that fit into `width` cells, in their order. Columns of equal rank are
    dropped together. Columns that can grow get the spare cells."""
    fitted_columns = list(columns)
    while total_width(fitted_columns) > width and (
        highest := max([c.rank for c in fitted_columns], default=0)
    ):
        fitted_columns = [column for column in fitted_columns if column.rank != highest]
    spare_cells = width - total_width(fitted_columns)
    for growth_rank in sorted({c.growth_rank for c in fitted_columns if c.max_width}):
        while spare_cells > 0:
            indexes = [i for i, c in enumerate(fitted_columns)
                       if c.growth_rank == growth_rank and c.width < c.max_width]  # fmt: skip
            if not indexes:
                break
            weights, cells_left = sum(fitted_columns[i].weight for i in indexes), spare_cells
            for i in indexes:
                column = fitted_columns[i]
                added_cells = min(max(1, spare_cells * column.weight // weights), cells_left)
                added_cells = min(added_cells, column.max_width - column.width)
                fitted_columns[i] = replace(column, width=column.width + added_cells)
                cells_left -= added_cells
            spare_cells = cells_left
    return fitted_columns


def fit_to_texts(column: Column, texts: Iterable[str]) -> Column:
    """Returns the column, wide enough for its heading and for the longest of these texts."""
    longest = max((len(text) for text in texts), default=0)
    return replace(column, width=column.gap + max(len(column.heading), longest))


Item = TypeVar("Item")


def fold_similar(
    items: Iterable[Item], key: Callable[[Item], object], selected: object
) -> list[tuple[Item, ...]]:
    """Returns the rows of a list. Items with one key share a row, except the first MAX_SIMILAR_ROWS
    of them and the selected one. Items whose key is None never share a row."""
    rows: list[list[Item]] = []
    shared_rows: dict[object, list[Item]] = {}
    counts = Counter[object]()
    for item in items:
        item_key = key(item)
        counts[item_key] += 1
        if item_key is None or counts[item_key] <= MAX_SIMILAR_ROWS or item is selected:
            rows.append([item])
        elif item_key in shared_rows:
            shared_rows[item_key].append(item)
        else:
            shared_rows[item_key] = [item]
            rows.append(shared_rows[item_key])
    return [tuple(row) for row in rows]


def total_width(columns: Iterable[Column]) -> int:
    return sum([column.width for column in columns])


def column_at(columns: Iterable[Column], x: int) -> Column | None:
    """Returns the column at cell `x` of a line; None if there is no column."""
    end = 0
    for column in columns:
        if end <= x < (end := end + column.width):
            return column
    return None


def headings(columns: Iterable[Column], sorted_by: str = "", *, rising: bool = False) -> list[Run]:
    """Returns the headings, aligned like the values below them. `sorted_by`: key of a column; the
    heading of the first such column is bright and has an arrow in its gap."""
    runs: list[Run] = []
    for column in columns:
        if sorted_by and column.key == sorted_by:
            heading = (RISING if rising else FALLING) + column.heading
            sorted_column = replace(column, gap=max(0, column.gap - 1))
            runs.append((sorted_column.pad(heading), "bright"))
            sorted_by = ""
        else:
            runs.append((column.pad(column.heading), "dim"))
    return runs


def join_columns(columns: Iterable[Column], cells: Iterable[Cell]) -> list[Run]:
    """Joins cells into a line, each padded to its column."""
    runs: list[Run] = []
    for column, cell in zip(columns, cells, strict=True):
        if isinstance(cell, tuple):
            runs.append((column.pad(cell[0]), cell[1]))
        else:
            used_cells = column.gap + sum([len(text) for text, _ in cell])
            runs += [(" " * column.gap, "text"), *cell]
            runs.append((" " * (column.width - used_cells), "text"))
    return runs


def plain_text(runs: Iterable[Run]) -> str:
    """Returns the line as text, without styles and without trailing blanks."""
    return "".join(text for text, _ in runs).rstrip()
