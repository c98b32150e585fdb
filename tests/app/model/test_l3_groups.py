"""Bandwidth by group of resctrl, from records of the wire."""

from __future__ import annotations

from typing import Any

import pytest

from perfprobe.wire import Cpu
from perftop.model.episode import GroupTraffic
from perftop.model.memory import DEFAULT, L3Groups
from perftop.output.sentences import evidence

S = 1_000_000_000
TOPOLOGY = [Cpu(n, online=True, l3=n // 2) for n in range(4)]


def record(**groups: Any) -> dict[str, object]:
    return {"l3_groups": groups}


def test_groups_of_the_l3s_are_told_most_first() -> None:
    seen = L3Groups(TOPOLOGY)
    first: dict[str, object] = {"l3_groups": {"": [[0, 100], [1, 0]], "batch": [[0, 0], [1, 7]]}}
    seen.take(first, 10 * S)
    assert seen.traffic([0, 1]) == []
    second = {"": [[0, 300], [1, 9]], "batch": [[0, 8000], [1, 7]]}
    seen.take({"l3_groups": second}, 12 * S)
    seen.take({}, 13 * S)  # frames between looks
    assert seen.traffic([0, 1]) == [GroupTraffic("batch", 4000), GroupTraffic(DEFAULT, 100)]
    assert seen.traffic([2]) == [GroupTraffic(DEFAULT, 4)]
    seen.take({}, 40 * S)
    assert seen.traffic([0, 1]) == [], "that is long ago"


def test_steps_back_and_words_are_unknown() -> None:
    seen = L3Groups(TOPOLOGY)
    seen.take(record(a=[[0, 100]], b=[[0, 5]], c=[[0, None]]), S)
    seen.take(record(a=[[0, 50]], b=[[0, None]], c=[[0, 9]], d=[[0, 9]]), 2 * S)
    assert seen.traffic([0]) == []


@pytest.mark.parametrize(
    "told", [None, [], {"a": 3}, {"a": [[1]]}, {"a": [["x", 2]]}, {3: [[0, 1]]}]
)
def test_a_record_of_any_kind_does_no_harm(told: object) -> None:
    seen = L3Groups(TOPOLOGY)
    for second in (1, 2):
        seen.take({"l3_groups": told}, second * S)
    assert seen.traffic([0, 1, 2, 3]) == []


def test_they_are_evidence_in_words() -> None:
    told = evidence(
        "memory", {"l3_groups": [GroupTraffic("batch", 45.1e9), GroupTraffic(DEFAULT, 3.2e9)]}
    )
    assert told == "L3 groups: batch 45.1 GB/s, (default) 3.2 GB/s"
