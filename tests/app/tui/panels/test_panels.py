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
    for width in (*range(20, 130, 7), 160, 240, 300):
        for height in (1, 4, 5, 8, 12, 30):
            lines = PanelRow((kind,), (1,), width, height).lines(*observed, ViewSettings(cpu=0))
            assert len(lines) == height
            assert {strips.width(line) for line in lines} == {width}
            assert all(c.isprintable() for line in lines for c in strips.text(line))


@pytest.mark.parametrize("kind", PANEL_FUNCTIONS)
def test_a_guest_has_panels_too(kind: PanelKind) -> None:
    observed = observe(guest(), records=task_records(["lmp", "cc1"]))
    for width in range(20, 300, 7):
        lines = PanelRow((kind,), (1,), width, 10).lines(*observed, ViewSettings(cpu=0))
        assert [strips.width(line) for line in lines] == [width] * 10


@pytest.mark.parametrize(("width", "shares", "first_columns"), [
    (80, (1, 1), [1, 41]), (160, (97, 58), [1, 101]), (12, (3, 2), [1, 8]),
])  # fmt: skip
def test_panels_are_side_by_side_with_margins_and_gaps(
    width: int, shares: tuple[int, ...], first_columns: list[int]
) -> None:
    row = PanelRow(("selected", "happened"), shares, width, 4)
    first, *_ = row.lines(*session_with_tasks(1), ViewSettings())
    text = strips.text(first)
    assert text[0] == text[-1] == " "
    assert [text.index(word) for word in ("no", "wh")] == first_columns
    assert text[first_columns[1] - 3 : first_columns[1]] == "   "


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


def test_a_core_that_loses_is_listed_with_its_loss_and_culprit() -> None:
    result = text(
        session_with_losses(Episode("neighbour", [0], 0, None, 0.25, "sibling", SIBLING)), 94, 4
    )
    assert result[0].startswith("ten worst  lost %, 10 min ─────")
    assert result[1].split()[:3] == ["◐", "core", "0"]
    assert " 25 %" in result[1]
    assert "stream takes 25 % of lmp's IPC on CPU 0" in result[2]


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


# --- the CPUs over time


@pytest.mark.parametrize("view", ["2", "4", "5", "6"])
async def test_every_cpu_over_time_fills_lines_that_panels_leave(view: str) -> None:
    machine = Machine(cores=4, threads=2, loads={cpu: CpuLoad(0.1 * cpu) for cpu in range(8)})
    async with running_app(machine, (160, 50)) as run:
        await run.intervals(3)
        await run.pilot.press(view)
        await run.pilot.pause()
        shown = run.monitor.view
        lines = [shown.render_line(y).text for y in range(shown.size.height)]
        first = next(y for y, line in enumerate(lines) if " over time  busy time of" in line)
        names = [line[:9].split() for line in lines]
        cpus = [name[1] for name in names[first + 1 :] if name[:1] == ["CPU"]]
        assert cpus == ["0", "4", "1", "5", "2", "6", "3", "7"]
        assert any(" who runs " in line for line in lines[first:])
        y = first + 1 + names[first + 1 :].index(["CPU", "6"])
        await run.pilot.click(type(shown), offset=(30, y))
        await run.pilot.pause()
        assert run.monitor.settings.cpu == 2, "the core of CPU 6"


async def test_the_scale_of_the_cpus_over_time_is_kept_while_it_fits() -> None:
    machine, scales = Machine(cores=4, loads={0: CpuLoad(0.9, ipc=1.0)}), []
    async with running_app(machine, (160, 50)) as run:
        run.monitor.settings.metric = "ipc"
        await run.pilot.press("5")
        for ipc in (1.2, 3.4, 3.6, 2.9):
            machine.loads[0] = CpuLoad(0.9, ipc=ipc)
            run.monitor.settings.window_s = 2.0  # the earlier values leave the window
            await run.intervals(30)
            lines = [run.monitor.view.render_line(y).text for y in range(45)]
            (title,) = (line for line in lines if " over time " in line)
            scales.append(title.split(", ")[1].split(" ─")[0].strip())
    assert scales == ["0.00 to 1.50", "0.00 to 3.50", "0.00 to 4.00", "0.00 to 4.00"]


