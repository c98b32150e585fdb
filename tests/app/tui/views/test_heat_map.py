"""The heat map on the screen: contents and keys."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import synth
from fakes import CpuLoad, Machine
from played_apps import Run, play_app, running_app

from perftop.draw import theme
from perftop.tui.frame.monitor import Monitor
from perftop.tui.shared.canvas import Canvas
from perftop.tui.views.heat_map import HeatMap


def view(run: Run) -> HeatMap:
    result = run.app.screen_stack[0].query_one(HeatMap)
    assert result.display
    return result


def text(run: Run) -> list[str]:
    return [view(run).render_line(y).text for y in range(view(run).size.height)]


def map_lines(machine: Machine, *keys: str, size: tuple[int, int] = (120, 30), **more: Any
          ) -> list[str]:  # fmt: skip
    """The heat map after these keys, line by line."""
    lines: list[str] = []

    async def act(run: Run) -> None:
        await run.pilot.press("2", *keys)
        await run.intervals(1, **more)
        lines[:] = text(run)

    play_app(machine, act, size)
    return lines


def slow_loads(core: int = 2, hz: float = 2.48e9) -> dict[int, CpuLoad]:
    return {core: CpuLoad(0.9, hz), core + 8: CpuLoad(0.9, hz)}


def test_all_clocks_have_the_selected_unit() -> None:
    lines = map_lines(Machine(cores=3), "v", "u")
    assert "clock 3000 of 3200 MHz" in lines[2]
    assert lines[4].split() == ["0▸3000◂3000", "3000"]
    assert "clock  3000  3000 MHz" in lines[-1]
    assert "ceil  3200 MHz" in lines[-1]
    numbers = (line.partition("turbo-drop")[0] for line in (*lines[:5], lines[-1]))
    assert not any("GHz" in line for line in numbers)
    # the base clock of this machine is unknown
    unknown = map_lines(Machine(cores=3), "v", "u", "u")
    assert "clock   n/a   n/a ×base" in unknown[-1]
    assert not any("nan" in line for line in unknown)


async def test_arrows_move_between_cells_and_stop_at_the_edges() -> None:
    async with running_app(Machine(cores=128), (160, 24)) as run:
        await run.pilot.press("2")
        rows = sorted({y for _, y in view(run)._heat_layout.cell_positions.values()})
        per = [y for _, y in view(run)._heat_layout.cell_positions.values()].count(rows[0])
        last = per * (len(rows) - 1)
        for key, cpu in (("left", 0), ("up", 0), ("right", 1), ("down", per + 1),
                         ("down", 2 * per + 1), ("left", 2 * per), ("end", 127), ("right", 127),
                         ("home", 0), ("pagedown", last), ("pageup", 0)):  # fmt: skip
            await run.pilot.press(key)
            assert view(run).settings.cpu == cpu, key


def test_eight_threads_are_shown_in_one_line() -> None:
    foot = map_lines(Machine(cores=4, threads=8, loads={4: CpuLoad(0.25)}), size=(80, 24))[-1]
    assert "busy  50.0  25.0  50.0  50.0  50.0  50.0  50.0  50.0 %" in foot


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


async def test_the_last_line_does_not_scroll_with_the_map() -> None:
    async with running_app(Machine(cores=1024, threads=1), (60, 20)) as run:
        await run.pilot.press("2", "end")
        assert "CPU 1023" in text(run)[-1]
        assert view(run).top_line > 0
        assert "▸" in "".join(text(run)[:-1])


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


async def test_a_click_selects_and_a_double_click_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int | None] = []

    def note(screen: Monitor, _: Canvas.Opened) -> None:
        opened.append(screen.settings.cpu)

    monkeypatch.setattr(Monitor, "on_canvas_opened", note)

    async with running_app(Machine(cores=8)) as run:
        await run.pilot.press("2")
        heat = view(run)
        for core, times, column in ((3, 1, 1), (2, 1, 4), (5, 2, 2)):
            x, y = heat._heat_layout.cell_positions[core]
            await run.pilot.click(HeatMap, offset=(x + column, y + 2), times=times)
            assert heat.settings.cpu == core
        assert opened == [5]


async def test_panels_fill_the_room_below_the_map() -> None:
    async with running_app(Machine(cores=8), (120, 40)) as run:
        await run.pilot.press("2")
        await run.intervals(3)
        lines = text(run)
        (title_line,) = (y for y, line in enumerate(lines) if "what happened" in line)
        assert lines[title_line].startswith(" who runs")
        assert not lines[title_line - 1].strip(), "an empty line sets them apart"
        printed = title_line + next(
            i for i, line in enumerate(lines[title_line:]) if theme.DROP_SIGN in line
        )
        top = run.app.query_one("#heat").region.y
        await run.pilot.click(offset=(run.app.size.width - 10, top + printed))
        await run.pilot.pause()
        assert run.app.screen.query_one("#episodes").display


async def test_the_selected_core_fills_the_room_beside_a_small_map() -> None:
    async with running_app(Machine(cores=4), (160, 50)) as run:
        await run.pilot.press("2")
        await run.intervals(3)
        lines = [view(run).render_line(y).text for y in range(view(run).size.height)]
    (title,) = (y for y, line in enumerate(lines) if " core 0  selected ──" in line)
    assert len(lines) - title == 15
    assert any(line.rstrip().endswith(" %") for line in lines[title:])


async def test_another_theme_recolours_all_lines() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("2")
        heat = view(run)
        grounds = []
        for name in ("perftop-dark", "perftop-light"):
            run.app.theme = name
            await run.pilot.pause()
            strips = [heat.render_line(y) for y in (0, 3, heat.size.height - 1)]
            grounds.append([next(iter(strip)).style for strip in strips])
        assert all(dark != light for dark, light in zip(*grounds, strict=True))


async def test_a_filter_without_matches_is_reported() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("2", "slash", *"util>99", "enter")
        await run.pilot.pause()
        assert "no CPU matches the filter" in text(run)[2]


async def test_a_core_that_loses_has_a_ring_with_its_loss_and_is_listed() -> None:
    m = Machine(cores=16, loads={3: CpuLoad(0.7, steal=0.3)})
    async with running_app(m, (160, 50)) as run:
        await run.pilot.press("2")
        await run.intervals(10)
        lines = text(run)
        assert sum(line.count("┏−30━┓") for line in lines) == 1
        assert sum(line[: view(run).width].count("┃") for line in lines) == 4  # two lines of a cell
        (entry,) = (y for y, line in enumerate(lines) if "╳ core 3 " in line)
        assert " 30 %" in lines[entry]
        assert "takes 30 % of CPU 3" in lines[entry + 1]
        await run.pilot.press("W")
        assert view(run).settings.cpu == 3
        assert "▸ core 3 " in text(run)[-1]
        assert "▌ ╳ core 3 " in text(run)[entry]
        await run.pilot.press("home")
        await run.pilot.click(HeatMap, offset=(view(run).width + 12, entry))
        assert view(run).settings.cpu == 3
        m.loads = {}
        await run.intervals(20)
        assert not any("┏" in line for line in text(run)[2:])
        assert sum(line.count("┌−30─┐") for line in text(run)) == 1
        assert "took 30 % of CPU 3" in text(run)[entry + 1]


async def test_an_empty_list_of_the_worst_cores_agrees_with_the_line_of_the_package() -> None:
    loads = {cpu: CpuLoad(0.9, 2.4e9) for cpu in range(8)}
    async with running_app(Machine(ceiling_hz=3.05e9, loads=loads), (160, 50)) as run:
        await run.pilot.press("2")
        await run.intervals(10)
        lines = text(run)
        assert any("package 0" in line and "turbo-drop" in line for line in lines)
        assert any("no episode on a single core" in line for line in lines)


async def test_cells_too_small_for_rings_have_the_sign_of_the_episode() -> None:
    m = Machine(cores=512, threads=1, loads={3: CpuLoad(0.7, steal=0.3)})
    async with running_app(m, (80, 24)) as run:
        await run.pilot.press("2")
        await run.intervals(10)
        assert view(run)._heat_layout.cell.blank_lines == 0
        drawn = text(run)[2 : 2 + view(run).height]
        assert sum(line.count("╳") for line in drawn) == 1
        assert text(run)[1].rstrip().endswith("CPU 3 −30")


async def test_a_narrow_map_names_its_worst_cores_and_lists_them_where_there_is_room() -> None:
    does = {core: CpuLoad(0.9 - 0.06 * core, steal=0.1 + 0.06 * core) for core in range(8)}
    for width in (120, 80):
        async with running_app(Machine(cores=16, loads=does), (width, 40)) as run:
            await run.pilot.press("2")
            await run.intervals(10)
            lines = text(run)
        named = lines[1].partition("core 7 ")[2].split()
        assert named[:7] == ["−52", "6", "−46", "5", "−40", "4", "−34"]
        hidden = 8 - lines[1].count("−")
        assert (named[-1] == f"+{hidden}") == (hidden > 0) == (width == 80)
        (title,) = (y for y, line in enumerate(lines) if "ten worst" in line)
        assert "core 7" in lines[title + 1]


async def test_zoom_shows_only_the_package_of_the_selected_core() -> None:
    rows = [replace(row, package=row.cpu // 8 % 2) for row in synth.topology(16)]
    m = Machine(cores=16, changes={"topology": rows})
    async with running_app(m, (160, 50)) as run:
        await run.pilot.press("2", "z")
        assert "package 0 only · 8 of 16 out of sight" in text(run)[0]
        assert [line[:40].count("package") for line in text(run)[1:]].count(1) == 1
        await run.pilot.press("z")
        assert "out of sight" not in text(run)[0]


async def test_only_the_lost_value_is_red_in_the_last_line() -> None:
    does = {2: CpuLoad(0.9, 2.4e9), 6: CpuLoad(0.9, 2.4e9)}
    async with running_app(Machine(ceiling_hz=3.05e9, loads=does), (160, 30)) as run:
        await run.pilot.press("2")
        await run.intervals(3)
        await run.pilot.press("right", "right")
        assert "▸ core 2 " in text(run)[-1]
        red = {
            word
            for part in view(run).render_line(view(run).size.height - 1)
            if part.style
            and part.style.color
            and part.style.color.name in {"#ff6b5e", "bright_red"}
            for word in part.text.split()
        }
        assert red == {"2.40"}


async def test_a_map_without_losses_reports_that_when_asked_for_the_worst_core() -> None:
    async with running_app(
        Machine(cores=8, loads={cpu: CpuLoad(0.5) for cpu in range(16)}), (160, 30)
    ) as run:
        await run.pilot.press("2")
        before = view(run).settings.cpu
        assert "to an episode" not in text(run)[1]
        await run.pilot.press("W")
        assert "no core loses anything to an episode" in text(run)[1]
        assert view(run).settings.cpu == before
