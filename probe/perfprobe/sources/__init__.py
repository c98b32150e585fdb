"""Where counters come from. Each source yields raw frames; none computes a rate."""

from __future__ import annotations

from typing import Protocol

from perfprobe.wire import Frame, Hello, Note


class Source(Protocol):
    """A machine being read. Not thread-safe; one reader drives it."""

    @property
    def hello(self) -> Hello: ...

    def due(self) -> float | None:
        """CLOCK_MONOTONIC seconds when `poll` will next be worth a call; None: always (a
        simulation that runs faster than time, paced by its reader alone)."""

    def poll(self) -> list[Frame | Note]:
        """What is ready by now, oldest first. Never blocks."""

    def close(self) -> None:
        """Stop reading and give back what was taken. May be called twice."""
