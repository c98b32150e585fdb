"""The simulated machine as a stream: the wire, reproducibility, tasks, memory and time."""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace

import numpy as np
import pytest
from command import python
from nightly import INFORMATIVE_SCENARIOS, cases_by_day
from sim_streams import (
    SAMPLE_NS,
    column,
    deltas,
    head,
    run,
    valid,
)

from perfprobe.errors import Unavailable
from perfprobe.sources.sim.machine import SCENARIOS, Spec, ceiling_mhz, parse_spec
from perfprobe.sources.sim.source import SimSource
from perfprobe.wire import (
    HEAD,
    ROW_OFFLINE,
    ROW_REBASED,
    ROW_SAMPLED,
    ROW_WIDE,
    Decoder,
    Frame,
    Message,
    encode,
)


def assert_round_trip(*sent: Message) -> None:
    decoder = Decoder()
    assert [m for message in sent for m in decoder.feed(encode(message))] == [*sent]


SHAPES = ("cpus=1,smt=1", "cpus=2", "cpus=4", "cpus=8,smt=8", "cpus=6,packages=3", "cpus=128")


@pytest.mark.parametrize("scenario", cases_by_day(SCENARIOS, INFORMATIVE_SCENARIOS))
def test_every_scenario_passes_the_wire(scenario: str) -> None:
    hello, frames, notes = run(scenario, 40, 2 * SAMPLE_NS)
    assert_round_trip(hello, *notes, *frames)
    assert [f.seq for f in frames] == list(range(201))
    assert all(len(f.blocks) == len(hello.blocks) for f in frames)
    heads = b"".join(bytes(rows.head) for f in frames for rows in f.blocks.values())
    assert not np.frombuffer(heads, np.uint64).reshape(-1, HEAD)[:, 3].any()  # lost samples
    for block in hello.blocks:
        for counter in block.counters:
            if counter.kind == "counter" and counter.key != "probe_cpu_s":
                width = np.uint64(2**counter.bits - 1)
                assert (column(hello, frames, counter.key) <= width).all()


@pytest.mark.parametrize(
    ("scenario", "shape"),
    cases_by_day(
        [(scenario, shape) for scenario in SCENARIOS if scenario != "hybrid" for shape in SHAPES],
        [
            (scenario, shape)
            for at, scenario in enumerate(INFORMATIVE_SCENARIOS[1:])
            for shape in SHAPES[at % 3 :: 3]
        ]
        + [("turbo-drop", "cpus=1,smt=1"), ("license", "cpus=8,smt=8"), ("warmup", "cpus=2")],
    ),
)
def test_every_scenario_plays_on_every_machine(scenario: str, shape: str) -> None:
    if scenario == "guest":  # the CPUs of this machine have no siblings
        shape = shape.replace("smt=8", "smt=1")
    hello, frames, notes = run(f"{scenario},{shape}", 40, 8_000_000_000)
    assert_round_trip(hello, *notes, *frames)


def test_the_largest_machine_passes_the_wire() -> None:
    hello, frames, _ = run("hotplug,cpus=4096", 1)
    assert_round_trip(hello, *frames)


def test_a_new_task_is_reported_with_its_share_of_the_second() -> None:
    _, frames, _ = run("smt-mix", 16)
    results = [frames[seq].records["tasks"] for seq in (131, 141, 151)]
    assert [tasks["1"][1] for tasks in results] == ["lmp", "stream", "stream"]
    assert 0.1 < results[1]["1"][2] < 0.21, "0.1 s, and the sample in which it started"
    assert results[1]["0"][2] == results[2]["1"][2] == 1.0


# --- time -----------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    fake: SimpleNamespace = SimpleNamespace(
        now=100.0,
        CLOCK_MONOTONIC_RAW=0,
        monotonic_ns=lambda: round(fake.now * 1e9),
        process_time_ns=lambda: 1,
        time_ns=lambda: 1_800_000_000_000_000_000,
        clock_gettime_ns=lambda _: 123_456_789_000,
    )
    monkeypatch.setattr("perfprobe.sources.sim.source.time", fake)
    return fake


def test_frames_are_due_in_real_time(clock: SimpleNamespace) -> None:
    source = SimSource("sim:idle", SAMPLE_NS)
    assert source.hello.wall_ns == 1_800_000_000_000_000_000
    assert source.hello.raw_ns == 123_456_789_000
    assert source.due_s() == 100.0
    assert [f.time_ns for f in source.poll()] == [123_456_789_000]
    assert source.due_s() == pytest.approx(100.1)
    assert source.poll() == []
    clock.now = 100.35
    assert [m.seq for m in source.poll() if isinstance(m, Frame)] == [1, 2, 3]
    assert source.due_s() == pytest.approx(100.4)


