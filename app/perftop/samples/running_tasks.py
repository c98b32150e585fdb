"""The tasks that run on each CPU, by the last record of the probe. Task names are untrusted and are
made safe here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOST_COMM = 64
"""Characters kept of a name: as many as the kernel uses for its own threads."""
MOST_TASKS = 3
"""Tasks kept of a CPU."""


class Task(NamedTuple):
    pid: int
    comm: str
    share: float
    """Share of the CPU's time, 0 to 1."""

    def __str__(self) -> str:
        return f"{self.comm} ({self.pid})"


class Company:
    """The last record of the tasks on each CPU, and the time that it covers."""

    def __init__(self) -> None:
        self._tasks: Mapping[object, object] = {}
        self._others: Mapping[object, object] = {}
        self.since_ns = self.time_ns = 0
        """Raw times between which the tasks ran; both 0: there is no record yet."""

    def take(self, records: Mapping[str, object], time_ns: int) -> bool:
        """Take the records of a frame; return whether they have one of tasks."""
        tasks, others = records.get("tasks"), records.get("others")
        if not isinstance(tasks, dict):
            return False
        self._tasks = tasks
        self._others = others if isinstance(others, dict) else {}
        self.since_ns, self.time_ns = self.time_ns, time_ns
        return True

    def first(self, cpu: int) -> tuple[object, object] | None:
        """Pid and name of the task that ran most on the CPU, unchecked: only for fast
        comparison."""
        match self._tasks.get(str(cpu)):
            case [pid, name, _]:
                return pid, name
        return None

    def on(self, cpu: int) -> list[Task]:
        """The tasks that ran most on this CPU, in descending order."""
        others = self._others.get(str(cpu))
        told = others[:MOST_TASKS] if isinstance(others, list) and others else []
        found = [task(record) for record in told or [self._tasks.get(str(cpu))]]
        return [one for one in found if one is not None]


def task(record: object) -> Task | None:
    """The task in a wire record of pid, name and share; None if the record is not valid."""
    match record:
        case [int(pid), str(name), int() | float() as share, *_] if 0 <= pid < 1 << 32:
            return Task(pid, shown(name), min(1.0, max(0.0, float(share))))
    return None


def shown(name: str) -> str:
    """A task's name made safe and short; a task may name itself with a control sequence."""
    cut = name[:MOST_COMM]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
