"""Tiles of metrics of a machine whose cores cannot be counted."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from fakes import guest

from perftop.draw import strips
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.frame import machine as tiles

FEW_VALUES = {"util": 0.736, "user": 0.58, "system": 0.156, "steal": 0.079, "pressure_cpu": 0.412}
ALL_VALUES = FEW_VALUES | {
    "pressure_io": 0.03, "pressure_memory": 0.0, "load_1": 3.12, "load_5": 2.64, "load_15": 1.9,
    "interrupts_hz": 520.4, "context_switches_hz": 826.0,
}  # fmt: skip


def test_tiles_fit_and_important_ones_are_kept() -> None:
    for size in range(20, 300):
        for output in (FEW_VALUES, ALL_VALUES):
            assert strips.width(tiles.tile_line(output, size)) <= size
            assert strips.width(tiles.tile_column_line(tiles.tile_columns(output, size))) <= size
    assert "waits for a CPU  41.2 %" in strips.text(tiles.tile_line(FEW_VALUES, 120))
    narrow = strips.text(tiles.tile_line(FEW_VALUES, 80))
    assert "waits  41.2 %" in narrow
    assert "busy  73.6 %" in strips.text(tiles.tile_line(FEW_VALUES, 30))


def test_high_steal_is_red_and_unknown_metrics_have_no_tile() -> None:
    runs = tiles.tile_line(FEW_VALUES, 160)
    assert [part.strip() for part, key in runs if key == "alarm"] == ["7.9"]
    assert "steal" not in strips.text(tiles.tile_line({"util": 0.1, "steal": float("nan")}, 160))


@pytest.mark.parametrize("size", [160, 200, 300])
def test_the_history_is_below_its_metric(size: int) -> None:
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    for seq in range(40):
        session.apply(machine.frame(seq))
    interval = session.take_interval()
    output = tiles.machine_values(session, interval)
    numbers = strips.text(tiles.tile_column_line(tiles.tile_columns(output, size)))
    (past,) = tiles.TileHistory(session).lines(
        tiles.tile_columns(output, size), interval, 10**8, size
    )
    assert strips.width(past) <= size
    assert "busy" in numbers
    assert any(set(part) & set("▁▂▃▄▅▆▇█") and key.startswith("user") for part, key in past)


def test_the_history_of_steal_is_red_back_to_where_it_became_high() -> None:
    high = tiles.HIGH_STEAL
    for values, styles in (
        ([high, 0.0, nan, high, high], [("over", 1), ("steal", 2), ("alarm", 2)]),
        ([high, high], [("alarm", 2)]),
        ([high, high, 0.0], [("over", 2), ("steal", 1)]),
    ):
        assert tiles._steal_styles(values) == styles


def test_a_column_does_not_move_when_its_value_changes() -> None:
    calm = {**ALL_VALUES, "load_1": 0.2, "interrupts_hz": 7.0, "util": 0.01}
    rooms = [
        [tile_column.room for tile_column in tiles.tile_columns(output, 240)]
        for output in (ALL_VALUES, calm)
    ]
    assert rooms[0] == rooms[1]


def test_a_history_of_several_lines_is_filled_from_below() -> None:
    assert tiles._area_lines(np.array([0.5, 1.0, 0.0]), np.ones(3), 3) == [" █ ", "▄█ ", "██ "]
    assert tiles._area_lines(np.array([0.0, 0.4, 4.0]), np.full(3, 4.0), 3) == ["  █", "  █", " ▂█"]
