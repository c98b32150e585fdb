"""Whether code can be run on the CPU that somebody has asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfprobe.cpu import cpu_sets
from perfprobe.native.errors import Unavailable
from perfprobe.wire import Cpu


def usable(asked: int, rows: Sequence[Cpu], allowed: Collection[int]) -> Cpu:
    """`allowed`: where we may run. Raises ValueError for a CPU that there is not, Unavailable for
    one that cannot be had."""
    online = [row.cpu for row in rows if row.online]
    row = next((row for row in rows if row.cpu == asked), None)
    if row is None:
        there = cpu_sets.format(online)
        raise ValueError(f"--cpu {asked}: there is no such CPU; online are {there}")
    if not row.online:
        fix = f"echo 1 | sudo tee /sys/devices/system/cpu/cpu{asked}/online"
        raise Unavailable(f"--cpu {asked}: it is off; to switch it on: {fix}")
    if asked not in allowed:
        where = cpu_sets.format(sorted(allowed))
        why = f"perftop may run on {where} only; start it outside the container or cpuset"
        raise Unavailable(f"--cpu {asked}: {why}")
    return row
