"""What it costs to find who runs where: a scan, with thousands of sleeping processes about.

Reference: the stat files of the same processes, each opened, read and closed.
Run by hand: python tests/bench/bench_tasks.py [PROCESSES…]
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import timing

from perfprobe import tasks
from perfprobe.tasks import Tasks

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
                    os.read(fd, tasks.LIMIT)
                    os.close(fd)


if __name__ == "__main__":
    tasks.PERIOD_NS = tasks.COST = 0  # one after another
    rows = []
    for count in map(int, sys.argv[1:] or ("2000", "10000")):
        with sleepers(count):
            found = Tasks(Path("/"), range(os.cpu_count() or 1))
            scan(found)
            ours = timing.best_us(functools.partial(scan, found), 2)
            rows.append((f"a scan, {count} sleepers", ours, timing.best_us(plain, 2)))
    timing.table("who runs where", rows)
