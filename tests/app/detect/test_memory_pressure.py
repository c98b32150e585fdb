"""Losses to programs that saturate memory bandwidth, and similar patterns with other causes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import sim_truth
from sim_streams import messages as messages_of
from sim_truth import SECOND

from perfprobe import wire
from perfprobe.sources.sim import scenarios
from perfprobe.sources.sim.script import LAMMPS, STREAM, Load, Script, Stage
from perftop.base.arrays import Floats
from perftop.detect.memory_pressure import BYTES_PER_CLOCK, L3Groups
from perftop.model.confidence import GroupTraffic, TaskOnCpu
from perftop.model.counters import Counters
from perftop.model.delta import Delta
from perftop.model.kinds import Episode
from perftop.session.session import Session

JOB, SLOW = LAMMPS, dataclasses.replace(LAMMPS, ipc=1300)
Play = Callable[[Script], None]
EVENTS = "cache-misses"


def job_losses(monkeypatch: pytest.MonkeyPatch, play: Play) -> list[Episode]:
    """Returns the losses of a job on cores 0 and 4 that runs alone for 8 s, and is slowed down by
    memory for 6 s."""

    def script(script: Script) -> None:
        alone = script.add_stage(8)
        alone.run([0, 4], JOB)
        loud = script.add_stage(6, like=alone)
        loud.run([0, 4], SLOW)
        play(script)
        script.add_stage(60, like=alone)

    monkeypatch.setitem(scenarios._SCRIPTS, "memory", script)
    _, episodes = sim_truth.play_episodes("memory,cpus=16", SECOND // 10, 20)
    return [e for e in episodes if e.kind == "neighbour"]


def test_tasks_that_saturate_memory_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(script: Script) -> None:
        script.stages[-1].run([1, 2, 3], STREAM)
        script.stages[-1].run([5], dataclasses.replace(SLOW, traffic=0))  # not blamed

    took = [GroupTraffic("batch", 35e9)]
    monkeypatch.setattr(L3Groups, "traffic", lambda _, cpus: took if {0, 4} <= {*cpus} else [])
    (episode,) = job_losses(monkeypatch, play)
    assert (episode.cause, episode.cpus, episode.confidence) == ("memory", [0, 4], "inferred")
    assert episode.depth == pytest.approx(1 - 1300 / 1850, rel=0.02)
    assert episode.evidence["ipc_alone"] == pytest.approx(1.85, abs=0.01)
    assert episode.evidence["memory_of_best_share"] == pytest.approx(1, abs=0.05)
    assert episode.evidence["memory_bytes_per_s"] == pytest.approx(39.2e9, rel=0.02)
    assert episode.evidence["l3_groups"] == took
    assert episode.evidence["who"] == [TaskOnCpu(4000 + cpu, "stream", cpu) for cpu in (1, 2, 3)]


@pytest.mark.parametrize(("early_s", "names"), [(0.5, ["stream"] * 3), (1.5, [])])
def test_tasks_that_ran_for_two_records_before_the_loss_are_not_named(
    early_s: float, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last record before the loss may already include the tasks that cause it."""

    def play(script: Script) -> None:
        alone, loud = script.stages
        early = script.add_stage(early_s, like=alone)
        script.stages = [alone, early, loud]
        for stage in (early, loud):
            stage.run([1, 2, 3], STREAM)

    (episode,) = job_losses(monkeypatch, play)
    assert [task.comm for task in episode.evidence.get("who", [])] == names


def phase_change(script: Script) -> None:
    script.stages[-1].run([0, 4], dataclasses.replace(SLOW, traffic=12_000))


def own_program_starts_more(script: Script) -> None:
    script.stages[-1].run([0, 1, 2, 4], dataclasses.replace(SLOW, traffic=12_000))


def low_traffic(script: Script) -> None:
    """Memory traffic was ten times as high earlier."""
    quiet, loud = script.stages
    script.stages = [Stage(script.machine, 3), quiet, loud]
    script.stages[0].run(range(1, 8), STREAM)
    loud.run([1, 2, 3], dataclasses.replace(scenarios.HPL, traffic=2000))


def no_loss(script: Script) -> None:
    script.stages[-1].run([0, 4], JOB)
    script.stages[-1].run([1, 2, 3], STREAM)


def tasks_on_siblings(script: Script) -> None:
    """The siblings' share of the core explains the loss."""
    script.stages[-1].run([8, 12], STREAM)


