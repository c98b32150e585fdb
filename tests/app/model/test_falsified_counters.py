"""Counters that are taken over, frozen or rewritten: simulated, and recorded on a real machine."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import sampling
import synth
from hypothesis import given
from hypothesis import strategies as st
from nightly import nightly_case
from roots import DATA
from sessions import one_by_one
from synth import counter

from perfprobe import wire
from perftop.model.numbers import METRICS
from perftop.model.sample_reader import Sample, SampleReader
from perftop.session.interval import Interval
from perftop.session.packing import Reader
from perftop.session.session import Session

TICKS = int(synth.TSC_HZ / 10)
SAMPLES = 14
STATES_BY_CORE = [(0.30, 0.15, 0.30), (0.10, 0.60, 0.05), (0.20, 0.20, 0.50)]
"""Shares by core: lp0 alone, lp1 alone, both."""
KEYS = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions", "one_thread",
        "aperf", "mperf")  # fmt: skip
FALSIFICATIONS = {
    "frozen": dict.fromkeys(KEYS[:6], 0.0),
    "taken": {"ref": 1.8, "cycles": 1.5, "instructions": 50.0, "kernel_cycles": 40.0,
              "kernel_instructions": 60.0, "one_thread": 4.0},
    "jumped": dict.fromkeys(KEYS[:5], 1000.0),
}  # fmt: skip
"""Factor by counter: the ratio between the counts of another program's event and the true ones,
chosen independently of the gates."""


def step(cpu: int, seq: int) -> dict[str, float]:
    """Returns the counts of a CPU in a sample. Loads vary slightly between samples."""
    core, lp = cpu % 3, cpu // 3
    first, second, both = STATES_BY_CORE[core]
    alone = (first, second)[lp] * (1 + 0.02 * ((seq * 7 + cpu) % 5))
    ref = (alone + both) * TICKS
    cycles = 1.4 * ref
    return {"ref": ref, "cycles": cycles, "instructions": 1.1 * cycles,
            "kernel_cycles": 0.05 * cycles, "kernel_instructions": 0.03 * cycles,
            "one_thread": alone * TICKS, "aperf": cycles, "mperf": ref}  # fmt: skip


def samples(factors_by_counter: dict[tuple[int, str], tuple[float, range]]) -> list[Sample]:
    """Returns samples of three cores. `factors_by_counter`: by CPU and key, the factor of the
    counts and the samples that have it."""
    units = {"instructions": "instructions", "kernel_instructions": "instructions"}
    hello = synth.hello([counter(key, units.get(key, "cycles")) for key in KEYS], cores=3)
    reader, result = SampleReader(hello), list[Sample]()
    sums = {key: [0.0] * 6 for key in KEYS}
    for seq in range(SAMPLES):
        for cpu in range(6) if seq else ():
            for key, value in step(cpu, seq).items():
                factor, when = factors_by_counter.get((cpu, key), (1.0, range(0)))
                sums[key][cpu] += value * (factor if seq in when else 1.0)
        values = {key: [int(value) for value in sums[key]] for key in KEYS}
        result += sampling.samples(reader, [synth.frame(hello, seq, values)], learn=True)
    return result


@functools.cache
def true_samples() -> list[Sample]:
    result = samples({})
    assert not any(sample.delta.doubts.any() for sample in result)
    return result


def needed_counters(metric: str) -> set[str]:
    return set(METRICS[metric].variants[0].needs)


@given(
    st.sampled_from([(kind, key) for kind, keys in FALSIFICATIONS.items() for key in keys]),
    st.sets(st.integers(min_value=0, max_value=5), min_size=1),
    st.integers(min_value=3, max_value=7),
    st.integers(min_value=1, max_value=4),
)
def test_only_metrics_of_a_falsified_counter_are_unknown(
    falsification: tuple[str, str], cpus: set[int], start: int, length: int
) -> None:
    kind, key = falsification
    when = range(start, start + length)
    result = samples({(cpu, key): (FALSIFICATIONS[kind][key], when) for cpu in cpus})
    index = KEYS.index(key)
    for seq, (sample, true) in enumerate(zip(result, true_samples(), strict=True), 1):
        marked = set(np.flatnonzero(sample.delta.doubts[:, index]))
        if seq in when:
            assert cpus <= marked, seq
        elif seq < start or seq >= when.stop + 1:
            assert not sample.delta.doubts.any(), seq
        for metric in METRICS:
            actual, expected = sample.values[metric], true.values[metric]
            changed = ~np.isclose(actual, expected, rtol=1e-6, equal_nan=True)
            if key not in needed_counters(metric):
                assert not changed.any(), (seq, metric)
            elif seq in when:
                assert np.isnan(actual[sorted(cpus)]).all(), (seq, metric)
            assert np.isnan(actual[changed]).all(), (seq, metric)


@pytest.mark.parametrize("key", ["ref", "one_thread"])
def test_a_falsified_counter_makes_only_the_states_of_its_core_unknown(key: str) -> None:
    result = samples({(4, key): (0.0, range(5, 8))})  # CPU 4 is the second thread of core 1
    for seq, (sample, true) in enumerate(zip(result, true_samples(), strict=True), 1):
        unknown = np.isnan(sample.split.states).any(axis=1)
        assert unknown.tolist() == [False, seq in range(5, 9), False], seq
        known = ~unknown
        np.testing.assert_allclose(sample.split.states[known], true.split.states[known], atol=1e-6)


def test_a_reference_counter_that_never_agreed_raises_no_doubt() -> None:
    """MPERF of a hypervisor may have another rate."""
    always = {(cpu, "mperf"): (0.5, range(SAMPLES)) for cpu in range(6)}
    assert not any(sample.delta.doubts.any() for sample in samples(always))


def test_stamps_that_run_backwards_affect_only_their_core() -> None:
    hello = synth.hello([synth.REF, synth.ONE_THREAD], cores=2)
    reader = SampleReader(hello)
    results = []
    for seq in range(4):
        stamps = [seq * TICKS] * 4
        if seq == 2:
            stamps[1] = 0
        values = {"ref": [seq * TICKS // 2] * 4, "one_thread": [seq * TICKS // 4] * 4}
        results += sampling.samples(reader, [synth.frame(hello, seq, values, stamps=stamps)])
    assert len(results) == 3
    assert set(results[1].delta.suspect_counters) == {1}
    assert np.isnan(results[1].values["util"]).tolist() == [False, True, False, False]
    assert np.isnan(results[1].split.states).any(axis=1).tolist() == [False, True]


@pytest.mark.parametrize(("late_s", "next_s", "is_used"), [
    (0.03, 5e-8, False), (0.0051, 0.001, False), (0.0049, 0.001, True),
])  # fmt: skip
def test_an_interrupted_first_read_is_not_used(
    late_s: float, next_s: float, *, is_used: bool
) -> None:
    """30 ms between the stamp and the values would give 1.95 instead of 2.8 GHz."""
    hello = synth.hello([synth.REF, synth.CYCLES], threads=1)
    reader, late = SampleReader(hello), int(late_s * synth.TSC_HZ)
    hz = []
    for seq in range(4):
        ticks = TICKS * (seq + 1) + (late if seq == 0 else 0)
        values: synth.Values = {"ref": [ticks], "cycles": [int(1.4 * ticks)]}
        message = synth.frame(hello, seq, values, stamps=[TICKS * (seq + 1)])
        head = np.frombuffer(message.blocks["cpu"].head, "<u8").reshape(1, wire.HEAD).copy()
        head[0, 1] = head[0, 0] + np.uint64(late if seq == 0 else next_s * synth.TSC_HZ)
        rows = message.blocks["cpu"]
        message.blocks["cpu"] = wire.Rows(head.tobytes(), rows.valid, rows.values)
        now = sampling.samples(reader, [message])
        hz += [float(sample.values["busy_hz"][0]) for sample in now]
    assert np.isnan(hz[0]) != is_used
    assert hz[1:] == pytest.approx([2.8e9] * 2)


def test_counters_that_are_reported_taken_are_suspect_until_released() -> None:
    """Counts of all rings instead of the kernel's contradict no other counter; only the registers
    show it."""
    hello = synth.hello([counter(key) for key in ("ref", "cycles", "kernel_cycles")], threads=1)
    session, report = Session(hello), {"cpus": [0], "counters": ["kernel_cycles", "no such"]}
    kernel = []
    for seq in range(8):
        if seq in (3, 6):
            kind = "taken" if seq == 3 else "given-back"
            session.apply(wire.Note(kind, seq * synth.SAMPLE_NS - 1, data=report))
        values: synth.Values = {"ref": [seq * TICKS // 2], "cycles": [seq * TICKS // 2],
                               "kernel_cycles": [seq * TICKS // 3]}  # fmt: skip
        session.apply(synth.frame(hello, seq, values))
        interval = session.take_interval()
        assert seq == 0 or interval.values["util"][0] == pytest.approx(0.5)
        kernel.append(float(interval.values["kernel_cycles"][0]))
    assert [np.isnan(value) for value in kernel] == [seq in (0, 3, 4, 5) for seq in range(8)]
    (episode,) = session.running
    assert (episode.kind, episode.cause) == ("suspect", "kernel_cycles")
    assert episode.evidence == {"kernel_cycles": "taken", "samples": 3}
    session.apply(wire.Note("taken", 8 * synth.SAMPLE_NS, data={"cpus": 7, "counters": [[]]}))
    session.apply(wire.Note("taken", 8 * synth.SAMPLE_NS, data={"cpus": [9, "x"], "counters": [1]}))


# --- a recording of two Xeon Platinum 8160; in interval 18 a benchmark takes over counters


FIRST_TAKEN = 18
"""The first interval that another program's event affects."""
LAST = 58
FEW_KEYS = ("ref", "cycles", "any_thread")


