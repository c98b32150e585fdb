"""The view of neighbours on the screen."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import synth
from fakes import CpuLoad, Machine
from played_apps import Run, running_app
from waiting import until_true

from perfprobe import wire
from perftop.draw import strips
from perftop.draw.strips import cut_runs
from perftop.model.kinds import Episode
from perftop.output.report import Report
from perftop.output.why_text import why_json
from perftop.tui.shared import loss_panels
from perftop.tui.shared.loss_panels import eighths_lines
from perftop.tui.shared.verdict import loss_history, verdict_at
from perftop.tui.views import flows
from perftop.tui.views.flows import Flow, find_flows, flow_details
from perftop.tui.views.neighbours import Neighbours, draw_ribbons

LMP, STREAM = [4000, "lmp", 0.95], [4001, "stream", 0.95]
REST = CpuLoad(util=0.01, system=0.0)


def lines(run: Run) -> list[str]:
    view = run.app.screen_stack[0].query_one(Neighbours)
    return [view.render_line(y).text.rstrip() for y in range(view.size.height)]


async def wait_for_text(run: Run, text: str) -> None:
    await until_true(lambda: any(text in line for line in lines(run)), f"{text!r} in view 6", 10.0)


def machine_of_two_cores(**more: Any) -> Machine:
    """Returns a machine of two cores, of which only CPU 0 is busy."""
    machine = Machine(cores=2, **more)
    machine.loads = dict.fromkeys(range(4), REST) | {0: CpuLoad(1.0, ipc=2.0)}
    return machine


# --- a watched job


def watched_record(seq: int, cpus: tuple[int, ...], share: float) -> dict[str, Any]:
    """Threads of a job that run for this share of the time and wait for the rest of it."""
    ns = seq * synth.SAMPLE_NS
    run_ns = int(share * ns)
    threads = {str(4100 + cpu): [4000, "lmp", cpu, run_ns, ns - run_ns, 0, seq] for cpu in cpus}
    return {"watched": {"threads": threads, "more": 0}}


async def play_watched_job(run: Run, intervals: int, cpus: tuple[int, ...], share: float) -> None:
    others = {"0": [STREAM, LMP]}
    last = run.seq() + intervals
    for _ in range(2 * intervals):
        output = watched_record(run.feed.seq, cpus, share) | {
            "tasks": {"0": STREAM},
            "others": others,
        }
        run.feed.frames(1, records=output)
    await until_true(lambda: run.seq() >= last, "the intervals")
    await run.pilot.pause()


async def test_a_past_moment_shows_its_job() -> None:
    async with running_app(machine_of_two_cores(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await play_watched_job(run, 15, (0, 1), 0.5)
        await wait_for_text(run, "runs 1.00 CPUs   waits 50.0 %")
        await play_watched_job(run, 20, (0, 1), 1.0)
        await wait_for_text(run, "waits 0.0 %")
        await run.pilot.press("space", "shift+left", *["right"] * 10)
        await wait_for_text(run, "runs 1.00 CPUs   waits 50.0 %")


async def test_a_job_without_threads_is_reported() -> None:
    async with running_app(machine_of_two_cores(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await run.send_intervals(1)
        await wait_for_text(run, "lmp  its threads are not known yet")
        await run.send_intervals(2, records={"watched": {"threads": {}, "more": 0}})
        await wait_for_text(run, "lmp  is not running")


async def test_a_thread_on_an_unknown_cpu_is_counted() -> None:
    async with running_app(machine_of_two_cores(changes={"watch": "lmp"})) as run:
        await run.pilot.press("6")
        await play_watched_job(run, 5, (0, 99), 1.0)
        await wait_for_text(run, "lmp  2 threads   on CPU 0   runs 2.00 CPUs")


# --- unavailable data and small screens


@pytest.mark.parametrize(("machine", "why"), [
    (Machine(split=False), "how long two threads ran at once is known only within bounds"),
    (Machine(cores=2, threads=4), "only detected on cores with two threads"),
])  # fmt: skip
async def test_unchecked_siblings_are_reported_with_the_reason(machine: Machine, why: str) -> None:
    async with running_app(machine) as run:
        await run.pilot.press("6")
        await run.send_intervals(20)
        await wait_for_text(run, f"siblings: {why}")


@pytest.mark.parametrize("ascii_", [False, True])
async def test_all_lines_are_as_wide_as_the_screen(ascii_: bool) -> None:
    async with running_app(machine_of_two_cores(changes={"watch": "lmp"}), ascii_=ascii_) as run:
        await run.pilot.press("6")
        await play_watched_job(run, 8, (0, 1), 0.75)
        view = run.app.screen_stack[0].query_one(Neighbours)
        for size in ((80, 24), (63, 24), (120, 30), (240, 70), (40, 10), (20, 5)):
            await run.pilot.resize_terminal(*size)
            await run.pilot.pause()
            made_of = [view.render_line(y) for y in range(view.size.height)]
            assert {strip.cell_length for strip in made_of} == {size[0]}
            assert not ascii_ or all(strip.text.isascii() for strip in made_of)
            if size[0] >= 63:
                assert any("stream" in strip.text for strip in made_of)
                assert any("preempted/s" in strip.text for strip in made_of)


async def test_a_job_that_is_watched_by_its_pid_has_the_name_of_the_verdict() -> None:
    async with running_app(machine_of_two_cores(changes={"watch": "4000"}), (160, 50)) as run:
        await run.pilot.press("6")
        start = {"pid": 4000, "argv": ["make", "-j2"]}
        run.source.session.apply(wire.Note("run-start", 0, data=start))
        await play_watched_job(run, 20, (0,), 0.5)
        await wait_for_text(run, "make 4000  1 thread")
        assert report_of(neighbours_of(run)).job == "make"


# --- flows

TASKS = {"0": [4000, "lmp", 0.5], "1": [4009, "lmp", 0.5]}
QUEUES = {"0": [[4000, "lmp", 0.25], [4001, "stream", 0.5], [4002, "cc", 0.25]],
          "1": [[4009, "lmp", 0.5], [4008, "stream", 0.5]]}  # fmt: skip
WAITS = {"0": [[0.75, 9.0], [0.5, 9.0], [0.5, 9.0]], "1": [[0.5, 9.0], [0.5, 9.0]]}
QUEUED = {"tasks": TASKS, "others": QUEUES, "waits": WAITS}


async def queue(run: Run) -> None:
    run.feed.machine.loads |= {0: CpuLoad(1.0), 1: CpuLoad(1.0)}
    await run.pilot.press("6")
    await run.send_intervals(20, records=QUEUED)
    await wait_for_text(run, "takes from")


def neighbours_of(run: Run) -> Neighbours:
    return run.app.screen_stack[0].query_one(Neighbours)


def report_of(view: Neighbours) -> Report:
    verdict = verdict_at(view.session, view.interval)
    assert verdict is not None
    assert verdict.report is not None
    return verdict.report


async def test_flows_have_the_times_of_why() -> None:
    async with running_app(machine_of_two_cores(), (160, 50)) as run:
        await queue(run)
        view = neighbours_of(run)
        report = report_of(view)
        line = why_json(report, None)
        for folded in (True, False):
            result = find_flows(view.session, report, view.session.selected, folded=folded)
            lost_s = sum(it["lost_s"] for it in line["causes"] if it["kind"] == "neighbour")
            assert sum(flow.lost_s for flow in result) == pytest.approx(lost_s)
            assert sum(sum(flow.pairs.values()) for flow in result) == pytest.approx(lost_s)
        assert {flow.cause for flow in result} == {"scheduler", ""}
        assert len(result) > 4
        tiny = {cause: lost_s * 1e-3 for cause, lost_s in report.sums.by_cause.items()}
        totals = replace(report.totals, losses=report.sums._replace(by_cause=tiny))
        rest = replace(report, totals=totals)
        assert find_flows(view.session, rest, view.session.selected, folded=True) == []


async def test_the_sum_of_small_flows_can_be_the_longest_bar() -> None:
    async with running_app(machine_of_two_cores(), (160, 50)) as run:
        await queue(run)
        view = neighbours_of(run)
        inputs, flows = view._flows
        small_flows = replace(flows[0], culprit="others", victim="others", cause="", lost_s=9.0)
        view._flows, view._rows = (inputs, [*flows, small_flows]), [*flows, small_flows]
        lines = [strips.text(view.line(y)[0]) for y in (0, len(flows))]
        assert len(lines[0]) == len(lines[1]) <= 160
        assert 0 < lines[0].count("█") < lines[1].count("█")


async def test_losses_over_time_are_those_of_the_session() -> None:
    async with running_app(machine_of_two_cores(), (160, 60)) as run:
        await queue(run)
        session = neighbours_of(run).session
        ends_ns = np.array([session.hello.raw_ns, session.now_ns])
        _, wanted_s, by_cause = loss_history(session).between(ends_ns)
        losses = session.run.totals().losses
        assert (
            wanted_s.item(),
            sum(lost_s.item() for lost_s in by_cause.values()),
        ) == pytest.approx((losses.whole_s, losses.lost_ratio * losses.whole_s), rel=0.2)
        await wait_for_text(run, "over time  CPU s lost per second")
        (title,) = (line for line in lines(run) if "over time" in line)
        assert title.endswith(" ▀▀ waits")


def test_losses_are_stacked_by_their_rates() -> None:
    rates = {"scheduler": np.array([1.0, np.nan, 2.0]), "sibling": np.array([0.5, 0.0, 0.0])}
    drawn = eighths_lines(loss_panels._stacked_columns(rates, 2.0, 4))
    for x, heights in enumerate([(2, 1), (0, 0), (4, 0)]):
        styles = [style for line in drawn for _, style in cut_runs(line, x, x + 1)]
        assert (styles.count("loss-11"), styles.count("lp1-4")) == heights


def test_a_flow_of_one_pair_is_known_by_its_pids() -> None:
    """A flow of several pairs keeps its identity when pairs are added."""
    pairs = {(1, 2, 0): 1.0, (1, 2, 4): 0.5}
    names = "a", "x", "sibling"
    assert Flow(*names, 1.5, pairs).key == (*names, (1, 2))
    assert Flow(*names, 2.0, pairs | {(3, 2, 0): 0.5}).key == names


def test_the_losses_of_a_cpu_are_added_and_the_largest_comes_first() -> None:
    flow = Flow("a", "x", "sibling", 4.0, {(1, 2, 0): 1.0, (3, 2, 0): 0.5, (1, 2, 4): 2.5})
    assert [*flow.cpus.items()] == [(4, 2.5), (0, 1.5)]


@pytest.mark.parametrize(("lost_s", "whole_s", "shown_s"), [
    ([0.3, 0.05, 1.0, 0.29], 9.0, [1.0, 0.3, 0.34]), ([0.3, 0.049], 9.0, [0.3]),
    ([0.3, 0.05], 1e6, [0.3, 0.05]), ([0.29, 0.1], 39.0, [0.29, 0.1]), ([0.29, 0.1], 39.1, []),
    ([], 1.0, []),
])  # fmt: skip
def test_flows_below_their_limit_are_joined(
    lost_s: list[float], whole_s: float, shown_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flows of 0.3 s are shown alone, smaller ones together from 0.05 s. If all are smaller, they
    are shown from 1 % of the time."""
    parts = [((i, f"t{i}"), (99, "victim"), part, 9.0) for i, part in enumerate(lost_s, 1)]
    monkeypatch.setattr(
        flows, "_ReportTasks", lambda *_: SimpleNamespace(loss_parts=lambda *_: parts)
    )
    sums = SimpleNamespace(by_cause={("neighbour", "scheduler"): [1.0]}, whole_s=whole_s)
    session: Any = SimpleNamespace(topology=[SimpleNamespace(cpu=0)])
    found = find_flows(session, SimpleNamespace(sums=sums), [0], folded=True)  # type: ignore[arg-type]
    assert [flow.lost_s for flow in found] == pytest.approx(shown_s)
    assert [flow.culprit for flow in found].count("others") == (
        len(shown_s) > 1 and len(lost_s) > 1
    )


