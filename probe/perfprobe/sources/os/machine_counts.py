"""Counts of the whole machine: the probe's own cost, the switches of turbo, and pressure (how long
tasks waited for CPUs, memory or I/O, by the kernel's account)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from perfprobe import wire
from perfprobe.cpu import files
from perfprobe.native import frame_layout
from perfprobe.sources.os.polled import content, natural, put
from perfprobe.wire import Counter, Missing

PRESSURE = ("cpu", "memory", "io")
Read = Callable[[int], int | None]


class Machine:
    rows = 1

    def __init__(self, root: Path) -> None:
        self._files: list[tuple[int, Read]] = []
        self.missing: list[Missing] = []
        counters = [Counter("probe_cpu_s", "CPU time of the probe", "s", "getrusage", scale=1e-9)]
        counters += self._pressure(root / "proc/pressure")
        counters += self._switches(root / files.CPUS)
        self.block = wire.Block("machine", "machine", counters)

    def fill(self, frame: memoryview, place: frame_layout.Place, stamp: Callable[[], int]) -> None:
        begun = stamp()
        values = [time.process_time_ns(), *(read(fd) for fd, read in self._files)]
        put(frame, place, 0, (begun, stamp()), values)

    def close(self) -> None:
        for fd, _ in self._files:
            os.close(fd)
        self._files.clear()

    def _pressure(self, base: Path) -> list[Counter]:
        if not all(self._opened(base / what, some) for what in PRESSURE):
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
        """The switch of intel_pstate, or the boost switch of the other drivers."""
        counters = []
        for path, read in (("intel_pstate/no_turbo", number), ("cpufreq/boost", is_off)):
            if self._opened(base / path, read):
                counters.append(Counter("turbo_off", "turbo is switched off", "1", path, "gauge"))
                break
        if self._opened(base / "intel_pstate/max_perf_pct", number):
            name = "share of the highest clock that is allowed"
            counters.append(Counter("max_perf_pct", name, "%", "intel_pstate", "gauge"))
        return counters

    def _opened(self, path: Path, read: Read) -> bool:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        if content(fd) is None:  # if PSI is switched off, its files open but cannot be read
            os.close(fd)
            return False
        self._files.append((fd, read))
        return True


def some(fd: int) -> int | None:
    """The total in `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`: us for which at least one
    task waited."""
    line = (content(fd) or b"").partition(b"\n")[0]
    name, _, total = line.rpartition(b"total=")
    return int(total[:18]) if name.startswith(b"some ") and total.isdigit() else None


def number(fd: int) -> int | None:
    return natural(content(fd))


def is_off(fd: int) -> int | None:
    """1 if a switch that is 1 when on is off, else 0."""
    on = number(fd)
    return None if on is None else int(on == 0)