@pytest.mark.parametrize("play", [
    phase_change, own_program_starts_more, low_traffic, no_loss,
    tasks_on_siblings,
])  # fmt: skip
def test_similar_patterns_are_not_memory_pressure(
    monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    result = job_losses(monkeypatch, play)
    assert [e for e in result if e.cause == "memory"] == []


@pytest.mark.parametrize(("early", "late", "duty", "causes"), [
    ([1, 2], 3, 1000, ["memory"]), ([1, 2, 3, 5], 6, 1000, []),
    ([1, 2], 3, 600, ["memory"]), ([1, 2], 3, 400, []),
])  # fmt: skip
def test_traffic_grows_by_a_quarter_and_work_by_half_a_cpu(
    early: list[int], late: int, duty: int, causes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job moves 3.2 GB/s, and each other task 4 GB/s."""
    steady = dataclasses.replace(STREAM, traffic=4000)

    def play(script: Script) -> None:
        for stage in script.stages:
            stage.run(early, steady)
        added = dataclasses.replace(STREAM, traffic=4_000_000 // duty, duty=duty)
        script.stages[-1].run([late], added)

    assert [episode.cause for episode in job_losses(monkeypatch, play)] == causes


# --- the share of an L3

FRIENDLY = dataclasses.replace(LAMMPS, traffic=200)
MISSING = dataclasses.replace(FRIENDLY, ipc=1300, misses=2)
INTRUDER = dataclasses.replace(scenarios.HPL, comm="scan", traffic=300)


def l3_losses(
    monkeypatch: pytest.MonkeyPatch, victim: Load, intruder: Load | None, events: str = EVENTS
) -> list[Episode]:
    """Returns the losses of a job on cores 0 and 4 that runs alone for 8 s, and with others for 6
    s. Memory traffic was far higher earlier."""

    def script(script: Script) -> None:
        script.add_stage(2).run([1, 2, 3], STREAM)
        alone = script.add_stage(8)
        alone.run([0, 4], FRIENDLY)
        loud = script.add_stage(6, like=alone)
        loud.run([0, 4], victim)
        if intruder is not None:
            loud.run([1, 2, 3], intruder)
        script.add_stage(60, like=alone)

    monkeypatch.setitem(scenarios._SCRIPTS, "memory", script)
    session, episodes = sim_truth.play_episodes("memory,cpus=16", SECOND // 10, 20, events=events)
    assert session.neighbours.cache.is_available == bool(events)
    return [e for e in episodes if e.kind == "neighbour"]


def test_tasks_that_displace_data_from_the_l3_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (episode,) = l3_losses(monkeypatch, MISSING, INTRUDER)
    assert (episode.cause, episode.cpus, episode.confidence) == ("cache", [0, 4], "inferred")
    assert episode.depth == pytest.approx(1 - 1300 / 1850, rel=0.02)
    assert episode.evidence["misses_per_ki"] == pytest.approx(2.5, rel=0.02)
    assert episode.evidence["misses_per_ki_before"] == pytest.approx(1.25, rel=0.02)
    for key in ("misses_per_ki", "misses_per_ki_before", "ipc", "ipc_alone"):
        assert episode.evidence[key] == round(episode.evidence[key], 2)
    assert [task.comm for task in episode.evidence["who"]] == ["scan"] * 3


@pytest.mark.parametrize(("victim", "intruder", "events"), [
    (MISSING, None, EVENTS),  # the loss is a phase change of the program
    # the program's misses are constant
    (dataclasses.replace(FRIENDLY, ipc=1300), INTRUDER, EVENTS),
    (dataclasses.replace(FRIENDLY, misses=4), INTRUDER, EVENTS),  # the job loses nothing
    (MISSING, INTRUDER, ""),  # the machine does not count misses
])  # fmt: skip
def test_similar_patterns_are_not_l3_contention(
    monkeypatch: pytest.MonkeyPatch, victim: Load, intruder: Load | None, events: str
) -> None:
    assert l3_losses(monkeypatch, victim, intruder, events) == []


@pytest.mark.parametrize(("vendor", "events", "is_available"), [
    ("GenuineIntel", EVENTS, True), ("GenuineIntel", "branches", False),
    ("AuthenticAMD", EVENTS, False),
])  # fmt: skip
def test_misses_of_the_l3_are_known_on_intel(vendor: str, events: str, is_available: bool) -> None:
    """On AMD, `cache-misses` counts misses of the L2."""
    hello, _ = messages_of("sim:steady,cpus=4", 1, events=events)
    hello = dataclasses.replace(hello, identity=wire.Identity(vendor=vendor))
    assert Session(hello).neighbours.cache.is_available == is_available


def test_misses_that_rise_show_a_crowded_l3_also_at_the_highest_traffic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Saturated memory does not change the misses per instruction."""
    (episode,) = l3_losses(monkeypatch, MISSING, STREAM)
    assert episode.cause == "cache"


@pytest.mark.parametrize(("limit", "causes"), [(100e9, ["memory"]), (120e9, [])])
def test_traffic_far_below_the_capacity_of_channels_saturates_nothing(
    limit: float, causes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """39 GB/s is the highest traffic of the run."""

    def play(script: Script) -> None:
        script.stages[-1].run([1, 2, 3], STREAM)

    clock_hz, rates = np.array([limit / BYTES_PER_CLOCK]), Counters.rates

    def rates_with_clock(counters: Counters, delta: Delta, key: str) -> Floats | None:
        return clock_hz if key == "memory_clock" else rates(counters, delta, key)

    monkeypatch.setattr(Counters, "rates", rates_with_clock)
    assert [episode.cause for episode in job_losses(monkeypatch, play)] == causes
