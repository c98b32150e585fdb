"""Where the rows and the values of all blocks of a stream stand, one block behind the other, so
that numpy is called as often for all of them as for one.
"""

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


@frozen
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
