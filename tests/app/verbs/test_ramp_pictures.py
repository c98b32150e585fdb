"""The chart of a ramp and its scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.draw import strips
from perftop.draw.charts import Chart
from perftop.verbs import ramp_pictures

NAN = math.nan


def text(chart: Chart) -> list[str]:
    return [strips.text(runs) for runs in chart.lines()]


def styles(chart: Chart, line: int) -> list[str]:
    """The style of each cell."""
    return [key for part, key in chart.lines()[line] for _ in part]


def line_of(values: list[float], lines: int, *, limit: float = NAN, ascii_: bool = False) -> Chart:
    """A line between 0 and 1."""
    return ramp_pictures.clock_graph(np.array(values), limit, 0.0, 1.0, lines, ascii_=ascii_)


@given(
    st.lists(st.floats(-0.5, 1.5) | st.just(NAN), min_size=1, max_size=40), st.integers(1, 12),
    st.booleans(),
)  # fmt: skip
def test_a_graph_has_a_cell_for_each_value_and_line(
    values: list[float], lines: int, ascii_: bool
) -> None:
    graph = text(line_of(values, lines, limit=0.9, ascii_=ascii_))
    assert [len(line) for line in graph] == [len(values)] * lines
    assert not ascii_ or all(line.isascii() for line in graph)


def test_a_line_is_at_the_height_of_its_value() -> None:
    assert text(line_of([1.0, 1.0], 2)) == ["⠉⠉", "  "]
    assert text(line_of([0.0, 0.0], 2)) == ["  ", "⣀⣀"]


def test_steps_are_joined_but_gaps_are_not() -> None:
    assert text(line_of([1.0, 0.0], 2)) == ["⠉⡇", " ⣇"]
    assert text(line_of([1.0, NAN, 0.0], 2)) == ["⠉  ", "  ⣀"]


def test_the_limit_is_dotted_and_never_has_the_colour_of_the_line() -> None:
    chart = line_of([0.0, 0.0], 2, limit=1.0)
    assert text(chart) == ["⠁⠁", "⣀⣀"]
    assert (styles(chart, 0), styles(chart, 1)) == (["dim"] * 2, ["clock"] * 2)


def test_values_beyond_the_scale_are_clipped() -> None:
    assert text(line_of([7.0, -7.0], 2)) == text(line_of([1.0, 0.0], 2))


def test_a_scale_covers_all_clocks_by_at_least_two_steps() -> None:
    assert ramp_pictures.axis_span(np.array([2.64e9, 3.21e9, NAN])) == pytest.approx((2.6e9, 3.3e9))
    assert ramp_pictures.axis_span(np.array([3.05e9])) == pytest.approx((2.9e9, 3.1e9))
    assert ramp_pictures.axis_span(np.array([NAN])) == (0.0, 2e8)


@given(st.floats(1e-3, 1e4), st.floats(1e-3, 1e4), st.integers(2, 20), st.integers(1, 8))
def test_scales_have_a_few_round_marks(low: float, size: float, lines: int, most: int) -> None:
    high = low + max(size, low / 100)
    marks = ramp_pictures.axis_marks(low, high, lines, most)
    assert len(marks) <= most + 1
    assert all(0 <= line < lines for line in marks)
    assert all(low * (1 - 1e-6) <= value <= high * (1 + 1e-6) for value in marks.values())
    assert sorted(marks.values(), reverse=True) == [marks[line] for line in sorted(marks)]


@pytest.mark.parametrize(
    ("span", "most", "step"), [(1.0, 5, 0.2), (0.75, 3, 0.25), (3000, 4, 1000)]
)
def test_steps_of_a_scale_are_round(span: float, most: int, step: float) -> None:
    assert ramp_pictures.tick_step(span, most) == pytest.approx(step)
