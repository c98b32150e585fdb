"""How long tasks ran and how long they waited for a CPU, summed up over a stream.

The threads of a watched job are told one by one, as sums since their birth; of a stranger only what
the tasks that ran most did between two looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from perftop.base.arrays import Floats
from perftop.samples.job_threads import Watching
from perftop.samples.running_tasks import Look

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


class RunTimes:
    """The sums of a stream. CPUs are by position in what `take` returns."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._position = {cpu: at for at, cpu in enumerate(cpus)}
        self._last: dict[Key, tuple[int, int | None]] = {}
        """The sums in ns that each thread of the job had last, by process and thread."""
        self.root = -1
        """First process of a job that we started: all that its threads and children did is told
        since their birth; itself, since the first look at it. -1: there is none."""
        self.threads: dict[Key, Times] = {}
        """Times of the threads of the watched job, by process and thread."""
        self.tasks: dict[tuple[int, str, int], Times] = {}
        """Times of tasks by process, name and CPU."""
        self._look_ns = 0
        self.waits_told = False
        """Whether the stream has told of waiting."""
        self.waiting_s = 0.0
        """Seconds of looks in which a task waited for WAITS of the time or more."""

    def of_job(self, watching: Watching, time_ns: int) -> tuple[Floats, Floats]:
        """Seconds that the job ran and waited by the frame of that time, since the last look at
        each of its threads."""
        run_s, wait_s = np.zeros((2, len(self._position)))
        for thread in watching.told if watching.time_ns == time_ns else ():
            key, point = (thread.pid, thread.tid), thread.points[-1]
            ran_ns, waited_ns = self._moved(key, thread.tid, point.run_ns, point.wait_ns)
            times = self.threads.setdefault(key, Times(thread.comm))
            times.comm = thread.comm
            times.add(thread.cpu, ran_ns / 1e9, waited_ns / 1e9)
            if (at := self._position.get(thread.cpu)) is not None:
                run_s[at] += ran_ns / 1e9
                wait_s[at] += waited_ns / 1e9
        for known in (self._last, self.threads):
            _trim(known, MOST_THREADS)
        return run_s, wait_s

    def _moved(self, key: Key, tid: int, run_ns: int, wait_ns: int | None) -> tuple[int, int]:
        born = self.root >= 0 and tid != self.root
        last = self._last.pop(key, (0, 0) if born else (run_ns, wait_ns))
        self._last[key] = run_ns, wait_ns
        self.waits_told |= wait_ns is not None
        waited_ns = 0 if wait_ns is None or last[1] is None else wait_ns - last[1]
        return max(0, run_ns - last[0]), max(0, waited_ns)

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
        self.waiting_s += span_s if much else 0.0
        _trim(self.tasks, MOST_TASKS)
        return waited_s


def _trim(known: dict, most: int) -> None:  # type: ignore[type-arg]
    while len(known) > most:
        del known[next(iter(known))]
