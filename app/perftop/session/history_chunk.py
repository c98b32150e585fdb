"""Samples in a row as history keeps them: packed messages, the trail of what they showed, and the
state in which the stream was read before them, so that nothing older is needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from perfprobe import wire
from perftop.model.sample_reader import ReaderState
from perftop.session.frame_packing import Packer
from perftop.session.sample_history import Times, Trail

OVERHEAD = 5_500
"""Bytes of objects and array heads in a chunk, beyond their content."""
WAITING, WAITING_BYTES = 32, 1 << 16
"""Frames, and their bytes, that wait at most for those of the next batch, because packing many
costs little more than packing one."""
FRAME_OVERHEAD, ROWS_OVERHEAD = 500, 170
"""Bytes of the objects of a frame, and of each of its blocks, beyond their content."""


class Chunk:
    """A chunk. Frames that have just come wait in it, and are packed together."""

    __slots__ = (
        "_bytes", "_most_waiting", "_waiting", "_waiting_bytes", "before_ns", "first_ns", "last_ns",
        "messages", "packer", "state", "trail",
    )  # fmt: skip

    def __init__(
        self, state: ReaderState, before_ns: int, trail: Trail, packer: Packer, waiting_bytes: int
    ) -> None:
        """`waiting_bytes`: upper bound of the frames that are not packed yet."""
        self.state = state
        self.before_ns = before_ns
        """When the first of its samples began."""
        self.trail = trail
        self.messages: list[bytes] = []
        """Packed."""
        self.packer: Packer | None = packer
        """None: nothing can be added any more."""
        self._waiting: list[wire.Frame] = []
        """Frames that come behind them and are not packed yet."""
        self._waiting_bytes, self._most_waiting = 0, waiting_bytes
        self.first_ns, self.last_ns = sys.maxsize, 0
        """Times of its first and its last message."""
        self._bytes = state.nbytes + trail.nbytes + OVERHEAD

    @property
    def nbytes(self) -> int:
        return self._bytes + self._waiting_bytes

    def keep(self, message: wire.Frame | wire.Note) -> None:
        self.first_ns = min(self.first_ns, message.time_ns)
        self.last_ns = max(self.last_ns, message.time_ns)
        if isinstance(message, wire.Note):
            self.settle()
            assert self.packer is not None
            self._take([self.packer.pack(message)])
            return
        self._waiting.append(message)
        self._waiting_bytes += FRAME_OVERHEAD + sum(
            ROWS_OVERHEAD + len(rows.head) + len(rows.valid) + len(rows.values)
            for rows in message.blocks.values()
        )
        if self._waiting_bytes >= self._most_waiting:
            self.settle()

    def settle_many(self) -> None:
        """Packs what waits, if it is worth it."""
        if len(self._waiting) >= WAITING or self._waiting_bytes >= WAITING_BYTES:
            self.settle()

    def settle(self) -> None:
        """Packs what waits."""
        if self._waiting:
            assert self.packer is not None
            self._take(self.packer.packs(self._waiting))
            self._waiting, self._waiting_bytes = [], 0

    def seal(self) -> None:
        """Packs what waits; nothing is added any more."""
        self.settle()
        self.packer = None

    def _take(self, packed: Sequence[bytes]) -> None:
        self.messages += packed
        self._bytes += sum(sys.getsizeof(data) + 8 for data in packed)

    @property
    def end_ns(self) -> int:
        return int(self.trail.ends[-1]) if self.trail.count else self.before_ns

    def moments(self) -> Times:
        """When its first sample began, and each ended."""
        return np.concatenate([np.array([self.before_ns], np.int64), self.trail.ends])
