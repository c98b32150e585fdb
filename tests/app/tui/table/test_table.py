"""The table: which columns there are, what stands in them, in which order, and its cursor."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from fakes import Does, Machine, doubting, guest, seen, tasks
from hypothesis import given
from hypothesis import strategies as st
from playing import Run, running
from textual.geometry import Size

from perfprobe.wire import Rate
from perftop.base.format import clock_unit
from perftop.draw import strips, theme
from perftop.samples.metrics import METRICS
from perftop.samples.smt import STATES
from perftop.session import columns
from perftop.session.filter import parse
from perftop.tui.shared.placed_column import Placed
from perftop.tui.table import layout, lines
from perftop.tui.table.table import Table

GHZ = clock_unit("GHz", math.nan)


def view(run: Run) -> Table:
    screen = run.monitor
    assert isinstance(screen.view, Table)
    return screen.view


def told(run: Run) -> list[str]:
    """The lines without the signs of episodes."""
    table = view(run)
    lines = (table.render_line(y).text for y in range(table.size.height))
    signs = {" ", *theme.EPISODES.values()}
    return [
        f"{line[:1]} {line[2:]}".rstrip() if line[1] in signs else line.rstrip() for line in lines
    ]


def cpus(run: Run) -> list[int]:
    """CPU numbers from above to below."""
    lines = takewhile(bool, told(run)[1:])  # panels follow after an empty line
    return [int(line.lstrip("▌> ").split()[0]) for line in lines]


@asynccontextmanager
async def at_table(
    machine: Machine, size: tuple[int, int] = (240, 30), **more: Any
) -> AsyncIterator[Run]:
    async with running(machine, size, **more) as run:
        await run.pilot.press("4")
        yield run


def drawn(
    machine: Machine, width: int = 400, doubt: tuple[int, str] | None = None, **more: Any
) -> tuple[layout.TableLayout, layout.Page]:
    """All columns, without an app; `doubt`: a CPU and its counter."""
    session, interval = seen(machine, **more)
    interval = doubting(interval, *doubt) if doubt else interval
    of = columns.Tabular(session)
    slots = [layout.slot(column, GHZ) for column in of.columns()]
    page = layout.Page(
        {"cpu": [str(row.cpu) for row in session.topology]},
        {slot.key: of.values(slot.key, interval).tolist() for slot in slots if not slot.left},
        interval.online.tolist(),
        {slot.key: columns.doubted(slot.key, session, interval).tolist() for slot in slots},
        [True] * len(session.topology),
        [False] * len(session.topology),
        interval.resting.tolist(),
    )
    return layout.plan(layout.names(page), slots, 0, width), page


def row(machine: Machine, cpu: int, **more: Any) -> dict[str, str]:
    """What stands under each heading."""
    plan, page = drawn(machine, **more)
    text, at, found = strips.text(lines.row(plan, page, cpu, "a:1")[0]), layout.BEFORE, {}
    for slot in (*plan.names, *plan.slots):
        found[slot.key] = text[at : at + slot.width].strip()
        at += slot.width
    return found


# --- what stands there


def test_every_number_that_is_known_of_a_cpu() -> None:
    m = Machine(cores=2, does={0: Does(1.0, 2.5e9, ipc=0.42), 2: Does(0.25, alone=0.0)})
    found = row(m, 0, records=tasks(["lmp"]))
    served = {key for key in METRICS if seen(m)[0].evaluator.chosen[key]}
    assert served <= found.keys()
    assert {key: found[key] for key in ("util", "busy_hz", "ipc", "involuntary", "task")} == {
        "util": "100.0", "busy_hz": "2.50", "ipc": "0.42", "involuntary": "0.00", "task": "a:1",
    }  # fmt: skip
    assert [found[key] for key in ("both", "lp0", "lp1", "neither")] == [
        "25.0",
        "75.0",
        "0.0",
        "0.0",
    ]
    assert found["turbo_ceiling_hz"] == "3.20"
    assert row(m, 2)["both"] == "25.0"  # a sibling has it in common


def test_what_nobody_counts_has_no_column() -> None:
    found = row(guest(), 0)
    assert not {"busy_hz", "ipc", "both", "turbo_ceiling_hz", "smi", "task"} & found.keys()
    assert {"util", "steal"} <= found.keys()
    bounds_only = Machine(cores=2, split=False)
    assert not {"both", "lp0"} & row(bounds_only, 0).keys()
    assert row(Machine(cores=2, threads=4), 0).get("neither") is not None
    assert "both" not in row(Machine(cores=2, threads=4), 0)


def test_unknown_is_no_number_and_a_cpu_at_rest_has_no_clock() -> None:
    m = Machine(does={1: Does(0.0), 2: Does(0.005)})
    for cpu in (1, 2):
        found = row(m, cpu)
        assert (found["busy_hz"], found["ipc"], found["kernel_cycles"]) == (theme.NEITHER,) * 3
    assert row(Machine(ceiling_hz=None), 0).get("turbo_ceiling_hz") is None


def test_only_numbers_of_a_suspect_counter_are_marked() -> None:
    doubt = 2, "instructions"
    told = row(Machine(), 2, doubt=doubt)
    assert (told["util"], told["busy_hz"], told["kernel_cycles"]) == ("50.0", "3.00", "10.0")
    assert told["ipc"] == "≁1.25"
    assert "≁" not in "".join(row(Machine(), 1, doubt=doubt).values())


def test_states_are_marked_on_both_cpus_of_the_core() -> None:
    doubt = 2, "one_thread"
    for cpu in (2, 6):
        told = row(Machine(), cpu, doubt=doubt)
        assert {key for key, text in told.items() if "≁" in text} == {*STATES}
    assert "≁" not in "".join(row(Machine(), 1, doubt=doubt).values())


async def test_a_cpu_that_is_off_has_no_numbers() -> None:
    async with at_table(Machine()) as run:
        run.feed.offline(3)
        await run.intervals(2)
        line = next(line for line in told(run) if line.split()[0] == "3")
        assert line.split() == ["3", "0:3", "off"]
        await run.pilot.press("s", *["j"] * 3, "enter")  # by busy time
        assert cpus(run)[-1] == 3
        await run.pilot.press("r")
        assert cpus(run)[-1] == 3


async def test_names_from_outside_are_drawn_as_they_can_be() -> None:
    async with at_table(Machine()) as run:
        await run.intervals(
            1, records={"tasks": {"0": [1, "a\x1b[31m漢\n", 1], "1": "no", "2": []}}
        )
        text = next(line for line in told(run) if line.lstrip("▌ ").startswith("0 "))
        assert "a?[31m??:1" in text


# --- where it stands


def test_nothing_moves_when_values_change() -> None:
    low = Does(0.001, 0.8e9, 0.01, 0.0)
    high = Does(1.0, 9.2e9, 9.99, 1.0)
    found = []
    for does in (low, high):
        plan, page = drawn(Machine(does=dict.fromkeys(range(8), does)))
        title = strips.text(lines.heading(plan, "util", reverse=False))
        texts = [strips.text(lines.row(plan, page, i)[0]) for i in range(8)]
        found.append((title, [len(text) for text in texts]))
        for text in texts:  # every number ends below its title
            at = layout.BEFORE
            for slot in (*plan.names, *plan.slots):
                at += slot.width
                assert slot.left or (text[at - 1] != " " and title[at - 1] != " "), slot.key
    assert found[0] == found[1]


@given(
    st.lists(st.integers(3, 34), max_size=20),
    st.integers(-3, 40),
    st.integers(1, 200),
)
def test_columns_in_sight_fit_and_none_is_lost(widths: list[int], left: int, width: int) -> None:
    stay = [Placed("cpu", "cpu", 6)]
    slots = [Placed(str(i), "x", wide) for i, wide in enumerate(widths)]
    plan = layout.plan(stay, slots, left, width)
    keys = [slot.key for slot in slots]
    assert plan.before + len(plan.slots) + plan.after == len(slots)
    assert [s.key for s in plan.slots] == keys[plan.before : plan.before + len(plan.slots)]
    assert bool(plan.slots) == bool(slots)
    if len(plan.slots) > 1:
        assert sum(slot.width for slot in (*stay, *plan.slots)) <= width - layout.BEFORE - 1
    if plan.before and plan.after == 0:  # not further than needed
        more = slots[plan.before - 1].width
        assert sum(slot.width for slot in (*stay, *plan.slots)) + more > width - layout.BEFORE - 1


async def test_columns_scroll_beside_those_that_stay() -> None:
    async with at_table(Machine(), (80, 24)) as run:
        first = told(run)[0]
        assert first.split()[:3] == ["cpu", "▲core", "busy"]
        assert first.endswith("→")
        assert len(first) == view(run).width
        await run.pilot.press("right")
        moved = told(run)[0]
        assert moved.replace("←", " ← ").split()[:4] == ["cpu", "▲core", "←", "clock"]
        assert all("0:" in line for line in told(run)[1:9])
        await run.pilot.press(*["right"] * 30)
        last = told(run)[0]
        assert not last.endswith("→")
        assert run.app.status.paused is None  # the keys are the table's own here
        await run.pilot.press("left")
        assert told(run)[0] != last  # no steps into the void to take back
        await run.pilot.press(*["left"] * 30)
        assert told(run)[0] == first


async def test_a_hybrid_tells_types() -> None:
    m = Machine(cores=2, threads=1)
    for i, kind in enumerate("PE"):
        m.hello.topology[i] = type(m.hello.topology[i])(
            cpu=i, online=True, package=0, core=i, type=kind
        )

    async with at_table(m) as run:
        assert told(run)[0].split()[:3] == ["cpu", "▲core", "type"]
        assert [line.replace("▌", " ").split()[2] for line in told(run)[1:3]] == ["P", "E"]


# --- order


def busy(cores: int = 4) -> Machine:
    """The higher the CPU, the less it does; the last one nothing at all."""
    last = 2 * cores - 1
    return Machine(
        cores=cores, does={cpu: Does((last - cpu) / (last + 1)) for cpu in range(last + 1)}
    )


async def test_a_column_sorts_by_its_values() -> None:
    async with at_table(busy()) as run:
        await run.intervals(1)
        assert cpus(run) == [0, 4, 1, 5, 2, 6, 3, 7]
        choice = view(run).choice
        for order, reverse, found in (
            ("util", False, list(range(8))),
            ("util", True, list(range(8))[::-1]),
            ("busy_hz", True, [0, 4, 1, 5, 2, 6, 3, 7]),  # all alike; 7 did not run
            ("CPU number", False, list(range(8))),
            ("CPU number", True, list(range(8))[::-1]),
            ("topology", True, [7, 3, 6, 2, 5, 1, 4, 0]),
            ("no such", False, [0, 4, 1, 5, 2, 6, 3, 7]),
        ):
            choice.order, choice.reverse = order, reverse
            view(run).lay_out()
            assert cpus(run) == found, (order, reverse)


async def test_tasks_sort_by_name() -> None:
    async with at_table(Machine()) as run:
        await run.intervals(1, records=tasks(["b", "C", "a", "d"]))
        choice = view(run).choice
        choice.order = "task"
        view(run).lay_out()
        assert cpus(run) == [2, 0, 1, 3, 4, 5, 6, 7]
        assert "▲task" in told(run)[0]
        choice.reverse = True
        view(run).lay_out()
        assert cpus(run) == [3, 1, 0, 2, 4, 5, 6, 7]


def test_what_looks_equal_does_not_change_places() -> None:
    session, interval = seen(Machine(does={3: Does(0.50049), 5: Does(0.50031), 1: Does(0.7)}))
    of = columns.Tabular(session)
    rows = of.arranged(np.arange(8), columns.ALL[0], interval, GHZ, reverse=False).tolist()
    assert rows == [1, 0, 2, 3, 4, 5, 6, 7]


async def test_keys_and_clicks_sort() -> None:
    async with at_table(Machine(), (80, 24)) as run:
        choice = view(run).choice
        await run.pilot.press("greater_than_sign")
        assert (choice.order, "▼busy" in told(run)[0]) == ("util", True)
        await run.pilot.press("greater_than_sign", "greater_than_sign", "less_than_sign")
        assert choice.order == "busy_hz"
        await run.pilot.press(*["less_than_sign"] * 9)
        assert (choice.order, "▲cpu" in told(run)[0]) == ("CPU number", True)
        await run.pilot.press(*["greater_than_sign"] * 30)
        assert choice.order == "task"
        assert "▲task" in told(run)[0]  # brought into sight
        await run.pilot.press(*["less_than_sign"] * 30)
        at = told(run)[0].index("busy")
        await run.pilot.click(Table, offset=(at, 0))
        assert (choice.order, choice.reverse) == ("util", False)
        at = told(run)[0].index("busy")
        await run.pilot.click(Table, offset=(at, 0))
        assert (choice.order, choice.reverse, "▲busy" in told(run)[0]) == ("util", True, True)
        await run.pilot.click(Table, offset=(2, 0))
        assert choice.order == "CPU number"


# --- the cursor


def selected(run: Run) -> list[int]:
    return [int(line[1:].split()[0]) for line in told(run) if line.startswith("▌")]


async def test_the_cursor_is_on_a_cpu_and_others_know_its_core() -> None:
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


async def test_the_cpu_stays_selected_when_rows_change_places() -> None:
    async with at_table(busy(32), (80, 24)) as run:
        await run.pilot.press(*["down"] * 5)
        (cpu,) = selected(run)
        for _ in range(6):
            await run.pilot.press("greater_than_sign")
            assert selected(run) == [cpu]
        await run.pilot.press("r", "o", "o")
        assert selected(run) == [cpu]


# --- what is chosen


async def test_clocks_are_told_in_chosen_units() -> None:
    async with at_table(Machine(changes={"base_hz": Rate(2e9, "made")})) as run:
        found = []
        for _ in range(3):
            title = told(run)[0].split("  ")
            busy_title = next(part.strip() for part in title if "clock" in part)
            end = told(run)[0].index(busy_title) + len(busy_title)
            found.append((busy_title, told(run)[1][:end].split()[-1]))
            await run.pilot.press("u")
        assert found == [("clock GHz", "3.00"), ("clock MHz", "3000"), ("clock ×base", "1.50")]


@pytest.mark.parametrize(
    ("units", "base_hz", "number", "digits"),
    [("GHz", 2e9, 3.456, 2), ("MHz", 2e9, 3456, 0), ("base", 2e9, 1.728, 2),
     ("base", math.nan, math.nan, 2), ("base", 0.0, math.nan, 2)],
)  # fmt: skip
def test_a_clock_in_units(units: str, base_hz: float, number: float, digits: int) -> None:
    unit = clock_unit(units, base_hz)
    assert 3.456e9 * unit.per_hz == pytest.approx(number, nan_ok=True)
    assert unit.digits == digits


async def test_columns_are_those_chosen_in_their_order() -> None:
    async with at_table(Machine()) as run:
        choice, table = view(run).choice, view(run)
        choice.columns = ("ipc", "no such", "util")
        table.lay_out()
        assert told(run)[0].split() == ["cpu", "▲core", "IPC", "busy", "%"]
        choice.columns = ("no such",)
        table.lay_out()
        assert "clock GHz" in told(run)[0]


async def test_only_cpus_that_match_are_there() -> None:
    async with at_table(Machine()) as run:
        table = view(run)
        for text, found in (("5-6", [5, 6]), ("core:1", [1, 5])):
            await run.pilot.press("slash", *text, "enter")
            assert cpus(run) == found
            assert table.choice.cpu in {1, 2}
            await run.pilot.press("backslash")
        table.choice.filter = parse("99")
        await run.pilot.press("slash", "enter")
        assert told(run)[1:3] == [" no CPU matches 99", ""]
        await run.pilot.press("down", "end", "pageup", "greater_than_sign", "r", "enter")
        await run.pilot.press("escape", "backslash")
        assert len(cpus(run)) == 8


async def test_a_locale_without_shapes_gets_plain_ones() -> None:
    async with at_table(Machine(), (80, 24), ascii_=True) as run:
        await run.pilot.press("right", "down", "u", "u")
        assert all(line.isascii() for line in told(run))
        assert "xbase" in told(run)[0]
        assert "^core" in told(run)[0]


async def test_a_low_screen_has_rows_only() -> None:
    async with at_table(Machine()) as run:
        await run.pilot.resize_terminal(40, 6)
        await run.intervals(1)
        assert [line.replace("▌", " ").split()[0] for line in told(run)] == ["0", "4", "1", "5"]


async def test_columns_are_chosen_in_a_list() -> None:
    async with at_table(Machine()) as run:
        choice, all_ = view(run).choice, told(run)[0]
        await run.pilot.press("c", "space", "enter")
        assert "busy %" not in told(run)[0]
        assert "clock GHz" in told(run)[0]
        await run.pilot.press("c", "a", "a", "j", "space", "enter")
        assert told(run)[0].split() == ["cpu", "▲core", "clock", "GHz"]
        choice.columns = ("not yet", "ipc", "util")
        await run.pilot.press("c", "j", "space", "enter")
        assert list(choice.columns) == ["not yet", "ipc", "util", "busy_hz"]
        await run.pilot.press("c", "a", "escape", "c", "a", "enter")
        assert (list(choice.columns), told(run)[0]) == ([], all_)


async def test_it_can_be_sorted_before_it_has_a_size() -> None:
    async with running(Machine()) as run:
        screen = run.monitor
        await screen.action_view("table")
        await view(run).action_column(1)
        await view(run).action_column(1)
        assert view(run).choice.order == "busy_hz"


async def test_another_machine_while_it_has_no_width_draws_nothing_of_the_old_one() -> None:
    """As in a replay: a jump opens another session while the view waits for its size."""

    async with at_table(Machine(cores=4)) as run:
        table, lines_before = view(run), told(run)
        assert any(lines_before)
        session, interval = seen(Machine(cores=2))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Table, "size", Size(0, 0))
            table.show(session, interval)
        table._made.clear()  # as if it had been lower before
        assert not any(told(run)[1:])
        table.on_resize()
        assert len(cpus(run)) == len(session.topology)


async def test_a_line_on_which_an_episode_runs_has_its_sign_and_the_lost_number_in_red() -> None:
    does = {2: Does(0.9, 2.4e9), 6: Does(0.9, 2.4e9)}
    async with running(Machine(ceiling_hz=3.05e9, does=does), (240, 30)) as run:
        await run.pilot.press("4")
        await run.intervals(3)
        table = view(run)
        for cpu, alone in ((2, True), (0, False)):
            y = next(
                y for y, line in enumerate(told(run)) if line.lstrip("▌ ").split()[:1] == [str(cpu)]
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
