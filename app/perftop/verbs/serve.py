"""`perftop serve`: one probe for many readers on this machine. The probe itself, which may have
more rights, neither listens nor reads: it writes to us, as it does for a single reader."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from perftop.base.errors import USAGE, Failed, complain
from perftop.process.signals import ENDS, ignore, on_signal
from perftop.process.sockets import Readers, inherited_unix_socket, listening_socket, may_read
from perftop.process.streams import Stream, spawn

REST_S = 10.0
"""Seconds without a reader after which the probe rests."""


@contextlib.contextmanager
def listening(path: Path | None, group: int | None) -> Iterator[socket.socket]:
    """systemd's socket if it has one for us, else one at the path. Raises Failed."""
    given = inherited_unix_socket()
    if given is not None:
        with given:
            yield given
    elif path is None:
        raise Failed("serve: say where by --socket PATH, or let systemd hand over a socket", USAGE)
    else:
        with listening_socket(path, group) as made:
            yield made


def run(argv: list[str], path: Path | None, group: int | None) -> int:
    """`argv`: the probe's command line. `group`: its members may read, too."""
    with listening(path, group) as listener:
        if sys.stderr is not None and sys.stderr.isatty():
            complain(f"to read it: perftop attach unix:{listener.getsockname()}")
        asyncio.run(_serve(listener, argv, group))
    return 0


async def _serve(listener: socket.socket, argv: list[str], group: int | None) -> None:
    loop, readers = asyncio.get_running_loop(), Readers()
    relaying = asyncio.ensure_future(_relay(readers, argv))

    def end(_: object) -> None:
        relaying.cancel()

    on_signal(ENDS, end)
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
    with contextlib.suppress(OSError, struct.error):  # it has gone again
        peer, _ = listener.accept()
        try:
            if may_read(peer, group) and readers.admit(peer):
                return
        except OSError:
            peer.close()
            raise
        peer.close()


async def _relay(readers: Readers, argv: list[str]) -> None:
    """Runs the probe while there are readers. It begins at once, so that what is wrong with it is
    said to whoever starts us."""
    while True:
        async with spawn(argv) as stream:
            watching = asyncio.ensure_future(_deserted(readers))
            reading = asyncio.ensure_future(_read(readers, stream))
            try:
                done, _ = await asyncio.wait(
                    {watching, reading}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
                if reading in done:
                    raise Failed("the probe has ended")
            finally:
                for task in (watching, reading):
                    task.cancel()
                await asyncio.wait({watching, reading})
        readers.rested()
        await readers.came.wait()


async def _deserted(readers: Readers) -> None:
    """Waits until there has been no reader for some time."""
    while True:
        await readers.gone.wait()
        try:
            async with asyncio.timeout(REST_S):
                await readers.came.wait()
        except TimeoutError:
            return


async def _read(readers: Readers, stream: Stream) -> None:
    async for messages in stream:
        for message in messages:
            readers.take(message)
