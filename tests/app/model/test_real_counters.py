"""Counters of a real machine, two Xeon Platinum 8160, read once a second for a minute: in the 18th
interval a benchmark starts and takes the programmable counters for itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pytest
from roots import DATA

from perfprobe import wire
from perftop.recording.codec import Reader
from perftop.session.interval import Interval
from perftop.session.session import Session

TAKEN = 18
"""The first interval that the stranger is in."""
LAST = 58
FEW = ("ref", "cycles", "any_thread")


def stream() -> Iterator[wire.Message]:
    yield from Reader().feed((DATA / "platinum-8160").read_bytes())


def only(keys: tuple[str, ...], messages: Iterator[wire.Message]) -> Iterator[wire.Message]:
    """The stream as a probe would write it that reads these counters alone."""
    hello = next(messages)
    assert isinstance(hello, wire.Hello)
    (block,) = hello.blocks
    at = [i for i, counter in enumerate(block.counters) if counter.key in keys]
    fewer = dataclasses.replace(block, counters=[block.counters[i] for i in at])
    yield dataclasses.replace(hello, blocks=[fewer])
    valid = np.uint64(2 ** len(at) - 1)
    for message in messages:
        if isinstance(message, wire.Frame):
            rows = message.blocks["cpu"]
            values = np.frombuffer(rows.values, "<u8").reshape(96, -1)[:, at].tobytes()
            part = wire.Rows(rows.head, np.full(96, valid).tobytes(), values)
            yield dataclasses.replace(message, blocks={"cpu": part})


def play(messages: Iterator[wire.Message]) -> tuple[Session, list[Interval]]:
    hello = next(messages)
    assert isinstance(hello, wire.Hello)
    session = Session(hello)
    taken = session.play([*messages])
    return session, [session.take() for m in taken if isinstance(m, wire.Frame) and m.seq]


@pytest.fixture(scope="module", params=["all counters", "three counters"])
def played(request: pytest.FixtureRequest) -> tuple[Session, list[Interval]]:
    return play(stream() if request.param == "all counters" else only(FEW, stream()))


Played = tuple[Session, list[Interval]]


def test_nothing_is_doubted_while_nothing_is_wrong(played: Played) -> None:
    _, intervals = played
    assert len(intervals) == LAST
    for interval in intervals[: TAKEN - 1]:
        assert interval.suspect == {}
        assert np.isfinite(interval.split.states).all()
        assert interval.split.states.sum(axis=1) == pytest.approx(np.ones(48))
    # By hand, from the file: of T = 2 133 681 942 ticks R0 .00023, R1 .01694, ANY .01716.
    assert intervals[2].split.states[45] == pytest.approx([0.98284, 0.00022, 0.01692, 0], abs=1e-4)


def test_from_the_takeover_on_every_core_is_marked(played: Played) -> None:
    _, intervals = played
    for interval in intervals[TAKEN - 1 :]:
        assert all("any_thread" in {key for key, _ in interval.suspect[row]} for row in range(96))
        assert np.isnan(interval.split.states).all()
        assert set(interval.split.method) == {"any-thread"}


def test_fixed_counters_stay_true_throughout(played: Played) -> None:
    _, intervals = played
    for interval in intervals:
        for key in ("util", "busy_hz", "net_hz", "halt"):
            assert np.isfinite(interval.values[key]).all(), key
    # The benchmark runs on one thread of each core: half of the CPUs are busy.
    assert np.mean(intervals[30].values["util"]) == pytest.approx(0.5, abs=0.005)


def test_a_dead_counter_is_no_zero(played: Played) -> None:
    _, intervals = played
    for interval in intervals:
        for key in ("ipc", "kernel_cycles", "kernel_instructions"):
            assert not (interval.values[key] == 0).any(), key


def test_the_takeover_is_one_episode_with_the_counters_as_its_cause(played: Played) -> None:
    session, intervals = played
    episodes = [e for e in (*session.ended, *session.detector.running) if e.kind == "suspect"]
    (episode,) = episodes
    assert episode.cpus == list(range(96))
    assert episode.start_ns == intervals[TAKEN - 2].time_ns
    keys = set(episode.cause.split(", "))
    assert "any_thread" in keys
    assert keys <= {"any_thread", "instructions", "kernel_cycles", "kernel_instructions"}


def test_the_factor_is_settled_and_stays(played: Played) -> None:
    session, _ = played
    found = session.calibrations["any_thread"]
    assert (found.factor, found.state) == (84.0, "settled")


def test_the_run_has_what_was_good_of_it(played: Played) -> None:
    session, intervals = played
    whole = session.whole()
    assert np.isfinite(whole.split.states).all()
    good = np.mean([interval.split.states[:, 3] for interval in intervals[: TAKEN - 1]], axis=0)
    assert whole.split.states[:, 3] == pytest.approx(good, abs=2e-3)
    assert not math.isnan(whole.values.mean("util", session.shown))
