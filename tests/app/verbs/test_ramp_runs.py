"""Evaluation of simulated runs with a known clock and known halts."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import chains
import numpy as np
import pytest
from chains import answer, run
from nightly import cases_by_day

from perftop.verbs import ramp_runs
from perftop.verbs.ramp_runs import Climb

AT_3_GHZ = [(1.0, 3.0e9)]
STEPS = [(300e-6, 1.2e9), (4e-3, 2.4e9), (1.0, 3.0e9)]
FIRST_S = 11e-6
"""Length of a chunk at the lowest of these clocks."""


def evaluated(result: dict[str, Any], **changes: Any) -> Climb:
    return ramp_runs.evaluate_run(answer(result, **changes), result)


HALTS = [(100e-6, 8.5e-6), (2e-3, 20e-6), (0.2, 40e-6), (0.3, 400e-6)]


def test_halts_have_position_and_length_and_affect_nothing_else() -> None:
    result = evaluated(run(STEPS, HALTS))
    assert [gap.kind for gap in result.gaps] == ["short", "short", "short", "long"]
    for gap, (at, length) in zip(result.gaps, HALTS, strict=True):
        assert gap.length_s == pytest.approx(length, abs=0.3e-6)
        assert at - FIRST_S <= gap.at_s <= at
    plain = evaluated(run(STEPS))
    assert result.levels[0].hz == pytest.approx(plain.levels[0].hz, rel=1e-4)
    for key in ("t90_s", "t99_s", "steady_s"):
        assert getattr(result, key) == pytest.approx(getattr(plain, key), rel=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_results_are_stable_under_noise(seed: int) -> None:
    result = evaluated(run(STEPS, HALTS[:2], noise=np.random.default_rng(seed), stamp=46))
    assert result.levels[0].hz == pytest.approx(3e9, rel=5e-3)
    assert result.steady_s == pytest.approx(4e-3, rel=0.05)
    assert [gap.length_s for gap in result.gaps] == pytest.approx([8.5e-6, 20e-6], abs=4.2e-6)


@pytest.mark.parametrize(("clock", "steady_s", "bursts_s"), [
    # late drops, and a low clock for a while after a short ramp, do not prolong it
    ([(4e-3, 2e9), (0.1, 3e9), (0.13, 2.5e9), (0.18, 3e9), (0.2, 2.5e9), (1.0, 3e9)], 4e-3,
     [0.03, 0.02]),
    ([(1e-4, 1.2e9), (1e-3, 3e9), (1.2e-3, 2.5e9), (1.0, 3e9)], 1e-4, [0.2e-3]),
    ([(1e-4, 1.2e9), (8.3e-3, 3e9), (9.3e-3, 2.5e9), (1.0, 3e9)], 1e-4, [1e-3]),
    ([(1e-4, 1.2e9), (15e-3, 3e9), (19e-3, 2.5e9), (1.0, 3e9)], 1e-4, [4e-3]),
    # a brief steady clock is part of the ramp, and a clock may fall to its steady value
    ([(1e-3, 3e9), (8e-3, 3.6e9), (1.0, 3e9)], 8e-3, []),
    ([(10e-3, 3.6e9), (1.0, 3e9)], 10e-3, []),
])  # fmt: skip
def test_a_ramp_ends_where_the_clock_is_steady_except_for_bursts(
    clock: chains.Clock, steady_s: float, bursts_s: list[float]
) -> None:
    result = evaluated(run(clock))
    assert result.steady_s == pytest.approx(steady_s, rel=0.03, abs=15e-6)
    assert result.bursts_s == pytest.approx(bursts_s, rel=0.2)


@pytest.mark.parametrize(("low_s", "is_steady"), [(0.045, True), (0.065, False)])
def test_a_steady_clock_leaves_its_band_for_at_most_a_fifth(low_s: float, is_steady: bool) -> None:
    """The steady part is the second half of 0.5 s; work takes longer at a low clock."""
    clock = [(4e-3, 2e9), (0.3, 3e9), (0.3 + low_s, 2.5e9), (1.0, 3e9)]
    assert evaluated(run(clock, load_s=0.5)).levels[0].steady == is_steady


@pytest.mark.parametrize(("around", "siblings", "disturbed"), [
    ({"idle_s": 0.25, "steal_s": 0.02, "siblings_idle_s": 0.44}, [7],
     {"idle": 0.5, "steal_s": 0.02, "sibling": pytest.approx(0.6)}),
    ({"idle_s": 0.25, "steal_s": 0.02, "siblings_idle_s": 1}, [], {"idle": 0.5, "steal_s": 0.02}),
    ({"idle_s": None, "steal_s": None}, [], {"idle": None}),
    # 0.5 s of sleep and 0.6 s of load; one of three siblings was busy all the time
    ({"siblings_idle_s": 2.2}, [5, 6, 7], {"sibling": pytest.approx(1 / 3)}),
    ({"siblings_idle_s": 3.2}, [5, 6, 7], {}),
])  # fmt: skip
def test_disturbances_of_a_run_are_quantified(
    around: dict[str, Any], siblings: list[int], disturbed: dict[str, Any]
) -> None:
    case = run(AT_3_GHZ, load_s=0.6, **around)
    assert evaluated(case, siblings=siblings).disturbed == disturbed


# --- with a counter of cycles


@pytest.mark.parametrize("cycles_per_step", [3.12, 2.9, 5.0])
def test_the_counter_is_used_and_checked_by_the_chain(cycles_per_step: float) -> None:
    """If a step takes other than the assumed cycles, the chain's clock has the same relative error,
    without affecting lost time or halts."""
    factor = cycles_per_step / chains.STEP_CYCLES
    result = evaluated(run(STEPS, HALTS, counter=factor))
    assert result.levels[0].hz == pytest.approx(3e9 * factor, rel=1e-4)
    assert result.levels[0].chain_hz == pytest.approx(3e9, rel=1e-3)
    assert result.steady_s == pytest.approx(4e-3, rel=0.03)
    assert result.lost == pytest.approx(evaluated(run(STEPS, HALTS)).lost, abs=1e-5)
    assert result.disturbed == {}
    for gap, (_, length) in zip(result.gaps, HALTS, strict=True):
        assert gap.length_s == pytest.approx(length, abs=0.3e-6)


def test_halts_have_no_cycles_but_interrupts_do() -> None:
    halts = [(1e-3, 20e-6), (2e-3, 20e-6), (0.2, 400e-6), (0.3, 4e-3)]
    result = evaluated(run(AT_3_GHZ, halts, counter=1.0, running=[1, 3], preempted=[3]))
    assert [gap.halted for gap in result.gaps] == [True, False, True, False]
    assert [gap.kind for gap in result.gaps] == ["short", "short", "long", "preempted"]
    assert result.levels[0].hz == pytest.approx(3e9, rel=1e-4)
    assert (result.levels[0].low_hz, result.levels[0].high_hz) == pytest.approx(
        (3e9, 3e9), rel=1e-4
    )
    assert {gap.halted for gap in evaluated(run(AT_3_GHZ, halts)).gaps} == {None}


# --- several runs


@pytest.mark.parametrize("runs", [5, 10])
@pytest.mark.parametrize("disturbed_share", cases_by_day([0.0, 0.1, 0.2], [0.2]))
def test_the_stated_confidence_is_not_too_high(
    monkeypatch: pytest.MonkeyPatch, runs: int, disturbed_share: float
) -> None:
    """Times are lognormal; `disturbed_share` of all runs are disturbed or do not settle. The next
    run should settle within the time of the slowest valid run."""
    random, trials = np.random.default_rng(runs), 400
    whole = evaluated(run(AT_3_GHZ, load_s=0.01))
    result = answer(*[run(AT_3_GHZ, load_s=0.01)] * runs)

    def drawn(*_: object) -> Climb:
        if random.random() < disturbed_share:
            disturbed: dict[str, float | None] = {"idle": 0.1} if random.random() < 0.5 else {}
            steady_s = random.lognormal() if disturbed else None
            return dataclasses.replace(whole, steady_s=steady_s, disturbed=disturbed)
        return dataclasses.replace(whole, steady_s=random.lognormal(), disturbed={})

    monkeypatch.setattr(ramp_runs, "evaluate_run", drawn)
    stated, true = [], []
    for _ in range(trials):
        ramp = ramp_runs.summarise_runs(result)
        if ramp.steady_s is not None and ramp.is_clean:
            following = drawn()
            settled = following.steady_s is not None and not following.disturbed
            stated.append(ramp.confidence)
            true.append(settled and (following.steady_s or 0.0) <= ramp.steady_s.high)
    error = 2 * math.sqrt(0.25 / len(true))
    assert np.mean(true) - error <= np.mean(stated) <= np.mean(true) + error


def test_recurring_halts_belong_to_the_ramp() -> None:
    """One halt at the same position in each of five runs, among others at random positions."""
    random = np.random.default_rng(1)
    results = []
    for i in range(5):
        places = [120e-6 + i * 1e-6, *random.uniform(0.5e-3, 0.5, 60).tolist()]
        results.append(run(AT_3_GHZ, [(t, 10e-6) for t in sorted(places)]))
    result = ramp_runs.summarise_runs(answer(*results)).halts
    assert [halt.runs for halt in result] == [5]
    assert result[0].at_s == pytest.approx(120e-6, abs=6e-6)
    assert result[0].length_s == pytest.approx(10e-6, abs=0.5e-6)
    assert ramp_runs.summarise_runs(answer(*results[:2], *[run(AT_3_GHZ)] * 3)).halts == []


@pytest.mark.parametrize(("apart_s", "count"), [(55e-6, 1), (70e-6, 0)])
def test_distant_gaps_are_not_joined(apart_s: float, count: int) -> None:
    """At 2 ms they differ by more than 20 us and 2 %."""
    results = [run(AT_3_GHZ, [(2e-3 + i * apart_s, 10e-6)]) for i in range(2)]
    assert len(ramp_runs.summarise_runs(answer(*results, run(AT_3_GHZ))).halts) == count


@pytest.mark.parametrize(("chunks", "low", "low_hz", "error_hz", "is_steady"), [
    (19, 0, 3e9, None, False), (20, 0, 3e9, 0.0, True), (20, 2, 2.9e9, 0.0, True),
    (20, 3, 2.9e9, 1e8, True), (20, 4, 2.9e9, 1e8, True), (20, 5, 2.9e9, 1e8, False),
    (20, 5, 2.94e9, 6e7, True),
])  # fmt: skip
def test_the_steady_part_is_the_last_half_in_four_sections_of_five_chunks(
    chunks: int, low: int, low_hz: float, error_hz: float | None, *, is_steady: bool
) -> None:
    """The clock is lower in the last chunks."""
    hz = np.full(2 * chunks, 3e9)
    hz[len(hz) - low :] = low_hz
    times = np.arange(2.0 * chunks)
    part: Any = SimpleNamespace(
        hz=hz, smooth=hz, chain_hz=hz, start_s=times, end_s=times + 1, work_s=np.ones(len(hz))
    )
    level = ramp_runs.steady_level(part, "scalar")
    assert (None if level is None else level.error_hz) == error_hz
    assert (level is not None and level.steady) is is_steady


def test_the_cost_of_time_stamps_is_subtracted() -> None:
    beside = run(AT_3_GHZ)
    chunks = beside["chunks"]
    chunks["aside"] = [10_000] * len(chunks["end"])
    chunks["end"] = [end + 10_000 for end in chunks["end"]]
    assert evaluated(beside).levels[0].hz == pytest.approx(3e9, rel=1e-4)
    result = evaluated(run(AT_3_GHZ, stamp=400))
    assert result.levels[0].hz == pytest.approx(3e9, rel=1e-4)
    assert result.lost == pytest.approx(0, abs=1e-3)
    gaps = evaluated(run(AT_3_GHZ, HALTS, stamp=400)).gaps
    assert [gap.length_s for gap in gaps] == pytest.approx([it[1] for it in HALTS], abs=0.1e-6)
