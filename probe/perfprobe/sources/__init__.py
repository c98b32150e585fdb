"""Sources of counters. Each yields raw frames and computes no rates."""

from __future__ import annotations

from typing import Protocol

from perfprobe.wire import Frame, Hello, Note


class Source(Protocol):
    """A machine being read. Not thread-safe; one reader drives it."""

    @property
    def hello(self) -> Hello: ...

    def due(self) -> float | None:
        """CLOCK_MONOTONIC seconds at which `poll` should be called next; None: at any time (a
        simulation that runs faster than time, paced by its reader)."""

    def poll(self) -> list[Frame | Note]:
        """What is ready by now, oldest first. Never blocks."""

    def pace(self, batch_ns: int) -> None:
        """From now on `poll` is due once in this time, bounded to what is possible, and its last
        frame has the blocks that are read once a batch. Before the first call it is due at every
        sample."""

    def close(self) -> None:
        """Stops reading and restores what was changed. May be called twice."""
