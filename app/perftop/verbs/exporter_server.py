"""Serves the counters of one stream to Prometheus, at sockets and as a text file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfprobe import wire
from perftop.base import files
from perftop.base.errors import USAGE, Failed, failure_to_write, print_error
from perftop.output.export.exporter_page import Detail, Page
from perftop.process.launch import SOCKET_SCHEME, socket_path
from perftop.process.serving import (
    Connection,
    PageServer,
    failure_to_listen,
    inherited_sockets,
    listening_socket,
    start_listening,
)
from perftop.process.streams import Stream
from perftop.session.session import Session
from perftop.verbs.headless import Consumer

DEFAULT_ADDRESS = "127.0.0.1:9917"
"""Default of --listen."""
FILE_PERIOD_S, FILE_MODE = 10.0, 0o644
"""Seconds between two versions of the text file, and its mode: node_exporter, which runs as another
user, must be able to read it."""
STALE_S, STALE_SAMPLES = 10.0, 5
"""After this many seconds and this many sample periods without a new sample, the page is no longer
served: unchanged counters would look like an idle machine."""
MAX_WAITING_MESSAGES = 8


class Exporter(Consumer):
    """Serves the counters of one stream. Clients that connect before the first sample have to
    wait."""

    hooks_each_sample = True

    def __init__(
        self, sockets: Sequence[socket.socket] = (), detail: Detail = "package",
        text_file: Path | None = None, *, owners: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._sockets, self._detail, self._file = sockets, detail, text_file
        self._shows_owners = owners
        self._server = PageServer(lambda openmetrics: self.page(openmetrics=openmetrics))
        self._last_sample_end_ns: int | None = None
        self._waiting_messages: list[wire.Message] = []
        """Messages not processed yet. They are processed together, which costs less, when there are
        MAX_WAITING_MESSAGES or when a client requests the page."""
        self._has_sample = False
        self._sampled_s = self._written_s = -FILE_PERIOD_S
        """Times of the newest sample and of the newest text file, in s of the event loop's
        clock."""
        self._file_status: os.stat_result | None = None

    async def consume(self, stream: Stream) -> None:
        loop, sockets_left = asyncio.get_running_loop(), [*self._sockets]
        async with contextlib.AsyncExitStack() as servers:
            async for messages in stream:
                if isinstance(messages[0], wire.Hello):  # a hello is always the first of its batch
                    self._process_waiting()
                self._waiting_messages += messages
                if len(self._waiting_messages) >= MAX_WAITING_MESSAGES or not self._has_sample:
                    self._process_waiting()
                if self._has_sample and any(isinstance(m, wire.Frame) for m in messages):
                    self._sampled_s = loop.time()
                    while sockets_left:
                        await self._serve(sockets_left.pop(0), servers)
                    self._write_file(loop.time())

    def _process_waiting(self) -> None:
        messages, self._waiting_messages = self._waiting_messages, []
        self.process(messages)

    def on_hello(self, hello: wire.Hello) -> Session:
        session = Session(hello, summarises=False)
        self._page = Page(session, self._detail, owners=self._shows_owners)
        return session

    def on_warning(self, text: str) -> None:
        print_error(text)

    def on_message(self, message: wire.Message) -> bool:
        if isinstance(message, wire.Frame):
            if self._last_sample_end_ns is not None:
                self._page.add_sample(self._last_sample_end_ns)
                self._has_sample = True
            self._last_sample_end_ns = self.session.now_ns
        return False

    def on_end(self) -> None:
        self._server.close()
        if self._file is not None and self._file_status is not None:
            files.remove(self._file, self._file_status)

    def page(self, *, openmetrics: bool) -> bytes | None:
        """Returns the page to serve; None if there was no sample for too long."""
        stale_s = max(STALE_S, STALE_SAMPLES * self.session.hello.sample_ns / 1e9)
        if asyncio.get_running_loop().time() - self._sampled_s > stale_s:
            return None
        self._process_waiting()
        return self._page.text(openmetrics=openmetrics)

    async def _serve(self, listener: socket.socket, servers: contextlib.AsyncExitStack) -> None:
        """Starts to accept connections of a socket."""
        loop, unix = asyncio.get_running_loop(), isinstance(listener.getsockname(), str)
        serve = loop.create_unix_server if unix else loop.create_server
        server = await serve(lambda: Connection(self._server), sock=listener)
        await servers.enter_async_context(server)
        warning = "; anyone who can reach it can read it" if is_public(listener) else ""
        print_error(f"{listener_address(listener)}: {self._page.series} series{warning}")
        if not unix and sys.stderr.isatty():
            print(scrape_snippet(*listener.getsockname()[:2]), end="", file=sys.stderr)

    def _write_file(self, now_s: float) -> None:
        if self._file is not None and now_s - self._written_s >= FILE_PERIOD_S:
            try:
                self._process_waiting()
                text = self._page.text(openmetrics=False)
                self._file_status = files.replace(self._file, text, FILE_MODE)
            except OSError as error:
                raise failure_to_write(str(self._file), error) from None
            self._written_s = now_s


# --- sockets: from the service manager, or opened at an address


@contextlib.contextmanager
def listening_sockets(requested_address: str | None) -> Iterator[list[socket.socket]]:
    """Provides the sockets of the service manager if no address was requested, or else one at the
    address, and closes them at the end. Connections wait in the sockets until accepted."""
    with contextlib.ExitStack() as stack:
        sockets = inherited_sockets() if requested_address is None else []
        if not sockets:
            address = DEFAULT_ADDRESS if requested_address is None else requested_address
            if address.startswith(SOCKET_SCHEME):
                path = Path(socket_path(address))
                sockets = [stack.enter_context(listening_socket(path))]
            else:
                sockets = [_bound_socket(address)]
        for listener in sockets:
            stack.enter_context(listener)
        yield sockets


def listener_address(listener: socket.socket) -> str:
    """Returns the URL or path at which clients reach a socket."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"{SOCKET_SCHEME}{name}"
    host, port = name[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def requested_scrape_snippet(address: str | None) -> str:
    """Returns the lines of prometheus.yml for an address of --listen, without listening there."""
    if address is not None and address.startswith(SOCKET_SCHEME):
        text = "Prometheus cannot scrape a Unix socket; give --listen HOST:PORT, or use --textfile"
        raise Failed(f"--print-scrape-config: {text}", USAGE)
    return scrape_snippet(*_host_and_port(DEFAULT_ADDRESS if address is None else address))


def scrape_snippet(host: str, port: int) -> str:
    """Returns the lines of prometheus.yml for the address of a TCP socket."""
    machine_text = " on this machine" if _is_local(host) else ""
    host = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared only
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return (
        f"# in prometheus.yml{machine_text}:\nscrape_configs:\n  - job_name: perftop\n"
        f'    static_configs:\n      - targets: ["{target}"]\n'
    )


def is_public(listener: socket.socket) -> bool:
    name = listener.getsockname()
    return not isinstance(name, str) and not _is_local(name[0])


def _is_local(host: str) -> bool:
    return host.startswith("127.") or host in {"::1", "localhost"}


def _host_and_port(address_text: str) -> tuple[str, int]:
    host, colon, port = address_text.rpartition(":")
    is_valid = colon and host and re.fullmatch("[0-9]{1,5}", port) and int(port) < 1 << 16
    if not is_valid or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        hint = f"try {DEFAULT_ADDRESS}, [::1]:9917, unix:PATH"
        raise Failed(f"--listen: invalid address {address_text!r} ({hint})", USAGE)
    return host.strip("[]"), int(port)


def _bound_socket(address_text: str) -> socket.socket:
    host, port = _host_and_port(address_text)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, bind_to = addresses[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise failure_to_listen(address_text, error) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    start_listening(listener, bind_to, address_text)
    return listener
