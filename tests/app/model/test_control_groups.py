"""Allowed CPUs and counts of control groups, from untrusted records."""

from __future__ import annotations

from typing import Any

import pytest

from perftop.model.control_groups import (
    MemoryGroup,
    Quotas,
    allowed_cpus,
    is_group,
    memory_groups,
    parse_cpu_list,
)

ONLINE = {0, 1, 2, 3}


@pytest.mark.parametrize(("text", "cpus"), [
    ("0-3", ONLINE), ("0", {0}), ("1-2,3", {1, 2, 3}), ("0-1,8-9", {0, 1}), ("", set()),
    ("2-1", set()), (7, set()), (None, set()), ("3-999999,0-2", ONLINE), ("4-999999", set()),
])  # fmt: skip
def test_a_list_of_cpus_is_limited_to_online_ones(text: object, cpus: set[int]) -> None:
    assert parse_cpu_list(text, ONLINE) == cpus


@pytest.mark.parametrize(("processes", "how", "cpus"), [
    ([("0-3", "0-3")], "", ONLINE), ([("1", "0-3")], "mask", {1}), ([("1", "1")], "cpuset", {1}),
    ([("1-2", "1")], "cpuset", {1, 2}),  # the mask leaves the group's CPUs as they are
    ([("1", "1"), ("2", "0-3")], "mask", {1, 2}), ([("1", "1"), ("2", "2")], "cpuset", {1, 2}),
    ([("0-1", "0-1"), ("2-3", "2-3")], "", ONLINE), ([("1", None)], "mask", {1}),
    ([(None, None)], "", ONLINE), ([("1", "1"), (None, None)], "cpuset", {1}),
])  # fmt: skip
def test_processes_are_restricted_by_a_mask_or_their_group(
    processes: list[tuple[str | None, str | None]], how: str, cpus: set[int]
) -> None:
    details = {str(pid): dict(zip(("affinity", "cpuset"), lists, strict=True))
               for pid, lists in enumerate(processes)}  # fmt: skip
    assert allowed_cpus(details, [*range(len(processes)), 99], ONLINE) == (how, cpus)


@pytest.mark.parametrize(("watched", "group"), [
    ("/a/b", True), ("cron.service", True), ("x.scope", True), ("a.slice", True), ("lmp", False),
])  # fmt: skip
def test_a_path_or_a_unit_is_a_group(watched: str, *, group: bool) -> None:
    assert is_group(watched) == group


def record(group: str = "/a", *, cpus: Any = 0.5, counts: tuple[Any, ...] = (10, 5, 700_000),
           pids: Any = ("/a",)) -> dict[str, Any]:  # fmt: skip
    return {"quotas": {"groups": {group: [cpus, *counts]}, "pids": {"7": [*pids]}}}


def test_the_number_of_groups_is_limited() -> None:
    quotas = Quotas()
    for count in (1024, 1025):
        groups = {f"/{number}": [0.5, 10 * count, 5, 0] for number in range(count)}
        quotas.read_records({"quotas": {"groups": groups, "pids": {}}})
    assert len(quotas.by_group) == 1024
    assert quotas.by_group["/7"].newest_periods[0] == 10, "its count is still read"


def test_counts_of_a_quota_start_with_its_first_record() -> None:
    quotas = Quotas()
    for counts in ((10, 5, 7e5), (30, 9, 1e6), (40, 9, 1e6), (20, 9, 1e6), (25, 10, 1.5e6)):
        quotas.read_records(record(counts=tuple(map(int, counts))))
    (quota,) = quotas.quotas_of(7)
    assert (quota.period_count, quota.throttled_count) == (20 + 10 + 5, 4 + 1), (
        "one count decreased"
    )
    assert quota.throttled_s == pytest.approx(0.3 + 0.5)
    assert (quota.newest_s, quota.newest_periods) == (0.5, (5, 1))
    assert quotas.most_limiting_quota(7) is quota
    assert quotas.most_limiting_quota(8) is None
    earlier = quotas.copy()
    assert quotas.minus(earlier).most_limiting_quota(7) is None, "nothing was throttled since"
    quotas.read_records(record(counts=(30, 11, 1_600_000)))
    later = quotas.minus(earlier).quotas_of(7)[0]
    assert (later.period_count, later.throttled_count) == (5, 1)
    assert later.throttled_s == pytest.approx(0.1)


@pytest.mark.parametrize("made", [
    record(cpus=0), record(cpus=-1), record(cpus=float("nan")), record(cpus=float("inf")),
    record(cpus="1"), record(counts=(1, 2)), record(counts=(1, None, 2)), {"quotas": 7},
    {"quotas": {"groups": {}}},
])  # fmt: skip
def test_an_invalid_quota_is_ignored(made: dict[str, Any]) -> None:
    quotas = Quotas()
    quotas.read_records(made)
    assert (quotas.by_group, quotas.quotas_of(7)) == ({}, [])


def test_memory_groups_are_checked() -> None:
    groups = {"/a": [100, 2, 3, 4], "/b": [None, None, None, None], "/c": [-1, -2, 5, 6],
              "/d": ["1", 2, 3, 4], "/e": [1, 2]}  # fmt: skip
    members = {"7": "/a", "8": "/a", "x": "/a", "9": 3}
    found = [*memory_groups({"memory": {"groups": groups, "pids": members}})]
    assert found == [
        MemoryGroup("/a", 100, 2, 3, 4, frozenset({7, 8})),
        MemoryGroup("/b", 0, 0, 0, None, frozenset()),
        MemoryGroup("/c", 0, 0, 5, 6, frozenset()),
    ]
    assert [*memory_groups({"memory": 7})] == [] == [*memory_groups({})]
