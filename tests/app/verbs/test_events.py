"""The list of what -e can count, as text."""

from __future__ import annotations

from typing import Any

from perftop.verbs import events


def test_counters_that_are_left_stand_in_the_heading() -> None:
    row: dict[str, Any] = {
        "name": "l1-hits", "about": "hits", "unit": "1", "scale": 1.0, "pmu": "cpu", "type": None,
        "open": [],
    }  # fmt: skip
    pmu = {"pmu": "cpu", "type": None, "cpus": None}
    answer: dict[str, Any] = {"events": [row], "pmus": [pmu], "missing": []}
    assert events.draw(answer) == ["cpu: every CPU", f"  {'l1-hits':<25} hits"]
    answer = {
        "events": [row | {"counters": "0-3"}], "pmus": [pmu | {"general": 8, "left": 5}],
        "missing": [],
    }  # fmt: skip
    heading, line = events.draw(answer)
    assert "5 of 8 general counters" in heading
    assert "0-3" in line
