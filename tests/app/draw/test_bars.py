"""Bars as text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perftop.draw import bars, strips
from perftop.draw.charts import history_cells

NAN = math.nan


@pytest.mark.parametrize("width", [0, 1, 7, 22, 63])
@pytest.mark.parametrize("states", [(0, 0, 0, 1), (1, 0, 0, 0), (0.21, 0.33, 0.13, 0.33)])
def test_a_bar_is_as_wide_as_asked(width: int, states: tuple[float, ...]) -> None:
    assert strips.width(bars.smt(states, width)) == width


def test_the_four_states_have_four_shapes_in_their_order() -> None:
    assert strips.text(bars.smt((0.25, 0.25, 0.25, 0.25), 8)) == "██▀▀▄▄··"


def test_bounds_are_a_range_between_what_is_certain() -> None:
    # r0 = r1 = 0.75: both at least 0.5, neither at least 0, the rest may be anything.
    assert strips.text(bars.possible([0.0, 0.0, 0.0, 0.5], 8)) == "████▒▒▒▒"


def test_a_single_thread_fills_its_half_or_the_whole_cell() -> None:
    assert strips.text(bars.single(0.5, 4, None)) == "██··"
    assert strips.text(bars.single(0.5, 4, 0)) == "▀▀··"
    assert strips.text(bars.single(0.5, 4, 1)) == "▄▄··"


@pytest.mark.parametrize(
    ("hz", "ceiling", "text"),
    [(2e9, 4e9, "━━━━    ┃"), (2.25e9, 4e9, "━━━━╸   ┃"), (4e9, 4e9, "━━━━━━━━┃"),
     (2e9, NAN, "━━━━     "), (NAN, 4e9, "        ┃")],
)  # fmt: skip
def test_a_clock_is_drawn_against_its_ceiling(hz: float, ceiling: float, text: str) -> None:
    assert strips.text(bars.clock(hz, ceiling, 4e9, 9, "clock")) == text


def past(*shares: float, high: int = 1) -> bytes:
    return history_cells(np.array(shares), high).tobytes()


def test_history_ends_now_and_leaves_gaps() -> None:
    runs = bars.history(past(0.0, NAN, 1.0), 5, 0, 1, ascii_=False)
    assert strips.text(runs) == "  ▁ █"


def test_a_tall_history_fills_from_below() -> None:
    heights = past(0.25, 0.75, 1.0, high=2)
    graph = [strips.text(bars.history(heights, 3, y, 2, ascii_=False)) for y in (0, 1)]
    assert graph == [" ▄█", "▄██"]
