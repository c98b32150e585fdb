"""Serves a stream, or a page over HTTP, to other programs. Listening sockets are inherited from the
service manager or created at a path. Readers of a stream need permission to read it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import grp
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from perfprobe import wire
from perfprobe.wire.outbox import EndedError, Outbox
from perftop.base.errors import USAGE, Failed
from perftop.base.files import UnsafePath, is_closed_to_others, open_parent
from perftop.base.text import is_digits

FIRST_FD, MAX_FDS = 3, 8
"""The first inherited descriptor, as in sd_listen_fds(3), and the maximum number of descriptors."""
SO_PEERGROUPS = 59
BACKLOG = 128
"""Maximum number of connections that wait in the kernel to be accepted."""
FIXES_BY_ERRNO = {
    errno.EADDRINUSE: "another program listens there: end it, or choose another address",
    errno.EADDRNOTAVAIL: "no interface here has that address",
    errno.ENOENT: "create its directory first",
}
_CREDENTIALS = struct.Struct("3i")
QUEUE_BYTES = 2 << 20
"""Maximum bytes that wait for one reader, in addition to those in its socket."""
MAX_READERS = 64
MAX_GROUP_ID = (1 << 32) - 2
"""Maximum ID of a group: the kernel uses the next number for "no change"."""
STATE_KINDS = ("taken", "given-back")
"""Kinds of notes that describe a state, so that readers that connect later need them, too."""
MAX_STATE_NOTES = 4096


def inherited_sockets() -> list[socket.socket]:
    """Returns the listening sockets inherited from the service manager, and removes their variables
    from the environment, so that the probe does not use them. Raises Failed."""
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return []
    sockets = []
    for fd in range(FIRST_FD, FIRST_FD + min(int(count[:3]), MAX_FDS)):
        try:
            sock = socket.socket(fileno=fd)
            listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            text = f"descriptor {fd} of LISTEN_FDS is not a socket: {error.strerror}"
            raise Failed(text) from None
        if not listens or sock.type != socket.SOCK_STREAM:
            raise Failed(f"descriptor {fd} of LISTEN_FDS is not a listening stream socket")
        os.set_inheritable(fd, False)
        sock.setblocking(False)
        sockets.append(sock)
    return sockets


def inherited_unix_socket() -> socket.socket | None:
    """Returns the unix socket inherited from the service manager, if any. Raises Failed."""
    sockets = inherited_sockets()
    if len(sockets) > 1 or any(sock.family != socket.AF_UNIX for sock in sockets):
        raise Failed("systemd passed something other than one unix socket", USAGE)
    return sockets[0] if sockets else None


@contextlib.contextmanager
def listening_socket(path: Path, group: int | None = None) -> Iterator[socket.socket]:
    """Provides a new listening socket for its owner only, or also for a group, and removes it at
    the end of the block. Raises Failed if another program listens at the path, or if a file of
    another kind is there."""
    address = f"unix:{path}"
    with contextlib.ExitStack() as stack:
        try:
            directory_fd, name = stack.enter_context(open_parent(path))
            if not is_closed_to_others(directory_fd, sticky=True):
                raise UnsafePath("another user could replace it there; use a directory of your own")
            _remove_stale(directory_fd, name, address)
        except OSError as error:
            raise failure_to_listen(address, error) from None
        sock = socket.socket(socket.AF_UNIX)
        old_umask = os.umask(0o177)  # until the chmod, only its owner may connect
        try:
            start_listening(sock, str(path), address)
        finally:
            os.umask(old_umask)
        stack.enter_context(sock)
        try:
            # bind resolves the path again, which may have changed. But no other user can put a
            # socket of ours into this directory, and only the checked inode is changed.
            inode = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
            stack.callback(os.close, inode)
            own_status = os.fstat(inode)
            if not stat.S_ISSOCK(own_status.st_mode) or own_status.st_uid != os.geteuid():
                raise UnsafePath("another user replaced its directory; use a directory of your own")

            def remove() -> None:
                with contextlib.suppress(OSError):  # the socket may have been replaced
                    status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
                    if os.path.samestat(own_status, status):
                        os.unlink(name, dir_fd=directory_fd)

            stack.callback(remove)
            if group is not None:
                os.chown(f"/proc/self/fd/{inode}", -1, group)
                os.chmod(f"/proc/self/fd/{inode}", 0o660)  # noqa: PTH101 - beside chown
        except OSError as error:
            raise failure_to_listen(address, error) from None
        yield sock


def _remove_stale(directory_fd: int, name: str, address: str) -> None:
    """Removes a socket without a listener, which is left if a program is killed."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
            raise Failed(f"cannot listen on {address}: the file exists and is not a socket")
        with socket.socket(socket.AF_UNIX) as test:
            test.setblocking(False)
            refused = test.connect_ex(f"/proc/self/fd/{directory_fd}/{name}") == errno.ECONNREFUSED
        if refused:
            os.unlink(name, dir_fd=directory_fd)


