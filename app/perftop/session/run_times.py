"""How long tasks ran and how long they waited for a CPU, summed up over a stream.

The threads of a watched job are told one by one, as sums since their birth; of a stranger only what
the tasks that ran most did between two looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.tasks import Look, Thread, Watching

MOST_THREADS = 1 << 14
"""Threads of the job that are remembered, those looked at last."""
MOST_TASKS = 4096
"""Tasks that are remembered, those seen last. A process counts once on each CPU."""
WAITS = 0.05
FIRST_NS = 1_500_000_000
"""Longest time that the first look is taken to be about."""


@dataclass(slots=True)
class Times:
    """Seconds of one task, or of several."""

    comm: str
    run_s: float = 0.0
    wait_s: float = 0.0
    by_cpu: dict[int, float] = field(default_factory=dict)
    """Seconds that it ran or waited, by CPU."""

    @property
    def wanted_s(self) -> float:
        return self.run_s + self.wait_s

    def add(self, cpu: int, run_s: float, wait_s: float) -> None:
        self.run_s += run_s
        self.wait_s += wait_s
        self.by_cpu[cpu] = self.by_cpu.get(cpu, 0.0) + run_s + wait_s


Key = tuple[int, int]
"""Process and thread."""
Looks = dict[Key, tuple[int, int | None]]
"""Nanoseconds that each thread ran and waited until it was last looked at."""


def moved(last: Looks, thread: Thread, *, born: bool) -> tuple[float, float | None]:
    """Seconds that a thread ran and waited since the last look at it; None: waiting is not told.
    `born`: what it did before the first look was done for the job."""
    point, key = thread.points[-1], (thread.pid, thread.tid)
    now = point.run_ns, point.wait_ns
    run_ns, wait_ns = last.pop(key, (0, 0) if born else now)
    last[key] = now
    told = point.wait_ns is not None and wait_ns is not None
    waited_ns = (point.wait_ns or 0) - (wait_ns or 0)
    return max(0, point.run_ns - run_ns) / 1e9, max(0, waited_ns) / 1e9 if told else None


def trim(known: dict[Any, Any], most: int) -> None:
    """Forgets the oldest entries beyond so many."""
    while len(known) > most:
        del known[next(iter(known))]


class RunTimes:
    """The sums of a stream. CPUs are by position in what `take` returns."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._position = {cpu: at for at, cpu in enumerate(cpus)}
        self._last: Looks = {}
        self.root = -1
        """First process of a job that we started: all that its threads and children did is told
        since their birth; itself, since the first look at it. -1: there is none."""
        self.threads: dict[Key, Times] = {}
        """Times of the threads of the watched job, by process and thread."""
        self.tasks: dict[tuple[int, str, int], Times] = {}
        """Times of tasks by process, name and CPU."""
        self._look_ns = 0
        self.seen_s = 0.0
        """Seconds that the looks at all tasks were about."""
        self.waits_told = False
        """Whether the stream has told of waiting."""
        self.waiting_s = 0.0
        """Seconds of looks in which a task waited for WAITS of the time or more."""

    def of_job(self, watching: Watching, time_ns: int) -> tuple[Floats, Floats]:
        """Seconds that the job ran and waited by the frame of that time, since the last look at
        each of its threads."""
        run_s, wait_s = np.zeros((2, len(self._position)))
        for thread in watching.told if watching.time_ns == time_ns else ():
            born = self.root >= 0 and thread.tid != self.root
            ran_s, waited_s = moved(self._last, thread, born=born)
            self.waits_told |= thread.points[-1].wait_ns is not None
            times = self.threads.setdefault((thread.pid, thread.tid), Times(thread.comm))
            times.comm = thread.comm
            times.add(thread.cpu, ran_s, waited_s or 0.0)
            if (at := self._position.get(thread.cpu)) is not None:
                run_s[at] += ran_s
                wait_s[at] += waited_s or 0.0
        trim(self._last, MOST_THREADS)
        trim(self.threads, MOST_THREADS)
        return run_s, wait_s

    def of_all(self, look: Look, since_ns: int, time_ns: int) -> Floats:
        """Seconds that tasks waited since the last look, as far as it tells. `since_ns`: start of
        the stream."""
        begun_ns = max(self._look_ns or since_ns, time_ns - FIRST_NS if not self._look_ns else 0)
        self._look_ns, span_s = time_ns, max(0, time_ns - begun_ns) / 1e9
        waited_s, much = np.zeros(len(self._position)), False
        for cpu, at in self._position.items():
            for ran in look.on(str(cpu)):
                wait = ran.wait if isfinite(ran.wait) else 0.0
                self.waits_told |= isfinite(ran.wait)
                key = ran.task.pid, ran.task.comm, cpu
                times = self.tasks.pop(key, None) or Times(ran.task.comm)
                self.tasks[key] = times
                times.add(cpu, ran.task.share * span_s, wait * span_s)
                waited_s[at] += wait * span_s
                much |= wait >= WAITS
        self.seen_s += span_s
        self.waiting_s += span_s if much else 0.0
        trim(self.tasks, MOST_TASKS)
        return waited_s
