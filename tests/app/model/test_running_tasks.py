"""Who ran where, from records that may hold anything."""

from __future__ import annotations

from math import isnan, nan
from typing import Any

import pytest

from perftop.model.tasks import TaskSnapshot

LMP, CC1 = [4000, "lmp", 0.5], [4001, "cc1", 0.25]


def told(**records: Any) -> list[tuple[str, float, float, float]]:
    look = TaskSnapshot.from_records(records)
    assert look is not None
    ran = look.activity_on("3")
    return [(one.task.comm, one.task.share, one.wait, one.switches) for one in ran]


def test_waits_belong_to_the_tasks_in_their_order() -> None:
    others, waits = {"3": [LMP, CC1]}, {"3": [[0.1, 20.5], [0.75, 3]]}
    found = told(tasks={"3": LMP}, others=others, waits=waits)
    assert found == [("lmp", 0.5, 0.1, 20.5), ("cc1", 0.25, 0.75, 3.0)]
    assert told(tasks={"3": LMP}, waits={"3": [[0.1, 1]]}) == [("lmp", 0.5, 0.1, 1.0)]


@pytest.mark.parametrize(
    "waits",
    [None, 7, {}, {"3": 5}, {"3": []}, {"3": [[None, None]]}, {"3": [["a", []], 1]},
     {"3": [[-1, nan], [nan, float("inf")]]}, {"3": [[True, True]]}],
)  # fmt: skip
def test_what_is_no_number_is_not_known(waits: Any) -> None:
    found = told(tasks={"3": LMP}, others={"3": [LMP, CC1]}, waits=waits)
    assert [comm for comm, *_ in found] == ["lmp", "cc1"]
    assert all(isnan(value) for _, _, *values in found for value in values)


def test_nobody_waits_for_more_than_all_the_time() -> None:
    ((*_, wait, switches),) = told(tasks={"3": LMP}, waits={"3": [[1.5, 1e9]]})
    assert (wait, switches) == (1.0, 1e9)


def test_a_stream_that_tells_no_waits_is_told_from_one_without_any() -> None:
    old, new = (
        TaskSnapshot.from_records({"tasks": {}}),
        TaskSnapshot.from_records({"tasks": {}, "waits": {}}),
    )
    assert old is not None
    assert old.waits is None
    assert new is not None
    assert new.waits == {}
    assert TaskSnapshot.from_records({"others": {}}) is None
    assert TaskSnapshot.from_records({"tasks": 5}) is None


@pytest.mark.parametrize(
    "record", [None, 7, [7], ["7", "a", 0.5], [7, 7, 0.5], [7, "a", "0.5"], [-1, "a", 0.5]]
)
def test_what_is_no_task_is_nobody(record: Any) -> None:
    look = TaskSnapshot({"3": record}, {"4": [record, [7, "a", 0.5]]})
    assert look.tasks_on("3") == [] == look.activity_on("3")
    assert [task.comm for task in look.tasks_on("4")] == ["a"]
    assert [ran.task.comm for ran in look.activity_on("4")] == ["a"]
