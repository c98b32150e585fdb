"""The HTTP server with well-behaved and misbehaving clients, and behind nginx."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.client import HTTPSConnection
from pathlib import Path
from unittest.mock import Mock

import pytest
from exporter_page import series
from roots import ROOT
from running_exporter import exporter, started_exporter
from waiting import MAX_WAIT_S, until_true, wait_for

from perftop.process import serving
from perftop.process.serving import PageServer, http_response, wants_openmetrics

BODY = {True: b"# EOF\n", False: b"old\n"}
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
"""The Accept header that Prometheus sends in Debian 12."""


@asynccontextmanager
async def running_server(
    render: Callable[[bool], bytes | None] = BODY.__getitem__,
) -> AsyncIterator[tuple[PageServer, int]]:
    """A server on a free port."""
    server = PageServer(render)
    listener = await asyncio.get_running_loop().create_server(
        lambda: serving.Connection(server), "127.0.0.1", 0
    )
    async with listener:
        yield server, listener.sockets[0].getsockname()[1]
        server.close()


async def response_to(port: int, request: bytes) -> bytes:
    """Returns the whole response to a request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    content = await reader.read()
    writer.close()
    return content


@pytest.mark.parametrize(("head", "status"), [
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
])  # fmt: skip
def test_responses_depend_on_method_and_path(head: bytes, status: int) -> None:
    assert http_response(head, BODY.__getitem__).status == status


def test_a_response_has_a_body_except_for_head() -> None:
    result = http_response(b"GET /metrics HTTP/1.0", BODY.__getitem__).data
    head, _, body = result.partition(b"\r\n\r\n")
    assert body == b"old\n"
    assert b"Content-Length: 4" in head
    assert http_response(b"HEAD /metrics HTTP/1.0", BODY.__getitem__).data == head + b"\r\n\r\n"
    assert b"Allow: GET, HEAD" in http_response(b"PUT / HTTP/1.0", BODY.__getitem__).data


