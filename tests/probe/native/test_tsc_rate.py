"""The rate of the TSC: how long it is counted, and how much of that the caller waits."""

from __future__ import annotations

import time

import pytest

from perfprobe.native import tsc_rate


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What it slept, where nobody has begun before."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    monkeypatch.setattr(tsc_rate, "_begun", None)
    return found


def test_it_sleeps_through_the_span_unless_it_was_begun_before(slept: list[float]) -> None:
    tsc_rate.calibrate(100.0)
    assert 90.0 < slept[0] <= 100.0
    tsc_rate.begin()
    end_ns = time.monotonic_ns() + 2_000_000
    while time.monotonic_ns() < end_ns:
        pass
    rate = tsc_rate.calibrate(0.001)
    assert slept[1] == 0.0
    assert rate.error is not None
    assert 1e8 < rate.hz < 1e10


def test_half_of_each_bracket_is_error() -> None:
    rate = tsc_rate.between((0, 1000, 20), (1_000_000_000, 2_001_000, 60))
    assert (rate.hz, rate.error) == (2e6, 2e-5)


def test_what_was_begun_counts_once(slept: list[float]) -> None:
    tsc_rate.begin()
    tsc_rate.calibrate(0.0)
    tsc_rate.calibrate(100.0)
    assert 90.0 < slept[1] <= 100.0
