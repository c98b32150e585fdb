"""Panels: their sizes and titles, losses, and clicks."""

from __future__ import annotations

import pytest
from fakes import CpuLoad, Machine, guest, observe, task_records
from played_apps import Run, running_app

from perftop.draw import strips
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.overview import Overview
from perftop.tui.panels.panels import PANEL_FUNCTIONS, PanelKind, PanelRow
from perftop.tui.shared.view_settings import ViewSettings

NAMES = ("lmp", "日本語タスク", "a\x1b[31mred", "x" * 80, "ﾊﾝｶｸ", "e\u0301\u0301")
"""Names that are plain, wide, unsafe, long, narrow, and with zero-width marks."""
WIDTHS = 20, 27, 34, 48, 62, 83, 111, 160, 240, 300


def session_with_tasks(count: int) -> tuple[Session, Interval]:
    """A session with `count` tasks and episodes, half of which have ended."""
    cores = max(1, -(-count // 2))
    machine = Machine(cores=cores, loads={0: CpuLoad(1.0)})
    names = [NAMES[i % len(NAMES)] for i in range(count)]
    session, interval = observe(machine, 2, records=task_records(names))
    session.ended.extend([Episode("steal", [0], i * 1000, i * 2000, 0.1) for i in range(count)])
    session.detector.running += [
        Episode("turbo-drop", [0, 1], i * 1000, None, 6.2e8, "power-pl1", {"power_w": 150})
        for i in range(count // 2)
    ]
    return session, interval


@pytest.mark.parametrize("kind", PANEL_FUNCTIONS)
@pytest.mark.parametrize("count", [0, 1, 7, 200])
def test_all_panels_have_their_exact_size(kind: PanelKind, count: int) -> None:
    observed = session_with_tasks(count)
    for width in WIDTHS:
        for height in (1, 4, 5, 8, 30):
            lines = PanelRow((kind,), (1,), width, height).lines(*observed, ViewSettings(cpu=0))
            assert len(lines) == height
            assert {strips.width(line) for line in lines} == {width}
            assert all(c.isprintable() for line in lines for c in strips.text(line))


@pytest.mark.parametrize("kind", PANEL_FUNCTIONS)
def test_a_guest_has_panels_too(kind: PanelKind) -> None:
    observed = observe(guest(), records=task_records(["lmp", "cc1"]))
    for width in WIDTHS:
        lines = PanelRow((kind,), (1,), width, 10).lines(*observed, ViewSettings(cpu=0))
        assert [strips.width(line) for line in lines] == [width] * 10


# --- pairs of tasks


SIBLING = {"who": [TaskOnCpu(4002, "stream", 2)], "ipc": 1.5, "ipc_alone": 2.0}


def session_with_losses(
    *episodes: Episode, machine: Machine | None = None
) -> tuple[Session, Interval]:
    tasks = {"0": [4000, "lmp", 0.9], "2": [4002, "stream\x1b", 0.9], "3": [4003, "日本", 0.9]}
    busy = machine or Machine(cores=2, loads={cpu: CpuLoad(1.0, ipc=1.5) for cpu in range(4)})
    observed = observe(busy, 20, records={"tasks": tasks})
    observed[0].detector.running[:] = episodes
    return observed


def text(session_and_interval: tuple[Session, Interval], width: int, height: int) -> list[str]:
    lines = PANEL_FUNCTIONS["losses"](*session_and_interval, ViewSettings(), width, height)
    return [strips.text(line).rstrip() for line, _ in lines]


def test_the_largest_loss_comes_first_and_other_cores_are_counted() -> None:
    machine = Machine(cores=4, threads=1, loads={c: CpuLoad(1.0, ipc=1.5) for c in range(4)})
    observed = session_with_losses(
        *(Episode("neighbour", [c], 0, None, (c + 1) / 10, "memory", SIBLING) for c in range(4)),
        machine=machine,
    )
    result = text(observed, 94, 7)
    assert "3 of 4" in result[0]
    assert [line.split()[1:3] for line in result[1::2]] == [["CPU", str(c)] for c in (3, 2, 1)]
    assert [cpu for _, cpu in PANEL_FUNCTIONS["losses"](*observed, ViewSettings(), 94, 5)] == [
        None,
        3,
        3,
        2,
        2,
    ]


# --- the row of panels below the overview, and clicks on it


@pytest.mark.parametrize(("counted", "expected"), [
    (False, {140: [1, 70], 141: [1, 87], 200: [1, 124], 201: [54, 140]}),
    (True, {140: [1, 70], 141: [42, 84], 200: [60, 119], 201: [60, 119]}),
])  # fmt: skip
async def test_the_width_decides_which_panels_are_below_charts(
    counted: bool, expected: dict[int, list[int]]
) -> None:
    """The panel of the selected core is before these two if there is room."""
    starts = {}
    async with running_app(Machine(cores=2) if counted else guest()) as run:
        for width in expected:
            await run.pilot.resize_terminal(width, 50)
            await run.pilot.pause()
            _, text = grid(run)
            title = next(line for line in text if "what happened" in line)
            starts[width] = [title.find(word) for word in ("who runs", "what happened")]
    assert starts == expected


def grid(run: Run) -> tuple[Overview, list[str]]:
    view = run.app.screen_stack[0].query_one(Overview)
    return view, [view.render_line(y).text for y in range(view.size.height)]
