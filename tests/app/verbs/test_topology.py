"""The drawing of `perftop topology`, from rows written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perftop.verbs import machine

Row = dict[str, Any]


def draw(cpus: list[Row], *, unicode: bool = True) -> list[str]:
    return machine.draw_answer({"cpus": cpus}, machine.topology_lines, 80, unicode=unicode)


def row(cpu: int, package: int | None, core: int | None, siblings: list[int], **more: Any) -> Row:
    return {
        "cpu": cpu,
        "online": True,
        "package": package,
        "die": 0,
        "core": core,
        "thread": siblings.index(cpu),
        "l3": package,
        "node": package,
        "type": None,
        "siblings": siblings,
        **more,
    }


def offline_row(cpu: int) -> Row:
    names = ("package", "die", "core", "thread", "l3", "node", "type")
    return {"cpu": cpu, "online": False, **dict.fromkeys(names), "siblings": []}


def xeon() -> list[Row]:
    return [row(n, n % 48 // 24, n % 24, [n % 48, n % 48 + 48]) for n in range(96)]


def hybrid() -> list[Row]:
    cpus = [row(n, 0, n // 2 * 4, [n - n % 2, n - n % 2 + 1], type="P") for n in range(16)]
    cpus += [row(n, 0, n + 16, [n], type="E") for n in range(16, 32)]
    return cpus + [row(n, 0, n + 32, [n], type="L", l3=None) for n in (32, 33)]


def partly_offline() -> list[Row]:
    cpus = [row(n, 0, n % 4, [n % 4, n % 4 + 4]) for n in (0, 2, 3, 4, 6)]
    cpus[2]["siblings"] = [3]
    return [*cpus, row(1, 0, 1, [1]), offline_row(5), offline_row(7)]


DRAWINGS = {
    "two packages": (xeon(), [
        "2 packages · 48 cores · 96 CPUs · 2 threads per core · 2 NUMA nodes",
        "├─ package 0   24 cores   48 CPUs",
        "│  └─ L3 0   node 0   cores 0-23   cpus 0-23 + 48-71",
        "└─ package 1   24 cores   48 CPUs",
        "   └─ L3 1   node 1   cores 0-23   cpus 24-47 + 72-95",
    ]),
    "hybrid core types": (hybrid(), [
        "1 package · 26 cores (8 P + 16 E + 2 L) · 34 CPUs · 1-2 threads per core · 1 NUMA node",
        "└─ package 0   26 cores   34 CPUs",
        "   ├─ L3 0    node 0",
        "   │  ├─ P cores 0-28:1/4   cpus 0-15 (2 per core)",
        "   │  └─ E cores 32-47      cpus 16-31",
        "   └─ no L3   node 0   L cores 64-65   cpus 32-33",
    ]),
    "a core without L3": ([row(n, 0, n, [n], l3=n if n < 3 else None) for n in range(4)], [
        "1 package · 4 cores · 4 CPUs · 1 thread per core · 3 L3 caches · 1 NUMA node",
        "└─ package 0   4 cores   4 CPUs",
        "   ├─ L3 0    node 0   core 0   cpu 0",
        "   ├─ L3 1    node 0   core 1   cpu 1",
        "   ├─ L3 2    node 0   core 2   cpu 2",
        "   └─ no L3   node 0   core 3   cpu 3",
    ]),
    "offline CPUs": (partly_offline(), [
        "1 package · 4 cores · 8 CPUs · 1-2 threads per core · 1 NUMA node; offline: 5,7",
        "└─ package 0   4 cores   6 CPUs",
        "   └─ L3 0   node 0",
        "      ├─ cores 0,2   cpus 0,2 + 4,6",
        "      └─ cores 1,3   cpus 1,3",
    ]),
    "dies and nodes": (
        [row(n, 0, n % 4, [n], die=n // 4, l3=n // 4, node=n // 2) for n in range(8)], [
        "1 package · 2 dies · 8 cores · 8 CPUs · 1 thread per core · 2 L3 caches · 4 NUMA nodes",
        "└─ package 0   8 cores   8 CPUs",
        "   ├─ die 0",
        "   │  └─ L3 0   node 0-1",
        "   │     ├─ node 0   cores 0-1   cpus 0-1",
        "   │     └─ node 1   cores 2-3   cpus 2-3",
        "   └─ die 1",
        "      └─ L3 1   node 2-3",
        "         ├─ node 2   cores 0-1   cpus 4-5",
        "         └─ node 3   cores 2-3   cpus 6-7",
    ]),
    "folded packages": ([row(n, n, 0, [n], node=0) for n in range(1024)], [
        "1024 packages · 1024 cores · 1024 CPUs · 1 thread per core · 1 NUMA node",
        "└─ packages 0-1023, one core each   1024 cores   1024 CPUs",
        "   └─ L3 0-1023, one core each   node 0   core 0 of each   cpus 0-1023",
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWINGS)
def test_packages_caches_and_cores_are_drawn_as_a_tree(name: str) -> None:
    cpus, lines = DRAWINGS[name]
    assert draw(cpus) == lines


PAIRS = {0: [0, 5], 1: [1, 4], 2: [2, 7], 3: [3, 6]}
IDS_OUT_OF_ORDER = (0, 4, 1, 3)
"""`cores 0-1,3-4   cpus 0-3` would pair CPU 1 with core 1."""


@pytest.mark.parametrize(("cpus", "text"), [
    ([row(n, n % 2, n % 16 // 2, [n % 16, n % 16 + 16]) for n in range(32)],
     "└─ L3 0   node 0   cores 0-7   cpus 0-14:1/2 + 16-30:1/2"),
    ([row(cpu, 0, core, pair) for core, pair in PAIRS.items() for cpu in pair],
     "└─ core 0: 0,5   core 1: 1,4   core 2: 2,7   core 3: 3,6"),
    ([row(n, 0, IDS_OUT_OF_ORDER[n], [n]) for n in range(4)],
     "└─ core 0: 0   core 4: 1   core 1: 2   core 3: 3"),
], ids=["alternating packages", "irregular pairs", "ids out of order"])  # fmt: skip
def test_cores_without_an_order_are_folded_or_listed_one_by_one(cpus: list[Row], text: str) -> None:
    assert any(line.endswith(text) for line in draw(cpus))


def test_a_kernel_without_ids_gives_a_plain_list() -> None:
    unknown = {"die": None, "l3": None, "node": None}
    cpus = [row(n, None, None, [n], **unknown) for n in range(2)]
    expected = [
        "2 cores · 2 CPUs · 1 thread per core",
        "└─ package ?   2 cores   2 CPUs",
        "   └─ 2 cores   cpus 0-1",
    ]
    assert draw(cpus) == expected
    assert draw([{"cpu": n, "online": True} for n in range(2)]) == expected
    assert draw([offline_row(0)]) == ["0 cores · 1 CPU; offline: 0"]
    assert draw([]) == ["0 cores · 0 CPUs"]


IDS = st.none() | st.integers(0, 3)
ROWS = st.fixed_dictionaries(
    {
        "cpu": st.integers(0, 40),
        "online": st.booleans(),
        **dict.fromkeys(("package", "die", "core", "l3", "node"), IDS),
        "type": st.none() | st.sampled_from("PEL"),
        "siblings": st.lists(st.integers(0, 40), max_size=4),
    }
)


@given(st.lists(ROWS, max_size=30, unique_by=lambda r: str(r["cpu"])))
def test_any_rows_can_be_drawn(cpus: list[Row]) -> None:
    lines = draw(cpus)
    assert all(line and line == line.rstrip() and "\xa0" not in line for line in lines)
