"""Differences of all counters over a span of time: where each is stored, how far it moved, and
which of them are doubted.

The rows and the values of all blocks of a stream are stored one after another, so numpy is called
as often for all blocks as for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats, Ints


class Doubt(IntEnum):
    """Reason to doubt a counter of a CPU in a sample; 0 in an array of codes means none. A metric
    is absent exactly if one of its counters is doubted."""

    JUMPED = 1
    """It moved further than its unit can in that time, or backwards, so it was written."""
    FAST = 2
    """Reference cycles ran faster than the TSC."""
    UNLIKE = 3
    """It differs from APERF or MPERF, though it agreed with them before."""
    IPC = 4
    """More instructions than any core can retire in that number of cycles."""
    ABOVE = 5
    """A part was counted more often than its whole."""
    STILL = 6
    """It did not move, although another counter shows that the CPU worked."""
    OUTSIDE = 7
    """It is outside the bounds given by the unhalted times of the siblings."""
    APART = 8
    """The siblings' counts of the same time differ."""
    BACKWARDS = 9
    """The time stamps of the read went backwards: nothing of that read counts."""
    TAKEN = 10
    """Its register does not hold what was programmed."""
    SLOTS = 11
    """The parts of the issue slots do not add up to them."""


LASTING = np.isin(
    np.arange(256),
    [Doubt.UNLIKE, Doubt.ABOVE, Doubt.STILL, Doubt.OUTSIDE, Doubt.APART, Doubt.SLOTS],
)
"""Mask by code of the doubts that recur while a counter is taken or dead. Such a counter is used
again only after two samples in a row without a doubt."""


def with_lasting(fresh: Codes, before: Codes) -> Codes:
    """The codes in force for a sample: its own, else the lasting ones of the sample before it."""
    return np.where((fresh == 0) & LASTING[before], before, fresh)


