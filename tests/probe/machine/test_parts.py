"""Which part keeps a counter that several parts have, and which CPU reads which rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from perfprobe import wire
from perfprobe._native import lib
from perfprobe.kernel.access import Problem
from perfprobe.machine.parts import RowReaders, join_missing, restrict_to_cpus
from perfprobe.native.sampler import RowPlan, Slot, lay_out
from perfprobe.wire import Counter, Cpu, Missing, Scope


class FakePart:
    """A part whose slots' descriptors are the numbers of its columns."""

    def __init__(self, *counters: Counter, scope: Scope = "cpu") -> None:
        self.counters, self.scope = counters, scope
        self.missing: Sequence[Missing] = ()
        self.closed_cpus: list[int] = []

    def open(self, _cpu: int) -> list[Slot]:
        return [Slot(lib.PP_FILE, i, i) for i in range(sum(c.columns for c in self.counters))]

    def close_cpu(self, cpu: int) -> None:
        self.closed_cpus.append(cpu)

    def close(self) -> None: ...


def counter(key: str, columns: int = 1, cpus: list[int] | None = None) -> Counter:
    return Counter(key, key, "1", "made", columns=columns, cpus=cpus)


def test_a_counter_of_several_parts_is_read_from_the_first() -> None:
    first = FakePart(counter("a"), counter("b"))
    second = FakePart(counter("c"), counter("b", 2), counter("d"), counter("a"), counter("e"))
    third = FakePart(counter("a"), counter("c"), counter("f"), scope="core")
    readers = RowReaders([first, second, third], [Cpu(0, True, core=0)])
    blocks = readers.blocks()
    assert [[c.key for c in block.counters] for block, _ in blocks] == [[*"abcde"], ["f"]]
    readers.set_offsets({o.block.name: o for o in lay_out(blocks)[0]})
    slots = [[(slot.column, slot.fd) for slot in plan.slots] for plan in readers.open(0)]
    assert slots == [[(0, 0), (1, 1), (2, 0), (3, 3), (4, 5)], [(0, 2)]]


def test_counters_of_some_cpus_name_them() -> None:
    assert restrict_to_cpus(counter("a"), (0, 2), 3).cpus == [0, 2]
    assert restrict_to_cpus(counter("a"), (0, 1, 2), 3).cpus is None
    no_pmu, taken = Problem("no PMU", "modprobe"), Problem("taken")
    lacking = [(0, "a", no_pmu), (1, "a", no_pmu), (0, "b", no_pmu), (1, "b", taken)]
    assert join_missing(lacking, 2) == [
        Missing("a", "no PMU", "modprobe"), Missing("b", "no PMU", "modprobe", [0]),
        Missing("b", "taken", None, [1]),
    ]  # fmt: skip


# --- which CPU reads which rows -------------------------------------------------------------------

PLAIN = {"cpu": [0, 1, 2, 3], "events.1": [0], "core": [0, 1], "package": [0]}
"""Columns of each block's slots: the cpu block has two parts of two counters each."""


class Machine:
    """CPUs 0 and 2 are core 0, CPUs 1 and 3 are core 1, all of one package."""

    def __init__(self, *absent: str) -> None:
        parts = [
            FakePart(counter("a"), counter("b")), FakePart(counter("e", 2), scope="core"),
            FakePart(counter("c", 2)), FakePart(counter("f"), scope="package"),
        ]  # fmt: skip
        self.chosen = FakePart(counter("d"))
        self.parts = [part for part in parts if part.scope not in absent]
        rows = [Cpu(n, True, 0, core=n % 2, siblings=[n % 2, n % 2 + 2]) for n in range(4)]
        self.readers = RowReaders(self.parts, rows, [self.chosen])
        self.blocks = self.readers.blocks()
        self.offsets = {o.block.name: o for o in lay_out(self.blocks)[0]}
        self.readers.set_offsets(self.offsets)

    def rows(self, plans: Sequence[RowPlan]) -> list[str]:
        """Returns the rows of the plans as text, such as "core 1"."""
        for plan in plans:
            name = self.row_at(plan.head).partition(" ")[0]
            assert [slot.column for slot in plan.slots] == PLAIN[name]
        return [self.row_at(plan.head) for plan in plans]

    def row_at(self, head: int) -> str:
        return next(
            f"{name} {row}"
            for name, offsets in self.offsets.items()
            for row in range(offsets.row_count)
            if offsets.heads + row * wire.HEAD == head
        )

    def unread(self, *cpus: int) -> list[str]:
        return [self.row_at(head) for head in self.readers.offline_head_offsets(cpus)]


def test_each_scope_with_counters_has_a_block() -> None:
    assert [(b.name, b.scope, [c.key for c in b.counters], n) for b, n in Machine().blocks] == [
        ("cpu", "cpu", ["a", "b", "c"], 4), ("events.1", "cpu", ["d"], 4),
        ("core", "core", ["e"], 2), ("package", "package", ["f"], 1),
    ]  # fmt: skip
    assert [block.name for block, _ in Machine("core").blocks] == ["cpu", "events.1", "package"]


@pytest.mark.parametrize(("closed", "successors", "unread"), [
    # CPU 0 has the package, too: CPU 2 of its core takes over both rows.
    ([0], {2: ["cpu 2", "events.1 2", "core 0", "package 0"]}, ["cpu 0", "events.1 0"]),
    ([2], {}, ["cpu 2", "events.1 2"]),
    # The last CPU of a core has no successor, but that of the package has.
    ([2, 0], {1: ["cpu 1", "events.1 1", "core 1", "package 0"]},
     ["cpu 0", "cpu 2", "events.1 0", "events.1 2", "core 0"]),
    ([2, 1, 3, 0], {}, ["cpu 0", "cpu 1", "cpu 2", "events.1 0", "events.1 1", "events.1 2",
                     "core 0", "core 1", "package 0"]),
])  # fmt: skip
def test_rows_pass_to_another_cpu_when_their_reader_goes_offline(
    closed: list[int], successors: dict[int, list[str]], unread: list[str]
) -> None:
    machine = Machine()
    for cpu in range(4):
        machine.readers.open(cpu)
    for cpu in closed:
        result = machine.readers.close_cpu(cpu)
    assert {cpu: machine.rows(plans) for cpu, plans in result} == successors
    assert machine.unread(0, 1, 2) == unread
    assert {tuple(p.closed_cpus) for p in (*machine.parts, machine.chosen)} == {tuple(closed)}


def test_a_core_that_was_never_opened_is_unread() -> None:
    machine = Machine()
    machine.readers.open(0)
    assert machine.unread(0, 1) == ["cpu 1", "events.1 1", "core 1"]
