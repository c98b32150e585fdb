"""The overview of small machines: its charts at all sizes, and histories beside rows."""

from __future__ import annotations

import re
from itertools import product
from math import nan

import make
import pytest
from fakes import CpuLoad, Machine, guest
from hypothesis import given
from hypothesis import strategies as st
from nightly import cases_by_day
from sessions import session_of
from sim_streams import messages as simulated
from sim_streams import messages_lasting
from terminal_apps import messages
from textual.pilot import Pilot

from perfprobe.wire import Hello, Multiplier
from perftop.base.text import GHZ, clock_time
from perftop.draw import strips
from perftop.draw.charts import GAP_CAUSES, ChartColumn, _find_gap
from perftop.model.kinds import Episode
from perftop.output.why_report import report
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.chart_cells import MIN_WIDTH, ChartLayout, chart_layout
from perftop.tui.overview.chart_numbers import (
    ChartUnit,
    UnitValues,
    chart_units,
    numbers_beside_clock,
    title_runs,
    unit_values,
)
from perftop.tui.overview.charts import ChartPage
from perftop.tui.overview.columns import RowHistories
from perftop.tui.overview.overview import Overview
from perftop.tui.shared.core_numbers import core_panel
from perftop.tui.shared.cores import Core, Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.row_numbers import RowNumbers, ViewSettings


def session_after_samples(machine: Machine, samples: int = 40) -> tuple[Session, Interval]:
    session = Session(machine.hello, History(machine.hello))
    frames = [machine.frame(seq) for seq in range(samples)]
    for first in range(0, samples, 5):
        interval = session_of(session, frames[first : first + 5]).take_interval()
    return session, interval


def charts(machine: Machine, width: int, height: int) -> ChartPage | None:
    session, interval = session_after_samples(machine)
    cores = Cores(session)
    result = ChartPage(session, cores, ViewSettings(cpu=0, window_s=60.0))
    if not result.choose_layout(height, width):
        return None
    result.make_lines(interval, [*range(len(cores.rows))])
    return result


def test_a_refused_calibration_leaves_a_range_instead_of_a_blank() -> None:
    machine = Machine(
        cores=2, loads={cpu: CpuLoad(0.5, alone=0.3) for cpu in range(4)},
        changes={"multipliers": [Multiplier("one_thread", 1.0, "made")]},
    )  # fmt: skip
    session, interval = session_after_samples(machine)
    calibration = session.calibrations["one_thread"]
    calibration._is_settled = False
    result = ChartPage(session, Cores(session), ViewSettings(cpu=0, window_s=60.0))
    assert result.choose_layout(41, 160)
    result.make_lines(interval, [0, 1])
    calibration._sums[-1], calibration.candidate = 1e9, None
    assert calibration.state == "refused"
    session_of(session, [machine.frame(seq) for seq in range(40, 100)])
    calibration._is_settled = False
    interval = session.take_interval()
    assert interval.split.method[0] == "bounds"
    result.make_lines(interval, [0, 1])
    keys = {key for line in result.lines for text, key in line if text.strip()}
    assert "unknown" in keys


# --- layout


@given(st.integers(1, 20), st.integers(1, 90), st.sampled_from([MIN_WIDTH, 100, 160, 240]),
       st.booleans(), st.integers(1, 2))  # fmt: skip
