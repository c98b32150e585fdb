"""A small HTTP/1.1 server for one page. The cost of a request is bounded: the number of
connections, the size of a request and its duration are limited, and the response is built once per
sample.

A connection serves one request. The server runs in the event loop that reads the probe. An
iteration of the loop handles each connection at most once, so the probe never waits long for a
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

MAX_CONNECTIONS = 32
"""Maximum number of open connections. A further connection replaces the oldest idle one."""
MAX_REQUEST = 8192
"""Maximum bytes of a request."""
MAX_DISCARDED = 1 << 16
"""Maximum bytes that are read after the request and discarded. Closing a connection with unread
bytes resets it, and the client may lose the response."""
TIMEOUT_S = 10.0
"""Maximum seconds to receive a whole request, and maximum seconds until the client has read the
response."""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
HTML = "text/html; charset=utf-8"
INDEX = b'<!DOCTYPE html><title>perftop</title><p><a href="/metrics">metrics</a>\n'

Render = Callable[[bool], bytes | None]
"""Returns the page, in OpenMetrics or in the older format; None if no page is available now."""


class Answer(NamedTuple):
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


def failure(status: HTTPStatus) -> Answer:
    return Answer(status, f"{status.value} {status.phrase}\n".encode())


def answer(head: bytes, render: Render) -> Answer:
    """Returns the response to a request. `head`: the request up to the empty line."""
    first, *lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
    method, _, remainder = first.partition(" ")
    target, _, version = remainder.partition(" ")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return failure(HTTPStatus.BAD_REQUEST)
        before = f"{fields[name.lower()]}, " if name.lower() in fields else ""
        fields[name.lower()] = before + value.strip()
    if version not in {"HTTP/1.0", "HTTP/1.1"} or not method or not target.startswith("/"):
        return failure(HTTPStatus.BAD_REQUEST)
    if version == "HTTP/1.1" and "host" not in fields:
        return failure(HTTPStatus.BAD_REQUEST)
    if method not in {"GET", "HEAD"}:
        return failure(HTTPStatus.METHOD_NOT_ALLOWED)
    page = _page(target.partition("?")[0], fields.get("accept", ""), render)
    return page._replace(head_only=method == "HEAD")


def _page(path: str, accept: str, render: Render) -> Answer:
    if path == "/":
        return Answer(HTTPStatus.OK, INDEX, HTML)
    if path != "/metrics":
        return failure(HTTPStatus.NOT_FOUND)
    is_openmetrics = wants_openmetrics(accept)
    body = render(is_openmetrics)
    if body is None:
        return failure(HTTPStatus.SERVICE_UNAVAILABLE)
    return Answer(HTTPStatus.OK, body, OPENMETRICS if is_openmetrics else TEXT)


def wants_openmetrics(accept: str) -> bool:
    """Whether the Accept header prefers OpenMetrics to the older format."""
    best_quality = {True: 0.0, False: 0.0}
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        is_openmetrics = kind == "application/openmetrics-text"
        if is_openmetrics and values.get("version", "1.0.0") not in {"1.0.0", "0.0.1"}:
            continue
        if is_openmetrics or kind in {"text/plain", "text/*", "*/*"}:
            quality = max(best_quality[is_openmetrics], _quality(values.get("q", "1")))
            best_quality[is_openmetrics] = quality
    return best_quality[True] > 0 and best_quality[True] >= best_quality[False]


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0


class Server:
    """The server with its open connections, the oldest first."""

    def __init__(self, render: Render) -> None:
        self.render = render
        self.open: dict[Connection, None] = {}

    def new_connection(self) -> Connection:
        return Connection(self)

    def enter(self, connection: Connection) -> bool:
        """Adds a connection, possibly in place of an idle one. Returns False if there is no
        room."""
        if len(self.open) >= MAX_CONNECTIONS:
            oldest_idle = next((connection for connection in self.open if connection.idle), None)
            if oldest_idle is None:
                return False
            oldest_idle.drop()
        self.open[connection] = None
        return True

    def close(self) -> None:
        for connection in [*self.open]:
            connection.drop()


class Connection(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server
        self._received = b""
        self._answered = False
        self._more = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether the client has not sent a complete request yet, or its whole response has been
        handed to the kernel."""
        return not self._answered or self._transport.get_write_buffer_size() == 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._server.enter(self):
            self._wait()
        else:
            self._answered = True
            transport.write(failure(HTTPStatus.SERVICE_UNAVAILABLE).data)
            transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._forget()

    def data_received(self, data: bytes) -> None:
        if self._answered:
            self._more += len(data)
            if self._more > MAX_DISCARDED:
                self.drop()
            return
        self._received += data[: MAX_REQUEST + 1]
        ends = [self._received.find(end) for end in (b"\r\n\r\n", b"\n\n")]
        end = min((end for end in ends if end >= 0), default=MAX_REQUEST + 1)
        if end <= MAX_REQUEST:
            self._answer(answer(self._received[:end], self._server.render))
        elif len(self._received) > MAX_REQUEST:
            self._answer(failure(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _answer(self, answer_given: Answer) -> None:
        self._answered, self._received = True, b""
        self._wait()
        self._transport.write(answer_given.data)
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
