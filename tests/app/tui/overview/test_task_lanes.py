"""Tasks on each CPU: lanes and their sums, on a guest with known tasks."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import guest

from perftop.draw import strips
from perftop.session.history import History
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import units
from perftop.tui.overview.task_lanes import TaskLanes
from perftop.tui.shared.choice import Places
from perftop.tui.shared.time_axis import Axis

S = 1_000_000_000


def lanes_of(hog_s: int, whole_s: int = 40) -> TaskLanes:
    """CPU 1 is busy for `whole_s`: `hog` uses it first, then no task is reported."""
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    for seq in range(10 * whole_s + 1):
        hog = [[7, "hogZ", 1.0]] if seq <= 10 * hog_s else [[8, "sh", 0.08]]
        records = {"tasks": {"1": hog[0]}, "others": {"1": hog}}
        session.apply(machine.frame(seq, records={} if seq % 10 else records))
    places = Places(session, None)
    lanes = TaskLanes(session, units(places, range(len(places.places)), counted=False))
    axis = Axis(session.now_ns, S // 2, 2 * whole_s, session.now_ns)
    lanes.read(axis, np.array([[0.0], [1.0]]).repeat(2 * whole_s, axis=1))
    return lanes


@pytest.mark.parametrize("hog_s", [12, 25])
def test_the_time_of_ended_tasks_is_included_and_all_times_add_up(hog_s: int) -> None:
    lanes = lanes_of(hog_s)
    texts = [strips.text(line) for line in lanes.sums(1, 9, "colour")]
    (hog,) = (text for text in texts if "hogZ" in text)
    assert abs(float(hog.split()[2]) - hog_s) < 0.6
    seconds = [float(text.split(" s ")[0].split()[-1]) for text in texts if " s " in text]
    assert abs(sum(seconds) - 40.0) < 0.2
    assert lanes.window_s(0) == lanes.window_s(1) == 40.0


def test_busy_time_without_a_known_task_is_unattributed() -> None:
    lanes = lanes_of(0)
    text = [strips.text(line) for line in lanes.sums(1, 9, "shapes")]
    (unseen,) = (line for line in text if "not seen" in line)
    assert abs(float(unseen.split()[3]) - 0.92 * 40) < 1.0
    assert strips.text(lanes.lane(1, 1, "shapes")[0]).count("/") == 80


def test_a_lane_shows_its_task_by_colour_and_letter() -> None:
    lanes = lanes_of(40)
    assert ("hogZ", "ground/task0") in lanes.lane(1, 2, "colour")[-1]
    assert strips.text(lanes.lane(1, 2, "ascii")[-1]).startswith("a=hogZ aaa")
    assert strips.text(lanes.lane(0, 2, "ascii")[-1]).strip() == ""


def test_each_waiting_task_fills_one_line_above_the_chart() -> None:
    """Two tasks share CPU 1, so one of them always waits; from 20 s on, three tasks do."""
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    for seq in range(401):
        count = 2 if seq <= 200 else 3
        hogs = [[pid, "hog", 1 / count] for pid in range(count)]
        waits = [[1 - 1 / count, 100.0]] * count
        records = {"tasks": {"1": hogs[0]}, "others": {"1": hogs}, "waits": {"1": waits}}
        session.apply(machine.frame(seq, records={} if seq % 10 else records))
    places = Places(session, None)
    lanes = TaskLanes(session, units(places, range(len(places.places)), counted=False))
    axis = Axis(session.now_ns, S // 2, 80, session.now_ns)
    lanes.read(axis, np.array([[0.0], [1.0]]).repeat(80, axis=1))
    second, first = (strips.text(line) for line in lanes.queue(1, 2, "colour"))
    assert first == "█" * 80
    assert second[:38].strip() == ""
    assert second[42:] == "█" * 38
    assert [strips.text(line).strip() for line in lanes.queue(0, 2, "colour")] == ["", ""]
    second, first = (strips.text(line) for line in lanes.queue(1, 2, "shapes"))
    assert first == "w" * 80
    assert second[42:] == "w" * 38
