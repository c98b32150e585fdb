"""`perftop serve`: shares one probe among many readers on this machine. The probe itself may have
more rights, so it neither listens nor reads. It only writes to perftop, as for a single reader."""

from __future__ import annotations

import argparse
import contextlib
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftop.base.errors import USAGE, Failed, print_error
from perftop.verbs import options

if TYPE_CHECKING:
    import socket

    from perftop.process.sockets import Readers

IDLE_S = 10.0
"""Seconds without a reader after which the probe is ended."""


def add(verbs: Any) -> None:
    text = "one probe for many readers on this machine: perftop attach unix:PATH"
    parser = options.add_verb(verbs, "serve", run, text, stream=True)
    text = "listen there; systemd may hand over a socket"
    parser.add_argument("--socket", type=Path, metavar="PATH", help=text)
    text = "let members of this group read, too"
    parser.add_argument("--group", metavar="NAME", help=text)


def run(args: argparse.Namespace) -> int:
    from perftop.process import sockets
    from perftop.process.signals import run_loop

    _, sample_ns = options.interval_and_sample(args)
    argv = options.stream_command(args, sample_ns, sample_ns)
    group = None if args.group is None else sockets.group_id(args.group)
    with listening_socket_of(args.socket, group) as listener:
        if sys.stderr is not None and sys.stderr.isatty():
            print_error(f"to read it: perftop attach unix:{listener.getsockname()}")
        run_loop(serve, listener, argv, group)
    return 0


def listening_socket_of(
    path: Path | None, group: int | None
) -> contextlib.AbstractContextManager[socket.socket]:
    """Returns the listening socket: the one passed by systemd, else one at `path`. Raises
    Failed."""
    from perftop.process.sockets import inherited_unix_socket, listening_socket

    inherited_socket = inherited_unix_socket()
    if inherited_socket is not None:
        return inherited_socket
    if path is None:
        raise Failed("no socket to listen on: --socket PATH, or one from systemd", USAGE)
    return listening_socket(path, group)


async def serve(listener: socket.socket, argv: list[str], group: int | None) -> None:
    """Serves until a signal. `argv`: the probe's command line. `group`: ID of a group whose members
    may also read; None for no group."""
    import asyncio

    from perftop.process.signals import END_SIGNALS, ignore, on_signal
    from perftop.process.sockets import Readers

    loop, readers = asyncio.get_running_loop(), Readers()
    relaying = asyncio.ensure_future(_relay(readers, argv))

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
    from perftop.process.sockets import may_read

    with contextlib.suppress(OSError, struct.error):  # the client has already disconnected
        peer, _ = listener.accept()
        try:
            if may_read(peer, group) and readers.admit(peer):
                return
        except OSError:
            peer.close()
            raise
        peer.close()


async def _relay(readers: Readers, argv: list[str]) -> None:
    """Runs the probe while there are readers. It first starts without readers, so that the user who
    started perftop sees its errors."""
    import asyncio

    from perftop.process.streams import spawn

    async def read() -> None:
        async for messages in stream:
            for message in messages:
                readers.take(message)
        raise Failed("the probe has ended")

    while True:
        async with spawn(argv) as stream:
            no_readers = asyncio.ensure_future(_wait_for_no_readers(readers))
            reading = asyncio.ensure_future(read())
            try:
                finished_tasks, _ = await asyncio.wait(
                    {no_readers, reading}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in finished_tasks:
                    task.result()
            finally:
                for task in (no_readers, reading):
                    task.cancel()
                await asyncio.wait({no_readers, reading})
        await readers.has_readers.wait()


async def _wait_for_no_readers(readers: Readers) -> None:
    """Waits until there has been no reader for IDLE_S. A reader that comes later, while the probe
    ends, is one of the next stream."""
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
