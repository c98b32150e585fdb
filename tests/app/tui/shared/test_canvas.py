"""What is where on a canvas of lines."""

from __future__ import annotations

from fakes import Machine
from playing import Run, play


def test_below_the_last_line_there_is_none() -> None:
    """A click there chooses nobody."""

    async def act(run: Run) -> None:
        grid = run.grid
        end = len(grid.heads) + grid.count
        assert end < grid.size.height
        assert (grid.at(end - 1), grid.at(end)) == (grid.count - 1, None)
        before = grid.choice.cpu
        await run.pilot.click(grid, offset=(5, end))
        assert grid.choice.cpu == before

    play(Machine(cores=2), act)
