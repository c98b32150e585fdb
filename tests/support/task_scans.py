"""Scans of tasks: a tree with processes that a test writes, and clocks that the test advances."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trees

from perfprobe.kernel.tasks import TaskScanner

S = 1_000_000_000
CPUS = range(64)


class Machine:
    """A tree with processes, and two clocks. Each read of a clock advances it by `step_ns` or
    `spend_ns`."""

    def __init__(self, root: Path) -> None:
        (root / "proc").mkdir()
        self.root = root
        self.now_ns = self.step_ns = self.spent_ns = self.spend_ns = 0
        self.tasks = TaskScanner(root, CPUS, None, self._time_ns, self._cpu_ns)

    def _time_ns(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns

    def _cpu_ns(self) -> int:
        self.spent_ns += self.spend_ns
        return self.spent_ns

    def runs(self, pid: int, ticks: int, cpu: int = 0, **more: Any) -> None:
        trees.put(self.root, f"proc/{pid}/stat", trees.process(pid, ticks, cpu, **more))

    def thread(self, pid: int, tid: int, ticks: int, cpu: int, **more: Any) -> None:
        trees.put(self.root, f"proc/{pid}/task/{tid}/stat", trees.process(tid, ticks, cpu, **more))

    def scan(self, after_ns: int = S) -> Any:
        """The tasks that a scan reports; None if it reports none."""
        self.now_ns += after_ns
        while True:
            self.tasks.scan_slice()
            if self.tasks.due() > 0:
                return self.tasks.take_records().get("tasks")

    def records(self) -> dict[str, Any]:
        """All records of a scan that starts after a second and is not interrupted."""
        self.now_ns += S
        self.tasks.scan_slice()
        return self.tasks.take_records()


def records_of_a_crowd(machine: Machine, busy_cpus: int) -> dict[str, Any]:
    """Returns the records of the probe on ten tasks that take turns on each CPU. The tasks that ran
    most in a second waited least; together they waited 9.02 s."""
    records: dict[str, Any] = {}
    for turn in range(3):
        for cpu in range(busy_cpus):
            for i in range(10):
                pid, ran_ms = 100 + 10 * cpu + i, turn * (80 + 4 * i)
                machine.runs(pid, ran_ms // 10, cpu)
                waited = f"{ran_ms}000000 {turn * 1000 - ran_ms}000000 1\n"
                trees.put(machine.root, f"proc/{pid}/schedstat", waited)
        records = machine.records()
    return records
