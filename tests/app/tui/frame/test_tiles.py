"""The numbers of a machine whose cores cannot be counted."""

from __future__ import annotations

import pytest
from fakes import Machine, guest, seen

from perftop.draw import strips
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.frame import tiles

TOLD = {"util": 0.736, "user": 0.58, "system": 0.156, "steal": 0.079, "pressure_cpu": 0.412}


def test_they_serve_where_no_clock_is_counted() -> None:
    assert tiles.serve(seen(guest())[0])
    assert not tiles.serve(seen(Machine())[0])


def test_numbers_fit_and_the_important_ones_stay() -> None:
    for size in range(20, 300):
        for line in (tiles.numbers(TOLD, size), tiles.wide(TOLD, size) if size >= 160 else []):
            assert strips.width(line) <= size
    assert "waits for a CPU  41.2 %" in strips.text(tiles.numbers(TOLD, 120))
    narrow = strips.text(tiles.numbers(TOLD, 80))
    assert "waits  41.2 %" in narrow
    assert "busy  73.6 %" in strips.text(tiles.numbers(TOLD, 30))


def test_high_steal_is_red_and_what_is_unknown_has_no_tile() -> None:
    runs = tiles.numbers(TOLD, 160)
    assert [part.strip() for part, key in runs if key == "alarm"] == ["7.9"]
    assert "steal" not in strips.text(tiles.numbers({"util": 0.1, "steal": float("nan")}, 160))


@pytest.mark.parametrize("size", [160, 200, 300])
def test_the_past_stands_below_its_number(size: int) -> None:
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    for seq in range(40):
        session.apply(machine.frame(seq))
    interval = session.take()
    numbers = strips.text(tiles.wide(tiles.values(session, interval), size))
    past = tiles.past(session, interval, 10**8, size)
    assert strips.width(past) <= size
    assert "busy" in numbers
    assert any(part in "▁▂▃▄▅▆▇█" and key.startswith("user") for part, key in past if part.strip())