# --- the row of panels below the overview, and clicks on it


S = 1_000_000_000
TASKS = {"tasks": {"0": [4000, "lmp", 0.9], "3": [4003, "cc1", 0.8]}}
STEALS = [Episode("steal", [cpu], cpu * S, cpu * S + 1, 0.1, "hypervisor") for cpu in (0, 2)]


def test_a_row_consists_of_its_panels_and_maps_positions_to_them() -> None:
    of = observe(Machine(cores=4, loads={0: CpuLoad(1.0)}), 40, records=TASKS)
    of[0].ended.extend(STEALS)
    row = PanelRow(("who", "happened", "selected"), (1, 1, 1), 200, 9)
    lines = row.lines(*of, ViewSettings(cpu=0))
    assert len(lines) == 9
    assert {strips.width(line) for line in lines} == {200}
    assert strips.text(lines[0]).split("─")[0].startswith(" who runs")
    text = [strips.text(line) for line in lines]
    x, y = next((line.index("cc1"), i) for i, line in enumerate(text) if "cc1" in line)
    assert row.target_at(x, y) == 3
    y = next(i for i, line in enumerate(text) if "of CPU 2" in line)
    assert row.target_at(text[y].index("took"), y) is STEALS[1]
    assert row.target_at(text[2].index("busy, lp0") if "busy, lp0" in text[2] else 190, 2) is None
    assert row.target_at(0, 2) is None
    assert row.target_at(10, 0) is None
    assert row.target_at(10, 99) is None


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


async def test_a_double_click_on_an_episode_goes_to_its_time() -> None:
    """The second click hits the list of episodes, on the line of another episode."""

    async with running_app(Machine(cores=20), (160, 50)) as run:
        await run.intervals(20, records=TASKS)
        past = [Episode("steal", [cpu], S, S + S // 2, 0.1, "hypervisor") for cpu in (3, 2)]
        run.session.ended.extend(past)
        await run.intervals(1, records=TASKS)
        _, text = grid(run)
        y = next(i for i, line in enumerate(text) if "took" in line)
        await run.pilot.click(Overview, offset=(text[y].index("took"), y), times=2)
        await run.pilot.pause()
        monitor = run.monitor
        assert monitor.view.id == "core"
        assert S <= run.interval.time_ns <= 2 * S
        assert monitor.settings.cpu in {2, 3}


async def test_a_click_on_a_task_selects_its_core() -> None:
    async with running_app(Machine(cores=20), (160, 50)) as run:
        await run.intervals(5, records=TASKS)
        view, text = grid(run)
        y = next(i for i, line in enumerate(text) if "who runs" in line and "──" in line)
        y += next(i for i, line in enumerate(text[y:]) if "cc1" in line)
        await run.pilot.click(Overview, offset=(text[y].index("cc1"), y))
        await run.pilot.pause()
        assert view.settings.cpu == 3


async def test_a_few_lines_below_the_rows_are_used() -> None:
    async with running_app(Machine(cores=17), (120, 31)) as run:
        await run.intervals(5, records=TASKS)
        view, text = grid(run)
        left = (
            view.size.height
            - len(view.header_lines)
            - view.line_count
            - len(view._arrangement.fixed_below)
        )
        assert left == 5
        assert any("what happened" in line for line in text)


async def test_a_narrow_screen_has_one_panel_with_numbers() -> None:
    async with running_app(guest(), (41, 20)) as run:
        await run.intervals(2)
        assert run.has("who runs")
        assert run.has("CPU   runs")
        assert not run.has("what happened")
