"""What a simulated machine says of itself: numbering, kinds of CPUs, counters."""

import pytest
from simulated import column, deltas, run, valid


def test_numbering_is_that_of_linux() -> None:
    hello, _, _ = run("idle,cpus=64", 0)
    rows = hello.topology
    assert hello.packages == [[*range(16), *range(32, 48)], [*range(16, 32), *range(48, 64)]]
    assert hello.cores[17] == rows[17].siblings == rows[49].siblings == [17, 49]
    assert (rows[49].package, rows[49].core, rows[49].thread, rows[49].node) == (1, 1, 1, 1)
    assert [row.thread for row in rows] == [0] * 32 + [1] * 32
    assert [row.core for row in rows] == [*range(16)] * 4
    assert [row.l3 for row in rows[:32]] == [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8
    assert hello.smt_methods == ["one-thread", "bounds"]
    assert [(m.counter, m.factor) for m in hello.multipliers] == [
        ("one_thread", 84),
        ("one_thread", 1),
    ]
    small, _, _ = run("idle,cpus=8,packages=2", 0)
    assert [row.l3 for row in small.topology] == [0, 0, 1, 1] * 2


def test_hybrid() -> None:
    hello, frames, _ = run("hybrid", 2)
    rows = hello.topology
    assert [row.type for row in rows] == ["P"] * 4 + ["E"] * 8 + ["P"] * 4
    assert [len(core) for core in hello.cores] == [2] * 4 + [1] * 8
    has = valid(hello, frames[1], "one_thread")
    assert has.tolist() == [row.type == "P" for row in rows]
    busy = deltas(hello, frames, "cycles")[-1] / deltas(hello, frames, "ref")[-1] * 2.1
    assert busy[0] == pytest.approx(3.5, abs=0.01)
    assert busy[4] == pytest.approx(2.9, abs=0.01)
    assert set(column(hello, frames[:1], "base_hz")[0].tolist()) == {2_100_000_000, 1_500_000_000}
    assert column(hello, frames[:1], "e_ceiling_hz")[0] == 2_900_000_000


def test_four_threads_have_narrow_counters_and_any_thread() -> None:
    hello, frames, _ = run("smt-mix,smt=4", 4)
    assert hello.smt_methods == ["any-thread"]
    assert {c.bits for c in hello.blocks[0].counters[:6]} == {40}
    anyone = deltas(hello, frames, "any_thread")[-1] * 84
    ref = deltas(hello, frames, "ref")[-1]
    times = frames[-1].time_ns - frames[0].time_ns
    for cpus in hello.cores:
        assert ref[cpus].max() <= anyone[cpus].min() + 4_000_000 * 2.1
        assert anyone[cpus].max() <= min(times * 2.1, ref[cpus].sum()) + 1e6
    assert run("idle,smt=1", 0)[0].smt_methods == ["single"]
