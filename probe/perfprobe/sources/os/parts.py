"""Parts of what a CPU's thread reads: counters of one scope, and how to open them. Several may
have one counter: the first has it, so parts are listed in the order of preference."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
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


def once(parts: Iterable[Part]) -> list[Part]:
    """Each counter in one of them only. What is left without any is kept for what it misses."""
    served: set[str] = set()
    found: list[Part] = []
    for part in parts:
        keys = {counter.key for counter in part.counters}
        found.append(Thinned(part, served & keys) if served & keys else part)
        served |= keys
    return found


def still(missing: Iterable[Missing], counters: Iterable[Counter]) -> list[Missing]:
    """Those that no counter of all CPUs makes up for."""
    everywhere = {counter.key for counter in counters if counter.cpus is None}
    return [each for each in missing if each.what not in everywhere]


class Thinned:
    """A part without some of its counters. No slot of it may fill both what goes and what stays."""

    def __init__(self, part: Part, without: Collection[str]) -> None:
        self._part = part
        self.scope: Scope = part.scope
        self.counters = [counter for counter in part.counters if counter.key not in without]
        self.missing: Sequence[Missing] = part.missing
        self._column: dict[int, int] = {}
        """Where the columns that stay go."""
        first = 0
        for counter in part.counters:
            if counter.key not in without:
                for column in range(first, first + counter.columns):
                    self._column[column] = len(self._column)
            first += counter.columns

    def open(self, cpu: int) -> list[Slot]:
        slots = self._part.open(cpu)
        to = self._column
        return [replace(slot, column=to[slot.column]) for slot in slots if slot.column in to]

    def shut(self, cpu: int) -> None:
        self._part.shut(cpu)

    def close(self) -> None:
        self._part.close()
