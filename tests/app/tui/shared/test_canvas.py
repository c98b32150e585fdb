"""Positions on a canvas of lines."""

from __future__ import annotations

from unittest.mock import Mock

from fakes import Machine
from playing import Run, running_app
from textual.strip import Strip

from perftop.draw import strips


async def test_no_line_exists_below_the_last_one() -> None:
    """A click there selects nothing."""

    async with running_app(Machine(cores=2)) as run:
        grid = run.grid
        end = len(grid.heads) + grid.count
        assert end < grid.size.height
        assert (grid.line_at(end - 1), grid.line_at(end)) == (grid.count - 1, None)
        before = grid.choice.cpu
        await run.pilot.click(grid, offset=(5, end))
        assert grid.choice.cpu == before


def fixed_lines(*texts: str) -> list[strips.Line]:
    return [([(text, "text")], "calm") for text in texts]


async def test_fixed_lines_are_at_the_bottom_and_others_scroll_above() -> None:
    async with running_app(Machine(cores=29, threads=1), (100, 20)) as run:
        grid = run.grid
        # The grid would set its own fixed lines.
        grid._draw_fixed_lines = Mock()  # type: ignore[method-assign]
        grid.feet = []
        before = grid.height
        grid.feet = fixed_lines("first", "second")
        grid._paint()
        assert [line.text.rstrip() for line in shown(run)[-2:]] == ["first", "second"]
        assert grid.height == before - 2
        assert grid.line_at(grid.size.height - 2) is None
        await run.pilot.press("G")
        assert "28" in shown(run)[-3].text.split()
        grid.feet = []
        grid._paint()
        assert "first" not in "".join(line.text for line in shown(run))


async def test_only_changed_fixed_lines_are_drawn() -> None:
    async with running_app(Machine(cores=29, threads=1)) as run:
        grid = run.grid
        grid.feet = fixed_lines("first", "second", "third")
        grid._paint()
        built = grid.built
        grid.feet = fixed_lines("first", "other", "third")
        grid._paint()
        assert grid.built == built + 1
        assert [line.text.rstrip() for line in shown(run)[-3:]] == ["first", "other", "third"]


def shown(run: Run) -> list[Strip]:
    return [run.grid.render_line(y) for y in range(run.grid.size.height)]
