"""The overview of small machines: its charts at all sizes, and histories beside rows."""

from __future__ import annotations

import re
from itertools import product

import pytest
from fakes import CpuLoad, Machine, guest
from hypothesis import given
from hypothesis import strategies as st
from nightly import cases_by_day
from sessions import session_of
from sim_streams import messages as simulated
from sim_streams import messages_lasting
from terminal_apps import messages

from perfprobe.wire import Hello, Multiplier
from perftop.base.text import GHZ, clock_time
from perftop.draw import strips, theme
from perftop.draw.charts import GAP_CAUSES
from perftop.output.why_report import report
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import CpuColumns
from perftop.tui.overview.chart_numbers import (
    UnitReader,
    UnitValues,
    chart_units,
    left_lines,
    title_runs,
)
from perftop.tui.overview.charts import MIN_WIDTH, ChartLayout, ChartPage, chart_layout
from perftop.tui.overview.columns import RowHistories, history_axis
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.row_numbers import RowReader
from perftop.tui.shared.view_settings import ViewSettings


def session_after_samples(machine: Machine, samples: int = 40) -> tuple[Session, Interval]:
    session = Session(machine.hello, History(machine.hello))
    frames = [machine.frame(seq) for seq in range(samples)]
    for first in range(0, samples, 5):
        interval = session_of(session, frames[first : first + 5]).take_interval()
    return session, interval


def charts(machine: Machine, width: int, height: int, **options: object) -> ChartPage | None:
    session, interval = session_after_samples(machine)
    cores = Cores(session)
    result = ChartPage(session, cores)
    if not result.choose_layout(height, width):
        return None
    order = [*range(len(cores.rows))]
    settings = ViewSettings(cpu=0, window_s=60.0)
    result.make_lines(interval, order, settings, "colour")
    return result


def test_a_refused_calibration_leaves_a_range_instead_of_a_blank() -> None:
    machine = Machine(
        cores=2, loads={cpu: CpuLoad(0.5, alone=0.3) for cpu in range(4)},
        changes={"multipliers": [Multiplier("one_thread", 1.0, "made")]},
    )  # fmt: skip
    session, interval = session_after_samples(machine)
    calibration = session.calibrations["one_thread"]
    calibration._is_settled = False
    cores = Cores(session)
    result = ChartPage(session, cores)
    assert result.choose_layout(41, 160)
    settings = ViewSettings(cpu=0, window_s=60.0)
    result.make_lines(interval, [0, 1], settings, "colour")
    calibration._sums[-1], calibration.chosen = 1e9, None
    assert calibration.state == "refused"
    session_of(session, [machine.frame(seq) for seq in range(40, 100)])
    calibration._is_settled = False
    interval = session.take_interval()
    assert interval.split.method[0] == "bounds"
    result.make_lines(interval, [0, 1], settings, "colour")
    keys = {key for line in result.lines for text, key in line if text.strip()}
    assert "unknown" in keys


# --- layout


@pytest.mark.parametrize(
    ("count", "height", "width"), [(17, 41, 160), (16, 21, 160), (8, 18, 80), (2, 41, 59)]
)
def test_rows_replace_charts_that_do_not_fit(count: int, height: int, width: int) -> None:
    assert chart_layout(count, height, width, packages=1, counted=True) is None


@given(st.integers(1, 20), st.integers(1, 90), st.booleans(), st.integers(1, 2))
def test_the_layout_fills_the_height_and_leaves_room_for_panels(
    count: int, height: int, counted: bool, packages: int
) -> None:
    result = chart_layout(count, height, MIN_WIDTH, packages=packages, counted=counted)
    if result is None:
        return
    assert lines(result, count) + result.blank_lines + result.panel_lines == height
    assert result.panel_lines >= 4


def lines(layout: ChartLayout, charts: int) -> int:
    rows_per_unit = layout.rows + (layout.kind == "titled")
    axes = (charts if layout.has_own_axes else 1) + layout.has_times_line
    return layout.heading_lines + charts * rows_per_unit + (charts - 1) * layout.gap_lines + axes


@pytest.mark.parametrize("rows", [2, 4])
def test_an_offline_unit_has_no_numbers(rows: int) -> None:
    values = UnitValues("CPU 0", "", {"busy": 0.85, "user": 0.7}, is_online=False)
    lines = [strips.text(runs).split() for runs in left_lines(values, rows)]
    assert lines == [["CPU", "0"], ["off"], *[[]] * (rows - 2)]


