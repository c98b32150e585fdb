"""Running on one CPU: whether this process may, who shares its core, and going there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Sequence

from perfprobe.cpu import cpu_sets
from perfprobe.errors import Unavailable, Usage
from perfprobe.wire import Cpu


def usable(asked: int, rows: Sequence[Cpu], allowed: Collection[int]) -> Cpu:
    """The row of the CPU that the user named. `allowed` is this process's affinity mask.

    Raises ValueError for a CPU that does not exist, Unavailable for one that is off or not allowed.
    """
    online = [row.cpu for row in rows if row.online]
    row = next((row for row in rows if row.cpu == asked), None)
    if row is None:
        there = cpu_sets.format(online)
        raise Usage(f"--cpu {asked}: there is no such CPU; online are {there}")
    if not row.online:
        fix = f"echo 1 | sudo tee /sys/devices/system/cpu/cpu{asked}/online"
        raise Unavailable(f"--cpu {asked}: it is off; to switch it on: {fix}")
    if asked not in allowed:
        where = cpu_sets.format(sorted(allowed))
        why = f"perftop may run on {where} only; start it outside the container or cpuset"
        raise Unavailable(f"--cpu {asked}: {why}")
    return row


def siblings(here: Cpu, rows: Sequence[Cpu]) -> list[int]:
    """The other threads of the CPU's core that are online."""
    online = {row.cpu for row in rows if row.online}
    return [cpu for cpu in here.siblings if cpu != here.cpu and cpu in online]


@contextlib.contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """The calling thread runs on this CPU inside the block; its old affinity is restored after it.

    Raises OSError if the thread may not run there.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
