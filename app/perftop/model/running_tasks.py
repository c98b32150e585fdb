"""The tasks that run on each CPU, by the last record of the probe. Task names are untrusted and are
made safe here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import Any, NamedTuple

from perfprobe.frozen import field, frozen

MOST_COMM = 64
"""Characters kept of a name: as many as the kernel uses for its own threads."""
MOST_TASKS = 3
"""Tasks kept of a CPU."""
_UNTOLD = (None,) * MOST_TASKS
"""What tasks did besides running, where nobody told."""


class Task(NamedTuple):
    pid: int
    comm: str
    share: float
    """Share of the CPU's time, 0 to 1."""

    def __str__(self) -> str:
        return f"{self.comm} ({self.pid})"


@frozen
class Look:
    """A record of who runs where, as the wire has it: by CPU as text. Unchecked."""

    tasks: Mapping[str, Any] = field(default_factory=dict)
    """The task that ran most: pid, name and share."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """The tasks that ran most, a list of such entries."""
    waits: Mapping[str, Any] | None = None
    """Their shares of waiting and switches a second; None if the stream does not tell them."""
    _told: dict[str, list[Task]] = field(default_factory=dict, init=False)
    _ran: dict[str, list[Ran]] = field(default_factory=dict, init=False)
    """What `told` and `on` have found so far, as a look is shown for many refreshes."""

    @classmethod
    def of(cls, records: Mapping[str, object]) -> Look | None:
        """The look that these records of a frame are of; None if they are of none."""
        tasks = records.get("tasks")
        if not isinstance(tasks, dict):
            return None
        others, waits = records.get("others"), records.get("waits")
        return cls(
            tasks,
            others if isinstance(others, dict) else {},
            waits if isinstance(waits, dict) else None,
        )

    def told(self, cpu: str) -> list[Task]:
        """The tasks that ran most on this CPU, in descending order."""
        if cpu not in self._told:
            self._told[cpu] = [one for one in map(task, self._records(cpu)) if one is not None]
        return self._told[cpu]

    def on(self, cpu: str) -> list[Ran]:
        """As `told`, with what they did besides running."""
        if cpu not in self._ran:
            waits = self.waits.get(cpu) if self.waits else None
            known = [*waits[:MOST_TASKS], *_UNTOLD] if isinstance(waits, list) else _UNTOLD
            found = zip(map(task, self._records(cpu)), known, strict=False)
            self._ran[cpu] = [Ran(one, *_waited(wait)) for one, wait in found if one is not None]
        return self._ran[cpu]

    def _records(self, cpu: str) -> list[Any]:
        others = self.others.get(cpu)
        return others[:MOST_TASKS] if isinstance(others, list) and others else [self.tasks.get(cpu)]


class Ran(NamedTuple):
    """A task on a CPU, and what it did besides running there; NaN if that is not known."""

    task: Task
    wait: float
    """Share of the time that it waited for a CPU, 0 to 1."""
    switches: float
    """How often a second it gave up or lost its CPU."""


def _waited(known: object) -> tuple[float, float]:
    match known:
        case [wait, switches, *_]:
            return _number(wait, 1.0), _number(switches, inf)
    return nan, nan


def _number(value: object, most: float) -> float:
    """A number from 0 to `most`; NaN if it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf:
        return min(float(value), most)
    return nan


class Company:
    """The last record of the tasks on each CPU, and the time that it covers."""

    def __init__(self) -> None:
        self._look = Look()
        self._firsts: dict[int, tuple[int, str] | None] = {}
        """What `firsts` has found in this record, by CPU."""
        self.since_ns = self.time_ns = 0
        """Raw times between which the tasks ran; both 0: there is no record yet."""

    def take(self, records: Mapping[str, object], time_ns: int) -> bool:
        """Take the records of a frame; return whether they have one of tasks."""
        look = Look.of(records)
        if look is None:
            return False
        self._look, self._firsts = look, {}
        self.since_ns, self.time_ns = self.time_ns, time_ns
        return True

    def firsts(self, cpus: Sequence[int]) -> list[tuple[int, str] | None]:
        """Pid and name of the task that ran most on each of these CPUs; None: not known. The name
        is as it came: only for comparison."""
        known = self._firsts
        news = [cpu for cpu in cpus if cpu not in known]
        for cpu, record in zip(news, map(self._look.tasks.get, map(str, news)), strict=True):
            match record:
                case [int() as pid, str() as name, _]:  # int(pid) takes eight times as long
                    known[cpu] = pid, name
                case _:
                    known[cpu] = None
        return [known[cpu] for cpu in cpus]

    def on(self, cpu: int) -> list[Task]:
        """The tasks that ran most on this CPU, in descending order."""
        return self._look.told(str(cpu))


def task(record: object) -> Task | None:
    """The task in a wire record of pid, name and share; None if the record is not valid."""
    match record:
        case [int() as pid, str() as name, int() | float() as share, *_] if 0 <= pid < 1 << 32:
            return Task(pid, shown(name), min(1.0, max(0.0, float(share))))
    return None


def shown(name: str) -> str:
    """A task's name made safe and short; a task may name itself with a control sequence."""
    cut = name[:MOST_COMM]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
