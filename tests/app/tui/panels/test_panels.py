"""Panels: their sizes and titles, and pairs of tasks that disturb each other."""

from __future__ import annotations

import pytest
from fakes import CpuLoad, Machine, guest, observe, tasks

from perftop.draw import strips
from perftop.draw.columns import total_width
from perftop.model.kinds import Episode, TaskOnCpu
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import panels
from perftop.tui.panels import tasks as panel_tasks
from perftop.tui.panels.panels import PANELS, Kind, PanelRow
from perftop.tui.shared.choice import Choice

NAMES = ("lmp", "日本語タスク", "a\x1b[31mred", "x" * 80, "ﾊﾝｶｸ", "e\u0301\u0301")
"""Names that are plain, wide, unsafe, long, narrow, and have marks without width."""


def crowd(count: int) -> tuple[Session, Interval]:
    """A session with so many tasks and so many episodes, half of which have ended."""
    cores = max(1, -(-count // 2))
    machine = Machine(cores=cores, does={0: CpuLoad(1.0)})
    names = [NAMES[i % len(NAMES)] for i in range(count)]
    session, interval = observe(machine, 2, records=tasks(names))
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
            lines = PanelRow((kind,), (1,), width, height).lines(*of, Choice(cpu=0))
            assert len(lines) == height
            assert {strips.width(line) for line in lines} == {width}
            assert all(c.isprintable() for line in lines for c in strips.text(line))


@pytest.mark.parametrize("kind", PANELS)
def test_a_guest_has_panels_as_well(kind: Kind) -> None:
    of = observe(guest(), records=tasks(["lmp", "cc1"]))
    for width in range(20, 300, 7):
        lines = PanelRow((kind,), (1,), width, 10).lines(*of, Choice(cpu=0))
        assert [strips.width(line) for line in lines] == [width] * 10


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


# --- pairs


SIBLING = {"who": [TaskOnCpu(4002, "stream", 2)], "ipc": 1.5, "ipc_alone": 2.0}


def lost(*episodes: Episode, machine: Machine | None = None) -> tuple[Session, Interval]:
    tasks = {"0": [4000, "lmp", 0.9], "2": [4002, "stream\x1b", 0.9], "3": [4003, "日本", 0.9]}
    busy = machine or Machine(cores=2, does={cpu: CpuLoad(1.0, ipc=1.5) for cpu in range(4)})
    of = observe(busy, 20, records={"tasks": tasks})
    of[0].detector.running[:] = episodes
    return of


def text(of: tuple[Session, Interval], width: int, height: int) -> list[str]:
    return [
        strips.text(line).rstrip() for line, _ in panels.who_loses(*of, Choice(), width, height)
    ]


def test_a_pair_is_who_takes_how_much_from_whom() -> None:
    result = text(lost(Episode("neighbour", [0], 0, None, 0.25, "sibling", SIBLING)), 94, 4)
    assert result[0].startswith("who loses to whom  1 pair ─────")
    assert result[0].endswith(" 6 all pairs")
    assert result[1].split() == [
        "◐", "stream?", "4002", "CPU", "2", "takes", "25", "%", "from", "lmp", "4000", "CPU", "0",
        "IPC", "1.50,", "alone", "2.00",
    ]  # fmt: skip
    assert result[2:] == []


def test_the_greatest_loss_comes_first_and_more_pairs_are_counted() -> None:
    each = [
        Episode("neighbour", [cpu], 0, None, (cpu + 1) / 10, "sibling", SIBLING) for cpu in range(4)
    ]
    of = lost(*each)
    result = text(of, 94, 4)
    assert "3 of 4 pairs" in result[0]
    assert [line.partition("takes ")[2][:4] for line in result[1:]] == ["40 %", "30 %", "20 %"]
    assert [target for _, target in panels.who_loses(*of, Choice(), 94, 7)] == [None, 3, 2, 1, 0]


def test_no_pair_is_reported() -> None:
    of = lost()
    assert text(of, 60, 3)[1:] == ["  No CPU is losing time to a neighbour"]
    assert not panel_tasks.any_pair(*of)
    assert panel_tasks.any_pair(*lost(Episode("neighbour", [0], 0, None, 0.2, "sibling", SIBLING)))


@pytest.mark.parametrize("count", [0, 1, 200])
def test_exact_sizes_at_any_width(count: int) -> None:
    each = [Episode("neighbour", [i % 4], i, None, 0.2, "sibling", SIBLING) for i in range(count)]
    of = lost(*each)
    for width in range(20, 301, 7):
        for height in (1, 4, 9):
            lines = PanelRow(("losses",), (1,), width, height).lines(*of, Choice())
            assert [strips.width(line) for line in lines] == [width] * height
        assert width < 34 or total_width(panel_tasks.pair_columns(width)) <= width
