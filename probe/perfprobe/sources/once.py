"""Several parts may have one counter: the first has it, so they come in the order of preference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from perfprobe.native.sampler import Slot
from perfprobe.sources.part import Part
from perfprobe.wire import Counter, Missing, Scope


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
