"""The time view: strips of all CPUs, episodes, and keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import CpuLoad, Machine, with_suspect_counter
from hypothesis import given
from hypothesis import strategies as st
from nightly import cases_by_day
from time_view import View, many_cores, two_cores, view_of, viewing

from perftop.draw import theme
from perftop.model.kinds import Episode
from perftop.session.history import History
from perftop.session.selection import parse_filter
from perftop.session.values import COLUMNS_BY_KEY
from perftop.tui.panels import lanes
from perftop.tui.shared import time_axis
from perftop.tui.shared.cores import Core

# --- contents of a line


async def test_a_core_of_four_threads_has_two_lines() -> None:
    does = {cpu: CpuLoad(cpu // 20 / 4 + 0.1) for cpu in range(80)}
    view = await view_of(Machine(cores=20, threads=4, loads=does))
    assert len(view.rows) == 1 + 2 * 20
    assert [row.split()[-2:] for row in view.rows[1:3]] == [["10.0", "35.0"], ["60.0", "85.0"]]


async def test_a_state_of_a_core_is_shown_once() -> None:
    async with viewing(many_cores()) as view:
        view.past.settings.metric = "both"
        await view.redraw()
    row = next(row for row in view.rows if "0,24" in row)
    assert row.split()[-1] == "2.0"
    assert "both active" in view.title_lines[0]


# --- time


async def test_a_short_history_fills_the_axis_and_missing_history_is_labelled() -> None:
    async with viewing(many_cores()) as view:
        await view.run.intervals(1)
    cells = "".join(char for char, _ in view.strip(1))
    assert len(cells.lstrip()) > 0.5 * len(cells)
    assert set(cells.strip()) == {"▀"}
    blank = len(cells) - len(cells.lstrip())
    assert blank
    since = view.axis_lines[0][view.past._chart_left :].split("─")[0].strip(time_axis.TICK_SIGN)
    assert since.strip() == "history from 22:13:20"


async def test_an_offline_cpu_leaves_a_gap_and_is_shown_as_off() -> None:
    async with viewing(many_cores()) as view:
        view.run.feed.offline(24)
        await view.run.intervals(10)
    cells = view.strip(1)
    index = cells.index(("○", "text"))  # the CPU went offline
    assert set(cells[index - 20 : index - 3]) == {("▀", "heat0/heat11")}
    assert set(cells[index + 3 :]) == {("▀", "heat0")}  # the sibling continues alone
    assert len(cells) > index + 20
    assert view.rows[1].rstrip().endswith("  2.0    off ○")


async def test_an_idle_cpu_is_blank_and_its_clock_is_a_dot() -> None:
    async with viewing(Machine(cores=24, loads={24: CpuLoad(0.0)})) as view:
        view.past.settings.metric = "busy_hz"
        await view.redraw()
    assert view.rows[1].split()[-2:] == ["3.00", "·"]
    assert view.strip(1)[-1][0] == "▀"
    assert "/" not in view.strip(1)[-1][1]


async def test_the_window_can_be_chosen_and_the_length_of_a_cell_is_shown() -> None:
    results = []

    async with viewing(many_cores()) as view:
        await view.run.intervals(40)
        for key in ("", "right_square_bracket", *["left_square_bracket"] * 4):
            await view.run.pilot.press(*[key] if key else [])
            await view.run.pilot.pause()
            window, cell = (
                view.title_lines[0].split("window ")[1].split("   ")[0].split(", each cell ")
            )
            results.append((window, cell))
    windows, cells = zip(*results, strict=True)
    assert windows == ("60 s", "120 s", "60 s", "30 s", "15 s", "5 s")
    assert cells[0] == cells[1] == cells[2] == cells[3]  # the history has 10 s
    assert float(cells[4].split()[0]) > float(cells[5].split()[0])


async def test_the_scale_fits_the_values_and_is_kept_while_it_does() -> None:
    machine, ends = two_cores(), []
    async with viewing(machine) as view:
        for metric, ipc in (("ipc", 1.25), ("ipc", 3.4), ("ipc", 3.1), ("util", 3.1)):
            machine.loads[3].ipc = ipc
            await view.run.intervals(3)
            view.run.monitor.settings.metric = metric
            await view.redraw()
            ends.append(re.findall(r"from (\S+) to (\S+)", view.title_lines[0])[0])
    assert ends == [("0.00", "1.50"), ("0.00", "3.50"), ("0.00", "3.50"), ("0", "100")]


async def test_the_past_ends_at_the_right_edge() -> None:
    async with viewing(many_cores()) as view:
        machine = view.run.feed.machine
        machine.offline_cpus.add(24)
        view.run.feed.offline(24)
        await view.run.intervals(5)
        assert view.strip(1)[-1] == ("▀", "heat0")
        await view.run.pilot.press(*["left"] * 12)
        await view.run.pilot.pause()
    assert view.strip(1)[-1] == ("▀", "heat0/heat11")
    assert view.rows[1].split()[-1] == "98.0"


async def test_unchanged_rows_are_not_rebuilt() -> None:
    async with viewing(many_cores()) as view:
        await view.run.pilot.press(*["left_square_bracket"] * 3)  # 13 s: no blank cells
        await view.run.intervals(80)
        before = view.past._strips.built
        await view.run.intervals(5)
        assert view.past._strips.built - before <= 5 * 3  # the headings


# --- values and units


@pytest.mark.parametrize(("key", "number"), [
    ("ref", "≁98.0"), ("instructions", "98.0"),
])  # fmt: skip
async def test_a_suspect_value_is_marked(key: str, number: str) -> None:
    async with viewing(many_cores()) as view:
        session, interval = view.run.session, view.run.interval
        view.past.show_interval(session, with_suspect_counter(interval, 24, key))
    rows = [row.split()[-2:] for row in view.rows[1:3]]
    assert rows == [["2.0", number], ["2.0", "98.0"]]


# --- order, filter, cursor


async def test_a_filter_hides_other_cpus_and_reports_if_none_match() -> None:
    results: list[list[str]] = []
    counts: list[int] = []
    async with viewing(many_cores()) as view:
        for selected in ("3", "999"):
            settings = view.past.settings
            settings.filter, settings.mask = (
                parse_filter(selected),
                frozenset({int(selected)} - {999}),
            )
            await view.redraw()
            results.append(view.visible_lines())
            counts.append(view.past.line_count)
    some, none = results
    assert [line.split()[0] for line in some[3 : 2 + counts[0]] if line[:6].strip()] == ["▌"]
    assert " 3  3 " in some[3]
    assert any("no CPU matches" in line for line in none)


async def test_the_cursor_moves_between_cores_and_shows_all_their_lines() -> None:
    async with viewing(two_cores(), size=(80, 24)) as view:
        await view.run.pilot.press("down")
        assert view.past.settings.cpu == 1
        await view.run.pilot.press("end")
        assert view.past.settings.cpu == 1
        selected = [y for y in range(view.past.line_count) if view.past.line(y)[1] == "chosen"]
        assert len(selected) == view.past.line_count // 2
        assert sum(line.startswith("▌") for line in view.visible_lines()) == 1


async def test_cells_outside_the_selected_range_are_faded() -> None:
    async with viewing(two_cores()) as view:
        y = next(
            y for y, line in enumerate(view.rows) if view.past.cpu_of_line(y) == 0 and line.strip()
        )
        live = view.strip(y)
        assert view.title_lines[1].split()[-1] == "now"
        now_ns = view.run.interval.time_ns
        view.run.source.select_range(now_ns - S, now_ns)
        await view.run.pilot.pause()
        cells = view.strip(y)
        is_faded = [key.startswith(theme.FADED_PREFIX) for _, key in cells]
        assert is_faded == sorted(is_faded, reverse=True)
        assert is_faded.count(False) == pytest.approx(S / view.past._axis.bin_ns, abs=1)
        assert [(sign, key.removeprefix(theme.FADED_PREFIX)) for sign, key in cells] == live
        assert view.title_lines[1].split()[-1] == "mean"


# --- sizes, ASCII


SIZES = [(80, 24), (120, 30), (160, 50), (240, 70), (40, 10), (30, 6), (20, 5), (24, 12)]


@pytest.mark.parametrize("cores", cases_by_day([1, 8, 64], [8]))
async def test_no_line_is_wider_than_the_screen(cores: int) -> None:
    async with viewing(many_cores(cores)) as view:
        for size in SIZES:
            await view.run.pilot.resize_terminal(*size)
            await view.run.pilot.pause()
            assert view.past.size.width == size[0]
            for line in [*view.title_lines, *view.rows, *view.axis_lines]:
                assert len(line) <= size[0]
            if size[0] >= 80:
                assert len({len(row.rstrip()) for row in view.rows if "," in row}) <= 1
                assert "22:13:2" in view.axis_lines[-1]


async def test_in_ascii_all_cpus_have_a_line_and_shapes_show_values() -> None:
    lines: list[str] = []
    async with viewing(many_cores(), size=(100, 24), ascii_=True) as view:
        await view.run.pilot.press("end")
        await view.run.pilot.pause()
        lines.extend(view.visible_lines())
    assert len(view.rows) == 1 + 48
    assert len(lines) > 15
    assert all(line.isascii() for line in lines)
    low, high = (view.strip(y)[-1][0] for y in (1, 2))
    assert low != high
    assert low.strip()
    assert high.strip()
    assert [line.split()[0] for line in lines[-3:-1]] == [">", "47"]  # the whole core is visible


# --- reading of history


async def test_only_visible_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    request: list[tuple[int, int]] = []
    metric = History.metric

    def counting_metric(self: History, key: str, rows: Sequence[int], edges: Any) -> Any:
        request.append((len(rows), len(edges) - 1))
        return metric(self, key, rows, edges)

    async with viewing(many_cores(128)) as view:
        await view.run.intervals(16)  # 5.3 s: the axis has room for 6
        monkeypatch.setattr(History, "metric", counting_metric)
        await view.run.intervals(1)
        most = 2 * view.past.size.height
        assert len(request) == 1
        assert request[0][0] <= most
        await view.run.pilot.press("end")
        await view.run.pilot.pause()
        assert all(rows <= most + 2 for rows, _ in request)
        assert view.visible_lines()[-3].split()[1:3] == ["127", "127,255"]
        assert "▀" in view.visible_lines()[-3]


# --- episodes and marks in the time view: on the axis, in lanes, and below them


S = 1_000_000_000


async def show_episodes(view: View, *episodes: Episode) -> None:
    view.run.session.detector.running += [e for e in episodes if e.end_ns is None]
    view.run.session.ended.extend([e for e in episodes if e.end_ns is not None])
    await view.redraw()


async def test_an_episode_is_marked_on_the_axis_and_in_its_row() -> None:
    async with viewing(many_cores()) as view:
        await show_episodes(view, Episode("involuntary-halt", [24], 14 * S // 10))
    index = view.axis_lines[0].index("║")
    assert view.rows[1][index] == "║"
    assert view.rows[1].rstrip().endswith("98.0 ║")  # the episode still runs
    assert not any("║" in row for row in view.rows[2:])
    assert set(view.axis_lines[0][index + 1 : view.past._chart_left + view.past._axis.cells]) == {
        "━"
    }


async def test_an_ended_episode_has_no_stroke_to_the_end() -> None:
    async with viewing(many_cores()) as view:
        await show_episodes(view, Episode("involuntary-halt", [0], S // 2, S))
    assert view.axis_lines[0].count("║") == 1
    assert view.rows[1].count("║") == 1
    assert not view.rows[1].rstrip().endswith("║")


async def test_panels_fill_the_room_below_the_axis() -> None:
    results: list[object] = []

    async with viewing(two_cores()) as view:
        await show_episodes(view, Episode("involuntary-halt", [1], S // 2, S))
        past = view.past
        seen = view.visible_lines()
        first = next(y for y, line in enumerate(seen) if "what happened" in line)
        y = next(y for y in range(first, len(seen)) if "║" in seen[y])
        results.append(past.target_at(seen[y].index("║"), past.size.height - y))
        results.extend(
            (past.size.height - len(past.header_lines) - past.line_count, len(past.footer_lines))
        )
    episode, room, feet = results
    assert isinstance(episode, Episode)
    assert episode.kind == "involuntary-halt"
    assert room == feet


async def test_an_episode_of_a_package_is_in_its_heading_once() -> None:
    async with viewing(many_cores()) as view:
        await show_episodes(view, Episode("turbo-drop", list(range(48)), 14 * S // 10))
    assert [row.count("▼") for row in view.rows] == [1] + [0] * 24


async def test_rows_show_episodes_of_packages_without_headings() -> None:
    async with viewing(many_cores()) as view:
        view.past.settings.order = "CPU number"
        await show_episodes(view, Episode("turbo-drop", list(range(48)), 14 * S // 10))
    assert [row.count("▼") for row in view.rows] == [2] * 24


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


def _lanes(now_ns: int, room: int, window_s: float = 60.0) -> lanes.MetricLanes:
    session: Any = SimpleNamespace(past=PatternHistory())
    axis = time_axis.fit_axis(now_ns, window_s, room)
    return lanes.MetricLanes(session, UTIL, axis, PLACES, ascii_=False)


@given(st.integers(600, 9000), st.integers(5, 90))
def test_rows_read_one_by_one_equal_those_read_together(now: int, room: int) -> None:
    together, apart = _lanes(now * 10**8, room), _lanes(now * 10**8, room)
    together.read([0, 2])
    for row in (2, 0):
        apart.read([row])
    for row in (0, 2):
        np.testing.assert_array_equal(apart.values[row], together.values[row])
