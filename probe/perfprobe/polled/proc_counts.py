"""Counts of the kernel in /proc: each CPU's time by its use, which a lane that belongs to no CPU
reads once a round for all CPUs; and the row of the whole machine: the probe's own cost, the
switches of turbo, pressure (how long tasks waited for CPUs, memory or I/O, from the kernel's
accounts), load averages, interrupts and context switches."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe._native import lib
from perfprobe.cpu import files
from perfprobe.kernel.interrupts import STAT_FIELDS
from perfprobe.kernel.memory_stalls import stalled_us
from perfprobe.native import sampler
from perfprobe.native.sampler import ProcStatText, RowPlan, Slot
from perfprobe.polled.polling import Values, open_file, read_content
from perfprobe.wire import Counter, Missing

MIN_BYTES, MAX_BYTES = 1 << 16, 4 << 20
"""Bounds of the bytes that are read. The CPU lines come first; the interrupts after them are not
needed."""
LINE_BYTES = 256
"""Maximum length of a CPU's line: ten numbers of 20 digits."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT_BLOCK = wire.Block(
    "stat",
    "cpu",
    [Counter(f"stat_{f}_s", f"{f} time", "s", "/proc/stat", scale=TICK_S) for f in STAT_FIELDS],
)


def proc_mount_remedy(root: Path) -> str | None:
    """Returns the command that mounts /proc; None below a --sysroot, whose files are another
    machine's."""
    return "sudo mount -t proc proc /proc" if root == Path("/") else None