@pytest.mark.parametrize("seed", cases_by_day(range(5), [0]))
def test_batches_of_any_length_have_the_same_frames(clock: SimpleNamespace, seed: int) -> None:
    """Except for blocks that are read once per batch, which are in its last frame."""
    rng = random.Random(seed)
    one, other = (SimSource("sim:hotplug,epoch=1000", SAMPLE_NS) for _ in range(2))
    results: list[list[Message]] = [[], []]
    while len(results[0]) < 200:
        if rng.random() < 0.3:
            other.set_batch_length(rng.choice([1, SAMPLE_NS, 2 * SAMPLE_NS, 5 * SAMPLE_NS, 10**12]))
        clock.now = other.due_s()
        batch = other.poll()
        results[1] += batch
        frames = [m for m in batch if isinstance(m, Frame)]
        assert all("stat" in frame.blocks for frame in frames)
        assert ["machine" in f.blocks for f in frames] == [False] * (len(frames) - 1) + [True]
        assert len(frames) <= 10
        results[0] += one.poll()
    assert len(results[0]) == len(results[1])
    for alone, together in zip(*results, strict=True):
        if isinstance(alone, Frame) and isinstance(together, Frame):
            kept = {name: alone.blocks[name] for name in together.blocks}
            machine = {name: rows for name, rows in together.blocks.items() if name != "machine"}
            kept.pop("machine", None)
            assert dataclasses.replace(together, blocks=machine) == dataclasses.replace(
                alone, blocks=kept
            )
        else:
            assert alone == together


def test_simulated_time_may_run_faster(clock: SimpleNamespace) -> None:
    source = SimSource("sim:idle,speed=10,epoch=1000", SAMPLE_NS)
    assert source.hello.wall_ns == 1000 * 10**9
    clock.now = 100.1
    assert len(source.poll()) == 11
    assert source.due_s() == pytest.approx(100.11)
    assert SimSource("sim:idle,speed=max", SAMPLE_NS).due_s() is None


def test_a_machine_without_a_reader_pauses(clock: SimpleNamespace) -> None:
    source = SimSource("sim:hotplug", SAMPLE_NS)
    source.poll()
    clock.now = 110.1  # the reader was only late: all samples are delivered
    while messages := source.poll():
        last = messages[-1]
    assert last.time_ns - source.hello.raw_ns == 10_100_000_000
    clock.now = 100 + 3600
    (frame,) = source.poll()
    assert frame.time_ns - source.hello.raw_ns == 10_200_000_000
    assert source.due_s() == pytest.approx(3700.1, abs=1e-5)


def test_numpy_is_not_loaded_for_other_sources() -> None:
    code = "import perfprobe.sources, perfprobe.wire, sys; print('numpy' in sys.modules)"
    result = python(code)
    assert result.stdout == "False\n"


# --- hello ----------------------------------------------------------------------------------------


def test_a_hybrid_has_cores_of_two_types() -> None:
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


def test_the_turbo_ceiling_falls_with_each_further_active_core() -> None:
    ceilings = {n: ceiling_mhz(n) for n in (1, 2, 3, 4, 5, 8, 9, 12, 13, 20, 21)}
    assert [*ceilings.values()] == [
        3700, 3700, 3500, 3500, 3400, 3400, 3200, 3200, 3000, 3000, 2800
    ]  # fmt: skip


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


# --- hotplug --------------------------------------------------------------------------------------


def test_an_offline_cpu_returns_with_restarted_counters() -> None:
    hello, frames, notes = run("hotplug", 20)
    flags = np.array([head(f)[15, 4] for f in frames]) & ~ROW_WIDE
    assert (flags[:80] == ROW_SAMPLED).all()
    assert (flags[80:160] == ROW_OFFLINE).all()
    assert flags[160] == ROW_SAMPLED | ROW_REBASED
    assert (flags[161:] == ROW_SAMPLED).all()
    assert [(n.kind, n.time_ns - hello.raw_ns, n.data["online"]) for n in notes] == [
        ("hotplug", 8 * 10**9, False),
        ("hotplug", 16 * 10**9, True),
    ]
    assert notes[0].data["row"]["package"] is None
    assert notes[1].data["row"] == {
        **notes[1].data["row"],
        "cpu": 15,
        "core": 7,
        "siblings": [7, 15],
    }
    assert not valid(hello, frames[100], "ref")[15]
    assert not valid(hello, frames[100], "stat_user_s")[15]
    restarted = column(hello, frames[160:], "ref")[:, 15]
    assert restarted[0] < 1_000_000, "counters restart"
    assert (np.diff(restarted.astype(np.int64)) >= 0).all()
    others = np.array([head(f)[:15, 4] for f in frames]) & ~ROW_WIDE
    assert (others == ROW_SAMPLED).all()