def doubts_by_cpu(codes: Codes, keys: Any) -> dict[int, set[tuple[str, Doubt]]]:
    """The doubted counters with their doubts, by position of the CPU; `codes`: (CPUs, counters)."""
    by_cpu: dict[int, set[tuple[str, Doubt]]] = {}
    for row, counter in zip(*np.nonzero(codes), strict=True):
        by_cpu.setdefault(int(row), set()).add((keys[counter], Doubt(codes[row, counter])))
    return by_cpu


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Slices of the arrays of a Delta that hold one block."""

    block: wire.Block
    count: int
    """Number of its rows."""
    columns: int
    rows: slice
    values: slice
    """Its values; those of a row are together."""


class BlockPlaces:
    """The layout of all blocks of a stream in the arrays of a Delta."""

    def __init__(self, hello: wire.Hello) -> None:
        self.blocks: list[BlockPlace] = []
        self.rows = self.values = 0
        """Total numbers."""
        for block in hello.blocks:
            count, columns = hello.rows(block.scope), block.columns
            rows, values = self.rows + count, self.values + count * columns
            of_rows, of_values = slice(self.rows, rows), slice(self.values, values)
            self.blocks.append(BlockPlace(block, count, columns, of_rows, of_values))
            self.rows, self.values = rows, values
        widths = np.repeat([p.columns for p in self.blocks], [p.count for p in self.blocks])
        self.row_of: Ints = np.repeat(np.arange(self.rows), widths)
        """The row of each value."""
        self._with_values: Ints = np.flatnonzero(widths)
        self._starts: Ints = (np.cumsum(widths) - widths)[self._with_values]
        """The rows that have values, and the first of each."""
        self.of_cpus = [place for place in self.blocks if place.block.scope == "cpu"]
        self.cpu_rows: Bools = np.zeros(self.rows, bool)
        """Mask of the rows of blocks of CPU scope."""
        for place in self.of_cpus:
            self.cpu_rows[place.rows] = True
        self.stamps = next((p.rows for p in self.blocks if p.block.name == "cpu"), None)
        """The rows of block `cpu`, which carry the stamps even without values."""

    def in_delta(self, block: str, column: int) -> tuple[Ints, Ints]:
        """By row of a block, where a Delta holds its ticks and how far a column moved."""
        place = next(place for place in self.blocks if place.block.name == block)
        rows = np.arange(place.count)
        return place.rows.start + rows, self.rows + place.values.start + column * len(rows) + rows

    def by_value(self, rows: np.ndarray) -> np.ndarray:
        """(frames, rows) as (frames, values)."""
        return rows.take(self.row_of, axis=1)  # takes a quarter of the time of indexing

    def any_value(self, values: Bools) -> Bools:
        """(frames, rows) whether this is true of any value of the row."""
        result: Bools = np.zeros((len(values), self.rows), bool)
        if len(self._with_values):
            result[:, self._with_values] = np.logical_or.reduceat(values, self._starts, axis=1)
        return result


@dataclass(slots=True)
class BlockDelta:
    """One block over one span, or, with a leading axis, over each of several samples: views of a
    Delta."""

    ticks: Floats
    """(rows) stamp ticks covered; 0 where the row was not read."""
    moved: Floats
    """(rows, columns) in base units; gauges: value times ticks, so that sums give means. NaN:
    unknown or doubted."""
    width: Floats
    """(rows) stamp ticks that the reads at both ends of the span took; 0 of a sum of samples."""

    @property
    def reads(self) -> Floats:
        """(rows) `width` as a share of the span; 0 where the row was not read."""
        zeros = np.zeros(self.ticks.shape)
        return np.divide(self.width, self.ticks, out=zeros, where=self.ticks > 0)


class Delta:
    """Differences of all counters over one span. All numbers are in two arrays, so that a sample is
    added to a sum at once."""

    __slots__ = ("_places", "_sums", "_tables", "_widths", "doubts", "keys", "skew_ns")

    def __init__(
        self, places: BlockPlaces, sums: Floats, widths: Floats, doubts: Codes,
        keys: tuple[str, ...], skew_ns: Ints,
    ) -> None:  # fmt: skip
        self._places, self._sums, self._widths = places, sums, widths
        self._tables: dict[str, BlockDelta] | None = None
        self.doubts = doubts
        """(CPUs, counters), with a leading axis for several samples: codes of doubt, 0 for none;
        counters are in the order of `keys`."""
        self.keys = keys
        self.skew_ns = skew_ns
        """Longest time between the first and the last wake-up of the reads of a frame."""

    @property
    def tables(self) -> Mapping[str, BlockDelta]:
        if self._tables is None:
            self._tables = {place.block.name: self._table(place) for place in self._places.blocks}
        return self._tables

    def _table(self, place: BlockPlace) -> BlockDelta:
        """The sums are the ticks of all rows, then how far all values moved, block by block and
        column by column: numpy is twice as fast along a column whose rows are contiguous."""
        sums = self._sums
        moved = sums[..., self._places.rows :][..., place.values]
        return BlockDelta(
            sums[..., place.rows],
            moved.reshape(*sums.shape[:-1], place.columns, place.count).swapaxes(-1, -2),
            self._widths[..., place.rows],
        )

    def take(self, places: Ints) -> Floats:
        """The numbers at these places (see `BlockPlaces.in_delta`), of any blocks."""
        return self._sums.take(places, axis=-1)

    def write(self, ticks: Floats, moved: Floats, width: Floats) -> None:
        """Rows and values of all blocks as frames have them: (samples, rows) and (samples, values),
        those of a row together."""
        self._sums[:, : self._places.rows] = ticks
        for place in self._places.blocks:
            of_rows = moved[:, place.values].reshape(len(moved), place.count, place.columns)
            self.tables[place.block.name].moved[...] = of_rows
        self._widths[...] = width

    def add(self, other: Delta, *, doubted: bool = True) -> None:
        """Add a sample or another sum. `doubted`: the other may have doubted counters; its reasons
        replace older ones."""
        self._sums += other._sums
        self.skew_ns = max(self.skew_ns, other.skew_ns)
        if doubted and other.doubts.any():
            self.doubts = np.where(other.doubts != 0, other.doubts, self.doubts)

    @property
    def suspect(self) -> dict[int, set[tuple[str, Doubt]]]:
        """The doubted counters with their doubts, by position of the CPU."""
        return doubts_by_cpu(self.doubts, self.keys)

    def __getitem__(self, samples: int | slice) -> Delta:
        """One sample, or a slice of them; arrays are shared."""
        return Delta(
            self._places, self._sums[samples], self._widths[samples], self.doubts[samples],
            self.keys, self.skew_ns[samples],
        )  # fmt: skip

    def copy(self) -> Delta:
        return Delta(
            self._places, self._sums.copy(), self._widths.copy(), self.doubts.copy(), self.keys,
            self.skew_ns,
        )  # fmt: skip