def start_listening(sock: socket.socket, address: str | tuple[object, ...], name: str) -> None:
    """Makes a new socket listen; if that fails, closes the socket and raises Failed."""
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise failure_to_listen(name, error) from None


def failure_to_listen(address: str, error: Exception) -> Failed:
    number = error.errno if isinstance(error, OSError) else None
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    fix = FIXES_BY_ERRNO.get(number or 0)
    if number in {errno.EACCES, errno.EPERM}:
        is_path = address.startswith("unix:")
        fix = "use a directory of your own" if is_path else "use a port from 1024 on"
    return Failed(f"cannot listen on {address}: {reason}" + (f"; {fix}" if fix else ""))


def group_id(name: str) -> int:
    with contextlib.suppress(KeyError):
        number = int(name[:20]) if is_digits(name) else grp.getgrnam(name).gr_gid
        if number <= MAX_GROUP_ID:
            return number
    raise Failed(f"--group {name}: no such group", USAGE)


def may_read(peer: socket.socket, group: int | None) -> bool:
    """Returns whether the peer connected as root, as our user or as a member of the group."""
    packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, gid = _CREDENTIALS.unpack(packed)
    if uid in {0, os.geteuid()}:
        return True
    return group is not None and group in {gid, *_peer_groups(peer)}


def _peer_groups(peer: socket.socket) -> list[int]:
    # fails if the peer is in more than 1024 groups, or on an old kernel
    with contextlib.suppress(OSError):
        packed = peer.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4096)
        return list(struct.unpack(f"{len(packed) // 4}I", packed))
    return []


