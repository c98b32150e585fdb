"""The time view of a running app, as text and styled cells."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fakes import CpuLoad, Machine
from played_apps import Run, running_app
from waiting import until_true

from perftop.draw.strips import text
from perftop.tui.views.timeline import MIN_HEIGHT_FOR_TIMES, Timeline


class View:
    """The time view of a running app."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.past = run.app.screen_stack[0].query_one(Timeline)

    @property
    def title_lines(self) -> list[str]:
        return [text(runs) for runs in self.past.header_lines]

    @property
    def axis_lines(self) -> list[str]:
        """Returns the line of the axis, and the line of clock times below it if there is room."""
        return [
            text(runs)
            for runs, _ in self.past.footer_lines[
                : 1 + (self.past.size.height >= MIN_HEIGHT_FOR_TIMES)
            ]
        ]

    @property
    def rows(self) -> list[str]:
        """All lines of the scrolled part, visible or not."""
        return [text(self.past.line(y)[0]) for y in range(self.past.line_count)]

    def visible_lines(self) -> list[str]:
        lines = range(self.past.size.height)
        return [self.past.render_line(y).text.rstrip() for y in lines]

    def strip(self, y: int) -> list[tuple[str, str]]:
        """The cells of line `y`, one by one, with their styles."""
        results = [(char, key) for part, key in self.past.line(y)[0] for char in part]
        start = self.past._chart_left
        return results[start : start + self.past._axis.cells]

    async def redraw(self) -> None:
        """Redraws the view after a change that the app does not notice."""
        session, interval = self.run.session, self.run.interval
        self.past.show_interval(session, interval, settings_changed=True)
        await self.run.pilot.pause()


@asynccontextmanager
async def viewing(
    machine: Machine, size: tuple[int, int] = (160, 50), **more: Any
) -> AsyncIterator[View]:
    """Yields the view after two seconds."""
    async with running_app(machine, size, **more) as run:
        await run.intervals(10)
        await run.pilot.press("3")
        await until_true(lambda: run.app.screen_stack[0].query(Timeline), "the time view")
        await run.pilot.pause()
        yield View(run)


async def view_of(machine: Machine, size: tuple[int, int] = (160, 50)) -> View:
    """Returns the view after two seconds, when the app has ended."""
    async with viewing(machine, size) as view:
        return view


def two_cores() -> Machine:
    """Two cores: the first has an idle and a busy CPU, the second has two equally busy CPUs."""
    return Machine(
        cores=2, loads={0: CpuLoad(0.02), 2: CpuLoad(0.98), 1: CpuLoad(0.5), 3: CpuLoad(0.5)}
    )


def many_cores(cores: int = 24) -> Machine:
    does = {cpu: CpuLoad(0.02 if cpu < cores else 0.98) for cpu in range(2 * cores)}
    return Machine(cores=cores, loads=does, ceiling_hz=3.0e9)
