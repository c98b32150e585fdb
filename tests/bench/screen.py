"""A perftop on a terminal of its own, whose picture is text that can be searched."""

from __future__ import annotations

import os
import re
import signal
import time
from types import TracebackType
from typing import Self

import terminal

SIZE = (120, 40)
LIMIT_S = 30.0
_ESCAPES = re.compile(rb"\x1b\][^\x07]*\x07|\x1b[\[(][0-9;?<>=]*[ -/]*[@-~]?|[\x00-\x09\x0b-\x1f]")


class Screen:
    """The program has ended when the block is left, whatever happens in it."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.fd = terminal.start(argv, *SIZE)
        self.raw = b""
        self.status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def drain(self, seconds: float) -> int:
        """Reads what it draws, for so long; how many bytes."""
        data = terminal.drained(self.fd, seconds)
        self.raw += data
        return len(data)

    def text(self) -> str:
        """All it has drawn so far, without colours and positions."""
        return _ESCAPES.sub(b"", self.raw).decode(errors="replace")

    def sees(self, *words: str) -> bool:
        """Waits until one of them has been drawn."""
        end_s = time.monotonic() + LIMIT_S
        while not any(word in self.text() for word in words):
            if time.monotonic() > end_s or (not self.drain(0.1) and self.gone()):
                return False
        return True

    def draws(self, count: int = 1000) -> bool:
        """Waits until it has drawn so many bytes more."""
        wanted, end_s = len(self.raw) + count, time.monotonic() + LIMIT_S
        while len(self.raw) < wanted and time.monotonic() < end_s:
            if not self.drain(0.1) and self.gone():
                break
        return len(self.raw) >= wanted

    def gone(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def quit(self) -> int:
        """Its status after q; -9 if it does not end."""
        self.raw = b""
        if not self.gone():
            self.type("q")
        end_s = time.monotonic() + LIMIT_S
        while not self.gone() and time.monotonic() < end_s:
            self.drain(0.1)
        self.drain(0.1)
        return -9 if self.status is None else self.status