@pytest.mark.parametrize(("accept", "openmetrics"), [
    ("", False),
    ("*/*", False),
    ("text/plain;version=0.0.4", False),
    ("application/openmetrics-text", True),
    (PROMETHEUS, True),
    ("application/openmetrics-text;version=2.0.0,text/plain;q=0.5", False),
    ("application/openmetrics-text;q=0.2,text/plain;q=0.5", False),
    ("application/openmetrics-text;q=0.5,text/plain;q=0.5", True),
    ("application/openmetrics-text;q=2,text/plain", False),
    ("application/openmetrics-text;q=0", False),
    ("application/openmetrics-text;q=nan", False),
    (";;,=,q=;q", False),
])  # fmt: skip
def test_the_format_is_negotiated(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics
    head = f"GET /metrics HTTP/1.0\r\nAccept: {accept}".encode()
    result = http_response(head, BODY.__getitem__)
    assert (result.body, result.kind) == (
        BODY[openmetrics],
        serving.OPENMETRICS if openmetrics else serving.TEXT,
    )


def test_the_status_without_a_page_is_503() -> None:
    assert http_response(b"GET /metrics HTTP/1.0", lambda _: None).status == 503


async def test_requests_may_arrive_in_any_pieces() -> None:
    async with running_server() as (__, port):
        whole = await response_to(port, GET)
        assert whole.startswith(b"HTTP/1.1 200 OK\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in GET:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await reader.read() == whole
        writer.close()


@pytest.mark.parametrize(("pieces", "answer"), [
    ([b"\n\n"], b" 400 "), ([b"x" * 8192], b""), ([b"x" * 8193], b" 431 "),
    ([b"x" * 8192, b"\n\n"], b" 400 "), ([b"x" * 8192, b"x\n\n"], b" 431 "),
])  # fmt: skip
async def test_a_request_has_at_most_8_kilobytes(pieces: list[bytes], answer: bytes) -> None:
    """After the answer, 64 kB are discarded before the connection is closed."""
    transport = Mock(spec=asyncio.Transport)
    connection = serving.Connection(PageServer(BODY.get))
    connection.connection_made(transport)
    for piece in pieces:
        connection.data_received(piece)
    sent = b"".join(call.args[0] for call in transport.write.call_args_list)
    assert sent[8:13] == answer
    if answer:
        for size, aborted in ((1 << 16, False), (1, True)):
            connection.data_received(bytes(size))
            assert transport.abort.called is aborted
    connection.drop()


async def test_a_thousand_idle_connections_block_no_client() -> None:
    """The oldest connection is closed when the limit is reached."""
    most = 0
    async with running_server() as (server, port):
        is_idle = []
        for _ in range(1000):
            is_idle.append(socket.create_connection(("127.0.0.1", port)))
            is_idle[-1].sendall(b"GET /metr")
            await asyncio.sleep(0)
            most = max(most, len(server.open))
        assert b" 200 OK" in await response_to(port, GET)
        for one in is_idle:
            one.close()
        await until_true(lambda: not server.open, "all connections are closed")
    assert 1 < most <= serving.MAX_CONNECTIONS


async def test_unread_responses_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that do not read occupy connections until they are dropped; other clients get status
    503."""
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 4)

    async with running_server(lambda _: b"x" * (8 << 20)) as (server, port):
        slow = []
        for _ in range(serving.MAX_CONNECTIONS):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", port))
            one.sendall(GET)
            slow.append(one)
        await until_true(lambda: len(server.open) == serving.MAX_CONNECTIONS and not any(
            connection.is_idle for connection in server.open), "the limit is reached")  # fmt: skip
        assert (await response_to(port, GET)).startswith(b"HTTP/1.1 503 ")
        assert len(server.open) == serving.MAX_CONNECTIONS
        for one in slow:
            one.close()
        await until_true(lambda: not server.open, "all connections are closed")
        assert b" 200 OK" in await response_to(port, GET)


async def test_slow_connections_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TIMEOUT_S", 0.3)

    async with running_server(lambda _: b"x" * (8 << 20)) as (server, port):
        asking = await asyncio.open_connection("127.0.0.1", port)
        asking[1].write(b"GET /metrics HT")
        taking = socket.create_connection(("127.0.0.1", port))
        taking.sendall(GET)
        seen = set(server.open)

        def both_are_open() -> bool:
            seen.update(server.open)  # the first may be dropped before the second exists
            return len(seen) == 2

        await until_true(both_are_open, "both connections are open")
        await until_true(lambda: not server.open, "both connections are closed")
        assert await asking[0].read() == b""
        asking[1].close()
        taking.close()


# --- nginx as the exporter's page describes it: TLS with client certificates


NGINX = """daemon off; master_process off; pid {here}/pid; error_log stderr;
events {{}}
http {{ access_log off; client_body_temp_path {here}/b; proxy_temp_path {here}/p;
fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;
{server}
}}
"""


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(
        ["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=MAX_WAIT_S
    )


def certificates(directory: Path) -> None:
    """A certificate authority and its certificates for a host and a reader."""
    new = "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"
    openssl(directory, *new, "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # fmt: skip
    for name in ("host", "reader"):
        alias = "-addext", "subjectAltName=DNS:localhost"
        openssl(directory, *new, "-x509", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-subj", f"/CN={name}", "-addext", "basicConstraints=CA:FALSE", *alias,
                "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip


@contextlib.contextmanager
def nginx_port(directory: Path, target: str) -> Iterator[int]:
    """The port of nginx, configured as on the page except for paths and ports."""
    page = (ROOT / "app/perftop/docs/exporter.md").read_text(encoding="utf-8")
    (server,) = re.findall(r"```nginx\n(.*?)```", page, re.DOTALL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours = {"9918": f"127.0.0.1:{port}", "127.0.0.1:9917": target}
    for name, instead in ours.items():
        assert name in server
        server = server.replace(name, instead)
    server = re.sub(r"(host|ca)\.(pem|key)", rf"{directory}/\g<0>", server)
    (directory / "nginx.conf").write_text(NGINX.format(here=directory, server=server))
    nginx = str(shutil.which("nginx"))
    with started_exporter(
        [nginx, "-p", str(directory), "-c", str(directory / "nginx.conf")]
    ) as process:

        def nginx_listens() -> bool:
            assert process.poll() is None, process.stderr and process.stderr.read()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return True
            return False

        wait_for(nginx_listens, "nginx")
        yield port


def response_behind_nginx(
    port: int, certificate_directory: Path, *, has_certificate: bool, path: str = "/metrics"
) -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=str(certificate_directory / "ca.pem"))
    if has_certificate:
        context.load_cert_chain(
            certificate_directory / "reader.pem", certificate_directory / "reader.key"
        )
    connection = HTTPSConnection("localhost", port, context=context, timeout=MAX_WAIT_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_only_clients_with_a_certificate_can_read(tmp_path: Path) -> None:
    for name in ("nginx", "openssl"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    certificates(tmp_path)
    source = "--source", "sim:smt-mix,cpus=4", "--sample", "200ms"
    with (
        exporter(*source, "--listen", "127.0.0.1:0") as running,
        nginx_port(tmp_path, running.where.partition("/")[0]) as port,
    ):
        status, body = response_behind_nginx(port, tmp_path, has_certificate=True)
        assert status == 200
        assert len(series(body, openmetrics=False)) >= running.series
        assert response_behind_nginx(port, tmp_path, has_certificate=False)[0] == 400
        assert response_behind_nginx(port, tmp_path, has_certificate=True, path="/")[0] == 404