class ProcStat:
    """The rows of the block. An offline CPU has no line, so its row has no valid column."""

    def __init__(self, root: Path, cpus: Sequence[int]) -> None:
        self._cpus = cpus
        self.missing: list[Missing] = []
        try:
            self._fd = files.open_file(root / "proc/stat")
        except OSError as error:
            self._fd = -1
            why = f"/proc/stat cannot be read: {error.strerror}"
            self.missing = [
                Missing(c.key, why, proc_mount_remedy(root)) for c in STAT_BLOCK.counters
            ]
        end = max(cpus) + 1
        size = min(max(MIN_BYTES, LINE_BYTES * (end + 1)), MAX_BYTES)
        self._text = ProcStatText(self._fd, end, size)

    def blocks(self) -> list[tuple[wire.Block, int]]:
        """Returns the block with its number of rows; no block if the file cannot be opened."""
        return [] if self._fd < 0 else [(STAT_BLOCK, len(self._cpus))]

    def plans(self, place: sampler.BlockOffsets) -> list[RowPlan]:
        """Returns the plans of the lane's rows, in order."""
        text, kind, plans = self._text.address, lib.PP_STAT, []
        for row, cpu in enumerate(self._cpus):
            plans.append(place.plan(row, [Slot(kind, 0, cpu, text, len(STAT_FIELDS))]))
            kind = lib.PP_STAT_LINE  # later slots use the text that the first slot has read
        return plans

    def close(self) -> None:
        """Closes the file; called after the lane has ended."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# --- the row of the whole machine -----------------------------------------------------------------

PRESSURE = ("cpu", "memory", "io")
LOADS = (1, 5, 15)
"""Minutes over which the kernel averages the load."""
_LOADS = re.compile(r"([0-9]{1,12}\.[0-9]{2}) " * len(LOADS))
TOTALS = {"intr": "interrupts", "ctxt": "context_switches"}
"""Lines of /proc/stat, and the counter key of each."""
MAX_CPUS_FOR_TOTALS = 64
"""Maximum number of CPUs with which /proc/stat is read once more for TOTALS: for its text the
kernel adds up the interrupts of all CPUs, which takes a millisecond on the largest machines."""
STAT_BYTES = 1 << 16
Parse = Callable[[str], list[int | None]]


class MachineCounts:
    rows = 1

    def __init__(self, root: Path, cpus: int) -> None:
        """`cpus` is the number of CPUs of the machine."""
        self._files: list[tuple[int, Parse, int]] = []
        """The open files, each with its parser and number of values."""
        self.missing: list[Missing] = []
        counters = [Counter("probe_cpu_s", "CPU time of the probe", "s", "getrusage", scale=1e-9)]
        counters += self._pressure(root / "proc/pressure")
        counters += self._switches(root / files.CPU_DIRECTORY)
        if self._try_open(root / "proc/loadavg", parse_loads, len(LOADS)):
            counters += [
                Counter(f"load_{minutes}", f"load average of {minutes} min", "1", "/proc/loadavg",
                        "gauge", scale=0.01)
                for minutes in LOADS
            ]  # fmt: skip
        is_small = cpus <= MAX_CPUS_FOR_TOTALS
        if is_small and self._try_open(root / "proc/stat", parse_totals, len(TOTALS)):
            keys = TOTALS.values()
            counters += [Counter(key, key.replace("_", " "), "1", "/proc/stat") for key in keys]
        self.block = wire.Block("machine", "machine", counters)

    def read(self) -> Iterator[tuple[int, Values]]:
        values: list[int | None] = [time.process_time_ns()]
        for fd, parse, count in self._files:
            text = read_content(fd, STAT_BYTES)
            values += [None] * count if text is None else parse(text)
        yield 0, values

    def close(self) -> None:
        for fd, *_ in self._files:
            os.close(fd)
        self._files.clear()

    def _pressure(self, base: Path) -> list[Counter]:
        if not all(self._try_open(base / what, parse_pressure) for what in PRESSURE):
            self.close()
            why = "the kernel does not account for pressure (PSI)"
            self.missing.append(Missing("pressure", why, "boot with psi=1"))
            return []
        return [
            Counter(f"pressure_{what}_s", f"some task waited: {what}", "s", "/proc/pressure",
                    scale=1e-6)
            for what in PRESSURE
        ]  # fmt: skip

    def _switches(self, base: Path) -> list[Counter]:
        """Returns the switch of intel_pstate, or the boost switch of the other drivers."""
        counters = []
        switches = (("intel_pstate/no_turbo", parse_number), ("cpufreq/boost", parse_is_off))
        for path, parse in switches:
            if self._try_open(base / path, parse):
                counters.append(Counter("turbo_off", "turbo is switched off", "1", path, "gauge"))
                break
        if self._try_open(base / "intel_pstate/max_perf_pct", parse_number):
            name = "share of the highest clock that is allowed"
            counters.append(Counter("max_perf_pct", name, "%", "intel_pstate", "gauge"))
        return counters

    def _try_open(self, path: Path, parse: Parse, count: int = 1) -> bool:
        if (fd := open_file(path)) is None:
            return False
        self._files.append((fd, parse, count))
        return True


def parse_pressure(text: str) -> list[int | None]:
    return [stalled_us(text)]


def parse_loads(text: str) -> list[int | None]:
    """Returns the first numbers in `0.20 0.18 0.12 1/80 11206`, in hundredths."""
    if (match := _LOADS.match(text)) is None:
        return [None] * len(LOADS)
    return [int(n.replace(".", "")) for n in match.groups()]


def parse_totals(text: str) -> list[int | None]:
    """Returns the first number in each line of TOTALS. The last line may be cut."""
    lines = "\n" + text.rpartition("\n")[0]
    rests = [lines.rpartition(f"\n{name} ")[2] for name in TOTALS]
    return [files.parse_natural(rest.partition("\n")[0].partition(" ")[0]) for rest in rests]


def parse_number(text: str) -> list[int | None]:
    return [files.parse_natural(text)]


def parse_is_off(text: str) -> list[int | None]:
    """Returns 1 if the switch is off (the file has 0), else 0."""
    on = files.parse_natural(text)
    return [None if on is None else int(on == 0)]
