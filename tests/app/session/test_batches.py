"""Batches of any size give exactly the results of single frames, with fewer calls."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Sequence
from functools import cache
from types import FrameType
from typing import Any

import numpy as np
import pytest
from calls import count_calls
from disturbances import with_disturbances
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nightly import cases_by_day, nightly_case
from roots import ROOT
from sessions import one_by_one, session_of
from sim_streams import SAMPLE_NS, bin_edges, messages
from sim_streams import messages as simulated

from perfprobe import wire
from perftop.detect.pipeline import Detection
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleBatch
from perftop.session.history import History
from perftop.session.interval import Interval, Span
from perftop.session.packing import TimedMessage
from perftop.session.session import Session

SAMPLES = 60
EVERY_NS = 3 * SAMPLE_NS
SCENARIOS = cases_by_day(
    ["hotplug", "halts", "throttle", "smt-mix", "turbo-drop", "neighbour", "hybrid"], ["hotplug"]
)


def comparable_values(interval: Interval) -> list[object]:
    """Returns all values of an interval in a form that == compares."""
    values, split, ceilings = interval.values, interval.split, interval.ceilings
    arrays: list[Any] = [
        values.numerators,
        values.denominators,
        split.states,
        split.low,
        split.high,
        split.active_threads,
    ]
    arrays += [ceilings.low_hz, ceilings.high_hz, ceilings.hz, interval.doubts, interval.online]
    arrays += interval.counts.values()
    rest = interval.time_ns, interval.elapsed_s, interval.skew_s, interval.sample_count
    return [array.tobytes() for array in arrays] + [split.method, rest, repr(interval.machine)]


def outcome(
    hello: wire.Hello, messages: Sequence[TimedMessage], sizes: list[int] | None, *, history: bool
) -> list[object]:
    """Intervals, episodes, warnings, losses, distribution and history of messages applied one by
    one, or in batches of these sizes in turn."""
    session = Session(hello, History(hello) if history else None)
    session.run.track_losses()
    results: list[object] = []

    def take_due_interval(message: wire.Message) -> None:
        if isinstance(message, wire.Frame) and session.span_ns >= EVERY_NS - SAMPLE_NS // 2:
            results.append(comparable_values(session.take_interval()))

    if sizes is None:
        for message in messages:
            session.apply(message)
            take_due_interval(message)
    else:
        at = 0

        def due_ns() -> int:
            return session.interval_start_ns + EVERY_NS - SAMPLE_NS // 2

        while at < len(messages):
            for size in sizes:
                for taken in session.apply_in_parts(messages[at : at + size], due_ns):
                    take_due_interval(taken[-1])
                at += size
    results += [
        session.ended,
        session.running,
        session.warnings,
        comparable_values(session.run_interval()),
    ]
    lost = session.run.lost_time()
    results += [lost.wanted_s.tobytes(), {cause: s.tobytes() for cause, s in lost.by_cause.items()}]
    results += [vars(session.run.busy_cpus), session.run.times.tasks, session.calibrations]
    distribution = session.run.distribution.finish()
    results.append([series.tobytes() for series in distribution._series.values()])
    if session.history is not None:
        times = session.history.times()
        bins = bin_edges(int(times[-1]), 300_000_000, 20)
        results.append(session.history.metric("util", session.selected, bins).tobytes())
        results.append(session.history.states(session.cores, bins).tobytes())
        for time_ns in times[3::20].tolist():
            past = session.interval_at(time_ns, 500_000_000)
            results.append(None if past is None else comparable_values(past))
    return results


@pytest.mark.parametrize("scenario", SCENARIOS)
@settings(max_examples=3)
@example(sizes=[3], seed=63).via("a batch whose second sample is the first doubted one")
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_batches_of_any_size_give_the_same_results(
    scenario: str, sizes: list[int], seed: int
) -> None:
    hello, messages = simulated(f"sim:{scenario},cpus=8", SAMPLES)
    if seed % 2:
        messages = [*with_disturbances(messages, seed)]
    history = seed % 3 > 0
    expected = outcome(hello, messages, None, history=history)
    assert outcome(hello, messages, sizes, history=history) == expected


@settings(max_examples=3)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_batches_of_any_size_give_the_same_losses_to_a_crowded_cache(
    sizes: list[int], seed: int
) -> None:
    """A counter of cache misses is the sign of losses in the L3."""
    spec = f"sim:{'neighbour' if seed % 2 else 'smt-mix'},cpus=8"
    hello, messages = simulated(spec, 2 * SAMPLES, events="cache-misses")
    assert hello.identity is not None
    expected = outcome(hello, messages, None, history=False)
    assert outcome(hello, messages, sizes, history=False) == expected


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_interval_of_one_sample_equals_its_sums(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello, messages = simulated(f"sim:{scenario},cpus=8", SAMPLES)

    def all_intervals() -> list[list[object]]:
        session, result = Session(hello), []
        for message in messages if scenario == "smt-mix" else with_disturbances(messages, 3):
            session.apply(message)
            if session.frames > 1:
                result.append(comparable_values(session.take_interval()))
        return result

    quick, add = all_intervals(), Span.add

    def add_without_cache(span: Span, batch: SampleBatch, first: int, last: int) -> None:
        add(span, batch, first, last)
        span._only_sample = None

    monkeypatch.setattr(Span, "add", add_without_cache)
    assert all_intervals() == quick


def test_a_stopped_iteration_has_applied_exactly_its_messages() -> None:
    hello, messages = simulated("sim:steady,cpus=8", SAMPLES)
    frames = [message for message in messages if isinstance(message, wire.Frame)]
    session = Session(hello)
    for message in one_by_one(session, frames[:20]):
        if message is frames[6]:
            break
    assert session.frames == 7
    assert session.now_ns == frames[6].time_ns


def test_a_frame_that_goes_back_in_time_is_left_out_of_a_batch() -> None:
    hello, messages = simulated("sim:steady,cpus=8", SAMPLES)
    frames = [m for m in messages if isinstance(m, wire.Frame)][:6]
    session = Session(hello)
    session_of(session, [*frames[:4], frames[1], *frames[4:]])
    assert session.frames == 6
    seq = frames[1].seq
    assert session.warnings == [f"frame {seq} goes back in time, and was left out"]


def test_a_factor_that_settles_within_a_batch_applies_from_that_sample_on() -> None:
    """The first candidate is wrong: the second sample that refutes it changes the states of all
    later samples, but of no earlier one."""
    hello, messages = simulated("sim:smt-mix,cpus=8", SAMPLES)
    first, *rest = hello.multipliers
    wrong = dataclasses.replace(first, factor=first.factor * 4)
    hello = dataclasses.replace(hello, multipliers=[wrong, first, *rest])
    expected = outcome(hello, messages, None, history=False)
    assert outcome(hello, messages, [16], history=False) == expected
    session = Session(hello)
    factors = []
    for _ in one_by_one(session, messages[:30]):
        factors += [c.factor for c in session.calibrations.values()]
    assert wrong.factor in factors
    assert factors[-1] == first.factor


# --- number of calls


WARM, BATCH = 40, 10


simulated_cost = cache(messages)


def calls(cpus: int, batch_size: int, *, history: bool, scenario: str = "steady") -> int:
    """Returns the number of calls of functions, also in C, for a batch that is applied `batch_size`
    samples at a time and shown as one interval."""
    hello, given = simulated_cost(f"sim:{scenario},cpus={cpus}", WARM + BATCH)
    session = Session(hello, History(hello) if history else None, summarises=not history)
    session_of(session, given[:WARM]).take_interval()
    with count_calls() as result:
        for i in range(WARM, WARM + BATCH, batch_size):
            for _ in session.apply_in_parts(given[i : i + batch_size], lambda: sys.maxsize):
                pass
        session.take_interval()
    return result.count


@pytest.mark.parametrize(("events", "max_calls"), [(None, 2.0), ("cache-misses", 2.2)])
def test_samples_without_episodes_need_no_call_each(events: str | None, max_calls: float) -> None:
    """Counts calls of perftop's functions: calls that are made once for many samples amount to two
    a sample. Task records, which arrive once a second and are read one by one, are left out."""
    hello, given = simulated_cost("sim:steady,cpus=8", WARM + 512, events=events)
    calm = [dataclasses.replace(m, records={}) for m in given if isinstance(m, wire.Frame)]
    session, calls = Session(hello), 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(f"{ROOT}/app/")

    for first, last in ((0, WARM + 256), (WARM + 256, None)):
        calls = 0
        sys.setprofile(profile)
        try:
            for _ in session.apply_in_parts(calm[first:last], lambda: sys.maxsize):
                pass
        finally:
            sys.setprofile(None)
    assert session.frames == len(given)
    assert calls < max_calls * 256


@pytest.mark.parametrize("history", [nightly_case(False), True])
def test_a_batch_of_a_large_machine_needs_no_more_calls_than_a_small_one(history: bool) -> None:
    """Calls do not depend on the CPUs, except for the running task of each CPU in task records.
    Many samples of a large machine are applied in two parts, which adds most of the calls."""
    assert calls(1024, BATCH, history=history) < 2 * calls(2, BATCH, history=history)


@pytest.mark.parametrize(("scenario", "max_calls"), [("steady", 301), ("guest", 190)])
def test_calls_for_a_batch_are_bounded(scenario: str, max_calls: int) -> None:
    """About 274 calls a sample, 1,700 one by one; 173 and 828 for a guest with few counters. Find
    out why before raising the limit by a tenth."""
    assert calls(2, BATCH, history=True, scenario=scenario) < BATCH * max_calls


@pytest.mark.parametrize(
    "scenario", cases_by_day(["throttle", "license", "guest", "neighbour"], ["throttle", "guest"])
)
def test_episodes_of_a_kind_are_the_same_if_no_other_kind_is_requested(scenario: str) -> None:
    """Detectors that others depend on run, too; all others are left out."""
    hello, frames = messages(f"sim:{scenario},cpus=8", 400)

    def episodes(kinds: Collection[str] | None) -> list[Episode]:
        session = session_of(Session(hello, kinds=kinds), frames)
        return session.episodes(0, session.now_ns)

    every_episode = episodes(None)
    assert not episodes(())
    for kind in {episode.kind for episode in every_episode}:
        expected = [repr(episode) for episode in every_episode if episode.kind == kind]
        assert [repr(e) for e in episodes((kind,)) if e.kind == kind] == expected, kind


@pytest.mark.parametrize("scenario", ["memory", "neighbour", "turbo-drop", "smt-mix", "halts"])
def test_skipped_samples_change_no_episode(scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detectors that skip calm samples find the same as those that process each one, which they do
    after a gap. Some frames are lost."""
    hello, sent = simulated(f"sim:{scenario}", 400)
    received = [message for seq, message in enumerate(sent) if seq % 150 not in range(100, 108)]

    def episodes() -> str:
        session = Session(hello)
        session.run.track_losses()
        session_of(session, received)
        return repr(session.log.in_range(0, 1 << 62))

    skipping = episodes()
    monkeypatch.setattr(Detection, "_gap_mask", lambda _, batch: np.ones(len(batch), bool))
    assert episodes() == skipping
