"""The server against clients that behave and clients that do not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from waiting import until

from perftop.output.exporter import http
from perftop.output.exporter.http import Server, answer, wants_openmetrics

BODY = {True: b"# EOF\n", False: b"old\n"}
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""The header that Prometheus of Debian 12 sends."""


@asynccontextmanager
async def served(
    render: Callable[[bool], bytes | None] = BODY.__getitem__,
) -> AsyncIterator[tuple[Server, int]]:
    """A server on a port of its own."""
    server = Server(render)
    listener = await asyncio.get_running_loop().create_server(server.new_connection, "127.0.0.1", 0)
    async with listener:
        yield server, listener.sockets[0].getsockname()[1]
        server.close()


async def asked(port: int, request: bytes) -> bytes:
    """All that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x", 200),
        (b"GET /metrics?name=x HTTP/1.1\r\nhost:x", 200),
        (b"GET /metrics HTTP/1.0", 200),
        (b"GET / HTTP/1.0", 200),
        (b"HEAD /metrics HTTP/1.0", 200),
        (b"GET /metrics HTTP/1.1", 400),
        (b"GET /../etc/passwd HTTP/1.0", 404),
        (b"GET /metrics/ HTTP/1.0", 404),
        (b"POST /metrics HTTP/1.0", 405),
        (b"OPTIONS / HTTP/1.0", 405),
        (b"GET /metrics HTTP/2.0", 400),
        (b"GET /metrics", 400),
        (b"GET http://x/metrics HTTP/1.0", 400),
        (b"", 400),
        (b"\xff\xfe\x00", 400),
        (b" / HTTP/1.0", 400),
        (b"GET / HTTP/1.0\r\nno colon", 400),
        (b"GET / HTTP/1.0\r\n folded: x", 400),
        (b"GET / HTTP/1.0\r\nname : x", 400),
        (b"GET / HTTP/1.0\r\n: x", 400),
    ],
)
def test_answers(head: bytes, status: int) -> None:
    assert answer(head, BODY.__getitem__).status == status


def test_an_answer_has_a_body_unless_only_its_head_was_requested() -> None:
    found = answer(b"GET /metrics HTTP/1.0", BODY.__getitem__).data
    head, _, body = found.partition(b"\r\n\r\n")
    assert body == b"old\n"
    assert b"Content-Length: 4" in head
    assert answer(b"HEAD /metrics HTTP/1.0", BODY.__getitem__).data == head + b"\r\n\r\n"
    assert b"Allow: GET, HEAD" in answer(b"PUT / HTTP/1.0", BODY.__getitem__).data


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        (PROMETHEUS, True),
        ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nan", False),
        (";;,=,q=;q", False),
    ],
)  # fmt: skip
def test_the_form_is_negotiated(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics
    head = f"GET /metrics HTTP/1.0\r\nAccept: {accept}".encode()
    found = answer(head, BODY.__getitem__)
    assert (found.body, found.kind) == (
        BODY[openmetrics],
        http.OPENMETRICS if openmetrics else http.TEXT,
    )


def test_no_page_is_503() -> None:
    assert answer(b"GET /metrics HTTP/1.0", lambda _: None).status == 503


async def test_requests_arrive_in_any_pieces() -> None:
    async with served() as (__, port):
        whole = await asked(port, GET)
        assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in GET:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.read() == whole
        writer.close()


async def test_a_head_of_ten_megabytes_is_refused_and_not_kept() -> None:
    async with served() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = asyncio.ensure_future(reader.read(1 << 16))
        with pytest.raises(OSError):
            for _ in range(160):
                writer.write(b"GET / HTTP/1.1\r\nx: " + b"a" * (1 << 16))
                await writer.drain()
        assert (await found).startswith(b"HTTP/1.1 431 ")
        await until(lambda: not server.open, "the connection is dropped")
        writer.close()


async def test_a_thousand_idle_connections_lock_nobody_out() -> None:
    """They are as many as are kept; a newer one takes the place of the oldest."""
    most = 0
    async with served() as (server, port):
        idle = []
        for _ in range(1000):
            idle.append(socket.create_connection(("127.0.0.1", port)))
            idle[-1].sendall(b"GET /metr")
            await asyncio.sleep(0)
            most = max(most, len(server.open))
        assert b" 200 OK" in await asked(port, GET)
        for one in idle:
            one.close()
        await until(lambda: not server.open, "all have gone")
    assert 1 < most <= http.MAX_CONNECTIONS


async def test_unread_answers_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They keep their places until they are dropped; others get status 503."""
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 4)

    async with served(lambda _: b"x" * (8 << 20)) as (server, port):
        slow = []
        for _ in range(http.MAX_CONNECTIONS):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", port))
            one.sendall(GET)
            slow.append(one)
        await until(lambda: len(server.open) == http.MAX_CONNECTIONS and not any(
            connection.idle for connection in server.open), "all places are taken")  # fmt: skip
        assert (await asked(port, GET)).startswith(b"HTTP/1.1 503 ")
        assert len(server.open) == http.MAX_CONNECTIONS
        for one in slow:
            one.close()
        await until(lambda: not server.open, "all have gone")
        assert b" 200 OK" in await asked(port, GET)


async def test_slow_connections_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.05)

    async with served(lambda _: b"x" * (8 << 20)) as (server, port):
        asking = await asyncio.open_connection("127.0.0.1", port)
        asking[1].write(b"GET /metrics HT")
        taking = socket.create_connection(("127.0.0.1", port))
        taking.sendall(GET)
        seen = set(server.open)

        def both() -> bool:
            seen.update(server.open)  # the first may be dropped before the second is there
            return len(seen) == 2

        await until(both, "both are there")
        await until(lambda: not server.open, "both are dropped")
        assert await asking[0].read() == b""
        asking[1].close()
        taking.close()