@pytest.mark.parametrize(("weights", "parts"), [
    ([98.0, 2.0], [0.98, 0.02]), ([98.1, 1.9], [1.0]), ([0.0, 3.0], [1.0]), ([0.0], [1.0]),
    ([], [1.0]),
])  # fmt: skip
def test_shares_of_tasks_add_up_without_small_ones(
    weights: list[float], parts: list[float]
) -> None:
    by_task = {(i, "task"): weight for i, weight in enumerate(weights, 1)}
    result = flows._normalize_weights(by_task)
    assert [*result.values()] == pytest.approx(parts)
    assert (flows.UNKNOWN_TASK in result) == (not any(weights))


def test_a_thin_ribbon_has_no_gaps() -> None:
    wanted_s = {(2, 0): 9.0, (6, 0): 9.0}
    shown = [Flow("a", "x", "scheduler", 8.0, {(1, 2, 0): 8.0}, wanted_s),
             Flow("b", "x", "sibling", 0.4, {(3, 6, 0): 0.4}, wanted_s)]  # fmt: skip
    drawn, _ = draw_ribbons(shown, 160, 12)
    for x in range(27, 130):  # in the last cells, it is beside the other ribbon
        styles = [style for line in drawn for _, style in cut_runs(line, x, x + 1)]
        assert any("lp1-4" in style for style in styles), x


