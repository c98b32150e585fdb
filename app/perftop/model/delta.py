"""Differences of all counters over a span of time: where each stands, how far it moved, and which
of them are doubted.

The rows and the values of all blocks of a stream stand one after another in two arrays, so numpy is
called as often for all blocks as for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats, Ints


@dataclass(slots=True)
class BlockDelta:
    """One block over one span, or, with a leading axis, over each of several samples: views of a
    delta."""

    ticks: Floats
    """(rows) stamp ticks covered; 0 where the row was not read."""
    moved: Floats
    """(rows, columns) in base units; gauges: value times ticks, so that sums give means. NaN: not
    known or doubted."""
    width: Floats
    """(rows) stamp ticks that the reads at both ends of the span took; 0 of a sum of samples."""

    @property
    def reads(self) -> Floats:
        """(rows) the same as a share of the span; 0 where the row was not read."""
        return np.divide(
            self.width, self.ticks, out=np.zeros(self.ticks.shape), where=self.ticks > 0
        )


class Delta:
    """Differences of all counters over one span. All numbers lie in two arrays, so that a sample is
    added to a sum at once."""

    __slots__ = ("_places", "_sums", "_tables", "_widths", "doubts", "keys", "skew_ns")

    def __init__(
        self, places: Places, sums: Floats, widths: Floats, doubts: Codes, keys: tuple[str, ...],
        skew_ns: Ints,
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
            self._tables = {each.block.name: self._table(each) for each in self._places.each}
        return self._tables

    def _table(self, place: Place) -> BlockDelta:
        """The sums are the ticks of all rows, and behind them what all values moved, block by block
        and column by column: numpy is twice as fast along a column whose rows stand together."""
        sums = self._sums
        moved = sums[..., self._places.rows :][..., place.values]
        return BlockDelta(
            sums[..., place.rows],
            moved.reshape(*sums.shape[:-1], place.columns, place.count).swapaxes(-1, -2),
            self._widths[..., place.rows],
        )

    def at(self, places: Ints) -> Floats:
        """Numbers that stand at these places (see `Places.of`), of whatever blocks."""
        return self._sums.take(places, axis=-1)

    def column(self, place: slice) -> Floats:
        """What a column moved (see `Places.column`), by row."""
        return self._sums[..., place]

    def write(self, ticks: Floats, moved: Floats, width: Floats) -> None:
        """Rows and values of all blocks, one behind the other, as they stand in frames: (samples,
        rows) and (samples, values), those of a row together."""
        self._sums[:, : self._places.rows] = ticks
        for place in self._places.each:
            of_rows = moved[:, place.values].reshape(len(moved), place.count, place.columns)
            self.tables[place.block.name].moved[...] = of_rows
        self._widths[...] = width

    def add(self, other: Delta, *, doubted: bool = True) -> None:
        """`doubted`: whether anything of the other may be."""
        self._sums += other._sums
        self.skew_ns = max(self.skew_ns, other.skew_ns)
        if doubted and other.doubts.any():
            self.doubts = merged(self.doubts, other.doubts)

    @property
    def suspect(self) -> dict[int, set[tuple[str, Doubt]]]:
        """The doubted counters with their doubts, by position of the CPU."""
        return listed(self.doubts, self.keys)

    def __getitem__(self, samples: int | slice) -> Delta:
        """One sample of several, or some of them. Their arrays are shared."""
        return Delta(
            self._places, self._sums[samples], self._widths[samples], self.doubts[samples],
            self.keys, self.skew_ns[samples],
        )  # fmt: skip

    def copy(self) -> Delta:
        return Delta(
            self._places, self._sums.copy(), self._widths.copy(), self.doubts.copy(), self.keys,
            self.skew_ns,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One block."""

    block: wire.Block
    count: int
    """Number of its rows."""
    columns: int
    rows: slice
    values: slice
    """Its values; those of a row stand together."""


