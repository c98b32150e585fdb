"""Terminals of all sizes and while being resized; random keys, clicks and resizes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from fakes import Machine
from nights import cases_by_day
from painted import messages
from playing import marked_lines, running_app
from taped import write_recording
from walking import walk_live, walk_replay

from perftop.tui.overview.overview import Overview


async def test_the_selection_is_visible_at_any_size() -> None:
    async with running_app(Machine(cores=64), (80, 24)) as run:
        await run.pilot.press("1", *["down"] * 20)
        for size in [(80, 24), (240, 70), (20, 5), (120, 30), (1, 1), (160, 50), (40, 8)] * 2:
            await run.pilot.resize_terminal(*size)
            await run.intervals(1)
            assert run.grid.choice.cpu == 20
            if size[1] > 1:
                assert len(marked_lines(run)) == 1
            screen = run.app.screen
            assert screen.size == size


@pytest.mark.parametrize("view", cases_by_day("123456", "135"))
async def test_a_screen_may_be_narrower_than_its_margins(view: str) -> None:
    async with running_app(Machine(cores=4)) as run:
        await run.pilot.press(view)
        for size in ((1, 24), (2, 70), (4, 24), (7, 70), (12, 24)):
            await run.pilot.resize_terminal(*size)
            await run.intervals(1)
            assert run.app.screen.size == size


async def test_rows_remain_on_the_smallest_screens() -> None:
    async with running_app(Machine()) as run:
        assert run.has("round the middle")
        await run.pilot.resize_terminal(20, 5)
        await run.pilot.press("down", "down", "down")
        await run.intervals(1)
        assert run.grid.size.height == 3
        output = zip(run.text()[2:5], ("1,5", "2,6", "3,7"), strict=True)
        assert all(cpus in line for line, cpus in output)
        assert marked_lines(run) == [run.text()[4]]
        await run.pilot.click(Overview, offset=(2, 0))
        assert run.grid.choice.cpu == 1
        await run.pilot.resize_terminal(80, 24)
        await run.intervals(1)
        assert run.has("lp0 / lp1")
        assert run.has("package 0")
        assert run.has("q quit")


FRAMES, STEPS = 400, 50
SEEDS = cases_by_day(range(60), [0, 3])
"""By day: a live random walk on few CPUs, and one in a recording of many."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_walks_cause_no_errors(tmp_path: Path, seed: int) -> None:
    feed = messages((2, 8)[seed // 2 % 2], FRAMES, ("guest", "smt-mix")[seed // 4 % 2])
    rng = random.Random(seed)
    if seed % 2:
        path = write_recording(tmp_path / "recording", feed[0], feed[1:])  # type: ignore[arg-type]
        assert asyncio.run(walk_replay(rng, path, STEPS)) == []
    else:
        assert asyncio.run(walk_live(rng, feed, STEPS)) == []
