"""A stream that somebody serves on this machine, in the place of a probe of our own. Nothing is
written to it: it takes no orders."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from perftop.base.errors import UNAVAILABLE, USAGE, Failed
from perftop.process.ssh import Broken

if TYPE_CHECKING:
    from perftop.process.link import Link

SCHEME = "unix:"
CONNECT_S = 5.0


def path_of(address: str) -> str:
    """The path in `unix:PATH`. Raises Failed."""
    path = address.removeprefix(SCHEME)
    if not address.startswith(SCHEME) or not path or "\0" in path:
        raise Failed(f"{address}: is no address; readers are served at unix:PATH", USAGE)
    return path


class SocketProbe:
    def __init__(self, address: str) -> None:
        self.place = address
        self.link: Link | None = None
        self.told = False
        self._path = path_of(address)
        self.again()

    @property
    def stdout(self) -> socket.socket:
        return self._socket

    def again(self) -> None:
        """Connects, anew if the connection has ended."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_S)
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self._socket.close()
            raise Failed(f"{self.place}: {_why(error)}", UNAVAILABLE) from None

    def pace(self, batch_ns: int) -> None:
        """Others read it, too."""

    def echo(self, number: int) -> None: ...

    def ended(self, cut: int = 0) -> Failed:
        inside = f", {cut} bytes into a message" if cut else ""
        text = f"the server has ended, has all readers it takes, or lets only others in{inside}"
        return Broken(f"{self.place}: {text}", UNAVAILABLE)

    def end(self) -> None:
        with suppress(OSError):
            self._socket.close()


def _why(error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "there is no such socket; to make one: perftop serve --socket PATH"
        case ConnectionRefusedError():
            return "nobody serves there any more; to do it: perftop serve --socket PATH"
        case PermissionError():
            return "no right to read it: whoever serves it may name your group, serve --group NAME"
        case _:
            return error.strerror or str(error)
