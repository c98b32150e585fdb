"""A command on a terminal of its own: what it prints comes to us, and what it is to be told goes
through that terminal, which knows what its keys mean."""

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
"""Read before others get their turn."""
PAUSE_S = 0.004
"""Between two such turns: who prints without end is slowed as by any terminal, and the screen is
not."""
LAST_MS, LAST_BYTES = 100, 1 << 18
"""After the end: what is still on its way comes within this, and is less than this. More is of
somebody whom the command has left behind."""
INTERRUPT, QUIT = b"\x03", b"\x1c"
"""What a terminal makes signals of, for whoever is in front there."""


class Console:
    """`job` is held at its gate. To be made before there are threads."""

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
        """Nobody is left who could print."""
        self._following: asyncio.AbstractEventLoop | None = None
        self._done, self._finish = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever is left hears of it, as when the window of a terminal is closed."""
        for fd in (self._ours, self._done, self._finish):
            os.close(fd)
        self.job.drop()

    def resize(self, columns: int, lines: int) -> None:
        """Whoever is in front there is told, if it is news."""
        if min(columns, lines) > 0 and (columns, lines) != self.size:
            self.size = (columns, lines)
            packed = struct.pack("HHHH", lines, columns, 0, 0)
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, packed)

    def type(self, keys: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody reads, and there is no room for more
            os.write(self._ours, keys)

    # --- while there is a screen

    def follow(self, take: Callable[[bytes], None]) -> None:
        """Hand over what is printed, until `leave`."""
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
        """What is there by now, and not too much of it."""
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
        except OSError:  # how a terminal ends
            self.closed = True
            return b""

    # --- when there is none

    def copy(self, to: int, first: bytes = b"") -> None:
        """Hand on what is printed, as it comes, until `finish`. For a thread: a terminal may hold
        up who writes to it."""
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
        """The command has ended: what it has printed is all."""
        os.write(self._finish, b"\n")


def _written(to: int, data: bytes) -> int:
    """Where to write the next: nowhere once that has failed. The command is not to notice."""
    try:
        while data and to >= 0:
            data = data[os.write(to, data) :]
    except OSError:
        return -1
    return to
