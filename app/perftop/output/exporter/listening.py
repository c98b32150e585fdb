"""Sockets to listen on: given by the service manager, or opened as asked for."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from perftop.base.errors import USAGE, Failed

USUAL = "127.0.0.1:9917"
UNIX = "unix:"
BACKLOG = 128
"""Connections that the kernel holds until they are taken."""
FIRST_FD, MOST_FDS = 3, 8
"""sd_listen_fds(3): the number of the first socket that is handed over; how many are taken."""
MENDS = {
    errno.EADDRINUSE: "another program listens there: end it, or give another with --listen",
    errno.EADDRNOTAVAIL: "no interface here has that address",
    errno.EACCES: "no right to it: a port from 1024 on, or a directory of your own",
    errno.EPERM: "no right to it: a port from 1024 on, or a directory of your own",
    errno.ENOENT: "make its directory first",
}


def inherited() -> list[socket.socket]:
    """The sockets that the service manager listens on for us; none without one. The probe must not
    take them for its own, so the environment forgets them."""
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    found = []
    for fd in range(FIRST_FD, FIRST_FD + min(int(count[:3]), MOST_FDS)):
        try:
            one = socket.socket(fileno=fd)
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise Failed(f"descriptor {fd} of LISTEN_FDS is no socket: {error.strerror}") from None
        if not listens or one.type != socket.SOCK_STREAM:
            raise Failed(f"descriptor {fd} of LISTEN_FDS does not listen for streams")
        os.set_inheritable(fd, False)
        one.setblocking(False)
        found.append(one)
    return found


@contextlib.contextmanager
def listening(asked: str | None) -> Iterator[list[socket.socket]]:
    """Sockets that listen, those that are handed over if nothing was asked for. Connections wait in
    them until somebody takes them. A unix socket is removed at the end."""
    sockets = inherited() if asked is None else []
    path = None
    if not sockets:
        where = USUAL if asked is None else asked
        path = Path(where.removeprefix(UNIX)) if where.startswith(UNIX) else None
        sockets = [_at(where) if path is None else _at_path(path)]
    known = None if path is None else path.stat().st_ino
    try:
        yield sockets
    finally:
        for one in sockets:
            one.close()
        with contextlib.suppress(OSError):  # another may have taken its place
            if path is not None and path.stat().st_ino == known:
                path.unlink()


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
        raise _failed(where, error) from None
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return _bound(one, address, where)


def _at_path(path: Path) -> socket.socket:
    _clear(path)
    one = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)  # from the first moment on for its owner alone
    try:
        return _bound(one, str(path), f"{UNIX}{path}")
    finally:
        os.umask(before)


def _clear(path: Path) -> None:
    """Removes a socket that nobody listens on, as a killed exporter leaves it."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise Failed(f"cannot listen on {UNIX}{path}: it is there already, and no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            refused = probe.connect_ex(str(path)) == errno.ECONNREFUSED
        if refused:
            path.unlink()
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise _failed(f"{UNIX}{path}", error) from None


def _bound(one: socket.socket, address: str | tuple[object, ...], where: str) -> socket.socket:
    try:
        one.bind(address)
        one.listen(BACKLOG)
        one.setblocking(False)
    except OSError as error:
        one.close()
        raise _failed(where, error) from None
    return one


def _failed(where: str, error: Exception) -> Failed:
    number = error.errno if isinstance(error, OSError) else None
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    mend = MENDS.get(number or 0)
    return Failed(f"cannot listen on {where}: {why}" + (f"; {mend}" if mend else ""))
