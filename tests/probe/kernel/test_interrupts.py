"""Interrupts and softirqs of CPUs, from files with known counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trees

from perfprobe.kernel.interrupts import Interrupts, parse_table

LINES = """\
           CPU0       CPU4
 36:{first:>11}        500 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 37:          7          0  IO-APIC   5-edge      ACPI:Ged
LOC:{local:>11}          1   Local timer interrupts
ERR:          0
"""
SOFTIRQS = """\
                    CPU0       CPU4
      NET_RX:{rx:>11}          3
         RCU:{rcu:>11}          1
"""


class Node:
    """The files of two CPUs; CPU 0 may spend time in softirqs."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_ns, self.seconds, self.softirq = root, 0, 0, 0
        self.interrupts = Interrupts(root, lambda: self.now_ns)

    def record_after_second(self, softirq: int) -> dict[str, object]:
        """Returns the record after a second in which CPU 0 spent `softirq` ticks in softirqs."""
        self.now_ns += 1_000_000_000
        self.seconds += 1
        self.softirq += softirq
        n = self.seconds
        stat = f"cpu  1 2 3\ncpu0 {30 * n} 0 {10 * n} {20 * n} 0 0 {self.softirq} 0 0 0\n"
        trees.put(self.root, "proc/stat", f"{stat}cpu4 0 0 {n} {99 * n} 0 0 0 0 0 0\nintr 5\n")
        trees.put(self.root, "proc/interrupts", LINES.format(first=9000 * n, local=250 * n))
        trees.put(self.root, "proc/softirqs", SOFTIRQS.format(rx=40_000 * n, rcu=90 * n))
        return self.interrupts.record()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with closing((node := Node(tmp_path)).interrupts):
        yield node


def test_a_cpu_in_softirqs_is_recorded_with_the_most_frequent_kinds(node: Node) -> None:
    assert node.record_after_second(0) == {}
    assert node.interrupts.record() == {}, "no time has passed"
    assert node.record_after_second(2) == {}
    assert node.record_after_second(3) == {"0": [0.4, 0.0, 0.03, [], []]}
    assert node.record_after_second(2) == {}
    assert node.record_after_second(40) == {"0": [0.4, 0.0, 0.4, [], []]}
    assert node.interrupts.kernel_shares == {0: 0.1, 4: 0.01}
    lines = [("36 virtio1-req.0", 9000), ("local timer interrupts", 250)]
    assert node.record_after_second(30) == {
        "0": [0.4, 0.0, 0.3, lines, [("NET_RX", 40_000), ("RCU", 90)]]
    }


def test_lines_are_read_only_while_a_cpu_shows_the_symptom(node: Node) -> None:
    node.record_after_second(0)
    node.record_after_second(40)
    assert node.record_after_second(2) == {}
    node.record_after_second(40)  # its counts would include the time before the last scan
    assert node.record_after_second(40)["0"] != [0.4, 0.0, 0.4, [], []]
    (node.root / "proc/interrupts").unlink()
    assert node.record_after_second(2) == {}


def test_a_new_interrupt_is_first_counted_at_the_next_read() -> None:
    before = parse_table("           CPU0\n 36:          7  edge  eth0\n")
    after = parse_table("           CPU0\n 36:          9  edge  eth0\n 38:          5  edge  x\n")
    assert after.largest_rises(before, 0) == [("36 eth0", 2)]


def test_at_most_four_interrupts_are_reported() -> None:
    before, after = (
        parse_table("           CPU0\n" + "".join(f"{i}:{n * i:>11}  x\n" for i in range(1, 7)))
        for n in (1, 2)
    )
    assert [rise for _, rise in after.largest_rises(before, 0)] == [6, 5, 4, 3]


def test_a_long_name_is_cut() -> None:
    table = parse_table(f"           CPU0\n 36:          7  edge  {'x' * 50}\n")
    assert table.name("36") == f"36 {'x' * 37}"


def test_the_counts_after_a_pause_are_not_used(node: Node) -> None:
    for softirq in (0, 40, 40, 2):
        node.record_after_second(softirq)
    assert node.record_after_second(40) == {"0": [0.4, 0.0, 0.4, [], []]}
