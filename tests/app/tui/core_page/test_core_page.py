"""The page of a core: where all stands on it, what its keys do."""

from __future__ import annotations

import dataclasses

import pytest
from cores import KNOWN, busy, charts, line, played_core, text
from fakes import CpuLoad, Machine
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import Run, running_app
from waiting import until_true

from perftop.tui.core_page import numbers
from perftop.tui.core_page.core_page import CorePage

# --- where it all stands


@given(st.integers(20, 250), st.integers(5, 75), st.sampled_from([1, 2, 4]), st.booleans())
@settings(max_examples=60)
def test_the_page_fills_its_lines_and_no_more(
    width: int, height: int, threads: int, tasks: bool
) -> None:
    known = dataclasses.replace(KNOWN, threads=threads, tasks=tasks)
    page = numbers.page_layout(known, width, height)
    lines = 1 + page.tasks + page.axis + page.notes + sum(p.lines + p.gap for p in page.panels)
    assert lines <= max(height, 2 + threads)
    beside = numbers.NAME_WIDTH * bool(page.values) + numbers.VALUE_WIDTH * page.values
    used = numbers.LABEL_WIDTH + page.columns + 1 + beside + page.origin
    assert used <= max(width, numbers.LABEL_WIDTH + 2)


@pytest.mark.parametrize("size", [(80, 19), (120, 25), (160, 45), (240, 65), (40, 8)])
@pytest.mark.parametrize("split", [True, False])
def test_nothing_moves_when_values_change(size: tuple[int, int], split: bool) -> None:
    def shape(machine: Machine) -> list[str]:
        session, interval = played_core(machine)
        of = charts(session, interval, size=size)
        names = numbers.LABEL_WIDTH + of.moment.page.columns + 1
        result = text(session, interval, size=size, exact=False)
        assert max(map(len, result)) == size[0]
        return [
            text[: numbers.LABEL_WIDTH] + text[names : names + numbers.NAME_WIDTH]
            for text in result[1:-5]
        ]

    low = Machine(cores=1, split=split, does={c: CpuLoad(0.2, 3.1e9, 0.11, 0.0) for c in (0, 1)})
    high = Machine(cores=1, split=split, does={c: CpuLoad(1.0, 3.1e9, 0.99, 1.0) for c in (0, 1)})
    assert shape(low) == shape(high)


def test_panels_are_shed_in_their_order() -> None:
    kept = [
        {p.key for p in numbers.page_layout(KNOWN, 80, lines).panels} for lines in range(40, 1, -1)
    ]
    order = ["kernel_cycles", "ipc", "involuntary", "smt", "clock"]
    gone = [next(i for i, keys in enumerate(kept) if key not in keys) for key in order]
    assert gone == sorted(gone)
    assert kept[40 - 19] == {"clock", "smt", "util", "ipc", "involuntary", "kernel_cycles"}  # 80x24
    assert kept[-1] == {"util"}


# --- on the screen


def core_page(run: Run) -> CorePage:
    return run.app.screen_stack[0].query_one(CorePage)


def shown(run: Run) -> list[str]:
    view = core_page(run)
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def test_up_and_down_lead_to_other_cores() -> None:
    machine = busy(Machine(cores=4), 0.0, 0.0)
    machine.does[5] = CpuLoad(1.0)
    async with running_app(machine, (120, 30)) as run:
        await run.pilot.press("enter")
        seen = []
        for key in ("down", "j", "up", "up", "up"):
            await run.pilot.press(key)
            seen.append((shown(run)[0].split()[1], set(panel_text(run, "lp1 busy"))))
        assert seen == [(core, {"⣿"} if core == "1" else {"⣀"}) for core in "12100"]


async def test_brackets_zoom_and_arrows_pan() -> None:
    async with running_app(busy(Machine(cores=2), 1.0, 1.0)) as run:
        await run.intervals(10)
        await run.pilot.press("enter", *["left_square_bracket"] * 3)
        assert "window 5 s" in shown(run)[0]
        cells = len(panel_text(run, "lp0 busy"))  # of 21 samples
        assert cells > 20
        await run.pilot.press("left", "left", "left")
        await until_true(lambda: len(panel_text(run, "lp0 busy")) < cells, "three samples back")
        await run.pilot.press("right_square_bracket", "right_square_bracket")
        assert "window 30 s" in shown(run)[0]


def panel_text(run: Run, label: str) -> str:
    """What is drawn in the line with this label."""
    return "".join(char for char in line(shown(run), label) if char > "\u2800")


async def test_lines_that_stay_the_same_are_not_made_again() -> None:
    async with running_app(Machine(cores=2)) as run:
        await run.intervals(3)
        await run.pilot.press("enter")
        await run.intervals(1)
        view = core_page(run)
        before = view.built
        view.set(view.session, view.interval)
        assert view.built == before
