"""All panels: exact sizes on every screen, whatever is to be told."""

from __future__ import annotations

import pytest
from fakes import Does, Machine, guest, seen, tasks

from perftop.draw import strips
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.panels import PANELS, Kind, PanelRow
from perftop.tui.shared.choice import Choice

NAMES = ("lmp", "日本語タスク", "a\x1b[31mred", "x" * 80, "ﾊﾝｶｸ", "e\u0301\u0301")
"""Names that are plain, wide, unsafe, long, narrow, and have marks without width."""


def crowd(count: int) -> tuple[Session, Interval]:
    """A session with so many tasks and so many episodes, half of which have ended."""
    cores = max(1, -(-count // 2))
    machine = Machine(cores=cores, does={0: Does(1.0)})
    names = [NAMES[i % len(NAMES)] for i in range(count)]
    session, interval = seen(machine, 2, records=tasks(names))
    session.ended.extend([Episode("steal", [0], i * 1000, i * 2000, 0.1) for i in range(count)])
    session.detector.running += [
        Episode("turbo-drop", [0, 1], i * 1000, None, 6.2e8, "power-pl1", {"power_w": 150})
        for i in range(count // 2)
    ]
    return session, interval


@pytest.mark.parametrize("kind", PANELS)
@pytest.mark.parametrize("count", [0, 1, 7, 200])
def test_every_panel_has_exactly_its_size(kind: Kind, count: int) -> None:
    of = crowd(count)
    for width in (*range(20, 130, 3), 160, 200, 240, 300):
        for height in (1, 4, 5, 8, 12, 30):
            found = PanelRow((kind,), (1,), width, height).lines(*of, Choice(cpu=0))
            assert len(found) == height
            assert {strips.width(line) for line in found} == {width}
            assert all(c.isprintable() for line in found for c in strips.text(line))


@pytest.mark.parametrize("kind", PANELS)
def test_a_guest_has_panels_as_well(kind: Kind) -> None:
    of = seen(guest(), records=tasks(["lmp", "cc1"]))
    for width in range(20, 300, 7):
        found = PanelRow((kind,), (1,), width, 10).lines(*of, Choice(cpu=0))
        assert [strips.width(line) for line in found] == [width] * 10


@pytest.mark.parametrize(
    ("width", "shares", "starts"),
    [(80, (1, 1), [1, 41]), (160, (97, 58), [1, 101]), (12, (3, 2), [1, 8])],
)
def test_panels_are_side_by_side_with_margins_and_gaps(
    width: int, shares: tuple[int, ...], starts: list[int]
) -> None:
    row = PanelRow(("selected", "happened"), shares, width, 4)
    first, *_ = row.lines(*crowd(1), Choice())
    text = strips.text(first)
    assert text[0] == text[-1] == " "
    assert [text.index(word) for word in ("no", "wh")] == starts
    assert text[starts[1] - 3 : starts[1]] == "   "
