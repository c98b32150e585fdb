"""A unix socket for readers on this machine: made, taken over from systemd, given back; and who is
at the other end."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from perftop.base.errors import USAGE, Failed

FIRST_FD = 3
"""The first descriptor that systemd hands over."""
SO_PEERGROUPS = 59
WAITING = 64
"""Readers that may wait to be let in."""
_CREDENTIALS = struct.Struct("3i")


@contextlib.contextmanager
def listening(path: Path | None, group: int | None) -> Iterator[socket.socket]:
    """The socket to listen on: systemd's if it has one for us, else one at `path`, for us alone or
    for a group as well. Raises Failed."""
    given = _given()
    if given is not None:
        with given:
            yield given
        return
    if path is None:
        raise Failed("serve: say where by --socket PATH, or let systemd hand over a socket", USAGE)
    with _made(path, group) as made:
        ours = path.lstat()
        try:
            yield made
        finally:
            with contextlib.suppress(OSError):  # somebody else's lies there, or nothing
                if os.path.samestat(ours, path.lstat()):
                    path.unlink()


def _given() -> socket.socket | None:
    """A listening socket from the service manager; None: there is none for this process."""
    pid, count = (os.environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS"))
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return None
    if count != "1":
        raise Failed(f"serve: systemd hands over {count} sockets, and one is needed", USAGE)
    os.set_inheritable(FIRST_FD, False)
    given = socket.socket(fileno=FIRST_FD)
    kind = given.family, given.type, given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if kind != (socket.AF_UNIX, socket.SOCK_STREAM, 1):
        raise Failed("serve: systemd hands over what is no listening unix stream socket", USAGE)
    return given


def _made(path: Path, group: int | None) -> socket.socket:
    _clear(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mask = os.umask(0o177)  # it must not be open to others for a moment
        try:
            made.bind(str(path))
        finally:
            os.umask(mask)
        if group is not None:
            os.chown(path, -1, group)
            path.chmod(0o660)
        made.listen(WAITING)
    except OSError as error:
        made.close()
        raise Failed(f"cannot listen at {path}: {error.strerror or error}") from None
    return made


def _clear(path: Path) -> None:
    """Removes a socket that nobody listens to any more. Raises Failed for all else that is
    there."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise Failed(f"{path} is there, and is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as test:
            test.settimeout(1)
            found = test.connect_ex(str(path))
        if found != errno.ECONNREFUSED:
            raise Failed(f"somebody serves at {path} already: perftop attach unix:{path}")
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise Failed(f"cannot listen at {path}: {error.strerror or error}") from None


def group_id(name: str) -> int:
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise Failed(f"--group {name}: there is no such group", USAGE) from None


def may_read(peer: socket.socket, group: int | None) -> bool:
    """Whether the process at the other end is root's, ours, or in the group. The kernel says who it
    was when it connected."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, gid = _CREDENTIALS.unpack(packed)
    if uid in {0, os.geteuid()}:
        return True
    return group is not None and group in {gid, *_groups(peer)}


def _groups(peer: socket.socket) -> list[int]:
    with contextlib.suppress(OSError):  # in more than 1024, or an older kernel
        packed = peer.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4096)
        return list(struct.unpack(f"{len(packed) // 4}I", packed))
    return []