def stream() -> Iterator[wire.Message]:
    yield from Reader().feed((DATA / "platinum-8160").read_bytes())


def with_counters_only(
    keys: tuple[str, ...], messages: Iterator[wire.Message]
) -> Iterator[wire.Message]:
    """Returns the stream of a probe that reads only these counters."""
    hello = next(messages)
    assert isinstance(hello, wire.Hello)
    (block,) = hello.blocks
    indices = [i for i, counter in enumerate(block.counters) if counter.key in keys]
    fewer = dataclasses.replace(block, counters=[block.counters[i] for i in indices])
    yield dataclasses.replace(hello, blocks=[fewer])
    valid = np.uint64(2 ** len(indices) - 1)
    for message in messages:
        if isinstance(message, wire.Frame):
            rows = message.blocks["cpu"]
            values = np.frombuffer(rows.values, "<u8").reshape(96, -1)[:, indices].tobytes()
            part = wire.Rows(rows.head, np.full(96, valid).tobytes(), values)
            yield dataclasses.replace(message, blocks={"cpu": part})


def play(messages: Iterator[wire.Message]) -> tuple[Session, list[Interval]]:
    hello = next(messages)
    assert isinstance(hello, wire.Hello)
    session = Session(hello)
    taken = one_by_one(session, [*messages])
    return session, [session.take_interval() for m in taken if isinstance(m, wire.Frame) and m.seq]


