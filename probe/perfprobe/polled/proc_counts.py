"""Counters in /proc. The "stat" block has the times of each CPU (user, system, idle …) in
/proc/stat, which an unpinned thread reads in each sample for all CPUs. The "machine" block has
perfprobe's own CPU time, whether turbo is off, pressure (PSI), load averages, interrupts and
context switches."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe._native import lib
from perfprobe.cpu import files
from perfprobe.cpu.files import OpenFile
from perfprobe.kernel.interrupts import STAT_FIELDS
from perfprobe.kernel.memory_stalls import parse_stalled_us
from perfprobe.native import sampler
from perfprobe.native.sampler import ProcStatText, RowPlan, Slot
from perfprobe.polled.polling import PolledBlock, Values
from perfprobe.wire import Counter, Missing

MIN_BYTES, MAX_BYTES = 1 << 16, 4 << 20
"""Bounds of the bytes read of /proc/stat, whose first lines are those of CPUs."""
LINE_BYTES = 256
"""Maximum length in bytes of a CPU's line in /proc/stat: ten numbers of 20 digits."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT_BLOCK = wire.Block(
    "stat",
    "cpu",
    [Counter(f"stat_{f}_s", f"{f} time", "s", "/proc/stat", scale=TICK_S) for f in STAT_FIELDS],
)


def proc_mount_remedy(root: Path) -> str | None:
    """Returns the command that mounts /proc; None for a sysroot."""
    return "sudo mount -t proc proc /proc" if root == Path("/") else None


class ProcStat:
    """The "stat" block. An offline CPU has no line in /proc/stat, so no column of its row is
    valid."""

    def __init__(self, root: Path, cpus: Sequence[int]) -> None:
        self._cpus = cpus
        self.missing: list[Missing] = []
        try:
            self._fd = files.open_file(root / "proc/stat")
        except OSError as error:
            self._fd = -1
            reason = f"/proc/stat cannot be read: {error.strerror}"
            self.missing = [
                Missing(c.key, reason, proc_mount_remedy(root)) for c in STAT_BLOCK.counters
            ]
        end = max(cpus) + 1
        size = min(max(MIN_BYTES, LINE_BYTES * (end + 1)), MAX_BYTES)
        self._text = ProcStatText(self._fd, end, size)

    def blocks(self) -> list[tuple[wire.Block, int]]:
        """Returns the block with its number of rows; empty if /proc/stat cannot be opened."""
        return [] if self._fd < 0 else [(STAT_BLOCK, len(self._cpus))]

    def plans(self, offsets: sampler.BlockOffsets) -> list[RowPlan]:
        """Returns the plans of all rows, in the order in which the thread must read them."""
        text, kind, plans = self._text.address, lib.PP_STAT, []
        for row, cpu in enumerate(self._cpus):
            plans.append(offsets.row_plan(row, [Slot(kind, 0, cpu, text, len(STAT_FIELDS))]))
            kind = lib.PP_STAT_LINE  # only the first slot reads the file
        return plans

    def close(self) -> None:
        """Closes the file; called after the thread has ended."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# --- the row of the whole machine -----------------------------------------------------------------

PRESSURE = ("cpu", "memory", "io")
PRESSURE_COUNTERS = [
    Counter(f"pressure_{kind}_s", f"some task waited: {kind}", "s", "/proc/pressure", scale=1e-6)
    for kind in PRESSURE
]
LOAD_MINUTES = (1, 5, 15)
LOAD_COUNTERS = [
    Counter(f"load_{n}", f"load average of {n} min", "1", "/proc/loadavg", "gauge", scale=0.01)
    for n in LOAD_MINUTES
]
_LOADS = re.compile(r"([0-9]{1,12}\.[0-9]{2}) " * len(LOAD_MINUTES))
TOTAL_KEYS = {"intr": "interrupts", "ctxt": "context_switches"}
"""Counter keys by the first word of a line in /proc/stat."""
TOTAL_COUNTERS = [
    Counter(key, key.replace("_", " "), "1", "/proc/stat") for key in TOTAL_KEYS.values()
]
OWN_TIME = Counter("probe_cpu_s", "CPU time of the probe", "s", "getrusage", scale=1e-9)
MAX_CPUS_FOR_TOTALS = 64
"""Maximum number of CPUs for which TOTAL_KEYS are read. The kernel adds up the interrupts of all
CPUs for that text, which takes 1 ms on the largest machines."""
Parse = Callable[[str], list[int | None]]
"""Returns the values of a file's counters from its text; None for each if the text is empty."""


