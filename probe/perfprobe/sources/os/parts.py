"""Parts of what a CPU's thread reads: counters of one scope, and how to open them. If several parts
have the same counter the first one keeps it, so parts are listed in the order of preference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from perfprobe.frozen import replace
from perfprobe.kernel.access import Trouble
from perfprobe.native.sampler import Slot
from perfprobe.wire import Counter, Missing, Scope, placed


class Part(Protocol):
    """Counters of one scope. Those of a core or package are read by its first online CPU."""

    @property
    def scope(self) -> Scope: ...
    @property
    def counters(self) -> Sequence[Counter]: ...
    @property
    def missing(self) -> Sequence[Missing]: ...

    def open(self, cpu: int) -> list[Slot]:
        """What this CPU can read; columns count from the part's first. A counter that the CPU lacks
        is left out, and its column stays invalid."""

    def shut(self, cpu: int) -> None:
        """Gives back what `open` took. The CPU's thread has ended."""

    def close(self) -> None:
        """Gives back everything. All threads have ended."""


def once(parts: Iterable[Part]) -> list[Part]:
    """The parts with each counter in the first one only. Parts without counters are kept, because
    they say what is missing."""
    served: set[str] = set()
    found: list[Part] = []
    for part in parts:
        keys = {counter.key for counter in part.counters}
        found.append(Thinned(part, served & keys) if served & keys else part)
        served |= keys
    return found


def still(missing: Iterable[Missing], counters: Iterable[Counter]) -> list[Missing]:
    """The missing keys that no counter of all CPUs provides."""
    everywhere = {counter.key for counter in counters if counter.cpus is None}
    return [each for each in missing if each.what not in everywhere]


def limited(counter: Counter, cpus: Sequence[int], number: int) -> Counter:
    """The counter, as these of so many CPUs have it."""
    return counter if len(cpus) == number else replace(counter, cpus=[*cpus])


def gathered(lacking: Iterable[tuple[int, str, Trouble]], number: int) -> list[Missing]:
    """Each key and reason once, with its CPUs unless it is so on all, of which there are so
    many."""
    cpus: dict[tuple[str, Trouble], list[int]] = {}
    for cpu, key, why in lacking:
        cpus.setdefault((key, why), []).append(cpu)
    return [
        Missing(key, why.why, why.fix, None if len(where) == number else where)
        for (key, why), where in cpus.items()
    ]


class Thinned:
    """A part without some of its counters. No slot may fill both removed and kept columns."""

    def __init__(self, part: Part, without: Collection[str]) -> None:
        self._part = part
        self.scope: Scope = part.scope
        self.counters = [counter for counter in part.counters if counter.key not in without]
        self.missing: Sequence[Missing] = part.missing
        self._column: dict[int, int] = {}
        """New column by old column, for the columns that stay."""
        for first, counter in placed(part.counters):
            if counter.key not in without:
                for column in range(first, first + counter.columns):
                    self._column[column] = len(self._column)

    def open(self, cpu: int) -> list[Slot]:
        slots = self._part.open(cpu)
        to = self._column
        return [replace(slot, column=to[slot.column]) for slot in slots if slot.column in to]

    def shut(self, cpu: int) -> None:
        self._part.shut(cpu)

    def close(self) -> None:
        self._part.close()
