"""Single checks of selftest on given numbers, and the conclusion from several checks."""

from __future__ import annotations

import dataclasses
import os
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest
import synth

from perfprobe import wire
from perfprobe.instruments import timers
from perfprobe.instruments.selftest import cpu_checks, load, run, verdict
from perfprobe.instruments.selftest.load import CounterAdvance, FrameLog
from perfprobe.instruments.selftest.verdict import Check, Outcome
from perfprobe.instruments.timers import Exchange
from perfprobe.sources import Source
from perfprobe.wire import Rate


def test_mperf_may_tick_with_the_tsc_or_the_base_clock() -> None:
    for changes, expected in (
        ({}, [1.0]),
        ({"base_hz": Rate(8e8, "made up")}, [1.0, 1.25]),
        ({"multipliers": [wire.Multiplier("mperf", 2.0, "made up")]}, [2.0]),
        ({"base_hz": Rate(8e8, "made up"), "tsc_hz": None}, [1.0]),
    ):
        hello = dataclasses.replace(synth.hello(tsc_hz=Rate(1e9, "made up")), **changes)
        log = FrameLog(cast("Source", SimpleNamespace(hello=hello)))
        assert cpu_checks.tick_factors(log, "mperf") == expected
        assert cpu_checks.tick_factors(log, "ref") == [1.0]


def test_the_rate_is_compared_over_a_longer_time() -> None:
    hello = synth.hello(tsc_hz=Rate(2.0e9, "made up"))
    ((check, outcome),) = cpu_checks.rate_outcomes(
        hello, (10**9, 5 * 10**9), (3 * 10**9, 9 * 10**9 + 400_000)
    )
    assert outcome.expected == pytest.approx(2.0002e9)
    assert outcome.measured == 2.0e9
    assert verdict.judge(check, outcome) == "close"
    assert not [*cpu_checks.rate_outcomes(dataclasses.replace(hello, tsc_hz=None), (0, 0), (1, 1))]


def test_tolerances_follow_from_what_disturbs_a_count() -> None:
    percents = [(check.counter, round(100 * check.tolerance, 1)) for check in run._ALL_CHECKS]
    assert percents == [
        ("instructions", 1), ("cycles", 2), ("aperf", 2), ("msr_tsc", 0.1), ("ref", 1),
        ("mperf", 1), ("busy_s", 1), ("idle_s", 1), ("stat_user_s", 19.2),
        ("kernel_instructions", 2), ("kernel_cycles", 15), ("idle_s", 2), ("busy_s", 2),
        ("stat_idle_s", 2.2), ("ref", 2),
        *((f"{state}_s", 2) for state in ("neither", "lp0", "lp1", "both")),
        *((event, 3) for event in ("one_thread", "any_thread", "distributed")),
    ]  # fmt: skip


@pytest.mark.parametrize(("end", "usable"), [(1300, True), (1299, False)])
def test_reads_must_span_a_third_of_a_run(end: int, usable: bool) -> None:
    result = CounterAdvance(1000, end, 5.0)
    log = cast("FrameLog", SimpleNamespace(advance=lambda *_, **__: result))
    span = load.WorkSpan(0, 2000, 0, 2000, 2000, 0)
    window = cpu_checks.LoopWindow(log, 0, 0, load.LoopRun(0, 1, (1000, 1500, 2000), span))
    assert window.advance("x") == (result if usable else None)


def test_cpus_without_a_sibling_are_paired_with_each_other() -> None:
    cores = [[0, 4], [1, 5], [2], [3], [6]]
    assert run.paired_cpus(cores, [0, 1, 2, 3, 4, 6]) == [[0, 4], [1, 2], [3, 6]]
    assert run.paired_cpus(cores, [2, 5, 6]) == [[5, 2], [6]]
    assert run.paired_cpus(cores, []) == []


CHECK = Check("x", "", "", 0.01, "")