def test_hotplug_repeats_in_the_next_cycle_of_the_script() -> None:
    hello, _, notes = run("hotplug", 70)
    times = [(n.time_ns - hello.raw_ns) / 1e9 for n in notes]
    assert times == [8, 16, 34, 42, 60, 68]
    assert run("hotplug,cpus=1,smt=1", 10)[2] == []


# --- the specification ----------------------------------------------------------------------------


def test_omitted_parameters_have_defaults() -> None:
    assert parse_spec("sim") == parse_spec("sim:") == parse_spec("sim:smt-mix") == Spec()
    assert parse_spec("guest") == Spec("guest", 2, 1, 1)
    assert parse_spec("halts,cpus=32,speed=max") == Spec("halts", 32, 2, speed=None)
    assert parse_spec("halts,cpus=30").packages == parse_spec("hybrid,cpus=64").packages == 1
    assert parse_spec("sim:idle,cpus=8,packages=2,smt=4,seed=7,speed=2.5,epoch=5") == Spec(
        "idle", 8, 2, 4, 7, 2.5, 5
    )


def test_speeds_and_samples_have_limits() -> None:
    assert [parse_spec(f"idle,speed={speed}").speed for speed in ("0.001", "1e6")] == [0.001, 1e6]
    for speed in ("0.00099", "1000001"):
        with pytest.raises(ValueError, match="speed"):
            parse_spec(f"idle,speed={speed}")
    assert SimSource("sim:idle", 1_000_000).hello.sample_ns == 1_000_000
    with pytest.raises(ValueError, match="at least 1 ms"):
        SimSource("sim:idle", 999_999)


@pytest.mark.parametrize(("text", "message"), [
    ("sim:nonsense", "unknown scenario 'nonsense'; known: idle, steady"),
    ("sim:idle,cpus=x", "cpus=x: a number from 1 to 4096"),
    ("sim:idle,cpus=4098", "cpus=4098: a number from 1 to 4096"),
    ("sim:idle,cpus=-2", "cpus=-2"),
    ("sim:idle,cpus=²", "cpus=²"),
    ("sim:idle,cpus=" + "9" * 9999, "a number from 1 to 4096"),
    ("sim:idle,cpus=15", "15 CPUs cannot be divided into 1 packages of cores with 2"),
    ("sim:idle,cpus=48,packages=5", "48 CPUs cannot be divided"),
    ("sim:idle,smt=3", "smt=3: a core has 1, 2, 4 or 8 threads"),
    ("sim:idle,speed=fast", "speed=fast: a number"),
    ("sim:idle,speed=nan", "speed=nan"),
    ("sim:idle,speed=1_0", "speed=1_0"),
    ("sim:idle,speed=\u0661", "speed=\u0661"),
    ("sim:idle,speed=0", "speed=0"),
    ("sim:idle,seed=1_0", "seed=1_0"),
    ("sim:idle,cores=4", "unknown option 'cores'; known: cpus"),
    ("sim:idle,cpus", "'cpus' is not KEY=VALUE"),
    ("sim:idle,", "'' is not KEY=VALUE"),
    ("sim:idle,seed=1,seed=2", "seed is given twice"),
    ("sim:hybrid,cpus=18", "hybrid has one package"),
    ("sim:hybrid,smt=4", "hybrid has one package"),
    ("sim:guest,smt=2", "a guest has no visible siblings"),
])  # fmt: skip
def test_a_mistake_is_named_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_spec(text)
    assert str(caught.value).startswith("sim: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "events", "multiplex", "message"), [
    ("sim:guest", "cycles:u,branches", True, "-e cycles:u: the hypervisor exposes no PMU"),
    ("sim:idle", "page-faults,cycles,branches,branch-misses,cache-misses:k", False,
     "-e cache-misses:k: no counter is left for it; without --no-multiplex the events take turns"),
])  # fmt: skip
def test_events_that_cannot_be_counted_are_named(
    text: str, events: str, multiplex: bool, message: str
) -> None:
    with pytest.raises(Unavailable) as caught:
        SimSource(text, SAMPLE_NS, events=events, multiplex=multiplex)
    assert str(caught.value) == message
    three = ",".join(events.split(",")[:-1])
    assert len(SimSource("sim:idle", SAMPLE_NS, events=three, multiplex=False).hello.blocks) >= 4


def test_impossible_samples_and_cpus_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 ms"):
        SimSource("sim", 1000)
    with pytest.raises(ValueError, match="no CPU 16 here; there are 0-15"):
        SimSource("sim", SAMPLE_NS, "0,16")
