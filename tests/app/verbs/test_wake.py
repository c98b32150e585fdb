"""The text output of `perftop wake`, from a response of the probe."""

from __future__ import annotations

import json
from typing import Any

import json_page
import pytest

from perftop.verbs import instruments


def row(kind: str, deepest: str | None, median: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind, "deepest": deepest, "entered": {"C6": 1.0}, "idle_entries": 400,
        "samples": 400, "least_us": 4.0, "median_us": median, "p95_us": 2 * median,
        "p99_us": 3 * median, "most_us": 90.5, "mean_us": median,
        "histogram": {"first_us": 4, "width_us": 2, "counts": [1, 300, 80, 5], "beyond": 14},
    } | more  # fmt: skip


METAL: dict[str, Any] = {
    "host": "n1", "model": "Xeon", "kernel": "6.18", "virtualisation": None, "cpu": 3, "waker": 0,
    "waker_why": None, "driver": "intel_idle", "governor": "menu", "states_why": None,
    "states": [{"name": "POLL", "latency_us": 0}, {"name": "C6", "latency_us": 170}],
    "pause_s": 0.002, "disturbances": [], "elapsed_s": 5.1,
    "rows": [row("timer", None, 180.0), row("timer", "POLL", 5.0), row("another CPU", None, 160.0)],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 160])
def test_the_result_comes_first_with_its_meaning(width: int) -> None:
    lines = instruments.wake_lines(METAL, width)
    assert max(map(len, lines)) <= width
    assert (
        lines[0] == "A wake-up of CPU 3 takes 180 us by a timer and 160 us by another CPU (median)."
    )
    text = " ".join(" ".join(lines).split())
    assert "100 a second: 1.8 %, 1,000 a second: 18.0 %, 10,000 a second: 100.0 %" in text
    assert "POLL (0 us), C6 (170 us)" in text
    assert "hypervisor" not in text
    assert "Repeat it at rest" not in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"virtualisation": "kvm"}, "a halt returns to the hypervisor"),
        ({"rows": [row("timer", None, 180.0, idle_entries=40)]}, "was idle before 10 %"),
        ({"states_why": "/dev/cpu_dma_latency: Permission denied"}, "not held one by one: /dev"),
        ({"waker": None, "waker_why": "one core only"}, "No wake-up from another CPU: one core"),
    ],
)
def test_limits_of_the_measurement_are_reported(changes: dict[str, Any], said: str) -> None:
    assert said in " ".join(" ".join(instruments.wake_lines(METAL | changes, 80)).split())


def test_the_json_matches_its_documentation() -> None:
    assert not list(json_page.object_faults(json.loads(json.dumps(METAL)), "wake", "wake"))
