"""The row of panels below the overview, and clicks on it."""

from __future__ import annotations

from fakes import CpuLoad, Machine, observe
from playing import Run, running_app

from perftop.draw import strips
from perftop.model.kinds import Episode
from perftop.tui.overview.overview import Overview
from perftop.tui.panels.panels import PanelRow
from perftop.tui.shared.choice import Choice

S = 1_000_000_000
TASKS = {"tasks": {"0": [4000, "lmp", 0.9], "3": [4003, "cc1", 0.8]}}
STEALS = [Episode("steal", [cpu], cpu * S, cpu * S + 1, 0.1, "hypervisor") for cpu in (0, 2)]


def test_a_row_consists_of_its_panels_and_maps_positions_to_them() -> None:
    of = observe(Machine(cores=4, does={0: CpuLoad(1.0)}), 40, records=TASKS)
    of[0].ended.extend(STEALS)
    row = PanelRow(("who", "happened", "selected"), (1, 1, 1), 200, 9)
    lines = row.lines(*of, Choice(cpu=0))
    assert len(lines) == 9
    assert {strips.width(line) for line in lines} == {200}
    assert strips.text(lines[0]).split("─")[0].startswith(" who runs")
    text = [strips.text(line) for line in lines]
    x, y = next((line.index("cc1"), i) for i, line in enumerate(text) if "cc1" in line)
    assert row.target(x, y) == 3
    y = next(i for i, line in enumerate(text) if "of CPU 2" in line)
    assert row.target(text[y].index("took"), y) is STEALS[1]
    assert row.target(text[2].index("busy, lp0") if "busy, lp0" in text[2] else 190, 2) is None
    assert row.target(0, 2) is None
    assert row.target(10, 0) is None
    assert row.target(10, 99) is None


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
        assert monitor.choice.cpu in {2, 3}


async def test_a_click_on_a_task_selects_its_core() -> None:
    async with running_app(Machine(cores=20), (160, 50)) as run:
        await run.intervals(5, records=TASKS)
        view, text = grid(run)
        y = next(i for i, line in enumerate(text) if "who runs" in line and "──" in line)
        y += next(i for i, line in enumerate(text[y:]) if "cc1" in line)
        await run.pilot.click(Overview, offset=(text[y].index("cc1"), y))
        await run.pilot.pause()
        assert view.choice.cpu == 3


async def test_a_few_lines_below_the_rows_are_used() -> None:
    async with running_app(Machine(cores=17), (120, 31)) as run:
        await run.intervals(5, records=TASKS)
        view, text = grid(run)
        left = view.size.height - len(view.heads) - view.count - len(view._arrangement.below)
        assert left == 5
        assert any("what happened" in line for line in text)
