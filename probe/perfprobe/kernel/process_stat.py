"""/proc/PID/stat and similar files of processes, which may end at any time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

BATCH = 64  # entries a step: they take less than 1 ms
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
LIMIT = 1024  # bytes of a stat file: up to the CPU it has 38 numbers and a name of at most 64 bytes
MOST_COMM = 64
GONE = (FileNotFoundError, NotADirectoryError, ProcessLookupError)


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used."""

    comm: str
    ticks: int
    """User and system time, in clock ticks."""
    threads: int
    start: int
    """Birth in ticks since boot; it tells a task from a later one with the same number."""
    cpu: int
    parent: int = 0


def parse(data: bytes) -> Stat | None:
    """The fields of a stat file; None: it is not one. The name may hold any bytes, parentheses and
    newlines included."""
    first, last = data.find(b"("), data.rfind(b")")
    if not 0 <= first < last:
        return None
    fields = data[last + 1 :].split(None, 37)  # from the third one of proc(5) on
    try:
        ticks, threads = int(fields[11]) + int(fields[12]), int(fields[17])
        start, cpu, parent = int(fields[19]), int(fields[36]), int(fields[1])
    except (IndexError, ValueError):
        return None
    comm = data[first + 1 : last].decode(errors="replace")[:MOST_COMM]
    return Stat(comm, ticks, threads, start, cpu, parent)


def disk_ns(data: bytes) -> int | None:
    """Ns that a task has waited for a disk, of its stat file: the 42nd field, in clock ticks. 0
    where the kernel does not account for it (`access.accounts_delays`)."""
    fields = data[data.rfind(b")") + 1 :].split(None, 40)
    return int(fields[39]) * TICK_NS if len(fields) > 39 and fields[39].isdigit() else None


def numbers(directory: str) -> Iterator[list[str]]:
    """Yields entries that are PIDs or thread ids, a batch at a time; each takes the kernel 1 us."""
    with suppress(OSError), os.scandir(directory) as entries:
        while some := list(islice(entries, BATCH)):
            yield [e.name for e in some if e.name.isdecimal() and len(e.name) < 10]


def opened(path: str) -> int:
    """A descriptor for reading. Raises OSError."""
    # NONBLOCK: under a sysroot a fifo may stand where a file is expected.
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def read(path: str, limit: int = LIMIT) -> bytes:
    """The first bytes: LIMIT is all of a stat file that is needed. Raises OSError."""
    fd = opened(path)
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)
