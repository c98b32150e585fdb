"""Rows of cells that move to the left as time passes, as those of a chart do.

A terminal moves cells by itself if it is told to delete some on their left, and to insert as many
blanks on their right. So of a row that has moved, only the new cells at its end are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perftop.draw.strips import Run, joined

Column = tuple[Run, ...]
"""The cells of a column of a chart, from the top."""


def blank(rows: int) -> Column:
    return ((" ", "text"),) * rows


class Row(list[Run]):
    """The runs of a row of cells, and how they came from those of the row before."""

    before: Row | None = None
    """None also once a newer row has come from this one."""
    gone = 0
    """Cells that the row before had at its left end."""
    tail: Sequence[Run] = ()
    """The cells at its end that are new."""

    def __init__(self, runs: Iterable[Run], size: int) -> None:
        super().__init__(runs)
        self.size = size
        """Number of cells."""

    def moved(self, gone: int, tail: Sequence[Run], lead: Run | None = None) -> Row:
        """As many cells, without the first `gone` and with those of `tail` at the end; `lead`
        replaces the first of those that stay. A row that looks the same is the same object."""
        sign, key = tail[0]
        if self == [(sign * self.size, key)] and {lead, *tail} <= {None, tail[0]}:
            return self  # blank, as many are
        made = Row(self, self.size)
        _cut(made, gone + (lead is not None), len(tail) - gone)
        if lead is not None:
            made[:1] = joined((lead, made[0]))
        for text, key in tail:
            if key == made[-1][1]:
                made[-1] = made[-1][0] + text, key
            else:
                made.append((text, key))
        if made == self:
            return self
        if lead is None:
            made.before, made.gone, made.tail = self, gone, tail
        self.before = None
        return made


def _cut(runs: list[Run], first: int, last: int) -> None:
    """Removes so many cells at both ends."""
    if first:
        at = 0
        while first >= len(runs[at][0]):
            first -= len(runs[at][0])
            at += 1
        runs[: at + 1] = [(runs[at][0][first:], runs[at][1])]
    while last >= len(runs[-1][0]):
        last -= len(runs.pop()[0])
    if last:
        runs[-1] = runs[-1][0][:-last], runs[-1][1]


def rows_of(columns: Iterable[Column]) -> list[Row]:
    """The rows of a chart, from the top."""
    return [Row(joined(cells), len(cells)) for cells in zip(*columns, strict=True)]


class Moving(list[Run]):
    """A line with such a row in it; what stands behind the row is appended."""

    __slots__ = ("begin", "end", "row", "size", "wide")

    def __init__(self, head: Sequence[Run], row: Row, wide: int, size: int = 0) -> None:
        """`wide`: cells of the head. `size`: cells of the whole line; in a line of more, a text was
        longer than its column, and nobody knows where the row is."""
        super().__init__(head)
        self.begin = len(self)
        """Place of the first run of the row."""
        self += row
        self.end = len(self)
        """Place of the first run behind it."""
        self.row, self.wide, self.size = row, wide, size or wide + row.size


def moving(shown: Sequence[Run], line: Sequence[Run], size: int) -> tuple[Moving, Row] | None:
    """The line, of so many cells, and the row in `shown`, if that in `line` is the same or came
    from it."""
    if not isinstance(shown, Moving) or not isinstance(line, Moving):
        return None
    placed = shown.wide == line.wide and shown.size == line.size == size
    came = line.row is shown.row or line.row.before is shown.row
    return (line, shown.row) if placed and came else None
