"""What there is one of: the probe's own cost, and pressure - how long tasks had to wait for CPUs,
memory or disks, by the kernel's account."""

from __future__ import annotations

import os
import time
from array import array
from pathlib import Path

from perfprobe import layout, wire
from perfprobe.wire import Counter, Missing

PRESSURE = ("cpu", "memory", "io")
LIMIT = 4096


class Machine:
    def __init__(self, root: Path) -> None:
        self._fds: list[int] = []
        self.missing: list[Missing] = []
        counters = [Counter("probe_cpu_s", "CPU time of the probe", "s", "getrusage", scale=1e-9)]
        for what in PRESSURE:
            path = root / "proc/pressure" / what
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                self._fds.append(fd)
                os.pread(fd, 1, 0)
            except OSError:  # not built in, or switched off: then reading is what fails
                self.close()
                why = "the kernel does not account for pressure (PSI)"
                self.missing = [Missing("pressure", why, "boot with psi=1")]
                break
        counters += [
            Counter(f"pressure_{what}_s", f"some task waited: {what}", "s", "/proc/pressure",
                    scale=1e-6)
            for what, _ in zip(PRESSURE, self._fds, strict=False)
        ]  # fmt: skip
        self.block = wire.Block("machine", "machine", counters)

    def fill(self, frame: memoryview, place: layout.Place, now: int) -> None:
        """The block's one row in the frame. What cannot be read is not valid."""
        words = frame.cast("Q")
        words[place.head : place.valid] = array("Q", [now, now, 0, 0, wire.ROW_SAMPLED])
        words[place.values] = time.process_time_ns()
        valid = 1
        for column, fd in enumerate(self._fds, 1):
            total_us = some(fd)
            if total_us is not None:
                words[place.values + column] = total_us
                valid |= 1 << column
        words[place.valid] = valid

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def some(fd: int) -> int | None:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`: us in which a task waited at all."""
    try:
        line = os.pread(fd, LIMIT, 0).partition(b"\n")[0]
    except OSError:
        return None
    name, _, number = line.rpartition(b"total=")
    return int(number[:18]) if name.startswith(b"some ") and number.isdigit() else None
