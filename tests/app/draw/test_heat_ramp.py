"""Histories beside numbers as cells."""

from __future__ import annotations

import numpy as np

from perftop.draw import heat_ramp, strips, theme

NAN = float("nan")


def test_two_threads_share_a_cell_the_first_above_the_second() -> None:
    upper, lower = (np.array(shares) for shares in ([1.0, 1.0, 0.0, NAN], [1.0, 0.0, 0.5, 0.0]))
    cells = heat_ramp.paired(heat_ramp.steps(upper), heat_ramp.steps(lower)).tobytes()
    assert strips.text(map(heat_ramp.half, cells)) == "█▀▄ "


def test_different_loads_of_two_threads_are_two_colours_in_a_cell() -> None:
    cells = heat_ramp.paired(heat_ramp.steps(np.ones(1)), heat_ramp.steps(np.full(1, 0.5)))
    text, key = heat_ramp.half(cells.tobytes()[0])
    assert text == theme.LP0
    assert key == f"field{theme.HEAT - 1}/field{theme.HEAT // 2 - 1}"


def test_cells_are_as_wide_as_their_values_are_many() -> None:
    cells = heat_ramp.steps(np.array([0.0, 0.01, 0.3, 1.0, NAN]))
    for ascii_ in (False, True):
        text = strips.text(heat_ramp.level(cell, ascii_=ascii_) for cell in cells.tobytes())
        assert len(text) == 5
        assert text[:2] == "  "
        assert text[4] == " "
        assert text.isascii() == ascii_


def test_what_was_lost_is_red_from_the_start_of_the_loss() -> None:
    cells = heat_ramp.lost(heat_ramp.heights(np.array([2.0, 2.0, 1.0, NAN, 1.0]), 2.0), 2)
    runs = heat_ramp.columns(cells.tobytes(), "ipc", ascii_=False)
    assert runs == (("██", "ipc"), ("▄", "alarm"), (" ", "ipc"), ("▄", "alarm"))
