"""Stacked areas: exact cells computed by hand, and properties of all charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw import charts, theme
from perftop.draw.charts import (
    AFTER_EPISODE,
    DURING_EPISODE,
    OUTSIDE_EPISODES,
    Glyphs,
    chart_lines,
    two_largest_kinds,
)
from perftop.draw.columns import Run

GLYPHS: tuple[Glyphs, ...] = ("colour", "sixteen", "shapes", "ascii")


def account(
    *columns: tuple[float, ...], rows: int = 4, glyphs: Glyphs = "colour"
) -> list[list[str]]:
    """Returns cells by line, each as its character and style; columns are user, kernel, steal,
    heat."""
    whole = [(*column, OUTSIDE_EPISODES)[:4] for column in columns]
    return characters_with_styles(chart_lines(charts.cpu_time_chart(np.array(whole), rows, glyphs)))


def states(
    *columns: tuple[float, ...], rows: int = 4, glyphs: Glyphs = "colour"
) -> list[list[str]]:
    """Returns cells like `account`; columns are both, open, lp0, lp1."""
    return characters_with_styles(chart_lines(charts.smt_chart(np.array(columns), rows, glyphs)))


def characters_with_styles(lines: Sequence[list[Run]]) -> list[list[str]]:
    return [[f"{sign} {key}" for text, key in line for sign in text] for line in lines]


def single_column(lines: list[list[str]]) -> list[str]:
    """Returns the cells of a chart of one column, from the top."""
    return [line[0] for line in lines]


def test_steal_is_drawn_from_the_top() -> None:
    """8 eighths of user time and 12 of steal: a full cell and a half one above the background."""
    assert single_column(account((0.25, 0.0, 0.375))) == [
        "█ steal", "▀ steal", "  text", "█ user-1",
    ]  # fmt: skip
    hot = single_column(account((0.25, 0.0, 0.375, DURING_EPISODE)))
    assert hot == ["█ hot", "▄ ground/hot", "  text", "█ user-1"]


def test_a_tall_chart_marks_full_hot_cells_of_steal() -> None:
    hot = single_column(account((0.0, 0.0, 0.1875, DURING_EPISODE), rows=8))
    over = single_column(account((0.0, 0.0, 0.1875, AFTER_EPISODE), rows=8))
    quiet = single_column(account((0.0, 0.0, 0.1875), rows=8))
    assert hot[:2] == ["╳ alarm/hot-back", "▄ ground/hot"]
    assert over[:2] == ["╳ over/over-back", "▄ ground/steal"]
    assert quiet[:2] == ["█ steal", "▀ steal"]


def test_a_little_steal_is_visible_but_less_is_not() -> None:
    assert single_column(account((0.0, 0.0, 0.004)))[0] == "▔ steal"
    assert single_column(account((0.0, 0.0, 0.0625)))[0] == "▆ ground/steal"
    assert single_column(account((0.0, 0.0, 0.0039)))[0] == "  text"
    assert single_column(account((0.5, 0.5, 0.004)))[0] == "▇ kernel-10/steal"


@pytest.mark.parametrize(("parts", "steal_priority", "drawn_parts"), [
    ((8, 0, 0, 0), "equal", (0, 0, 8)),
    ((3, 5, 0, 0), "equal", (0, 1, 3)),
    ((5, 1, 2, 0), "equal", (0, 2, 6)),  # the kernel share is dropped, idle time stays exact
    ((1, 4, 3, 0), "equal", (1, 2, 5)),
    ((4, 3, 0, 1), "weak", (0, 1, 4)),
    ((5, 1, 0, 2), "weak", (0, 1, 5)),  # quiet steal is dropped before a smaller kernel share
    ((0, 4, 1, 3), "weak", (1, 3, 5)),
    ((0, 3, 1, 4), "weak", (1, 3, 4)),
    ((0, 0, 5, 3), "weak", (2, 3, 5)),
    ((5, 2, 0, 1), "firm", (0, 3, 7)),  # steal during a running episode is kept, at its exact size
    ((2, 2, 3, 1), "firm", (2, 3, 7)),
    ((2, 2, 2, 2), "equal", (0, 1, 2)),
])  # fmt: skip
def test_a_cell_of_three_kinds_shows_two_of_them(
    parts: tuple[int, ...], steal_priority: charts.StealPriority, drawn_parts: tuple[int, ...]
) -> None:
    assert two_largest_kinds(parts, steal_priority) == drawn_parts


def test_only_unknown_columns_are_blank() -> None:
    lines = account((float("nan"), 0.5, 0.5), (1.0, float("nan"), float("nan")))
    assert [line[0] for line in lines] == ["  text"] * 4
    assert [line[1][0] for line in lines] == ["█"] * 4


def test_without_colour_shapes_and_eighths_show_the_end_of_the_busy_part() -> None:
    columns = ((0.375, 0.25, 0.0), (0.25, 0.0, 0.375, DURING_EPISODE), (0.5, 0.0, 0.03))
    signs = ["".join(cell[0] for cell in line) for line in account(*columns, glyphs="shapes")]
    assert signs == [" ╳▔", "▄╳ ", "█ █", "███"]
    plain = ["".join(cell[0] for cell in line) for line in account(*columns, glyphs="ascii")]
    assert plain == [" ╳ ", "▓╳ ", "█ █", "███"]
    assert account(*columns, glyphs="shapes")[0][1] == "╳ alarm"


@pytest.mark.parametrize("glyphs", GLYPHS[1:])
def test_without_colour_a_half_busy_core_is_one_area_without_stripes(glyphs: Glyphs) -> None:
    """The first thread is busy for all of the time, then both for half of it."""
    cells = single_column(states((0.0, 0.0, 1.0, 0.0), rows=8, glyphs=glyphs))
    assert len({*cells[:4]}) == 1
    assert {*cells[4:]} == {"· neither"}
    half = single_column(states((0.5, 0.0, 0.0, 0.0), rows=8, glyphs=glyphs))
    assert len({*half[2:6]}) == 1
    assert len({*single_column(account((1.0, 0.0, 0.0), rows=8, glyphs=glyphs))}) == 1


def test_a_core_is_drawn_outwards_from_the_middle() -> None:
    """Each half has 16 eighths. Both threads take 4; then the first thread takes 8 upwards, and the
    second 6 downwards."""
    assert single_column(states((0.25, 0.0, 0.5, 0.375))) == [
        "▄ lp0-9", "▄ both-3/lp0-3", "▄ lp1-3/both-3", "▆ ground/lp1-9",
    ]  # fmt: skip


def test_idle_cells_are_dots_and_full_cells_are_solid() -> None:
    half = ["· neither", "█ both-3", "█ both-3", "█ lp1-9"]
    assert single_column(states((0.5, 0.0, 0.0, 0.5))) == half
    assert single_column(states((0.0, 0.0, 0.0, 0.0))) == ["· neither"] * 4


def test_the_range_of_both_is_grey() -> None:
    assert single_column(states((0.25, 0.25, 0.0, 0.5))) == [
        "· neither", "▄ both-3/unknown", "▄ unknown/both-3", "█ lp1-9",
    ]  # fmt: skip


def test_in_sixteen_colours_a_core_is_solid() -> None:
    lines = states((0.5, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0), glyphs="sixteen")
    assert [line[0].split("-")[0] for line in lines] == ["█ lp0", "█ both", "█ both", "· neither"]
    assert [line[1].split("-")[0] for line in lines][2:] == ["█ lp1", "█ lp1"]


SHARES = st.floats(-0.5, 1.5) | st.just(float("nan"))


ACCOUNT = st.tuples(SHARES, SHARES, SHARES, st.integers(0, 2))
STATES = st.tuples(SHARES, SHARES, SHARES, SHARES)


@pytest.mark.parametrize(("draw", "column"), [(account, ACCOUNT), (states, STATES)])
@given(st.data(), st.integers(1, 6), st.sampled_from(GLYPHS))
def test_any_shares_can_be_drawn(
    draw: Callable[..., list[list[str]]], column: st.SearchStrategy[tuple[float, ...]],
    data: st.DataObject, half: int, glyphs: Glyphs,
) -> None:  # fmt: skip
    columns = data.draw(st.lists(column, min_size=1, max_size=9))
    lines = draw(*columns, rows=2 * half, glyphs=glyphs)
    assert [len(line) for line in lines] == [len(columns)] * 2 * half
    style_names = theme.line_styles("perftop-dark")
    for cell in (cell for line in lines for cell in line):
        assert all(part in style_names for part in cell[2:].split("/"))
