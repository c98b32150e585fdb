"""Where the rows and the values of all blocks of a stream stand, one block behind the other, so
that numpy is called as often for all of them as for one."""

from __future__ import annotations

import numpy as np

from perfprobe import wire
from perfprobe.frozen import frozen
from perftop.base.arrays import Bools, Ints


@frozen
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
        self._gaps: tuple[bytes, Gaps | None] = (b"", None)

    def of(self, block: str, column: int) -> tuple[Ints, Ints]:
        """By row of a block, where its ticks and what a column moved stand in a Delta."""
        place = next(each for each in self.each if each.block.name == block)
        rows = np.arange(place.count)
        moved = self.rows + place.values.start + column + place.columns * rows
        return place.rows.start + rows, moved

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """What frames say of rows, (frames, rows), for each of their values."""
        return rows.take(self.row_of, axis=1)  # a fourth of what an index costs

    def any(self, values: Bools) -> Bools:
        """(frames, rows) whether this is true of any value of the row."""
        found: Bools = np.zeros((len(values), self.rows), bool)
        if len(self._wide):
            found[:, self._wide] = np.logical_or.reduceat(values, self._starts, axis=1)
        return found

    def gaps(self, read: Bools) -> Gaps | None:
        """The rows that were not read in each frame; None: all were. Mostly they are the same in
        each batch: what is read seldom comes with its last frame."""
        key = read.tobytes()
        if self._gaps[0] != key:
            self._gaps = key, None if read.all() else Gaps.of(read, self.row_of)
        return self._gaps[1]


@frozen
class Gaps:
    """Rows that were not read in each frame, and where their latest readings stand: 0 is what was
    known before, then the frames."""

    rows: Ints
    at: Ints
    """(1 + frames, these rows)"""
    values: Ints
    """The values of these rows."""
    values_at: Ints
    """(1 + frames, these values)"""

    @classmethod
    def of(cls, read: Bools, row_of: Ints) -> Gaps:
        count, rows = read.shape
        at = np.where(read, np.arange(1, count + 1)[:, None], 0)
        at = np.maximum.accumulate(np.concatenate([np.zeros((1, rows), int), at]))
        missing = np.asarray(~read.all(axis=0))
        values = np.flatnonzero(missing[row_of])
        return cls(np.flatnonzero(missing), at[:, missing], values, at[:, row_of[values]])

    def fill(self, rows: np.ndarray) -> None:
        """Where a row was not read, its latest reading; what was known before stands first."""
        rows[:, self.rows] = rows[self.at, self.rows]

    def fill_values(self, values: np.ndarray) -> None:
        values[:, self.values] = values[self.values_at, self.values]
