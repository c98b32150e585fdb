"""Columns and their cells, for every table: of the screen, of a panel, of plain text.

A column declares its heading, its width and how its numbers are printed. `fitted` chooses the
columns for a width, `Column.cell` prints a number with its meaning, `headings` and `line` put cells
together. A cell is a run: text and the name of a style, which names the meaning of the text, never
its colour. Plain text is a line without the styles: `plain`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan
from typing import Any

from perftop.base.format import MISSING, prefixed

Run = tuple[str, str]
"""Text whose every character is one cell wide, and the name of its style."""
CUT = "…"
AT_REST = "·"
"""Replaces a number per running time of a CPU that hardly ran."""
UNKNOWN = MISSING, "–"
"""The sign for an unknown number; the second one in narrow cells."""
NARROW = 4
"""Cells, with the gap, that are too few for `n/a`."""
DOUBTED, ESTIMATED = "≁", "≈"
"""Before a number of a suspect counter, and of an event that took turns on the counters."""
RISING, FALLING = "▲", "▼"
"""Before the heading of the column by which lines are sorted."""


@dataclass(slots=True)
class Column:
    """A value, to be changed by `replace` only; not frozen, as many are made for each refresh."""

    key: str
    heading: str
    width: int
    """Cells, including the gap at the left; the minimum if the column can grow."""
    left: bool = False
    """Text begins at the left, after `gap` cells; numbers end at the right."""
    gap: int = 2
    rank: int = 0
    """Columns of the highest rank are dropped first where room is short; 0: never."""
    most: int = 0
    """Maximum width, if the column takes spare cells; 0: it does not."""
    weight: int = 1
    """Its part of the spare cells, among columns of the same turn."""
    turn: int = 0
    """Columns of a lower turn grow to their maximum before others get spare cells."""
    scale: float = 1.0
    """Factor from a value to the number that is printed."""
    digits: int = 0
    """Decimal digits of that number."""
    prefixed: bool = False
    """Numbers of any size, with one digit and a prefix: 12.3k."""
    unit: str = ""
    shows: Any = None
    """Free for the owner of the column: what its values are."""

    @property
    def room(self) -> int:
        """Cells without the gap."""
        return max(0, self.width - self.gap)

    def place(self, text: str) -> str:
        """The text padded to the width of the column; words that are too long are cut."""
        if self.left:
            return fit(" " * self.gap + text, self.width)
        return f"{text:>{self.width}}"

    def text(self, value: float) -> str:
        """A number without padding; the sign for unknown if it is NaN."""
        return self.cell(value)[0]

    def cell(
        self, value: float, style: str = "text", *, online: bool = True, resting: bool = False,
        doubted: bool = False, estimated: bool = False,
    ) -> Run:  # fmt: skip
        """The cell of a number, without padding. `online`: whether its CPU is. `resting`: the CPU
        hardly ran, and the number describes its running time."""
        if not online:
            return "off", "dim"
        if resting:
            return AT_REST, "faint"
        number = value * self.scale
        if isnan(number):
            text, style = UNKNOWN[self.width < NARROW], "faint"
        else:
            text = prefixed(value) if self.prefixed else f"{number:z.{self.digits}f}"
        if estimated:
            text = ESTIMATED + text
        return (DOUBTED + text, "dim") if doubted else (text, style)


Cell = Run | list[Run]
"""Text that is padded to its column, or runs for a column but for its gap, such as a bar."""


def fit(text: str, size: int) -> str:
    """Text padded or cut to exactly `size` cells; an ellipsis marks a cut."""
    if len(text) > size:
        return text[: size - 1] + CUT if size > 1 else text[:size]
    return f"{text:<{size}}"


def number(value: float, digits: int, width: int = 0, style: str = "text") -> Run:
    """A number outside of tables, right-aligned; `n/a` if it is NaN."""
    if isnan(value):
        return f"{MISSING:>{width}}", "faint"
    return f"{value:>{width}.{digits}f}", style


def fitted(columns: Iterable[Column], width: int) -> list[Column]:
    """The columns that fit into `width` cells, in their order, with the spare cells given to those
    that can grow. Columns of equal rank are dropped together."""
    kept = list(columns)
    while total_width(kept) > width and (highest := max([c.rank for c in kept], default=0)):
        kept = [column for column in kept if column.rank != highest]
    spare = width - total_width(kept)
    for turn in sorted({c.turn for c in kept if c.most}):
        while spare > 0:
            growing = [i for i, c in enumerate(kept) if c.turn == turn and c.width < c.most]
            if not growing:
                break
            weights, left = sum(kept[i].weight for i in growing), spare
            for i in growing:
                column = kept[i]
                more = min(max(1, spare * column.weight // weights), left)
                more = min(more, column.most - column.width)
                kept[i] = replace(column, width=column.width + more)
                left -= more
            spare = left
    return kept


def by_content(column: Column, texts: Iterable[str]) -> Column:
    """The column as wide as its heading and the longest of these texts."""
    longest = max((len(text) for text in texts), default=0)
    return replace(column, width=column.gap + max(len(column.heading), longest))


def total_width(columns: Iterable[Column]) -> int:
    return sum([column.width for column in columns])


def column_at(columns: Iterable[Column], x: int) -> Column | None:
    """The column at cell `x` of a line of them; None if there is none."""
    end = 0
    for column in columns:
        if end <= x < (end := end + column.width):
            return column
    return None


def headings(columns: Iterable[Column], sorted_by: str = "", *, rising: bool = False) -> list[Run]:
    """Headings, each above its values. That of the column with the key `sorted_by` is bright, with
    an arrow before it, in the gap."""
    runs: list[Run] = []
    for column in columns:
        if sorted_by and column.key == sorted_by:
            heading = (RISING if rising else FALLING) + column.heading
            marked = replace(column, gap=max(0, column.gap - 1))
            runs.append((marked.place(heading), "bright"))
        else:
            runs.append((column.place(column.heading), "dim"))
    return runs


def line(columns: Iterable[Column], cells: Iterable[Cell]) -> list[Run]:
    """The cells of one line, each in its column."""
    runs: list[Run] = []
    for column, cell in zip(columns, cells, strict=True):
        if isinstance(cell, tuple):
            runs += [(column.place(cell[0]), cell[1])]
        else:
            used = column.gap + sum([len(text) for text, _ in cell])
            runs += [(" " * column.gap, "text"), *cell]
            runs.append((" " * (column.width - used), "text"))
    return runs


def plain(runs: Iterable[Run]) -> str:
    """The line as text, without styles and without blanks at its end."""
    return "".join(text for text, _ in runs).rstrip()