def test_the_layout_fills_the_height_and_leaves_room_for_panels(
    count: int, height: int, width: int, counted: bool, packages: int
) -> None:
    groups = [chart * packages // count for chart in range(count)]
    result = chart_layout(count, height, width, clocks=counted, groups=groups)
    if result is None:
        return
    charts = -(-count // result.sides)
    # The first heading of a side is above its first chart; others replace the gap between charts.
    headings = max(len({*groups[:charts]}), len({*groups[charts:]})) if packages > 1 < count else 0
    blank = result.has_times_line
    used = lines(result, charts) + headings + counted + blank
    assert used + result.panel_lines == height
    assert result.panel_lines >= 4
    assert result.columns >= 20
    assert result.area_rows % 2 == 0 or not counted  # of SMT states, half is above the middle


def lines(layout: ChartLayout, charts: int) -> int:
    axes = (charts if layout.has_own_axes else 1) + layout.has_times_line
    return charts * (layout.rows + layout.has_title) + (charts - 1) * layout.gap_lines + axes


# --- drawing


def test_the_queue_of_a_core_includes_that_of_a_sibling_outside_the_selection() -> None:
    """With `--cpus 0`, a core of CPU 0 and 1 once had no queue."""
    machine = Machine(cores=1, threads=2, changes={"selected": [0]})
    session = Session(machine.hello, History(machine.hello))
    names = {"0": [8, "a", 0.5], "1": [9, "b", 0.5]}
    others, waits = (
        {cpu: [task] for cpu, task in names.items()},
        {"0": [[0.5, 20]], "1": [[1.0, 20]]},
    )
    records = {"tasks": names, "others": others, "waits": waits}
    session_of(session, [machine.frame(seq, records=records) for seq in range(20)])
    interval, cores = session.take_interval(), Cores(session)
    (unit,) = chart_units(cores, range(len(cores.rows)), clocks=True)
    episodes = RowEpisodes(session, interval)
    (values,) = unit_values(RowNumbers(session, cores, interval), [unit], GHZ, episodes.running)
    waiting = sum(t.wait for cpu in "01" for t in interval.snapshot.activity_on(cpu))
    assert values.waiting_tasks == pytest.approx(waiting)
    assert waiting > 0


SIZES = [(60, 18), (80, 18), (120, 24), (160, 45), (240, 64)]
CORES = [1, 2, 4, 8, 16, None]
"""Numbers of cores; None: a guest without counters."""


@pytest.mark.parametrize(
    ("size", "cores"),
    cases_by_day([*product(SIZES, CORES)], [*zip(2 * SIZES, 2 * CORES, strict=False)]),
)
def test_lines_are_no_wider_than_the_screen(size: tuple[int, int], cores: int | None) -> None:
    width, height = size
    machine = guest({0: CpuLoad(0.5, steal=0.2)}) if cores is None else Machine(cores=cores)
    result = charts(machine, width, height)
    if result is None:
        return
    assert result.layout is not None
    assert {strips.width(line) for line in result.lines} <= {*range(width + 1)}
    assert len(result.lines) == len(result.rows) <= height - result.layout.panel_lines
    rows = {row for sides in result.rows for row in sides if row is not None}
    assert rows == {*range(len(result._cores.rows))}


def test_the_area_of_gaps_equals_the_lost_seconds() -> None:
    """Four cores, each with one busy thread, run below their ceiling for 7.5 s."""
    hello, messages_ = simulated("turbo-drop,cpus=8", 300)
    session = Session(hello, History(hello))
    session.run.track_losses()
    session_of(session, messages_)
    result = ChartPage(session, Cores(session), ViewSettings(cpu=0, window_s=30.0))
    assert result.choose_layout(60, 200)
    result.make_lines(session.take_interval(), range(4))
    cell_s = result.axis.bin_ns / 1e9
    lost_s, columns_with_gaps, layout = 0.0, 0, result.layout
    assert layout is not None
    for unit in result._unit_charts:
        clock_lines = [strips.cut_runs(line, layout.left_width, layout.width)
                       for line in unit.lines[: layout.clock_rows]]  # fmt: skip
        keys = [[key for text, key in line for _ in text] for line in clock_lines]
        chars = [strips.text(line) for line in clock_lines]
        gaps = [
            _find_gap(ChartColumn("".join(signs), (*styles,)))[1]
            for signs, *styles in zip(map("".join, zip(*chars, strict=True)), *keys, strict=True)
        ]
        row_hz = (unit.clock_ends_hz[1] - unit.clock_ends_hz[0]) / layout.clock_rows
        lost_s += sum(map(sum, gaps)) / 8 * row_hz / 3.5e9 * cell_s
        columns_with_gaps += sum(map(any, gaps))
    (power, *_) = report(session).findings
    assert power.cause == ("turbo-drop", "power-pl1")
    assert columns_with_gaps > 60
    tolerance_s = columns_with_gaps * row_hz / 16 / 3.5e9 * cell_s
    assert abs(lost_s - power.lost_s) < tolerance_s
    assert tolerance_s < power.lost_s / 10
    listed_s = [unit.lost_s[GAP_CAUSES.index("power")] for unit in result._unit_charts]
    assert sum(listed_s) == pytest.approx(power.lost_s, rel=0.03)
    texts = [strips.text(line) for line in result.lines]
    assert sum(f"▼ power  {listed_s[0]:>6.2f} s" in text for text in texts) >= 1


def test_the_seconds_lost_by_cause_are_those_of_the_selected_range() -> None:
    """A range that ends before the episode has no loss."""
    hello, messages_ = simulated("turbo-drop,cpus=8", 300)
    session = Session(hello, History(hello))
    session_of(session, messages_)
    settings, interval = ViewSettings(cpu=0, window_s=30.0), session.take_interval()
    result = ChartPage(session, Cores(session), settings)
    assert result.choose_layout(60, 200)
    ended_ns = session.now_ns - 30 * 10**9
    drops = (e for e in session.episodes(0, session.now_ns) if e.kind == "turbo-drop")
    first_s = min((e.start_ns - ended_ns) / 1e9 for e in drops)
    for end_s, is_lost in ((first_s - 0.5, False), (first_s + 4.5, True)):
        settings.range_ns = ended_ns, ended_ns + round(end_s * 1e9)
        result.make_lines(interval, range(4))
        seconds = [unit.lost_s[GAP_CAUSES.index("power")] for unit in result._unit_charts]
        assert all((lost_s > 0.3) == is_lost for lost_s in seconds)
        length = f"{end_s:.{0 if end_s >= 10 else 1}f} s"
        assert any(f"clock lost, {length}" in strips.text(line) for line in result.lines)


def test_a_clock_before_the_session_is_blank_and_that_of_an_idle_core_is_not() -> None:
    machine = Machine(cores=2, threads=1, loads={0: CpuLoad(1.0), 1: CpuLoad(0.0)})
    session, interval = session_after_samples(machine, 100)
    result = ChartPage(session, Cores(session), ViewSettings(window_s=30.0))
    assert result.choose_layout(41, 160)
    result.make_lines(interval, range(2))
    layout = result.layout
    assert layout is not None
    for unit, sign in zip(result._unit_charts, "█·", strict=True):
        floor = strips.text(unit.lines[layout.clock_rows - 1])[layout.left_width :]
        assert set(floor.rstrip()) == {" ", sign}
        assert layout.columns / 4 < floor.count(sign) < 3 * layout.columns / 4


@pytest.mark.parametrize("gap_s", cases_by_day([0.0, 1.5, 4.0], [0.0, 4.0]))
@pytest.mark.parametrize("seconds", cases_by_day([1.0, 3.0, 6.0], [1.0, 6.0]))
def test_brackets_of_both_ranges_are_whole_and_the_time_is_beside_them(
    gap_s: float, seconds: float
) -> None:
    """A ends `gap_s` before B; both are `seconds` long. The cursor is at the end of either."""
    session, interval = session_after_samples(guest(), 300)
    b_ns = session.now_ns - 8 * 10**9
    a_ns = b_ns - round((seconds + gap_s) * 1e9)
    span_ns = round(seconds * 1e9)
    held = session.interval_at(a_ns, span_ns)
    assert held is not None
    settings = ViewSettings(cpu=0, window_s=30.0, range_ns=(b_ns - span_ns, b_ns))
    settings.held_range = held, None
    result = ChartPage(session, Cores(session), settings)
    assert result.choose_layout(41, 160)
    for end_ns in (a_ns, b_ns):
        settings.cursor_ns = end_ns
        result.make_lines(interval, range(2))
        times = strips.text(result.lines[-1])
        brackets = re.findall("├[^├┤]*┤", times)
        assert [bracket.strip("├┤─ ")[:1] for bracket in brackets] == ["A", "B"]
        assert times.count("├") == times.count("┤") == 2
        labels = [words for words, style in result.lines[-1] if style == "label"]
        # Far from the cursor, the label would seem to be the time of another moment.
        has_room = seconds < 6.0 or gap_s == 4.0 or end_ns == b_ns
        assert labels == [f" {clock_time(session.unix_s(end_ns))} "] * has_room


@pytest.mark.parametrize(("busy", "loser", "label"), [
    (0.9, None, "IPC 1"), (0.9, 0, "IPC 1"), (0.9, 2, "IPC 2"), (0.7, None, "IPC 2"),
    (0.7, 0, "IPC 1"),
])  # fmt: skip
def test_the_ipc_chart_is_that_of_the_sibling_that_loses_or_else_is_busier(
    busy: float, loser: int | None, label: str
) -> None:
    """CPU 0 has an IPC of 0.6, and its sibling, CPU 2, one of 1.8."""
    loads = {0: CpuLoad(busy, ipc=0.6), 2: CpuLoad(0.8, ipc=1.8), 1: CpuLoad(0), 3: CpuLoad(0)}
    session, interval = session_after_samples(Machine(cores=2, loads=loads))
    if loser is not None:
        begin_ns = session.now_ns - 10**9
        session.running[:] = [Episode("neighbour", [loser], begin_ns, None, 0.3, "sibling")]
    result = ChartPage(session, Cores(session), ViewSettings(cpu=0, window_s=30.0))
    assert result.choose_layout(60, 200)
    result.make_lines(interval, range(2))
    (line,) = (line for line in map(strips.text, result.lines[:16]) if "IPC " in line[:8])
    assert line[:8].strip(" ▌") == label
    cores = Cores(session)
    units = chart_units(cores, range(2), clocks=True)
    running = session.running
    values, _ = unit_values(RowNumbers(session, cores, interval), units, GHZ, running)
    assert values.ipc == pytest.approx({"IPC 1": 0.6, "IPC 2": 1.8}[label], rel=0.01)


VALUES = UnitValues(
    ChartUnit(0, Core(0, 0, 0, None, (0,), 0, (0,)), (0,), (0,), "CPU 0"), {}, {}, (), (),
    marker=(" ", "text"), tasks=["maker 7 90 %"], hz=nan, ceiling_hz=nan, is_below_ceiling=True,
    ipc=1.5, ipc_marker=(" ", "text"), is_online=True, is_asleep=False, clock=GHZ,
    waiting_tasks=0.0, has_counters=True,
)  # fmt: skip


@pytest.mark.parametrize(("rows", "ghz", "ceiling_ghz", "has_title", "texts"), [
    (4, 3.9, 4.0, True, ["4.00 −0.10", "3.90 clock ▼", "", ""]),
    (4, 1.9, 4.0, True, ["4.00 ceiling", "−2.10", "1.90 clock ▼", ""]),
    (4, 3.2, 4.0, True, ["4.00 −0.80", "3.20 clock ▼", "", ""]),
    (4, 1.2, 1.5, True, ["", "", "1.50 −0.30", "1.20 clock ▼"]),
    (4, 1.2, 1.5, False, ["", "1.50 −0.30", "1.20 ▼", "maker 7 90 %"]),
    (2, 1.2, 4.0, False, ["4.00 −2.80", "1.20 ▼ maker 7"]),
    (1, 3.9, 4.0, False, ["3.90 ▼ maker 7"]),
])  # fmt: skip
def test_clock_and_ceiling_are_at_their_heights(
    rows: int, ghz: float, ceiling_ghz: float, has_title: bool, texts: list[str]
) -> None:
    """On a scale from 1 to 4 GHz. Without a title, the last line has the task."""
    values = VALUES._replace(hz=1e9 * ghz, ceiling_hz=1e9 * ceiling_ghz)
    lines = numbers_beside_clock(values, (1e9, 4e9), rows, 19, has_title=has_title)
    assert [strips.text(line).strip() for line in lines] == texts
    assert {strips.width(line) for line in lines} == {19}


@pytest.mark.parametrize(("busy", "is_shown"), [(0.5, True), (0.005, False)])
def test_few_ticks_do_not_divide_the_busy_time(busy: float, is_shown: bool) -> None:
    """The share of user time, in ticks of 10 ms, once was 2.0 % beside 0.5 % of busy time."""
    machine = guest({0: CpuLoad(busy)})
    session, interval = session_after_samples(machine)
    cores = Cores(session)
    units = chart_units(cores, range(len(cores.rows)), clocks=False)
    episodes = RowEpisodes(session, interval)
    values, *_ = unit_values(RowNumbers(session, cores, interval), units, GHZ, episodes.running)
    title = strips.text(title_runs(values, 120, colour=True))
    number = r"\d+\.\d" if is_shown else "·"
    assert re.search(rf" {100 * busy:.1f} % .* user +{number} .* kernel +{number} ", title)
    panel = core_panel(session, interval, ViewSettings(cpu=0), 60, 20)
    for name in ("user", "kernel"):
        (text,) = (
            strips.text(runs) for runs, _ in panel if strips.text(runs).split()[:1] == [name]
        )
        assert (text.split()[1] == "·") != is_shown


@pytest.mark.parametrize("seconds", [8, 40])
def test_sums_are_of_the_same_seconds_at_every_width(seconds: int) -> None:
    session, interval = session_after_samples(guest(), 10 * seconds)
    sums_s = set()
    for width in (80, 120, 157, 160, 240):
        result = ChartPage(session, Cores(session), ViewSettings(cpu=0, window_s=30.0))
        assert result.choose_layout(41, width)
        result.make_lines(interval, range(2))
        sums_s.add(round(result.lanes.window_s(0), 6))
    assert len(sums_s) == 1
    assert abs(sums_s.pop() - min(seconds, 30)) <= 0.5


# --- histories beside rows


BATCHES = (40, 5, 5, 5, 3, 5, 5, 1, 1, 1)
"""Number of samples in each interval; an interval of another length is also one of the bins."""


@pytest.mark.parametrize("scenario", ["smt-mix,smt=1", "smt-mix"])
def test_a_moved_history_equals_a_new_one(scenario: str) -> None:
    hello, *feed = messages(8, sum(BATCHES) + 1, scenario)
    assert isinstance(hello, Hello)
    session = Session(hello, History(hello))
    cores = Cores(session).rows
    visible_rows = [*range(len(cores))]
    moved = RowHistories(session, cores, 20, 12, ascii_=False)
    for batch in BATCHES:
        session_of(session, [feed.pop(0) for _ in range(batch)])
        interval, new = (
            session.take_interval(),
            RowHistories(session, cores, 20, 12, ascii_=False),
        )
        moved.update(interval, visible_rows, 0.0)
        new.update(interval, visible_rows, moved.top_ipc)
        for row in visible_rows:
            assert moved.busy_runs(row) == new.busy_runs(row)
            assert moved.ipc_runs(row, None) == new.ipc_runs(row, None)
    plain = RowHistories(session, cores, 20, 12, ascii_=True)
    plain.update(interval, visible_rows, moved.top_ipc)
    for row in visible_rows:
        text, plain_text = (strips.text(h.busy_runs(row)) for h in (moved, plain))
        assert plain_text.isascii()
        drawn, plain_drawn = ([cell != " " for cell in t] for t in (text, plain_text))
        assert plain_drawn == drawn, "a cell also shows the second thread"


@pytest.mark.parametrize("seconds", [8.3, 9.0], ids=["during the climb", "after the climb"])
def test_the_loss_of_a_ramp_is_listed_as_one(seconds: float) -> None:
    hello, stream = messages_lasting("sim:demo,cpus=8", seconds)
    session = Session(hello, History(hello))
    session_of(session, stream)
    result = ChartPage(session, Cores(session), ViewSettings(cpu=0, window_s=30.0))
    assert result.choose_layout(60, 200)
    result.make_lines(session.take_interval(), range(4))
    ramp_s = [unit.lost_s[GAP_CAUSES.index("ramp")] for unit in result._unit_charts]
    lost_s = [sum(unit.lost_s) for unit in result._unit_charts]
    assert ramp_s == pytest.approx(lost_s, abs=0.01)
    assert any("ramp   " in strips.text(line) for line in result.lines)


async def test_a_dragged_range_is_that_of_all_panels_and_only_fades_the_rest() -> None:
    """A range of 20 cells."""
    async with make.live(make.capture("guest", 60, None), (160, 50), ()) as app:
        view, pilot = app.screen.query_one(Overview), Pilot(app)
        assert view.shown_charts is not None
        assert view.shown_charts.layout is not None
        chart = range(1, 1 + view.shown_charts.layout.rows)

        def cells_outside() -> list[str]:
            texts = [view.render_line(y).text for y in chart]
            return [text[8:60] + text[82:110] for text in texts]

        def styles(x: int) -> list[object]:
            cells = [view.render_line(y).crop(x, x + 1) for y in chart]
            return [segment.style for cell in cells for segment in cell if segment.text.strip()]

        before, styles_before = cells_outside(), [styles(x) for x in (40, 70)]
        await pilot.mouse_down(Overview, offset=(60, 5))
        await pilot.mouse_up(Overview, offset=(80, 5))
        await pilot.pause()
        assert cells_outside() == before
        was_outside, was_inside = styles_before
        assert styles(40) != was_outside
        assert styles(70) == was_inside
        rows = app.screen._compositor.render_strips()
        lines = ["".join(segment.text for segment in row) for row in rows]
        text = "\n".join(lines)
        length = f"{20 * view.shown_charts.axis.bin_ns / 1e9:.1f} s"
        assert f", {length} " in lines[0]
        assert text.count(f"sum of {length}") == 2
        assert f"─ A {length} ─" in text
        assert f"ruled out  in {length}" in text
