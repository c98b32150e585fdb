"""Sockets to listen on: given by the service manager, or opened as asked for."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from perftop.base.errors import USAGE, Failed
from perftop.process.unix_socket import at_path, bound, inherited, refused

USUAL = "127.0.0.1:9917"
UNIX = "unix:"


@contextlib.contextmanager
def listening(asked: str | None) -> Iterator[list[socket.socket]]:
    """Sockets that listen, those that are handed over if nothing was asked for. Connections wait in
    them until somebody takes them. A unix socket is removed at the end."""
    with contextlib.ExitStack() as stack:
        sockets = inherited() if asked is None else []
        if not sockets:
            where = USUAL if asked is None else asked
            path = Path(where.removeprefix(UNIX)) if where.startswith(UNIX) else None
            sockets = [_at(where) if path is None else stack.enter_context(at_path(path))]
        for one in sockets:
            stack.enter_context(one)
        yield sockets


def told(one: socket.socket) -> str:
    """How somebody reaches it."""
    if one.family == socket.AF_UNIX:
        return f"{UNIX}{one.getsockname()}"
    host, port = one.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def public(one: socket.socket) -> bool:
    """Whether other machines may reach it."""
    host = "" if one.family == socket.AF_UNIX else one.getsockname()[0]
    return bool(host) and not (host.startswith("127.") or host == "::1")


def _at(where: str) -> socket.socket:
    host, colon, port = where.rpartition(":")
    good = colon and host and port.isascii() and port.isdigit() and int(port[:6]) < 1 << 16
    if not good or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        text = f"--listen {where}: no HOST:PORT, [HOST]:PORT or unix:PATH, such as {USUAL}"
        raise Failed(text, USAGE)
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        one = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise refused(where, error) from None
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound(one, address, where)
    return one
