"""A command on a terminal of its own. We read what it prints. We send keys through the terminal,
which turns some of them into signals."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import struct
import termios
from collections.abc import Callable, Sequence
from typing import Self

from perftop.base.errors import Failed
from perftop.process.job import Job

READ_BYTES = 1 << 16
AT_ONCE_BYTES = 1 << 17
"""Bytes read in one turn, before the event loop continues."""
PAUSE_S = 0.004
"""Pause between two such turns: it slows a program that prints without end, as any terminal does,
and not the screen."""
LAST_MS, LAST_BYTES = 100, 1 << 18
"""Limits in ms and bytes for output after the command's end. More output comes from a process that
the command left behind."""
INTERRUPT, QUIT = b"\x03", b"\x1c"
"""Keys that a terminal turns into signals for its foreground processes."""


class Console:
    """A terminal with its `job`, which is held at its gate. It must be made before there are
    threads."""

    def __init__(self, argv: Sequence[str], columns: int, lines: int) -> None:
        try:
            self._ours, theirs = os.openpty()
        except OSError as error:
            raise Failed(f"there is no terminal for the command: {error.strerror}") from None
        os.set_blocking(self._ours, False)
        self.size = (0, 0)
        self.resize(columns, lines)
        self.job = Job(argv, theirs)
        os.close(theirs)
        self.closed = False
        """No process is left that could print."""
        self._following: asyncio.AbstractEventLoop | None = None
        self._done, self._finish = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the terminal; processes left on it get a hangup, as when a terminal window is
        closed."""
        for fd in (self._ours, self._done, self._finish):
            os.close(fd)
        self.job.drop()

    def resize(self, columns: int, lines: int) -> None:
        """Set the size; the foreground processes get a signal if it changed."""
        if min(columns, lines) > 0 and (columns, lines) != self.size:
            self.size = (columns, lines)
            packed = struct.pack("HHHH", lines, columns, 0, 0)
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, packed)

    def type(self, keys: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody reads, and the buffer is full
            os.write(self._ours, keys)

    # --- while there is a screen

    def follow(self, take: Callable[[bytes], None]) -> None:
        """Pass what is printed to `take`, until `leave`."""
        self._following = loop = asyncio.get_running_loop()
        loop.add_reader(self._ours, self._turn, take)

    def leave(self) -> None:
        if self._following is not None:
            self._following.remove_reader(self._ours)
            self._following = None

    def _turn(self, take: Callable[[bytes], None]) -> None:
        loop = self._following
        assert loop is not None
        loop.remove_reader(self._ours)
        take(self.read())
        if not self.closed:
            loop.call_later(PAUSE_S, self._again, take)

    def _again(self, take: Callable[[bytes], None]) -> None:
        if self._following is not None:
            self.follow(take)

    def read(self) -> bytes:
        """What was printed since the last read, up to about AT_ONCE_BYTES."""
        parts, size = [], 0
        while size < AT_ONCE_BYTES and (data := self._piece()):
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def _piece(self) -> bytes:
        try:
            return os.read(self._ours, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:  # a terminal without processes gives an error
            self.closed = True
            return b""

    # --- when there is none

    def copy(self, to: int, first: bytes = b"") -> None:
        """Write `first` and then all that is printed to the descriptor `to`, until `finish`. Run it
        in a thread, because writes to a terminal may block."""
        to = _written(to, first)
        wait = select.poll()
        wait.register(self._ours, select.POLLIN)
        wait.register(self._done, select.POLLIN)
        while not self.closed and all(fd != self._done for fd, _ in wait.poll()):
            to = _written(to, self.read())
        wait.unregister(self._done)
        size = 0
        while not self.closed and size < LAST_BYTES and wait.poll(LAST_MS):
            data = self.read()
            size += len(data)
            to = _written(to, data)

    def finish(self) -> None:
        """Tell `copy` that the command has ended."""
        os.write(self._finish, b"\n")


def _written(to: int, data: bytes) -> int:
    """Write data; return the descriptor for the next write, -1 after a failure. The command must
    not notice a failure."""
    try:
        while data and to >= 0:
            data = data[os.write(to, data) :]
    except OSError:
        return -1
    return to