@pytest.mark.parametrize(
    ("measured", "max_loss", "max_gain", "expected"),
    [(100.9, 0, 0, "trusted"), (101, 0, 0, "trusted"), (102, 0, 0, "close"),
     (103, 0, 0, "close"), (104, 0, 0, "unusable"),
     (104, 0, 5, "disturbed"), (105.9, 0, 5, "disturbed"), (104, 5, 0, "unusable"),
     (96, 5, 0, "disturbed"), (94.1, 5, 0, "disturbed"),
     (96, 0, 5, "unusable"), (0, 0, 1e9, "unusable")],
)  # fmt: skip
def test_an_outcome_decides_its_verdict(
    measured: float, max_loss: float, max_gain: float, expected: str
) -> None:
    assert verdict.judge(CHECK, Outcome(0, 100, measured, 100, max_loss, max_gain)) == expected


def test_a_verdict_outranks_the_size_of_the_error() -> None:
    outcomes = [
        Outcome(0, 100, 101, 100),
        Outcome(0, 100, 103, 100),
        Outcome(0, 100, 101.5, 100, max_gain=150),
        Outcome(0, 100, 200, 100, max_gain=150),
        Outcome(0, 100, 104, 100),
    ]
    verdicts = [verdict.judge(CHECK, outcome) for outcome in outcomes]
    assert verdicts == ["trusted", "close", "disturbed", "disturbed", "unusable"]
    assert sorted(outcomes, key=partial(verdict.rank, CHECK)) == outcomes


def test_the_worst_undisturbed_cpu_decides() -> None:
    tries = [
        Outcome(0, 100, 100, 100),
        Outcome(1, 100, 130, 100, max_gain=50),
        Outcome(2, 100, 102, 100),
    ]
    result = verdict.conclude(CHECK, tries, [0, 1, 2, 3], "o")
    assert (result.verdict, result.cpu, result.cpus) == ("close", 2, [2])
    assert result.disturbed == [1, 3]
    assert verdict.conclude(CHECK, [], [0], "o").verdict == "disturbed"


def test_offset_tscs_are_judged_by_their_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message takes 300 ns, and the CPUs' counters differ."""
    home = min(os.sched_getaffinity(0))
    for apart, expected in (
        (-50_000_000, "unusable"), (-2000, "close"), (1410, "close"), (1390, "trusted"),
        (100, "trusted"),
    ):  # fmt: skip
        there = [Exchange(i, i + 300 + apart, i + 600) for i in range(10**9, 10**9 + 9000, 900)]
        monkeypatch.setattr(timers, "exchange_stamps", lambda *_, there=there: there)
        ((check, outcome),) = cpu_checks.offset_outcomes([home, home + 1], 1e9)
        assert verdict.judge(check, outcome) == expected
        # the measured offset is a lower bound
        assert abs(outcome.measured * 1e9) <= abs(apart)
        if abs(apart) > 1000:
            # half the time of a message, and one tick
            assert outcome.measured * 1e9 == pytest.approx(apart, abs=401)


@pytest.mark.parametrize(("niceness", "measured"), [(0, 0.01), (10, 0.13)])
def test_user_time_of_a_nice_process_is_nice_time(
    niceness: int, measured: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = {"stat_user_s": 0.01, "stat_nice_s": 0.12}
    log = SimpleNamespace(
        counters=results, advance=lambda key, *_, **__: CounterAdvance(0, 10**9, results[key])
    )
    span = SimpleNamespace(begin=0, end=10**9, cpu_ns=130_000_000)
    window = SimpleNamespace(
        run=SimpleNamespace(span=span), log=log, row=0, cpu=0, lost_s=0.005, seconds=lambda _: 0.14
    )
    monkeypatch.setattr(os, "getpriority", lambda *_: niceness)
    outcome = cpu_checks._user_outcome(cast("cpu_checks.LoopWindow", window))
    assert outcome is not None
    limits = (outcome.expected, outcome.measured, outcome.max_loss, outcome.max_gain)
    assert limits == pytest.approx((0.13, measured, 0.02, 0.14 - 0.13 + 0.005 + 0.02))
