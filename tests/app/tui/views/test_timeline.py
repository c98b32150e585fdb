"""The time view: its scale, and the reading of its rows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import CpuLoad, Machine, observe
from hypothesis import given
from hypothesis import strategies as st
from played_apps import Run, running_app
from waiting import until_true

from perftop.draw.strips import text
from perftop.session.history import History
from perftop.session.values import COLUMNS_BY_KEY
from perftop.tui.shared import time_axis
from perftop.tui.shared.cores import Core, Cores
from perftop.tui.views import timeline
from perftop.tui.views.timeline import Timeline


class View:
    """The time view of a running app."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.past = run.app.screen_stack[0].query_one(Timeline)

    @property
    def title(self) -> str:
        return text(self.past.header_lines[0])

    @property
    def rows(self) -> list[str]:
        """All lines of the scrolled part, visible or not."""
        return [text(self.past.line(y)[0]) for y in range(self.past.line_count)]

    async def redraw(self) -> None:
        """Redraws the view after a change that the app does not notice."""
        self.past.show_interval(self.run.session, self.run.interval, settings_changed=True)
        await self.run.pilot.pause()


@asynccontextmanager
async def viewing(machine: Machine) -> AsyncIterator[View]:
    """Yields the view after two seconds."""
    async with running_app(machine) as run:
        await run.send_intervals(10)
        await run.pilot.press("3")
        await until_true(lambda: run.app.screen_stack[0].query(Timeline), "the time view")
        await run.pilot.pause()
        yield View(run)


def many_cores(cores: int = 24) -> Machine:
    """Cores of which one CPU is idle and the other busy."""
    loads = {cpu: CpuLoad(0.02 if cpu < cores else 0.98) for cpu in range(2 * cores)}
    return Machine(cores=cores, loads=loads, ceiling_hz=3.0e9)


async def test_all_rows_of_few_cores_are_visible_at_each_height() -> None:
    heights = set()
    async with viewing(Machine(cores=2)) as view:
        for lines in range(28, 36):
            await view.run.pilot.resize_terminal(120, lines)
            await view.run.pilot.pause()
            past = view.past
            heights.add(past.size.height)
            room = past.size.height - len(past.header_lines) - len(past.footer_lines)
            assert past.line_count <= room, past.size
    assert heights >= {timeline.MIN_HEIGHT_FOR_TIMES - 1, timeline.MIN_HEIGHT_FOR_TIMES}


@pytest.mark.parametrize(("cores", "threads", "room", "ascii_", "height"), [
    (4, 2, 8, False, 0), (4, 2, 8, True, 1), (4, 2, 9, False, 1), (4, 2, 16, False, 1),
    (4, 2, 17, False, 2), (4, 2, 34, False, 4), (4, 2, 35, False, 3), (4, 2, 43, False, 4),
    (2, 1, 1, False, 1), (2, 1, 15, False, 7), (2, 1, 16, False, 3), (2, 1, 42, False, 16),
    (2, 1, 60, False, 16),
])  # fmt: skip
def test_lanes_grow_with_the_screen_and_leave_room_for_panels(
    cores: int, threads: int, room: int, ascii_: bool, height: int
) -> None:
    """`height`: lines of each CPU; 0: siblings share a line. Siblings have a heading of their
    package. Ten lines are left for panels if each CPU has three."""
    session, _ = observe(Machine(cores=cores, threads=threads))
    lines = Cores(session).view_lines()
    layout = timeline.timeline_layout(
        Cores(session), lines, room, "topology", is_per_core=False, ascii_=ascii_
    )
    assert (layout.has_own_lines, layout.lane_height) == (height > 0, max(1, height))
    headings = len(lines) - cores
    assert len(layout.lines) == headings + (cores * threads * height or cores)


# --- time


async def test_the_scale_fits_the_values_and_is_kept_while_it_does() -> None:
    machine, ends = Machine(cores=2, loads={3: CpuLoad(0.5)}), []
    async with viewing(machine) as view:
        for metric, ipc in (("ipc", 1.25), ("ipc", 3.4), ("ipc", 3.1), ("util", 3.1)):
            machine.loads[3].ipc = ipc
            await view.run.send_intervals(3)
            view.run.monitor.settings.metric = metric
            await view.redraw()
            ends.append(re.findall(r"from (\S+) to (\S+)", view.title)[0])
    assert ends == [("0.00", "1.50"), ("0.00", "3.50"), ("0.00", "3.50"), ("0", "100")]


async def test_unchanged_rows_are_not_rebuilt() -> None:
    async with viewing(many_cores()) as view:
        await view.run.pilot.press(*["left_square_bracket"] * 3)  # 13 s: no blank cells
        await view.run.send_intervals(80)
        before = view.past.strip_count
        await view.run.send_intervals(5)
        assert view.past.strip_count - before <= 5 * 3  # the headings


# --- reading of history


async def test_only_visible_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    request: list[tuple[int, int]] = []
    metric = History.metric

    def counting_metric(self: History, key: str, rows: Sequence[int], edges: Any) -> Any:
        request.append((len(rows), len(edges) - 1))
        return metric(self, key, rows, edges)

    async with viewing(many_cores(128)) as view:
        await view.run.send_intervals(16)  # 5.3 s: the axis has room for 6
        monkeypatch.setattr(History, "metric", counting_metric)
        await view.run.send_intervals(1)
        most = 2 * view.past.size.height
        assert len(request) == 1
        assert request[0][0] <= most
        await view.run.pilot.press("end")
        await view.run.pilot.pause()
        assert all(rows <= most + 2 for rows, _ in request)
        last = view.past.render_line(view.past.size.height - 3).text
        assert last.split()[1:3] == ["127", "127,255"]
        assert "▀" in last


# --- cells of lanes


UTIL = COLUMNS_BY_KEY["util"]


class PatternHistory:
    """A history with a different value in each sample, some of them unknown."""

    begin_ns: int | None = None

    def metric(self, _: str, rows: Sequence[int], edges: Any) -> Any:
        ends = edges[1:, None] // 10**8 * 7 + np.array(rows)[None] * 3
        values = ends % 101 / 100
        return np.where(ends % 11 == 0, np.nan, values)


PLACES = [Core(0, 0, i, None, (i, i + 3), i, (2 * i, 2 * i + 1)) for i in range(3)]


@given(st.integers(600, 9000), st.integers(5, 90))
def test_rows_read_one_by_one_equal_those_read_together(now: int, room: int) -> None:
    session: Any = SimpleNamespace(past=PatternHistory())
    axis = time_axis.fit_axis(now * 10**8, 60.0, room)
    together = timeline.read_lanes(session, UTIL, axis, PLACES)
    for place, block in zip(PLACES, together, strict=True):
        np.testing.assert_array_equal(timeline.read_lanes(session, UTIL, axis, [place]), [block])
