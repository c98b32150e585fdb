"""Turbo drops, sample by sample, from handwritten clocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import increments
import numpy as np
import pytest
import synth
from fakes import CpuLoad, Machine, observe
from nightly import nightly_case
from rate_streams import S, SteppedDetector, sample_with, spans
from sessions import session_of
from sim_truth import SECOND, found_episodes, scripted

from perfprobe import wire
from perfprobe.sources.sim.source import SimSource
from perftop.base.arrays import Floats
from perftop.detect.engine import RunningEpisodes, cycles_and_time
from perftop.detect.engine import util as util_of
from perftop.detect.turbo_drops import TurboDrops, _has_ceiling
from perftop.model.confidence import BASE_CLOCK, ClockCap, TaskOnCpu
from perftop.model.counters import Cores
from perftop.model.delta import Delta
from perftop.model.sample_reader import Sample, SampleReader
from perftop.model.tasks import TaskSnapshot, Thread, WatchedJob
from perftop.session.session import Session

PAUSE = 400_000_000 // S
NAN = float("nan")
HZ = 3.0e9


def clock_sample(
    drops: TurboDrops, run_s: Floats, cycles: Floats, use: Floats, ceiling_hz: Floats, delta: Delta,
    tasks: TaskSnapshot | None = None,
) -> Sample:  # fmt: skip
    """Returns a sample of length S with these clocks of the cores."""
    caps = drops._reader.turbo.clock_caps(delta)
    parts = {util_of: use, cycles_and_time: (cycles, run_s), drops._clock_caps: caps,
             _has_ceiling: np.isfinite(ceiling_hz).any()}  # fmt: skip
    batch = SimpleNamespace(cached=lambda _: {} if tasks is None else {0: tasks})
    return sample_with(
        parts, since_ns=0, time_ns=S, cores=drops._cores, delta=delta, batch=batch, index=0,
        ceilings=SimpleNamespace(low_hz=ceiling_hz),
    )  # fmt: skip


class CoreClocks(SteppedDetector):
    """Simulated cores of two threads each, at a ceiling of 3 GHz."""

    def __init__(
        self, cores: int = 4, package: Sequence[wire.Counter] = (), cpu: Sequence[wire.Counter] = ()
    ) -> None:
        hello = synth.hello([synth.REF, synth.CYCLES, *cpu], cores=cores)
        hello.blocks.append(wire.Block("package", "package", [synth.CEILING, *package]))
        super().__init__()
        self.cores = cores
        self.reader = SampleReader(hello)
        self.job = WatchedJob(None)
        self.drops = TurboDrops(self.reader, self.detector, self.job)

    def advance(
        self, depth: float | Sequence[float] = 0.0, *, samples: int = 1, ns: int = S,
        ceiling: float = HZ, util: float | Sequence[float] = 1.0, threads: int = 1,
        tasks: Mapping[int, Sequence[tuple[int, str, float]]] | None = None, **amounts: Any,
    ) -> CoreClocks:  # fmt: skip
        """Plays samples with clocks that are lower than HZ by the share `depth`. `util` is NaN for
        cores that are not read. `threads`: the busy threads of each core. `tasks`: the record
        of tasks in the last sample, by CPU."""
        delta = increments.delta(self.reader.counters, amounts, abs(ns) / 1e9)
        record = {str(cpu): [[*row] for row in rows] for cpu, rows in (tasks or {}).items()}
        for left in reversed(range(samples)):
            use = np.broadcast_to(np.asarray(util, float), self.cores)
            run_s = threads * np.nan_to_num(use) * ns / 1e9
            cycles = run_s * HZ * (1 - np.asarray(depth))
            snapshot = TaskSnapshot(top_tasks=record) if record and not left else None
            ceilings = np.full(self.cores, ceiling)
            sample = clock_sample(self.drops, run_s, cycles, use, ceilings, delta, snapshot)
            sample.since_ns, sample.time_ns = self.next_step(ns)
            self.ended += self.drops.process(sample)
        return self


def test_an_episode_lasts_from_the_first_to_the_last_sample_that_shows_it() -> None:
    machine = CoreClocks().advance(samples=3).advance(0.2, samples=4).advance(samples=PAUSE)
    assert spans(machine.ended) == [(3, 7)]
    (episode,) = machine.ended
    assert (episode.kind, episode.cpus) == ("turbo-drop", list(range(8)))
    assert episode.depth == pytest.approx(0.2 * HZ)
    assert "ceiling" not in episode.evidence, "it is the clock that turbo allows"
    assert machine.running == []


@pytest.mark.parametrize(("first_depth", "later_depth", "expected_spans"), [
    (0.051, 0.031, [(1, None)]),
    (0.05, 0.03, [(1, None)]),
    (0.049, 0.049, []),
    (0.051, 0.029, [(1, 2)]),
    (0.2, 0.04, [(1, None)]),
])  # fmt: skip
def test_the_threshold_to_continue_is_lower_than_the_one_to_begin(
    first_depth: float, later_depth: float, expected_spans: list[tuple[int, int | None]]
) -> None:
    machine = CoreClocks().advance().advance(first_depth).advance(later_depth, samples=PAUSE)
    assert spans([*machine.ended, *machine.running]) == expected_spans


def test_partial_first_and_last_samples_do_not_lower_the_depth() -> None:
    machine = (
        CoreClocks()
        .advance()
        .advance(0.12)
        .advance(0.2, samples=2)
        .advance(0.07)
        .advance(samples=PAUSE)
    )
    assert spans(machine.ended) == [(1, 5)]
    assert machine.ended[0].depth == pytest.approx(0.2 * HZ)
    assert machine.ended[0].evidence["busy_hz"] == pytest.approx(0.8 * HZ)
    two = CoreClocks().advance().advance(0.12).advance(0.16).advance(samples=PAUSE)
    assert two.ended[0].depth == pytest.approx(0.14 * HZ)


def test_cores_that_drop_together_are_one_episode_without_the_other_cores() -> None:
    machine = CoreClocks().advance([0.2, 0, 0, 0.3], samples=2)
    assert [e.cpus for e in machine.running] == [[0, 3, 4, 7]]
    assert machine.running[0].depth == pytest.approx(0.25 * HZ)
    machine.advance([0.2, 0.2, 0, 0.3])
    assert [e.cpus for e in machine.running] == [[0, 3, 4, 7], [1, 5]]
    machine.advance([0, 0.2, 0, 0], samples=PAUSE)
    assert [e.cpus for e in machine.ended] == [[0, 3, 4, 7]]
    (alone,) = CoreClocks().advance([0.2, 0.04, 0, 0]).running
    assert alone.cpus == [0, 4], "core 1 is low, but too little to start a drop"
    (alone,) = CoreClocks().advance([0.06, 0.031, 0.031, 0.031]).running
    assert alone.cpus == [0, 4], "the mean of all four is too little to start a drop"
    (most,) = CoreClocks(cores=5).advance([0.2, 0, 0, 0, 0]).advance([0.2] * 4 + [0]).running
    assert (most.start_ns, most.cpus) == (0, [0, 1, 2, 3, 5, 6, 7, 8])
    few = CoreClocks().advance([0.2, 0, 0, 0]).advance([0.2, 0.2, 0, 0]).running
    assert [e.cpus for e in few] == [[0, 4], [1, 5]]


def test_an_alternating_clock_is_one_episode() -> None:
    """A power controller alternates the clock; the share of the time below the ceiling is
    reported."""
    machine = CoreClocks().advance(samples=3)
    for _ in range(20):
        machine.advance(0.2, samples=2).advance()
    assert machine.ended == []
    assert spans(machine.running) == [(3, None)]
    assert machine.running[0].depth == pytest.approx(0.2 * HZ)
    assert machine.running[0].evidence["dropping_share"] == 0.678
    assert machine.detector.active_episodes("turbo-drop") == []
    machine.advance(samples=PAUSE)
    assert spans(machine.ended) == [(3, 62)]
    assert "dropping_share" not in CoreClocks().advance(0.2, samples=9).running[0].evidence


def test_an_almost_idle_or_waking_core_is_ignored() -> None:
    assert CoreClocks().advance(0.5, util=0.49, samples=5).running == []
    machine = CoreClocks().advance(util=0, samples=3).advance(0.5, samples=2).advance(samples=3)
    assert machine.running == machine.ended == []


def test_a_sample_that_also_covers_an_unread_one_is_ignored() -> None:
    machine = CoreClocks().advance(util=[1, NAN, 1, 1]).advance([0, 0.1, 0, 0]).advance()
    assert machine.running == machine.ended == []


@pytest.mark.parametrize("ceiling", [0.8 * HZ, 1.2 * HZ])
def test_a_step_of_the_ceiling_is_not_a_drop(ceiling: float) -> None:
    """The clock may follow in the same sample or may have changed earlier."""
    follows = 1 - ceiling / HZ
    machine = (
        CoreClocks()
        .advance(samples=2)
        .advance(ceiling=ceiling)
        .advance(follows, ceiling=ceiling, samples=3)
    )
    machine.advance(follows).advance(samples=2)
    assert machine.running == machine.ended == []


def test_a_clock_that_stays_low_when_the_ceiling_rises_is_a_drop() -> None:
    machine = CoreClocks().advance(samples=2).advance(ceiling=1.2 * HZ, samples=3)
    assert spans(machine.running) == [(3, None)]
    assert machine.running[0].depth == pytest.approx(0.2 * HZ)


@pytest.mark.parametrize(("util", "ceiling"), [(0.0, HZ), (NAN, HZ), (1.0, NAN)])
def test_samples_without_evidence_neither_begin_nor_end_an_episode(
    util: float, ceiling: float
) -> None:
    machine = CoreClocks().advance(0.2, samples=2).advance(samples=10, util=util, ceiling=ceiling)
    assert spans(machine.running) == [(0, None)]
    machine.advance(0.2, samples=4)
    assert spans(machine.running) == [(0, None)]
    assert CoreClocks().advance(0.2, samples=10, util=util, ceiling=ceiling).running == []


@pytest.mark.parametrize(("samples", "spans_found"), [(50, [(0, None)]), (51, [(0, 2)])])
def test_a_ceiling_that_stays_unknown_ends_an_episode(
    samples: int, spans_found: list[tuple[int, int | None]]
) -> None:
    machine = CoreClocks().advance(0.2, samples=2).advance(samples=samples, ceiling=NAN)
    assert spans([*machine.ended, *machine.running]) == spans_found


@pytest.mark.parametrize(("dropping", "cpus"), [
    (3, [[*range(8)]]), (2, [[0, 1, 4, 5], [2, 3, 6, 7]]),
])  # fmt: skip
def test_cores_join_a_drop_of_three_quarters_of_their_group(
    dropping: int, cpus: list[list[int]]
) -> None:
    machine = CoreClocks().advance([0.2] * dropping + [0.0] * (4 - dropping), samples=3)
    assert [e.cpus for e in machine.advance(0.2).running] == cpus


def test_a_gap_in_the_stream_ends_an_episode_before_the_gap() -> None:
    machine = CoreClocks().advance(0.2, samples=2).advance(0.2, ns=5_000_000_000 + S)
    assert spans(machine.ended) == [(0, 2)]
    assert machine.running == []
    assert spans(CoreClocks().advance(0.2, samples=2).advance(0.2, ns=5_000_000_000).running) == [
        (0, None)
    ]


def test_cores_of_different_types_do_not_hide_each_other() -> None:
    greeting = synth.hello([synth.REF, synth.CYCLES], cores=4, threads=1)
    rows = [dataclasses.replace(r, type="P" if r.cpu < 3 else "E") for r in greeting.topology]
    greeting = dataclasses.replace(greeting, topology=rows)
    detector = RunningEpisodes()
    reader = SampleReader(greeting)
    drops = TurboDrops(reader, detector, WatchedJob(None))
    run_s = np.array([1.0, 1.0, 1.0, 3.0])
    ceiling = np.array([3e9, 3e9, 3e9, 2.4e9])
    cycles = run_s * ceiling * [0.92, 0.92, 0.96, 1.0]
    delta = reader.counters.empty_delta()
    drops.process(clock_sample(drops, run_s, cycles, np.ones(4), ceiling, delta))
    assert [e.cpus for e in detector.running] == [[0, 1, 2]]
    assert detector.running[0].evidence["ceiling"] == BASE_CLOCK


def test_a_core_that_ramps_up_after_waking_does_not_drop() -> None:
    """In samples of 10 ms, a ramp takes six; a drop that outlasts it counts."""
    machine = CoreClocks().advance(util=0, samples=3)
    for depth in (0.6, 0.5, 0.4, 0.3, 0.2, 0.1):
        machine.advance(depth, ns=S // 10)
    assert machine.advance(ns=S // 10, samples=30).running == machine.ended == []
    slow = CoreClocks().advance(util=0, samples=3).advance(0.2, ns=S // 10, samples=40)
    assert [e.start_ns for e in slow.running] == [3 * S + 200_000_000]


# --- caps


CAP = [synth.gauge("max_hz")]


def test_a_cap_below_the_turbo_ceiling_has_the_cause_policy() -> None:
    machine = (
        CoreClocks(cpu=CAP).advance(samples=2, max_hz=2e9).advance(1 / 3, samples=4, max_hz=2e9)
    )
    (episode,) = machine.running
    assert (episode.cause, episode.confidence) == ("policy", "measured")
    assert episode.depth == pytest.approx(1e9)
    assert episode.evidence["cap"] == ClockCap("scaling_max_freq", 2e9)


def test_a_cap_is_not_a_cause_if_the_clock_does_not_reach_it() -> None:
    """A clock below its cap is measured against the cap. A cap at the ceiling has no effect."""
    machine = CoreClocks(cpu=CAP).advance(0.4, samples=4, max_hz=2e9)
    (episode,) = machine.running
    assert episode.cause == "unknown"
    assert episode.depth == pytest.approx(0.2e9)
    assert CoreClocks(cpu=CAP).advance(samples=4, max_hz=3.2e9).running == []
    assert CoreClocks(cpu=CAP).advance(1 / 3 + 0.02, samples=4, max_hz=2e9).running == []


def test_a_drop_below_a_cap_is_an_episode_of_its_own() -> None:
    machine = (
        CoreClocks(cpu=CAP)
        .advance(1 / 3, samples=4, max_hz=2e9)
        .advance(0.36, samples=2, max_hz=2e9)
    )
    assert spans([*machine.ended, *machine.running]) == [(0, None)]
    machine.advance(0.5, samples=3, max_hz=2e9).advance(1 / 3, samples=2, max_hz=2e9)
    results = [(e.cause, e.start_ns // S, e.end_ns) for e in (*machine.ended, *machine.running)]
    assert results == [("policy", 0, 6 * S), ("unknown", 6, 9 * S), ("policy", 9, None)]
    assert machine.ended[1].depth == pytest.approx(0.5e9)


def test_a_cap_that_is_raised_to_the_ceiling_ends_its_episode() -> None:
    machine = CoreClocks(cpu=CAP).advance(1 / 3, samples=4, max_hz=2e9)
    machine.advance(0.04, samples=PAUSE, max_hz=3e9)
    assert spans(machine.ended) == [(0, 4)]


@pytest.mark.parametrize(("capped", "ended"), [(2, [(0, 4)]), (3, [])])
def test_a_drop_ends_when_more_than_half_of_its_cores_are_capped(
    capped: int, ended: list[tuple[int, int]]
) -> None:
    """The drop is counted by running time; ten CPUs are five cores."""
    depths, caps = [0.2] * 5, [3e9] * 10
    machine = CoreClocks(cores=5, cpu=CAP).advance(depths, samples=4, max_hz=caps)
    for core in range(5 - capped):
        depths[core], caps[core], caps[core + 5] = 1 / 3, 2e9, 2e9
    assert spans(machine.advance(depths, max_hz=caps).ended) == ended


def test_a_capped_episode_continues_with_other_cores() -> None:
    """The list of cores is replaced when a CPU goes offline. Core 0 has another type."""
    machine = CoreClocks(cpu=CAP)
    hello = machine.reader.hello
    rows = [dataclasses.replace(r, type="P" if r.core else "E") for r in hello.topology]
    for _ in range(2):
        machine.drops._regroup(Cores(hello, hello.cores, rows))
        machine.advance([0, *[1 / 3] * 3], samples=4, max_hz=[3e9, 2e9, 2e9, 2e9] * 2)
    assert (machine.ended, spans(machine.running)) == ([], [(0, None)])


def test_active_cores_are_counted_as_last_read() -> None:
    machine = CoreClocks().advance().advance(0.2, samples=3).advance(0.2, util=[NAN, 1, 1, 0.02])
    assert machine.running[0].evidence["active_cores"] == 3
    machine.advance(0.2, util=[1, 1, 0.1, 0.09])
    assert machine.running[0].evidence["active_cores"] == 3
    partly = (
        CoreClocks().advance(util=[1, 1, NAN, NAN]).advance(0.2, samples=3, util=[1, 1, NAN, NAN])
    )
    assert partly.running[0].cpus == [0, 1, 4, 5]
    assert "active_cores" not in partly.running[0].evidence
    partly.reader.online[[2, 3, 6, 7]] = False
    assert partly.advance(0.2).running[0].evidence["active_cores"] == 2


# --- through a session


def test_suspect_rows_neither_begin_nor_end_an_episode() -> None:
    machine = Machine(ceiling_hz=3.62e9, broken={0, 1, 4, 5})
    session, _ = observe(machine)
    (episode,) = [e for e in session.detector.running if e.kind == "turbo-drop"]
    assert episode.cpus == [2, 3, 6, 7]
    everywhere = Machine(ceiling_hz=3.62e9, broken=set(range(8)))
    assert {e.kind for e in observe(everywhere)[0].detector.running} == {"suspect"}


def test_a_core_without_a_known_ceiling_does_not_affect_others() -> None:
    does = {cpu: CpuLoad(alone=0.0) for cpu in range(8)}
    machine = Machine(ceiling_hz=3.62e9, offline_cpus={3, 7}, loads=does)
    rows = [dataclasses.replace(r, online=r.cpu not in {3, 7}) for r in machine.hello.topology]
    machine.hello = dataclasses.replace(machine.hello, topology=rows, cores=machine.hello.cores[:3])
    session = Session(machine.hello)
    for seq in range(12):
        if seq == 5:
            machine.offline_cpus.clear()
            for cpu in (3, 7):
                session.apply(wire.Note("hotplug", seq * S, data={"cpu": cpu, "online": True}))
        session.apply(machine.frame(seq))
    (episode,) = [e for e in session.detector.running if e.kind == "turbo-drop"]
    assert (episode.start_ns, episode.cpus) == (0, list(range(8)))


@pytest.mark.parametrize("sample_ns", [SECOND // 40, 3 * SECOND // 10, 7 * SECOND // 10])
def test_the_depth_matches_the_script_at_any_sample_phase(sample_ns: int) -> None:
    """The drop lasts from 8 s to 12.1 s."""
    session, episodes = found_episodes("turbo-drop", sample_ns, 14.0)
    (true,) = scripted("turbo-drop", 14.0, "turbo-drop")
    (episode,) = [e for e in episodes if e.kind == "turbo-drop"]
    assert episode.depth == pytest.approx(true["depth"], rel=0.01)
    start_s = (episode.start_ns - session.hello.raw_ns) / SECOND
    assert start_s == pytest.approx(true["start"], abs=sample_ns / SECOND)


@pytest.mark.parametrize(("previous_factor", "is_reported"), [
    (1.4, True), (1.05, True), (1.02, False),
])  # fmt: skip
def test_a_power_limit_that_is_lowered_at_run_time_is_reported(
    previous_factor: float, is_reported: bool
) -> None:
    """The simulated limit is constant; the test raises its value in a part of the first batch."""
    source = SimSource("turbo-drop,cpus=8,packages=1,seed=1,speed=max", 100_000_000, None, None)
    session = Session(source.hello)
    while session.now_ns < source.hello.raw_ns + 16 * 1_000_000_000:
        session_of(
            session, [with_raised_limit(source.hello, m, previous_factor) for m in source.poll()]
        )
    source.close()
    drops = [e for e in [*session.ended, *session.detector.running] if e.cause == "power-pl1"]
    assert drops
    for drop in drops:
        limit_w = drop.evidence["power_limit_w"]
        assert drop.evidence.get("power_limit_before_w") == (
            round(previous_factor * limit_w, 1) if is_reported else None
        )


def with_raised_limit(hello: wire.Hello, message: Any, factor: float) -> Any:
    if (
        not isinstance(message, wire.Frame)
        or not 0.3 < (message.time_ns - hello.raw_ns) / SECOND < 1
    ):
        return message
    (block,) = (b for b in hello.blocks if any(c.key == "power_limit_w" for c in b.counters))
    if block.name not in message.blocks:
        return message
    rows, at = message.blocks[block.name], 0
    for counter in block.counters:
        if counter.key == "power_limit_w":
            break
        at += counter.columns
    values = np.frombuffer(bytes(rows.values), "<u8").reshape(-1, block.columns).copy()
    values[:, at] = np.round(values[:, at] * factor).astype("u8")
    changed = dataclasses.replace(rows, values=values.tobytes())
    return dataclasses.replace(message, blocks={**message.blocks, block.name: changed})


@pytest.mark.parametrize("noise", [nightly_case(0.002), 0.02])
def test_a_noisy_clock_must_drop_by_more_than_its_noise(noise: float) -> None:
    """In each of 8 rounds the clock is steady for 15 s, then 6 % lower for 5 s. With noise of 2 %,
    a clock is 5 % low by chance about 200 times an hour."""
    rng, machine = np.random.default_rng(3), CoreClocks(cores=2)
    for depth in ([0.0] * 150 + [0.06] * 50) * 8:
        machine.advance((depth + rng.normal(0, noise, 2)).tolist())
    starts = [start for start, _ in spans([*machine.ended, *machine.running])]
    # The episode of a drop may begin five samples before it.
    assert len({start // 200 for start in starts if start % 200 >= 145}) == 8
    assert sum(start % 200 < 145 for start in starts) <= 1


@pytest.mark.parametrize(("pairs", "starts"), [(15, True), (23, False)])
def test_noise_is_known_after_about_a_hundred_samples(pairs: int, starts: bool) -> None:
    """A clock that varies by 3 % has a deviation of 2.1 %. After 46 samples, 37 % of its square are
    learned, so a drop of 6 % may be chance."""
    machine = CoreClocks()
    for _ in range(pairs):
        machine.advance(0.0).advance(0.03)
    assert bool(machine.advance(0.06).running) == starts


# --- tasks whose wide SIMD code lowers the clock


LEVEL_2 = synth.counter("license_2")
GEMM, HPL = (70, "gemm"), (71, "hpl")
FIRST = [0.2, 0, 0, 0]
"""Depths of a drop of the first core only, which has CPU 0 and CPU 4."""


def simd_cores(simd: float = 1.0, **more: Any) -> CoreClocks:
    """Returns cores of which the first has dropped up to a record of tasks."""
    limits = [synth.flags("limit_reasons", "thermal")]
    machine = CoreClocks(cpu=[LEVEL_2], package=limits).advance(0.0, samples=9)
    return with_simd(machine, {0: [(*GEMM, 0.4), (*HPL, 0.4)]}, simd, samples=3, **more)


def with_simd(
    machine: CoreClocks, tasks: dict[int, list[tuple[int, str, float]]], simd: float = 1.0, *,
    samples: int = 10, **more: Any,
) -> CoreClocks:  # fmt: skip
    """Plays samples in which the first core drops, is at a SIMD level for the share `simd`, and has
    these tasks."""
    amounts: dict[str, Any] = {"cycles": 1e9, "license_2": simd * 1e9} | more
    return machine.advance(FIRST, samples=samples, tasks=tasks, **amounts)


def blamed(machine: CoreClocks) -> list[TaskOnCpu]:
    (episode,) = machine.running
    return episode.evidence.get("who", [])  # type: ignore[no-any-return]


def test_the_task_whose_wide_simd_code_lowers_the_clock_is_named() -> None:
    machine = with_simd(simd_cores(), {0: [(*GEMM, 0.98)], 1: [(*HPL, 1.0)]})
    assert blamed(machine) == [TaskOnCpu(*GEMM, 0)]
    assert blamed(with_simd(machine, {}, samples=2)) == [TaskOnCpu(*GEMM, 0)]
    assert blamed(with_simd(machine, {1: [(*HPL, 1.0)]}, samples=5)) == [TaskOnCpu(*GEMM, 0)]
    machine.advance(samples=PAUSE)
    assert machine.ended[0].evidence["who"] == [TaskOnCpu(*GEMM, 0)]


@pytest.mark.parametrize(("simd", "tasks", "more"), [
    (0.4, {0: [(*GEMM, 0.7), (*HPL, 0.3)]}, {}),  # the other task may have run most of the code
    (1.0, {0: [(*HPL, 0.51), (*GEMM, 0.49)]}, {"threads": 2}),
    (1.0, {0: [(*GEMM, 1.0)], 4: [(*HPL, 1.0)]}, {"threads": 2}),
    (1.0, {0: [(*GEMM, 0.45)]}, {}),
    (1.0, {0: [(72, "new", 1.0)]}, {}),  # may have been on another core until now
    (1.0, {1: [(*GEMM, 1.0)]}, {}),
    (1.0, {0: [(*GEMM, 1.0)]}, {"limit_reasons": {"polls": 10, "thermal": 10}}),
])  # fmt: skip
def test_no_task_is_named_if_another_or_a_limit_may_lower_the_clock(
    simd: float, tasks: dict[int, list[tuple[int, str, float]]], more: dict[str, Any]
) -> None:
    assert blamed(with_simd(simd_cores(simd, **more), tasks, simd, **more)) == []


@pytest.mark.parametrize(("tasks", "threads"), [
    ({0: [(*GEMM, 0.7), (*HPL, 0.3)]}, 1),
    ({0: [(*GEMM, 1.0)], 4: [(*HPL, 0.4)]}, 1),
    ({0: [(*GEMM, 1.0)], 4: [(*GEMM, 1.0)]}, 2),
])  # fmt: skip
def test_a_task_is_named_although_others_ran_a_little(
    tasks: dict[int, list[tuple[int, str, float]]], threads: int
) -> None:
    machine = with_simd(simd_cores(threads=threads), tasks, threads=threads)
    assert blamed(machine) == [TaskOnCpu(*GEMM, 0)]


def test_a_task_is_not_named_before_a_whole_record_of_the_drop() -> None:
    machine = CoreClocks(cpu=[LEVEL_2]).advance(samples=5, tasks={0: [(*HPL, 1.0)]})
    machine = with_simd(machine, {0: [(*HPL, 0.8), (*GEMM, 0.2)]}, samples=3)
    assert blamed(machine) == []
    assert blamed(with_simd(machine, {0: [(*GEMM, 1.0)]})) == [TaskOnCpu(*GEMM, 0)]


def test_a_pause_or_a_gap_of_the_drop_is_not_counted_for_a_task() -> None:
    machine = simd_cores().advance(samples=2, cycles=1e9)
    assert blamed(with_simd(machine, {0: [(*GEMM, 0.98)]})) == []
    assert blamed(with_simd(machine, {0: [(*GEMM, 0.98)]})) == [TaskOnCpu(*GEMM, 0)]
    machine = simd_cores().advance(samples=PAUSE)
    machine.ended.clear()
    assert blamed(with_simd(machine, {0: [(*GEMM, 0.98)]})) == []


def test_the_watched_job_is_not_blamed_for_its_own_loss() -> None:
    machine = simd_cores()
    machine.job.threads[GEMM[0]] = Thread(GEMM[0], GEMM[0], GEMM[1])
    (episode,) = with_simd(machine, {0: [(*GEMM, 0.98)]}).running
    assert "who" not in episode.evidence
    assert episode.evidence["self"] == [TaskOnCpu(*GEMM, 0)]
