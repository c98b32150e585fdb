"""Rows of the overview as text, and packages that fold."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import CpuLoad, Machine, guest, observe, task_records, with_suspect_counter
from played_apps import Run, running_app
from sessions import session_of
from sim_streams import messages
from textual import events

from perfprobe.wire import Cpu
from perftop.base.text import MISSING, to_ascii
from perftop.draw import strips, theme
from perftop.draw.columns import DOUBTED_SIGN, column_at, total_width
from perftop.draw.columns import Run as TextRun
from perftop.model.kinds import KINDS, Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview import columns
from perftop.tui.overview.overview import Arrangement, FoldMode, arrange_lines
from perftop.tui.overview.rows import GridData, _loser_and_taker, mark_selected, row_lines
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.package_line import PackageLines
from perftop.tui.shared.row_numbers import RowReader


def of_session(session: Session, interval: Interval, width: int = 160, **more: Any) -> GridData:
    cores, row_episodes = Cores(session), RowEpisodes(session)
    row_episodes.read(interval)
    row_numbers = RowReader(session, cores).read(interval)
    output = columns.grid_columns(session, cores, width - columns.MARKS_WIDTH - 1)
    return GridData(cores, row_numbers, output, row_episodes, **more)


def picture(machine: Machine, width: int = 160, order: str = "topology", **more: Any) -> GridData:
    return of_session(*observe(machine, **more), width, order=order)


def row(p: GridData, i: int) -> strips.Line:
    return row_lines(p, [i])[i]


def lines(p: GridData) -> list[str]:
    return [strips.text(row(p, i)[0]) for i in range(len(p.cores.rows))]


def package_line(p: GridData, size: int) -> list[TextRun]:
    row_numbers = p.row_numbers
    lines = PackageLines(
        row_numbers.reader.session, row_numbers.interval, p.cores, p.episodes, p.clock
    )
    return lines.line(0, size)


def styles_of(p: GridData, i: int, text: str) -> set[str]:
    """Returns the styles of a text in a row."""
    return {key for part, key in row(p, i)[0] if text in part}


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


@pytest.mark.parametrize("width", [80, 120, 160, 240])
def test_titles_are_above_their_columns(width: int) -> None:
    p = picture(Machine(), width, records=task_records(["a"]))
    title = strips.text(columns.grid_headings(p.columns))
    assert len(title) == width - 1  # a margin follows the title
    start = columns.MARKS_WIDTH
    for column in p.columns:
        part = title[start : start + column.width]
        assert part.strip() == column.heading.strip()
        assert column_at(p.columns, start - columns.MARKS_WIDTH) == column
        start += column.width


def test_the_mark_of_the_sorted_column_does_not_change_its_width() -> None:
    p = picture(Machine(), 160)
    plain = strips.text(columns.grid_headings(p.columns))
    for order, reverse, mark in (
        ("busy_hz", False, "▼GHz"), ("busy_hz", True, "▲GHz"), ("task", False, "▲who runs"),
        ("worst first", False, "▼lost"), ("CPU number", True, "▼CPUs"), ("topology", True, "▼core"),
    ):  # fmt: skip
        runs = columns.grid_headings(p.columns, order, reverse=reverse)
        assert [text.strip() for text, key in runs if key == "bright"] == [mark]
        assert len(strips.text(runs)) == len(plain)


LOSS = {
    "neighbour": ("1.25", "alarm", "−31 %"), "turbo-drop": ("2.40", "alarm", "−25 %"),
    "involuntary-halt": ("2.00", "alarm", "−2 %"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSS)
def test_a_row_with_a_running_episode_has_its_sign_and_a_red_value(kind: str) -> None:
    machine = Machine(loads={2: CpuLoad(0.9, 2.4e9, involuntary=0.02)})
    depth = {"neighbour": 0.31, "turbo-drop": 0.8e9, "involuntary-halt": 0.02}[kind]
    cause = "sibling" if kind == "neighbour" else "unknown"
    p = grid_with_episode(machine, kind, [2], depth=depth, cause=cause)
    number, red, lowered_column = LOSS[kind]
    assert styles_of(p, 2, number) >= {red}
    assert styles_of(p, 2, lowered_column) == {"alarm"}
    assert styles_of(p, 1, "1.25") == {"text"}
    assert [row(p, i)[0][1][0] for i in range(4)] == [" ", " ", KINDS[kind].sign, " "]
    assert [row(p, i)[1] for i in range(4)] == ["calm", "calm", "victim", "calm"]
    assert mark_selected(row(p, 2))[1] == "chosen victim"


def test_a_victim_names_the_task_that_slows_it_down() -> None:
    p = grid_with_episode(Machine(), "neighbour", [2], depth=0.31, cause="sibling")
    assert "t2 4002 ◂ t6 4006" in lines(p)[2]
    assert "t1 4001 · t5 4005" in lines(p)[1]
    p = grid_with_episode(Machine(), "steal", [2], depth=0.31)
    assert "t2 4002 ◂ hypervisor" in lines(p)[2]
    alone = lines(grid_with_episode(Machine(), "steal", [2], depth=0.31, names=[]))[2]
    assert "hypervisor" in alone
    assert "◂" not in alone, "no task is known"


def test_victims_and_culprits_are_kept_before_metrics_in_narrow_rows() -> None:
    p = grid_with_episode(Machine(), "neighbour", [1, 2], 80, depth=0.31, cause="sibling")
    assert "t2 ◂ t6" in lines(p)[2]
    p.columns = []
    text = strips.text(package_line(p, 76))
    assert "2 of 4 cores lose" in text
    assert " W" not in text


def test_only_the_cpu_that_loses_has_a_red_value() -> None:
    p = grid_with_episode(Machine(), "neighbour", [6], depth=0.31, cause="sibling")
    ipc = [key for text, key in row(p, 2)[0] if text.strip() == "1.25"]
    assert ipc == ["text", "alarm"]


def test_an_episode_of_a_package_is_red_in_its_line_only() -> None:
    machine = Machine(cores=4, loads={cpu: CpuLoad(0.9, 2.4e9) for cpu in range(8)})
    p = grid_with_episode(machine, "turbo-drop", [*range(8)], depth=0.6e9, cause="power-pl1")
    assert styles_of(p, 2, "2.40") == {"text"}
    assert row(p, 2)[0][1] == (theme.DROP_SIGN, "text")
    assert row(p, 2)[1] == "calm"
    assert "%" not in "".join(lines(p))
    line = package_line(p, 160)
    assert ("2.40", "alarm") in line
    assert (theme.DROP_SIGN, "alarm") in line
    assert "turbo-drop −0.60 GHz" in strips.text(line)


def test_idle_rows_are_dimmed() -> None:
    p = picture(Machine(loads={0: CpuLoad(0.004, 1.2e9, kernel=0.7), 4: CpuLoad(0.0)}), 240)
    runs = row(p, 0)[0]
    assert {key for text, key in runs if text.strip()} <= {"faint", "neither"}
    assert "70.0" not in lines(p)[0]
    assert "1.25" not in lines(p)[0]
    assert MISSING not in lines(p)[0]


def test_the_higher_share_of_involuntary_halts_of_two_siblings_is_shown() -> None:
    p = picture(Machine(loads={0: CpuLoad(0.9, involuntary=0.02)}))
    assert styles_of(p, 0, "2.00") == {"warn"}
    assert styles_of(p, 1, "0.00") == {"dim"}


def test_unknown_values_of_idle_cpus_are_dots() -> None:
    p = picture(Machine(loads={0: CpuLoad(0.0), 4: CpuLoad(0.0)}))
    assert styles_of(p, 0, MISSING) == set()
    assert styles_of(p, 0, theme.NEITHER) == {"faint", "neither"}  # an idle CPU has no clock


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
    assert DOUBTED_SIGN not in strips.text(row(p, 0)[0])
    assert len(strips.text(row(p, 1)[0])) == len(strips.text(row(p, 0)[0]))


def test_known_states_of_more_than_two_threads_are_shown() -> None:
    p = picture(Machine(cores=2, threads=4))
    assert [c.heading for c in p.columns if c.key == "util"] == ["lp0 %", "lp1 %", "lp2 %", "lp3 %"]
    p = picture(Machine(cores=2, threads=8))
    assert [c.heading for c in p.columns if c.key == "util"] == ["busy % max"]
    assert "50.0" in lines(p)[0]


def test_a_guest_has_a_row_for_each_cpu_and_no_empty_column() -> None:
    p = picture(guest({0: CpuLoad(0.5, system=0.25, steal=0.25)}), 160)
    assert [c.key for c in p.columns] == [
        "core", "util", "use", "work", "steal", "idle", "user", "system", "iowait", "who",
    ]  # fmt: skip
    text = lines(p)[0]
    assert MISSING not in text
    sign, number, util, bar = text.split()[:4]
    assert sign == theme.STEAL
    assert (number, util) == ("0", "50.0")
    assert [bar.count(shape) for shape in "█▓╳·"] == pytest.approx([len(bar) / 4] * 4, abs=1)
    assert styles_of(p, 0, "25.0") >= {"alarm"}


def test_all_shapes_have_an_ascii_replacement_of_the_same_width() -> None:
    p = picture(
        Machine(loads={0: CpuLoad(1.0, 2.4e9), 1: CpuLoad(0.3)}), records=task_records(["Ünï"])
    )
    for text in [*lines(p), strips.text(package_line(p, 100))]:
        assert to_ascii(text).isascii()
        assert len(to_ascii(text)) == len(text)
    assert to_ascii("█▀▄·▒") == "#',.?"


def test_a_second_bar_shows_issue_slots_if_there_is_room() -> None:
    hello, result = messages("sim:smt-mix,cpus=8,slots=1", 20)
    session = session_of(Session(hello), result)
    wide = of_session(session, session.take_interval(), 200)
    assert [column.key for column in wide.columns].count("slots") == 1
    column = next(column for column in wide.columns if column.key == "slots")
    start_at = columns.MARKS_WIDTH + 2
    start_at += sum(c.width for c in wide.columns[: wide.columns.index(column)])
    bar = lines(wide)[1][start_at : start_at + column.width - 2]
    # the IPC on a core with four slots
    assert bar.count(theme.USER) == pytest.approx(1.85 / 4 * len(bar), abs=1)
    assert bar.endswith(theme.NEITHER)
    narrow = columns.grid_columns(session, Cores(session), 120)
    assert all(column.key != "slots" for column in narrow)


def test_the_line_of_a_package_has_its_power() -> None:
    hello, result = messages("sim:smt-mix,cpus=8", 20)
    session = session_of(Session(hello), result)
    interval = session.take_interval()
    text = strips.text(package_line(of_session(session, interval), 160))
    assert f" {interval.packages['power_w'][0]:.0f} of " in text


def test_names_too_long_for_both_share_the_room_without_their_pids() -> None:
    loser, sign, taker = _loser_and_taker("a" * 30 + " 1", "b" * 30 + " 2", 20)
    assert (len(loser[0]), len(sign[0]), len(taker[0])) == (9, 3, 8)
    assert _loser_and_taker("cc 1", "ld 2", 20)[0][0] == "cc 1"


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
    room: int, fold: FoldMode, cpu: int | None = 0, *, bare: bool = False
) -> Arrangement:
    return arrange_lines(Cores(observe(machine())[0]), room, fold, cpu, None, bare=bare)


def line_kinds(room: int, fold: FoldMode, cpu: int | None = 0, *, bare: bool = False) -> list[str]:
    arranged = arrangement(room, fold, cpu, bare=bare)
    return [line.kind for line in (*arranged.fixed_above, *arranged.lines, *arranged.fixed_below)]


def test_in_another_order_only_the_packages_are_above_the_rows() -> None:
    session, _ = observe(machine())
    session.cores.remove([29])
    session.online[29] = False
    cores = Cores(session)
    assert cores.offline_cpus == [29]
    arrangement = arrange_lines(cores, 40, "needed", 0, [5, 3], bare=False)
    assert [line.kind for line in arrangement.fixed_above] == ["folded"] * 3
    assert [line.row for line in arrangement.lines] == [5, 3]


def packages(run: Run) -> dict[str, int]:
    """Positions of the packages' lines in the grid, by name."""
    grid = run.grid
    lines = enumerate(grid.render_line(y).text for y in range(grid.size.height))
    return {line[3:12]: y for y, line in lines if line[3:].startswith("package")}


