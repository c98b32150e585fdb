"""What a core did, as its page draws it."""

from __future__ import annotations

import dataclasses

import made
import numpy as np
import pytest
from cores import SECOND, busy, charts, line, number_column, panel_lines, played_core, text
from fakes import CpuLoad, Machine
from hypothesis import given, settings
from hypothesis import strategies as st

from perfprobe.wire import Counter, Hello, Note
from perftop.draw import strips, theme
from perftop.model.kinds import Episode
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.core_page import numbers
from perftop.tui.core_page.charts import Charts, CoreHistory


def test_a_clock_falls_below_its_ceiling_in_red_while_something_is_wrong() -> None:
    def script(machine: Machine, seq: int) -> None:
        for cpu in (0, 1):
            machine.does[cpu] = CpuLoad(1.0, 2.5e9 if 20 < seq <= 40 else 3.2e9)

    session, interval = played_core(Machine(cores=1), script)
    episode = Episode("turbo-drop", [0, 1], 2 * SECOND, 4 * SECOND, 0.7e9, "power-pl1")
    session.ended[:] = [episode]
    session.detector.running.clear()
    assert not _where(charts(session, interval), RED)  # it is over
    episode.end_ns = None
    session.ended.clear()
    session.detector.running.append(episode)
    of = charts(session, interval)
    result = of.history.axis.cells_of(episode)
    assert result
    high, low = _where(of, "clock"), _where(of, RED)
    assert set(low) == set(result[0])
    assert {high[column] for column in list(high)[1:-1]} == {1}  # below the line of the ceiling
    assert min(low[column] for column in result[0][1:18]) > 3
    assert {low[column] for column in result[0][22:]} == {1}
    first = [char for text, _ in of.panels()[0] for char in text][numbers.LABEL_WIDTH :]
    assert set(first[: of.history.axis.cells]) == {theme.LIMIT}


RED = "alarm/drop-back"


@pytest.mark.parametrize("share", [0.01, 0.1, 0.15, 0.9])
def test_a_long_label_does_not_shift_its_chart(share: float) -> None:
    does = {cpu: CpuLoad(1 - share, involuntary=share) for cpu in (0, 1)}
    of = charts(*played_core(Machine(cores=1, does=does)))
    lines = [strips.text(runs) for runs in of.panels() if runs]
    assert {len(text) for text in lines} == {len(lines[0])}
    top = next(end for end in (2, 5, 10, 20, 50, 100) if 100 * share <= end)
    assert f"{top}%" in line(lines, "invol")


def _where(of: Charts, key: str) -> dict[int, int]:
    """The lowest line of the clock's panel in which a column has this style."""
    results: dict[int, int] = {}
    start = numbers.LABEL_WIDTH
    for y, runs in enumerate(of.panels()[: of.moment.page.panels[0].lines]):
        cells = [(char, style) for text, style in runs for char in text]
        cells = cells[start : start + of.history.axis.cells]
        results |= {at: y for at, cell in enumerate(cells) if cell[0] != " " and cell[1] == key}
    return results


def test_a_sleepers_clock_is_faint_and_does_not_widen_the_scale() -> None:
    def script(machine: Machine, seq: int) -> None:
        asleep = seq > 30
        machine.does[0] = CpuLoad(0.01 if asleep else 0.9, 0.8e9 if asleep else 3.1e9)
        machine.does[1] = CpuLoad(0.0)

    session, interval = played_core(Machine(cores=1), script)
    of = charts(session, interval)
    assert _where(of, "clock")
    assert min(_where(of, "faint")) > max(_where(of, "clock"))
    text = [strips.text(line) for line in of.panels()[: of.moment.page.panels[0].lines]]
    assert text[-1].split()[:2] == ["<", "2.75"]


def test_bounds_are_drawn_and_shown_as_a_range() -> None:
    session, interval = played_core(busy(Machine(cores=1, split=False), 0.75, 0.75))
    drawn = number_column(charts(session, interval), "smt")
    certain = round(len(drawn) / 2)
    assert drawn.strip(theme.UNKNOWN) == theme.BOTH * certain
    result = text(session, interval)
    assert line(result, "█ both").split()[-1] == "50–75"
    assert any("▒ may be any of them" in text for text in result)


def test_of_four_threads_it_is_shown_whether_any_runs() -> None:
    session, interval = played_core(
        busy(Machine(cores=1, threads=4, split=False), 0.5, 0.0, 0.0, 0.0)
    )
    drawn = number_column(charts(session, interval), "smt")
    assert set(drawn.strip(theme.NEITHER)) == {theme.UNKNOWN}
    assert abs(drawn.count(theme.UNKNOWN) - len(drawn) / 2) <= 1
    result = text(session, interval)
    assert line(result, "▒ active").split()[-1] == "0.50"
    assert line(result, "busy %").split()[-4:] == ["50.0", "0.0", "0.0", "0.0"]


