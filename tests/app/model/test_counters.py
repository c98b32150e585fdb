"""Differences of counters of any width; gaps, restarts and rewrites; values by core."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from sessions import session_of
from sim_streams import bin_edges
from synth import counter, frame

from perfprobe import wire
from perftop.model.counters import Cores, Counters
from perftop.model.delta import Delta, Doubt
from perftop.session.history import History
from perftop.session.session import Session

TICKS = synth.TSC_HZ / 10


def deltas(greeting: wire.Hello, *frames: wire.Frame) -> list[Delta]:
    counters = Counters(greeting)
    return [counters.steps([f])[0] for f in frames]


def increment(delta: Delta, row: int = 0, column: int = 0) -> float:
    return float(delta.tables["cpu"].increments[row, column])


def ticks(delta: Delta, row: int = 0) -> float:
    return float(delta.tables["cpu"].ticks[row])


@given(
    st.sampled_from([32, 40, 48, 64]),
    st.integers(min_value=0, max_value=2**64 - 1),
    st.integers(min_value=0, max_value=900_000_000),
)
def test_a_wrapped_counter_has_an_ordinary_difference(bits: int, start: int, step: int) -> None:
    if bits == 64:  # full-width counters are sums of the kernel and never wrap
        start %= 2**62
    greeting = synth.hello([counter("cycles", bits=bits)], threads=1)
    a, b = start % 2**bits, (start + step) % 2**bits
    _, delta = deltas(
        greeting, frame(greeting, 0, {"cycles": [a]}), frame(greeting, 1, {"cycles": [b]})
    )
    assert increment(delta) == step
    assert delta.suspect_counters == {}


def test_a_rewritten_counter_is_suspect() -> None:
    greeting = synth.hello([synth.CYCLES], threads=1)
    series = [10**9, 10**9 + 10**8, 5, 10**8 + 5]  # rewritten to 5 before the third sample
    _, good, bad, after = deltas(
        greeting, *(frame(greeting, i, {"cycles": [v]}) for i, v in enumerate(series))
    )
    assert increment(good) == 10**8
    assert ticks(bad) == TICKS
    assert np.isnan(increment(bad))
    assert bad.suspect_counters == {0: {("cycles", Doubt.JUMPED)}}
    assert increment(after) == 10**8
    assert after.suspect_counters == {}


@pytest.mark.parametrize("samples", [1, 20])
@pytest.mark.parametrize(("unit", "per_s", "slack", "scale"), [
    ("cycles", 10e9, 1e6, 1.0), ("instructions", 160e9, 1e6, 1.0), ("events", 10e12, 1e6, 1.0),
    ("s", 1.0, 0.05, 1e-9),
])  # fmt: skip
def test_an_increment_beyond_any_possible_rate_is_suspect(
    unit: str, per_s: float, slack: float, scale: float, samples: int
) -> None:
    greeting = synth.hello([counter("x", unit, bits=64, scale=scale)], threads=1)
    limit = (0.1 * samples * per_s + slack) / scale
    for step, suspect in ((0.9999 * limit, False), (1.0001 * limit, True)):
        frames = (frame(greeting, n * samples, {"x": [round(n * step)]}) for n in (0, 1))
        _, delta = deltas(greeting, *frames)
        assert delta.suspect_counters == ({0: {("x", Doubt.JUMPED)}} if suspect else {})
    for step, suspect in ((0.9999 * slack / scale, False), (1.0001 * slack / scale, True)):
        values = 2 * limit, 2 * limit - step  # sums of the kernel may decrease slightly
        frames = (frame(greeting, n * samples, {"x": [round(v)]}) for n, v in enumerate(values))
        _, delta = deltas(greeting, *frames)
        assert bool(delta.suspect_counters) == suspect


@pytest.mark.parametrize("flag", [0, wire.ROW_SAMPLED | wire.ROW_WIDE])
def test_siblings_are_evaluated_together(flag: int) -> None:
    """Their counts then cover the same span, as SMT states require."""
    greeting = synth.hello([synth.CYCLES], cores=2, threads=2)
    read = wire.ROW_SAMPLED
    values = [[n, n, n, n] for n in (0, 100, 200)]
    _, gap, whole = deltas(
        greeting,
        frame(greeting, 0, {"cycles": values[0]}),
        frame(greeting, 1, {"cycles": values[1]}, flags=[read, read, flag, read]),
        frame(greeting, 2, {"cycles": values[2]}),
    )
    # CPUs 0 and 2 are siblings
    assert [ticks(gap, row) for row in range(4)] == [0, TICKS, 0, TICKS]
    assert [increment(whole, row) for row in range(4)] == [200, 100, 200, 100]


def test_cpus_without_a_known_core_are_evaluated_alone() -> None:
    greeting = dataclasses.replace(synth.hello([synth.CYCLES]), cores=[])
    read, wide = wire.ROW_SAMPLED, wire.ROW_SAMPLED | wire.ROW_WIDE
    _, delta = deltas(
        greeting,
        frame(greeting, 0, {"cycles": [0, 0]}),
        frame(greeting, 1, {"cycles": [100, 100]}, flags=[read, wide]),
    )
    assert [ticks(delta, row) for row in range(2)] == [TICKS, 0]


def test_siblings_that_are_off_or_unread_are_not_waited_for() -> None:
    greeting = synth.hello([synth.CYCLES], threads=2)
    for flag in (wire.ROW_OFFLINE, 0, wire.ROW_SAMPLED | wire.ROW_ELSEWHERE):
        flags = [wire.ROW_SAMPLED, flag]
        steps = deltas(
            greeting, *(frame(greeting, n, {"cycles": [100 * n, 0]}, flags=flags) for n in range(3))
        )
        assert [increment(step) for step in steps] == [0, 100, 100]


READ = wire.ROW_SAMPLED


@pytest.mark.parametrize(("reads", "spans", "increments"), [
    ([(0, READ), (100, 0), (200, READ)], [0, 0, 2], [0, 0, 200]),
    # The row was interrupted, or read on another CPU.
    ([(0, READ), (150, READ | wire.ROW_WIDE), (300, READ)], [0, 0, 2], [0, 0, 300]),
    ([(0, READ), (150, READ | wire.ROW_ELSEWHERE), (300, READ)], [0, 0, 2], [0, 0, 300]),
    # A CPU that was off starts again, even without a flag.
    ([(500, READ), (0, wire.ROW_OFFLINE), (7, READ | wire.ROW_REBASED), (107, READ)],
     [0, 0, 0, 1], [0, 0, 0, 100]),
    ([(500, READ), (7, READ | wire.ROW_REBASED), (107, READ)], [0, 0, 1], [0, 0, 100]),
    ([(500, READ), (0, wire.ROW_OFFLINE), (700, READ), (710, READ)], [0, 0, 0, 1],
     [0, 0, 0, 10]),
])  # fmt: skip
def test_an_invalid_read_is_covered_by_the_next(
    reads: list[tuple[int, int]], spans: list[int], increments: list[int]
) -> None:
    """The other CPU, which is read in each sample, is not affected."""
    greeting = synth.hello([synth.CYCLES], cores=2, threads=1)
    result = deltas(
        greeting,
        *(
            frame(greeting, seq, {"cycles": [value, 100 * seq]}, flags=[flags, READ])
            for seq, (value, flags) in enumerate(reads)
        ),
    )
    assert [ticks(delta) for delta in result] == [span * TICKS for span in spans]
    assert [increment(delta) for delta in result] == increments
    assert [increment(delta, 1) for delta in result] == [0] + [100] * (len(reads) - 1)
    assert all(delta.suspect_counters == {} for delta in result)


def test_an_unreadable_counter_is_unknown_instead_of_zero() -> None:
    greeting = synth.hello([synth.REF, synth.CYCLES], threads=1)
    _, lost, back = deltas(
        greeting,
        frame(greeting, 0, {"ref": [0], "cycles": [0]}),
        frame(greeting, 1, {"ref": [50], "cycles": [None]}),
        frame(greeting, 2, {"ref": [99], "cycles": [60]}),
    )
    assert increment(lost, column=0) == 50
    assert np.isnan(increment(lost, column=1))
    assert np.isnan(increment(back, column=1))  # a single read gives no difference


def test_rows_whose_time_runs_backwards_are_suspect() -> None:
    greeting = synth.hello([synth.CYCLES], cores=2, threads=1)
    ahead, now = 2 * 10**9, 10**9
    stamps = [(now, now), (now - 1, ahead), (ahead, ahead - 1)]
    result = Counters(greeting).steps(
        [frame(greeting, n, {"cycles": [n, n]}, stamps=at) for n, at in enumerate(stamps)]
    )
    backwards = {("cycles", Doubt.BACKWARDS)}
    assert [result[n].suspect_counters for n in range(3)] == [{}, {0: backwards}, {1: backwards}]


def test_a_restarted_counter_is_left_out_of_its_own_package_only() -> None:
    greeting = synth.hello([synth.CYCLES], cores=2, threads=1, packages=[[0], [1]])
    energy = wire.Counter("energy_j", "energy", "J", "made", bits=64)
    greeting.blocks.append(wire.Block("more", "package", [energy]))
    rows = [[10**9, 0], [0, 7]]  # the first counter restarts
    _, delta = deltas(
        greeting,
        *(frame(greeting, n, {"cycles": [n, n], "energy_j": row}) for n, row in enumerate(rows)),
    )
    assert delta.tables["more"].ticks.tolist() == [0, TICKS]
    assert delta.tables["more"].increments[:, 0].tolist() == [0, 7]


def test_kernel_times_may_step_back_by_a_tick() -> None:
    """iowait may step back; the sum over a longer span must still be right."""
    tick = counter("stat_iowait_s", "s", bits=64, scale=0.01)
    greeting = synth.hello([tick], threads=1)
    series = [100, 99, 102]
    steps = deltas(
        greeting, *(frame(greeting, i, {"stat_iowait_s": [v]}) for i, v in enumerate(series))
    )
    assert sum(increment(d) for d in steps) == pytest.approx(0.02)
    assert all(d.suspect_counters == {} for d in steps)


def test_gauges_are_averaged_over_time() -> None:
    gauge = counter("temperature_c", "°C", kind="gauge", bits=64, scale=0.001)
    greeting = synth.hello([gauge], threads=1)
    total = Counters(greeting).empty_delta()
    for delta in deltas(
        greeting,
        frame(greeting, 0, {"temperature_c": [0]}),
        frame(greeting, 1, {"temperature_c": [40_000]}),
        frame(greeting, 3, {"temperature_c": [-20_000]}),
    ):
        total.add(delta[None], np.zeros(0, int))
    assert increment(total) / ticks(total) == 0.0  # the level is 40 for one sample and -20 for two


# --- values by core, if cores differ


NAN = float("nan")


def test_cores_of_one_thread_and_cpus_without_a_core_have_values() -> None:
    cores = Cores(synth.hello(cores=2, threads=2), [[0, 2], [1]])
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert cores.threads(values, 9.0).tolist() == [[1, 3], [2, 9]]
    assert cores.sum_of_threads(values).tolist() == [4, 2]
    assert cores.max_of_threads(values).tolist() == [3, 2]
    np.testing.assert_array_equal(cores.by_cpu(np.array([5.0, 6.0])), [5, 6, 5, NAN])


def test_unknown_values_of_threads_are_left_out() -> None:
    cores = Cores(synth.hello(cores=2, threads=2), [[0, 2], [1, 3]])
    values = np.array([[1.0, NAN, NAN, NAN], [1.0, 2.0, 3.0, 4.0]])
    assert cores.sum_of_threads(values).tolist() == [[1, 0], [4, 6]]
    np.testing.assert_array_equal(cores.max_of_threads(values), [[1, NAN], [3, 4]])
    assert cores.by_cpu(values[:, :2])[1].tolist() == [1, 2, 1, 2]


# --- counters in blocks of another scope


BASE = [synth.REF, synth.CYCLES, synth.counter("smi", "1")]
WRONG_SCOPES = [
    ("cycles", "package"), ("cycles", "machine"), ("smi", "core"), ("memory_read_bytes", "cpu"),
    ("energy_j", "machine"), ("energy_j", "core"), ("l3_memory_bytes", "core"),
    ("both_s", "package"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "scope"), WRONG_SCOPES)
def test_a_counter_in_another_scope_is_not_used(key: str, scope: Any) -> None:
    plain = synth.hello(BASE, cores=2, packages=[[0, 2], [1, 3]])
    plain.blocks.append(wire.Block("p", "package", [synth.gauge("memory_write_bytes")]))
    cpus = [row.cpu for row in plain.topology]
    odd = dataclasses.replace(synth.counter(key), cpus=cpus)
    hello = dataclasses.replace(plain, blocks=[wire.Block("odd", scope, [odd]), *plain.blocks])
    history = History(hello)
    session = Session(hello, history)
    session_of(session, [_frame(hello, seq) for seq in range(1, 5)])
    column = session.counters.columns.get(key)
    assert column is None or column.block == "cpu"
    assert history.shared_counter(key, bin_edges(session.now_ns, 100_000_000, 4)).shape[1] == 0
    assert session.take_interval().values.mean("util", [0]) == pytest.approx(0.5)


def _frame(hello: wire.Hello, seq: int) -> wire.Frame:
    """Each CPU is busy half of the time; all other counters count samples."""
    ticks = int(seq * synth.TSC_HZ / 10)
    blocks = {}
    for block in hello.blocks:
        count = hello.rows(block.scope)
        values = {counter.key: [seq] * count for counter in block.counters}
        if block.name == "cpu":
            values |= {"ref": [ticks // 2] * count, "cycles": [ticks // 2] * count}
        blocks[block.name] = synth.rows(block, count, values, [ticks] * count)
    return wire.Frame(seq, seq * 100_000_000, blocks)
