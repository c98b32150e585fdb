"""Panels: their sizes and titles, and pairs of tasks that disturb each other."""

from __future__ import annotations

import pytest
from fakes import CpuLoad, Machine, guest, observe, tasks

from perftop.draw import strips
from perftop.model.belief import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.panels import PANELS, Kind, PanelRow
from perftop.tui.shared.choice import Choice

NAMES = ("lmp", "日本語タスク", "a\x1b[31mred", "x" * 80, "ﾊﾝｶｸ", "e\u0301\u0301")
"""Names that are plain, wide, unsafe, long, narrow, and with zero-width marks."""


def crowd(count: int) -> tuple[Session, Interval]:
    """A session with `count` tasks and episodes, half of which have ended."""
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
def test_all_panels_have_their_exact_size(kind: Kind, count: int) -> None:
    of = crowd(count)
    for width in (*range(20, 130, 7), 160, 240, 300):
        for height in (1, 4, 5, 8, 12, 30):
            lines = PanelRow((kind,), (1,), width, height).lines(*of, Choice(cpu=0))
            assert len(lines) == height
            assert {strips.width(line) for line in lines} == {width}
            assert all(c.isprintable() for line in lines for c in strips.text(line))


@pytest.mark.parametrize("kind", PANELS)
def test_a_guest_has_panels_too(kind: Kind) -> None:
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


# --- pairs of tasks


SIBLING = {"who": [TaskOnCpu(4002, "stream", 2)], "ipc": 1.5, "ipc_alone": 2.0}


def lost(*episodes: Episode, machine: Machine | None = None) -> tuple[Session, Interval]:
    tasks = {"0": [4000, "lmp", 0.9], "2": [4002, "stream\x1b", 0.9], "3": [4003, "日本", 0.9]}
    busy = machine or Machine(cores=2, does={cpu: CpuLoad(1.0, ipc=1.5) for cpu in range(4)})
    of = observe(busy, 20, records={"tasks": tasks})
    of[0].detector.running[:] = episodes
    return of


def text(of: tuple[Session, Interval], width: int, height: int) -> list[str]:
    lines = PANELS["losses"](*of, Choice(), width, height)
    return [strips.text(line).rstrip() for line, _ in lines]


def test_a_core_that_loses_is_listed_with_its_loss_and_culprit() -> None:
    result = text(lost(Episode("neighbour", [0], 0, None, 0.25, "sibling", SIBLING)), 94, 4)
    assert result[0].startswith("ten worst  lost %, 10 min ─────")
    assert result[1].split()[:3] == ["◐", "core", "0"]
    assert " 25 %" in result[1]
    assert "stream takes 25 % of lmp's IPC on CPU 0" in result[2]


def test_the_largest_loss_comes_first_and_other_cores_are_counted() -> None:
    machine = Machine(cores=4, threads=1, does={c: CpuLoad(1.0, ipc=1.5) for c in range(4)})
    of = lost(
        *(Episode("neighbour", [c], 0, None, (c + 1) / 10, "memory", SIBLING) for c in range(4)),
        machine=machine,
    )
    result = text(of, 94, 7)
    assert "3 of 4" in result[0]
    assert [line.split()[1:3] for line in result[1::2]] == [["CPU", str(c)] for c in (3, 2, 1)]
    assert [cpu for _, cpu in PANELS["losses"](*of, Choice(), 94, 5)] == [None, 3, 3, 2, 2]


def test_a_machine_without_losses_reports_that() -> None:
    assert text(lost(), 60, 4)[1:] == ["  no core loses anything, nor did within a minute"]


@pytest.mark.parametrize("count", [0, 1, 200])
def test_panels_have_their_exact_size_at_all_widths(count: int) -> None:
    each = [Episode("neighbour", [i % 4], i, None, 0.2, "sibling", SIBLING) for i in range(count)]
    of = lost(*each)
    for width in range(20, 301, 7):
        for height in (1, 4, 9):
            lines = PanelRow(("losses",), (1,), width, height).lines(*of, Choice())
            assert [strips.width(line) for line in lines] == [width] * height