class Shared(Machine):
    """Its cores count the time in which any of their threads runs."""

    def _hello(self, counters: list[Counter]) -> Hello:
        return super()._hello([*counters, made.counter("any_thread", "1")])

    def moved(self, cpu: int, ns: float, ticks: float) -> dict[str, float]:
        most = max(does.util for does in self.does.values())
        return super().moved(cpu, ns, ticks) | {"any_thread": most * ticks}


def test_of_four_threads_that_count_together_it_is_known() -> None:
    session, interval = played_core(
        busy(Shared(cores=1, threads=4, split=False), 0.5, 0.5, 0.0, 0.0)
    )
    drawn = number_column(charts(session, interval), "smt")
    assert set(drawn.strip(theme.NEITHER)) == {theme.UNKNOWN}
    assert abs(drawn.count(theme.UNKNOWN) - len(drawn) / 2) <= 1
    assert line(text(session, interval), "· neither").split()[-1] == "50.0"


def test_the_thread_that_is_on_alone_is_drawn_as_itself() -> None:
    machine = Machine(
        cores=1, does={0: CpuLoad(0.0, alone=0.0), 1: CpuLoad(1.0, alone=1.0)}, gone={0}
    )
    session = Session(machine.hello, History(machine.hello))
    session.apply(Note("hotplug", 0, data={"cpu": 0, "online": False}))
    for seq in range(51):
        session.apply(machine.frame(seq))
    interval = session.take_interval()
    drawn = number_column(charts(session, interval), "smt")
    half = len(drawn) // 2
    assert drawn == theme.NEITHER * half + theme.KERNEL * half
    result = text(session, interval)
    assert "CPUs 0 off, 1" in result[0]
    assert line(result, "busy %").split()[-2:] == ["off", "100.0"]
    assert line(result, "lp1 only").split()[-1] == "100.0"


def test_unread_time_is_blank() -> None:
    session, interval = played_core(Machine(cores=1))
    of = charts(session, interval, window_s=30.0)
    output = panel_lines(of, "util")[0]
    bins = -(-50 * made.SAMPLE_NS // of.history.axis.bin_ns)
    assert output.lstrip() == "⣤" * bins
    assert any("history from" in strips.text(line) for line in of.foot())


@pytest.fixture(scope="module")
def restless() -> tuple[Session, Interval]:
    """A core whose load changes with each sample."""

    def script(machine: Machine, seq: int) -> None:
        machine.does |= {cpu: CpuLoad((seq * 7 + cpu) % 11 / 11) for cpu in (0, 1)}

    return played_core(Machine(cores=1), script)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=6), st.sampled_from([1.0, 2.0, 5.0]))
@settings(max_examples=25)
def test_a_kept_track_equals_history(
    restless: tuple[Session, Interval], moments: list[int], window_s: float
) -> None:
    session, interval = restless
    of = charts(session, interval, window_s=window_s)
    for moment in moments:
        time = dataclasses.replace(
            of.history.axis, end_ns=of.history.axis.end_ns - moment * of.history.axis.bin_ns
        )
        fresh = CoreHistory(session, of.moment.place)
        for track in (of.history, fresh):
            track.move_to(time)
        for key in ("util", "ipc"):
            np.testing.assert_array_equal(of.history.of_cpus(key), fresh.of_cpus(key))
        np.testing.assert_array_equal(of.history.states(), fresh.states())
        np.testing.assert_array_equal(of.history.ceiling(), fresh.ceiling())


@pytest.fixture(scope="module")
def raised() -> tuple[Session, Interval]:
    """A core whose ceiling moves twice, without episodes."""

    def script(machine: Machine, seq: int) -> None:
        machine.ceiling_hz = 3.5e9 if 15 < seq <= 32 else 3.2e9

    session, interval = played_core(Machine(cores=1), script)
    session.ended.clear()
    session.detector.running.clear()
    return session, interval


@pytest.mark.parametrize("window_s", [2.0, 5.0, 10.0, 12.0, 15.0, 17.0, 20.0])
def test_a_ceiling_that_moved_is_a_mark_on_the_axis(
    raised: tuple[Session, Interval], window_s: float
) -> None:
    session, interval = raised
    of = charts(session, interval, window_s=window_s, size=(76, 25))
    foot = strips.text(of.foot()[0])[numbers.LABEL_WIDTH :]
    marks = [at for at, char in enumerate(foot) if char == theme.STEP]
    bins = [
        of.history.axis.bin(seq * made.SAMPLE_NS) for seq in (16, 33)
    ]  # samples with another one
    assert marks == [at for at in bins if at > 0]


def test_the_ipc_of_a_core_is_that_of_the_thread_that_loses() -> None:
    """The thread that takes is busier and has another IPC."""
    machine = Machine(cores=1, does={0: CpuLoad(0.95, ipc=1.5), 1: CpuLoad(1.0, ipc=0.5)})
    session, interval = played_core(machine)
    session.detector.running.clear()
    of = charts(session, interval)
    assert np.nanmax(of._single_series("ipc")) == pytest.approx(0.5)
    loss = Episode("neighbour", [0], 2 * SECOND, None, 0.3, "sibling")
    session.detector.running.append(loss)
    of = charts(session, interval)
    assert np.nanmin(of._single_series("ipc")) == pytest.approx(1.5)
