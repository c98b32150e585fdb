"""The history: sums over time bins, also of packages and L3s, and its memory limit."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import sim_streams
import synth
from fakes import CpuLoad, Machine
from sessions import TICKS, session_of
from sim_streams import bin_edges
from synth import SAMPLE_NS

from perfprobe import wire
from perftop.model.numbers import METRICS
from perftop.model.sample_reader import SampleReader
from perftop.session.history import History, fill_covered_bins
from perftop.session.session import Session

NAN = math.nan


def recorded_history(hello: wire.Hello, messages: Sequence[wire.Message]) -> History:
    session = Session(hello, history := History(hello))
    session_of(session, messages)
    return history


def bins(first: int, last: int, step: int = 1) -> np.ndarray:
    """Bin edges; arguments in samples."""
    return np.arange(first, last + 1, step, dtype=np.int64) * SAMPLE_NS


# --- metrics over bins


def shares(*utils: Sequence[float | None], stamps: Sequence[int] | None = None) -> History:
    """Returns the shares of CPUs with this utilisation in each sample; None: not read."""
    cpus = len(utils[0])
    hello = synth.hello([synth.REF, synth.CYCLES], cores=cpus, threads=1)
    ref = [0.0] * cpus
    messages = [synth.frame(hello, 0, {"ref": [0] * cpus, "cycles": [0] * cpus})]
    for i, sample in enumerate(utils):
        seq = i + 1 if stamps is None else stamps[i]
        ref = [r + (util or 0.0) * TICKS for r, util in zip(ref, sample, strict=True)]
        counts: list[int | None] = [int(r) for r in ref]
        flags = [0 if util is None else wire.ROW_SAMPLED for util in sample]
        messages.append(synth.frame(hello, seq, {"ref": counts, "cycles": counts}, flags=flags))
    return recorded_history(hello, messages)


def test_a_bin_is_a_ratio_of_sums() -> None:
    history = shares([0.1, 0.5], [0.3, 0.5], [0.8, 0.0], [0.2, 0.5])
    values = history.metric("util", [0, 1], bins(0, 4, 2))
    np.testing.assert_allclose(values, [[0.2, 0.5], [0.5, 0.25]], atol=1e-6)
    assert history.metric("util", [1], bins(0, 4, 4)).tolist() == [[pytest.approx(0.375)]]
    # A clock is cycles over running time: an idle sample has no weight.
    assert history.metric("busy_hz", [1], bins(2, 4, 2)).tolist() == [[pytest.approx(2e9)]]
    three = history.metrics(["busy_hz", "nonsense", "util"], [1, 0], bins(0, 4, 2))
    assert np.isnan(three[:, 1]).all()
    for at, key in ((0, "busy_hz"), (2, "util")):
        np.testing.assert_equal(three[:, at], history.metric(key, [1, 0], bins(0, 4, 2)))


def test_a_sample_belongs_to_the_bin_of_its_end() -> None:
    history = shares([0.1], [0.2], [0.3])
    inside = np.array([1, 2, 3], np.int64) * SAMPLE_NS
    np.testing.assert_allclose(history.metric("util", [0], inside)[:, 0], [0.2, 0.3], atol=1e-6)
    np.testing.assert_allclose(history.metric("util", [0], inside - 1)[:, 0], [0.1, 0.2], atol=1e-6)


def test_bins_shorter_than_a_sample_have_its_value() -> None:
    history = shares([0.2], [0.6], stamps=[4, 6])  # the frames between are lost
    result = history.metric("util", [0], bins(-1, 8))[:, 0]
    np.testing.assert_allclose(result, [NAN, *[0.05] * 4, 0.3, 0.3, NAN, NAN], atol=1e-6)
    assert history.metric("util", [0], bins(4, 5)) == pytest.approx(0.3)


def test_unknown_values_are_not_zero() -> None:
    history = shares([0.5, 0.5], [0.5, None], [0.5, 0.5])
    values = history.metric("util", [1, 0], bins(0, 3))
    np.testing.assert_allclose(values, [[0.5, 0.5], [NAN, 0.5], [0.25, 0.5]], atol=1e-6)
    # the machine has no counter for this metric
    assert np.isnan(history.metric("idle", [0, 1], bins(0, 3))).all()
    assert np.isnan(history.metric("util", [0], bins(40, 42))).all()
    assert np.isnan(shares([0.5]).metric("util", [0], bins(-5, -3))).all()
    assert history.metric("util", [], bins(0, 3)).shape == (3, 0)


def test_a_sample_with_an_unknown_part_has_no_ratio() -> None:
    hello = synth.hello([synth.REF, synth.CYCLES], threads=1)
    samples: list[synth.Values] = [
        {"ref": [None if seq == 2 else seq * TICKS // 2], "cycles": [seq * TICKS]}
        for seq in range(5)
    ]
    history = recorded_history(
        hello, [synth.frame(hello, seq, values) for seq, values in enumerate(samples)]
    )
    result = history.metric("busy_hz", [0], bins(0, 4))[:, 0]
    np.testing.assert_allclose(result, [4e9, NAN, NAN, 4e9])
    assert history.metric("busy_hz", [0], bins(0, 4, 4))[0, 0] == pytest.approx(4e9)


def test_an_empty_history_has_no_values() -> None:
    history = History(Machine().hello)
    assert (history.first_ns, history.last_ns, history.times().tolist()) == (None, None, [])
    assert np.isnan(history.metric("util", [0, 1], bins(0, 3))).all()
    assert np.isnan(history.states([[0, 4]], bins(0, 3))).all()
    assert list(history.frames(0, 10**18)) == []
    assert history.byte_count < 10_000


@pytest.mark.parametrize("before_ns", [0, 1])
def test_bins_read_one_by_one_equal_those_read_together(before_ns: int) -> None:
    """Edges are at the ends of samples or just before them, anywhere in chunks."""
    hello, messages = sim_streams.messages("sim:smt-mix,cpus=4", 120)
    session = Session(hello, history := History(hello))
    for message in messages:
        session.apply(message)
    assert len(history._chunks) > 2
    at = history.times() - before_ns
    together = history.metric("util", range(4), at)
    alone = [history.metric("util", range(4), at[i : i + 2])[0] for i in range(len(together))]
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("scenario", ["smt-mix", "halts", "turbo-drop"])
def test_bins_equal_the_intervals_of_the_session(scenario: str) -> None:
    """Metrics, states and ceilings are compared."""
    hello, messages = sim_streams.messages(f"sim:{scenario},cpus=8,seed=2", 160)
    session = Session(hello, history := History(hello))
    live, ends = [], []
    for _ in session.apply_in_parts(messages, lambda: session.interval_start_ns + 10 * SAMPLE_NS):
        if session.frames > 1 and session.span_ns >= 10 * SAMPLE_NS:
            live.append(session.take_interval())
            ends.append(session.now_ns)
    start_ns = ends[0] - 10 * SAMPLE_NS
    limits = np.array([start_ns, *ends], np.int64)
    for key in METRICS:
        values = history.metric(key, range(8), limits)
        expected = [interval.values[key] for interval in live]
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-4, err_msg=key)
    cores = session.cores
    states = history.states(cores, limits)
    np.testing.assert_allclose(states[3:], [i.split.states for i in live[3:]], atol=2e-3)
    np.testing.assert_allclose(states.sum(axis=2), 1, atol=1e-5)
    ceilings = [i.ceiling_hz for i in live]
    np.testing.assert_allclose(history.cores(cores, limits)[:, :, -1], ceilings, rtol=1e-5)


# --- cores


def test_cores_are_found_by_their_cpus() -> None:
    does = {
        0: CpuLoad(0.9, alone=0.5),
        4: CpuLoad(0.4, alone=0.0),
        1: CpuLoad(0.2),
        5: CpuLoad(0.2),
    }
    machine = Machine(cores=4, loads=does)
    history = recorded_history(machine.hello, [machine.frame(seq) for seq in range(5)])
    result = history.states([[1, 5], [0, 4], [77]], bins(0, 4, 2))
    np.testing.assert_allclose(result[1, 1], [0.1, 0.5, 0, 0.4], atol=1e-6)
    np.testing.assert_allclose(result[1, 0], [0.8, 0, 0, 0.2], atol=1e-6)
    assert np.isnan(result[:, 2]).all()
    ceiling = history.cores([[3, 7], [77]], bins(0, 4, 2))[:, :, -1]
    np.testing.assert_allclose(ceiling, [[3.2e9, NAN]] * 2)


def test_states_of_a_bin_are_weighted_by_the_spans_of_samples() -> None:
    """An interrupted read makes the next sample twice as long."""
    counters = [synth.REF, synth.counter("one_thread", "1")]
    hello = synth.hello(counters, cores=1)
    wide = wire.ROW_SAMPLED | wire.ROW_WIDE
    ref, flags = [0, 0, 0, 1], [[1, 1], [1, 1], [wide, 1], [1, 1]]
    messages = [
        synth.frame(hello, seq, {"ref": [r * TICKS, 0], "one_thread": [r * TICKS, 0]}, flags=f)
        for seq, (r, f) in enumerate(zip(ref, flags, strict=True))
    ]
    history = recorded_history(hello, messages)
    result = history.states([[0, 1]], bins(0, 3))[:, 0]
    expected = np.array([[1, 0, 0, 0], [NAN] * 4, [0.5, 0.5, 0, 0]])
    np.testing.assert_allclose(result, expected, atol=1e-6)
    whole = history.states([[0, 1]], bins(0, 3, 3))[0, 0]
    np.testing.assert_allclose(whole, [2 / 3, 1 / 3, 0, 0], atol=1e-6)


@pytest.mark.parametrize("gone", [0, 1])
def test_a_core_that_was_single_is_found_by_any_of_its_cpus(gone: int) -> None:
    machine = Machine(cores=1, loads={0: CpuLoad(0.5), 1: CpuLoad(0.5)})
    machine.offline_cpus.add(gone)
    off = wire.Note("hotplug", 1, data={"cpu": gone, "online": False})
    history = recorded_history(machine.hello, [off, *(machine.frame(seq) for seq in range(3))])
    np.testing.assert_allclose(history.states([[0, 1]], bins(0, 2, 2))[0, 0], [0.5, 0.5, 0, 0])
    np.testing.assert_allclose(history.states([[0]], bins(0, 2, 2))[0, 0], [0.5, 0.5, 0, 0])


def test_states_are_unknown_without_a_counter() -> None:
    machine = Machine(cores=2, split=False, loads={0: CpuLoad(0.75), 2: CpuLoad(0.5)})
    history = recorded_history(machine.hello, [machine.frame(seq) for seq in range(5)])
    assert np.isnan(history.states([[1, 3], [0, 2]], bins(0, 4))).all()


# --- frames


def test_frames_are_returned_unchanged() -> None:
    hello, messages = sim_streams.messages("sim:hotplug,cpus=6,seed=2", 230)
    history = recorded_history(hello, messages)
    assert list(history.frames(0, 1 << 62)) == [*messages]
    first, last = 91, 140  # the bin extends across the end of a chunk
    start_ns, end_ns = (messages[i].time_ns for i in (first, last))
    expected = [m for m in messages if start_ns <= m.time_ns <= end_ns]
    assert list(history.frames(start_ns, end_ns)) == expected
    assert len(expected) >= last - first


def test_frames_that_go_back_in_time_are_not_stored() -> None:
    """A foreign stream may contain any time."""
    machine = Machine(cores=1)
    session = Session(machine.hello, history := History(machine.hello))
    for seq in (0, 1, 2, 2, 1, 3):
        session.apply(machine.frame(seq))
    for time_ns in (-5, 2**63, 2**64 - 1):
        frame = machine.frame(4)
        session.apply(wire.Frame(4, time_ns, frame.blocks))
        session.apply(wire.Note("mark", time_ns))
    assert (history.times() / SAMPLE_NS).tolist() == [1, 2, 3]
    odd = Session(machine.hello, history_of_odd := History(machine.hello))
    for time_ns in (-5, 7, 8):
        odd.apply(wire.Frame(0, time_ns, machine.frame(1).blocks))
    assert history_of_odd.times().tolist() == [8]
    result = odd.interval_at(8, 5)
    assert result is not None
    assert result.elapsed_s == 1e-9
    assert [m.seq for m in history.frames(0, 1 << 62) if isinstance(m, wire.Frame)] == [0, 1, 2, 3]
    assert session.interval_at(3 * SAMPLE_NS, SAMPLE_NS) is not None


# --- the budget


@pytest.mark.parametrize(("cpus", "samples", "budget"), [
    pytest.param(2, 200, 100_000, marks=pytest.mark.nightly),
    pytest.param(64, 150, 1_000_000, marks=pytest.mark.nightly),
    (256, 60, 2_700_000),
])  # fmt: skip
def test_the_oldest_samples_are_dropped_first_and_the_memory_use_is_as_reported(
    cpus: int, samples: int, budget: int
) -> None:
    hello, messages = sim_streams.messages(f"sim:smt-mix,cpus={cpus},seed=2", samples)
    given = [message for message in messages if isinstance(message, wire.Frame)]
    reader = SampleReader(hello)
    list(reader.batches(given[:3]))  # memory of the reader itself exists before
    gc.collect()
    tracemalloc.start()
    history, most = History(hello, budget), 0
    for message in given[3:]:
        history.room_for_samples(reader)
        for batch in reader.batches([message]):
            history.keep_samples(batch, 0, 1, reader)
            del batch
        history.write_waiting()
        most = max(most, history.byte_count)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.8 * budget < history.byte_count <= most <= budget
    assert held <= 1.03 * history.byte_count
    assert history.byte_count <= 1.1 * held
    frames = list(history.frames(0, 1 << 62))
    assert len(frames) < samples
    times = [frame.time_ns for frame in frames]
    assert times == history.times().tolist() == [m.time_ns for m in messages[-len(frames) :]]
    assert (history.first_ns, history.last_ns) == (times[0], times[-1])
    util = history.metric("util", [0], np.array([0, times[0] - SAMPLE_NS, *times], np.int64))
    assert np.isnan(util[:1]).all()
    assert np.isfinite(util[1:]).mean() > 0.9


def test_notes_alone_cannot_exceed_the_limit() -> None:
    hello = Machine(cores=1).hello
    session = Session(hello, history := History(hello, 400_000))
    for n in range(5000):
        session.apply(wire.Note("mark", n, data={"label": "x" * 200}))
    assert history.byte_count <= 400_000
    notes = list(history.frames(0, 1 << 62))
    assert notes[-1].time_ns == 4999
    assert 500 < len(notes) < 1500


def test_traffic_of_packages_is_in_the_history() -> None:
    """Bins of 2 s have the values of the intervals that end with them."""
    hello, messages = sim_streams.messages("sim:memory,cpus=4,seed=2", 120)
    session = session_of(Session(hello, History(hello)), messages)
    end_ns, span_ns = session.now_ns, 20 * SAMPLE_NS
    ends = np.arange(end_ns - 4 * span_ns, end_ns + 1, span_ns, dtype=np.int64)
    intervals = [session.interval_at(at_ns, span_ns) for at_ns in ends[1:].tolist()]
    for key, name in (("memory_read_bytes", "memory_read_bytes_per_s"), ("energy_j", "power_w")):
        result = session.past.shared_counter(key, ends)[:, 0].tolist()
        expected = [float(each.packages[name][0]) for each in intervals if each is not None]
        assert result == pytest.approx(expected, rel=1e-3)
    assert session.past.shared_counter("l3_memory_bytes", ends).shape == (4, 0)


def test_memory_channels_are_added() -> None:
    hello, messages = sim_streams.messages("sim:memory,cpus=4,seed=2", 60)
    block = next(b for b in hello.blocks if any(c.key == "memory_read_bytes" for c in b.counters))
    index = [c.key for c in block.counters].index("memory_read_bytes")
    read, write = block.counters[index : index + 2]
    assert write.key == "memory_write_bytes"
    wide = [*block.counters[:index], replace(read, columns=2), *block.counters[index + 2 :]]
    blocks = [replace(b, counters=wide) if b is block else b for b in hello.blocks]
    ends = bin_edges(messages[-1].time_ns, SAMPLE_NS, 30)
    narrow, both = (
        recorded_history(one, messages) for one in (hello, replace(hello, blocks=blocks))
    )
    parts = [
        narrow.shared_counter(key, ends) for key in ("memory_read_bytes", "memory_write_bytes")
    ]
    assert both.shared_counter("memory_read_bytes", ends) == pytest.approx(sum(parts), rel=1e-6)
    assert min(part.min() for part in parts) > 0


def test_a_rarely_read_rate_covers_all_bins_since_the_previous_read() -> None:
    nan = np.nan
    rates = np.array([[nan], [5.0], [nan], [nan], [7.0], [nan], [9.0]])
    read_s = np.array([[0.0], [4.0], [0.0], [0.0], [3.0], [0.0], [1.0]])
    result = fill_covered_bins(rates, read_s, np.ones(7))[:, 0]
    assert np.array_equal(result, [5.0, 5.0, 7.0, 7.0, 7.0, nan, 9.0], equal_nan=True)
