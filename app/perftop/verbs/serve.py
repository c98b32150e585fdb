"""`perftop serve` shares one probe among many readers on this machine, and `perftop exporter`
serves counters to Prometheus. Only perftop listens and reads from clients; the probe, which may be
privileged, only writes to perftop."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfprobe import stream_options
from perftop.base import END_SIGNALS
from perftop.base.errors import USAGE, Failed, print_error
from perftop.verbs import options

if TYPE_CHECKING:
    import socket

    from perftop.process.serving import Readers

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
            address = shlex.quote(f"unix:{listener.getsockname()}")
            print_error(f"to read it: perftop attach {address}")
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
    """Runs the probe while there are readers. The first time, the probe starts without any readers,
    so that the user who started perftop sees its errors."""
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
        ("scrape-config", "the lines for prometheus.yml, for the address of --listen"),
        ("rules", "rules for Prometheus"), ("dashboard", "the Grafana dashboard"),
    ):  # fmt: skip
        printed_group.add_argument(
            f"--print-{name}", dest="printed", action="store_const", const=name,
            help=f"print {text}",
        )  # fmt: skip


def run_exporter(args: argparse.Namespace) -> int:
    """Runs the exporter until a signal. It listens on the sockets of the service manager, or else
    at an address; if only a text file was requested, it does not listen."""
    if args.printed == "scrape-config":
        with options.fast_imports():
            from perftop.verbs.exporter_server import requested_scrape_snippet

        sys.stdout.write(requested_scrape_snippet(args.listen))
        return 0
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
    with options.fast_imports():
        from perftop.verbs.exporter_server import Exporter, listening_sockets
        from perftop.verbs.running import run_consumer
    with contextlib.ExitStack() as stack:
        only_file = path is not None and args.listen is None
        sockets = [] if only_file else stack.enter_context(listening_sockets(args.listen))
        run_loop(run_consumer, Exporter(sockets, args.detail, path, owners=args.owners), argv)
    return 0


def shipped_text(name: str) -> str:
    from importlib import resources

    resource = resources.files("perftop.output.export") / "shipped" / SHIPPED_FILES[name]
    return resource.read_text(encoding="utf-8")


def print_shipped(name: str) -> int:
    """Prints a file shipped with perftop. In a service, inserts the path of this perftop."""
    program_path = sys.argv[0] if Path(sys.argv[0]).name == "perftop" else shutil.which("perftop")
    program = Path(program_path or "/usr/bin/perftop").absolute()
    is_hidden = any(program.is_relative_to(directory) for directory in HIDDEN_DIRECTORIES)
    if name in {"unit", "recorder"} and is_hidden:
        text = f"{program} is in a home directory, which the service cannot see: install perftop"
        print_error(f"{text} elsewhere, such as /opt")
    sys.stdout.write(shipped_text(name).replace("@PERFTOP@", str(program)))
    return 0