@pytest.mark.parametrize(
    ("waiting", "size", "place"), [(0.9, 80, 15), (0.9, 160, 60), (0.04, 80, 0)]
)
def test_a_title_names_the_queue_before_shares_that_do_not_fit(
    waiting: float, size: int, place: int
) -> None:
    shares = {"busy": 0.85, "user": 0.7, "kernel": 0.15, "steal": 0.0, "idle": 0.15}
    values = UnitValues("CPU 0", "", shares, tasks=["cc1plus 4000 42"], waiting_tasks=waiting)
    text = strips.text(title_runs(values, size, colour=True))
    assert ("queue 0.9" in text) == (place > 0)
    assert text.find("queue") >= place - 1
    before, task, _ = text.partition("cc1plus 4000 42")
    assert task
    assert before.endswith(("  ", "─ "))  # not as close to a number as the number's unit
    assert len(text) <= size


# --- drawing


@pytest.mark.parametrize(("share", "names"), [(0.08, ["not seen 92 %"]), (0.6, ["sh 8 60"])])
def test_a_title_names_tasks_only_if_they_took_half_of_the_busy_time(
    share: float, names: list[str]
) -> None:
    machine = guest({1: CpuLoad(1.0)})
    session = Session(machine.hello, History(machine.hello))
    task = [8, "sh", share]
    records = {"tasks": {"1": task}, "others": {"1": [task]}}
    session_of(session, [machine.frame(seq, records=records) for seq in range(20)])
    interval, cores = session.take_interval(), Cores(session)
    every = chart_units(cores, range(len(cores.rows)), counted=False)
    episodes = RowEpisodes(session)
    episodes.read(interval)
    moment = UnitReader(RowReader(session, cores).read(interval), every, GHZ, episodes)
    assert moment.unit_values(every[1], is_selected=False).tasks == names
    unseen = [name for name in names if name.startswith("not seen")]
    printed = CpuColumns(session).task(1, interval)  # the table and `stat` have the same text
    assert printed == (unseen[0] if unseen else "sh:8")


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
    (unit,) = chart_units(cores, range(len(cores.rows)), counted=True)
    episodes = RowEpisodes(session)
    episodes.read(interval)
    moment = UnitReader(RowReader(session, cores).read(interval), [unit], GHZ, episodes)
    waiting = sum(t.wait for cpu in "01" for t in interval.snapshot.activity_on(cpu))
    assert moment.unit_values(unit, is_selected=False).waiting_tasks == pytest.approx(waiting)
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
    assert {strips.width(line) for line in result.lines} <= {*range(width + 1)}
    assert len(result.lines) == len(result.rows) <= height - result.panel_height
    rows = {row for row in (*result.rows, *result.right_rows) if row is not None}
    assert rows == {*range(len(result._cores.rows))}


