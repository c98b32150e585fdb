"""Threads of the watched job: where they are, how long they ran and how long they waited for a CPU.
The probe sends sums since the start of each thread; this module takes differences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

from perfprobe.frozen import frozen
from perftop.model.running_tasks import shown

MOST_THREADS = 1024
"""Threads kept of a record; a probe sends fewer."""
KEPT_NS = 2_000_000_000
"""How far back differences reach: longer than the probe takes to look at all threads."""
MOST_POINTS = 256
"""Points kept of a thread; the limit matters if samples are short."""


class _Point(NamedTuple):
    """Sums since the start of a thread, at one moment."""

    time_ns: int
    run_ns: int
    wait_ns: int | None
    voluntary: int
    involuntary: int


@frozen
class Moved:
    """What a thread, or several together, did over some time."""

    elapsed_s: float = 0.0
    run_s: float = 0.0
    wait_s: float = 0.0
    """Seconds ready to run but not running; NaN where the kernel does not tell."""
    voluntary: int = 0
    """Number of times it went to sleep ..."""
    involuntary: int = 0
    """... and of times it was preempted."""

    @property
    def wait(self) -> float:
        """Waiting as a share of running and waiting; NaN if it did neither, or the kernel does not
        tell."""
        wanted_s = self.run_s + self.wait_s
        return self.wait_s / wanted_s if wanted_s > 0 else nan

    def __add__(self, other: Moved) -> Moved:
        return Moved(
            max(self.elapsed_s, other.elapsed_s),
            self.run_s + other.run_s,
            self.wait_s + other.wait_s,
            self.voluntary + other.voluntary,
            self.involuntary + other.involuntary,
        )


@dataclass(slots=True)
class Thread:
    tid: int
    pid: int = 0
    comm: str = ""
    cpu: int = -1
    """CPU on which it ran last."""
    points: deque[_Point] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))

    def over(self, span_ns: int) -> Moved:
        """What it did in the last `span_ns`, or since the oldest point if that is later."""
        last = self.points[-1]
        first = next((p for p in reversed(self.points) if p.time_ns <= last.time_ns - span_ns),
                     self.points[0])  # fmt: skip
        known = last.wait_ns is not None and first.wait_ns is not None
        waited_ns = (last.wait_ns or 0) - (first.wait_ns or 0) if known else nan
        return Moved(
            (last.time_ns - first.time_ns) / 1e9,
            max(0, last.run_ns - first.run_ns) / 1e9,
            max(0, waited_ns) / 1e9 if known else nan,
            max(0, last.voluntary - first.voluntary),
            max(0, last.involuntary - first.involuntary),
        )

    def since_last(self) -> Moved:
        """What it did between the last two points."""
        points = self.points
        return self.over(points[-1].time_ns - points[-2].time_ns) if len(points) > 1 else Moved()


class Watching:
    """The watched job. `name`: the PID or name that the user gave; None: no job is watched.
    `record`: the record of frames that has its threads."""

    def __init__(self, name: str | None, record: str = "watched") -> None:
        self.name = name
        self._record = record
        self.threads: dict[int, Thread] = {}
        """Threads by thread id."""
        self.more = 0
        """Number of further threads of the job."""
        self.time_ns = 0
        """Time of the last record."""
        self.told: list[Thread] = []
        """Threads in the last record."""
        self.disk_ns: dict[int, int] = {}
        """By thread of the last record, how long it had waited for a disk; empty: not told."""

    def take(self, records: Mapping[str, object], time_ns: int) -> bool:
        """Take the records of a frame; return whether they have one of the job."""
        record = records.get(self._record)
        threads = record.get("threads") if isinstance(record, dict) else None
        if not isinstance(record, dict) or not isinstance(threads, dict):
            return False
        more = record.get("more", 0)
        self.more = more if isinstance(more, int) and more > 0 else 0
        self.time_ns, self.told, self.disk_ns = time_ns, [], _delays(record.get("disk"))
        for tid, told in list(threads.items())[:MOST_THREADS]:
            self._look(tid, told, time_ns)
        gone_ns = time_ns - KEPT_NS
        self.threads = {n: t for n, t in self.threads.items() if t.points[-1].time_ns > gone_ns}
        return True

    def _look(self, tid: object, told: object, time_ns: int) -> None:
        match told:
            case [int() as pid, str() as comm, int() as cpu, int() as run, (int() | None) as wait,
                  int() as slept, int() as pushed]:  # fmt: skip
                pass
            case _:
                return
        if not isinstance(tid, str) or not tid.isdecimal() or len(tid) > 10:
            return
        point = _Point(time_ns, run, wait, slept, pushed)
        thread = self.threads.get(int(tid))
        if thread is None or thread.pid != pid or thread.points[-1].run_ns > run:  # a new one
            thread = self.threads[int(tid)] = Thread(int(tid), pid)
        thread.comm, thread.cpu = shown(comm), cpu
        while len(thread.points) > 1 and thread.points[1].time_ns <= time_ns - KEPT_NS:
            thread.points.popleft()
        thread.points.append(point)
        self.told.append(thread)

    def job(self, span_ns: int) -> Moved:
        """The sum over all threads."""
        return sum((thread.over(span_ns) for thread in self.threads.values()), Moved())

    def pids(self) -> set[int]:
        return {thread.pid for thread in self.threads.values()}

    def cpus(self) -> set[int]:
        """CPUs on which threads of the job ran in the last 2 s."""
        return {t.cpu for t in self.threads.values() if t.over(KEPT_NS).run_s > 0}


def _delays(told: object) -> dict[int, int]:
    """Times by thread id, as far as they are valid."""
    given = list(told.items())[:MOST_THREADS] if isinstance(told, dict) else []
    return {
        int(tid): ns
        for tid, ns in given
        if isinstance(tid, str) and tid.isdecimal() and len(tid) <= 10
        and type(ns) is int and 0 <= ns < 1 << 62
    }  # fmt: skip
