"""Chosen events, issue slots, and multiplexed counters."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import synth
from sessions import session_of
from sim_streams import messages
from synth import frame

from perfprobe import wire
from perfprobe.wire import Frame
from perftop.model.counters import Counters
from perftop.model.delta import Delta, Doubt
from perftop.model.evaluation import Values
from perftop.model.numbers import METRICS
from perftop.output import run_summary, stat_lines
from perftop.output.stat_lines import StatTable
from perftop.session.interval import Interval
from perftop.session.session import Session


def session_with_events(events: str, frames: int = 21, spec: str = "sim:smt-mix,cpus=4") -> Session:
    hello, result = messages(spec, frames, events=events)
    return session_of(Session(hello), result)


def value_of(interval: Interval, key: str, row: int = 0) -> float:
    return float(interval.values[key][row])


def test_rates_and_counts_per_thousand_instructions_are_computed() -> None:
    session = session_with_events("context-switches,branches,branches:k,cycles")
    interval = session.take_interval()
    everything = [*session.evaluator.metrics]
    assert everything[: len(METRICS)] == [*METRICS]
    assert everything[len(METRICS) :][:2] == ["e.context-switches", "e.context-switches/ki"]
    for row in range(4):
        instructions = interval.counts["instructions"][row]
        assert interval.counts["e.branches"][row] == pytest.approx(instructions / 5, rel=1e-5)
        assert value_of(interval, "e.branches/ki", row) == pytest.approx(200, rel=1e-5)
        rate = instructions / 5 / interval.elapsed_s
        assert value_of(interval, "e.branches", row) == pytest.approx(rate, rel=1e-3)
        kernel = interval.counts["kernel_instructions"][row]
        assert interval.counts["e.branches:k"][row] == pytest.approx(kernel / 5, rel=1e-4)
    assert interval.event_counted_shares["e.branches"].tolist() == [1.0] * 4
    everyone = [0, 1, 2, 3]
    total = sum(value_of(interval, "e.branches", row) for row in everyone)
    assert interval.values.mean("e.branches", everyone) == pytest.approx(total)  # the sum
    assert interval.values.mean("e.branches/ki", everyone) == pytest.approx(200, rel=1e-5)


def test_a_standard_event_uses_its_own_counter() -> None:
    hello, result = messages("sim:smt-mix,cpus=4", 21, events="branches")
    hello = dataclasses.replace(hello, aliases={"e.ref-cycles": "ref", "e.none": "none"})
    session = session_of(Session(hello), result)
    interval = session.take_interval()
    assert "e.none" not in session.evaluator.metrics
    for row in range(4):
        ref = interval.counts["ref"][row]
        assert interval.counts["e.ref-cycles"][row] == ref
        assert value_of(interval, "e.ref-cycles", row) == pytest.approx(
            ref / interval.elapsed_s, rel=1e-3
        )
        per_ki = 1000 * ref / interval.counts["instructions"][row]
        assert value_of(interval, "e.ref-cycles/ki", row) == pytest.approx(per_ki)


def test_multiplexed_events_are_scaled_and_marked() -> None:
    session = session_with_events(
        "branches,branch-misses,cache-references,cache-misses,cycles,context-switches"
    )
    interval = session.take_interval()
    for key, of in (("branches", 5), ("branch-misses", 400), ("cache-misses", 800)):
        assert value_of(interval, f"e.{key}/ki", 1) == pytest.approx(1000 / of, rel=1e-3)
        assert interval.event_counted_shares[f"e.{key}"][1] == pytest.approx(3 / 5, rel=1e-6)
    line = json.loads(stat_lines.line_text(stat_lines.interval_line(session, interval)))
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
    measure = run_summary.summary_line(session, {})["machine"]["e.branch-misses/ki"]
    assert measure["mean"] == pytest.approx(2.5, rel=1e-3)
    assert measure["min"] <= measure["p5"] <= measure["mean"] <= measure["max"]


def test_the_times_of_a_group_scale_only_its_block() -> None:
    alone = session_with_events("context-switches").take_interval()
    beside = session_with_events(
        "branches,branch-misses,cache-misses,cycles,instructions"
    ).take_interval()
    for key in ("busy_hz", "ipc", "util"):
        assert beside.values[key].tolist() == alone.values[key].tolist()


@pytest.mark.parametrize("changed_value", ["e.branches", "perf_running_s", "perf_enabled_s"])
def test_an_impossible_rate_is_doubted(changed_value: str) -> None:
    """Another program changed the event's counter or the times of its group: only this event
    becomes unknown."""
    hello, result = messages("sim:smt-mix,cpus=4", 12, events="branches,cycles")
    session = Session(hello)
    block = next(b for b in hello.blocks if b.name == "events.1")
    column = [counter.key for counter in block.counters].index(changed_value)
    for message in result:
        if isinstance(message, Frame) and message.seq >= 6:
            rows = message.blocks["events.1"]
            values = np.frombuffer(rows.values, np.uint64).reshape(4, -1).copy()
            values[2, column] += np.uint64(10**13)
            changed = {"events.1": dataclasses.replace(rows, values=values.tobytes())}
            session.apply(dataclasses.replace(message, blocks=message.blocks | changed))
        else:
            session.apply(message)
    interval = session.take_interval()
    assert ("e.branches", Doubt.JUMPED) in interval.suspect_counters[2]
    assert {key for key, _ in interval.suspect_counters[2]} <= {
        "e.branches",
        "e.cycles",
        changed_value,
    }
    assert [*interval.suspect_counters] == [2]
    for row in range(4):  # the other values remain
        assert value_of(interval, "e.branches/ki", row) == pytest.approx(200, rel=1e-3)
        assert math.isfinite(value_of(interval, "ipc", row))


@pytest.mark.parametrize("cpus", [2, 64, 1024])
def test_some_metrics_of_a_group_equal_those_computed_with_all_others(cpus: int) -> None:
    """The metrics are equal to the last digit."""
    some = np.random.default_rng(cpus)
    top, bottom = some.random((2, len(METRICS), cpus))
    top[some.random(top.shape) < 0.1] = np.nan
    values = Values(top, bottom)
    for rows in ([*range(cpus)], [*range(0, cpus, 3)], slice(None)):
        for metrics in ([0, 3], [5, 1, 2]):
            result = values.group(rows)[metrics]
            assert np.array_equal(values.group(rows, metrics), result, equal_nan=True)


# --- issue slots


SPEC = "sim:smt-mix,cpus=4,slots=1"


def session_with_slots(*, with_wrong_count: bool = False) -> Session:
    """Returns a session with issue slots; `with_wrong_count`: the count of retired slots is half
    the true count."""
    hello, result = messages(SPEC, 21)
    session = Session(hello)
    block = hello.blocks[0]
    index = [counter.key for counter in block.counters].index("topdown_retiring")
    for message in result:
        if with_wrong_count and isinstance(message, wire.Frame):
            rows = message.blocks["cpu"]
            values = np.frombuffer(rows.values, np.uint64).reshape(4, -1).copy()
            values[:, index] //= 2
            changed = {"cpu": dataclasses.replace(rows, values=values.tobytes())}
            session.apply(dataclasses.replace(message, blocks=message.blocks | changed))
        else:
            session.apply(message)
    return session


def test_slots_that_do_not_add_up_are_suspect() -> None:
    session = session_with_slots(with_wrong_count=True)
    interval = session.take_interval()
    assert ("topdown_retiring", Doubt.SLOTS) in interval.suspect_counters[1]
    assert np.isnan(interval.values["topdown_backend_ratio"]).all()
    assert np.isfinite(interval.values["ipc"]).all()


# --- multiplexed counters of perf: scaled to the whole span, or unknown


NS = 100_000_000  # length of a sample in ns
ENABLED, RUNNING = (
    wire.Counter(key, key, "s", "perf", scale=1e-9) for key in ("perf_enabled_s", "perf_running_s")
)
CYCLES = wire.Counter("cycles", "cycles", "cycles", "perf")
REF = wire.Counter("ref", "ref", "cycles", "perf, without guests")
APERF = wire.Counter("aperf", "aperf", "cycles", "msr PMU")
ALL = [ENABLED, RUNNING, REF, CYCLES, APERF]


def deltas(greeting: wire.Hello, *samples: synth.Values) -> tuple[Counters, list[Delta]]:
    counters = Counters(greeting)
    return counters, [counters.steps([frame(greeting, i, s)])[0] for i, s in enumerate(samples)]


def sample(
    enabled: list[int], running: list[int], cycles: list[int], aperf: list[int] | None = None
) -> synth.Values:
    return {
        "perf_enabled_s": enabled,
        "perf_running_s": running,
        "ref": cycles,
        "cycles": cycles,
        "aperf": aperf or cycles,
    }


def test_a_count_of_a_quarter_of_the_time_is_scaled_by_four() -> None:
    greeting = synth.hello(ALL, threads=2)
    counters, (_, delta) = deltas(
        greeting,
        sample([7, 7], [5, 7], [1000, 1000]),
        sample([7 + NS, 7 + NS], [5 + NS // 4, 7 + NS], [1000 + 5_000_000, 1000 + 5_000_000]),
    )
    moved = delta.tables["cpu"].increments
    assert moved[:, 2].tolist() == [20_000_000, 5_000_000]  # `ref` is also an event of perf
    assert moved[:, 3].tolist() == [20_000_000, 5_000_000]
    # the kernel never rotates the msr PMU's group
    assert moved[:, 4].tolist() == [5_000_000, 5_000_000]
    assert moved[:, :2].tolist() == pytest.approx(np.array([[0.1, 0.025], [0.1, 0.1]]))
    counted = counters.counted_share(delta)
    assert counted is not None
    assert counted.tolist() == pytest.approx([0.25, 1.0])


def test_scaled_samples_add_up() -> None:
    """The group counts for a third of the first sample (an estimate) and all of the second (an
    exact count)."""
    greeting = synth.hello(ALL, threads=1)
    counters, steps = deltas(
        greeting,
        sample([0], [0], [0]),
        sample([NS], [NS // 4], [1_000_000]),
        sample([2 * NS], [NS // 4 + NS], [1_000_000 + 6_000_000]),
    )
    total = counters.empty_delta()
    for delta in steps:
        total.add(delta[None], np.zeros(0, int))
    assert total.tables["cpu"].increments[0, 3] == 4_000_000 + 6_000_000


def test_a_counter_that_never_ran_is_unknown_instead_of_zero() -> None:
    """Other counters of the row wait for it for a quarter of a second."""
    greeting = synth.hello(ALL, threads=1)
    never = [sample([i * NS], [5], [0], [i * 12_345]) for i in range(4)]
    _, (_, *waiting, delta) = deltas(greeting, *never)
    assert [step.tables["cpu"].ticks[0] for step in waiting] == [0, 0]
    moved = delta.tables["cpu"].increments[0]
    assert np.isnan(moved[[2, 3]]).all()
    assert moved[4] == 3 * 12_345
    assert delta.suspect_counters == {}


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_row_without_counts_is_part_of_the_next_difference(batch_size: int) -> None:
    """The second thread is counted in each sample, but waits for its sibling."""
    greeting = synth.hello(ALL)
    counters = Counters(greeting)
    shares, ticks = [0.5, 0.0, 0.25, 0.0, 0.25], []
    ran = np.concatenate([[0], np.cumsum(shares)])
    frames = [
        frame(greeting, i, sample([i * NS] * 2, [int(ran[i] * NS), i * NS],
                                  [int(ran[i] * 10_000_000), i * 10_000_000]))
        for i in range(6)
    ]  # fmt: skip
    total = counters.empty_delta()
    counters.steps(frames[:1])
    for first in range(1, 6, batch_size):
        delta = counters.steps(frames[first : first + batch_size])
        ticks += (delta.tables["cpu"].ticks / (synth.TSC_HZ / 10)).tolist()
        total.add(delta, np.zeros(0, int))
    assert ticks == [[1, 1], [0, 0], [2, 2], [0, 0], [2, 2]]
    assert total.tables["cpu"].increments[:, 3].tolist() == [50_000_000, 50_000_000]
    shared = counters.counted_share(total)
    assert shared is not None
    assert shared.tolist() == [0.2, 1.0]


def test_events_may_wait_for_any_time_and_report_it() -> None:
    greeting = synth.hello([ENABLED, RUNNING, REF], threads=1)
    event = wire.Counter("e.branches", "branches", "events", "perf cpu")
    greeting.blocks.append(wire.Block("events.1", "cpu", [ENABLED, RUNNING, event]))
    session = Session(greeting)
    for seq in range(9):
        turn = (seq + 1) // 8  # only in the seventh sample
        block = greeting.blocks[1]
        rows = synth.rows(block, 1, {
            "perf_enabled_s": [seq * NS], "perf_running_s": [turn * NS // 2],
            "e.branches": [turn * 1000],
        }, [int(seq * synth.TSC_HZ / 10)])  # fmt: skip
        values = {"perf_enabled_s": [seq * NS], "perf_running_s": [seq * NS], "ref": [seq * 10**7]}
        every = synth.frame(dataclasses.replace(greeting, blocks=greeting.blocks[:1]), seq, values)
        session.apply(dataclasses.replace(every, blocks=every.blocks | {"events.1": rows}))
        if seq == 4:
            line = stat_lines.interval_line(session, session.take_interval())["cpus"][0]
            assert line["e.branches"] is None
            assert "other events used the counters" in str(line)
    interval = session.take_interval()
    assert value_of(interval, "e.branches") == pytest.approx(1000 * 14 / 0.7)
    assert interval.event_counted_shares["e.branches"].tolist() == pytest.approx([1 / 14])


def test_estimates_are_marked() -> None:
    """A scaled value is shown with the share of the time for which it was counted."""
    greeting = synth.hello([ENABLED, RUNNING, REF], threads=1)
    session = Session(greeting)
    for seq in (0, 1):
        ran = seq * 40_000_000
        values = {"perf_enabled_s": [seq * 10**8], "perf_running_s": [ran], "ref": [seq * 10**7]}
        session.apply(synth.frame(greeting, seq, values))
    interval = session.take_interval()
    line = stat_lines.interval_line(session, interval)
    assert line["cpus"][0]["counted"] == 0.4
    assert line["cpus"][0]["util"] == pytest.approx(0.125)
    assert "active for at least 40.0 %" in StatTable(session).lines(interval)[1]


@pytest.mark.parametrize("disturbance", ["turns", "guests", "doubt"])
def test_idle_transitions_replace_missing_counts(disturbance: str) -> None:
    """From the second interval on, pinned events of another program or guests occupy the
    counters."""
    perf = [wire.Counter(key, key, "cycles", "perf") for key in ("ref", "one_thread")]
    steal, busy = (
        wire.Counter(key, key, "s", "made", scale=1e-9) for key in ("stat_steal_s", "busy_s")
    )
    traced = [
        wire.Counter(key, key, "s", "made", scale=1e-9)
        for key in ("neither_s", "lp0_s", "lp1_s", "both_s")
    ]
    guests = [wire.Missing("guests", "only the host's own time is counted")]
    greeting = synth.hello([ENABLED, RUNNING, *perf, steal, busy], core=traced,
                          missing=guests if disturbance == "guests" else [])  # fmt: skip
    session, ticks = Session(greeting), synth.TSC_HZ / 10
    for seq in range(22):
        counted = min(seq, 10) if disturbance == "turns" else seq
        jump = 2**62 if disturbance == "doubt" and seq == 21 else 0
        values: synth.Values = {
            "perf_enabled_s": [seq * NS] * 2, "perf_running_s": [counted * NS] * 2,
            "ref": [int(0.25 * counted * ticks) + jump] * 2,
            "one_thread": [int(0.1 * counted * ticks)] * 2,
            "stat_steal_s": [0, 0], "busy_s": [seq * NS // 2, seq * NS // 4],
            "neither_s": [int(seq * NS * 0.45)], "lp0_s": [int(seq * NS * 0.3)],
            "lp1_s": [int(seq * NS * 0.05)], "both_s": [int(seq * NS * 0.2)],
        }  # fmt: skip
        session.apply(synth.frame(greeting, seq, values))
        if seq == 10:
            first = session.take_interval()
        if seq == 20 and disturbance != "doubt":
            break
    interval = session.take_interval()
    if disturbance == "doubt":
        assert interval.values["util"] == pytest.approx([0.25] * 2, rel=1e-3)
        return
    assert interval.values["util"] == pytest.approx([0.5, 0.25])
    assert interval.split.method == ["traced"]
    assert interval.split.states[0] == pytest.approx([0.45, 0.3, 0.05, 0.2])
    if disturbance == "turns":
        assert first.values["util"] == pytest.approx([0.25, 0.25])
        assert first.split.method == ["one-thread"]
        assert np.isnan(interval.values["halt"]).all()


def test_an_interval_with_an_uncounted_sample_is_known() -> None:
    """Another program uses the counters for half a second; the IPC is that of the remaining
    time."""
    perf = [wire.Counter(key, key, "cycles", "perf") for key in ("ref", "cycles", "instructions")]
    greeting = synth.hello([ENABLED, RUNNING, *perf], threads=1)
    session = Session(greeting)
    for seq in range(11):
        counted = min(seq, 3) + max(0, seq - 8)
        values = {"perf_enabled_s": [seq * NS], "perf_running_s": [counted * NS]}
        moved = {"ref": 10**7, "cycles": 10**7, "instructions": 2 * 10**7}
        values |= {key: [counted * of] for key, of in moved.items()}
        session.apply(synth.frame(greeting, seq, values))
    interval = session.take_interval()
    assert value_of(interval, "ipc") == pytest.approx(2.0)
    assert value_of(interval, "util") == pytest.approx(0.05, rel=0.01)
    assert interval.counted_share is not None
    assert interval.counted_share[0] == pytest.approx(0.5)
    assert interval.suspect_counters == {}
