"""`perftop exporter`: what the machine counts, for Prometheus to fetch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from perfprobe import wire
from perftop.base import files as new_file
from perftop.base import files as own_directory
from perftop.base.errors import USAGE, Failed, cannot_write, complain
from perftop.output.exporter.http import Door
from perftop.output.exporter.page import Detail, Page
from perftop.process.sockets import (
    cannot_listen,
    inherited_sockets,
    listening_socket,
    start_listening,
)
from perftop.process.streams import Stream
from perftop.session.session import Session
from perftop.session.summary import UNREAD_BYTES
from perftop.verbs.run_headless import attend

USUAL, UNIX = "127.0.0.1:9917", "unix:"
"""Where it listens unless told otherwise, and how the path of a socket begins."""
FILE_S, FILE_MODE = 10.0, 0o644
"""Seconds between two versions of the text file; the collector of node_exporter that reads it runs
as another user, and nothing in it is a secret."""
STALE_S, STALE_SAMPLES = 10.0, 5
"""After the longer of both without a sample the page is not handed out: counters that stand still
would look like a machine at rest."""


class Exporter:
    """One run. Connections wait in their sockets until the first sample is there."""

    bracket = None

    def __init__(
        self, sockets: Sequence[socket.socket] = (), detail: Detail = "package",
        text_file: Path | None = None,
    ) -> None:  # fmt: skip
        self._sockets, self._detail = sockets, detail
        self._file = text_file
        self._made: os.stat_result | None = None
        """The text file that we wrote last."""
        self._door = Door(lambda openmetrics: self.page(openmetrics=openmetrics))
        self._session: Session | None = None
        self._page: Page | None = None
        self._since_ns: int | None = None
        self._heard_s = self._written_s = -FILE_S
        """Times of the loop: of the newest sample, and of the newest text file."""
        self._serves = False

    async def consume(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as servers:
            async for messages in stream:
                if self._take(messages):
                    self._heard_s = loop.time()
                    await self._serve(servers)
                    self._write(loop.time())

    def finish(self) -> None:
        self._door.close()
        if self._file is not None and self._made is not None:
            own_directory.remove(self._file, self._made)

    def _take(self, messages: list[wire.Message]) -> bool:
        """Returns whether samples were among them."""
        if isinstance(messages[0], wire.Hello):
            self._session = Session(messages[0], summary_bytes=UNREAD_BYTES)
            self._page = Page(self._session, self._detail)
        session, page = self._session, self._page
        if session is None or page is None:
            return False
        warned, new = session.warnings, False
        for message in session.play([m for m in messages if not isinstance(m, wire.Hello)]):
            if isinstance(message, wire.Frame):
                if self._since_ns is not None:
                    page.take(self._since_ns)
                    new = True
                self._since_ns = session.now_ns
            if session.warnings is not warned:
                warned = session.warnings
                complain(warned[-1])
        return new

    def page(self, *, openmetrics: bool) -> bytes | None:
        """What is handed out; None while the probe is silent."""
        page, session = self._page, self._session
        assert page is not None
        assert session is not None
        stale_s = max(STALE_S, STALE_SAMPLES * session.hello.sample_ns / 1e9)
        if asyncio.get_running_loop().time() - self._heard_s > stale_s:
            return None
        return page.text(openmetrics=openmetrics)

    async def _serve(self, servers: contextlib.AsyncExitStack) -> None:
        """Starts to take connections, once."""
        if self._serves:
            return
        self._serves = True
        loop, page = asyncio.get_running_loop(), self._page
        assert page is not None
        for one in self._sockets:
            unix = one.family == socket.AF_UNIX
            serve = loop.create_unix_server if unix else loop.create_server
            await servers.enter_async_context(await serve(self._door.caller, sock=one))
            known = "; whoever can reach it can read it" if public(one) else ""
            complain(f"{told(one)}: {page.series} series{known}")

    def _write(self, now_s: float) -> None:
        if self._file is not None and self._page is not None and now_s - self._written_s >= FILE_S:
            try:
                text = self._page.text(openmetrics=False)
                self._made = new_file.replace(self._file, text, FILE_MODE)
            except OSError as error:
                raise cannot_write(str(self._file), error) from None
            self._written_s = now_s


def run(argv: list[str], listen: str | None, detail: Detail, text_file: Path | None) -> int:
    """Runs the verb until a signal; returns the exit status. Raises Failed. `argv`: the probe's
    command line. `listen`: None is what the service manager hands over, else the usual port;
    nothing at all if only a text file is asked for."""
    if text_file is not None and text_file.is_dir():
        raise Failed(f"cannot write {text_file}: it is a directory; name a file in it, such as "
                     "perftop.prom")  # fmt: skip
    only_file = text_file is not None and listen is None
    with contextlib.ExitStack() as held:
        sockets = [] if only_file else held.enter_context(listening(listen))
        asyncio.run(attend(Exporter(sockets, detail, text_file), argv))
    return 0


SHIPPED = {
    "unit": "perftop.service", "recorder": "perftop-record.service", "socket": "perftop.socket",
    "rules": "rules.yml", "dashboard": "dashboard.json",
}  # fmt: skip
"""Files that go with the exporter, by the name of their option."""


HOMES = "/home", "/root", "/run/user"
"""Directories that the service cannot see."""


def shipped(name: str) -> str:
    place = resources.files("perftop.output.exporter") / "shipped" / SHIPPED[name]
    return place.read_text(encoding="utf-8")


def show(name: str) -> int:
    """Prints one of them. The service runs this installation."""
    own = sys.argv[0] if Path(sys.argv[0]).name == "perftop" else shutil.which("perftop")
    program = Path(own or "/usr/bin/perftop").absolute()
    if name in {"unit", "recorder"} and any(program.is_relative_to(home) for home in HOMES):
        complain(f"{program} lies in a home, which the service cannot see: install perftop "
                 "elsewhere, for instance in /opt")  # fmt: skip
    sys.stdout.write(shipped(name).replace("@PERFTOP@", str(program)))
    return 0


# --- sockets: given by the service manager, or opened as asked for


@contextlib.contextmanager
def listening(asked: str | None) -> Iterator[list[socket.socket]]:
    """Sockets that listen, those that are handed over if nothing was asked for. Connections wait in
    them until somebody takes them. A unix socket is removed at the end."""
    with contextlib.ExitStack() as stack:
        sockets = inherited_sockets() if asked is None else []
        if not sockets:
            where = USUAL if asked is None else asked
            path = Path(where.removeprefix(UNIX)) if where.startswith(UNIX) else None
            sockets = [_at(where) if path is None else stack.enter_context(listening_socket(path))]
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
        raise cannot_listen(where, error) from None
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    start_listening(one, address, where)
    return one