class Places:
    def __init__(self, hello: wire.Hello) -> None:
        self.each: list[Place] = []
        self.rows = self.values = 0
        """How many there are in all."""
        for block in hello.blocks:
            count, columns = hello.rows(block.scope), block.columns
            rows, values = self.rows + count, self.values + count * columns
            of_rows, of_values = slice(self.rows, rows), slice(self.values, values)
            self.each.append(Place(block, count, columns, of_rows, of_values))
            self.rows, self.values = rows, values
        widths = np.repeat([p.columns for p in self.each], [p.count for p in self.each])
        self.row_of: Ints = np.repeat(np.arange(self.rows), widths)
        """The row of each value."""
        self._wide: Ints = np.flatnonzero(widths)
        self._starts: Ints = (np.cumsum(widths) - widths)[self._wide]
        """The rows that have values, and the first of each."""
        of_cpus = [p for p in self.each if p.block.scope == "cpu"]
        self.of_cpus: list[Place] = of_cpus
        self.cpu_rows: Bools = np.zeros(self.rows, bool)
        """Mask of the rows of blocks of CPU scope."""
        for place in of_cpus:
            self.cpu_rows[place.rows] = True
        self.stamps = next((p.rows for p in self.each if p.block.name == "cpu"), None)
        """The rows of block `cpu`, which carry the stamps, also without values."""
        self._gaps: tuple[bytes, tuple[Gaps, Gaps] | tuple[None, None]] = (b"", (None, None))

    def of(self, block: str, column: int) -> tuple[Ints, Ints]:
        """By row of a block, where its ticks and what a column moved stand in a Delta."""
        place = next(each for each in self.each if each.block.name == block)
        rows = np.arange(place.count)
        moved = self.rows + place.values.start + column * place.count + rows
        return place.rows.start + rows, moved

    def column(self, block: str, column: int) -> slice:
        """Where what a column moved stands in a Delta, by row of its block."""
        _, moved = self.of(block, column)
        return slice(int(moved[0]), int(moved[0]) + len(moved)) if len(moved) else slice(0)

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """What frames say of rows, (frames, rows), for each of their values."""
        return rows.take(self.row_of, axis=1)  # a fourth of what an index costs

    def any(self, values: Bools) -> Bools:
        """(frames, rows) whether this is true of any value of the row."""
        found: Bools = np.zeros((len(values), self.rows), bool)
        if len(self._wide):
            found[:, self._wide] = np.logical_or.reduceat(values, self._starts, axis=1)
        return found

    def gaps(self, read: Bools) -> tuple[Gaps, Gaps] | tuple[None, None]:
        """The rows that were not read in each frame, and their values; None: all were. Mostly they
        are the same in each batch: what is read seldom comes with its last frame."""
        key = read.tobytes()
        if self._gaps[0] != key:
            some = np.count_nonzero(read) < read.size
            self._gaps = key, Gaps.of(read, self.row_of) if some else (None, None)
        return self._gaps[1]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Rows that were not read in each frame, or their values, and where the latest readings of
    these stand: 0 is what was known before, then the frames."""

    missing: Ints
    at: Ints
    """(1 + frames, missing)"""

    def fill(self, both: np.ndarray) -> None:
        """Where nothing was read, the latest reading; what was known before stands first."""
        both[:, self.missing] = both[self.at, self.missing]

    @classmethod
    def of(cls, read: Bools, row_of: Ints) -> tuple[Gaps, Gaps]:
        """Those of the rows, and of their values."""
        all_read = np.logical_and.reduce(read)
        rows, values = np.flatnonzero(~all_read), np.flatnonzero(~all_read.take(row_of))
        frames = np.arange(1, len(read) + 1)[:, None]
        at = np.zeros((len(read) + 1, len(rows)), int)
        np.maximum.accumulate(np.where(read[:, rows], frames, 0), out=at[1:])
        return cls(rows, at), cls(values, at[:, rows.searchsorted(row_of[values])])


class Doubt(IntEnum):
    """Reason to doubt a counter; 0 in an array of codes means none."""

    JUMPED = 1
    """It moved further than its unit can in that time, or backwards, so somebody wrote it."""
    FAST = 2
    """Reference cycles ran faster than the TSC."""
    UNLIKE = 3
    """It differs from APERF or MPERF, though it agreed with them before."""
    IPC = 4
    """More instructions than any core retires in so many cycles."""
    ABOVE = 5
    """A part was counted more often than its whole."""
    STILL = 6
    """It did not move, although another counter shows that the CPU worked."""
    OUTSIDE = 7
    """It lies outside the bounds that the unhalted times of the siblings set."""
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


def held_on(fresh: Codes, before: Codes) -> Codes:
    """The codes in force for a sample: its own, else the lasting ones of the sample before it."""
    return np.where((fresh == 0) & LASTING[before], before, fresh)


def merged(older: Codes, newer: Codes) -> Codes:
    """The codes of several samples together; the newest reason wins."""
    return np.where(newer != 0, newer, older)


def listed(codes: Codes, keys: Any) -> dict[int, set[tuple[str, Doubt]]]:
    """The doubted counters with their doubts, by position of the CPU."""
    found: dict[int, set[tuple[str, Doubt]]] = {}
    for row, at in zip(*np.nonzero(codes), strict=True):
        found.setdefault(int(row), set()).add((keys[at], Doubt(codes[row, at])))
    return found