def test_the_area_of_gaps_equals_the_lost_seconds() -> None:
    """Four cores, each with one busy thread, run below their ceiling for 7.5 s."""
    hello, messages_ = simulated("turbo-drop,cpus=8", 300)
    session = Session(hello, History(hello))
    session.track_losses()
    session_of(session, messages_)
    cores = Cores(session)
    result = ChartPage(session, cores)
    assert result.choose_layout(60, 200)
    result.make_lines(
        session.take_interval(), range(4), ViewSettings(cpu=0, window_s=30.0), "colour"
    )
    cell_s = 2 * result._drawer.history.axis.bin_ns / 1e9  # type: ignore[union-attr]
    lost_s, cells_with_gaps = 0.0, 0
    for unit in result._unit_charts:
        gap_runs = [
            (sign, key) for line in unit.clock_lines for signs, key in line for sign in signs
            if "gap-" in key
        ]  # fmt: skip
        levels = [theme.LEVELS.find(sign) if not key.startswith("bright/") else 8
                  for sign, key in gap_runs]  # fmt: skip
        eighths = sum(8 - level if "/" in key and level < 8 else level
                      for level, (_, key) in zip(levels, gap_runs, strict=True))  # fmt: skip
        row_hz = (unit.high_hz - unit.low_hz) / len(unit.clock_lines)
        lost_s += eighths / 8 * row_hz / 3.5e9 * cell_s
        cells_with_gaps += len(gap_runs)
    (power, *_) = report(session).findings
    assert power.cause == ("turbo-drop", "power-pl1")
    assert cells_with_gaps > 30
    tolerance_s = cells_with_gaps * row_hz / 16 / 3.5e9 * cell_s
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
    cores, settings = Cores(session), ViewSettings(cpu=0, window_s=30.0)
    result, interval = ChartPage(session, cores), session.take_interval()
    assert result.choose_layout(60, 200)
    ended_ns = session.now_ns - 30 * 10**9
    drops = (e for e in session.episodes(0, session.now_ns) if e.kind == "turbo-drop")
    first_s = min((e.start_ns - ended_ns) / 1e9 for e in drops)
    for end_s, is_lost in ((first_s - 0.5, False), (first_s + 4.5, True)):
        settings.range_ns = ended_ns, ended_ns + round(end_s * 1e9)
        result.make_lines(interval, range(4), settings, "colour")
        seconds = [unit.lost_s[GAP_CAUSES.index("power")] for unit in result._unit_charts]
        assert all((lost_s > 0.3) == is_lost for lost_s in seconds)
        assert any(f"lost in {end_s:.0f} s" in strips.text(line) for line in result.lines)


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
    result = ChartPage(session, Cores(session))
    assert result.choose_layout(41, 160)
    for end_ns in (a_ns, b_ns):
        settings = ViewSettings(
            cpu=0, window_s=30.0, range_ns=(b_ns - span_ns, b_ns), cursor_ns=end_ns
        )
        settings.held_range = held, None
        result.make_lines(interval, range(2), settings, "colour")
        times = strips.text(result.lines[-1])
        brackets = re.findall("├[^├┤]*┤", times)
        assert [bracket.strip("├┤─ ")[:1] for bracket in brackets] == ["A", "B"]
        assert times.count("├") == times.count("┤") == 2
        (label,) = [words for words, style in result.lines[-1] if style == "label"]
        assert label == f" {clock_time(session.unix(end_ns))} "


@pytest.mark.parametrize("seconds", [8, 40])
def test_sums_are_of_the_same_seconds_at_every_width(seconds: int) -> None:
    session, interval = session_after_samples(guest(), 10 * seconds)
    sums_s = set()
    for width in (80, 120, 157, 160, 240):
        result = ChartPage(session, Cores(session))
        assert result.choose_layout(41, width)
        result.make_lines(interval, range(2), ViewSettings(cpu=0, window_s=30.0), "colour")
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
        moved.read(interval, visible_rows, 0.0)
        new.read(interval, visible_rows, moved.top_ipc)
        for row in visible_rows:
            assert moved.busy_runs(row) == new.busy_runs(row)
            assert moved.ipc_runs(row, None) == new.ipc_runs(row, None)


@pytest.mark.parametrize(("samples", "cell_ns"), [(1, 500_000_000), (5, 500_000_000), (10, 10**9)])
def test_history_cells_cover_at_least_half_a_second(samples: int, cell_ns: int) -> None:
    hello, *feed = messages(2, 41, "smt-mix")
    assert isinstance(hello, Hello)
    assert hello.sample_ns == 100_000_000
    session = Session(hello, History(hello))
    session_of(session, feed[:-samples]).take_interval()
    session_of(session, feed[-samples:])
    axis = history_axis(session, session.take_interval(), 12)
    assert axis.bin_ns == cell_ns
    assert axis.end_ns % cell_ns == 0
    assert axis.now_ns <= session.now_ns <= axis.end_ns


@pytest.mark.parametrize("seconds", [8.3, 9.0], ids=["during the climb", "after the climb"])
def test_the_loss_of_a_ramp_is_listed_as_one(seconds: float) -> None:
    hello, stream = messages_lasting("sim:demo,cpus=8", seconds)
    session = Session(hello, History(hello))
    session_of(session, stream)
    result = ChartPage(session, Cores(session))
    assert result.choose_layout(60, 200)
    settings = ViewSettings(cpu=0, window_s=30.0)
    result.make_lines(session.take_interval(), range(4), settings, "colour")
    ramp_s = [unit.lost_s[GAP_CAUSES.index("ramp")] for unit in result._unit_charts]
    lost_s = [sum(unit.lost_s) for unit in result._unit_charts]
    assert ramp_s == pytest.approx(lost_s, abs=0.01)
    assert any("ramp   " in strips.text(line) for line in result.lines)
