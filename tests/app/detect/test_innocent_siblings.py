"""How often a sibling is blamed for a program's own phases, and how often a real loss is
detected."""

from __future__ import annotations

import pytest
from nights import cases_by_day
from phases import Phases, episodes

SECONDS = 240


@pytest.mark.parametrize(
    ("depth", "phase_s"), cases_by_day([(0.1, 3.0), (0.3, 10.0), (0.5, 30.0)], [(0.3, 10.0)])
)
def test_a_sibling_is_not_blamed_for_phases(depth: float, phase_s: float) -> None:
    """`tests/bench/false_causes.py` does the same for an hour each."""
    assert episodes(Phases(1, depth, phase_s), SECONDS) == []


@pytest.mark.parametrize("depth", cases_by_day([0.0, 0.2], [0.2]))
def test_a_loss_is_detected_and_measured_after_the_sibling_came_and_went(depth: float) -> None:
    result = episodes(Phases(2, depth, loss=0.3), SECONDS)
    assert len(result) >= 5
    assert [e.confidence for e in result[:1]] == ["inferred"]
    assert {e.confidence for e in result[3:]} == {"measured"}
    depths = sorted(e.depth or 0.0 for e in result)
    assert depths[len(depths) // 2] == pytest.approx(0.3, abs=0.05)
