"""The heat map: its geometry, the look of its cells, its scales, and its contents on the screen."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import synth
from fakes import CpuLoad, Machine, observe
from hypothesis import given
from hypothesis import strategies as st
from played_apps import Run, running_app
from terminal_apps import messages, shown_app, wait_until_drawn
from textual import events

from perftop.draw import theme
from perftop.session.values import COLUMNS_BY_KEY
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.row_numbers import field_scale
from perftop.tui.views import heat_cells
from perftop.tui.views.heat_cells import CellGroup
from perftop.tui.views.heat_map import HeatMap


def packages_and_names(
    packages: int, caches: int, cores: int
) -> tuple[list[heat_cells.Groups], list[str]]:
    """Returns packages that consist of L3s, which consist of cores; and the names of the cores."""
    numbers = iter(range(packages * caches * cores))
    results = [
        [CellGroup(f"L3 {p * caches + c}" if caches > 1 else "",
               tuple(next(numbers) for _ in range(cores)))
         for c in range(caches)]
        for p in range(packages)
    ]  # fmt: skip
    return results, [str(core % (caches * cores)) for core in range(packages * caches * cores)]


def layout_of(machine_shape: tuple[int, int, int], threads: int, width: int, height: int, *,
            ascii_: bool = False) -> heat_cells.HeatLayout:  # fmt: skip
    packages, names = packages_and_names(*machine_shape)
    by_id: dict[int | None, heat_cells.Groups] = {**dict(enumerate(packages))}
    return heat_cells.heat_layout(by_id, names, threads, width, height, ascii_=ascii_)


# --- positions of cells


@pytest.mark.parametrize("width", range(60))
def test_a_layout_exists_for_every_narrow_width(width: int) -> None:
    assert layout_of((2, 1, 4), 2, width, 20).lines or width < 3


@pytest.mark.parametrize("ascii_", [False, True])
@pytest.mark.parametrize(("machine_shape", "threads", "width", "height"), [
    *((machine_shape, threads, 79, 16) for machine_shape, threads in (
        ((1, 1, 128), 2), ((2, 8, 8), 2), ((2, 16, 4), 2), ((1, 16, 8), 2), ((8, 1, 16), 2),
        ((4, 1, 16), 4), ((2, 1, 16), 8), ((2, 16, 8), 1), ((256, 1, 1), 1), ((2, 128, 1), 1))),
    *((machine_shape, threads, 159, 42) for machine_shape, threads in (
        ((1, 1, 512), 2), ((2, 32, 8), 2), ((8, 8, 8), 2), ((4, 64, 2), 2), ((16, 1, 32), 2),
        ((2, 16, 8), 4), ((2, 64, 8), 1))),
])  # fmt: skip
def test_256_cpus_fit_24_lines_and_1024_fit_50(
    machine_shape: tuple[int, int, int], threads: int, width: int, height: int, ascii_: bool
) -> None:
    layout = layout_of(machine_shape, threads, width, height, ascii_=ascii_)
    assert len(layout.lines) <= height
    assert len(layout.cell_positions) == machine_shape[0] * machine_shape[1] * machine_shape[2]


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40)),
    st.sampled_from([1, 2, 4, 8]), st.integers(40, 240), st.integers(1, 70), st.booleans(),
)  # fmt: skip
def test_all_cores_have_one_cell_and_no_cells_overlap(
    machine_shape: tuple[int, int, int], threads: int, width: int, height: int, ascii_: bool
) -> None:
    layout = layout_of(machine_shape, threads, width, height, ascii_=ascii_)
    drawn: dict[int, list[int]] = {}
    for line in layout.lines:
        end = 0
        for part in line:
            assert part.x >= end
            end = part.x + part.width
            for row in part.cells:
                drawn.setdefault(row, []).append(part.line)
        assert end <= width
    assert len(drawn) == machine_shape[0] * machine_shape[1] * machine_shape[2]
    # lp0 and lp1 are side by side
    assert not (ascii_ and layout.cell.has_halves and layout.cell.width % 2)
    assert all(lines == list(range(layout.cell.height)) for lines in drawn.values())
    assert len(set(layout.cell_positions.values())) == len(drawn)


@pytest.mark.parametrize(("caches", "labels"), [
    ([0, 1, 2, 3], ["die 0 L3 0", "die 0 L3 2", "die 1 L3 1", "die 1 L3 3"]),
    ([0, 1, 0, 1], ["L3 0", "L3 1"]), ([None] * 4, ["die 0", "die 1"]),
])  # fmt: skip
def test_caches_of_a_die_are_adjacent(caches: list[int | None], labels: list[str]) -> None:
    """Pairs of cores belong to dies 0, 1, 0 and 1."""
    rows = [dataclasses.replace(row, l3=caches[row.cpu % 8 // 2], die=row.cpu % 8 // 2 % 2)
            for row in synth.topology(8)]  # fmt: skip
    session, _ = observe(Machine(cores=8, changes={"topology": rows}))
    (groups,) = heat_cells.package_groups(session, Cores(session)).values()
    assert [group.label for group in groups] == labels


# --- metrics and their scales


CLOCK = COLUMNS_BY_KEY["busy_hz"]


@pytest.mark.parametrize(("width", "side_by_side"), [(94, True), (93, False)])
def test_groups_are_side_by_side_if_there_is_room(width: int, side_by_side: bool) -> None:
    """8 cells of 4 with marks, a gap at the end and a label of 5: 46 columns, twice, with 2
    between."""
    layout = layout_of((1, 2, 8), 2, width, 16)
    assert (layout.cell.width, layout.cell.height) == (4, 2)
    first, second = layout.cell_positions[0], layout.cell_positions[8]
    assert (first[1] == second[1]) is side_by_side
    assert second[0] - first[0] == (48 if side_by_side else 0)


@given(st.lists(st.floats(0.8e9, 4.0e9), min_size=1, max_size=8), st.floats(-1e7, 1e7))
def test_a_scale_covers_all_values_and_rarely_changes(clocks: list[float], more: float) -> None:
    values = np.array(clocks)
    first = field_scale(CLOCK, values)
    assert first.low <= values.min()
    assert values.max() <= first.high
    assert first.levels(values).max() <= 11
    all_values = values + more
    second = field_scale(CLOCK, all_values, first)
    assert second.low <= all_values.min()
    assert all_values.max() <= second.high
    assert field_scale(CLOCK, values, second) == second or not second.covers(first)


# --- on the screen


def view(run: Run) -> HeatMap:
    result = run.app.screen_stack[0].query_one(HeatMap)
    assert result.display
    return result


def text(run: Run) -> list[str]:
    return [view(run).render_line(y).text for y in range(view(run).size.height)]


async def test_unknown_offline_and_doubtful_cells_differ_from_zero() -> None:
    m = Machine(cores=8, loads={2: CpuLoad(0.0), 10: CpuLoad(0.0)})

    async with running_app(m, (160, 30)) as run:
        await run.pilot.press("2", "right", "right")
        m.broken = {1}
        run.feed.offline(3)
        await run.send_intervals(3)
        upper = text(run)[4]
        assert "≁" in upper
        assert upper[: view(run).width].split()[-5] == theme.NEITHER
        assert "  0" in upper
        await run.pilot.press("left")
        assert "≁ " in text(run)[-1].split("busy")[1]
        await run.pilot.press("right", "right")
        assert "busy   off" in text(run)[-1]
        await run.pilot.press("left", "v")
        assert f"clock     {theme.NEITHER}     {theme.NEITHER} GHz" in text(run)[-1]
        assert "–" in text(run)[4]


async def test_the_cursor_moves_to_the_nearest_cell_in_each_direction() -> None:
    async with running_app(Machine(cores=40, threads=1), (60, 20)) as run:
        await run.pilot.press("2")
        heat, last = view(run), 39
        lines = sorted({y for _, y in heat._heat_layout.cell_positions.values()})
        n = sum(y == lines[0] for _, y in heat._heat_layout.cell_positions.values())
        assert len(lines) > 2
        assert n > 3
        for key, cpu in (
            ("right", 1), ("right", 2), ("left", 1), ("down", 1 + n), ("up", 1), ("up", 1),
            ("left", 0), ("left", 0), ("pagedown", n * (len(lines) - 1)), ("pageup", 0),
            ("end", last), ("right", last), ("down", last), ("up", last - n), ("right", last - n),
            ("home", 0),
        ):  # fmt: skip
            await run.pilot.press(key)
            assert heat.settings.cpu == cpu, key


async def test_the_title_counts_hidden_cores_and_those_that_lose() -> None:
    does = {1020: CpuLoad(0.7, steal=0.3)}
    async with running_app(Machine(cores=1024, threads=1, loads=does), (60, 20)) as run:
        await run.pilot.press("2")
        await run.send_intervals(10)
        match = re.search(r"(\d+) of 1024 out of sight \(1 loses\)", text(run)[0])
        assert match is not None, text(run)[0]
        cells_of_line = next(len(part.cells) for part in view(run)._heat_layout.lines[-1])
        assert int(match[1]) % cells_of_line == 0
        await run.pilot.press("end")
        await run.send_intervals(1)
        assert " of 1024 out of sight" in text(run)[0]
        assert "lose" not in text(run)[0]
    async with running_app(Machine(cores=64), (60, 20)) as run:
        await run.pilot.press("2")
        assert "out of sight" not in text(run)[0]


@pytest.mark.parametrize("key", ["home", "end"])
@pytest.mark.parametrize("losers", [[3, 97, 530, 531, 1001], [*range(0, 1024, 7)]])
async def test_each_losing_core_of_1024_has_a_sign_or_is_counted(
    losers: list[int], key: str
) -> None:
    """A cell with a loss has its sign; the title counts those that are not on the screen."""
    does = {cpu: CpuLoad(0.7, steal=0.3) for cpu in losers}
    machine = Machine(cores=1024, threads=1, loads=does)
    async with running_app(machine, (80, 24)) as run:
        await run.send_intervals(10)
        await run.pilot.press("2", key)
        await run.send_intervals(1)
        title, _, *lines = text(run)
        named = re.search(r"\((\d+) loses?\)", title)
        cells = [line for line in lines if "package" not in line and not line.startswith("▸ ")]
        shown = sum(line.count("╳") for line in cells)
    assert shown + int(named[1] if named else 0) == len(losers), "\n".join([title, *lines])


async def test_cores_on_which_one_task_loses_alike_share_a_row_of_the_worst() -> None:
    feed = messages(128, 170, "neighbour,packages=2")  # stream takes IPC from lmp on 16 cores
    async with shown_app(feed) as app:
        lines = app.composed_lines()
        entries = [line[103:].rstrip() for line in lines if "◐ core " in line[103:]]
        names = [entry.partition("core ")[2].split()[0] for entry in entries]
        assert names == ["0:0", "0:4", "0:8", "0:12", "0:16"]
        (y,) = (y for y, line in enumerate(lines) if "+11 alike" in line)
        assert lines[y + 1][103:].split()[:3] == ["cores", "0:20", "0:24"]
        for _ in range(6):
            app.post_message(events.Key("W", "W"))
        await wait_until_drawn(app)
        lines = app.composed_lines()
        assert any("+10 alike" in line for line in lines)
        assert any(line[103:].startswith("▌ ◐ core 0:24") for line in lines), "the selected core"


async def test_a_map_without_losing_cores_has_what_happened_beside_it() -> None:
    slow = {cpu: CpuLoad(0.9, hz=2.0e9) for cpu in range(128)}
    async with running_app(Machine(cores=128, loads=slow), (240, 70)) as run:
        await run.send_intervals(10)
        await run.pilot.press("2")
        lines = [line[view(run).width :] for line in text(run)]
        row = next(y for y, line in enumerate(lines) if " GHz" in line and ":" in line)
        assert any("what happened" in line for line in lines[:row])
        assert sum("what happened" in line for line in text(run)) == 1
        await run.pilot.click(HeatMap, offset=(view(run).width + 20, row))
        await run.wait_for_text("5 episodes")
