"""Rows that the main thread fills once a batch, because no CPU has to read them for itself."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from typing import Protocol

from perfprobe import wire
from perfprobe.cpu import topology
from perfprobe.native import frame_layout
from perfprobe.wire import Cpu, Missing

LIMIT = 4096
"""Bytes of a small file."""


class Polled(Protocol):
    """Fills a block of its own with at most 64 columns. A block without counters is not sent."""

    @property
    def block(self) -> wire.Block: ...
    @property
    def rows(self) -> int: ...
    @property
    def missing(self) -> Sequence[Missing]: ...

    def fill(self, frame: memoryview, place: frame_layout.Place, stamp: Callable[[], int]) -> None:
        """Writes the block's rows into the frame, each with stamps before and after its read.
        Values that cannot be read are not valid."""

    def close(self) -> None: ...


def put(
    frame: memoryview,
    place: frame_layout.Place,
    row: int,
    read: tuple[int, int],
    values: Sequence[int | None],
) -> None:
    """Writes a row that was `read` between these stamps. None stays invalid."""
    words = frame.cast("Q")
    head = place.head + row * wire.HEAD
    words[head : head + wire.HEAD] = array("Q", [*read, 0, 0, wire.ROW_SAMPLED])
    at = place.values + row * len(values)
    words[at : at + len(values)] = array("Q", [value or 0 for value in values])
    valid = sum(1 << i for i, value in enumerate(values) if value is not None)
    words[place.valid + row] = valid


def content(fd: int, most: int = LIMIT) -> bytes | None:
    """The text of an open file of the kernel, at most `most` bytes; None if it cannot be read."""
    try:
        return os.pread(fd, most, 0)
    except OSError:
        return None


def natural(text: bytes | None) -> int | None:
    """The number in the text, below 10**18 so that it fits a word; None for anything else."""
    digits = (text or b"").strip()
    return int(digits) if digits.isdigit() and len(digits) <= 18 else None


def package_ids(rows: Sequence[Cpu]) -> list[int | None]:
    """The kernel's number of each package, in the order of their rows."""
    by_cpu = {row.cpu: row.package for row in rows}
    return [
        next((by_cpu[cpu] for cpu in group if by_cpu[cpu] is not None), None)
        for group in topology.packages(rows)
    ]