@pytest.fixture(scope="module", params=["all counters", nightly_case("three counters")])
def session_and_intervals(request: pytest.FixtureRequest) -> tuple[Session, list[Interval]]:
    return play(
        stream() if request.param == "all counters" else with_counters_only(FEW_KEYS, stream())
    )


Played = tuple[Session, list[Interval]]


def test_correct_counters_are_never_doubted(session_and_intervals: Played) -> None:
    _, intervals = session_and_intervals
    assert len(intervals) == LAST
    for interval in intervals[: FIRST_TAKEN - 1]:
        assert interval.suspect_counters == {}
        assert np.isfinite(interval.split.states).all()
        assert interval.split.states.sum(axis=1) == pytest.approx(np.ones(48))
    for interval in intervals:
        for key in ("util", "busy_hz", "net_hz", "halt"):  # from fixed counters
            assert np.isfinite(interval.values[key]).all(), key
        for key in ("ipc", "kernel_cycles", "kernel_instructions"):  # a stopped counter is not zero
            assert not (interval.values[key] == 0).any(), key
    # The benchmark runs on one thread of each core: half of the CPUs are busy.
    assert np.mean(intervals[30].values["util"]) == pytest.approx(0.5, abs=0.005)
    # Computed by hand from the file: T = 2 133 681 942 ticks; R0 .00023, R1 .01694, ANY .01716.
    assert intervals[2].split.states[45] == pytest.approx([0.98284, 0.00022, 0.01692, 0], abs=1e-4)


def test_all_cores_are_marked_from_the_takeover_on(session_and_intervals: Played) -> None:
    _, intervals = session_and_intervals
    for interval in intervals[FIRST_TAKEN - 1 :]:
        assert all(
            "any_thread" in {key for key, _ in interval.suspect_counters[row]} for row in range(96)
        )
        assert np.isnan(interval.split.states).all()
        assert set(interval.split.method) == {"any-thread"}


def test_the_takeover_is_one_episode_that_names_the_counters(session_and_intervals: Played) -> None:
    session, intervals = session_and_intervals
    episodes = [e for e in (*session.ended, *session.detector.running) if e.kind == "suspect"]
    (episode,) = episodes
    assert episode.cpus == list(range(96))
    assert episode.start_ns == intervals[FIRST_TAKEN - 2].time_ns
    keys = set(episode.cause.split(", "))
    assert "any_thread" in keys
    assert keys <= {"any_thread", "instructions", "kernel_cycles", "kernel_instructions"}


def test_the_run_contains_all_valid_values(session_and_intervals: Played) -> None:
    session, intervals = session_and_intervals
    whole = session.run_interval()
    assert np.isfinite(whole.split.states).all()
    good = np.mean(
        [interval.split.states[:, 3] for interval in intervals[: FIRST_TAKEN - 1]], axis=0
    )
    assert whole.split.states[:, 3] == pytest.approx(good, abs=2e-3)
    assert not math.isnan(whole.values.mean("util", session.selected))
