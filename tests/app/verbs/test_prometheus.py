"""Hostile Prometheus servers: queries have limits of time and size."""

from __future__ import annotations

import gzip
import itertools
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import pytest
from command import argv
from waiting import MAX_WAIT_S

from perftop.base.errors import Failed
from perftop.verbs import fleet_sources

OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS = OK + b"Transfer-Encoding: chunked\r\n\r\n"
KB = b"x" * 1024
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: /again\r\n"


def chain(first: bytes, rest: bytes) -> Iterator[bytes]:
    return itertools.chain([first], itertools.repeat(rest))


@contextmanager
def server(
    pieces: Iterable[bytes], pause_s: float = 0.0, asked: threading.Event | None = None
) -> Iterator[str]:
    """A server that sends the same pieces to each client, with a pause after each. `asked` is set
    after the first request."""
    pieces, over = iter(pieces), threading.Event()

    def serve(peer: socket.socket, pieces: Iterator[bytes]) -> None:
        with peer, suppress(OSError):
            peer.recv(1 << 16)
            if asked is not None:
                asked.set()
            for piece in pieces:
                peer.sendall(piece)
                if over.wait(pause_s):
                    return

    def accept() -> None:
        nonlocal pieces
        with suppress(OSError):
            while True:
                peer, _ = listening.accept()
                pieces, own = itertools.tee(pieces)
                threading.Thread(target=serve, args=(peer, own), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        over.set()
        listening.shutdown(socket.SHUT_RDWR)


DRIPS = {
    "status": chain(b"H", b""),
    "status, a byte at a time": (bytes([byte]) for byte in OK * 1000),
    "headers": chain(OK + b"X: ", b"x"),
    "header lines": chain(OK, b"X: x\r\n"),
    "interim answers": chain(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": chain(OK + b"\r\n", b" "),
    "chunks": chain(ENDLESS, b"1\r\n \r\n"),
    "size of a chunk": chain(ENDLESS, b"0"),
    "trailer": chain(ENDLESS + b"0\r\n", b"X: x\r\n"),
    "redirections": itertools.chain([REDIRECT + b"Content-Length: 9\r\n\r\n"], [b" "] * 9),
    "body of a redirection": chain(REDIRECT + b"\r\n", b" "),
    "body of a refusal": chain(b"HTTP/1.1 500 No\r\n\r\n", b" "),
}


@pytest.mark.parametrize("what", DRIPS)
def test_a_server_that_sends_slowly_has_one_deadline(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_sources, "MAX_S", 0.6)
    began = time.monotonic()
    with server(DRIPS[what], 0.05) as url, pytest.raises(Failed, match="took longer"):
        fleet_sources.Server(url).query("up")
    assert time.monotonic() - began < 40  # without the deadline it takes 50 s


FLOODS = {
    "body": chain(OK + b"\r\n", KB),
    "chunks": chain(ENDLESS, b"400\r\n" + KB + b"\r\n"),
    "interim answers": chain(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 99),
    "trailer": chain(ENDLESS + b"0\r\n", b"X: x\r\n" * 99),
    "body of a redirection": chain(REDIRECT + b"\r\n", KB),
}


@pytest.mark.parametrize("what", FLOODS)
def test_an_endless_response_is_cut(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_sources, "MAX_BYTES", 1 << 20)
    with server(FLOODS[what]) as url, pytest.raises(Failed, match="larger than 1 MB"):
        (request := fleet_sources.Server(url)).query("up")
    assert request.bytes < 2 << 20


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1:1/x", "/again"])
def test_redirects_do_not_lead_to_files_or_loop(where: str) -> None:
    answer = b"HTTP/1.1 302 F\r\nContent-Length: 0\r\nLocation: " + where.encode() + b"\r\n\r\n"
    with server([answer]) as url, pytest.raises(Failed, match="server"):
        fleet_sources.Server(url).query("up")


def test_compressed_responses_are_not_decompressed() -> None:
    bomb = gzip.compress(b" " * (8 << 20))
    answer = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    with server([answer]) as url, pytest.raises(Failed, match="no JSON"):
        fleet_sources.Server(url).query("up")


def test_a_signal_ends_a_fleet_with_a_slow_server() -> None:
    command = argv("fleet", "--prometheus", "URL", "--json", "-n", "1")
    request = threading.Event()
    with server(chain(OK + b"X: ", b"x"), 0.5, request) as url:
        command[command.index("URL")] = url
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert request.wait(MAX_WAIT_S)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, text = process.communicate(timeout=fleet_sources.MAX_S / 2)
        finally:
            process.kill()
    assert (process.returncode, text) == (128 + signal.SIGTERM, b"")