class Readers:
    """The readers of one stream, each with its own queue. A slow reader loses frames, without
    slowing down the others; the frames that it gets contain the number of lost ones. Nothing is
    read from readers. Used in one event loop only."""

    def __init__(self) -> None:
        self._outboxes: dict[socket.socket, Outbox] = {}
        self._hello: wire.Hello | None = None
        self._topology: dict[int, wire.Cpu] = {}
        """The current topology row of each CPU."""
        self._state: list[wire.Note] = []
        self._now_ns, self._slept = 0, False
        """Raw time of the newest frame, and whether the machine was suspended after hello."""
        self._last_encoded: tuple[wire.Message, bytes] | None = None
        """The newest message and its encoding, which is usually the same for all readers."""
        self.has_readers, self.has_none = asyncio.Event(), asyncio.Event()
        """Set while there are readers, and while there are none."""
        self.has_none.set()

    def __len__(self) -> int:
        return len(self._outboxes)

    def admit(self, peer: socket.socket) -> bool:
        """Adds a reader, which always gets a hello first. Returns False if there are too many
        readers."""
        if len(self) >= MAX_READERS:
            return False
        peer.shutdown(socket.SHUT_RD)  # anything that the reader sends is ignored
        outbox = Outbox(peer.fileno(), QUEUE_BYTES, self._encode_once)
        self._outboxes[peer] = outbox
        if self._hello is not None:
            hello = replace(self._hello, topology=list(self._topology.values()))
            past_ns = self._now_ns - hello.raw_ns
            # If the machine was suspended, the times stay those of the first hello: frames count
            # suspended time from there on.
            if past_ns > 0 and not self._slept:
                wall_ns = hello.wall_ns + past_ns
                hello = replace(hello, raw_ns=self._now_ns, wall_ns=wall_ns, tsc=None)
            outbox.put(hello)
            for note in self._state:
                outbox.put(replace(note, time_ns=max(note.time_ns, self._now_ns)))
            self._flush(peer, outbox)
        self.has_readers.set()
        self.has_none.clear()
        return True

    def send(self, message: wire.Message) -> None:
        if isinstance(message, wire.Hello):
            self._hello, self._state = message, []
            self._topology = {row.cpu: row for row in message.topology}
            self._now_ns, self._slept = message.raw_ns, False
        elif isinstance(message, wire.Frame):
            self._now_ns = message.time_ns
            self._slept |= "asleep_ns" in message.records
        elif isinstance(message, wire.Note) and message.kind == "hotplug":
            wire.apply_hotplug(self._topology, message)
        elif isinstance(message, wire.Note) and message.kind in STATE_KINDS:
            self._state = [*self._state, message][-MAX_STATE_NOTES:]
        if self._hello is None:
            return
        for peer, outbox in list(self._outboxes.items()):
            outbox.put(message)
            self._flush(peer, outbox)

    def end_stream(self) -> None:
        """Ends the stream. Further messages are dropped until the next hello."""
        self._hello = None

    def close(self) -> None:
        for peer in list(self._outboxes):
            self._forget(peer)

    def _encode_once(self, message: wire.Message) -> bytes:
        if self._last_encoded is None or self._last_encoded[0] is not message:
            self._last_encoded = message, wire.encode(message)
        return self._last_encoded[1]

    def _flush(self, peer: socket.socket, outbox: Outbox) -> None:
        loop = asyncio.get_running_loop()
        try:
            outbox.flush()
        except EndedError:
            self._forget(peer)
            return
        if outbox:  # the reader is slow
            loop.add_writer(peer, self._flush, peer, outbox)
        else:
            loop.remove_writer(peer)

    def _forget(self, peer: socket.socket) -> None:
        asyncio.get_running_loop().remove_writer(peer)
        with contextlib.suppress(KeyError):
            del self._outboxes[peer]
        peer.close()
        if not self._outboxes:
            self.has_readers.clear()
            self.has_none.set()


# --- A small HTTP/1.1 server for one page. The number of connections, the size of a request and its
# duration are limited, the response is built once per sample, and a connection serves one request.
# The server runs in the event loop that reads the probe. An iteration of the loop handles each
# connection at most once, so the probe never waits long.

MAX_CONNECTIONS = 32
"""Maximum number of open connections. One more replaces the oldest idle one."""
MAX_REQUEST_BYTES = 8192
MAX_DISCARDED_BYTES = 1 << 16
"""Maximum bytes after the request that are read and discarded. Closing a connection with unread
bytes would reset it, and the client might lose the response."""
TIMEOUT_S = 10.0
"""Maximum seconds until the request has arrived, and then until the client has read the
response."""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
HTML = "text/html; charset=utf-8"
INDEX = b'<!DOCTYPE html><title>perftop</title><p><a href="/metrics">metrics</a>\n'

RenderPage = Callable[[bool], bytes | None]
"""Returns the page, in OpenMetrics (True) or in the older text format; None if there is none."""


class HttpResponse(NamedTuple):
    status: HTTPStatus
    body: bytes
    kind: str = TEXT
    head_only: bool = False

    @property
    def data(self) -> bytes:
        status = self.status
        allow = "Allow: GET, HEAD\r\n" * (status == HTTPStatus.METHOD_NOT_ALLOWED)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {self.kind}\r\n"
            f"Content-Length: {len(self.body)}\r\n{allow}Cache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if self.head_only else self.body)


def error_response(status: HTTPStatus, *, head_only: bool = False) -> HttpResponse:
    body = f"{status.value} {status.phrase}\n".encode()
    return HttpResponse(status, body, head_only=head_only)


