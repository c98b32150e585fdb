"""Offsets of simulated clocks, whose true values are known, and of this machine's CPUs."""

from __future__ import annotations

import errno
import os
from math import floor
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.instruments import timers
from perfprobe.instruments.timers import Exchange, offset_bounds

delays = st.floats(0, 1e6)
messages = st.lists(st.tuples(delays, delays, delays), min_size=1, max_size=50)
"""For each message: time since the previous one, time to the other CPU, time back."""


def readings_of_clocks(
    message: list[tuple[float, float, float]], skew: float, step: float, phases: tuple[float, float]
) -> list[Exchange]:
    """Returns the readings of two clocks that advance in steps; the second is `skew` ahead of the
    first."""

    def reading(clock: float, phase: float) -> int:
        return floor(floor((clock + phase) / step) * step)

    now, rows = 1e9, []
    for pause, there, back in message:
        sent = now + pause
        seen = sent + there
        now = seen + back
        here, other = phases
        rows.append(Exchange(reading(sent, here), reading(seen + skew, other), reading(now, here)))
    return rows


@given(messages, st.floats(-1e8, 1e8), st.sampled_from([1.0, 2.0, 24.5, 100.0]))
def test_the_true_offset_is_within_the_bounds(
    exchange: list[tuple[float, float, float]], skew: float, step: float
) -> None:
    """The bounds hold for any duration of the two directions, even if they differ."""
    # Rounding down to whole numbers adds a step of at most one tick.
    result = offset_bounds(
        readings_of_clocks(exchange, skew, step, (0.0, 0.0)), step + (step % 1 > 0)
    )
    assert result is not None
    assert result.low <= skew <= result.high


def test_a_clock_that_was_set_has_no_offset() -> None:
    before = readings_of_clocks([(1, 50, 50)] * 3, 0, 1.0, (0, 0))
    after = readings_of_clocks([(1, 50, 50)] * 3, 5000, 1.0, (0, 0))
    assert offset_bounds(before + after) is None
    assert offset_bounds([]) is None


def test_all_of_few_cpus_or_a_spread_of_many_are_measured() -> None:
    assert timers.spread_cpus([0, 3, 5]) == [0, 3, 5]
    many = timers.spread_cpus(range(0, 2048, 2))
    assert len(many) == 64
    assert (many[0], many[1], many[-1]) == (0, 32, 2046)
    assert timers.spread_cpus(range(64)) == [*range(64)]
    assert sorted(set(many)) == many


def test_offsets_of_this_machine() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    result = timers.measure_offsets(cpus, 1.0, 2e9)
    assert [row.cpu for row in result] == cpus[1:]
    assert os.sched_getaffinity(0) == set(cpus)
    for row in result:
        assert row.against == cpus[0]
        assert (row.offset_ticks is None) == (row.why is not None)
        if row.why is None:
            assert row.error_ticks is not None
            assert row.error_ns == pytest.approx(row.error_ticks / 2)
            assert row.exchanges > 0


def test_obstacles_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = min(os.sched_getaffinity(0))
    (gone,) = timers.measure_offsets([cpu, 65000], 1.0, 2e9)
    reason = "it went offline, or this process may not run on it"
    assert gone == timers.Offset(65000, cpu, 0, why=reason)
    (none,) = timers.measure_offsets([65000, cpu], 1.0, 2e9)
    assert none == timers.Offset(cpu, 65000, 0, why="CPU 65000: Invalid argument")

    for status, reason in (
        (0, "it did not answer within 250 ms"),
        (-errno.EXDEV, "a CPU went offline meanwhile"),
        (-errno.EAGAIN, "no thread could be started there (EAGAIN)"),
    ):
        exchange = Mock(return_value=status)
        library = SimpleNamespace(pp_exchange_stamps=exchange)
        monkeypatch.setattr(timers, "lib", library)
        silent = timers.measure_offsets([cpu, 7], 1.0, 2e9)
        assert silent == [timers.Offset(7, cpu, 0, why=reason)]
        assert exchange.call_args.args[:3] == (7, 2000, 250_000_000)
        # the time of many CPUs is limited together
        many = timers.measure_offsets([cpu, *range(7, 12)], 1.0, 2e9)
        assert {each.why for each in many} == {reason.replace("250", "200")}
    rows = [
        *readings_of_clocks([(1, 50, 50)], 0, 1.0, (0, 0)),
        *readings_of_clocks([(1, 50, 50)], 5000, 1.0, (0, 0)),
    ]
    monkeypatch.setattr(timers, "exchange_stamps", lambda *_: rows)
    (set_,) = timers.measure_offsets([cpu, cpu], 1.0, 2e9)
    assert (set_.exchanges, set_.offset_ticks) == (2, None)
    assert "no constant offset" in str(set_.why)
    monkeypatch.setattr(timers, "exchange_stamps", lambda *_: [Exchange(1000, 1310, 1600)])
    (near,) = timers.measure_offsets([cpu, 7], 1.0, 2e9)
    assert near == timers.Offset(7, cpu, 1, 10.0, 301.0, 5.0, 150.5)
