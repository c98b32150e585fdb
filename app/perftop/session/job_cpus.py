"""On which CPUs a job ran and how long it waited for one, as far as looks at its threads showed.

All of the time between two looks is put down to the CPU where a thread ran last. Who was born and
ended between two scans of the probe was never looked at.
"""

from __future__ import annotations

from perftop.model.tasks import Watching
from perftop.session.run_times import MOST_THREADS, Key, Looks, moved, trim

LEAST_SHARE = 0.01
"""Minimum share of the job's running time. A CPU with less was only visited, and would thin the
mean of those that worked."""


class Footprint:
    """`root`: the process it began with. Its children have done all that they did for the job;
    itself, only what it did after the first look at it, when it still waited for its start."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._run_ns: Looks = {}
        self.seconds: dict[int, float] = {}
        """Seconds that the job ran, by CPU."""
        self.waited_s: float | None = None
        """Seconds that all threads together waited for a CPU; None: not told."""
        self.disk_s: float | None = None
        """Seconds that all threads together waited for a disk; None: not told."""
        self._disk_ns: dict[Key, int] = {}
        self.pids: set[int] = set()

    def take(self, watching: Watching, time_ns: int) -> None:
        """What the frame of that time told."""
        if watching.time_ns != time_ns:
            return
        for thread in watching.told:
            ran_s, waited_s = moved(self._run_ns, thread, born=thread.tid != self.root)
            if len(self.pids) < MOST_THREADS:
                self.pids.add(thread.pid)
            if ran_s:
                self.seconds[thread.cpu] = self.seconds.get(thread.cpu, 0.0) + ran_s
            if waited_s is not None:
                self.waited_s = (self.waited_s or 0.0) + waited_s
            self._wait_for_disk((thread.pid, thread.tid), watching.disk_ns.get(thread.tid))
        trim(self._run_ns, MOST_THREADS)
        trim(self._disk_ns, MOST_THREADS)

    def _wait_for_disk(self, key: Key, disk_ns: int | None) -> None:
        """`disk_ns`: what the thread had waited since its birth."""
        if disk_ns is None:
            return
        before_ns = self._disk_ns.pop(key, disk_ns if key[1] == self.root else 0)
        self._disk_ns[key] = disk_ns
        self.disk_s = (self.disk_s or 0.0) + max(0, disk_ns - before_ns) / 1e9

    @property
    def seen_s(self) -> float:
        return sum(self.seconds.values())

    def cpus(self) -> list[int]:
        least_s = LEAST_SHARE * self.seen_s
        return sorted(cpu for cpu, run_s in self.seconds.items() if run_s >= least_s)
