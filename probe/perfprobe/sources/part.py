"""A part of what a CPU's thread reads: some counters, and how to open them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Missing, Scope


class Part(Protocol):
    """Counters of one scope. A core's or package's are read by the first CPU of it that is on."""

    @property
    def scope(self) -> Scope: ...
    @property
    def counters(self) -> Sequence[Counter]: ...
    @property
    def missing(self) -> Sequence[Missing]: ...

    def open(self, cpu: int) -> list[Slot]:
        """What this CPU can read, columns counted from the part's first. A counter that it lacks
        is left out: its column stays invalid."""

    def shut(self, cpu: int) -> None:
        """The CPU's thread has ended: give back what `open` took."""

    def close(self) -> None:
        """All threads have ended."""


class Descriptors:
    """File descriptors by CPU, for parts whose slots read files."""

    def __init__(self) -> None:
        self._fds: dict[int, list[int]] = {}

    def open(self, cpu: int, path: str) -> int:
        """Raises OSError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._fds.setdefault(cpu, []).append(fd)
        return fd

    def shut(self, cpu: int) -> None:
        for fd in self._fds.pop(cpu, []):
            os.close(fd)

    def close(self) -> None:
        for cpu in list(self._fds):
            self.shut(cpu)


def shifted(slots: Iterable[Slot], by: int) -> list[Slot]:
    """The slots of a part whose first column is column `by` of the block."""
    return [replace(slot, column=slot.column + by) for slot in slots]
