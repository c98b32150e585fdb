"""The table: columns, contents, order, and cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import Any

import pytest
from fakes import CpuLoad, Machine, observe, tasks
from playing import Run, running_app
from textual.geometry import Size

from perfprobe.wire import Rate
from perftop.model.kinds import KINDS
from perftop.session.selection import parse
from perftop.tui.views.table import Table


def view(run: Run) -> Table:
    screen = run.monitor
    assert isinstance(screen.view, Table)
    return screen.view


def shown(run: Run) -> list[str]:
    """The lines without signs of episodes."""
    table = view(run)
    lines = (table.render_line(y).text for y in range(table.size.height))
    signs = {" ", *(kind.sign for kind in KINDS.values())}
    return [
        f"{line[:1]} {line[2:]}".rstrip() if line[1] in signs else line.rstrip() for line in lines
    ]


def cpus(run: Run) -> list[int]:
    """CPU numbers from top to bottom."""
    lines = takewhile(bool, shown(run)[1:])  # panels follow after an empty line
    return [int(line.lstrip("▌> ").split()[0]) for line in lines]


@asynccontextmanager
async def at_table(
    machine: Machine, size: tuple[int, int] = (240, 30), **more: Any
) -> AsyncIterator[Run]:
    async with running_app(machine, size, **more) as run:
        await run.pilot.press("4")
        yield run


async def test_an_offline_cpu_has_no_values() -> None:
    async with at_table(Machine()) as run:
        run.feed.offline(3)
        await run.intervals(2)
        line = next(line for line in shown(run) if line.split()[0] == "3")
        assert line.split() == ["3", "0:3", "off"]
        await run.pilot.press("s", *["j"] * 3, "enter")  # sorts by busy time
        assert cpus(run)[-1] == 3
        await run.pilot.press("r")
        assert cpus(run)[-1] == 3


async def test_columns_scroll_beside_fixed_ones() -> None:
    async with at_table(Machine(), (80, 24)) as run:
        first = shown(run)[0]
        assert first.split()[:3] == ["cpu", "▲core", "busy"]
        assert first.endswith("→")
        assert len(first) == view(run).width
        await run.pilot.press("right")
        moved = shown(run)[0]
        assert moved.replace("←", " ← ").split()[:4] == ["cpu", "▲core", "←", "clock"]
        assert all("0:" in line for line in shown(run)[1:9])
        await run.pilot.press(*["right"] * 30)
        last = shown(run)[0]
        assert not last.endswith("→")
        assert run.source.status.paused is None  # these keys belong to the table here
        await run.pilot.press("left")
        assert shown(run)[0] != last  # steps beyond the end have no effect
        await run.pilot.press(*["left"] * 30)
        assert shown(run)[0] == first


async def test_a_hybrid_machine_has_a_column_of_types() -> None:
    m = Machine(cores=2, threads=1)
    for i, kind in enumerate("PE"):
        m.hello.topology[i] = type(m.hello.topology[i])(
            cpu=i, online=True, package=0, core=i, type=kind
        )

    async with at_table(m) as run:
        assert shown(run)[0].split()[:3] == ["cpu", "▲core", "type"]
        assert [line.replace("▌", " ").split()[2] for line in shown(run)[1:3]] == ["P", "E"]


# --- order


def busy(cores: int = 4) -> Machine:
    """The load decreases with the CPU number; the last CPU is idle."""
    last = 2 * cores - 1
    return Machine(
        cores=cores, does={cpu: CpuLoad((last - cpu) / (last + 1)) for cpu in range(last + 1)}
    )


async def test_a_column_can_be_sorted_by_its_values() -> None:
    async with at_table(busy()) as run:
        await run.intervals(1)
        assert cpus(run) == [0, 4, 1, 5, 2, 6, 3, 7]
        choice = view(run).choice
        for order, reverse, result in (
            ("util", False, list(range(8))),
            ("util", True, list(range(8))[::-1]),
            ("busy_hz", True, [0, 4, 1, 5, 2, 6, 3, 7]),  # all equal; 7 did not run
            ("CPU number", False, list(range(8))),
            ("CPU number", True, list(range(8))[::-1]),
            ("topology", True, [7, 3, 6, 2, 5, 1, 4, 0]),
            ("no such", False, [0, 4, 1, 5, 2, 6, 3, 7]),
        ):
            choice.order, choice.reverse = order, reverse
            view(run).lay_out()
            assert cpus(run) == result, (order, reverse)


async def test_tasks_are_sorted_by_name() -> None:
    async with at_table(Machine()) as run:
        await run.intervals(1, records=tasks(["b", "C", "a", "d"]))
        choice = view(run).choice
        choice.order = "task"
        view(run).lay_out()
        assert cpus(run) == [2, 0, 1, 3, 4, 5, 6, 7]
        assert "▲task" in shown(run)[0]
        choice.reverse = True
        view(run).lay_out()
        assert cpus(run) == [3, 1, 0, 2, 4, 5, 6, 7]


async def test_keys_and_clicks_sort_columns() -> None:
    async with at_table(Machine(), (80, 24)) as run:
        choice = view(run).choice
        await run.pilot.press("greater_than_sign")
        assert (choice.order, "▼busy" in shown(run)[0]) == ("util", True)
        await run.pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        assert choice.order == "busy_hz"
        await run.pilot.press(*["less_than_sign"] * 9)
        assert (choice.order, "▲cpu" in shown(run)[0]) == ("CPU number", True)
        await run.pilot.press(*["greater_than_sign"] * 30)
        assert choice.order == "task"
        assert "▲task" in shown(run)[0]  # made visible
        await run.pilot.press(*["less_than_sign"] * 30)
        index = shown(run)[0].index("busy")
        await run.pilot.click(Table, offset=(index, 0))
        assert (choice.order, choice.reverse) == ("util", False)
        index = shown(run)[0].index("busy")
        await run.pilot.click(Table, offset=(index, 0))
        assert (choice.order, choice.reverse, "▲busy" in shown(run)[0]) == ("util", True, True)
        await run.pilot.click(Table, offset=(2, 0))
        assert choice.order == "CPU number"


# --- the cursor


def selected(run: Run) -> list[int]:
    return [int(line[1:].split()[0]) for line in shown(run) if line.startswith("▌")]


async def test_the_cursor_selects_a_cpu_and_other_views_its_core() -> None:
    async with at_table(Machine()) as run:
        where = []
        for key in ("down", "j", "up", "end", "down", "home", "pagedown"):
            await run.pilot.press(key)
            where.append((*selected(run), view(run).choice.cpu))
        assert where == [(4, 0), (1, 1), (4, 0), (7, 3), (7, 3), (0, 0), (7, 3)]
        await run.pilot.press("1", "up", "4")
        assert selected(run) == [2]  # another core: its first CPU
        await run.pilot.click(Table, offset=(5, 6))
        assert (selected(run), view(run).choice.cpu) == ([6], 2)
        await run.pilot.press("1", "4")
        assert selected(run) == [6]
        await run.pilot.press("slash", "2", "enter")
        assert (selected(run), view(run).choice.cpu) == ([2], 2)  # its sibling does not match


async def test_the_cpu_remains_selected_when_rows_move() -> None:
    async with at_table(busy(32), (80, 24)) as run:
        await run.pilot.press(*["down"] * 5)
        (cpu,) = selected(run)
        for _ in range(6):
            await run.pilot.press("greater_than_sign")
            assert selected(run) == [cpu]
        await run.pilot.press("r", "o", "o")
        assert selected(run) == [cpu]


# --- choices


async def test_clocks_have_the_selected_unit() -> None:
    async with at_table(Machine(changes={"base_hz": Rate(2e9, "made")})) as run:
        results = []
        for _ in range(3):
            title = shown(run)[0].split("  ")
            busy_title = next(part.strip() for part in title if "clock" in part)
            end = shown(run)[0].index(busy_title) + len(busy_title)
            results.append((busy_title, shown(run)[1][:end].split()[-1]))
            await run.pilot.press("u")
        assert results == [("clock GHz", "3.00"), ("clock MHz", "3000"), ("clock ×base", "1.50")]


async def test_the_chosen_columns_are_shown_in_order() -> None:
    async with at_table(Machine()) as run:
        choice, table = view(run).choice, view(run)
        choice.columns = ("ipc", "no such", "util")
        table.lay_out()
        assert shown(run)[0].split() == ["cpu", "▲core", "IPC", "busy", "%"]
        choice.columns = ("no such",)
        table.lay_out()
        assert "clock GHz" in shown(run)[0]


async def test_only_matching_cpus_are_listed() -> None:
    async with at_table(Machine()) as run:
        table = view(run)
        for text, result in (("5-6", [5, 6]), ("core:1", [1, 5])):
            await run.pilot.press("slash", *text, "enter")
            assert cpus(run) == result
            assert table.choice.cpu in {1, 2}
            await run.pilot.press("backslash")
        table.choice.filter = parse("99")
        await run.pilot.press("slash", "enter")
        assert shown(run)[1:3] == [" no CPU matches 99", ""]
        await run.pilot.press("down", "end", "pageup", "greater_than_sign", "r", "enter")
        await run.pilot.press("escape", "backslash")
        assert len(cpus(run)) == 8


async def test_columns_are_chosen_in_a_menu() -> None:
    async with at_table(Machine()) as run:
        choice, all_ = view(run).choice, shown(run)[0]
        await run.pilot.press("c", "space", "enter")
        assert "busy %" not in shown(run)[0]
        assert "clock GHz" in shown(run)[0]
        await run.pilot.press("c", "a", "a", "j", "space", "enter")
        assert shown(run)[0].split() == ["cpu", "▲core", "clock", "GHz"]
        choice.columns = ("not yet", "ipc", "util")
        await run.pilot.press("c", "j", "space", "enter")
        assert list(choice.columns) == ["not yet", "ipc", "util", "busy_hz"]
        await run.pilot.press("c", "a", "escape", "c", "a", "enter")
        assert (list(choice.columns), shown(run)[0]) == ([], all_)


async def test_a_table_is_sorted_before_its_layout() -> None:
    async with running_app(Machine()) as run:
        screen = run.monitor
        await screen.action_view("table")
        await view(run).action_column(1)
        await view(run).action_column(1)
        assert view(run).choice.order == "busy_hz"


async def test_a_replaced_session_leaves_no_old_content_in_a_table_without_width() -> None:
    """A jump in a replay opens another session while the view waits for its size."""

    async with at_table(Machine(cores=4)) as run:
        table, lines_before = view(run), shown(run)
        assert any(lines_before)
        session, interval = observe(Machine(cores=2))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Table, "size", Size(0, 0))
            table.set(session, interval)
        table._strips.clear()  # as if it had been lower before
        assert not any(shown(run)[1:])
        table.on_resize()
        assert len(cpus(run)) == len(session.topology)


async def test_a_line_with_a_running_episode_has_its_sign_and_a_red_value() -> None:
    does = {2: CpuLoad(0.9, 2.4e9), 6: CpuLoad(0.9, 2.4e9)}
    async with running_app(Machine(ceiling_hz=3.05e9, does=does), (240, 30)) as run:
        await run.pilot.press("4")
        await run.intervals(3)
        table = view(run)
        for cpu, alone in ((2, True), (0, False)):
            y = next(
                y
                for y, line in enumerate(shown(run))
                if line.lstrip("▌ ").split()[:1] == [str(cpu)]
            )
            line = table.render_line(y)
            red = [
                part.text.strip()
                for part in line
                if part.style
                and part.style.color
                and part.style.color.name in {"#ff6b5e", "bright_red"}
            ]
            assert red == (["▼", "2.40"] if alone else [])
