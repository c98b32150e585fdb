"""Sources of counters. Each source yields raw frames and computes no rates."""

from __future__ import annotations

from typing import Protocol

from perfprobe.wire import Frame, Hello, Note


class Source(Protocol):
    """A real or simulated machine that is being sampled. A source is not thread-safe."""

    @property
    def hello(self) -> Hello: ...

    def due_s(self) -> float | None:
        """Returns the time in s of CLOCK_MONOTONIC at which `poll` should be called next; None: at
        any time (a simulation that runs as fast as its reader)."""

    def poll(self) -> list[Frame | Note]:
        """Returns the frames and notes that are ready, oldest first. Never blocks."""

    def set_batch_length(self, batch_ns: int) -> None:
        """Sets the time between two calls of `poll`, within bounds of the source (by default one
        sample); the last frame of a poll has the blocks that are read once a batch."""

    def close(self) -> None:
        """Stops sampling and restores changed MSRs. May be called twice."""
