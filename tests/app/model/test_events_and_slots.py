"""Chosen events and issue slots, against the truth of a simulated machine."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from played import played
from simulated import lasting, messages

from perfprobe import wire
from perfprobe.wire import Frame
from perftop.model.delta import Doubt
from perftop.model.evaluation import Values
from perftop.model.gates import SLOT_KEYS
from perftop.model.numbers import METRICS
from perftop.output import run_summary, stat_json
from perftop.output.stat_table import StatTable
from perftop.session.interval import Interval
from perftop.session.missing import DOUBTS
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


def test_multiplexed_events_are_scaled_and_marked() -> None:
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


# --- where issue slots go, against the truth of a simulated machine, and what cannot be


SPEC = "sim:smt-mix,cpus=4,slots=1"


def seen_slots(*, wrong: bool = False) -> Session:
    """`wrong`: what retired counts half."""
    hello, found = messages(SPEC, 21)
    session = Session(hello)
    block = hello.blocks[0]
    at = [counter.key for counter in block.counters].index("topdown_retiring")
    for message in found:
        if wrong and isinstance(message, wire.Frame):
            rows = message.blocks["cpu"]
            values = np.frombuffer(rows.values, np.uint64).reshape(4, -1).copy()
            values[:, at] //= 2
            changed = {"cpu": dataclasses.replace(rows, values=values.tobytes())}
            session.apply(dataclasses.replace(message, blocks=message.blocks | changed))
        else:
            session.apply(message)
    return session


def test_four_ways_that_add_up() -> None:
    interval = seen_slots().take()
    for row in range(4):
        shares = [float(interval.values[f"{key}_ratio"][row]) for key in SLOT_KEYS]
        assert sum(shares) == pytest.approx(1, abs=1e-4)
        assert shares[0] == pytest.approx(float(interval.values["ipc"][row]) / 4, rel=1e-4)
        left = 1 - shares[0]
        assert shares[1:] == pytest.approx([left * 0.05, left * 0.1, left * 0.85], rel=1e-3)
    assert interval.suspect == {}


def test_slots_that_go_to_the_sibling() -> None:
    session = seen_slots()
    interval = session.take()
    for core, (first, _) in enumerate(session.cores):
        row = session.position[first]
        both = float(interval.split.shares(core)["both"])
        cycles = float(interval.counts["cycles"][row]) / interval.elapsed_s
        given = float(interval.values["smt_contention_ratio"][row])
        assert given == pytest.approx(both * 0.3 * 2.1e9 / cycles, rel=0.02)


def test_slots_that_do_not_add_up_are_suspect() -> None:
    session = seen_slots(wrong=True)
    interval = session.take()
    assert ("topdown_retiring", Doubt.SLOTS) in interval.suspect[1]
    assert np.isnan(interval.values["topdown_backend_ratio"]).all()
    assert np.isfinite(interval.values["ipc"]).all()
    assert set(Doubt) == set(DOUBTS)


def test_a_machine_without_them_has_no_such_number() -> None:
    session = Session(messages("sim:smt-mix,cpus=4", 0)[0])
    assert not session.evaluator.registry.events


def test_a_sibling_that_takes_slots_is_measured() -> None:
    hello, found = lasting("sim:neighbour,cpus=8,slots=1", 19.1)
    session = played(Session(hello), found)
    episode = next(e for e in session.ended if e.kind == "neighbour" and e.cause == "sibling")
    both = 0.971 * 0.3 * 2.1e9 / 3.7e9
    assert episode.evidence["slots_to_sibling"] == pytest.approx(both, abs=0.01)
    assert episode.confidence == "measured"
