"""Who runs where: on each CPU the task that ran most since the last scan, from /proc.

A scan looks at all processes about once a second, in slices between frames. Most sleep, and their
files need no reading: a process whose CPU clock stands still has not run, and to ask that clock is
one system call. Threads are looked at where their process used noticeable time. So what wakes up
is told by the next scan; by the one after it, if it has several threads.

Not seen is what was born after the last scan or ended before this one. All of a task's time is put
down to the CPU on which it last ran.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from perfprobe.details import Told, describe

PERIOD_NS = 1_000_000_000
"""From the end of a scan to the next one: in less, ticks of 10 ms are no measure."""
COST = 100
"""The next scan waits for so many times the CPU time of this one: 1 % of a CPU at most."""
SLICE_NS = 2_000_000  # by which a frame may have to wait
BATCH = 64  # files in a row without a look at the time: below 1 ms
LEAST_SHARE = 0.02
"""Tasks below are not told: of user and system time each is cut to ticks of 10 ms."""
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
LIMIT = 1024  # of a stat file: up to the CPU it has 38 numbers and a name of at most 64 bytes
MOST_COMM = 64
GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)


class Stat(NamedTuple):
    """What is needed of /proc/PID/stat."""

    comm: str
    ticks: int
    """User and system time."""
    threads: int
    start: int
    """Ticks from boot to birth: they tell a task from a later one with its number."""
    cpu: int


def parse(data: bytes) -> Stat | None:
    """None: it is no stat file. The name may hold any bytes, also parentheses and newlines."""
    first, last = data.find(b"("), data.rfind(b")")
    if not 0 <= first < last:
        return None
    fields = data[last + 1 :].split(None, 37)  # from the third one of proc(5) on
    try:
        ticks, threads = int(fields[11]) + int(fields[12]), int(fields[17])
        start, cpu = int(fields[19]), int(fields[36])
    except (IndexError, ValueError):
        return None
    comm = data[first + 1 : last].decode(errors="replace")[:MOST_COMM]
    return Stat(comm, ticks, threads, start, cpu)


@dataclass(slots=True)
class _Look:
    """What the last look at a process or thread has shown."""

    at_ns: int
    clock_ns: int | None
    stat: Stat | None
    """None: it cannot be read."""
    share: float = 0.0
    """Of the time since the look before; 0 also where that is not known."""
    threads: dict[str, _Look] = field(default_factory=dict)

    def rested(self, now_ns: int) -> None:
        """It has not run: what was seen then is what would be seen now."""
        self.at_ns = now_ns
        for thread in self.threads.values():
            thread.at_ns = now_ns


class _Runner(NamedTuple):
    share: float
    pid: int
    comm: str
    process: Stat


class Tasks:
    """`cpus`: those that may be told of. `spent_ns` is the CPU time of who calls `work`."""

    def __init__(
        self,
        root: Path,
        cpus: Collection[int],
        now_ns: Callable[[], int] = time.monotonic_ns,
        spent_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._proc = f"{root}/proc"
        self._cpus = cpus
        self._now_ns, self._spent_ns = now_ns, spent_ns
        # A container may have the /proc of others: system calls do not know its numbers.
        self._ours = root == Path("/") and _link("/proc/self") == str(os.getpid())
        self._seen: dict[str, _Look] = {}
        self._told = Told()
        self._scan: Iterator[None] | None = None
        self._next_ns = now_ns()
        self._cost_ns = 0
        self._ready: dict[str, Any] = {}

    def due(self) -> float:
        """Seconds as of time.monotonic() when `work` will next be worth a call."""
        return 0.0 if self._scan else self._next_ns / 1e9

    def work(self) -> None:
        """A slice of a scan, if it is time for one."""
        begun_ns, spent_ns = self._now_ns(), self._spent_ns()
        if self._scan is None:
            if begun_ns < self._next_ns:
                return
            self._scan, self._cost_ns = self._scanning(), 0
        first = not self._seen  # it reads everything, but only once
        for _ in self._scan:
            if self._now_ns() - begun_ns >= SLICE_NS:
                break
        else:
            self._scan = None
        self._cost_ns += self._spent_ns() - spent_ns
        if self._scan is None:
            rest_ns = 0 if first else COST * self._cost_ns
            self._next_ns = self._now_ns() + max(PERIOD_NS, rest_ns)

    def take(self) -> dict[str, Any]:
        """The records of a scan that has ended since the last call."""
        ready, self._ready = self._ready, {}
        return ready

    def close(self) -> None:
        self._scan = None

    # --- a scan: it may pause wherever it yields ---------------------------------------------

    def _scanning(self) -> Iterator[None]:
        seen: dict[str, _Look] = {}
        best: dict[int, _Runner] = {}
        for names in _numbers(self._proc):
            for name in names:
                last = self._seen.get(name)
                # Asked before the file is read: what it does in between shows in the next scan.
                clock_ns = self._clock_ns(name)
                if last is not None and clock_ns is not None and clock_ns == last.clock_ns:
                    seen[name] = last
                    last.rested(self._now_ns())
                elif look := self._look(f"{self._proc}/{name}/stat", last, clock_ns):
                    seen[name] = look
                    if look.share >= LEAST_SHARE:
                        yield from self._choose(best, name, look)
            yield
        if self._ours and not self._seen:
            import psutil  # noqa: F401 - now, that no later scan bears what it costs

            yield
        before, self._seen = self._seen, seen
        if before and seen:
            details: dict[str, Any] = {}
            if self._ours:
                yield from self._describe(best, details)
            tasks = {str(cpu): [r.pid, r.comm, round(r.share, 4)] for cpu, r in best.items()}
            self._ready = {"tasks": tasks} | ({"details": details} if details else {})

    def _clock_ns(self, pid: str) -> int | None:
        """CPU time of all its threads. None: it is gone, or there is no such clock."""
        if not self._ours:
            return None
        try:
            return time.clock_gettime_ns(~int(pid) << 3 | 2)  # as clock_getcpuclockid(3) has it
        except OSError:
            return None

    def _look(self, path: str, last: _Look | None, clock_ns: int | None = None) -> _Look | None:
        """None: it is gone."""
        try:
            stat = parse(_read(path))
        except GONE:
            return None
        except OSError:
            stat = None
        look = _Look(self._now_ns(), clock_ns, stat)
        if stat and last and last.stat and stat.start == last.stat.start:
            elapsed_ns = look.at_ns - last.at_ns
            ran_ns = (stat.ticks - last.stat.ticks) * TICK_NS
            if elapsed_ns > 0:
                look.share = min(ran_ns, elapsed_ns) / elapsed_ns
        return look

    def _choose(self, best: dict[int, _Runner], name: str, look: _Look) -> Iterator[None]:
        """The process, or its threads, take the CPUs on which nobody ran more."""
        last, process, found = self._seen[name], look.stat, [look]
        assert process is not None
        if process.threads > 1:
            for tids in _numbers(f"{self._proc}/{name}/task"):
                for tid in tids:
                    path = f"{self._proc}/{name}/task/{tid}/stat"
                    if thread := self._look(path, last.threads.get(tid)):
                        look.threads[tid] = thread
                yield
            found = list(look.threads.values())
        elif last.stat is None or last.stat.threads != 1:  # its time was not that of one task
            return
        for task in found:
            if task.stat is None or task.share < LEAST_SHARE or task.stat.cpu not in self._cpus:
                continue
            if task.stat.cpu not in best or best[task.stat.cpu].share < task.share:
                best[task.stat.cpu] = _Runner(task.share, int(name), task.stat.comm, process)

    def _describe(self, best: dict[int, _Runner], details: dict[str, Any]) -> Iterator[None]:
        shown = [(r.pid, r.process.start, r.process.comm) for r in best.values()]
        for pid, start, _ in self._told.wanted(shown, self._now_ns()):
            yield
            found = describe(pid)
            look = self._look(f"{self._proc}/{pid}/stat", None)
            if found and look and look.stat and look.stat.start == start:
                details[str(pid)] = found


def _numbers(directory: str) -> Iterator[list[str]]:
    """Entries that are PIDs or thread ids, some at a time: the kernel takes 1 us for each."""
    with suppress(OSError), os.scandir(directory) as entries:
        while some := list(islice(entries, BATCH)):
            yield [e.name for e in some if e.name.isdecimal() and len(e.name) < 10]


def _read(path: str) -> bytes:
    # NONBLOCK: under a sysroot a fifo may stand where a file is expected.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(fd, LIMIT)
    finally:
        os.close(fd)


def _link(path: str) -> str | None:
    try:
        return str(Path(path).readlink())
    except OSError:
        return None