@pytest.mark.parametrize(("cpu", "packages_above"), [(0, 0), (15, 1), (29, 2), (None, 0)])
def test_only_the_package_with_the_cursor_is_open(cpu: int | None, packages_above: int) -> None:
    result = line_kinds(14, "needed", cpu)
    expected = (
        ["folded"] * packages_above + ["package"] + ["row"] * 10 + ["folded"] * (2 - packages_above)
    )
    assert result == expected


@pytest.mark.parametrize(("cpu", "opened"), [(0, 0), (15, 1), (29, 2)])
def test_the_lines_of_all_packages_remain_while_rows_scroll(cpu: int, opened: int) -> None:
    arranged = arrangement(10, "needed", cpu)
    assert [line.kind for line in arranged.fixed_above] == ["folded"] * opened + ["package"]
    assert [line.kind for line in arranged.lines] == ["row"] * 10
    assert [line.kind for line in arranged.fixed_below] == ["folded"] * (2 - opened)


def test_packages_remain_open_if_they_fit() -> None:
    assert line_kinds(32, "needed", 29) == [
        "package",
        *["row"] * 10,
        "folded",
        "package",
        *["row"] * 10,
    ]


def test_folding_can_be_never_or_always() -> None:
    assert line_kinds(5, "never").count("row") == 30
    assert line_kinds(12, "never") == [*["folded"] * 3, *["row"] * 30]
    assert line_kinds(99, "always") == ["folded"] * 3
    assert line_kinds(5, "needed", bare=True) == ["row"] * 30


