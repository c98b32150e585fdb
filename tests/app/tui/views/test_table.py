"""The table: columns, contents, order and cursor."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import Any

import pytest
from fakes import CpuLoad, Machine, observe, task_records
from hypothesis import given
from hypothesis import strategies as st
from played_apps import Run, running_app
from textual.geometry import Size

from perftop.base.text import clock_unit
from perftop.draw import strips
from perftop.draw.columns import Column, join_columns, total_width
from perftop.model.kinds import KINDS
from perftop.model.tasks import TaskSnapshot
from perftop.session import values as columns
from perftop.tui.shared.canvas import MARKS_WIDTH
from perftop.tui.views import table
from perftop.tui.views.table import Table


def view(run: Run) -> Table:
    screen = run.monitor
    assert isinstance(screen.view, Table)
    return screen.view


def table_lines(run: Run) -> list[str]:
    """The lines without signs of episodes."""
    table = view(run)
    lines = (table.render_line(y).text for y in range(table.size.height))
    signs = {" ", *(kind.marker for kind in KINDS.values())}
    return [
        f"{line[:1]} {line[2:]}".rstrip() if line[1] in signs else line.rstrip() for line in lines
    ]


def cpus(run: Run) -> list[int]:
    """CPU numbers from top to bottom."""
    lines = takewhile(bool, table_lines(run)[1:])  # panels follow after an empty line
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
        await run.send_intervals(2)
        line = next(line for line in table_lines(run) if line.split()[0] == "3")
        assert line.split() == ["3", "0:3", "off"]
        await run.pilot.press("s", *["j"] * 3, "enter")  # sorts by busy time
        assert cpus(run)[-1] == 3
        await run.pilot.press("r")
        assert cpus(run)[-1] == 3


# --- order


def machine_with_falling_load(cores: int = 4) -> Machine:
    """The load decreases with the CPU number; the last CPU is almost idle, at a low clock."""
    last = 2 * cores - 1
    loads = {cpu: CpuLoad((last - cpu) / (last + 1)) for cpu in range(last)}
    return Machine(cores=cores, loads=loads | {last: CpuLoad(0.005, 1e9)})


async def test_a_column_can_be_sorted_by_its_values() -> None:
    async with at_table(machine_with_falling_load()) as run:
        await run.send_intervals(1)
        assert cpus(run) == [0, 4, 1, 5, 2, 6, 3, 7]
        settings = view(run).settings
        for order, reverse, result in (
            ("util", False, list(range(8))),
            ("util", True, list(range(8))[::-1]),
            ("busy_hz", True, [0, 4, 1, 5, 2, 6, 3, 7]),  # all are equal; CPU 7 is at rest
            ("CPU number", False, list(range(8))),
            ("CPU number", True, list(range(8))[::-1]),
            ("topology", True, [7, 3, 6, 2, 5, 1, 4, 0]),
            ("no such", False, [0, 4, 1, 5, 2, 6, 3, 7]),
        ):
            settings.order, settings.reverse = order, reverse
            view(run).lay_out()
            assert cpus(run) == result, (order, reverse)


@pytest.mark.parametrize(("key", "value", "busy", "style"), [
    ("util", 0.5, 0.05, "text"), ("util", 0.5, 0.049, "faint"), ("steal", 0.01, 0.049, "warn"),
    ("steal", 0.009, 0.049, "faint"), ("steal", 0.01, 0.5, "warn"), ("steal", 0.009, 0.5, "dim"),
    ("involuntary", 0.005, 0.5, "warn"), ("user", 0.01, 0.5, "text"), ("user", 0.009, 0.5, "dim"),
    ("busy_hz", 3e9, 0.1, "text"), ("busy_hz", 3e9, 0.099, "dim"), ("ipc", 1.0, 0.1, "text"),
    ("ipc", 1.0, 0.099, "dim"), ("net_hz", 1e9, 0.1, "text"), ("net_hz", 1e9, 0.099, "dim"),
    ("turbo_ceiling_hz", 3e9, 0.5, "dim"), ("util", math.nan, 0.5, "text"),
])  # fmt: skip
def test_numbers_of_idle_cpus_and_small_shares_are_dim(
    key: str, value: float, busy: float, style: str
) -> None:
    """From 5 % of busy time a CPU is not idle, from 10 % its clock has a meaning."""
    assert table.number_style(columns.COLUMNS_BY_KEY[key], value, busy) == style


async def test_a_column_appears_when_tasks_become_known() -> None:
    async with at_table(Machine()) as run:
        session, interval = observe(Machine(cores=2))
        view(run).show_interval(session, interval)
        assert "task" not in table_lines(run)[0].split()
        session.snapshot = TaskSnapshot(task_records(["stream"])["tasks"])
        view(run).show_interval(session, interval)
        assert "task" in table_lines(run)[0].split()


# --- the cursor


def selected_cpus(run: Run) -> list[int]:
    return [int(line[1:].split()[0]) for line in table_lines(run) if line.startswith("▌")]


async def test_the_cpu_remains_selected_when_rows_move() -> None:
    async with at_table(machine_with_falling_load(32), (80, 24)) as run:
        await run.pilot.press(*["down"] * 5)
        (cpu,) = selected_cpus(run)
        for _ in range(6):
            await run.pilot.press("greater_than_sign")
            assert selected_cpus(run) == [cpu]
        await run.pilot.press("r", "o", "o")
        assert selected_cpus(run) == [cpu]


# --- choices


async def test_a_replaced_session_leaves_no_old_content_in_a_table_without_width() -> None:
    """A jump in a replay opens another session while the view waits for its size."""

    async with at_table(Machine(cores=4)) as run:
        table, lines_before = view(run), table_lines(run)
        assert any(lines_before)
        session, interval = observe(Machine(cores=2))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Table, "size", Size(0, 0))
            table.show_interval(session, interval)
        table.forget_strips()  # as if it had been lower before
        assert not any(table_lines(run)[1:])
        table.on_resize()
        assert len(cpus(run)) == len(session.topology)


# --- positions of the columns, without an app


GHZ = clock_unit("GHz", math.nan)


def page(machine: Machine) -> table.VisibleColumns:
    """Returns all columns."""
    session, interval = observe(machine)
    tabular = columns.CpuColumns(session)
    result = table.VisibleColumns(name_columns=table.name_columns(session)[:1])
    result.scroll([table.number_column(number, GHZ) for number in tabular.columns()], 0, 400)
    result.read(tabular, session, interval)
    return result


def test_positions_do_not_change_with_values() -> None:
    low = CpuLoad(0.001, 0.8e9, 0.01, 0.0)
    high = CpuLoad(1.0, 9.2e9, 9.99, 1.0)
    results = []
    for does in (low, high):
        result = page(Machine(loads=dict.fromkeys(range(8), does)))
        title = strips.text(result.headings("util", 400, reverse=False))
        texts = [
            strips.text(join_columns(result.columns, result.cells(i, "", None))) for i in range(8)
        ]
        results.append((title, [len(text) for text in texts]))
        for text in texts:  # values end below the end of their title
            start = 0
            for column in result.columns:
                start += column.width
                end = title[start - 1 + MARKS_WIDTH]
                assert column.is_left or (text[start - 1] != " " and end != " "), column.key
    assert results[0] == results[1]


@given(st.lists(st.integers(3, 34), max_size=20), st.integers(-3, 40), st.integers(1, 200))
def test_visible_columns_fit_and_all_can_be_reached(
    widths: list[int], left: int, width: int
) -> None:
    every = [Column(str(i), "x", wide) for i, wide in enumerate(widths)]
    result = table.VisibleColumns(name_columns=[Column("cpu", "cpu", 6)])
    result.scroll(every, left, width)
    count, room = len(result.number_columns), width - MARKS_WIDTH - 1
    assert result.hidden_left + count + result.hidden_right == len(every)
    assert result.number_columns == every[result.hidden_left : result.hidden_left + count]
    assert bool(count) == bool(every)
    if count > 1:
        assert total_width(result.columns) <= room
    if result.hidden_left and result.hidden_right == 0:  # the table scrolls no further than needed
        assert total_width([every[result.hidden_left - 1], *result.columns]) > room


@pytest.mark.parametrize(("units", "base_hz", "number", "digits"), [
    ("GHz", 2e9, 3.456, 2), ("MHz", 2e9, 3456, 0), ("base", 2e9, 1.728, 2),
    ("base", math.nan, math.nan, 2), ("base", 0.0, math.nan, 2),
])  # fmt: skip
def test_a_clock_is_converted_to_units(
    units: str, base_hz: float, number: float, digits: int
) -> None:
    unit = clock_unit(units, base_hz)
    assert 3.456e9 * unit.per_hz == pytest.approx(number, nan_ok=True)
    assert unit.digits == digits
