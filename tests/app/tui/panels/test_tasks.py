"""The panel of tasks, and the comparison of two ranges."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from fakes import NO_PMU, CpuLoad, Machine, guest, observe
from sessions import session_of

from perfprobe.wire import Missing
from perftop.draw import strips
from perftop.session.history import History
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared import panels, tables
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.verdict import verdict_at

OTHER_TASKS = {
    "0": [[4502, "cc1plus", 0.479], [4509, "cc1plus", 0.246], [4471, "make", 0.027]],
    "1": [[812, "postgres", 0.384], [4610, "perfprobe", 0.006]],
}
WAITS = {"0": [[0.382, 212], [0.524, 187.4], [0.094, 58]], "1": [[0.031, 2104], [0.002, 20]]}
DETAILS = {
    "4502": {
        "parent": "make",
        "group": "/user.slice/user-1000.slice/user@1000.service/build.scope",
    },
    "812": {"parent": "postgres", "group": "/system.slice/postgresql.service"},
}


def records(**changes: Any) -> dict[str, Any]:
    tasks = {cpu: ranked[0] for cpu, ranked in OTHER_TASKS.items()}
    plain = {"tasks": tasks, "others": OTHER_TASKS, "waits": WAITS, "details": DETAILS}
    return {key: value for key, value in (plain | changes).items() if value is not None}


def text(session_and_interval: tuple[Session, Interval], width: int, height: int) -> list[str]:
    return [
        strips.text(line).rstrip()
        for line, _ in tables.task_panel(*session_and_interval, ViewSettings(), width, height)
    ]


def styles(session_and_interval: tuple[Session, Interval], part: str) -> set[str]:
    return {
        key
        for line, _ in tables.task_panel(*session_and_interval, ViewSettings(), 97, 10)
        for run, key in line
        if run.strip() == part
    }


def test_tasks_that_wait_more_than_a_fifth_of_the_time_are_red() -> None:
    observed = observe(guest(), records=records())
    assert styles(observed, "38.2") == styles(observed, "52.4") == {"alarm"}
    assert styles(observed, "9.4") == {"dim"}, "it hardly runs"
    assert styles(observed, "3.1") == {"text"}


@pytest.mark.parametrize(("group", "parent", "owner"), [
    ("/system.slice/nginx.service", "systemd", "nginx"),
    ("/system.slice/nginx.service/worker", "nginx", "nginx"),
    ("/user.slice/user@1000.service/app.slice/x.scope", "bash", "x.scope"),
    ("/user.slice/user@1000.service/init", "bash", "user.slice"),
    ("/docker/0123456789abcdef0123", "sh", "container 0123456789ab"),
    (None, "bash", "bash"),
    (None, None, ""),
    (["/a.service"], 7, ""),
])  # fmt: skip
def test_an_owner_is_a_unit_a_container_or_the_parent(group: Any, parent: Any, owner: str) -> None:
    details = {"4502": {"group": group, "parent": parent}}
    session, _ = observe(guest(), records=records(details=details))
    assert tables.owner_name(session, 4502) == owner


def test_running_totals_are_the_seconds_since_the_start() -> None:
    """Samples are 100 ms apart, and every tenth one has a report of tasks."""
    machine = guest()
    session = Session(machine.hello)
    session.run.track_losses()
    session_of(session, [machine.frame(s, records={} if s % 10 else records()) for s in range(301)])
    observed = session, session.take_interval()
    lines = [strips.text(line) for line, _ in tables.task_panel(*observed, ViewSettings(), 160, 10)]
    assert lines[1].split()[-2:] == ["total", "s"]
    cells = dict(zip(("name", "pid"), lines[2].split(), strict=False))
    assert cells["pid"] == "4502", "whose share is 0.479"
    assert float(lines[2].split()[-1]) == pytest.approx(30 * 0.479, abs=1.0)


def test_a_choice_of_owners_is_drawn_at_once() -> None:
    """A panel of names is otherwise drawn once a second."""
    guest_state, settings = observe(guest(), records=records()), ViewSettings()
    row = panels.PanelRow(("who",), (1,), 97, 10)
    by_task = row.lines(*guest_state, settings)
    settings.grouping = "job"
    assert row.lines(*guest_state, settings) != by_task


def test_a_line_gives_the_reason_for_missing_tasks() -> None:
    machine = guest()
    missing = [*NO_PMU, Missing("tasks", "hidepid=invisible hides them")]
    machine.hello = dataclasses.replace(machine.hello, missing=missing)
    result = text(observe(machine), 60, 4)
    assert result[1:] == ["  hidepid=invisible hides them"]
    unknown = "  no task data yet (sampled once a second)"
    assert text(observe(guest()), 60, 2)[1] == unknown
    idle = {cpu: CpuLoad(util=0.01) for cpu in (0, 1)}
    assert text(observe(guest(idle)), 60, 2)[1] == "  no task has run for a noticeable time"
    assert text(observe(guest(idle)), 36, 4)[1:] == ["  no task has run for a noticeable", "  time"]
    assert text(observe(guest(idle)), 36, 2)[1] == "  no task has run for a noticeable …"


# --- two ranges compared


@pytest.mark.parametrize(("a", "b", "tasks", "sentence"), [
    ({"lmp": 0.9}, {"cc1": 0.45, "lmp": 0.4},
     ["lmp 0.90 0.40 −0.50 CPUs", "cc1 0.00 0.45 +0.45 CPUs"],
     " cc1 used 0.45 CPUs more, lmp used 0.50 CPUs less"),
    ({"lmp": 0.5}, {"lmp": 0.8}, ["lmp 0.50 0.80 +0.30 CPUs"], " lmp used 0.30 CPUs more"),
    ({"lmp": 0.5}, {"lmp": 0.499}, ["lmp 0.50 0.50 +0.00 CPUs"], " No task used more or less"),
    ({"lmp": 0.5}, {"lmp": 0.508}, ["lmp 0.50 0.51 +0.01 CPUs"], " No task used more or less"),
])  # fmt: skip
def test_a_comparison_lists_the_tasks_with_the_largest_differences(
    a: dict[str, float], b: dict[str, float], tasks: list[str], sentence: str
) -> None:
    machine = Machine(cores=2)
    session = Session(machine.hello, History(machine.hello))
    session.run.track_losses()
    frames = []
    for seq in range(401):
        shares = (a if seq <= 200 else b).items()
        records = {"tasks": {str(i): [10 + i, *task] for i, task in enumerate(sorted(shares))}}
        frames.append(machine.frame(seq, records={} if seq % 10 else records))
    session_of(session, frames)
    first, second = (
        session.interval_at(session.hello.raw_ns + end_s * 10**9, 10 * 10**9) for end_s in (20, 40)
    )
    assert first is not None
    assert second is not None
    settings = ViewSettings(held_range=(first, verdict_at(session, first, is_range=True)))

    def panel(height: int) -> list[str]:
        lines = tables.comparison_panel(session, second, settings, 60, height)
        return [strips.text(line) for line, _ in lines]

    title, headings, busy, lost, waited, *task_lines = panel(20)
    assert title.split()[:7] == ["B", "against", "A", "10.0", "s", "and", "10.0"]
    assert headings.split() == ["A", "B", "B", "−", "A"]
    assert busy.split() == ["busy", "50.0", "50.0", "+0.0", "%"]
    assert lost.split() == ["lost", "6.2", "6.2", "+0.0", "%"]
    assert waited.split() == ["waited", "–", "–", "–", "CPUs"]
    assert [" ".join(line.split()) for line in task_lines[:-2]] == tasks
    assert task_lines[-2:] == ["", sentence]
    assert len(panel(8)) == 8


def test_tasks_of_a_range_are_means_of_all_its_records() -> None:
    """The hog ends before the range does. The task that moves between the CPUs waits for as long
    as it does on one CPU."""
    machine = guest()
    session = Session(machine.hello, History(machine.hello))
    frames = [machine.frame(seq) for seq in range(101)]
    for second in range(1, 11):
        others: dict[str, Any] = {"0": [], "1": []}
        waits: dict[str, Any] = {"0": [], "1": []}
        others[str(second % 2)].append([8, "moves", 0.5])
        waits[str(second % 2)].append([0.4, 20])
        if second <= 5:
            others["0"].append([7, "hog", 0.3])
            waits["0"].append([None, 10])
        ranked = {cpu: tasks for cpu, tasks in others.items() if tasks}
        firsts = {cpu: tasks[0] for cpu, tasks in ranked.items()}
        frames[10 * second].records.update(tasks=firsts, others=ranked, waits=waits)
    session_of(session, frames)
    span_s = 10
    interval = session.interval_at(session.now_ns, span_s * 10**9)
    assert interval is not None
    moves, hog = tables.task_ranking(session, interval).top_tasks(9)
    assert (moves.comm, hog.comm) == ("moves", "hog")
    assert moves.shares == pytest.approx({0: 0.25, 1: 0.25})
    assert (moves.threads, moves.wait_share, moves.switches_per_s) == pytest.approx((1, 0.4, 20))
    assert hog.shares == pytest.approx({0: 0.15})
    assert hog.switches_per_s == pytest.approx(5)
    assert math.isnan(hog.wait_share)
    settings = ViewSettings(range_ns=(interval.time_ns - span_s * 10**9, interval.time_ns))
    title, *_ = tables.task_panel(session, interval, settings, 97, 10)
    assert strips.text(title[0]).startswith("who ran  % of a CPU, in A, 10.0 s ")


def test_tasks_of_one_name_are_told_apart_by_their_command_lines() -> None:
    details = {
        "4502": {"command": "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet -O2 src/lane.cpp"},
        "4509": {"command": "/usr/bin/cc1plus a.cc"}, "812": {"command": "postgres: writer"},
    }  # fmt: skip
    observed = observe(guest(), records=records(details=details))
    lines = text(observed, 97, 12)
    assert lines[1].endswith("command")
    ends = {line.split()[1]: line for line in lines[2:]}
    assert ends["4502"].endswith(" -quiet -O2 src/lane.…")
    assert ends["4509"].endswith(" /usr/bin/cc1plus a.cc")
    assert ends["812"].endswith(" postgres: writer")
    assert not any("command" in line for line in text(observed, 60, 12))
    low = text(observed, 97, 4)  # spare cells show it even where there is no room for bars
    assert low[0].endswith("command")
    assert any(" -quiet -O2 " in line for line in low[1:])


@pytest.mark.parametrize(("share", "wait", "task_style", "wait_style"), [
    (0.05, 0.2, "text", "text"), (0.049, 0.201, "dim", "alarm"), (0.3, 0.25, "text", "alarm"),
    (0.3, None, "text", "faint"),
])  # fmt: skip
def test_a_task_that_hardly_runs_is_dim_and_a_long_wait_is_red(
    share: float, wait: float | None, task_style: str, wait_style: str
) -> None:
    others = {"0": [[7, "job", share]]}
    changes = {"others": others, "tasks": {"0": others["0"][0]}, "waits": {"0": [[wait, 5]]}}
    session, interval = observe(guest(), records=records(**changes))
    ranking = tables.task_ranking(session, interval)
    moment = session.interval_at(session.now_ns, 10**9)
    assert moment is not None
    assert tables.task_ranking(session, moment) is not ranking
    assert tables.task_ranking(session, interval) is ranking, "both stand side by side"
    columns = tables.task_columns(session, interval, ranking, 97, is_low=False)
    (task,) = ranking.top_tasks(1)
    cells = dict(zip([c.key for c in columns],
                     tables.task_cells(task, columns, session, interval), strict=True))  # fmt: skip
    assert (cells["name"][1], cells["waits"][1]) == (task_style, wait_style)
    assert cells["pid"] == ("7", "dim")


@pytest.mark.parametrize(("run_share", "wait_share", "size", "cells"), [
    (0.5, 0.25, 8, "━━━━┅┅──"), (0.5, math.nan, 8, "━━━━────"), (1.7, 0.5, 8, "━━━━━━━━"),
    (0.9, 0.5, 8, "━━━━━━━┅"), (0.0, 0.0, 4, "────"),
])  # fmt: skip
def test_a_bar_shows_that_a_task_ran_waited_and_slept(
    run_share: float, wait_share: float, size: int, cells: str
) -> None:
    assert strips.text(tables.task_bar(run_share, wait_share, size)) == cells


@pytest.mark.parametrize(("command", "size", "text"), [
    ("/usr/bin/job a", 14, "/usr/bin/job a"), ("/usr/bin/job a", 13, "job a        "),
    ("/usr/bin/job abcdef", 9, "abcdef   "), ("/usr/bin/other abcdef", 9, "other ab…"),
    ("/usr/bin/job", 5, "job  "), ("/usr/lib/job", 2, "j…"),
])  # fmt: skip
def test_a_long_command_loses_its_directory_and_then_its_name(
    command: str, size: int, text: str
) -> None:
    assert tables.fit_command(command, "job", size) == text


@pytest.mark.parametrize(("name", "size", "text"), [
    ("/a/long/group", 20, "/a/long/group"), ("/a/long/group", 6, "…group"), ("/ab", 1, "…"),
    ("a-long-name", 6, "a-lon…"), ("short", 9, "short"),
])  # fmt: skip
def test_a_path_keeps_its_end(name: str, size: int, text: str) -> None:
    assert tables.cut_name(name, size) == text
