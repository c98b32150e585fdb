"""`perfprobe wake`: idle states from files, and wake-ups of this machine."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from perfprobe.cpu import files, identity, topology
from perfprobe.errors import Unavailable
from perfprobe.instruments import disturbance, wake
from perfprobe.instruments.wake import IdleState
from perfprobe.native.affinity import pinned_to
from perfprobe.wire import Cpu

STATES = [IdleState("a", "C1", 2), IdleState("b", "C6", 100)]


@pytest.mark.parametrize(("waker", "limit", "kind", "entered"), [
    (None, None, "timer", {"C1": 0.25, "C6": 0.75}),
    (3, STATES[0], "another CPU", {"C1": 1.0}),
])  # fmt: skip
def test_a_row_summarises_its_wake_ups(
    monkeypatch: pytest.MonkeyPatch, waker: int | None, limit: IdleState | None, kind: str,
    entered: dict[str, float],
) -> None:  # fmt: skip
    """Waits of 1 to 1000 us, in the wrong order."""
    waits = [us * 1000 for us in range(1000, 0, -1)]
    counts = iter([[5, 7], [15, 37] if limit is None else [45, 7]])
    monkeypatch.setattr(wake, "entry_counts", lambda _: next(counts))
    monkeypatch.setattr(wake, "_limit_idle_states", lambda _: nullcontext())
    monkeypatch.setattr(wake, "_wake_by_timer", lambda: waits if waker is None else [])
    monkeypatch.setattr(wake, "_wake_by_cpu", {3: waits}.get)
    assert wake._measure_row(waker, limit, STATES) == {
        "kind": kind, "deepest": limit and limit.name, "entered": entered, "idle_entries": 40,
        "samples": 1000, "least_us": 1, "median_us": 501, "p95_us": 951, "p99_us": 991,
        "most_us": 1000, "mean_us": 500.5,
        "histogram": {"first_us": 1, "width_us": 42, "counts": [42] * 23 + [34], "beyond": 0},
    }  # fmt: skip


@pytest.mark.parametrize("allowed", [{0, 1, 2}, {0, 1}])
@pytest.mark.parametrize("permitted", [True, False])
def test_each_waker_is_measured_with_each_deepest_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: set[int], permitted: bool
) -> None:
    """CPUs 0 and 1 share a core, so only CPU 2 can be a waker."""
    device = tmp_path / "cpu_dma_latency"
    if permitted:
        device.touch()
    rows = [Cpu(n, True, siblings=[0, 1] if n < 2 else [2]) for n in range(3)]
    words = {"current_driver": "made", "current_governor": "menu"}
    monkeypatch.setattr(wake, "LATENCY_DEVICE", device)
    monkeypatch.setattr(topology, "require_cpus", lambda: rows)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    monkeypatch.setattr(identity, "machine_names", lambda: {"host": "h"})
    monkeypatch.setattr(files, "read_word", lambda path: words.get(path.rpartition("/")[2], ""))
    monkeypatch.setattr(wake, "idle_states", lambda *_: STATES)
    monkeypatch.setattr(wake, "pinned_to", nullcontext)
    monkeypatch.setattr(wake, "minimal_timer_slack", nullcontext)
    monkeypatch.setattr(wake, "_measure_row", lambda waker, limit, _: [waker, limit and limit.name])
    monkeypatch.setattr(disturbance, "read_counts", lambda cpu: cpu)
    monkeypatch.setattr(disturbance, "disturbances_during", lambda *given: [*given])
    monkeypatch.setattr(time, "monotonic", iter([10.0, 12.3456]).__next__)
    waker = 2 if 2 in allowed else None
    names = [None, "C1", "C6"] if permitted else [None]
    assert wake.measure(0) == {
        "host": "h", "cpu": 0, "waker": waker,
        "waker_why": None if waker else "this process may run on one core only",
        "driver": "made", "governor": "menu",
        "states": [{"name": "C1", "latency_us": 2}, {"name": "C6", "latency_us": 100}],
        "states_why": None if permitted else f"{device}: No such file or directory",
        "pause_s": 0.002,
        "rows": [[by, name] for by in ([None, 2] if waker else [None]) for name in names],
        "disturbances": [0, [1], 0, 0], "elapsed_s": 2.346,
    }  # fmt: skip


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


def test_a_cpu_that_is_not_allowed_is_refused() -> None:
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    if first != last:
        with pinned_to(last), pytest.raises(Unavailable, match=f"may run on {last} only"):
            wake.measure(first)
