"""How far all counters of a stream moved over a span of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Codes, Floats, Ints
from perftop.model.block_places import Place, Places
from perftop.model.doubt import Doubt, listed, merged


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
