"""Who and what is watched, and at what cost, as text."""

from __future__ import annotations

import pytest
from fakes import Machine, seen

from perftop.draw import strips
from perftop.tui.frame import top
from perftop.tui.frame.status import Status


@pytest.mark.parametrize("width", [80, 120, 160, 240])
def test_who_and_what_and_at_what_cost(width: int) -> None:
    session, interval = seen(Machine())
    text = strips.text(top.identity(session, interval, Status(500_000_000, own=0.021), width))
    assert len(text) == width
    assert " perftop  h " in text
    assert "own  2.1 %" in text
    assert "4 cores / 8 CPUs" in text


def test_the_moment_does_not_take_the_place_of_costs_and_what_is_missed_goes_last() -> None:
    session, interval = seen(Machine())
    session.late = 3
    status = Status(500_000_000, own=0.021, paused=interval.time)
    text = strips.text(top.identity(session, interval, status, 120))
    assert "PAUSED" in text
    assert "own  2.1 %  late 3  lost 0" in text
