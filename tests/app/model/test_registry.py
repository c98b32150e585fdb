"""Chosen events as metrics of their stream, against the truth of a simulated machine."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from played import played
from simulated import messages

from perfprobe.wire import Frame
from perftop.base.text import in_ascii
from perftop.draw.columns import ESTIMATED, Column
from perftop.model.delta import Doubt
from perftop.model.evaluation import Values
from perftop.model.numbers import METRICS
from perftop.output import run_summary, stat_json
from perftop.output.stat_table import StatTable
from perftop.session.history import History, edges
from perftop.session.interval import Interval
from perftop.session.session import Session


def seen(events: str, frames: int = 21, spec: str = "sim:smt-mix,cpus=4") -> Session:
    hello, found = messages(spec, frames, events=events)
    return played(Session(hello), found)


def at(interval: Interval, key: str, row: int = 0) -> float:
    return float(interval.values[key][row])


def test_rates_and_counts_per_thousand_instructions() -> None:
    session = seen("context-switches,branches,branches:k,cycles")
    interval = session.take()
    everything = [*session.evaluator.metrics]
    assert everything[: len(METRICS)] == [*METRICS]
    assert everything[len(METRICS) :][:2] == ["e.context-switches", "e.context-switches/ki"]
    for row in range(4):
        instructions = interval.counts["instructions"][row]
        assert interval.counts["e.branches"][row] == pytest.approx(instructions / 5, rel=1e-5)
        assert at(interval, "e.branches/ki", row) == pytest.approx(200, rel=1e-5)
        rate = instructions / 5 / interval.elapsed_s
        assert at(interval, "e.branches", row) == pytest.approx(rate, rel=1e-3)
        kernel = interval.counts["kernel_instructions"][row]
        assert interval.counts["e.branches:k"][row] == pytest.approx(kernel / 5, rel=1e-4)
    assert interval.shares["e.branches"].tolist() == [1.0] * 4
    everyone = [0, 1, 2, 3]
    total = sum(at(interval, "e.branches", row) for row in everyone)
    assert interval.values.mean("e.branches", everyone) == pytest.approx(total)  # the sum
    assert interval.values.mean("e.branches/ki", everyone) == pytest.approx(200, rel=1e-5)


def test_what_takes_turns_is_scaled_and_told() -> None:
    session = seen("branches,branch-misses,cache-references,cache-misses,cycles,context-switches")
    interval = session.take()
    for key, of in (("branches", 5), ("branch-misses", 400), ("cache-misses", 800)):
        assert at(interval, f"e.{key}/ki", 1) == pytest.approx(1000 / of, rel=1e-3)
        assert interval.shares[f"e.{key}"][1] == pytest.approx(3 / 5, rel=1e-6)
    line = json.loads(stat_json.text(stat_json.interval_line(session, interval)))
    cpu = line["cpus"][1]
    assert cpu["e.cycles"] == pytest.approx(cpu["net_hz"], rel=1e-3)
    assert set(cpu["counted_events"]) == {
        f"e.{key}" for key in ("branches", "branch-misses", "cache-references", "cache-misses",
                               "cycles")
    }  # fmt: skip
    assert cpu["counts"]["e.branches"] == int(interval.counts["e.branches"][1])
    table = StatTable(session)
    lines = table.lines(interval)
    assert sum("(60 %)" in line for line in lines) == 4
    assert any("branch-misses/ki" in line for line in lines)
    measure = run_summary.summary_line(session, {}, 2.0)["machine"]["e.branch-misses/ki"]
    assert measure["mean"] == pytest.approx(2.5, rel=1e-3)
    assert measure["min"] <= measure["p5"] <= measure["mean"] <= measure["max"]


def test_the_times_of_a_group_scale_its_own_block_only() -> None:
    alone = seen("context-switches").take()
    beside = seen("branches,branch-misses,cache-misses,cycles,instructions").take()
    for key in ("busy_hz", "ipc", "util"):
        assert beside.values[key].tolist() == alone.values[key].tolist()


def test_history_knows_them() -> None:
    hello, told = messages("sim:smt-mix,cpus=4", 10, events="branches")
    session = played(Session(hello, History(hello)), told)
    assert session.history is not None
    last = session.history.last_ns or 0
    found = session.history.field("e.branches/ki", [0, 1], edges(last, 500_000_000, 2))
    assert found.shape == (2, 2)
    assert all(math.isclose(value, 200, rel_tol=1e-3) for value in found.ravel())


@pytest.mark.parametrize("what", ["e.branches", "perf_running_s", "perf_enabled_s"])
def test_a_rate_above_what_is_possible_is_doubted(what: str) -> None:
    """Somebody wrote the event's counter, or the times of its group: the event is unknown then, and
    nothing else is."""
    hello, found = messages("sim:smt-mix,cpus=4", 12, events="branches,cycles")
    session = Session(hello)
    block = next(b for b in hello.blocks if b.name == "events.1")
    column = [counter.key for counter in block.counters].index(what)
    for message in found:
        if isinstance(message, Frame) and message.seq >= 6:
            rows = message.blocks["events.1"]
            values = np.frombuffer(rows.values, np.uint64).reshape(4, -1).copy()
            values[2, column] += np.uint64(10**13)
            changed = {"events.1": dataclasses.replace(rows, values=values.tobytes())}
            session.apply(dataclasses.replace(message, blocks=message.blocks | changed))
        else:
            session.apply(message)
    interval = session.take()
    assert ("e.branches", Doubt.JUMPED) in interval.suspect[2]
    assert {key for key, _ in interval.suspect[2]} <= {"e.branches", "e.cycles", what}
    assert [*interval.suspect] == [2]
    for row in range(4):  # the other samples stay
        assert at(interval, "e.branches/ki", row) == pytest.approx(200, rel=1e-3)
        assert math.isfinite(at(interval, "ipc", row))


def test_a_screen_marks_estimates() -> None:
    assert Column("", "", 8, digits=1).cell(12.3, estimated=True) == (f"{ESTIMATED}12.3", "text")
    assert in_ascii(ESTIMATED) == "~"


@pytest.mark.parametrize("cpus", [2, 64, 1024])
def test_some_metrics_of_a_group_are_those_of_all_of_them(cpus: int) -> None:
    """To the last digit."""
    some = np.random.default_rng(cpus)
    top, bottom = some.random((2, len(METRICS), cpus))
    top[some.random(top.shape) < 0.1] = np.nan
    values = Values(top, bottom)
    for rows in ([*range(cpus)], [*range(0, cpus, 3)], slice(None)):
        for metrics in ([0, 3], [5, 1, 2]):
            found = values.group(rows)[metrics]
            assert np.array_equal(values.group(rows, metrics), found, equal_nan=True)
