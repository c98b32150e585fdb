"""A stream of messages from a probe that runs as a child process.

`async with spawn([...]) as stream: async for messages in stream: ...`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from perfprobe import wire
from perftop.base.errors import UNAVAILABLE, Failed
from perftop.process.launch import Probe, launch

READ_BYTES = 1 << 18


class Stream(Protocol):
    def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        """The messages in their order, as many at once as have come."""


class _ProbeStream:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._transport: asyncio.BaseTransport | None = None

    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        decoder = wire.Decoder()
        stdout = await self._reader()
        while data := await stdout.read(READ_BYTES):
            messages: list[wire.Message] = []
            failed = _decode(decoder, data, messages, self._probe.host)
            if messages:
                yield messages
            if failed is not None:
                raise failed
        if not decoder.ended:
            failed = await asyncio.to_thread(self._probe.ended, decoder.cut)
            self._probe.told = True  # not if we were cancelled meanwhile
            raise failed

    async def _reader(self) -> asyncio.StreamReader:
        reader, loop = asyncio.StreamReader(READ_BYTES), asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._probe.process.stdout
        )
        return reader

    async def close(self, first: Failed | None = None) -> None:
        """End the probe. Raises Failed for `first`, an earlier failure, and for registers that were
        not restored."""
        if self._transport is not None:
            self._transport.close()
        last = await asyncio.to_thread(self._probe.end)
        if last is not None:
            self._probe.told = True
        if first is not None and last is not None:
            raise Failed(f"{first}\n{last}", first.status)
        if first is not None or last is not None:
            raise first or last  # type: ignore[misc]


def _decode(
    decoder: wire.Decoder, data: bytes, messages: list[wire.Message], host: str | None
) -> Failed | None:
    """Add the messages that these bytes complete. Returns why nothing can come after them."""
    try:
        for message in decoder.feed(data):
            if isinstance(message, wire.Bye) and message.status:
                return Failed(message.reason, message.status)
            messages.append(message)
    except wire.WireError as error:
        if host is not None and decoder.hello is None:
            text = f"{host}: no stream of perfprobe comes from there: {error}; "
            mend = f"its shell's start file must print nothing: ssh {host} true"
            return Failed(text + mend, UNAVAILABLE)
        there = f"{host}: " if host else ""
        text = f"{there}the probe sent what cannot be read: {error}, at byte {decoder.offset}"
        return Failed(text)
    return None


@asynccontextmanager
async def attached(probe: Probe) -> AsyncIterator[Stream]:
    """The stream of a launched probe. When the block is left the probe has ended. Raises Failed for
    registers that are not restored."""
    stream = _ProbeStream(probe)
    try:
        yield stream
    except Failed as failed:
        await stream.close(failed)
    except BaseException:
        await stream.close()
        raise
    else:
        await stream.close()


@asynccontextmanager
async def spawn(argv: Sequence[str]) -> AsyncIterator[Stream]:
    async with attached(launch(argv)) as stream:
        yield stream
