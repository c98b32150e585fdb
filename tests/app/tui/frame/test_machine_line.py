"""The machine in one line of numbers and one bar, as text."""

from __future__ import annotations

import pytest
from fakes import Does, Machine, seen

from perftop.draw import strips, theme
from perftop.tui.frame import machine_line


def test_the_machine_in_numbers_fits_and_sheds() -> None:
    session, interval = seen(Machine())
    wide = strips.text(machine_line.numbers(session, interval, 160))
    assert "util  50.0 %" in wide
    assert "busy 3.00 of 3.20 GHz" in wide
    assert "IPC 1.25" in wide
    narrow = strips.text(machine_line.numbers(session, interval, 40))
    assert "util  50.0 %" in narrow
    assert len(narrow) <= 40


@pytest.mark.parametrize("width", [40, 80, 120, 160, 240])
def test_the_machines_bar_is_as_wide_as_the_screen(width: int) -> None:
    session, interval = seen(Machine())
    assert strips.width(machine_line.bar(session, interval, width)) == width


def test_more_than_two_threads_have_a_bar_of_any_and_neither() -> None:
    session, interval = seen(Machine(cores=2, threads=4))
    interval.split.states[:, 0] = 0.25
    runs = machine_line.bar(session, interval, 80)
    text = strips.text(runs)
    assert "any  75  neither  25 %   2.00 of 4 threads active" in text
    assert strips.width(runs) == 80
    bar = text[6 : text.index("  any")]
    assert bar.count(theme.UNKNOWN) == pytest.approx(0.75 * len(bar), abs=1)
    assert set(bar) == {theme.UNKNOWN, theme.NEITHER}


def test_of_more_than_two_threads_that_nothing_counts_neither_is_a_range() -> None:
    session, interval = seen(Machine(cores=2, threads=4, does={i: Does(0.2) for i in range(8)}))
    for width in (40, 80, 160):
        runs = machine_line.bar(session, interval, width)
        assert strips.width(runs) == width
    assert "neither  20–80  %   0.80 of 4 threads active" in strips.text(runs)
