"""Marks that a command sets itself, with `perftop mark NAME`.

The command inherits the address of a socket in its environment. The socket has a random abstract
name instead of a path, so no file is left behind. All users can list abstract names, so only
messages of our own user and of root are accepted. The name contains our user ID, so that
`perftop mark` of another user fails with a message instead of setting no mark silently.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator

from perftop.base.errors import Failed, cannot

SOCKET_VARIABLE = "PERFTOP_MARKS"
MAX_BYTES = 256
"""Maximum size of a message in bytes: the raw time of the mark, then its name, which is cut if it
is too long. The sender sets the time, because a busy perftop may read the message late."""
MAX_PENDING = 1024
"""Maximum number of marks between two samples; further ones are lost."""
SEND_TIMEOUT_S = 1.0
"""Maximum time in s that a mark delays a command while perftop is stopped."""
_TIME = struct.Struct("=q")
_CREDENTIALS = struct.Struct("=3i")
"""PID, user and group of a sender."""


class MarkSocket:
    """Receives the marks. If no socket can be made, it receives none."""

    def __init__(self) -> None:
        self.address = f"perftop-{os.getuid()}-{os.urandom(16).hex()}"
        self._pending: list[tuple[int, str]] = []
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(f"\0{self.address}")
        except OSError:  # refused by a sandbox: the command runs without marks
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    __del__ = close

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that the command needs to set marks."""
        return {} if self._socket is None else {SOCKET_VARIABLE: self.address}

    def fileno(self) -> int:
        """Returns the descriptor that is readable when a mark arrives; -1: there is none."""
        return -1 if self._socket is None else self._socket.fileno()

    def new_marks(self) -> list[tuple[int, str]]:
        """Returns the marks that have arrived since the last call: raw time in ns, and name."""
        self.collect()
        arrived, self._pending = self._pending, []
        return arrived

    def collect(self) -> None:
        """Read marks as they arrive, since the kernel holds few, and a command that sets one more
        waits for us."""
        for mark in self._messages():
            if len(self._pending) < MAX_PENDING:
                self._pending.append(mark)

    def _messages(self) -> Iterator[tuple[int, str]]:
        while self._socket is not None:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(MAX_BYTES, socket.CMSG_SPACE(64))
            except OSError:  # no message is waiting
                return
            credentials = socket.SOL_SOCKET, socket.SCM_CREDENTIALS
            users = [
                _CREDENTIALS.unpack_from(sender)[1] for *kind, sender in ancillary
                if tuple(kind) == credentials
            ]  # fmt: skip
            if users and users[0] in {0, os.getuid()} and len(data) >= _TIME.size:
                name = data[_TIME.size :].decode(errors="replace")
                yield _TIME.unpack_from(data)[0], name or "no name"


def send(name: str) -> None:
    """Sets a mark in the measurement around this process. Raises Failed."""
    address = os.environ.get(SOCKET_VARIABLE)
    if not address:
        raise Failed(
            f"no mark is set: {SOCKET_VARIABLE} is not set, so no perftop runs this command; "
            "start it with perftop record -- CMD, or stat, why"
        )
    owner = address.split("-")[1:2]
    if owner and os.getuid() not in {0, *map(int, filter(str.isdecimal, owner))}:
        raise Failed("no mark is set: another user's perftop runs this command")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(SEND_TIMEOUT_S)
            time_bytes = _TIME.pack(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))
            sender.sendto((time_bytes + name.encode(errors="replace"))[:MAX_BYTES], f"\0{address}")
    except ConnectionRefusedError:
        raise Failed("no mark is set: the perftop that ran this command has ended") from None
    except TimeoutError:
        raise Failed("no mark is set: perftop does not answer") from None
    except OSError as error:
        raise Failed(f"no mark is set: {cannot('reach perftop', error)}") from None
