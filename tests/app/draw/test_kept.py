"""Charts that are kept: the same cells as drawn anew, in every order, and few columns drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from drawn_cells import Cells
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console

from perftop.base.arrays import Floats
from perftop.draw import theme
from perftop.draw.kept import Kept
from perftop.draw.moving import Column, Moving, Row, moving, rows_of
from perftop.draw.strips import Run
from perftop.tui.shared.paint import Ink, line

INK = Ink(theme.styles("perftop-dark"), ColorSystem.TRUECOLOR)
CONSOLE = Console(file=io.StringIO(), color_system="truecolor", force_terminal=True)
COLUMNS, WIDE = 12, 24
KEYS = "text", "alarm", "heat1/heat7"
NAN = float("nan")


@dataclass(frozen=True)
class Drawing:
    """Two rows; most values look alike in the upper one, and in the lower one a cell shows how its
    line is joined to the cell before it."""

    per: int = 1
    joined: bool = False
    frame: str = ""

    def draw(self, chart: int, columns: Sequence[Sequence[float]]) -> list[Column]:
        told = [tuple(0 if isnan(it) else int(it) for it in column) for column in columns]
        cells, before = list[Column](), chart
        for at in range(0, len(told), self.per):
            mine = told[at : at + self.per]
            upper, lower = mine[0][0] % 2, sum(map(sum, mine)) + before
            before = mine[-1][1] if self.joined else chart
            sign = "█ "[upper] if not self.frame else "▒"
            cells.append(((sign, KEYS[0]), ("·▄▀"[lower % 3], KEYS[lower // 3 % 3])))
        return cells

    def told(self, values: Floats) -> list[list[Row]]:
        return [rows_of(self.draw(i, columns)) for i, columns in enumerate(values.tolist())]


def values(*columns: float) -> Floats:
    """One chart; both values of a column are equal."""
    return np.array(columns)[None, :, None].repeat(2, axis=2)


PICTURES = st.lists(
    st.tuples(
        st.integers(-2, COLUMNS + 1),  # columns gone
        st.lists(st.tuples(st.integers(0, COLUMNS - 1), st.sampled_from([0.0, 1.0, 2.0, NAN]))),
        st.sampled_from(["", "", "", "another frame"]),
        st.sampled_from([" 100 ", " 100 ", "▌ 50 "]),  # what stands before the chart, and behind
        st.booleans(),  # whether it is drawn on the terminal
    ),
    min_size=2, max_size=12,
)  # fmt: skip


@given(PICTURES, st.integers(0, 3), st.sampled_from([(1, False), (2, False), (2, True)]))
def test_a_kept_chart_is_the_chart_drawn_anew_here_and_on_the_terminal(
    pictures: list[tuple[int, list[tuple[int, float]], str, str, bool]], beside: int,
    kind: tuple[int, bool],
) -> None:  # fmt: skip
    """`beside`: cells of the terminal behind the lines."""
    (per, joined), rng, newest = kind, np.random.default_rng(1), 100
    kept = Kept(per, joined=joined)
    now = rng.integers(0, 3, (2, COLUMNS, 2)).astype(float)
    terminal, edge = Cells(), "|" * beside
    for y in range(4):
        terminal.write(f"\x1b[{y + 1};{WIDE + 1}H{edge}", WIDE + beside)
    shown: dict[int, list[Run]] = {}
    for gone, changes, frame, head, seen in pictures:
        newest += gone
        come = rng.integers(0, 3, (2, abs(gone) % COLUMNS, 2)).astype(float)
        now = np.concatenate([now[:, come.shape[1] :], come], axis=1)
        for at, value in changes:
            now[0, at, 1] = value
        drawing = Drawing(per, joined, frame)
        rows = kept.rows(drawing.draw, now.copy(), newest, frame)
        assert rows == drawing.told(now)
        lines = [placed(head, row) for chart in rows for row in chart]
        for y, runs in enumerate(lines if seen else ()):
            fresh = line(runs, INK, WIDE, ascii_=False)
            whole = f"\x1b[{y + 1};1H{fresh.render(CONSOLE)}"
            before = line(shown.get(y, []), INK, WIDE, ascii_=False)
            moved = fresh.moved(before, 0, y, CONSOLE)
            terminal.write(whole if moved is None else moved, WIDE + beside)
            shown[y] = runs
            other = Cells()
            other.write(whole + edge, WIDE + beside)
            assert terminal.looks(WIDE + beside, y) == other.looks(WIDE + beside, y)


def placed(text: str, row: Row) -> Moving:
    """A line with the row between two texts."""
    made = Moving([("|", "text"), (text, "dim")], row, 1 + len(text), 2 + 2 * len(text) + row.size)
    made += [(text, "text"), ("|", "dim")]
    return made


def test_what_lies_elsewhere_on_its_line_does_not_move() -> None:
    (row, *_) = Drawing().told(values(0, 1, 2))[0]
    wide = 2 + row.size
    one, other = Moving([("ab", "text")], row, 2), Moving([("cd", "text")], row, 2)
    assert moving(one, other, wide) == (other, row)
    assert moving(one, other, wide + 1) is None  # a text is longer than its column
    assert moving(one, Moving([("abc", "text")], row, 3), wide) is None
    assert moving(one, [*other], wide) is None


def test_a_row_of_equal_cells_is_another_one_once_a_cell_differs() -> None:
    cell, other = (" ", "text"), ("x", "text")
    row = Row([("    ", "text")], 4)
    assert row.moved(1, [cell, cell]) is row
    assert row.moved(1, [cell], cell) is row
    assert row.moved(1, [cell], other) == [("x   ", "text")]
    assert Row([("    ", "text")], 4).moved(1, [cell, other]) == [("   x", "text")]


def test_only_columns_that_are_new_are_drawn_and_written() -> None:
    kept, asked = Kept(), list[float]()

    def draw(chart: int, columns: Sequence[Sequence[float]]) -> list[Column]:
        asked.extend(column[0] for column in columns)
        return Drawing().draw(chart, columns)

    (before,) = kept.rows(draw, values(1, 2, 3, 4), 10, "")
    asked.clear()
    (after,) = kept.rows(draw, values(2, 3, 4, 5), 11, "")
    assert asked == [5]
    strips = [line(Moving([], chart[1], 0), INK, 4, ascii_=False) for chart in (before, after)]
    moved = strips[1].moved(strips[0], 0, 0, CONSOLE)
    assert moved is not None
    assert moved.startswith("\x1b[1;1H\x1b[1P\x1b[1;4H\x1b[1@\x1b[0;")
    assert "P" not in (strips[0].moved(strips[1], 0, 0, CONSOLE) or "")  # there is no way back
    (last,) = kept.rows(draw, values(3, 4, 5, 6), 12, "")
    assert [row.before is old for row, old in zip(last, after, strict=True)] == [True, True]
    assert [row.before for row in after] == [None, None]  # none goes back further


def test_a_row_that_looks_the_same_is_the_same() -> None:
    kept = Kept()
    (before,) = kept.rows(Drawing().draw, values(1, 1, 1), 10, "")
    (after,) = kept.rows(Drawing().draw, values(1, 1, 1), 12, "")
    assert [a is b for a, b in zip(before, after, strict=True)] == [True, True]
