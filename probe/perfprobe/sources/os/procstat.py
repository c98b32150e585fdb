"""/proc/stat: each CPU's time by what it was spent on. It is read once a batch for all CPUs."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe.native import frame_layout
from perfprobe.wire import Counter, Missing

FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
ASLEEP = (FIELDS.index("idle"), FIELDS.index("iowait"))
STOLEN = (FIELDS.index("steal"),)
LIMIT = 4 << 20
"""Bytes. The CPU lines come first; the interrupts after them are not needed."""
ATTEMPTS = 3
WIDE = 4
"""A read that takes more than this multiple of the best one was interrupted."""
FORGET = 1.01
"""The best time grows by this factor each batch, so that reads which became slower for good do not
count as interrupted."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT_BLOCK = wire.Block(
    "stat",
    "cpu",
    [Counter(f"stat_{f}_s", f"{f} time", "s", "/proc/stat", scale=TICK_S) for f in FIELDS],
)


def ticks(text: str) -> dict[int, tuple[int, ...]]:
    """Ticks by CPU, in the order of FIELDS, for occasional readers."""
    found = {}
    for line in text.splitlines():
        name, *numbers = line.split() or [""]
        if name[:3] == "cpu" and name[3:].isdecimal() and len(numbers) >= len(FIELDS):
            found[int(name[3:])] = tuple(map(int, numbers[: len(FIELDS)]))
    return found


class ProcStat:
    block = STAT_BLOCK
    missing: Sequence[Missing] = ()

    def __init__(self, root: Path, cpus: list[int]) -> None:
        self.rows = len(cpus)
        self._best = math.inf
        self._row = {b"cpu%d" % cpu: i for i, cpu in enumerate(cpus)}
        try:
            self._fd = os.open(root / "proc/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def fill(self, frame: memoryview, place: frame_layout.Place, stamp: Callable[[], int]) -> None:
        """Writes the block's words into the frame. Offline CPUs, which the kernel does not list,
        and garbled lines stay invalid."""
        words = frame.cast("Q")
        begun, text, ended = self._timely(stamp)
        heads = array("Q", [begun, ended, 0, 0, wire.ROW_SAMPLED if text else 0])
        words[place.head : place.valid] = heads * place.rows
        width = len(FIELDS)
        for line in text.split(b"\n"):
            if not line.startswith(b"cpu"):
                break
            name, *numbers = line.split()
            row = self._row.get(name)
            if row is None or len(numbers) < width:
                continue
            try:
                values = array("Q", map(int, numbers[:width]))
            except (ValueError, OverflowError):
                continue
            at = place.values + row * width
            words[at : at + width] = values
            words[place.valid + row] = (1 << width) - 1

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _timely(self, stamp: Callable[[], int]) -> tuple[int, bytes, int]:
        """The first read that was not interrupted, else the last one, with the stamps around it."""
        self._best *= FORGET
        for _ in range(ATTEMPTS):
            begun, text, ended = stamp(), self._read(), stamp()
            took = max(1, ended - begun)
            self._best = min(self._best, took)
            if took <= WIDE * self._best:
                break
        return begun, text, ended

    def _read(self) -> bytes:
        if self._fd < 0:
            return b""
        try:
            return os.pread(self._fd, LIMIT, 0)
        except OSError:
            return b""
