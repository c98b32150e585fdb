"""Where stamps are of another clock, the TSC is a counter like others: same numbers either way."""

from __future__ import annotations

import dataclasses

import made
import pytest

from perfprobe import wire
from perftop.model.delta import Doubt
from perftop.output import stat_json
from perftop.session.session import Session

TSC = made.counter("tsc", bits=64)
COUNTERS = [TSC, made.REF, made.CYCLES, made.INSTRUCTIONS, made.ONE_THREAD]
TICKS = int(made.TSC_HZ / 10)
RAW_NS = 100_000_000


def session(*, tsc: bool, ahead: tuple[int, int] = (0, 0)) -> Session:
    """Two samples: lp0 runs for 0.6 of the time, lp1 for 0.3, 0.2 of them together. Stamps are ns;
    the CPUs' TSCs may differ, and each read happens a little late by its own."""
    counters = COUNTERS if tsc else COUNTERS[1:]
    greeting = made.hello(
        counters,
        stamp="raw",
        multipliers=[wire.Multiplier("one_thread", 84, "made")],
        smt_methods=["one-thread"],
    )
    result = Session(greeting)
    for i in (0, 1):
        span = i * TICKS
        values = {
            "tsc": [5 + ahead[0] + span, 5 + ahead[1] + span],
            "ref": [int(0.6 * span), int(0.3 * span)],
            "cycles": [int(0.9 * span), int(0.6 * span)],
            "instructions": [span, span],
            "one_thread": [int(0.4 * span / 84), int(0.1 * span / 84)],
        }
        result.apply(made.frame(greeting, i, values, stamps=[i * RAW_NS + 7, i * RAW_NS + 9]))
    return result


def test_metrics_and_states() -> None:
    result = session(tsc=True, ahead=(0, 10**12))
    interval = result.take()
    assert interval.suspect == {}
    assert list(interval.values["util"]) == pytest.approx([0.6, 0.3])
    assert list(interval.values["halt"]) == pytest.approx([0.4, 0.7])
    assert list(interval.values["busy_hz"]) == pytest.approx([1.5 * made.TSC_HZ, 2 * made.TSC_HZ])
    assert list(interval.values["net_hz"]) == pytest.approx([0.9 * made.TSC_HZ, 0.6 * made.TSC_HZ])
    assert interval.split.shares(0) == pytest.approx(
        {"neither": 0.3, "lp0": 0.4, "lp1": 0.1, "both": 0.2}, abs=1e-6
    )
    (row, _) = stat_json.interval_line(result, interval)["cpus"]
    assert row["counts"]["tsc"] == TICKS


def test_without_a_tsc_no_ratio_is_made_of_nanoseconds() -> None:
    result = session(tsc=False)
    interval = result.take()
    assert result.evaluator.lacking("util") is not None
    assert "tsc" not in interval.counts
    assert not (interval.values["util"] >= 0).any()
    assert interval.suspect == {}


def test_a_tsc_without_a_frequency_is_no_clock() -> None:
    greeting = made.hello(COUNTERS, stamp="raw", tsc_hz=None)
    assert not Session(greeting).counters.has_tsc
    assert Session(dataclasses.replace(greeting, tsc_hz=wire.Rate(2e9, "made"))).counters.has_tsc


def test_a_reference_faster_than_the_tsc_is_suspect() -> None:
    greeting = made.hello(COUNTERS, stamp="raw")
    result = Session(greeting)
    for i in (0, 1):
        values = {"tsc": [i * TICKS] * 2, "ref": [i * 2 * TICKS, 0], "cycles": [i * TICKS, 0],
                  "instructions": [i * TICKS, 0], "one_thread": [0, 0]}  # fmt: skip
        result.apply(made.frame(greeting, i, values, stamps=[i * RAW_NS] * 2))
    assert result.take().suspect[0] == {("ref", Doubt.FAST)}


def test_the_rate_of_an_event_of_four_threads_is_learned() -> None:
    """any-thread ticks 13 TSC ticks at a time; the first candidate is wrong."""
    counters = [TSC, made.REF, made.counter("any_thread", "1", bits=40)]
    candidates = [wire.Multiplier("any_thread", k, "made") for k in (1.0, 13.0)]
    greeting = made.hello(counters, threads=4, stamp="raw", multipliers=candidates)
    result = Session(greeting)
    for i in range(6):
        if i == 5:
            result.take()
        values = {"tsc": [i * TICKS] * 4, "ref": [int(0.4 * i * TICKS)] * 4,
                  "any_thread": [int(0.9 * i * TICKS / 13)] * 4}  # fmt: skip
        result.apply(made.frame(greeting, i, values, stamps=[i * RAW_NS] * 4))
    split = result.take().split
    assert split.method == ["any-thread"]
    assert split.states[0, 0] == pytest.approx(0.1, abs=1e-6)
