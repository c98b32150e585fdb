"""What some frames in a row say of all blocks, and the reading that each row is compared with.

Arrays are (frames, rows) or (frames, values), with the rows and values of all blocks one behind the
other, so that numpy is called as often for many frames and blocks as for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints, Words
from perftop.model.block_places import Gaps, Place, Places

USELESS = np.uint64(wire.ROW_ELSEWHERE | wire.ROW_WIDE | wire.ROW_OFFLINE)
PLAIN = np.uint64(wire.ROW_SAMPLED)
HEAD_BYTES = 8 * wire.HEAD
WORD = 64
"""Columns whose validity one word has."""

Hold = Callable[[Bools, Bools, Words], Bools]
"""From known, sampled and flags of one frame's rows of a block: those that must wait for the next
frame."""


@dataclass
class Readings:
    """What the frames say; all is 0 in the rows of a block that a frame does not have."""

    head: Words
    valid: Bools
    values: Words
    some: Bools
    """Rows with a valid value, and all rows that a frame has of block `cpu`."""
    there: Bools
    """Rows of the blocks that each frame has."""
    width: Floats
    """Stamp ticks that each read took."""
    flags: Words
    plain: bool
    """Every row that is there was read, and nothing is odd about it, as it mostly is."""

    def flagged(self, bit: int) -> Bools:
        found: Bools = self.flags & np.uint64(bit) != 0
        return found

    @cached_property
    def sampled(self) -> Bools:
        return self.there if self.plain else self.flagged(wire.ROW_SAMPLED)

    def skew_ns(self, places: Places) -> Ints:
        """Time between the first and the last wake-up of the reads of each frame, the longest of
        all blocks of CPU scope."""
        late, longest = self.head[..., 2].copy(), np.zeros(len(self.head), np.int64)
        sampled = self.sampled
        for place in places.of_cpus:
            mine = late[:, place.rows]
            read = sampled[:, place.rows]
            if self.plain or np.count_nonzero(read) == read.size:
                skew = np.maximum.reduce(mine, axis=1) - np.minimum.reduce(mine, axis=1)
            else:
                last = np.where(read, mine, 0).max(axis=1)
                first = np.minimum(np.where(read, mine, last[:, None]).min(axis=1), last)
                skew = last - first
            longest = np.maximum(longest, skew.view(np.int64))
        return longest


def heads(data: wire.Bytes, rows: int) -> wire.Bytes:
    """The heads of all rows of a block; where there is one for all of them, it is repeated."""
    return bytes(data) * rows if len(data) == HEAD_BYTES else data


class Unpacker:
    """Makes readings of frames. What is the same in batch after batch is kept: which blocks come
    with which frames, and which values are valid."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._blocks = [(place.block.name, _nothing(place)) for place in places.each]
        """The blocks, and what stands for each in a frame that does not have it."""
        bits, first = [], 0
        for place in places.each:
            bits.append(first + _bits(place.block, place.count))
            first += WORD * place.block.valid_words * place.count
        self._bits: Ints = np.concatenate(bits)
        """The bit of each value among those of all validity words."""
        self._there: tuple[bytes, Bools, Words] | None = None
        self._valid: tuple[bytes, bytes, Bools, Bools] | None = None

    def unpack(self, frames: Sequence[wire.Frame]) -> Readings:
        count, places = len(frames), self._places
        each = [
            frame.blocks.get(name, nothing) for frame in frames for name, nothing in self._blocks
        ]
        there = bytes([name in frame.blocks for frame in frames for name, _ in self._blocks])
        head = b"".join([rows.head for rows in each])
        if len(head) != HEAD_BYTES * places.rows * count:  # one head for all rows of some blocks
            sizes = [place.count for place in places.each] * count
            head = b"".join([heads(rows.head, n) for rows, n in zip(each, sizes, strict=True)])
        heading = np.frombuffer(head, "<u8").reshape(count, places.rows, wire.HEAD)
        moved = np.frombuffer(b"".join([rows.values for rows in each]), "<u8")
        moved = moved.reshape(count, places.values)
        known, plain = self._presence(there, count)
        told, some = self._validity(there, b"".join([rows.valid for rows in each]), known)
        width = (heading[..., 1] - heading[..., 0]).astype(np.float64)
        flags = heading[..., 4].copy()
        odd = np.count_nonzero(flags != plain)
        return Readings(heading, told, moved, some, known, width, flags, not odd)

    def _presence(self, there: bytes, count: int) -> tuple[Bools, Words]:
        """(frames, rows) which rows are there, and the flags of those that were read as they
        should."""
        if self._there is None or self._there[0] != there:
            each = np.frombuffer(there, bool).reshape(count, -1)
            rows: Bools = np.repeat(each, [place.count for place in self._places.each], axis=1)
            self._there = there, rows, np.where(rows, PLAIN, np.uint64(0))
        return self._there[1:]

    def _validity(self, there: bytes, words: bytes, known: Bools) -> tuple[Bools, Bools]:
        """(frames, values) which are valid, and (frames, rows) which rows have some."""
        if self._valid is None or self._valid[:2] != (there, words):
            packed = np.frombuffer(words, np.uint8).reshape(len(known), -1)
            bits = np.unpackbits(packed, axis=1, bitorder="little").view(bool)
            valid: Bools = bits[:, self._bits]
            some = self._places.any(valid)
            if (stamps := self._places.stamps) is not None:
                some[:, stamps] = known[:, stamps]
            self._valid = there, words, valid, some
        return self._valid[2:]


