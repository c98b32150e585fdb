"""How far an export has come, for who waits at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Self, TextIO

QUIET_S = 2.0
"""Before that nobody has begun to wonder."""
EVERY_S = 0.2
WIDTH = 30


class Progress:
    """One line, drawn again in place."""

    def __init__(
        self, out: TextIO | None, size: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`out`: None where nobody looks. `size` in bytes; None: nobody knows it."""
        self._out, self._size, self._clock = out, size, clock
        self._due_s = clock() + QUIET_S
        self._drawn = False

    @classmethod
    def on_terminal(cls, size: int | None, out: BinaryIO) -> Self:
        """On stderr if that is a terminal, and what is exported does not go to one, too."""
        alone = sys.stderr is not None and sys.stderr.isatty() and not out.isatty()
        return cls(sys.stderr if alone else None, size)

    def show(self, done: int) -> None:
        """So many bytes were read."""
        if self._out is None or self._clock() < self._due_s:
            return
        self._due_s = self._clock() + EVERY_S
        self._drawn = True
        self._out.write(f"\r{self._text(done)}")
        self._out.flush()

    def clear(self) -> None:
        if self._drawn and self._out is not None:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _text(self, done: int) -> str:
        if not self._size:
            return f"{done / 1e6:.0f} MB read"
        share = min(1.0, done / self._size)
        return f"[{'#' * int(WIDTH * share):<{WIDTH}}] {share:4.0%}"
