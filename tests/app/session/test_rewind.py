"""Past intervals: any time in the history shows the values that were live then."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import sim_streams
import synth
from nightly import cases_by_day
from sessions import TICKS, session_of
from synth import SAMPLE_NS, counter

from perfprobe import wire
from perftop.model.smt import SmtShares
from perftop.session.history import CHUNK_SAMPLES, History
from perftop.session.interval import Interval
from perftop.session.session import Session

INTERVAL_NS = 5 * SAMPLE_NS
IDLE = counter("idle_s", "s", bits=64, scale=1e-9)


def machine(cores: int = 3) -> wire.Hello:
    counters = [synth.REF, synth.CYCLES, synth.INSTRUCTIONS, synth.ONE_THREAD, IDLE]
    factors = [wire.Multiplier("one_thread", factor, "made") for factor in (1.0, 1.5)]
    hello = synth.hello(counters, cores=cores, multipliers=factors)
    hello.blocks.append(wire.Block("package", "package", [synth.CEILING]))
    return hello


class Scenario:
    """Counters that advance randomly, with disturbances chosen by a test."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.random = random.Random(5)
        self.n = len(hello.topology)
        self.counts = {c.key: [0] * self.n for c in hello.blocks[0].counters}
        self.messages: list[wire.Frame | wire.Note] = []
        self.seq = 0

    def add_frames(self, frames: int = 1, **happens: Any) -> Scenario:
        for _ in range(frames):
            self.messages.append(self._frame(**happens))
        return self

    def _frame(
        self,
        flags: Sequence[int] | None = None,
        leap: int | None = None,
        lost: int = 0,
        **more: Any,
    ) -> wire.Frame:
        for _ in range(lost + 1):
            self.seq += 1
            self._tick()
        counts = {key: list(column) for key, column in self.counts.items()}
        counts["ceiling_hz"] = [self.random.choice([3_000_000_000, 3_500_000_000])]
        if leap is not None:
            counts["ref"][leap] += 3 * TICKS
            self.counts["ref"][leap] = counts["ref"][leap]
        late = [self.random.randrange(50_000) for _ in range(self.n)]
        return synth.frame(self.hello, self.seq, counts, flags=flags, late_ns=late, **more)

    def _tick(self) -> None:
        for pair in self.hello.cores:
            shares = {cpu: self.random.random() for cpu in pair}
            least, most = max(0.0, sum(shares.values()) - 1), min(shares.values())
            both = (least + most) / 2
            for cpu, util in shares.items():
                moves = {"ref": util, "cycles": 1.5 * util, "instructions": util}
                moves["one_thread"] = util - both if len(pair) == 2 else 0.0
                for key, share in moves.items():
                    self.counts[key][cpu] += int(share * TICKS)

    def plug(self, cpu: int, *, online: bool, **row: Any) -> None:
        data = {"cpu": cpu, "online": online, "row": row or None}
        self.messages.append(wire.Note("hotplug", self.seq * SAMPLE_NS + 7, data=data))


def flags(count: int, **changed: int) -> list[int]:
    """ROW_SAMPLED except for CPUs given as `cpu3=...`."""
    return [changed.get(f"cpu{cpu}", wire.ROW_SAMPLED) for cpu in range(count)]


def disturbed_scenario() -> Scenario:
    story = Scenario(machine())
    n = story.n
    story.add_frames(8).add_frames(leap=0).add_frames(12)
    story.add_frames(2, flags=flags(n, cpu1=wire.ROW_SAMPLED | wire.ROW_WIDE)).add_frames(9)
    story.add_frames(lost=6, records={"tasks": {"0": [9, "after", 1.0]}}).add_frames(8)
    story.plug(2, online=False)
    story.add_frames(14, flags=flags(n, cpu2=wire.ROW_OFFLINE))
    story.plug(2, online=True, package=0, core=2, siblings=[2, 5])
    story.add_frames(flags=flags(n, cpu2=wire.ROW_SAMPLED | wire.ROW_REBASED))
    story.add_frames(3).add_frames(leap=4).add_frames(40)
    story.add_frames(17, flags=flags(n, cpu3=0)).add_frames(
        30
    )  # the CPU is unread for longer than an interval
    return story


