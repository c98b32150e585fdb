"""Areas, lines and curves in characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw import charts, strips, theme
from perftop.draw.charts import ASLEEP, AWAKE, LOSING, Glyphs, chart_lines
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


@given(SHARES, LINES, st.booleans())
def test_a_chart_has_a_cell_for_each_value_and_line(
    values: list[float], lines: int, ascii_: bool
) -> None:
    shares = np.array(values)
    field = text(charts.area_chart(shares, lines, "user", ascii_=ascii_))
    assert [len(line) for line in field] == [len(values)] * lines
    columns = ["".join(column) for column in zip(*field, strict=True)]
    assert [column.isspace() for column in columns] == np.isnan(shares).tolist()
    assert not ascii_ or all(line.isascii() for line in field)


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


# --- clocks and rates as dots


GLYPHS: tuple[Glyphs, ...] = ("colour", "shapes", "ascii")


def area(
    hz: list[float], ceiling: list[float], gap_codes: list[int], glyphs: Glyphs = "colour"
) -> Sequence[list[Run]]:
    columns = np.array([*zip(hz, ceiling, gap_codes, strict=True)])
    return chart_lines(charts.clock_chart(columns, (0.0, 7.0), 3, glyphs))


def rate(
    values: list[float], how: list[int], high: float, rows: int, glyphs: Glyphs = "colour"
) -> Sequence[list[Run]]:
    columns = np.array([values, how]).T
    return chart_lines(charts.rate_chart(columns, high, rows, glyphs))


def test_a_clock_at_its_ceiling_has_no_gap() -> None:
    """Three rows of 8 eighths show 0 to 7."""
    for hz in np.linspace(0.1, 7.0, 500):
        lines = area([hz, hz], [hz, hz], [LOSING, LOSING])
        assert not any("gap" in key for line in lines for _, key in line), hz


def test_the_gap_is_as_high_as_the_loss() -> None:
    """14 of 24 eighths are green. The gap of 7 above has the colour of its cause."""
    power = LOSING + charts.GAP_CAUSES.index("power")
    assert area([4.1, 4.1], [6.1, 6.1], [power, power]) == [
        [("▅", "gap-power")],
        [("▆", "clock-6/gap-power")],
        [("█", "clock-2")],
    ]
    ended = charts.ENDED_GAP + charts.GAP_CAUSES.index("heat")
    (top, _, _) = area([0.0, 0.0], [7.0, 7.0], [ended, ended])
    assert top == [("█", "~gap-heat")]
    named = charts.add_gap_numbers([[("█" * 8, "gap-power")]] * 2, [0.62] * 8)
    first = [("▼ −0.62", "bright/gap-power"), ("█", "gap-power")]
    assert named == [first, [("█" * 8, "gap-power")]], "once for each gap"


def test_idle_is_a_dot_at_the_floor_and_unknown_is_blank() -> None:
    lines = area([7, 7, NAN, NAN], [7] * 4, [ASLEEP, ASLEEP, AWAKE, AWAKE])
    assert [strips.text(line) for line in lines] == ["  ", "  ", "· "]


def test_a_rate_is_an_area_from_zero() -> None:
    """12 rows of dots for 0 to 3: six dots for 1.5, none for 0, one for a little."""
    lines = rate([1.5, 1.5, 0.0, 0.01, 3.0, NAN], [0, 0, 0, 0, 0, LOSING], 3.0, 3)
    assert lines == [
        [("  ", "text"), ("⡇", "loss-10")],
        [("⣤", "ipc-6"), (" ", "text"), ("⡇", "loss-6")],
        [("⣿⢀", "ipc-2"), ("⡇", "loss-2")],
    ]


def test_in_ascii_a_cell_is_one_column() -> None:
    result = rate([0.0, 3.0, 0.0, 1.5], [AWAKE] * 4, 3.0, 2, "ascii")
    assert [strips.text(line) for line in result] == ["# ", "##"]


VALUES = st.floats(-1e10, 1e10) | st.just(NAN)


@given(
    st.lists(st.tuples(VALUES, VALUES, st.integers(0, 2)), min_size=2, max_size=12),
    st.integers(2, 7), st.sampled_from(GLYPHS),
)  # fmt: skip
def test_any_values_can_be_drawn(
    columns: list[tuple[float, float, int]], rows: int, glyphs: Glyphs
) -> None:
    even = columns[: len(columns) // 2 * 2]
    hz, ceiling, how = ([column[i] for column in even] for i in range(3))
    lost = [int(it) for it in how]
    for line in area(hz, ceiling, lost, glyphs):
        assert strips.width(line) == len(even) // 2
    known = theme.line_styles("perftop-dark")
    for line in rate(hz, lost, 2.0, rows, glyphs):
        assert strips.width(line) == len(even) // 2
        assert all(part in known for _, key in line for part in key.split("/"))


def test_a_run_of_dots_does_not_include_blanks() -> None:
    """Browsers draw dots in a fallback font, whose width is right for whole runs only."""
    runs = [("⣿⣿", "clock"), ("  ", "text"), ("3.00", "text")]
    assert strips.merge_runs(runs, 9) == [("⣿⣿", "clock"), ("  3.00 ", "text")]
    assert strips.merge_runs(runs[:1], 4) == [("⣿⣿", "clock"), ("  ", "text")]


def test_columns_of_several_lines_are_filled_from_below() -> None:
    assert charts.level_lines(np.array([12.0, 24.0, 0.0, -1.0]), 3) == [" █  ", "▄█  ", "██  "]
    assert charts.level_lines(np.array([5.0, 9.0]), 2, "012345678") == ["01", "58"]


@pytest.mark.parametrize("glyphs", ["colour", "shapes"])
def test_a_difference_rises_where_it_is_positive_and_hangs_where_it_is_negative(
    glyphs: charts.Glyphs,
) -> None:
    shares = np.array([-0.6, 0.0, 0.6, NAN])
    cells = charts.difference_line(shares, ("hot", "clock-9"), glyphs)
    falling, none, rising, unknown = cells
    assert (none[0], unknown[0]) == ("─", " ")
    assert rising == ("▄", "hot")
    assert falling == (("▄", "ground/clock-9") if glyphs == "colour" else ("▀", "clock-9"))
