"""The page of a core: its panels, metrics and notes, and the lanes of tasks."""

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
from perftop.draw.columns import SUSPECT_SIGN
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
        await run.send_intervals(samples)
        await run.pilot.press("enter")
        await run.pilot.pause()
        return page_lines(run)


# --- on the screen


async def test_few_numbers_leave_the_whole_width_to_the_tasks() -> None:
    """On a guest, the episodes are beside the numbers; with counters, beside the tasks."""
    for machine, is_beside_numbers in ((guest(), True), (Machine(cores=2), False)):
        lines = await opened_page(machine, (160, 50))
        title = line(lines, "what happened")
        assert ("tasks  CPU seconds" in title) is not is_beside_numbers
        assert ("CPU 0" in title) is is_beside_numbers


async def test_a_page_without_charts_does_not_say_that_a_filter_matches_nothing() -> None:
    async with running_app(Machine(cores=2), (60, 12)) as run:
        await run.send_intervals(3)
        await run.pilot.press("slash", "0", "enter", "enter")
        await run.pilot.pause()
        assert page_lines(run)[0].startswith(" core 0")


async def test_sums_cover_the_whole_selected_range() -> None:
    """The range begins before the charts' window, which moves, and is wider for a long range."""
    async with running_app(guest(), BIG) as run:
        await run.send_intervals(800)
        await run.pilot.press("enter")
        newest_ns = run.interval.time_ns
        for first_s, last_s in ((-66, -55), (-73, -1)):
            run.source.select_range(newest_ns + first_s * S, newest_ns + last_s * S)
            await run.pilot.pause()
            for window in ("whole", "narrow"):
                lines = page_lines(run)
                assert f"sum of {last_s - first_s:.1f} s" in "\n".join(lines), window
                assert f"CPU seconds of {last_s - first_s:.1f} s" in "\n".join(lines), window
                run.monitor.action_resize_window(-1)
                await run.pilot.pause()


# --- what else is known about the CPU


async def test_the_page_tells_places_quota_and_interrupts_of_the_cpu() -> None:
    """A hog that may run on CPU 0 only, in a group whose quota stopped it in half of the periods,
    on a CPU that spends 3 % of its time in interrupts."""
    machine = guest(loads={0: CpuLoad(0.9, irq=0.03), 1: CpuLoad(0.5)})
    tasks = [[7, "hogZ", 0.6], [8, "sh", 0.2], [9, "cron", 0.1]]

    def records(second: int) -> dict[str, object]:
        counts = [1.5, 10 * second, 5 * second, 200_000 * second]
        return {
            "tasks": {"0": tasks[0]}, "others": {"0": tasks},
            "details": {"7": {"affinity": "0"}, "8": {"affinity": "0-1"}},
            "quotas": {"groups": {"/build.slice": counts}, "pids": {"7": ["/build.slice"]}},
        }  # fmt: skip

    async with running_app(machine, BIG) as run:
        for second in range(12):
            run.feed.frames(9)
            run.feed.frames(1, records=records(second))
        await run.send_intervals(1)
        await run.pilot.press("enter")
        await run.pilot.pause()
        lines = page_lines(run)
    right = [line[100:].strip() for line in lines]
    first = next(i for i, text in enumerate(right) if text.startswith("on this CPU  in 10.1 s"))
    text = " ".join(" ".join(right[first + 1 :]).split())
    assert "may run on CPU 0 only: hogZ 7 · every CPU: sh 8 unknown" in text
    assert "quota 1.5 CPUs for hogZ 7 (build.slice): stopped 1.8 s, in 45 of 90 periods" in text
    assert "interrupts 3.0 %, softirqs 0.0 %" in text


# --- metrics and notes


async def test_bounds_are_shown_as_a_range_and_suspect_counters_named() -> None:
    does = {cpu: CpuLoad(0.75) for cpu in range(4)}
    lines = await opened_page(Machine(cores=2, split=False, loads=does))
    assert "50–75" in line(lines[::-1], " both ").split()
    assert any("SMT states by bounds" in text for text in lines)
    lines = await opened_page(Machine(cores=1, broken={0}))
    assert SUSPECT_SIGN in line(lines, "  busy ")
    assert any(f"{SUSPECT_SIGN} CPU 0: " in text for text in lines)


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
        await run.send_intervals(3)
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
        await run.send_intervals(3, records=records)
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
        waits = {"1": [[0.1, 20.0]]} if second <= hog_s else {}
        frame.records.update({"tasks": {"1": hog[0]}, "others": {"1": hog}, "waits": waits})
    session_of(session, frames)
    cores = Cores(session, None)
    lanes = TaskLanes(session, chart_units(cores, range(len(cores.rows)), clocks=False))
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


@pytest.mark.parametrize(("seconds_ago", "is_past", "last"), [
    (0, False, "now"), (2, False, "now"), (3, False, "22:14:00"), (0, True, "22:14:00"),
])  # fmt: skip
def test_a_task_ran_now_only_if_the_window_ends_now(
    seconds_ago: int, last: str, *, is_past: bool
) -> None:
    """The last task to run was said to run now, also in the past and long after its end."""
    lanes = hog_lanes(40)
    session, now_ns = lanes._session, None if is_past else lanes._session.now_ns + seconds_ago * S
    lines = map(strips.text, task_table(session, lanes, now_ns, 100, 10, "colour"))
    assert last in next(line for line in lines if "hogZ" in line)


def test_a_span_just_before_the_first_record_has_no_known_tasks() -> None:
    """Even if a later span was shown before."""
    lanes = hog_lanes(25)
    axis = Axis(-S // 2, S // 2, 1, -S // 2)
    lanes.update(axis, np.array([[0.0], [1.0]]), (axis.start_ns, axis.end_ns))
    assert [task.comm for task in lanes.task_times()] == ["not seen"]


@pytest.mark.parametrize("util_of_cpu_0", [0.0, np.nan], ids=["idle", "offline"])
def test_waits_and_switches_of_a_task_are_known_beside_an_offline_cpu(util_of_cpu_0: float) -> None:
    """The hog waits for 10 % of 20 s, and switches 20 times a second of half of the span. The waits
    of the other task are unknown."""
    lanes = hog_lanes(20)
    now_ns, util = lanes._session.now_ns, np.array([[util_of_cpu_0], [1.0]]).repeat(80, axis=1)
    axis = Axis(now_ns, S // 2, 80, now_ns)
    lanes.update(axis, util, (axis.start_ns, axis.end_ns))
    hog, other = (next(t for t in lanes.task_times() if t.comm == name) for name in ("hogZ", "sh"))
    assert hog.wait_s == pytest.approx(2.0, abs=0.1)
    assert hog.switches_per_s == pytest.approx(10.0, abs=0.5)
    assert hog.longest_wait_s == pytest.approx(0.1 / 21)
    assert np.isnan([other.wait_s, other.longest_wait_s, other.switches_per_s]).all()


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


async def test_on_a_large_screen_the_chart_is_higher_than_the_panels() -> None:
    lines = await opened_page(Machine(cores=8, loads={0: CpuLoad(0.9)}), (240, 70))
    first_panel_line = next(y for y, line in enumerate(lines) if line.startswith(" tasks "))
    assert first_panel_line >= 32
    assert not any("…" in line for line in lines if "not seen" in line)