def live_intervals(
    hello: wire.Hello, messages: Sequence[wire.Message]
) -> tuple[Session, list[Interval]]:
    """The session after all messages, and each live interval."""
    session, span_ns = Session(hello, History(hello)), INTERVAL_NS - SAMPLE_NS // 2
    live = [
        session.take_interval()
        for _ in session.apply_in_parts(messages, lambda: session.interval_start_ns + span_ns)
        if session.frames > 1 and session.span_ns >= span_ns
    ]
    return session, live


def assert_equal(result: Interval | None, live: Interval) -> None:
    assert result is not None
    for name in (
        "time",
        "time_ns",
        "elapsed_s",
        "skew_s",
        "suspect_counters",
        "sample_count",
        "tasks",
    ):
        assert getattr(result, name) == getattr(live, name), name
    pairs = {"values": (result.values.metrics, live.values.metrics)}
    pairs |= {
        name: (getattr(result, name), getattr(live, name)) for name in ("ceiling_hz", "online")
    }
    pairs |= {name: (result.counts[name], live.counts[name]) for name in live.counts}
    for field in dataclasses.fields(SmtShares):
        pairs[field.name] = getattr(result.split, field.name), getattr(live.split, field.name)
    for name, (a, b) in pairs.items():
        np.testing.assert_array_equal(a, b, name)


def test_past_intervals_equal_live_ones() -> None:
    story = disturbed_scenario()
    session, live = live_intervals(story.hello, story.messages)
    assert len(live) > 25
    assert len(story.messages) > 2 * CHUNK_SAMPLES
    assert sum(bool(i.suspect_counters) for i in live) == 2
    assert any(not i.online.all() for i in live)
    assert max(i.elapsed_s for i in live) > 0.7  # the interval includes the lost frames
    for interval in reversed(live):
        assert_equal(
            session.interval_at(interval.time_ns, round(interval.elapsed_s * 1e9)), interval
        )


