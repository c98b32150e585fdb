"""The heat map on the screen: contents and keys."""

from __future__ import annotations

import re

from fakes import CpuLoad, Machine
from played_apps import Run, running_app

from perftop.draw import theme
from perftop.tui.frame.top import TopLines
from perftop.tui.views.heat_map import HeatMap


def view(run: Run) -> HeatMap:
    result = run.app.screen_stack[0].query_one(HeatMap)
    assert result.display
    return result


def text(run: Run) -> list[str]:
    return [view(run).render_line(y).text for y in range(view(run).size.height)]


async def test_unknown_offline_and_doubtful_cells_differ_from_zero() -> None:
    m = Machine(cores=8, loads={2: CpuLoad(0.0), 10: CpuLoad(0.0)})

    async with running_app(m, (160, 30)) as run:
        await run.pilot.press("2", "right", "right")
        m.broken = {1}
        run.feed.offline(3)
        await run.intervals(3)
        upper = text(run)[4]
        assert "≁" in upper
        assert upper.split()[-5] == theme.NEITHER
        assert "  0" in upper
        await run.pilot.press("left")
        assert "≁ " in text(run)[-1].split("busy")[1]
        await run.pilot.press("right", "right")
        assert "busy   off" in text(run)[-1]
        await run.pilot.press("left", "v")
        assert f"clock     {theme.NEITHER}     {theme.NEITHER} GHz" in text(run)[-1]
        assert "–" in text(run)[4]


async def test_the_title_counts_hidden_cores_and_those_that_lose() -> None:
    does = {1020: CpuLoad(0.7, steal=0.3)}
    async with running_app(Machine(cores=1024, threads=1, loads=does), (60, 20)) as run:
        await run.pilot.press("2")
        await run.intervals(10)
        match = re.search(r"(\d+) of 1024 out of sight \(1 loses\)", text(run)[0])
        assert match is not None, text(run)[0]
        cells_of_line = next(len(part.cells) for part in view(run)._heat_layout.lines[-1])
        assert int(match[1]) % cells_of_line == 0
        await run.pilot.press("end")
        await run.intervals(1)
        assert " of 1024 out of sight" in text(run)[0]
        assert "lose" not in text(run)[0]
    async with running_app(Machine(cores=64), (60, 20)) as run:
        await run.pilot.press("2")
        assert "out of sight" not in text(run)[0]


async def test_cells_too_small_for_rings_have_the_sign_of_the_episode() -> None:
    m = Machine(cores=512, threads=1, loads={3: CpuLoad(0.7, steal=0.3)})
    async with running_app(m, (80, 24)) as run:
        await run.pilot.press("2")
        await run.intervals(10)
        assert view(run)._heat_layout.cell.blank_lines == 0
        drawn = text(run)[2 : 2 + view(run).height]
        assert sum(line.count("╳") for line in drawn) == 1
        assert text(run)[1].rstrip().endswith("CPU 3 −30")


async def test_spare_lines_show_the_remedy_and_the_cpus_over_time() -> None:
    """With too few lines for a lane of each CPU, the CPUs of a core share a line."""
    does = {3: CpuLoad(0.7, steal=0.3)}
    async with running_app(Machine(cores=18, loads=does), (240, 70)) as run:
        await run.pilot.press("2")
        await run.intervals(20)
        lines = text(run)
        names = [line[:9].strip() for line in lines]
        start = next(y for y, line in enumerate(lines) if line.startswith(" over time"))
        assert names[start + 1 : start + 19] == [f"{cpu},{cpu + 18}" for cpu in range(18)]
        verdict = run.app.screen_stack[0].query_one(TopLines).verdict
        assert verdict is not None
        assert any(verdict.remedy in line for line in lines)