class MachineCounts(PolledBlock):
    """The "machine" block, which has one row."""

    rows = 1

    def __init__(self, root: Path, cpu_count: int) -> None:
        super().__init__()
        self._parsers: list[tuple[OpenFile, Parse]] = []
        """The files to read, each with its parser."""
        counters, proc, base = [OWN_TIME], f"{root}/proc", f"{root}/{files.CPU_DIRECTORY}"
        if all(self._add_file(f"{proc}/pressure/{kind}", parse_pressure) for kind in PRESSURE):
            counters += PRESSURE_COUNTERS
        else:
            self._parsers.clear()
            self.close()
            reason = "the kernel does not account for pressure (PSI)"
            self.missing.append(Missing("pressure", reason, "boot with psi=1"))
        # intel_pstate's no_turbo, else cpufreq's boost
        for path, parse in (
            ("intel_pstate/no_turbo", parse_number),
            ("cpufreq/boost", parse_is_off),
        ):
            if self._add_file(f"{base}/{path}", parse):
                counters.append(Counter("turbo_off", "turbo is switched off", "1", path, "gauge"))
                break
        if self._add_file(f"{base}/intel_pstate/max_perf_pct", parse_number):
            name = "share of the highest clock that is allowed"
            counters.append(Counter("max_perf_pct", name, "%", "intel_pstate", "gauge"))
        if self._add_file(f"{proc}/loadavg", parse_loads):
            counters += LOAD_COUNTERS
        is_small = cpu_count <= MAX_CPUS_FOR_TOTALS
        if is_small and self._add_file(f"{proc}/stat", parse_totals, files.MAX_LARGE_BYTES):
            counters += TOTAL_COUNTERS
        self.block = wire.Block("machine", "machine", counters)

    def read(self) -> Iterator[tuple[int, Values]]:
        values: list[int | None] = [time.process_time_ns()]
        for file, parse in self._parsers:
            values += parse(file.read())
        yield 0, values

    def _add_file(self, path: str, parse: Parse, limit: int = files.MAX_BYTES) -> bool:
        file = self.try_open(path, limit)
        self._parsers += [] if file is None else [(file, parse)]
        return file is not None


def parse_pressure(text: str) -> list[int | None]:
    return [parse_stalled_us(text)]


def parse_loads(text: str) -> list[int | None]:
    """Returns the load averages in the text of /proc/loadavg (`0.20 0.18 0.12 1/80 11206`), in
    hundredths."""
    if (match := _LOADS.match(text)) is None:
        return [None] * len(LOAD_MINUTES)
    return [int(n.replace(".", "")) for n in match.groups()]


def parse_totals(text: str) -> list[int | None]:
    """Returns the first number of each TOTAL_KEYS line in the text of /proc/stat, whose end may be
    cut off."""
    lines = "\n" + text.rpartition("\n")[0]
    texts_after = [lines.rpartition(f"\n{name} ")[2] for name in TOTAL_KEYS]
    return [files.parse_natural(rest.partition("\n")[0].partition(" ")[0]) for rest in texts_after]


def parse_number(text: str) -> list[int | None]:
    return [files.parse_natural(text)]


def parse_is_off(text: str) -> list[int | None]:
    """Returns 1 if the file contains 0 (cpufreq's boost is off), else 0."""
    switch = files.parse_natural(text)
    return [None if switch is None else int(switch == 0)]
