"""Sockets that listen: handed over by the service manager, or made at a path; and who is at the
other end of one."""

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
from perftop.base.own_directory import Untrusted, closed, parent

FIRST_FD, MOST_FDS = 3, 8
"""sd_listen_fds(3): the number of the first socket that is handed over; how many are taken."""
SO_PEERGROUPS = 59
BACKLOG = 128
"""Connections that the kernel holds until they are taken."""
MENDS = {
    errno.EADDRINUSE: "another program listens there: end it, or give another place",
    errno.EADDRNOTAVAIL: "no interface here has that address",
    errno.EACCES: "no right to it: a port from 1024 on, or a directory of your own",
    errno.EPERM: "no right to it: a port from 1024 on, or a directory of your own",
    errno.ENOENT: "make its directory first",
}
_CREDENTIALS = struct.Struct("3i")


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


def handed_over() -> socket.socket | None:
    """The one unix socket that the service manager hands over; None: it hands over nothing."""
    found = inherited()
    if len(found) > 1 or any(one.family != socket.AF_UNIX for one in found):
        raise Failed("systemd hands over something else than one unix socket", USAGE)
    return found[0] if found else None


@contextlib.contextmanager
def at_path(path: Path, group: int | None = None) -> Iterator[socket.socket]:
    """A socket for its owner alone, or for a group as well. It is removed at the end. Raises Failed
    if one lies there that somebody listens on, or what is no socket."""
    where = f"unix:{path}"
    with contextlib.ExitStack() as stack:
        try:
            at, name = stack.enter_context(parent(path))
            if not closed(at, sticky=True):
                raise Untrusted("another user can replace it there; use a directory of your own")
            _clear(at, name, where)
        except OSError as error:
            raise refused(where, error) from None
        one = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)  # from the first moment on for its owner alone
        try:
            bound(one, str(path), where)
        finally:
            os.umask(before)
        stack.enter_context(one)
        try:
            # bind takes a path, which may lead elsewhere by now. But nobody else can put a socket
            # of ours into this directory, and what is changed is the inode that was checked.
            inode = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            stack.callback(os.close, inode)
            ours = os.fstat(inode)
            if not stat.S_ISSOCK(ours.st_mode) or ours.st_uid != os.geteuid():
                raise Untrusted("another user replaced its directory; use a directory of your own")
            stack.callback(_remove, at, name, ours)
            if group is not None:
                os.chown(f"/proc/self/fd/{inode}", -1, group)
                os.chmod(f"/proc/self/fd/{inode}", 0o660)  # noqa: PTH101 - beside chown
        except OSError as error:
            raise refused(where, error) from None
        yield one


def _remove(at: int, name: str, ours: os.stat_result) -> None:
    with contextlib.suppress(OSError):  # another may have taken its place
        if os.path.samestat(ours, os.stat(name, dir_fd=at, follow_symlinks=False)):
            os.unlink(name, dir_fd=at)


def _clear(at: int, name: str, where: str) -> None:
    """Removes a socket that nobody listens on, as a killed program leaves it."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            raise Failed(f"cannot listen on {where}: it is there already, and no socket")
        with socket.socket(socket.AF_UNIX) as test:
            test.setblocking(False)
            refuses = test.connect_ex(f"/proc/self/fd/{at}/{name}") == errno.ECONNREFUSED
        if refuses:
            os.unlink(name, dir_fd=at)


def bound(one: socket.socket, address: str | tuple[object, ...], where: str) -> None:
    """Makes a new socket listen. Raises Failed, and closes it."""
    try:
        one.bind(address)
        one.listen(BACKLOG)
        one.setblocking(False)
    except OSError as error:
        one.close()
        raise refused(where, error) from None


def refused(where: str, error: Exception) -> Failed:
    number = error.errno if isinstance(error, OSError) else None
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    mend = MENDS.get(number or 0)
    return Failed(f"cannot listen on {where}: {why}" + (f"; {mend}" if mend else ""))


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
