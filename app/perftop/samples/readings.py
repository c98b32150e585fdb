"""The rows of a block in some frames in a row, and the reading that each is compared with.

Arrays are (frames, rows) or (frames, rows, columns), so that numpy is called as often for many
frames as for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints, Words

USELESS = np.uint64(wire.ROW_ELSEWHERE | wire.ROW_WIDE | wire.ROW_OFFLINE)
PLAIN = np.uint64(wire.ROW_SAMPLED)
HEAD_BYTES = 8 * wire.HEAD

Hold = Callable[[Bools, Bools, Words], Bools]
"""From known, sampled and flags of one frame's rows: those that must wait for the next frame."""


@dataclass(slots=True)
class Readings:
    """What the frames say; a frame without the block is not among them."""

    head: Words
    valid: Bools
    values: Words
    width: Floats
    """Stamp ticks that each read took."""
    plain: bool
    """Every row was read, and nothing is odd about it, as it mostly is."""

    @property
    def flags(self) -> Words:
        return self.head[..., 4]

    @property
    def skew_ns(self) -> Ints:
        """Time between the first and the last wake-up of the reads of each frame."""
        late = self.head[..., 2]
        if self.plain:
            return np.asarray((late.max(axis=1) - late.min(axis=1)).astype(np.int64))
        sampled = self.flagged(wire.ROW_SAMPLED)
        last = np.where(sampled, late, 0).max(axis=1)
        first = np.minimum(np.where(sampled, late, last[:, None]).min(axis=1), last)
        skew: Ints = (last - first).astype(np.int64)
        return skew

    def flagged(self, bit: int) -> Bools:
        found: Bools = self.flags & np.uint64(bit) != 0
        return found


def unpack(n: int, columns: int, several: Sequence[wire.Rows]) -> Readings:
    """Heads, validity and values of a block of `n` rows."""
    count = len(several)
    heads = [rows.head for rows in several]
    if n != 1 and any(len(head) == HEAD_BYTES for head in heads):  # one head for all rows
        heads = [bytes(head) * n if len(head) == HEAD_BYTES else head for head in heads]
    head = np.frombuffer(b"".join(heads), "<u8").reshape(count, n, wire.HEAD)
    words = np.frombuffer(b"".join([rows.valid for rows in several]), np.uint8)
    words = words.reshape(count, n, 8 * -(-columns // 64))
    bits = np.unpackbits(words, axis=2, count=columns, bitorder="little")
    values = np.frombuffer(b"".join([rows.values for rows in several]), "<u8")
    width = (head[..., 1] - head[..., 0]).astype(np.float64)
    plain = bool((head[..., 4] == PLAIN).all())
    return Readings(head, bits.view(bool), values.reshape(count, n, columns), width, plain)


@dataclass(slots=True)
class Baseline:
    """The latest reading of each row of a block; with a leading axis, as before each of several
    frames."""

    stamp: Words
    width: Floats
    values: Words
    valid: Bools
    first: Bools
    """(rows) nothing was read before it."""
    known: Bools
    """(rows) there is a reading to take a difference with."""

    @classmethod
    def none(cls, n: int, columns: int) -> Baseline:
        return cls(
            np.zeros(n, np.uint64), np.zeros(n), np.zeros((n, columns), np.uint64),
            np.zeros((n, columns), bool), np.zeros(n, bool), np.zeros(n, bool),
        )  # fmt: skip

    def copy(self) -> Baseline:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return Baseline(*(part.copy() for part in parts))  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return sum(part.nbytes for part in parts)

    def take(self, now: Readings, read: Bools, drop: Sequence[bool], hold: Hold | None) -> Baseline:
        """What each frame is compared with; then the newest readings are the baseline. Clears
        rows of `read`, the rows that can be used, that `hold` leaves out. `drop`: by frame, whether
        all earlier readings must be forgotten before it."""
        known = self._known(now, read, drop, hold)
        at = None if read.all() else _latest(read)

        def earlier(old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            both = np.concatenate([old[None], new])
            both = both if at is None else both[at]
            return both[:-1], both[-1].copy()

        stamp, self.stamp = earlier(self.stamp, now.head[..., 0])
        width, self.width = earlier(self.width, now.width)
        values, self.values = earlier(self.values, now.values)
        valid, self.valid = earlier(self.valid, now.valid)
        first, self.first = earlier(self.first, ~known)
        return Baseline(stamp, width, values, valid, first, known)

    def _known(self, now: Readings, read: Bools, drop: Sequence[bool], hold: Hold | None) -> Bools:
        """(frames, rows) whether there is a reading before each frame."""
        if now.plain and not any(drop):
            by_then = np.logical_or.accumulate(np.concatenate([self.known[None], read]))
            self.known = by_then[-1].copy()
            return np.asarray(by_then[:-1])
        offline, sampled = now.flagged(wire.ROW_OFFLINE), now.flagged(wire.ROW_SAMPLED)
        wide = now.flagged(wire.ROW_WIDE)
        calm = np.asarray(sampled.all(axis=1) & ~wide.any(axis=1))
        known = np.zeros(read.shape, bool)
        for i, befores in enumerate(known):
            if drop[i]:
                self.known = self.known & False
            befores[:] = self.known
            if hold is not None and not calm[i]:
                read[i] &= ~hold(self.known, sampled[i], now.flags[i])
            self.known = (self.known | read[i]) & ~offline[i]
        return known


def _latest(read: Bools) -> tuple[Ints, Ints]:
    """Places, in what was known before and the frames behind it, of the reading of each row that is
    the latest before and after each frame."""
    count, rows = read.shape
    at = np.where(read, np.arange(1, count + 1)[:, None], 0)
    return np.maximum.accumulate(np.concatenate([np.zeros((1, rows), int), at])), np.arange(rows)