def http_response(head: bytes, render: RenderPage) -> HttpResponse:
    """Returns the response to a request. `head`: the request without the empty line at its end."""
    first, *lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
    method, _, remainder = first.partition(" ")
    target, _, version = remainder.partition(" ")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return error_response(HTTPStatus.BAD_REQUEST)
        earlier_values = f"{fields[name.lower()]}, " if name.lower() in fields else ""
        fields[name.lower()] = earlier_values + value.strip()
    if version not in {"HTTP/1.0", "HTTP/1.1"} or not method or not target.startswith("/"):
        return error_response(HTTPStatus.BAD_REQUEST)
    if version == "HTTP/1.1" and "host" not in fields:
        return error_response(HTTPStatus.BAD_REQUEST)
    if method not in {"GET", "HEAD"}:
        return error_response(HTTPStatus.METHOD_NOT_ALLOWED)
    path, is_head = target.partition("?")[0], method == "HEAD"
    if path == "/":
        return HttpResponse(HTTPStatus.OK, INDEX, HTML, is_head)
    if path != "/metrics":
        return error_response(HTTPStatus.NOT_FOUND, head_only=is_head)
    is_openmetrics = wants_openmetrics(fields.get("accept", ""))
    body = render(is_openmetrics)
    if body is None:
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, head_only=is_head)
    return HttpResponse(HTTPStatus.OK, body, OPENMETRICS if is_openmetrics else TEXT, is_head)


def wants_openmetrics(accept: str) -> bool:
    """Returns whether the Accept header prefers OpenMetrics to the older format."""
    best_quality = {True: 0.0, False: 0.0}
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        is_openmetrics = kind == "application/openmetrics-text"
        if is_openmetrics and values.get("version", "1.0.0") not in {"1.0.0", "0.0.1"}:
            continue
        if is_openmetrics or kind in {"text/plain", "text/*", "*/*"}:
            with contextlib.suppress(ValueError):
                quality = float(values.get("q", "1"))
                if best_quality[is_openmetrics] < quality <= 1:
                    best_quality[is_openmetrics] = quality
    return best_quality[True] > 0 and best_quality[True] >= best_quality[False]


class PageServer:
    """Serves a page over HTTP. `open` has its open connections, the oldest first."""

    def __init__(self, render: RenderPage) -> None:
        self.render = render
        self.open: dict[Connection, None] = {}

    def admit(self, connection: Connection) -> bool:
        """Adds a connection, possibly in place of an idle one. Returns False if there is no
        room."""
        if len(self.open) >= MAX_CONNECTIONS:
            oldest_idle = next((connection for connection in self.open if connection.is_idle), None)
            if oldest_idle is None:
                return False
            oldest_idle.drop()
        self.open[connection] = None
        return True

    def close(self) -> None:
        for connection in [*self.open]:
            connection.drop()


class Connection(asyncio.Protocol):
    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._request_bytes = b""
        self._answered = False
        self._discarded_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no response is being sent."""
        return self._transport.get_write_buffer_size() == 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._server.admit(self):
            self._wait()
        else:
            self._answered = True
            transport.write(error_response(HTTPStatus.SERVICE_UNAVAILABLE).data)
            transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._forget()

    def data_received(self, data: bytes) -> None:
        if self._answered:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > MAX_DISCARDED_BYTES:
                self.drop()
            return
        self._request_bytes += data[: MAX_REQUEST_BYTES + 1]
        ends = [self._request_bytes.find(end) for end in (b"\r\n\r\n", b"\n\n")]
        end = min((end for end in ends if end >= 0), default=MAX_REQUEST_BYTES + 1)
        if end <= MAX_REQUEST_BYTES:
            self._answer(http_response(self._request_bytes[:end], self._server.render))
        elif len(self._request_bytes) > MAX_REQUEST_BYTES:
            self._answer(error_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _answer(self, response: HttpResponse) -> None:
        self._answered, self._request_bytes = True, b""
        self._wait()
        self._transport.write(response.data)
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT_S, self.drop)

    def drop(self) -> None:
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._server.open.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
