"""Reads /proc/stat: each CPU's time by what it was spent on. A lane that belongs to no CPU reads it
once a round for all CPUs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe._native import lib
from perfprobe.native import sampler
from perfprobe.native.sampler import ProcStatText, RowPlan, Slot
from perfprobe.wire import Counter, Missing

FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
IDLE_FIELDS = (FIELDS.index("idle"), FIELDS.index("iowait"))
STEAL_FIELDS = (FIELDS.index("steal"),)
MIN_BYTES, MAX_BYTES = 1 << 16, 4 << 20
"""Bounds of the bytes that are read. The CPU lines come first; the interrupts after them are not
needed."""
LINE_BYTES = 256
"""Upper bound of a CPU's line: ten numbers of 20 digits."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT_BLOCK = wire.Block(
    "stat",
    "cpu",
    [Counter(f"stat_{f}_s", f"{f} time", "s", "/proc/stat", scale=TICK_S) for f in FIELDS],
)


def parse_ticks(text: str) -> dict[int, tuple[int, ...]]:
    """Returns the ticks of each CPU, in the order of FIELDS, for occasional readers."""
    ticks_by_cpu = {}
    for line in text.splitlines():
        name, *numbers = line.split() or [""]
        if name[:3] == "cpu" and name[3:].isdecimal() and len(numbers) >= len(FIELDS):
            ticks_by_cpu[int(name[3:])] = tuple(map(int, numbers[: len(FIELDS)]))
    return ticks_by_cpu


def proc_mount(root: Path) -> str | None:
    """The remedy where /proc is not mounted; None below a --sysroot, whose files are another
    machine's."""
    return "sudo mount -t proc proc /proc" if root == Path("/") else None


class ProcStat:
    """The rows of the block. An offline CPU has no line, so its row has no valid column."""

    def __init__(self, root: Path, cpus: Sequence[int]) -> None:
        self._cpus = cpus
        self.missing: list[Missing] = []
        try:
            self._fd = os.open(root / "proc/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._fd = -1
            why = f"/proc/stat cannot be read: {error.strerror}"
            self.missing = [Missing(c.key, why, proc_mount(root)) for c in STAT_BLOCK.counters]
        end = max(cpus) + 1
        size = min(max(MIN_BYTES, LINE_BYTES * (end + 1)), MAX_BYTES)
        self._text = ProcStatText(self._fd, end, size)

    def blocks(self) -> list[tuple[wire.Block, int]]:
        """The block with its number of rows; no block if the file cannot be opened."""
        return [] if self._fd < 0 else [(STAT_BLOCK, len(self._cpus))]

    def plans(self, place: sampler.Place) -> list[RowPlan]:
        """The plans of the lane's rows, in order."""
        text, kind, plans = self._text.address, lib.PP_STAT, []
        for row, cpu in enumerate(self._cpus):
            plans.append(place.plan(row, [Slot(kind, 0, cpu, text, len(FIELDS))]))
            kind = lib.PP_STAT_LINE  # the first slot has read the text for all rows
        return plans

    def close(self) -> None:
        """Closes the file; called after the lane has ended."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
