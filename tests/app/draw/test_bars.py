"""Bars as text."""

from __future__ import annotations

import math

import pytest

from perftop.draw import bars, strips, theme

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


def test_issue_slots_leave_the_rest_to_the_back_end() -> None:
    runs = bars.slots(0.5, 0.2, 0.1, 10)
    assert [(text, len(text)) for text, _ in runs] == [
        (theme.USER * 5, 5), (theme.KERNEL * 2, 2), (theme.STEAL, 1), (theme.NEITHER * 2, 2),
    ]  # fmt: skip
