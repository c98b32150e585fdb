"""Charts of clocks and rates, and areas of the time use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw import charts, strips, theme
from perftop.draw.charts import (
    AFTER_EPISODE,
    DURING_EPISODE,
    LOSING,
    OUTSIDE_EPISODES,
    Glyphs,
    chart_lines,
    two_largest_kinds,
)
from perftop.draw.columns import Run

NAN = math.nan
SHARES = st.lists(st.floats(-0.5, 1.5) | st.just(NAN), min_size=1, max_size=40)
LINES = st.integers(1, 12)


def text(chart: list[charts.ChartColumn]) -> list[str]:
    return [strips.text(runs) for runs in charts.chart_lines(chart)]


def styles(chart: list[charts.ChartColumn], line: int) -> list[str]:
    """Returns the style of each cell."""
    return [key for part, key in charts.chart_lines(chart)[line] for _ in part]


# --- areas


def test_an_area_follows_its_values_and_unknown_is_blank() -> None:
    chart = charts.area_chart(np.array([0.0, 0.5, 1.0, NAN]), 1, "user")
    assert text(chart) == ["▁▄█ "]


def test_an_area_fills_from_below_and_is_darkest_there() -> None:
    chart = charts.area_chart(np.array([0.25, 0.75, 1.0]), 2, "ipc")
    assert text(chart) == [" ▄█", "▄██"]
    assert [styles(chart, line)[-1] for line in (0, 1)] == ["ipc-9", "ipc-3"]


@given(SHARES, LINES)
def test_adjacent_cells_of_one_style_are_one_run(values: list[float], lines: int) -> None:
    for runs in charts.chart_lines(charts.area_chart(np.array(values), lines, "user")):
        keys = [key for _, key in runs]
        assert all(a != b for a, b in pairwise(keys))


# --- scales


def test_a_scale_without_previous_values_ends_at_a_round_value() -> None:
    ends = (0.02, 0.05, 0.1, 1.0)
    assert charts.scale_top(np.array([NAN]), ends, None) == 0.02
    assert charts.scale_top(np.array([0.03]), ends, 0.02) == 0.05
    # the scale stays at the next larger value
    assert charts.scale_top(np.array([0.015]), ends, 0.05) == 0.05
    assert charts.scale_top(np.array([0.015]), ends, 0.1) == 0.02
    assert charts.scale_top(np.array([9.0]), ends, None) == 1.0
    assert charts.scale_top(np.array([0.1, NAN]), ends, None) == 0.1, "the end covers itself"
    assert charts.scale_top(np.array([0.03]), ends, 0.5) == 0.05, "the ends have changed"


@pytest.mark.parametrize(("ipc", "top"), [
    (0.9, 1.0), (1.4, 2.0), (2.4, 3.0), (3.4, 4.0), (4.5, 6.0), (6.5, 8.0), (8.5, 16.0),
])  # fmt: skip
def test_an_ipc_fills_more_than_half_of_its_scale(ipc: float, top: float) -> None:
    assert charts.scale_top(np.array([ipc]), charts.IPC_SCALE_ENDS, None) == top


# --- tasks


def task_columns(*columns: dict[int, float]) -> Sequence[list[float]]:
    """Returns columns of seven parts: five named tasks, the others, and unknown tasks."""
    return [[parts.get(index, 0.0) for index in range(7)] for parts in columns]


@pytest.mark.parametrize(("glyphs", "expected"), [
    ("colour", "█ task0,  text,█ task1,█ task5,╱ dim/rule,  text,█ task4"),
    ("sixteen", "a task0,  ground,b task1,+ task5,/ rule,  ground,e task4"),
    ("shapes", "a text,  text,b text,+ text,/ text,  text,e text"),
])  # fmt: skip
def test_a_task_chart_of_one_row_shows_the_largest_task(glyphs: Glyphs, expected: str) -> None:
    """A tenth of the time is shown, less is not; a column with an unknown share is blank."""
    shares = task_columns({0: 0.1}, {0: 0.099}, {0: 0.3, 1: 0.6}, {5: 0.5, 6: 0.2}, {6: 0.9},
                          {0: NAN, 1: 0.5}, {4: 1.0})  # fmt: skip
    chart = charts.task_chart(np.array(shares), 1, glyphs)
    cells = zip(text(chart)[0], styles(chart, 0), strict=True)
    assert [f"{char} {key}" for char, key in cells] == expected.split(",")


def test_a_taller_task_chart_shows_the_two_largest_tasks_of_each_cell() -> None:
    shares = task_columns({0: 0.5, 1: 0.5}, {0: 0.3, 1: 0.6}, {4: 0.25, 5: 0.25, 6: 0.5}, {6: 0.4})
    chart = charts.task_chart(np.array(shares), 2)
    assert text(chart) == ["█▆╱ ", "█▅▄▆"]
    assert styles(chart, 0) == ["task1", "task1", "dim/rule", "text"]
    assert styles(chart, 1) == ["task0", "task0/task1", "task4/task5", "rule"]
    assert text(charts.task_chart(np.array(shares), 2, "ascii")) == ["bb/ ", "aae/"]


# --- clocks


GLYPHS: tuple[Glyphs, ...] = ("colour", "shapes", "ascii")


def area(
    hz: list[float], ceiling: list[float], gap_codes: list[int], glyphs: Glyphs = "colour"
) -> Sequence[list[Run]]:
    columns = np.array([*zip(hz, ceiling, gap_codes, strict=True)], float)
    return chart_lines(charts.clock_chart(columns, (0.0, 7.0), 3, glyphs))


@pytest.mark.parametrize("glyphs", GLYPHS)
def test_a_clock_at_its_ceiling_has_no_gap(glyphs: Glyphs) -> None:
    hz = np.linspace(0.1, 7.0, 1000).tolist()
    lines = area(hz, hz, [LOSING] * len(hz), glyphs)
    assert not any("gap" in key or "alarm" in key for line in lines for _, key in line)


def test_the_gap_is_as_high_as_the_loss() -> None:
    """14 of 24 eighths are green. The gap of 7 above has the colour of its cause."""
    power = LOSING + charts.GAP_CAUSES.index("power")
    assert area([4.1], [6.1], [power]) == [
        [("▅", "gap-power")],
        [("▆", "clock-6/gap-power")],
        [("█", "clock-2")],
    ]
    ended = charts.ENDED_GAP + charts.GAP_CAUSES.index("heat")
    for state, key in (
        (ended, "~gap-heat"), (charts.ENDED_GAP, "~gap-unknown"), (LOSING, "gap-unknown"),
    ):  # fmt: skip
        (top, _, _) = area([0.0], [7.0], [state])
        assert top == [("█", key)]


@given(st.floats(0, 7), st.floats(0, 7))
def test_the_area_of_a_gap_is_right_within_a_sixteenth_of_a_row(a: float, b: float) -> None:
    hz, ceiling = sorted((a, b))
    (column,) = charts.clock_chart(np.array([[hz, ceiling, LOSING]]), (0.0, 7.0), 3)
    room = 3 - max(1, np.floor(24 * hz / 7 + 0.5)) / 8  # above the clock, which is rounded, too
    rows = sum(charts._find_gap(column)[1]) / 8
    assert rows == pytest.approx(min(room, 3 * (ceiling - hz) / 7), abs=1 / 16 + 1e-9)


@pytest.mark.parametrize(("cells", "text"), [(9, "▼ −0.62 "), (8, "▼")])
@pytest.mark.parametrize("glyphs", GLYPHS)
def test_a_gap_has_its_sign_and_its_size_if_there_is_room(
    cells: int, text: str, glyphs: Glyphs
) -> None:
    """In three rows for 0 to 3, a clock of 1 below a ceiling of 3 leaves two rows."""
    power = LOSING + charts.GAP_CAUSES.index("power")
    columns = charts.clock_chart(np.array([[1.0, 3.0, power]] * cells), (0.0, 3.0), 3, glyphs)
    top, below, _ = chart_lines(charts.add_gap_numbers(columns, [0.62] * cells))
    assert strips.text(top).startswith(text)
    assert ("−" in strips.text(top)) == ("−" in text)
    assert top[0][1] == ("bright/gap-power" if glyphs == "colour" else "alarm")
    assert "−" not in strips.text(below)


def test_a_selected_part_of_a_gap_has_a_sign_of_its_own() -> None:
    power = LOSING + charts.GAP_CAUSES.index("power")
    columns = charts.clock_chart(np.array([[1.0, 3.0, power]] * 14), (0.0, 3.0), 3)
    top, *_ = chart_lines(charts.add_gap_numbers(columns, [0.62] * 14, [5]))
    assert strips.text(top) == "▼████▼ −0.62 █"


def test_a_gap_without_a_full_row_has_a_sign_in_its_highest_cell() -> None:
    power = LOSING + charts.GAP_CAUSES.index("power")
    columns = charts.clock_chart(np.array([[1.5, 2.0, power]] * 9), (0.0, 3.0), 3)
    lines = chart_lines(charts.add_gap_numbers(columns, [0.5] * 9))
    assert [strips.text(line) for line in lines] == [" " * 9, "▼" + "▄" * 8, "█" * 9]


VALUES = st.floats(-1e10, 1e10) | st.just(NAN)


@given(
    st.lists(st.tuples(VALUES, VALUES, st.integers(0, 2)), min_size=1, max_size=12),
    st.integers(2, 7), st.sampled_from(GLYPHS),
)  # fmt: skip
def test_any_values_can_be_drawn(
    columns: list[tuple[float, float, int]], rows: int, glyphs: Glyphs
) -> None:
    hz, ceiling, how = ([column[i] for column in columns] for i in range(3))
    for line in area(hz, ceiling, [int(state) for state in how], glyphs):
        assert strips.width(line) == len(columns)


def test_a_run_of_dots_does_not_include_blanks() -> None:
    """Browsers draw dots in a fallback font, whose width is right for whole runs only."""
    runs = [("⣿⣿", "clock"), ("  ", "text"), ("3.00", "text")]
    assert strips.merge_runs(runs, 9) == [("⣿⣿", "clock"), ("  3.00 ", "text")]
    assert strips.merge_runs(runs[:1], 4) == [("⣿⣿", "clock"), ("  ", "text")]


def test_columns_of_several_lines_are_filled_from_below() -> None:
    assert charts.level_lines(np.array([12.0, 24.0, 0.0, -1.0]), 3) == [" █  ", "▄█  ", "██  "]
    assert charts.level_lines(np.array([5.0, 9.0]), 2, "012345678") == ["01", "58"]


# --- areas of the time use


AREA_GLYPHS: tuple[Glyphs, ...] = ("colour", "sixteen", "shapes", "ascii")


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


def test_any_steal_that_matters_is_drawn() -> None:
    assert single_column(account((0.0, 0.0, 0.004)))[0] == "▔ steal"
    assert single_column(account((0.0, 0.0, 0.0039)))[0] == "  text"


def test_the_larger_of_user_and_kernel_time_styles_a_cell_without_colour() -> None:
    cells = account((0.25, 0.25, 0.0), (0.25, 0.375, 0.0), rows=1, glyphs="shapes")
    assert cells == [["▄ user-11", "▅ kernel-11"]]


@pytest.mark.parametrize(("glyphs", "text"), [
    ("colour", "▇▄─▄▁ "), ("shapes", "█▄─▀█ "), ("ascii", "++--- "),
])  # fmt: skip
def test_differences_rise_or_hang_by_their_size(glyphs: Glyphs, text: str) -> None:
    shares = np.array([1.5, 0.6, 0.0, -0.5, -1.0, NAN])
    cells = charts.difference_line(shares, ("better", "worse"), glyphs)
    assert "".join(char for char, _ in cells) == text


def test_rules_have_words_where_there_is_room() -> None:
    line = charts.ChartColumn("─  ", ("text",) * 3)
    chart = charts.add_rules([line] * 6, {0: "ab", 3: "cd"})
    assert text(chart) == ["──────", "│ab│  ", "│  │cd"]
    blank = charts.ChartColumn("   ", ("text",) * 3)
    chart = charts.add_rules([line, blank] * 3, {0: "a", 2: "c", 4: "ef"})
    assert text(chart) == ["─ ─ ─ ", "│ │c│ ", "│ │ │ "]


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


@pytest.mark.parametrize("glyphs", AREA_GLYPHS[1:])
def test_without_colour_a_half_busy_core_is_one_area_without_stripes(glyphs: Glyphs) -> None:
    """The first thread is busy for all of the time, then both for half of it."""
    cells = single_column(states((0.0, 0.0, 1.0, 0.0), rows=8, glyphs=glyphs))
    assert len({*cells[:4]}) == 1
    assert {*cells[4:]} == {"· neither"}
    half = single_column(states((0.5, 0.0, 0.0, 0.0), rows=8, glyphs=glyphs))
    assert len({*half[2:6]}) == 1
    assert len({*single_column(account((1.0, 0.0, 0.0), rows=8, glyphs=glyphs))}) == 1


ANY_SHARE = st.floats(-0.5, 1.5) | st.just(float("nan"))


ACCOUNT = st.tuples(ANY_SHARE, ANY_SHARE, ANY_SHARE, st.integers(0, 2))
STATES = st.tuples(ANY_SHARE, ANY_SHARE, ANY_SHARE, ANY_SHARE)


def test_a_core_is_drawn_outwards_from_the_middle() -> None:
    """Each half has 16 eighths. Both threads take 4; then the first thread takes 8 upwards, and the
    second 6 downwards."""
    assert single_column(states((0.25, 0.0, 0.5, 0.375))) == [
        "▄ lp0-9", "▄ both-3/lp0-3", "▄ lp1-3/both-3", "▆ ground/lp1-9",
    ]  # fmt: skip


@pytest.mark.parametrize(("draw", "column"), [(account, ACCOUNT), (states, STATES)])
@given(st.data(), st.integers(1, 6), st.sampled_from(AREA_GLYPHS))
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
