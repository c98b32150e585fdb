"""All panels: exact sizes on every screen, whatever is to be told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes import Does, Machine, guest, seen, tasks

from perftop.draw import strips
from perftop.draw.strips import Run
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import happened, panel, selected, who

Panel = Callable[[Session, Interval, int, int], list[list[Run]]]
PANELS: dict[str, Panel] = {
    "who": who.lines,
    "happened": happened.lines,
    "selected": lambda session, interval, width, height: selected.lines(
        session, interval, width, height, cpu=0
    ),
}
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


@pytest.mark.parametrize("name", PANELS)
@pytest.mark.parametrize("count", [0, 1, 7, 200])
def test_every_panel_has_exactly_the_size_that_was_asked_for(name: str, count: int) -> None:
    session, interval = crowd(count)
    for width in (*range(20, 130, 3), 160, 200, 240, 300):
        for height in (1, 4, 5, 8, 12, 30):
            found = PANELS[name](session, interval, width, height)
            assert len(found) == height
            assert {strips.width(line) for line in found} == {width}
            assert all(c.isprintable() for line in found for c in strips.text(line))


@pytest.mark.parametrize("name", PANELS)
def test_a_guest_has_panels_as_well(name: str) -> None:
    session, interval = seen(guest(), records=tasks(["lmp", "cc1"]))
    for width in range(20, 300, 7):
        found = PANELS[name](session, interval, width, 10)
        assert [strips.width(line) for line in found] == [width] * 10


def test_panels_stand_side_by_side_with_margins_and_gaps() -> None:
    assert panel.divided(80, (1, 1)) == [37, 38]
    assert panel.divided(160, (97, 58)) == [97, 58]
    a = panel.sized([[("aaa", "text")]], 3, 2)
    b = panel.sized([[("bb", "dim")], [("b", "text")]], 2, 2)
    assert [strips.text(line) for line in panel.beside([a, b])] == [
        " aaa   bb ",
        "       b  ",
    ]
    at = [panel.panel_at(x, [3, 2]) for x in range(10)]
    assert at == [None, 0, 0, 0, None, None, None, 1, 1, None]


def test_a_panel_without_room_has_its_lines() -> None:
    """So that it can stand beside others."""
    assert panel.sized([[("aaa", "text")]], 0, 3) == [[], [], []]


def test_a_title_has_a_bold_word_dim_words_and_a_thin_rule() -> None:
    line = panel.title("who runs", "% of a CPU", 30)
    assert line == [("who runs", "bright"), ("  % of a CPU", "dim"), (" ─────────", "rule")]
    after = panel.title("who runs", "", 20, [("CPU", "dim")])
    assert strips.text(after) == "who runs ─────── CPU"
    assert strips.text(panel.title("who runs", "% of a CPU", 5)) == "who …"


def test_the_ipc_alone_is_that_of_the_loss_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what was learned beside an idle sibling, since that may be of other traffic to memory."""
    session, interval = seen(Machine(cores=2, does={0: Does(1.0), 1: Does(1.0)}), 20)
    told = {"ipc": 1.33, "ipc_alone": 1.85}
    session.detector.running[:] = [Episode("neighbour", [0], 0, None, 0.28, "memory", told)]
    monkeypatch.setattr(selected, "ipc_alone", lambda *_: 1.59)
    found = [strips.text(line) for line in selected.lines(session, interval, 60, 20, cpu=0)]
    (line,) = (line for line in found if "IPC alone" in line)
    assert line.split()[2:] == ["1.85", "1.59"]
