"""Who runs where, as the probe told last. Names come from outside and are made safe here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOST_COMM = 64
"""Characters of a name that are kept: as many as the kernel gives a task of its own."""
MOST_TASKS = 3
"""Of a CPU."""


class Task(NamedTuple):
    pid: int
    comm: str
    share: float
    """Of the CPU's time, 0 to 1."""

    def __str__(self) -> str:
        return f"{self.comm} ({self.pid})"


class Company:
    """The last record of who runs where, and the time that it is about."""

    def __init__(self) -> None:
        self._tasks: Mapping[object, object] = {}
        self._others: Mapping[object, object] = {}
        self.since_ns = self.time_ns = 0
        """0 and 0: nobody has told yet."""

    def take(self, records: Mapping[str, object], time_ns: int) -> bool:
        """Whether there was something new among the records of a frame."""
        tasks, others = records.get("tasks"), records.get("others")
        if not isinstance(tasks, dict):
            return False
        self._tasks = tasks
        self._others = others if isinstance(others, dict) else {}
        self.since_ns, self.time_ns = self.time_ns, time_ns
        return True

    def first(self, cpu: int) -> tuple[object, object] | None:
        """Pid and name of who ran most there, as they are: good to be compared, fast."""
        match self._tasks.get(str(cpu)):
            case [pid, name, _]:
                return pid, name
        return None

    def on(self, cpu: int) -> list[Task]:
        """Those that ran most on this CPU, the most first."""
        others = self._others.get(str(cpu))
        told = others[:MOST_TASKS] if isinstance(others, list) and others else []
        found = [task(record) for record in told or [self._tasks.get(str(cpu))]]
        return [one for one in found if one is not None]


def task(record: object) -> Task | None:
    """One that the wire tells of as pid, name and share."""
    match record:
        case [int(pid), str(name), int() | float() as share, *_] if 0 <= pid < 1 << 32:
            return Task(pid, shown(name), min(1.0, max(0.0, float(share))))
    return None


def shown(name: str) -> str:
    """A task may call itself anything, also a control sequence."""
    cut = name[:MOST_COMM]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
