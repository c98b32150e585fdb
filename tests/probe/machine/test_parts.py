"""A counter that several parts have is kept in the first of them."""

from __future__ import annotations

from collections.abc import Sequence

from perfprobe._native import lib
from perfprobe.machine.parts import drop_duplicate_counters, drop_served_keys
from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Missing, Scope


class FakePart:
    """A part whose slots' descriptors are the numbers of its columns."""

    scope: Scope = "cpu"

    def __init__(self, *counters: Counter) -> None:
        self.counters = counters
        self.missing: Sequence[Missing] = ()
        self.closed_cpus: list[int] = []
        self.closed = False

    def open(self, _cpu: int) -> list[Slot]:
        return [Slot(lib.PP_FILE, i, i) for i in range(sum(c.columns for c in self.counters))]

    def close_cpu(self, cpu: int) -> None:
        self.closed_cpus.append(cpu)

    def close(self) -> None:
        self.closed = True


def counter(key: str, columns: int = 1, cpus: list[int] | None = None) -> Counter:
    return Counter(key, key, "1", "made", columns=columns, cpus=cpus)


def test_the_first_part_keeps_a_counter() -> None:
    first = FakePart(counter("a"), counter("b"))
    second = FakePart(counter("c"), counter("b", 2), counter("d"), counter("a"), counter("e"))
    kept, thinned = drop_duplicate_counters([first, second])
    assert kept is first
    assert [c.key for c in thinned.counters] == ["c", "d", "e"]
    assert [(slot.column, slot.fd) for slot in thinned.open(0)] == [(0, 0), (1, 3), (2, 5)]
    thinned.close_cpu(4)
    thinned.close()
    assert (second.closed_cpus, second.closed) == ([4], True)


def test_the_first_of_several_parts_keeps_a_counter() -> None:
    parts = drop_duplicate_counters(
        [FakePart(counter("a")), FakePart(counter("b")), FakePart(counter("a"), counter("b"))]
    )
    assert [[c.key for c in part.counters] for part in parts] == [["a"], ["b"], []]


def test_parts_that_share_nothing_are_unchanged() -> None:
    parts = [FakePart(counter("a")), FakePart(counter("b"))]
    assert drop_duplicate_counters(parts) == parts


def test_a_key_of_another_part_is_not_missing() -> None:
    missing = [Missing(key, "made") for key in "abc"]
    counters = [counter("a"), counter("b", cpus=[0])]
    assert [left.what for left in drop_served_keys(missing, counters)] == ["b", "c"]
