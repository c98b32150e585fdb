"""Sources of counters. Each source yields raw frames and computes no rates."""

from __future__ import annotations

from typing import Protocol

from perfprobe.wire import Frame, Hello, Note


class Source(Protocol):
    """A machine that is being read. A source is not thread-safe; one reader drives it."""

    @property
    def hello(self) -> Hello: ...

    def due(self) -> float | None:
        """Returns the time in s of CLOCK_MONOTONIC at which `poll` should be called next; None: at
        any time (a simulation that runs faster than time, paced by its reader)."""

    def poll(self) -> list[Frame | Note]:
        """Returns the frames and notes that are ready, oldest first. Never blocks."""

    def pace(self, batch_ns: int) -> None:
        """Makes `poll` due once in this time, within possible bounds; the last frame of a poll has
        the blocks that are read once a batch. Before the first call `poll` is due at every
        sample."""

    def close(self) -> None:
        """Stops reading and restores changed registers. May be called twice."""
