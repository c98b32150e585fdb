"""Charts that are kept: the same cells as drawn anew, in every order, and few columns drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from math import isnan

import numpy as np
from drawn_cells import Cells
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console

from perftop.base.arrays import Floats
from perftop.draw import theme
from perftop.draw.ansi_strip import Ink, line
from perftop.draw.kept import Kept
from perftop.draw.moving import Column, Moving, Row, rows_of
from perftop.draw.strips import Run

INK = Ink(theme.styles("perftop-dark"), ColorSystem.TRUECOLOR)
CONSOLE = Console(file=io.StringIO(), color_system="truecolor", force_terminal=True)
COLUMNS, WIDE = 9, 20
KEYS = "text", "alarm", "heat1/heat7"
NAN = float("nan")


def drawn(values: Sequence[float], frame: str = "") -> Column:
    """Two rows: most values look alike in the upper one."""
    first, second = (0 if isnan(value) else int(value) for value in values)
    return ("█ "[first % 2] if not frame else "▒", KEYS[0]), ("·▄▀"[second % 3], KEYS[first % 3])


def told(values: Floats, frame: str) -> list[list[Row]]:
    return [rows_of(drawn(column, frame) for column in columns) for columns in values.tolist()]


def values(*columns: float) -> Floats:
    """One chart; both values of a column are equal."""
    return np.array(columns)[None, :, None].repeat(2, axis=2)


PICTURES = st.lists(
    st.tuples(
        st.integers(-2, COLUMNS + 1),  # columns gone
        st.lists(st.tuples(st.integers(0, COLUMNS - 1), st.sampled_from([0.0, 1.0, 2.0, NAN]))),
        st.sampled_from(["", "", "", "another frame"]),
        st.sampled_from([" 100 ", " 100 ", "▌ 50 "]),  # what stands before the chart
        st.booleans(),  # whether it is drawn on the terminal
    ),
    min_size=2, max_size=12,
)  # fmt: skip


@given(PICTURES, st.integers(0, 3))
def test_a_kept_chart_is_the_chart_drawn_anew_here_and_on_the_terminal(
    pictures: list[tuple[int, list[tuple[int, float]], str, str, bool]], beside: int
) -> None:
    """`beside`: cells of the terminal behind the lines."""
    kept, rng, newest = Kept(), np.random.default_rng(1), 100
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
        rows = kept.rows(partial(drawn, frame=frame), now.copy(), newest, frame)
        assert rows == told(now, frame)
        lines = [Moving([(head, "dim")], row) for chart in rows for row in chart]
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


def test_only_columns_that_are_new_are_drawn_and_written() -> None:
    kept, asked = Kept(), list[float]()

    def draw(column: Sequence[float]) -> Column:
        asked.append(column[0])
        return drawn(column)

    (before,) = kept.rows(draw, values(1, 2, 3, 4), 10, "")
    asked.clear()
    (after,) = kept.rows(draw, values(2, 3, 4, 5), 11, "")
    assert asked == [5]
    strips = [line(Moving([], chart[1]), INK, 4, ascii_=False) for chart in (before, after)]
    moved = strips[1].moved(strips[0], 0, 0, CONSOLE)
    assert moved is not None
    assert moved.startswith("\x1b[1;1H\x1b[1P\x1b[1;4H\x1b[1@\x1b[1;4H")
    assert strips[0].moved(strips[1], 0, 0, CONSOLE) is None  # there is no way back
    (last,) = kept.rows(draw, values(3, 4, 5, 6), 12, "")
    assert [row.before is old for row, old in zip(last, after, strict=True)] == [True, True]
    assert [row.before for row in after] == [None, None]  # none goes back further


def test_a_row_that_looks_the_same_is_the_same() -> None:
    kept = Kept()
    (before,) = kept.rows(drawn, values(1, 1, 1), 10, "")
    (after,) = kept.rows(drawn, values(1, 1, 1), 12, "")
    assert [a is b for a, b in zip(before, after, strict=True)] == [True, True]
