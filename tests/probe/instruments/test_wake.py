"""`perfprobe wake`: idle states from files, and wake-ups of this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import trees

from perfprobe.errors import Unavailable, UsageError
from perfprobe.instruments import wake
from perfprobe.native.affinity import pinned_to

CPUIDLE = "sys/devices/system/cpu/cpu1/cpuidle"


def test_idle_states_are_those_of_the_driver(tmp_path: Path) -> None:
    states = [("POLL", 0, 5), ("C1E", 4, 70), ("C6", 170, 9)]
    for number, (name, latency, usage) in enumerate(states):
        trees.put(tmp_path, f"{CPUIDLE}/state{number}/name", f"{name}\n")
        trees.put(tmp_path, f"{CPUIDLE}/state{number}/latency", f"{latency}\n")
        trees.put(tmp_path, f"{CPUIDLE}/state{number}/usage", f"{usage}\n")
    known = wake.idle_states(tmp_path, 1)
    assert [(state.name, state.latency_us) for state in known] == [pair[:2] for pair in states]
    assert wake.entry_counts(known) == [5, 70, 9]
    assert wake.idle_states(tmp_path, 0) == []


def test_wake_ups_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "WAKE_UPS_PER_ROW", 8)
    before = os.sched_getaffinity(0)
    answer = wake.measure(None)
    assert os.sched_getaffinity(0) == before
    kinds = {row["kind"] for row in answer["rows"]}
    assert kinds == ({"timer"} if answer["waker"] is None else {"timer", "another CPU"})
    for row in answer["rows"]:
        assert row["samples"] == 8
        assert 0 < row["least_us"] <= row["median_us"] <= row["p99_us"] <= row["most_us"] < 1e8
        assert sum(row["histogram"]["counts"]) + row["histogram"]["beyond"] == 8


def test_a_late_timer_costs_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = time.sleep
    monkeypatch.setattr(wake, "WAKE_UPS_PER_ROW", 4)
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds + 0.01))
    rows = [row for row in wake.measure(None)["rows"] if row["kind"] == wake.TIMER]
    assert all(row["least_us"] >= 10_000 for row in rows)


def test_a_cpu_that_does_not_exist_or_is_not_allowed_is_refused() -> None:
    with pytest.raises(UsageError, match="no such CPU"):
        wake.measure(9999)
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    if first != last:
        with pinned_to(last), pytest.raises(Unavailable, match=f"may run on {last} only"):
            wake.measure(first)


def test_a_late_reader_measures_its_whole_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waker writes again every 2 ms, which must not shorten the delay of a busy reader."""
    read = os.eventfd_read

    def read_late(event: int) -> int:
        count = read(event)
        time.sleep(0.02)
        return count

    monkeypatch.setattr(wake, "WAKE_UPS_PER_ROW", 4)
    monkeypatch.setattr(os, "eventfd_read", read_late)
    assert all(ns >= 20_000_000 for ns in wake._wake_by_cpu(0))
