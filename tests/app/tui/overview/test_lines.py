"""Rows of the overview as text, and packages that fold."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import CpuLoad, Machine, guest, observe, task_records, with_suspect_counter
from nightly import cases_by_day
from played_apps import running_app
from textual import events

from perfprobe.wire import Cpu
from perftop.draw import strips, theme
from perftop.draw.columns import SUSPECT_SIGN, total_width
from perftop.model.kinds import Episode
from perftop.session.interval import Interval
from perftop.session.selection import parse_filter
from perftop.session.session import Session
from perftop.tui.overview import columns
from perftop.tui.overview.overview import Arrangement, FoldMode, arrange_lines
from perftop.tui.overview.rows import GridData, row_lines
from perftop.tui.shared.canvas import MARKS_WIDTH
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.row_numbers import ViewSettings, ordered_rows


def of_session(session: Session, interval: Interval, width: int = 160, **more: Any) -> GridData:
    cores, row_episodes = Cores(session), RowEpisodes(session, interval)
    output = columns.grid_columns(session, cores, width - MARKS_WIDTH - 1)
    return GridData(session, cores, interval, output, row_episodes, **more)


def picture(machine: Machine, width: int = 160, order: str = "topology", **more: Any) -> GridData:
    return of_session(*observe(machine, **more), width, order=order)


def row(p: GridData, i: int) -> strips.Line:
    return row_lines(p, [i])[i]


def lines(p: GridData) -> list[str]:
    return [strips.text(row(p, i)[0]) for i in range(len(p.cores.rows))]


def grid_with_episode(
    machine: Machine, kind: str, cpus: list[int], width: int = 160, **more: Any
) -> GridData:
    """Returns the rows of a machine with a running episode of this kind."""
    names = more.pop("names", [f"t{cpu}" for cpu in range(8)])
    session, interval = observe(machine, records=task_records(names))
    end_ns = more.pop("end_ns", None)
    episode = Episode(kind, cpus, interval.time_ns - 1, end_ns, **more)
    session.running[:] = [episode]
    return of_session(session, interval, width)


@pytest.mark.parametrize("kind", ["neighbour", "turbo-drop", "involuntary-halt"])
def test_lines_made_together_equal_those_made_alone(kind: str) -> None:
    does = {0: CpuLoad(1.0), 1: CpuLoad(0.001), 6: CpuLoad(0.002), 7: CpuLoad(0.001)}
    p = grid_with_episode(
        Machine(cores=4, loads=does, offline_cpus={3, 5, 7}), kind, [2], 240, depth=0.3
    )
    every = range(len(p.cores.rows))
    assert row_lines(p, every) == {i: row(p, i) for i in every}
    assert len({strips.text(row(p, i)[0]) for i in every}) == len(every)


def test_columns_do_not_move_when_values_change() -> None:
    low = Machine(cores=4, loads={cpu: CpuLoad(0.001, 0.8e9, 0.01, 0.0) for cpu in range(8)})
    high = Machine(cores=4, loads={cpu: CpuLoad(1.0, 3.2e9, 9.99, 1.0) for cpu in range(8)})
    for width in (80, 100, 120, 160, 240):
        a, b = picture(low, width), picture(high, width)
        for column_a, column_b in zip(a.columns, b.columns, strict=True):
            assert column_a == column_b
        assert {len(text) for text in lines(a) + lines(b)} == {width - 1}


def test_ranges_are_shown_without_a_split() -> None:
    p = picture(Machine(split=False, loads={0: CpuLoad(0.75), 4: CpuLoad(0.75)}))
    bar = lines(p)[0].split()[3]
    assert set(bar) == {theme.BOTH, theme.UNKNOWN}
    assert bar.count(theme.BOTH) == pytest.approx(len(bar) / 2, abs=1)


@pytest.mark.parametrize(("key", "marked_titles"), [
    ("instructions", ["≁1.25"]), ("cycles", ["≁1.25", "≁3.00", "≁10.0", "≁1.50"]),
    ("one_thread", []),
])  # fmt: skip
def test_only_values_of_suspect_counters_are_marked(key: str, marked_titles: list[str]) -> None:
    session, interval = observe(Machine())
    p = of_session(session, with_suspect_counter(interval, 1, key), 240)
    assert [word for word in strips.text(row(p, 1)[0]).split() if "≁" in word] == marked_titles
    assert SUSPECT_SIGN not in strips.text(row(p, 0)[0])
    assert len(strips.text(row(p, 1)[0])) == len(strips.text(row(p, 0)[0]))


# --- folded packages, and the cursor that opens them


def machine(packages: int = 3, cores: int = 10) -> Machine:
    """Returns a machine whose package 0 has CPUs 0 to 9, and so on."""
    m = Machine(cores=packages * cores, threads=1)
    rows = [
        Cpu(cpu, online=True, package=cpu // cores, die=0, core=cpu % cores, thread=0,
            l3=cpu // cores, siblings=[cpu])
        for cpu in range(packages * cores)
    ]  # fmt: skip
    m.hello.topology[:] = rows
    m.hello.packages[:] = [list(range(p * cores, (p + 1) * cores)) for p in range(packages)]
    return m


def arrangement(
    room: int, fold: FoldMode, cpu: int | None = 0, *, tiny: bool = False
) -> Arrangement:
    return arrange_lines(Cores(observe(machine())[0]), room, fold, cpu, None, tiny=tiny)


def line_kinds(room: int, fold: FoldMode, cpu: int | None = 0, *, tiny: bool = False) -> list[str]:
    arranged = arrangement(room, fold, cpu, tiny=tiny)
    return [line.kind for line in (*arranged.fixed_above, *arranged.lines, *arranged.fixed_below)]


def test_in_another_order_only_the_packages_are_above_the_rows() -> None:
    session, _ = observe(machine())
    session.cores.remove([29])
    session.online[29] = False
    cores = Cores(session)
    assert cores.offline_cpus == [29]
    arrangement = arrange_lines(cores, 40, "needed", 0, [5, 3], tiny=False)
    assert [line.kind for line in arrangement.fixed_above] == ["folded"] * 3
    assert [line.row for line in arrangement.lines] == [5, 3]


def test_folding_can_be_never_or_always() -> None:
    assert line_kinds(5, "never").count("row") == 30
    assert line_kinds(12, "never") == [*["folded"] * 3, *["row"] * 30]
    assert line_kinds(99, "always") == ["folded"] * 3
    assert line_kinds(5, "needed", tiny=True) == ["row"] * 30


async def test_folded_packages_stand_for_a_core_each() -> None:
    async with running_app(machine(), (100, 18)) as run:
        grid, settings = run.grid, run.monitor.settings
        await run.pilot.press("t", "t")
        assert [grid.cpu_of_line(y) for y in range(3)] == [0, 10, 20]
        await run.pilot.press("down")
        assert settings.cpu == 10
        settings.cpu = 13
        assert [grid.cpu_of_line(y) for y in range(3)] == [0, 13, 20]


async def test_a_click_on_a_fixed_package_line_selects_its_first_core() -> None:
    async with running_app(machine(), (100, 16)) as run:
        grid, settings = run.grid, run.monitor.settings
        below = len(grid.header_lines) + grid.height
        assert len(grid._arrangement.fixed_below) == 2
        for y, cpu in ((below + 1, 20), (1, 0), (below, 10)):
            await run.pilot.click("#overview", offset=(20, y))
            assert settings.cpu == cpu
        await run.pilot.press("t")
        for y, cpu in ((2, 10), (3, 20), (1, 0)):
            await run.pilot.click("#overview", offset=(20, y))
            assert settings.cpu == cpu


async def test_a_core_that_went_offline_has_its_name_and_no_numbers() -> None:
    async with running_app(Machine()) as run:
        run.feed.offline(1)
        run.feed.offline(5)
        await run.send_intervals(2)
        line = strips.text(row(of_session(run.session, run.interval), 1)[0])
        assert line.split() == ["1", "1,5", "off"]


async def test_a_click_on_a_package_line_that_has_gone_does_nothing() -> None:
    async with running_app(machine(), (100, 18)) as run:
        run.grid.header_lines += [[]] * 9
        await run.grid.on_click(events.Click(run.grid, 20, 9, 0, 0, 1, False, False, False))
        assert run.grid.settings.cpu == 0


@pytest.mark.parametrize("machine", [Machine(), Machine(threads=1), guest()])
def test_no_number_is_cut_at_41_columns(machine: Machine) -> None:
    session, _ = observe(machine)
    room = 41 - MARKS_WIDTH - 2  # one cell for the scrollbar
    shown = columns.grid_columns(session, Cores(session), room)
    assert total_width(shown) <= room
    is_guest = session.hello.virtualisation is not None
    assert not is_guest or "use" in {column.key for column in shown}


# --- the order of rows, and values that filters must not change


def order(machine: Machine, key: str, *, reverse: bool = False, **more: Any) -> list[int]:
    session, interval = observe(machine, **more)
    settings = ViewSettings(order=key, reverse=reverse)
    return ordered_rows(Cores(session), settings, session, interval)


RISING = {cpu: CpuLoad(0.1 + 0.2 * cpu, 2e9 + 1e8 * cpu) for cpu in range(4)}
SIBLINGS_IDLE = {cpu: CpuLoad(0.0) for cpu in range(4, 8)}
ONE_HALTED = {0: CpuLoad(0.5, 2e9), 1: CpuLoad(0.0), 2: CpuLoad(0.5, 3e9), 3: CpuLoad(0.5, 2.5e9)}
HIGH_IPC_OF_A_RESTING_SIBLING = {
    0: CpuLoad(0.9, ipc=1.0), 4: CpuLoad(0.05, ipc=3.0), 1: CpuLoad(0.9, ipc=2.0),
    5: CpuLoad(0.0),
}  # fmt: skip
STOLEN = {0: CpuLoad(0.9, steal=0.01), 4: CpuLoad(0.05, steal=0.4), 1: CpuLoad(0.5, steal=0.2)}
TASKS = task_records(["c", "", "a", "B"])


@pytest.mark.parametrize(("loads", "key", "first_cpus", "last_cpus"), [
    *((RISING | SIBLINGS_IDLE, key, [3, 2, 1, 0], [0, 1, 2, 3]) for key in ("lp0", "util")),
    (RISING | SIBLINGS_IDLE, "busy_hz", [3, 2, 1, 0], [0, 1, 2, 3]),
    # the value of the core is that of its busiest CPU
    (HIGH_IPC_OF_A_RESTING_SIBLING, "ipc", [1, 2, 3, 0], [0, 3, 2, 1]),
    (STOLEN, "steal", [0, 1, 2, 3], [3, 2, 1, 0]),  # the value of the core is that of its worst CPU
    (ONE_HALTED | SIBLINGS_IDLE, "busy_hz", [2, 3, 0, 1], [0, 3, 2, 1]),  # unknown values come last
    ({cpu: CpuLoad(0.5 + 1e-5 * cpu) for cpu in range(8)}, "util", [0, 1, 2, 3], [3, 2, 1, 0]),
    ({}, "task", [2, 3, 0, 1], [0, 3, 2, 1]),
])  # fmt: skip
def test_rows_are_sorted_by_their_displayed_values(
    loads: dict[int, CpuLoad], key: str, first_cpus: list[int], last_cpus: list[int]
) -> None:
    machine = Machine(cores=4, loads={**loads})
    assert order(machine, key, records=TASKS) == first_cpus
    assert order(machine, key, reverse=True, records=TASKS) == last_cpus


def test_victims_come_before_busy_cores() -> None:
    session, interval = observe(Machine(loads={cpu: CpuLoad(0.9) for cpu in range(8)}))
    cores, settings = Cores(session), ViewSettings(order="worst first")
    assert ordered_rows(cores, settings, session, interval)[0] == 0
    session.detector.running.append(Episode("neighbour", [2], 0, None, 0.31, "sibling"))
    assert ordered_rows(cores, settings, session, interval)[0] == 2


def test_cores_of_a_package_that_loses_come_before_busier_ones() -> None:
    loads = {cpu: CpuLoad(0.9 if cpu % 4 > 1 else 0.5) for cpu in range(8)}
    machine = Machine(ceiling_hz=3.0e9, loads=loads)
    session, interval = observe(machine)
    cores, settings = Cores(session), ViewSettings(order="worst first")
    assert ordered_rows(cores, settings, session, interval)[:2] == [2, 3]
    session.detector.running.append(Episode("turbo-drop", [0, 1, 4, 5], 0, None, 6e8, "power-pl1"))
    assert ordered_rows(cores, settings, session, interval)[:2] == [0, 1]


def test_a_filter_without_matches_does_not_move_columns() -> None:
    session, _ = observe(Machine())
    every, nobody = (
        columns.grid_columns(session, Cores(session, mask), 120)
        for mask in (None, frozenset[int]())
    )
    assert every == nobody


@pytest.mark.parametrize(
    "name", cases_by_day(["overview", "heat", "table", "time"], ["heat", "table"])
)
async def test_lines_cached_before_a_filter_are_not_used(name: str) -> None:
    async with running_app(Machine()) as run:
        screen = run.monitor
        await run.pilot.press(*"4231")
        await run.pilot.press("4" if name == "overview" else "1")
        await screen.action_view(name)  # the view has no size before the next layout
        view = screen.view
        screen.settings.filter = parse_filter("0")
        screen._apply_filter()
        for to in (1, -1):
            view.action_end(to)  # type: ignore[attr-defined]
        assert screen.settings.cpu == 0