def test_a_time_between_two_samples_shows_the_earlier_one() -> None:
    story = disturbed_scenario()
    session, live = live_intervals(story.hello, story.messages)
    for late_ns in (1, SAMPLE_NS // 2, SAMPLE_NS - 1):
        assert_equal(session.interval_at(live[4].time_ns + late_ns, INTERVAL_NS), live[4])
    newest = session.interval_at(1 << 60, INTERVAL_NS)
    assert newest is not None
    assert newest.time_ns == session.now_ns


@pytest.mark.parametrize(("span_ns", "samples"), [
    (0, 1), (1, 1), (SAMPLE_NS, 1), (149_999_999, 1), (150_000_000, 1), (150_000_001, 2),
    (5 * SAMPLE_NS, 5), (10**15, 6),
])  # fmt: skip
def test_a_span_is_rounded_to_samples(span_ns: int, samples: int) -> None:
    story = Scenario(machine()).add_frames(9)
    session, _ = live_intervals(story.hello, story.messages)
    result = session.interval_at(7 * SAMPLE_NS, span_ns)
    assert result is not None
    assert result.sample_count == samples
    assert result.elapsed_s == pytest.approx(samples / 10)


def test_no_interval_exists_before_the_first_sample() -> None:
    story = Scenario(machine()).add_frames(3)
    session, _ = live_intervals(story.hello, story.messages)
    assert session.interval_at(0, INTERVAL_NS) is None
    assert session.interval_at(SAMPLE_NS, INTERVAL_NS) is None  # the first frame is only a baseline
    assert session.interval_at(2 * SAMPLE_NS - 1, INTERVAL_NS) is None
    assert session.interval_at(2 * SAMPLE_NS, INTERVAL_NS) is not None
    assert Session(story.hello, History(story.hello)).interval_at(SAMPLE_NS, 1) is None
    assert Session(story.hello).interval_at(SAMPLE_NS, 1) is None


def test_kept_samples_do_not_depend_on_dropped_ones() -> None:
    """The oldest sample in the history does not depend on them either."""
    story = disturbed_scenario()
    _, live = live_intervals(story.hello, story.messages)
    session = Session(story.hello, history := History(story.hello, 125_000))
    for message in story.messages:
        session.apply(message)
    assert history.first_ns is not None
    assert history.first_ns > 40 * SAMPLE_NS
    assert session.interval_at(history.first_ns - 1, INTERVAL_NS) is None
    oldest = session.interval_at(history.first_ns, INTERVAL_NS)
    assert oldest is not None
    assert oldest.sample_count == 1
    in_history = [i for i in live if i.time_ns - round(i.elapsed_s * 1e9) >= history.first_ns]
    assert len(in_history) > 4
    for interval in in_history:
        assert_equal(
            session.interval_at(interval.time_ns, round(interval.elapsed_s * 1e9)), interval
        )


def test_reading_the_past_does_not_affect_the_present() -> None:
    story = disturbed_scenario()
    session, live = live_intervals(story.hello, story.messages[:100])
    for interval in live:
        session.interval_at(interval.time_ns, INTERVAL_NS)
    session_of(session, story.messages[100:])
    undisturbed, _ = live_intervals(story.hello, story.messages)
    assert_equal(session.run_interval(), undisturbed.run_interval())
    assert session.run.span.suspect_count == undisturbed.run.span.suspect_count
    assert session.calibrations == undisturbed.calibrations
    assert any(session.calibrations["one_thread"]._sums), "there is evidence"


def test_tasks_are_valid_for_two_seconds() -> None:
    story = Scenario(machine())
    results = {"0": [7, "job", 1.0]}
    story.add_frames(5).add_frames(records={"tasks": results}).add_frames(40)
    story.add_frames(records={"tasks": "of no use"}).add_frames(4)
    session, live = live_intervals(story.hello, story.messages)
    for interval in live:
        assert_equal(session.interval_at(interval.time_ns, INTERVAL_NS), interval)
    ages = {round(i.time_ns / SAMPLE_NS) - 6: i.tasks for i in live}
    assert [age for age, tasks in ages.items() if tasks == results] == [0, 5, 10, 15, 20]
    assert all(tasks in ({}, results) for tasks in ages.values())


def test_a_cpu_unknown_to_hello_gets_a_position() -> None:
    """Earlier intervals have the current cores, with their values of that time."""
    hello = machine(2)
    hello.topology[3] = wire.Cpu(3, online=False)
    hello.cores[:] = [[1], [0, 2]]
    story = Scenario(machine(2))
    story.add_frames(10, flags=flags(4, cpu3=wire.ROW_OFFLINE))
    story.plug(3, online=True, package=0, die=0, core=1, siblings=[1, 3])
    story.add_frames(10)
    session, live = live_intervals(hello, story.messages)
    assert session.cores == [[0, 2], [1, 3]]
    assert live[-1].split.method == ["one-thread", "one-thread"]
    first = session.interval_at(live[0].time_ns, INTERVAL_NS)
    assert first is not None
    assert first.split.method == live[0].split.method[::-1] == ["one-thread", "single"]
    np.testing.assert_array_equal(first.split.states, live[0].split.states[::-1])
    assert session.history is not None
    limits = np.array([1, 6, 11, 16], np.int64) * SAMPLE_NS
    states = session.history.states(session.cores, limits)
    np.testing.assert_allclose(states[0], live[0].split.states[::-1], atol=1e-6)
    np.testing.assert_allclose(states[2], live[2].split.states, atol=1e-6)
    assert states[0, 1, 3] == 0
    assert states[2, 1, 3] > 0


@pytest.mark.parametrize(
    "scenario", cases_by_day(["smt-mix", "hotplug", "hybrid", "turbo-drop"], ["hotplug"])
)
def test_past_intervals_of_a_simulated_machine_equal_live_ones(scenario: str) -> None:
    session, live = live_intervals(*sim_streams.messages(f"sim:{scenario},cpus=8,seed=3", 260))
    for interval in live[10:]:  # by then the factors have settled
        assert_equal(
            session.interval_at(interval.time_ns, round(interval.elapsed_s * 1e9)), interval
        )
