"""Where the rows of each block lie in one flat frame of u64 words."""

from __future__ import annotations

from collections.abc import Sequence

from perfprobe import wire
from perfprobe.frozen import frozen
from perfprobe.native.sampler import RowPlan, Slot


@frozen
class Place:
    """A block's regions in the frame; offsets in words."""

    block: wire.Block
    rows: int
    head: int
    valid: int
    values: int
    end: int

    def plan(self, row: int, slots: Sequence[Slot]) -> RowPlan:
        words = self.block.valid_words
        return RowPlan(
            self.head + row * wire.HEAD,
            self.valid + row * words,
            words,
            self.values + row * self.block.columns,
            slots,
        )

    def data(self, frame: memoryview) -> wire.Rows:
        """Views into the frame, valid until the frame changes."""
        return wire.Rows(
            frame[8 * self.head : 8 * self.valid],
            frame[8 * self.valid : 8 * self.values],
            frame[8 * self.values : 8 * self.end],
        )


def place(blocks: Sequence[tuple[wire.Block, int]]) -> tuple[list[Place], int]:
    """Places the blocks, given with their numbers of rows, one after the other. Also returns the
    length of the frame in words."""
    places = []
    at = 0
    for block, rows in blocks:
        valid = at + rows * wire.HEAD
        values = valid + rows * block.valid_words
        end = values + rows * block.columns
        places.append(Place(block, rows, at, valid, values, end))
        at = end
    return places, at
