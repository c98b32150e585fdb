"""The page of a core: its charts, lanes and table of tasks, metrics, and episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from fakes import CpuLoad, Machine, guest
from played_apps import Run, running_app
from sessions import session_of

from perfprobe.wire import Missing
from perftop.draw import strips
from perftop.draw.columns import DOUBTED_SIGN
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import chart_units
from perftop.tui.overview.core_page import CorePage, task_table
from perftop.tui.overview.task_lanes import TaskLanes
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.row_numbers import GROUPINGS
from perftop.tui.shared.time_axis import Axis

S = 1_000_000_000
BIG = (160, 50)


def page(run: Run) -> CorePage:
    return run.app.screen_stack[0].query_one(CorePage)


def page_lines(run: Run) -> list[str]:
    view = page(run)
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


def line(lines: Sequence[str], text: str) -> str:
    return next(line for line in lines if text in line)


async def opened_page(
    machine: Machine, size: tuple[int, int] = BIG, samples: int = 20
) -> list[str]:
    async with running_app(machine, size) as run:
        await run.intervals(samples)
        await run.pilot.press("enter")
        await run.pilot.pause()
        return page_lines(run)


# --- the table of tasks


def lanes_of(records: Sequence[tuple[list[list[object]], list[list[float]]]]) -> TaskLanes:
    """The lanes of CPU 0, which is always busy. Each second has a record of its tasks, with their
    waits and switches."""
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    frames = [machine.frame(seq) for seq in range(10 * len(records) + 1)]
    for frame, (ran, waits) in zip(frames[10::10], records, strict=True):
        frame.records.update({"tasks": {"0": ran[0]}, "others": {"0": ran}, "waits": {"0": waits}})
    session_of(session, frames)
    cores = Cores(session)
    lanes = TaskLanes(session, chart_units(cores, [0], counted=False))
    axis = Axis(session.now_ns, S // 2, 2 * len(records), session.now_ns)
    lanes.update(axis, np.ones((1, 2 * len(records))), (axis.start_ns, axis.end_ns))
    table_session.append(session)
    return lanes


table_session: list[Session] = []


def table(lanes: TaskLanes, width: int = 140, height: int = 12) -> list[str]:
    lines = task_table(table_session[-1], lanes, width, height, "shapes")
    assert len(lines) <= height
    assert {strips.width(line) for line in lines[:-1]} <= {*range(width + 1)}
    return [strips.text(line).rstrip() for line in lines]


HOG, SHELL = [7, "hogZ", 0.9], [8, "sh", 0.1]


def test_a_task_has_a_row_with_its_running_and_waiting_times() -> None:
    lanes = lanes_of([([HOG, SHELL], [[0.0, 10.0], [0.8, 9.0]])] * 10
                     + [([SHELL], [[0.0, 9.0]])] * 20)  # fmt: skip
    lines = table(lanes)
    hog, shell = line(lines, "hogZ"), line(lines, " sh ")
    assert (hog.split()[0], shell.split()[0]) == ("a", "b"), "without colours, letters name tasks"
    assert float(hog.split()[3]) == pytest.approx(9.5, abs=1.0)
    assert "now" in shell
    assert "now" not in hog
    assert "22:13:30" in hog  # the task ended at that time
    assert float(shell.split()[4]) == pytest.approx(8.0, abs=1.0)
    assert "80 ms" in shell  # the task waited for 0.8 s in ten waits
    switches = [float(row.split("ms")[1].split()[0]) for row in (hog, shell)]
    assert switches == pytest.approx([10 / 3, 9], abs=0.5)  # the hog ran for a third of the time
    assert hog.count("▇") >= 8
    assert "▒" in shell
    assert "▒" not in hog


def test_command_lines_are_whole_where_there_is_room() -> None:
    """96 cells are those of a screen with 160 columns; the program's directory is then left out. A
    process has its last command line, which is not shown beside its earlier name."""
    lanes = lanes_of([([[7, "bash", 0.9], SHELL], [[0.0, 10.0]] * 2)] * 5
                     + [([HOG, SHELL], [[0.0, 10.0]] * 2)] * 5)  # fmt: skip
    command = "./hogZ --spin 13 --threads 64 --on-every-cpu-of-the-machine --forever"
    table_session[-1].details["7"] = {"command": command}
    assert " hogZ --spin 13" in line(table(lanes, 96), "hogZ")
    lines = table(lanes, 220)
    assert line(lines, "hogZ").endswith(command)
    assert not line(lines, "bash").endswith(command)


@pytest.mark.parametrize("height", [6, 8, 12, 30])
def test_the_seconds_add_up_to_the_time_window(height: int) -> None:
    tasks = [[[100 + i, f"task{i}", 0.3] for i in range(j, j + 3)] for j in range(12)]
    lanes = lanes_of([(ran, [[0.0, 1.0]] * 3) for ran in tasks])
    lines = table(lanes, height=height)
    assert "12.0 s" in lines[0]
    end = lines[1].index("CPU s") + len("CPU s")
    seconds = [float(text[end - 6 : end]) for text in lines[2:]]
    assert sum(seconds) == pytest.approx(12.0, abs=0.05 * len(seconds))


# --- on the screen


async def test_few_numbers_leave_the_whole_width_to_the_tasks() -> None:
    """On a guest, the episodes are beside the numbers; with counters, beside the tasks."""
    for machine, is_beside_numbers in ((guest(), True), (Machine(cores=2), False)):
        lines = await opened_page(machine, (160, 50))
        title = line(lines, "what happened")
        assert ("tasks  CPU seconds" in title) is not is_beside_numbers
        assert ("CPU 0" in title) is is_beside_numbers


async def test_fewer_cores_are_harmless_to_a_page_without_a_size() -> None:
    async with running_app(Machine(cores=4)) as run:
        await run.pilot.press("enter", "down")
        view = page(run)
        view.cores = Cores(run.session, frozenset())
        view.reset()
        assert view.needs_layout()


# --- metrics and notes


async def test_bounds_are_shown_as_a_range_and_suspect_counters_named() -> None:
    does = {cpu: CpuLoad(0.75) for cpu in range(4)}
    lines = await opened_page(Machine(cores=2, split=False, loads=does))
    assert "50–75" in line(lines[::-1], " both ").split()
    assert any("SMT states by bounds" in text for text in lines)
    lines = await opened_page(Machine(cores=1, broken={0}))
    assert DOUBTED_SIGN in line(lines, "  busy ")
    assert any(f"{DOUBTED_SIGN} CPU 0: " in text for text in lines)


async def test_only_shares_that_matter_when_small_have_a_shorter_scale() -> None:
    lines = await opened_page(
        Machine(cores=2, loads={cpu: CpuLoad(0.04, steal=0.03) for cpu in range(4)})
    )
    for name, scale_end in (("busy", "100"), ("steal", "5")):
        words = line(lines, f"  {name} ").split()
        assert words[words.index("%") + 2] == scale_end


async def test_an_offline_thread_and_missing_metrics_are_reported() -> None:
    missing = [Missing("cycles", "E cores have no such counter", None, [1])]
    machine = Machine(cores=2, threads=1, changes={"missing": missing})
    rows, counters = machine.hello.topology, machine.hello.blocks[0].counters
    rows[:] = [dataclasses.replace(row, type="PE"[row.cpu]) for row in rows]
    counters[:] = [dataclasses.replace(counter, cpus=[0]) if counter.key == "cycles" else counter
                   for counter in counters]  # fmt: skip
    async with running_app(machine) as run:
        await run.intervals(3)
        await run.pilot.press("enter")
        assert not any("E cores" in text for text in page_lines(run))
        await run.pilot.press("down")
        text = " ".join(page_lines(run))
        assert "· E-core" in text
        assert "clock, IPC, kernel cycles unknown: E cores have no such counter" in " ".join(
            text.split()
        )


@pytest.mark.parametrize("record", [None, [], ["x"], {"a": 1}, [4000, "a", float("nan")], 7])
async def test_malformed_task_records_do_no_harm(record: object) -> None:
    records = {"tasks": {"0": record, "1": [1, 2, "3"]}, "details": {"1": 2}}
    async with running_app(Machine(cores=1)) as run:
        await run.intervals(3, records=records)
        await run.pilot.press("enter")
        assert "tasks" in line(page_lines(run), "CPU seconds of")


# --- tasks on each cpu: lanes and their sums, on a guest with known tasks


def hog_lanes(hog_s: int, whole_s: int = 40) -> TaskLanes:
    """CPU 1 is busy for `whole_s`: `hog` uses it first, then no task is reported."""
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    frames = [machine.frame(seq) for seq in range(10 * whole_s + 1)]
    for second, frame in enumerate(frames[::10]):
        hog = [[7, "hogZ", 1.0]] if second <= hog_s else [[8, "sh", 0.08]]
        frame.records.update({"tasks": {"1": hog[0]}, "others": {"1": hog}})
    session_of(session, frames)
    cores = Cores(session, None)
    lanes = TaskLanes(session, chart_units(cores, range(len(cores.rows)), counted=False))
    axis = Axis(session.now_ns, S // 2, 2 * whole_s, session.now_ns)
    util = np.array([[0.0], [1.0]]).repeat(2 * whole_s, axis=1)
    lanes.update(axis, util, (axis.start_ns, axis.end_ns))
    return lanes


@pytest.mark.parametrize("hog_s", [12, 25])
def test_the_time_of_ended_tasks_is_included_and_all_times_add_up(hog_s: int) -> None:
    lanes = hog_lanes(hog_s)
    texts = [strips.text(line) for line in lanes.sum_lines(1, 9, "colour")]
    (hog,) = (text for text in texts if "hogZ" in text)
    assert abs(float(hog.split()[2]) - hog_s) < 0.6
    seconds = [float(text.split(" s ")[0].split()[-1]) for text in texts if " s " in text]
    assert abs(sum(seconds) - 40.0) < 0.2
    assert lanes.window_s(0) == lanes.window_s(1) == 40.0


def test_busy_time_without_a_known_task_is_unattributed() -> None:
    lanes = hog_lanes(0)
    text = [strips.text(line) for line in lanes.sum_lines(1, 9, "shapes")]
    (unseen,) = (line for line in text if "not seen" in line)
    assert abs(float(unseen.split()[3]) - 0.92 * 40) < 1.0
    assert strips.text(lanes.lane_lines(1, "shapes")[1][0]).count("/") == 80


def test_tasks_of_one_job_share_a_colour_and_a_sum() -> None:
    lanes = hog_lanes(20)
    groups = {"7": "/system.slice/build.service", "8": "/system.slice/build.service"}
    lanes._session.details.update({pid: {"group": group} for pid, group in groups.items()})
    now_ns, util = lanes._session.now_ns, np.array([[0.0], [1.0]]).repeat(80, axis=1)
    axis, names = Axis(now_ns, S // 2, 80, now_ns), ("hogZ", "build.service", "…uild.service")
    for grouping, name in zip(GROUPINGS, names, strict=True):
        lanes.update(axis, util, (axis.start_ns, axis.end_ns), grouping)
        texts = [strips.text(line) for line in lanes.sum_lines(1, 9, "colour")]
        (line,) = (text for text in texts if name in text)
        expected_s = 20 if grouping == "task" else 20 + 0.08 * 20
        assert abs(float(line.split()[-3 if "█" in line.split()[-1] else -2]) - expected_s) < 0.8


def test_each_waiting_task_fills_one_line_above_the_chart() -> None:
    """Two tasks share CPU 1, so one of them always waits; from 20 s on, three tasks do."""
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    frames = [machine.frame(seq) for seq in range(401)]
    for at_s, frame in enumerate(frames[::10]):
        count = 2 if at_s <= 20 else 3
        hogs = [[pid, "hog", 1 / count] for pid in range(count)]
        waits = [[1 - 1 / count, 100.0]] * count
        frame.records.update(
            {"tasks": {"1": hogs[0]}, "others": {"1": hogs}, "waits": {"1": waits}}
        )
    session_of(session, frames)
    cores = Cores(session, None)
    lanes = TaskLanes(session, chart_units(cores, range(len(cores.rows)), counted=False))
    axis = Axis(session.now_ns, S // 2, 80, session.now_ns)
    util = np.array([[0.0], [1.0]]).repeat(80, axis=1)
    lanes.update(axis, util, (axis.start_ns, axis.end_ns))
    second, first = (strips.text(line) for line in lanes.queue_lines(2, "colour")[1])
    assert first == "█" * 80
    assert second[:38].strip() == ""
    assert second[42:] == "█" * 38
    assert [strips.text(line).strip() for line in lanes.queue_lines(2, "colour")[0]] == ["", ""]
    second, first = (strips.text(line) for line in lanes.queue_lines(2, "shapes")[1])
    assert first == "w" * 80
    assert second[42:] == "w" * 38


async def test_on_a_large_screen_the_chart_is_higher_than_the_panels() -> None:
    lines = await opened_page(Machine(cores=8, loads={0: CpuLoad(0.9)}), (240, 70))
    first_panel_line = next(y for y, line in enumerate(lines) if line.startswith(" tasks "))
    assert first_panel_line >= 32
    assert not any("…" in line for line in lines if "not seen" in line)