async def test_the_cursor_opens_the_package_it_moves_to() -> None:
    async with running_app(machine(), (100, 20)) as run:
        for keys, cpu in ((["down"] * 10, 10), (["up"], 9), (["G"], 29), (["g"], 0)):
            await run.pilot.press(*keys)
            assert run.grid.settings.cpu == cpu
            lines = [run.grid.render_line(y).text for y in range(run.grid.size.height)]
            assert sum(line.startswith("▌") for line in lines) == 1
            assert len(packages(run)) == 3


async def test_the_cursor_moves_over_folded_packages() -> None:
    async with running_app(machine(), (100, 20)) as run:
        await run.pilot.press("t", "t")
        assert len(packages(run)) == 3
        await run.pilot.press("down")
        assert run.grid.settings.cpu == 10


async def test_a_click_on_the_line_of_a_package_opens_it() -> None:
    async with running_app(machine(), (100, 18)) as run:
        await run.pilot.click("#overview", offset=(20, packages(run)["package 2"]))
        assert run.grid.settings.cpu == 20
        await run.pilot.click("#overview", offset=(20, packages(run)["package 1"]))
        assert run.grid.settings.cpu == 10


async def test_a_click_on_a_package_line_that_has_gone_does_nothing() -> None:
    async with running_app(machine(), (100, 18)) as run:
        run.grid.header_lines += [[]] * 9
        await run.grid.on_click(events.Click(run.grid, 20, 9, 0, 0, 1, False, False, False))
        assert run.grid.settings.cpu == 0


async def test_a_click_on_a_title_sorts() -> None:
    async with running_app(machine(), (100, 20)) as run:
        for expected in ("busy_hz", "busy_hz"):
            x = run.grid.render_line(0).text.index("GHz")
            await run.pilot.click("#overview", offset=(x, 0))
            assert run.grid.settings.order == expected
        assert run.grid.settings.reverse
        assert "▲GHz" in run.grid.render_line(0).text


@pytest.mark.parametrize("machine", [Machine(), Machine(threads=1), guest()])
def test_no_number_is_cut_at_41_columns(machine: Machine) -> None:
    session, _ = observe(machine)
    room = 41 - columns.MARKS_WIDTH - 2  # one cell for the scrollbar
    shown = columns.grid_columns(session, Cores(session), room)
    assert total_width(shown) <= room
    is_guest = session.hello.virtualisation is not None
    assert not is_guest or "use" in {column.key for column in shown}