async def test_the_copied_remedy_names_no_ended_process() -> None:
    async with running_app(machine_of_two_cores(), (160, 50)) as run:
        await queue(run)
        command = "chrt --idle --all-tasks --pid 0 4001"
        await wait_for_text(run, command)
        await run.pilot.press("y", "y")
        assert run.app.clipboard == command
        taker_ended = {key: [task for task in tasks if task[0] != 4001] for key, tasks
                       in QUEUES.items()}  # fmt: skip
        await run.send_intervals(5, records=QUEUED | {"others": taker_ended})
        await wait_for_text(run, "chrt --idle --all-tasks --pid 0 4008")
        await run.send_intervals(5, records={"tasks": {"0": LMP}, "others": {}})
        await until_true(lambda: not any("chrt" in line for line in lines(run)), "no command")
        assert any("stream ×2 takes from" in line for line in lines(run))


async def test_the_gain_of_a_command_for_one_of_several_processes_is_of_all() -> None:
    async with running_app(machine_of_two_cores(), (160, 50)) as run:
        await queue(run)
        command = "chrt --idle --all-tasks --pid 0 4001"
        await wait_for_text(run, "for all 2: lmp")
        assert any(command in line for line in lines(run))
        await run.pilot.press("t")
        await wait_for_text(run, "stream 4001 takes from lmp 4000")
        await wait_for_text(run, "expected: lmp 4000 gets back")


