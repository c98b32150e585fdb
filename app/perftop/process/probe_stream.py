"""A stream of messages from a probe that runs as a child process.

`async with spawn([...]) as stream: async for messages in stream: ...`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from perfprobe import wire
from perftop.base.errors import UNAVAILABLE, Failed
from perftop.process.launch import Feed, started
from perftop.process.link import Link, LinkStream
from perftop.process.socket_probe import SCHEME
from perftop.process.ssh import Broken

READ_BYTES = 1 << 18
MOST_AT_REST = 1 << 15
"""Bytes after which the reader reads again before it rests, so that the pipe, which holds twice as
many at least, is never full. In a second, as many come from a dozen CPUs."""
REST_S = 1.0
"""Seconds between two reads while a command runs, for those who tell only its end. To take each
sample as it comes costs three times as much, beside the command."""
LATE_S = 0.01
"""Time from a sample to its arrival; more is seldom needed."""
HELLO_S = 30.0
"""Longest wait for the first bytes of a probe that is far away."""


class Stream(Protocol):
    def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        """The messages in their order, as many at once as have come."""


class ProbeStream:
    def __init__(self, probe: Feed, count: Callable[[int], None] = lambda _: None) -> None:
        """`count` is told how many bytes have come."""
        self._probe, self._count = probe, count
        self._transport: asyncio.ReadTransport | None = None
        self._rest_s = self._due_s = 0.0
        """Seconds between two reads, 0: what comes is read at once; and the time of the next, by
        the loop."""
        self._hurry = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        decoder = wire.Decoder()
        stdout = await self._reader()
        while data := await self._read(stdout, decoder):
            self._count(len(data))
            messages: list[wire.Message] = []
            failed = _decode(decoder, data, messages, self._probe.place)
            if messages:
                yield messages
            if failed is not None:
                raise failed
            if self._rest_s and len(data) < MOST_AT_REST:
                await self._rested()
        if not decoder.ended:
            failed = await asyncio.to_thread(self._probe.ended, decoder.cut)
            self._probe.told = True  # not if we were cancelled meanwhile
            raise failed

    async def _read(self, stdout: asyncio.StreamReader, decoder: wire.Decoder) -> bytes:
        place = self._probe.place
        if place is None or decoder.hello is not None:
            return await stdout.read(READ_BYTES)
        try:
            async with asyncio.timeout(HELLO_S):
                return await stdout.read(READ_BYTES)
        except TimeoutError:
            text = f"{place}: it is connected, but nothing has come for {HELLO_S:.0f} s"
            raise Broken(text, UNAVAILABLE) from None

    def rest(self, seconds: float) -> None:
        """From now on reads once in so many seconds; 0: at once whatever comes, as at the
        beginning. What the probe writes meanwhile waits in the pipe. Reads come just after samples
        if this is called when one has come."""
        self._rest_s = seconds
        self._due_s = asyncio.get_running_loop().time() + seconds + LATE_S
        if not seconds:
            self._hurry.set()

    async def _rested(self) -> None:
        assert self._transport is not None
        due_s = self._due_s
        self._hurry.clear()
        self._transport.pause_reading()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due_s):
                await self._hurry.wait()
        self._transport.resume_reading()
        if self._due_s == due_s:  # else it was told anew meanwhile
            self._due_s = max(due_s + self._rest_s, asyncio.get_running_loop().time())

    async def _reader(self) -> asyncio.StreamReader:
        reader, loop = asyncio.StreamReader(READ_BYTES), asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._probe.stdout
        )
        return reader

    def disconnect(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def close(self, first: Failed | None = None) -> None:
        """End the probe. Raises Failed for `first`, an earlier failure, and for registers that were
        not restored."""
        self.disconnect()
        last = await asyncio.to_thread(self._probe.end)
        if last is not None:
            self._probe.told = True
        if first is not None and last is not None:
            raise Failed(f"{first}\n{last}", first.status)
        if first is not None or last is not None:
            raise first or last  # type: ignore[misc]


def _decode(
    decoder: wire.Decoder, data: bytes, messages: list[wire.Message], place: str | None
) -> Failed | None:
    """Add the messages that these bytes complete. Returns why nothing can come after them."""
    try:
        for message in decoder.feed(data):
            if isinstance(message, wire.Bye) and message.status:
                return Failed(message.reason, message.status)
            messages.append(message)
    except wire.WireError as error:
        if place is not None and decoder.hello is None:
            text = f"{place}: no stream of perfprobe comes from there: {error}"
            mend = f"; its shell's start file must print nothing: ssh {place} true"
            return Failed(text + ("" if place.startswith(SCHEME) else mend), UNAVAILABLE)
        there = f"{place}: " if place else ""
        return Failed(f"{there}the probe sent unreadable data: {error}, at byte {decoder.offset}")
    return None


class _FarStream(LinkStream):
    """The stream of a probe that is not our child: a new connection each time that one breaks."""

    def __init__(self, probe: Feed, place: str, *, anew: bool) -> None:
        super().__init__(probe, Link(place, probe), self._connected, anew=anew)
        probe.link = self.link
        self._probe = probe
        self._now = ProbeStream(probe)

    async def _connected(self) -> AsyncIterator[list[wire.Message]]:
        self._now.disconnect()
        self._now = ProbeStream(self._probe, self.link.count)
        async for messages in self._now:
            yield messages

    async def close(self, first: Failed | None = None) -> None:
        await self._now.close(first)


@asynccontextmanager
async def attached(probe: Feed, *, anew: bool = False) -> AsyncIterator[Stream]:
    """The stream of a launched probe. When the block is left the probe has ended. Raises Failed for
    registers that are not restored. `anew`: whether the reader takes a second hello, of a machine
    that was restarted."""
    place = probe.place
    stream = _FarStream(probe, place, anew=anew) if place else ProbeStream(probe)
    async with _closing(stream):
        yield stream


@asynccontextmanager
async def _closing(stream: _FarStream | ProbeStream) -> AsyncIterator[None]:
    try:
        yield
    except Failed as failed:
        await stream.close(failed)
    except BaseException:
        await stream.close()
        raise
    else:
        await stream.close()


@asynccontextmanager
async def connected(
    argv: Sequence[str], count: Callable[[int], None] = lambda _: None
) -> AsyncIterator[Stream]:
    """One connection, for readers that try again themselves: it ends when it breaks. `count`: is
    told how many bytes have come, each time."""
    stream = ProbeStream(started(argv), count)
    async with _closing(stream):
        yield stream


@asynccontextmanager
async def spawn(argv: Sequence[str]) -> AsyncIterator[Stream]:
    async with attached(started(argv)) as stream:
        yield stream
