"""The split into SMT states, compared with given schedules. Counts are derived from the schedule,
with skewed reads and tick quanta."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st

from perfprobe import wire
from perfprobe.wire import Multiplier
from perftop.base.arrays import Floats
from perftop.model.delta import Doubt
from perftop.model.smt import exact_states, state_bounds
from perftop.session.interval import Interval
from perftop.session.session import Session

TICK = 84  # TSC ticks per crystal tick: the resolution of the reference clock

shares = st.lists(st.integers(min_value=0, max_value=1000), min_size=4, max_size=4).filter(sum)


def schedule(parts: list[int], ticks: int) -> list[tuple[int, bool, bool]]:
    """Returns pieces (length, lp0 active, lp1 active) in this order: neither, lp0, lp1, both."""
    lengths = [ticks * part // sum(parts) for part in parts]
    return list(zip(lengths, [False, True, False, True], [False, False, True, True], strict=True))


def ticks_until(pieces: list[tuple[int, bool, bool]], until: int, lp: int) -> tuple[int, int]:
    """Unhalted and alone-unhalted ticks of one LP until a given time, from the schedule."""
    now = unhalted = alone = 0
    for length, *active in pieces:
        span = max(0, min(length, until - now))
        if active[lp]:
            unhalted += span
            alone += 0 if active[1 - lp] else span
        now += length
    return unhalted, alone


def play(
    pieces: list[tuple[int, bool, bool]], reads: list[int], offset: int = 0
) -> tuple[Session, Interval]:
    """One interval from two samples of a core: at 0, and each LP at its time in `reads`. The TSC of
    the second LP is `offset` ahead."""
    greeting = synth.hello(
        [synth.REF, synth.ONE_THREAD],
        multipliers=[Multiplier("one_thread", TICK, "made")],
        smt_methods=["one-thread", "bounds"],
    )
    session = Session(greeting)
    start = 5 * 10**9
    ends = [ticks_until(pieces, read, lp) for lp, read in enumerate(reads)]
    first = {"ref": [0, 0], "one_thread": [0, 0]}
    last = {
        "ref": [ref // TICK * TICK for ref, _ in ends],
        "one_thread": [alone // TICK for _, alone in ends],
    }
    session.apply(synth.frame(greeting, 0, first, stamps=[start, start + offset]))
    stamps = [start + reads[0], start + offset + reads[1]]
    session.apply(synth.frame(greeting, 1, last, stamps=stamps))
    return session, session.take_interval()


@given(
    shares,
    st.integers(min_value=-20_000, max_value=20_000),
    st.integers(min_value=0, max_value=10**9),
)
def test_states_match_any_schedule_despite_skew_and_quanta(
    parts: list[int], skew: int, offset: int
) -> None:
    """20 000 ticks are 10 us, the longest delay between reads of two siblings."""
    ticks = 200_000_000
    pieces = [*schedule(parts, ticks), (10**6, False, False)]
    session, interval = play(pieces, [ticks, ticks + skew], offset)
    assert session.run.span.suspect_count == 0
    result = interval.split.states[0]
    truth = [length / ticks for length, *_ in pieces[:4]]
    assert result == pytest.approx(truth, abs=5e-4)
    assert (result >= 0).all()
    assert result.sum() == pytest.approx(1, abs=1e-12)
    assert interval.split.method == ["one-thread"]


def test_implausible_counts_are_suspect_instead_of_clamped() -> None:
    """A sibling is alone for longer than it ran: another program changed the counter."""
    greeting = synth.hello(
        [synth.REF, synth.ONE_THREAD], multipliers=[Multiplier("one_thread", TICK, "made")]
    )
    session = Session(greeting)
    ticks = int(synth.TSC_HZ / 10)
    for seq, alone in enumerate([0, ticks // TICK // 2]):
        values = {"ref": [seq * ticks // 5, seq * ticks // 5], "one_thread": [alone, alone]}
        session.apply(synth.frame(greeting, seq, values))
    interval = session.take_interval()
    assert np.isnan(interval.split.states).all()
    assert session.run.span.suspect_count == 2
    assert interval.suspect_counters[0] == {("one_thread", Doubt.OUTSIDE)}
    assert interval.values["util"] == pytest.approx([0.2, 0.2])  # the reference clock is valid


@pytest.mark.parametrize(("difference", "suspects"), [(0.01, 0), (0.05, 2)])
def test_two_estimates_may_differ_by_the_delay_between_reads(
    difference: float, suspects: int
) -> None:
    """Each estimate may be off by 1 % of the span."""
    greeting = synth.hello([synth.REF, synth.ONE_THREAD])
    session = Session(greeting)
    ticks = synth.TSC_HZ / 10
    half, alone = [int(0.5 * ticks)] * 2, [int(0.3 * ticks), int((0.3 - difference) * ticks)]
    session.apply(synth.frame(greeting, 0, {"ref": [0, 0], "one_thread": [0, 0]}))
    session.apply(synth.frame(greeting, 1, {"ref": half, "one_thread": alone}))
    assert session.run.span.suspect_count == suspects


unit = st.floats(min_value=0, max_value=1)


@given(unit, unit, st.floats(min_value=-0.5, max_value=2.5))
def test_states_are_never_negative_and_add_up_to_one(r0: float, r1: float, any_: float) -> None:
    result = exact_states(np.array([r0]), np.array([r1]), np.array([any_]))
    assert (result >= 0).all()
    assert result.sum() == pytest.approx(1)
    assert result[0, 1] + result[0, 3] == pytest.approx(r0)
    assert result[0, 2] + result[0, 3] == pytest.approx(r1)


def test_bounds_are_the_extremes_of_all_schedules() -> None:
    """Each sibling runs in some of four slots."""
    states_by_load: dict[tuple[int, int], list[list[float]]] = {}
    for first, second in product(product((0, 1), repeat=4), repeat=2):
        slots = [*zip(first, second, strict=True)]
        shares_of_states = [slots.count(slot) / 4 for slot in ((0, 0), (1, 0), (0, 1), (1, 1))]
        states_by_load.setdefault((sum(first), sum(second)), []).append(shares_of_states)
    loads = np.array([*states_by_load]) / 4
    low, high = state_bounds(loads[:, 0], loads[:, 1])
    assert low.tolist() == [np.min(each, axis=0).tolist() for each in states_by_load.values()]
    assert high.tolist() == [np.max(each, axis=0).tolist() for each in states_by_load.values()]


def interval_of_one_core(
    threads: int, ref: list[int], **more: list[int]
) -> tuple[Interval, Floats]:
    """A core with `threads` threads, and one interval of 200 M ticks with these counts."""
    counters = [synth.counter(key) for key in ("ref", *more)]
    greeting = synth.hello(counters, threads=threads)
    session = Session(greeting)
    zero = {key: [0] * threads for key in ("ref", *more)}
    session.apply(synth.frame(greeting, 0, zero))
    session.apply(synth.frame(greeting, 1, {"ref": ref, **more}))
    interval = session.take_interval()
    return interval, interval.split.states[0]


def test_states_follow_from_any_thread_and_distributed_counters() -> None:
    # the threads ran for .75 and .50 of 200 M ticks, the core for .90
    ref = [150_000_000, 100_000_000]
    _, result = interval_of_one_core(2, ref, any_thread=[180_000_000, 180_000_000])
    assert result.tolist() == pytest.approx([0.1, 0.4, 0.15, 0.35])
    shared = 70_000_000  # both threads ran for .35 of 200 M ticks, and count half a tick each
    dist = [ref[0] - shared // 2, ref[1] - shared // 2]
    _, result = interval_of_one_core(2, ref, distributed=dist)
    assert result.tolist() == pytest.approx([0.1, 0.4, 0.15, 0.35])


def test_only_neither_and_a_mean_are_known_of_four_threads() -> None:
    ref = [20_000_000, 40_000_000, 60_000_000, 0]
    interval, result = interval_of_one_core(4, ref, any_thread=[80_000_000] * 4)
    assert result[0] == pytest.approx(0.6)
    assert np.isnan(result[1:]).all()
    assert interval.split.active_threads[0] == pytest.approx(0.6)
    interval, _ = interval_of_one_core(4, ref)
    assert interval.split.method == ["bounds"]
    assert (interval.split.low[0, 0], interval.split.high[0, 0]) == pytest.approx((0.4, 0.7))


def test_siblings_read_over_different_spans_have_unknown_states() -> None:
    """One sibling came online in between: its counts are right, but not comparable."""
    greeting = synth.hello([synth.REF])
    session = Session(greeting)
    ticks = int(synth.TSC_HZ / 10)
    back = [wire.ROW_SAMPLED, wire.ROW_SAMPLED | wire.ROW_REBASED]
    for seq, flags in enumerate([None, None, back, None]):
        ref = [seq * ticks // 2, seq * ticks // 2]
        session.apply(synth.frame(greeting, seq, {"ref": ref}, flags=flags))
    interval = session.take_interval()
    assert interval.values["util"].tolist() == [0.5, 0.5]
    assert np.isnan(interval.split.states).all()
    assert np.isnan(interval.split.low).all()
    assert session.run.span.suspect_count == 0


@pytest.mark.parametrize("key", ["one_thread", "any_thread", "distributed"])
def test_a_core_without_its_event_has_bounds_and_others_have_states(key: str) -> None:
    greeting = synth.hello([synth.REF, synth.counter(key, cpus=[0, 2])], cores=2)
    session = Session(greeting)
    ticks = int(synth.TSC_HZ / 10)
    for seq in (0, 1):
        half = seq * ticks // 2
        event = {"one_thread": 0, "any_thread": half, "distributed": half // 2}[key]
        values: synth.Values = {"ref": [half] * 4, key: [event, None, event, None]}
        session.apply(synth.frame(greeting, seq, values))
    split = session.take_interval().split
    assert split.method == [key.replace("_", "-"), "bounds"]
    assert split.states[0].tolist() == pytest.approx([0.5, 0, 0, 0.5], abs=1e-4)
    assert np.isnan(split.states[1]).all()


TRACED = [
    synth.counter(key, "s", bits=64, scale=1e-9)
    for key in ("neither_s", "lp0_s", "lp1_s", "both_s")
]


def traced_interval(first_core_ns: list[int], second_core_ns: list[int]) -> Interval:
    """Two cores without counters: ns that each spent in neither, lp0, lp1 and both, in 0.1 s."""
    busy = synth.counter("busy_s", "s", bits=64, scale=1e-9)
    steal = synth.counter("stat_steal_s", "s", bits=64, scale=0.01)
    greeting = synth.hello([busy], cores=2, stat=[steal], core=TRACED)
    session = Session(greeting)
    keys = [c.key for c in TRACED]
    for seq in (0, 1):
        values = {
            key: [seq * first_core_ns[i], seq * second_core_ns[i]] for i, key in enumerate(keys)
        }
        values["busy_s"] = [
            seq * (core[alone] + core[3])
            for alone in (1, 2)
            for core in (first_core_ns, second_core_ns)
        ]
        values["stat_steal_s"] = [0] * 4
        session.apply(synth.frame(greeting, seq, values))
    return session.take_interval()


def test_states_follow_from_idle_transitions_of_the_kernel() -> None:
    first = [50_000_000, 20_000_000, 20_000_000, 10_000_000]
    second = [10_000_000, 60_000_000, 30_000_000, -50]  # values may decrease by some ns
    interval = traced_interval(first, second)
    assert interval.split.method == ["traced", "traced"]
    assert np.isnan([interval.split.low, interval.split.high]).all(), "no bounds of known states"
    assert interval.split.states[0].tolist() == pytest.approx([0.5, 0.2, 0.2, 0.1])
    assert interval.split.states[1].tolist() == pytest.approx([0.1, 0.6, 0.3, 0], abs=1e-5)
    assert interval.values["util"].tolist() == pytest.approx([0.3, 0.6, 0.3, 0.3], abs=1e-5)


def test_a_core_with_partly_unknown_transitions_has_bounds() -> None:
    interval = traced_interval(
        [50_000_000, 20_000_000, 20_000_000, 10_000_000], [0, 0, 50_000_000, 0]
    )
    assert interval.split.method == ["traced", "bounds"]
    assert np.isnan(interval.split.states[1]).all()


def test_a_core_that_is_not_in_hello_has_no_traced_states() -> None:
    """Its siblings came online later: no row of the stream belongs to it."""
    busy = synth.counter("busy_s", "s", bits=64, scale=1e-9)
    greeting = synth.hello([busy], cores=2, core=TRACED)
    first, late = greeting.cores  # CPUs 0 and 2 are siblings, and so are 1 and 3
    for cpu in late:
        greeting.topology[cpu] = wire.Cpu(cpu, False)
    greeting = dataclasses.replace(greeting, cores=[first])
    session = Session(greeting)
    for cpu in late:
        row = {"package": 0, "die": 0, "core": 1, "siblings": late}
        session.apply(wire.Note("hotplug", 0, data={"cpu": cpu, "online": True, "row": row}))
    for seq in (0, 1):
        ns = dict(zip((c.key for c in TRACED), (50, 20, 20, 10), strict=True))
        values = {key: [seq * ms * 1_000_000] for key, ms in ns.items()}
        values["busy_s"] = [seq * ms * 1_000_000 for ms in (30, 60, 30, 30)]
        session.apply(synth.frame(greeting, seq, values))
    split = session.take_interval().split
    assert session.cores == [first, late]
    assert split.method == ["traced", "bounds"]
    assert split.states[0].tolist() == pytest.approx([0.5, 0.2, 0.2, 0.1])
    assert np.isnan(split.states[1]).all()
