"""What was counted while something lasted, as shares of polls, cycles or time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from math import nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats
from perftop.model.cores import Cores
from perftop.model.counters import BlockCounter, Counters
from perftop.model.delta import Delta
from perftop.model.evidence import Bit

CYCLES, TICKS = "cycles", "pcu_ticks"
LEVEL = "license_"
"""Each thread counts these cycles of its whole core, also while it is halted itself: Intel's
metrics for Skylake-SP halve the sum of two."""


@frozen
class _Entry:
    """Where a counter goes: what it is a share of, then itself, or each of its bits."""

    column: BlockCounter
    below: BlockCounter | None  # None: polls or time
    place: int

    @property
    def width(self) -> int:
        counter = self.column.counter
        return counter.columns if counter.kind == "flags" else 2


class Tally:
    """The counters of a stream that may tell a cause, in sums that can be added up."""

    def __init__(self, counters: Counters, keys: Iterable[str]) -> None:
        self._counters = counters
        self._scope = scope = {block.name: block.scope for block in counters.hello.blocks}
        self.entries: dict[str, _Entry] = {}
        self.width = 0
        for key in keys:
            column = counters.columns.get(key)
            below = counters.columns.get(_whole(key) or "")
            if column is None or (_whole(key) and below is None):
                continue
            if column.counter.kind == "flags" and column.counter.columns < 2:
                continue
            if below is not None and scope[below.block] != scope[column.block]:
                continue
            self.entries[key] = entry = _Entry(column, below, self.width)
            self.width += entry.width

    def sums(self, delta: Delta, cores: Cores) -> Floats:
        """(cores, width). What a package or the machine counts, each of its cores has whole."""
        where = {
            "cpu": cores.rows, "core": cores.told[:, None], "package": cores.package[:, None],
            "machine": np.zeros((len(cores.lists), 1), int),
        }  # fmt: skip
        out = np.zeros((len(cores.lists), self.width))
        for entry in self.entries.values():
            rows = where[self._scope[entry.column.block]]
            moved = self._moved(entry, delta)
            nothing = np.zeros((1, entry.width))
            mine = np.concatenate([moved, nothing])[rows]
            both = mine.max if entry.column.counter.key.startswith(LEVEL) else mine.sum
            mine = mine[:, 0] if rows.shape[1] == 1 else both(axis=1)
            out[:, entry.place : entry.place + entry.width] = mine
        return out

    def _moved(self, entry: _Entry, delta: Delta) -> Floats:
        """(rows, width); rows that are not known are 0 in both sums."""
        counter, first = entry.column.counter, entry.column.first
        table = delta.tables[entry.column.block]
        if counter.kind == "flags":
            moved = table.moved[:, first : first + counter.columns]
        else:
            top = self._counters.moved(delta, counter.key)
            assert top is not None
            moved = np.stack([self._below(entry, delta), top], axis=1)
        known = np.isfinite(moved).all(axis=1, keepdims=True)
        return np.where(known, moved, 0.0)

    def _below(self, entry: _Entry, delta: Delta) -> Floats:
        table = delta.tables[entry.column.block]
        if entry.below is not None:
            return table.moved[:, entry.below.first]
        gauge = entry.column.counter.kind == "gauge"
        return table.ticks if gauge else table.ticks / self._counters.stamp_hz


def _whole(key: str) -> str | None:
    """Key of what a counter is a share of; None: polls or time."""
    return CYCLES if key.startswith(LEVEL) else TICKS if key.startswith("pcu_") else None


class Facts:
    """Sums of a tally over one episode."""

    def __init__(self, tally: Tally, sums: Floats) -> None:
        self._entries, self._sums = tally.entries, sums.tolist()

    def mean(self, key: str, part: str = "") -> float:
        """A gauge's mean, a rate per second (watts of energy), or a bit's share of the polls; NaN:
        unknown."""
        entry = self._entries.get(key)
        if entry is None or not (below := self._sums[entry.place]):
            return nan
        parts = entry.column.counter.parts
        if entry.column.counter.kind != "flags":
            return float(self._sums[entry.place + 1] / below)
        bits = [bit.times for bit in self.seen(key) if bit.part == part]
        return max(bits) / below if bits else 0.0 if part in parts else nan

    def polls(self, key: str) -> float:
        entry = self._entries.get(key)
        return self._sums[entry.place] if entry is not None else 0.0

    def seen(self, key: str, share: float = 0.0) -> list[Bit]:
        """The bits that were set in so many of the polls, and at least in one."""
        entry = self._entries.get(key)
        if entry is None:
            return []
        counter, first = entry.column.counter, entry.place
        counts = self._sums[first + 1 : first + counter.columns]
        least = max(1.0, share * self._sums[first])
        named = zip_longest(counter.parts[: len(counts)], counts)
        bits = (Bit(number, part, count) for number, (part, count) in enumerate(named))
        return [bit for bit in bits if bit.times >= least]

    @property
    def watts(self) -> float:
        return self.mean("energy_j")
