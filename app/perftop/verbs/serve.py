"""`perftop serve` shares one probe among many readers on this machine, and `perftop exporter`
serves counters to Prometheus. Only perftop listens and reads from clients; the probe, which may
have more rights, only writes to perftop."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfprobe import stream_options
from perftop.base import END_SIGNALS
from perftop.base.errors import USAGE, Failed, failure_to_write, print_error
from perftop.verbs import options
from perftop.verbs.headless import Consumer, run_consumer

if TYPE_CHECKING:
    import os
    import socket

    from perfprobe import wire
    from perftop.output.exporter.page import Detail
    from perftop.process.serving import Readers
    from perftop.process.streams import Stream
    from perftop.session.session import Session

IDLE_S = 10.0


def add_parser(subparsers: Any) -> None:
    text = "read the counters once for many users of this machine; each runs perftop attach"
    about = f"{text} unix:PATH. Samples are sent once per interval"
    parser = options.add_verb(
        subparsers, "serve", run, text, about=about, stream=True, interval="500ms"
    )
    text = "the socket to create (default: the one that systemd passes)"
    parser.add_argument("--socket", type=options.parse_file_path, metavar="PATH", help=text)
    text = "let members of this group connect, too (default: only you)"
    parser.add_argument("--group", metavar="NAME", help=text)


def run(args: argparse.Namespace) -> int:
    from perftop.process import launch, serving
    from perftop.process.signals import run_loop

    interval_ns, sample_ns = options.interval_and_sample(args, options.LIVE_INTERVAL_NS)
    batch_ns = launch.longest_batch_ns(sample_ns, interval_ns)
    argv = options.stream_command(args, sample_ns, batch_ns)
    group = None if args.group is None else serving.group_id(args.group)
    with open_listening_socket(args.socket, group) as listener:
        if sys.stderr.isatty():
            print_error(f"to read it: perftop attach unix:{listener.getsockname()}")
        run_loop(serve, listener, argv, group)
    return 0


def open_listening_socket(
    path: Path | None, group: int | None
) -> contextlib.AbstractContextManager[socket.socket]:
    """Returns the socket passed by systemd, or else a new one at `path`. Raises Failed."""
    from perftop.process.serving import inherited_unix_socket, listening_socket

    inherited_socket = inherited_unix_socket()
    if inherited_socket is not None:
        return inherited_socket
    if path is None:
        raise Failed("no socket to listen on; name one: --socket PATH", USAGE)
    return listening_socket(path, group)


async def serve(listener: socket.socket, argv: list[str], group: int | None) -> None:
    """Serves until a signal. `argv`: the probe's command line. `group`: ID of a group whose members
    may also read."""
    import asyncio

    from perftop.process.serving import Readers
    from perftop.process.signals import ignore, on_signal

    loop, readers = asyncio.get_running_loop(), Readers()
    relaying = asyncio.ensure_future(_relay_stream(readers, argv))

    def end(_: object) -> None:
        relaying.cancel()

    on_signal(END_SIGNALS, end)
    listener.setblocking(False)
    loop.add_reader(listener, _admit, listener, readers, group)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await relaying
    finally:
        ignore()
        loop.remove_reader(listener)
        readers.close()


def _admit(listener: socket.socket, readers: Readers, group: int | None) -> None:
    from perftop.process.serving import may_read

    with contextlib.suppress(OSError, struct.error):  # the client has already disconnected
        peer, _ = listener.accept()
        try:
            if may_read(peer, group) and readers.admit(peer):
                return
        except OSError:
            peer.close()
            raise
        peer.close()


async def _relay_stream(readers: Readers, argv: list[str]) -> None:
    """Runs the probe while there are readers. The first time it starts without any, so that the
    user who started perftop sees its errors."""
    import asyncio

    from perftop.process.launch import start_probe
    from perftop.process.streams import open_stream

    async def read() -> None:
        async for messages in stream:
            for message in messages:
                readers.send(message)
        raise Failed("the probe has ended")

    while True:
        async with open_stream(start_probe(argv)) as stream:
            tasks = [*map(asyncio.ensure_future, (_wait_for_no_readers(readers), read()))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        await readers.has_readers.wait()


async def _wait_for_no_readers(readers: Readers) -> None:
    """Waits until there has been no reader for IDLE_S, and ends the stream. A reader that connects
    while the probe ends gets the next stream."""
    import asyncio

    while True:
        await readers.has_none.wait()
        try:
            async with asyncio.timeout(IDLE_S):
                await readers.has_readers.wait()
        except TimeoutError:
            if not readers:
                readers.end_stream()
                return


# --- `perftop exporter`: serves the counters of this machine to Prometheus

SAMPLE_NS = 1_000_000_000
"""Default of --sample in ns; it is long because the exporter always runs."""
DEFAULT_ADDRESS, UNIX_PREFIX = "127.0.0.1:9917", "unix:"
"""Default of --listen, and prefix of an address that is the path of a unix socket."""
FILE_PERIOD_S, FILE_MODE = 10.0, 0o644
"""Seconds between two versions of the text file, and its mode: node_exporter, which runs as another
user, must be able to read it."""
STALE_S, STALE_SAMPLES = 10.0, 5
"""Without a new sample for this many seconds and this many sample periods, the page is no longer
served: unchanged counters would look like an idle machine."""
MAX_WAITING = 8
SHIPPED_FILES = {
    "unit": "perftop.service", "recorder": "perftop-record.service", "socket": "perftop.socket",
    "rules": "rules.yml", "dashboard": "dashboard.json",
}  # fmt: skip
HIDDEN_DIRECTORIES = "/home", "/root", "/run/user"
EXPORTER_EPILOG = (
    "A scrape returns the latest totals and measures nothing. Process names and command lines are "
    "never exported. A longer --sample costs less."
)


def add_exporter(subparsers: Any) -> None:
    text = "serve counters of this machine to Prometheus"
    parser = options.add_verb(
        subparsers, "exporter", run_exporter, text, machine=True, epilog=EXPORTER_EPILOG
    )
    stream_options.add_options(parser, options.parse_duration_ns, "1s", events=False)
    text = "address to listen on (default: sockets passed by systemd, else 127.0.0.1:9917)"
    parser.add_argument("--listen", metavar="HOST:PORT|unix:PATH", help=text)
    text = "package (default); core: also SMT states of cores; cpu: also all numbers of CPUs"
    choices = "package", "core", "cpu"
    parser.add_argument("--detail", choices=choices, default="package", help=text)
    text = "also export CPU time by unit, container, pod or Slurm job; their names become labels"
    parser.add_argument("--owners", action="store_true", help=text)
    text = "write this file for node_exporter; HTTP is then served only with --listen"
    parser.add_argument("--textfile", type=options.parse_file_path, metavar="FILE.prom", help=text)
    printed_group = parser.add_mutually_exclusive_group()
    for name, text in (
        ("unit", "the systemd service"), ("socket", "the systemd socket"),
        ("rules", "rules for Prometheus"), ("dashboard", "the Grafana dashboard"),
    ):  # fmt: skip
        printed_group.add_argument(
            f"--print-{name}", dest="printed", action="store_const", const=name,
            help=f"print {text}",
        )  # fmt: skip


def run_exporter(args: argparse.Namespace) -> int:
    """Runs the exporter until a signal. It listens on the sockets of the service manager, or else
    at an address; if only a text file was requested, it does not listen."""
    if args.printed is not None:
        return print_shipped(args.printed)
    from perftop.process.signals import run_loop

    sample_ns: int = args.sample or SAMPLE_NS
    argv = options.stream_command(args, sample_ns, sample_ns)
    path: Path | None = args.textfile
    if path is not None and path.exists() and not path.is_file():
        text = f"cannot write {path}: it is not a file; name one, such as perftop.prom"
        raise Failed(text)
    if path is not None and path.suffix != ".prom":
        text = (
            f"--textfile {path}: node_exporter reads only *.prom; try {path.with_suffix('.prom')}"
        )
        raise Failed(text, USAGE)
    with contextlib.ExitStack() as stack:
        only_file = path is not None and args.listen is None
        sockets = [] if only_file else stack.enter_context(listening_sockets(args.listen))
        run_loop(run_consumer, Exporter(sockets, args.detail, path, owners=args.owners), argv)
    return 0


def shipped_text(name: str) -> str:
    from importlib import resources

    place = resources.files("perftop.output.exporter") / "shipped" / SHIPPED_FILES[name]
    return place.read_text(encoding="utf-8")


def print_shipped(name: str) -> int:
    """Prints a file that comes with perftop. In a service, inserts the path of this perftop."""
    program_path = sys.argv[0] if Path(sys.argv[0]).name == "perftop" else shutil.which("perftop")
    program = Path(program_path or "/usr/bin/perftop").absolute()
    is_hidden = any(program.is_relative_to(directory) for directory in HIDDEN_DIRECTORIES)
    if name in {"unit", "recorder"} and is_hidden:
        text = f"{program} is in a home directory, which the service cannot see: install perftop"
        print_error(f"{text} elsewhere, such as /opt")
    sys.stdout.write(shipped_text(name).replace("@PERFTOP@", str(program)))
    return 0


class Exporter(Consumer):
    """Serves the counters of one stream. Clients that connect before the first sample have to
    wait."""

    each_sample = True

    def __init__(
        self, sockets: Sequence[socket.socket] = (), detail: Detail = "package",
        text_file: Path | None = None, *, owners: bool = False,
    ) -> None:  # fmt: skip
        from perftop.process.serving import PageServer

        super().__init__()
        self._sockets, self._detail, self._file = sockets, detail, text_file
        self._shows_owners = owners
        self._server = PageServer(lambda openmetrics: self.page(openmetrics=openmetrics))
        self._last_sample_end_ns: int | None = None
        self._waiting_messages: list[wire.Message] = []
        """Messages not processed yet. They are processed together, which costs less, when there are
        MAX_WAITING or when a client requests the page."""
        self._has_sample = False
        self._sampled_s = self._written_s = -FILE_PERIOD_S
        """Times of the newest sample and of the newest text file, in s of the event loop's
        clock."""
        self._serves = False
        self._file_status: os.stat_result | None = None

    async def consume(self, stream: Stream) -> None:
        import asyncio

        from perfprobe import wire

        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as servers:
            async for messages in stream:
                if isinstance(messages[0], wire.Hello):  # a hello is always the first of its batch
                    self._process_waiting()
                self._waiting_messages += messages
                if len(self._waiting_messages) >= MAX_WAITING or not self._has_sample:
                    self._process_waiting()
                if self._has_sample and any(isinstance(m, wire.Frame) for m in messages):
                    self._sampled_s = loop.time()
                    await self._start_serving(servers)
                    self._write_file(loop.time())

    def _process_waiting(self) -> None:
        messages, self._waiting_messages = self._waiting_messages, []
        self.process(messages)

    def on_hello(self, hello: wire.Hello) -> Session:
        from perftop.output.exporter.page import Page
        from perftop.session.session import Session

        session = Session(hello, summarises=False)
        self._page = Page(session, self._detail, owners=self._shows_owners)
        return session

    def on_warning(self, text: str) -> None:
        print_error(text)

    def on_message(self, message: wire.Message) -> bool:
        from perfprobe import wire

        if isinstance(message, wire.Frame):
            if self._last_sample_end_ns is not None:
                self._page.add_sample(self._last_sample_end_ns)
                self._has_sample = True
            self._last_sample_end_ns = self.session.now_ns
        return False

    def on_end(self) -> None:
        from perftop.base import files

        self._server.close()
        if self._file is not None and self._file_status is not None:
            files.remove(self._file, self._file_status)

    def page(self, *, openmetrics: bool) -> bytes | None:
        """Returns the page to serve; None if there was no sample for too long."""
        import asyncio

        stale_s = max(STALE_S, STALE_SAMPLES * self.session.hello.sample_ns / 1e9)
        if asyncio.get_running_loop().time() - self._sampled_s > stale_s:
            return None
        self._process_waiting()
        return self._page.text(openmetrics=openmetrics)

    async def _start_serving(self, servers: contextlib.AsyncExitStack) -> None:
        """Starts to accept connections; does nothing on later calls."""
        import asyncio

        if self._serves:
            return
        self._serves, loop = True, asyncio.get_running_loop()
        for listener in self._sockets:
            unix = isinstance(listener.getsockname(), str)
            serve = loop.create_unix_server if unix else loop.create_server
            server = await serve(self._server.new_connection, sock=listener)
            await servers.enter_async_context(server)
            warning = "; anyone who can reach it can read it" if is_public(listener) else ""
            print_error(f"{listener_address(listener)}: {self._page.series} series{warning}")
            if not unix and sys.stderr.isatty():
                print(scrape_snippet(listener), end="", file=sys.stderr, flush=True)

    def _write_file(self, now_s: float) -> None:
        from perftop.base import files

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
    from perftop.process.launch import socket_path
    from perftop.process.serving import inherited_sockets, listening_socket

    with contextlib.ExitStack() as stack:
        sockets = inherited_sockets() if requested_address is None else []
        if not sockets:
            where = DEFAULT_ADDRESS if requested_address is None else requested_address
            if where.startswith(UNIX_PREFIX):
                path = Path(socket_path(where))
                sockets = [stack.enter_context(listening_socket(path))]
            else:
                sockets = [_bound_socket(where)]
        for listener in sockets:
            stack.enter_context(listener)
        yield sockets


def listener_address(listener: socket.socket) -> str:
    """Returns the URL or path at which clients reach a socket."""
    name = listener.getsockname()
    if isinstance(name, str):
        return f"{UNIX_PREFIX}{name}"
    host, port = name[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def scrape_snippet(listener: socket.socket) -> str:
    """Returns the lines of prometheus.yml for a TCP socket."""
    import socket

    host, port = listener.getsockname()[:2]
    host = socket.gethostname() if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared only
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    where = "" if is_public(listener) else " on this machine"
    return (
        f"# in prometheus.yml{where}:\nscrape_configs:\n  - job_name: perftop\n"
        f'    static_configs:\n      - targets: ["{target}"]\n'
    )


def is_public(listener: socket.socket) -> bool:
    name = listener.getsockname()
    return not isinstance(name, str) and not (name[0].startswith("127.") or name[0] == "::1")


def _bound_socket(address_text: str) -> socket.socket:
    import socket

    from perftop.process.serving import failure_to_listen, start_listening

    host, colon, port = address_text.rpartition(":")
    is_valid = colon and host and port.isascii() and port.isdigit() and int(port[:6]) < 1 << 16
    if not is_valid or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        hint = f"try {DEFAULT_ADDRESS}, [::1]:9917, unix:PATH"
        raise Failed(f"--listen: invalid address {address_text!r} ({hint})", USAGE)
    try:
        addresses = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, bind_to = addresses[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise failure_to_listen(address_text, error) from None
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    start_listening(listener, bind_to, address_text)
    return listener