async def test_the_remedy_of_a_cause_is_not_used_for_flows_of_other_tasks() -> None:
    async with running_app(machine_of_two_cores(), (160, 50)) as run:
        await queue(run)
        view = neighbours_of(run)
        report = report_of(view)
        for culprit, is_named in ((4001, True), (4008, False)):
            flow = Flow("stream", "stream", "scheduler", 4.0, {(culprit, 4009, 0): 4.0})
            texts = flow_details(view.session, report, flow, is_largest=True)
            assert any("--pid 0 4001" in text for _, text in texts) == is_named


@pytest.mark.parametrize(("evidence", "gain"), [
    ({"ipc": 0.5, "ipc_alone": 1.25}, "back to IPC 1.25, from 0.50"), ({"ipc": 0.5}, "up to 4.0 s"),
    ({"ipc_alone": 1.25}, "up to 4.0 s"),
])  # fmt: skip
async def test_the_gain_is_an_ipc_if_it_is_known_with_and_without_the_neighbour(
    evidence: dict[str, float], gain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(machine_of_two_cores(), (160, 50)) as run:
        await queue(run)
        view = neighbours_of(run)
        episode = Episode("neighbour", [0], 0, None, None, "cache", evidence=evidence)
        monkeypatch.setattr(view.session, "episodes", lambda *_: [episode])
        flow = Flow("stream", "stream", "cache", 4.0, {(4001, 4009, 0): 4.0})
        texts = dict(flow_details(view.session, report_of(view), flow, is_largest=True))
        assert gain in texts[""]


@pytest.mark.parametrize(
    ("starts_s", "count"), [((0,), ""), ((0, 1), "; 2 times in the last hour")]
)
async def test_a_running_flow_has_its_start_and_its_number_of_episodes(
    starts_s: tuple[int, ...], count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(machine_of_two_cores(), (160, 50)) as run:
        await queue(run)
        view = neighbours_of(run)
        ends_ns = [*(s * 10**9 + 1 for s in starts_s[:-1]), None]
        episodes = [
            Episode("neighbour", [0], s * 10**9, end_ns, None, "cache")
            for s, end_ns in zip(starts_s, ends_ns, strict=True)
        ]
        monkeypatch.setattr(view.session, "episodes", lambda *_: episodes)
        flow = Flow("stream", "stream", "cache", 4.0, {(4001, 4009, 0): 4.0})
        texts = dict(flow_details(view.session, report_of(view), flow, is_largest=True))
        start, _, rest = texts["since"].partition(", ")
        assert start == f"22:13:2{starts_s[-1]}"
        assert rest.partition(" s")[2] == count