def _nothing(place: Place) -> wire.Rows:
    head, words = bytes(HEAD_BYTES * place.count), place.block.valid_words
    return wire.Rows(head, bytes(8 * words * place.count), bytes(8 * place.count * place.columns))


def _bits(block: wire.Block, rows: int) -> Ints:
    """The places of its valid bits among those of the validity words of all rows."""
    first = WORD * block.valid_words * np.arange(rows)[:, None]
    return np.asarray((first + np.arange(block.columns)).ravel())


@dataclass(slots=True)
class Baseline:
    """The latest reading of each row; with a leading axis, as before each of several frames."""

    stamp: Words
    width: Floats
    values: Words
    valid: Bools
    first: Bools
    """(rows) nothing was read before it."""
    known: Bools
    """(rows) there is a reading to take a difference with."""

    @classmethod
    def none(cls, places: Places) -> Baseline:
        n, values = places.rows, places.values
        return cls(
            np.zeros(n, np.uint64), np.zeros(n), np.zeros(values, np.uint64),
            np.zeros(values, bool), np.zeros(n, bool), np.zeros(n, bool),
        )  # fmt: skip

    def copy(self) -> Baseline:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return Baseline(*(part.copy() for part in parts))  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return sum(part.nbytes for part in parts)

    def take(
        self, now: Readings, read: Bools, drop: Sequence[bool], hold: Hold, places: Places
    ) -> Baseline:
        """What each frame is compared with; then the newest readings are the baseline. Clears
        rows of `read`, the rows that can be used, that `hold` leaves out. `drop`: by frame, whether
        all earlier readings must be forgotten before it."""
        known = self._known(now, read, drop, hold, places)
        of_rows, of_values = places.gaps(read)
        stamp, self.stamp = _earlier(self.stamp, now.head[..., 0].copy(), of_rows)
        width, self.width = _earlier(self.width, now.width, of_rows)
        first, self.first = _earlier(self.first, ~known, of_rows)
        values, self.values = _earlier(self.values, now.values, of_values)
        valid, self.valid = _earlier(self.valid, now.valid, of_values)
        return Baseline(stamp, width, values, valid, first, known)

    def _known(
        self, now: Readings, read: Bools, drop: Sequence[bool], hold: Hold, places: Places
    ) -> Bools:
        """(frames, rows) whether there is a reading before each frame."""
        if now.plain and not any(drop):
            if len(read) == 1:
                before: Bools = self.known[None]
                self.known = self.known | read[0]
                return before
            by_then = np.logical_or.accumulate(np.concatenate([self.known[None], read]))
            self.known = by_then[-1].copy()
            return np.asarray(by_then[:-1])
        offline, sampled = now.flagged(wire.ROW_OFFLINE), now.sampled
        calm = np.asarray(((sampled | ~now.there) & ~now.flagged(wire.ROW_WIDE)).all(axis=1))
        known = np.zeros(read.shape, bool)
        for i, befores in enumerate(known):
            if drop[i]:
                self.known = self.known & False
            befores[:] = self.known
            for place in () if calm[i] else places.of_cpus:
                rows = place.rows
                read[i, rows] &= ~hold(self.known[rows], sampled[i, rows], now.flags[i, rows])
            self.known = (self.known | read[i]) & ~offline[i]
        return known


def _earlier(old: np.ndarray, new: np.ndarray, gaps: Gaps | None) -> tuple[np.ndarray, np.ndarray]:
    """The latest reading before each frame, and after all of them. Neither may be changed: of a
    single frame as little as can be is copied."""
    if len(new) == 1:
        after = new[0]
        if gaps is not None:
            after = after.copy()
            after[gaps.missing] = old[gaps.missing]
        return old[None], after
    both = np.concatenate([old[None], new])
    if gaps is not None:
        gaps.fill(both)
    return both[:-1], both[-1].copy()
