"""The list of what -e can count, as text."""

from __future__ import annotations

from typing import Any

from perftop.verbs import events


def test_an_event_is_listed_below_its_pmu() -> None:
    row: dict[str, Any] = {
        "name": "l1-hits", "about": "hits", "unit": "1", "scale": 1.0, "pmu": "cpu", "type": None,
        "open": [],
    }  # fmt: skip
    pmu = {"pmu": "cpu", "type": None, "cpus": None}
    answer: dict[str, Any] = {"events": [row], "pmus": [pmu], "missing": []}
    assert events.draw(answer) == ["cpu: every CPU", f"  {'l1-hits':<25} hits"]
