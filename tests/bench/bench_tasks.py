"""What it costs to find who runs where: a scan, with thousands of sleeping processes about; and to
follow the threads of a job.

Reference: the stat files of the same processes, each opened, read and closed; for threads also
schedstat and status.
Run by hand: python tests/bench/bench_tasks.py [PROCESSES…]
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import timing

from perfprobe.kernel import task_files, tasks
from perfprobe.kernel.job_threads import FILES, LOOK_NS, MAX_THREADS, Watch
from perfprobe.kernel.task_files import MAX_STATUS_BYTES
from perfprobe.kernel.tasks import Tasks

MOST_S = 300  # a sleeper's life, should nobody end it


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    pids: list[int] = []
    try:
        for _ in range(count):
            pid = os.fork()
            if not pid:
                signal.alarm(MOST_S)
                signal.pause()
                os._exit(0)
            pids.append(pid)
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


def scan(found: Tasks) -> None:
    found.work()
    while found.due() == 0:
        found.work()


def plain() -> None:
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with contextlib.suppress(OSError):
                    fd = os.open(f"/proc/{entry.name}/stat", os.O_RDONLY | os.O_CLOEXEC)
                    os.read(fd, task_files.MAX_STAT_BYTES)
                    os.close(fd)


def threads(count: int) -> tuple[str, float, float]:
    """A look at so many threads of our own."""
    end = threading.Event()
    started = [threading.Thread(target=end.wait) for _ in range(count - 1)]
    for thread in started:
        thread.start()
    watch = Watch(Path("/"), str(os.getpid()))
    tasks = Tasks(Path("/"), range(os.cpu_count() or 1), watch)
    scan(tasks)
    paths = [f"{thread}/{name}" for thread in Path("/proc/self/task").iterdir() for name in FILES]
    now = itertools.count(count * LOOK_NS, count * LOOK_NS)

    def each() -> None:
        for path in paths:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            os.read(fd, MAX_STATUS_BYTES)
            os.close(fd)

    ours, plainly = timing.best_us(lambda: watch.take(next(now)), 5), timing.best_us(each, 5)
    end.set()
    for thread in started:
        thread.join()
    watch.close()
    return f"a look at {count} threads", ours, plainly


if __name__ == "__main__":
    tasks.PERIOD_NS = tasks.COST = 0  # one after another
    rows = []
    for count in map(int, sys.argv[1:] or ("2000", "10000")):
        with sleepers(count):
            found = Tasks(Path("/"), range(os.cpu_count() or 1))
            scan(found)
            ours = timing.best_us(functools.partial(scan, found), 2)
            rows.append((f"a scan, {count} sleepers", ours, timing.best_us(plain, 2)))
    rows += [threads(count) for count in (32, MAX_THREADS)]
    timing.table("who runs where", rows)
