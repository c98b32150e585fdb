"""Where messages come from: a probe as a child process.

`async with spawn([...]) as stream: async for message in stream: ...`
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import IO, Protocol

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.process.launch import launch

READ_BYTES = 1 << 18
STDERR_BYTES = 4096
"""Of a dying probe's last words: enough for its one line, bounded whatever it says."""
GRACE_S = 2.0
"""A probe restores what it changed before it ends; after this long it is ended without."""


class Stream(Protocol):
    def __aiter__(self) -> AsyncIterator[wire.Message]: ...


class _Probe:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._words = b""
        self._transports: list[asyncio.BaseTransport] = []

    async def __aiter__(self) -> AsyncIterator[wire.Message]:
        decoder = wire.Decoder()
        stdout = await self._reader(self._process.stdout)
        stderr = await self._reader(self._process.stderr)
        listening = asyncio.create_task(self._listen(stderr))
        try:
            while data := await stdout.read(READ_BYTES):
                for message in decoder.feed(data):
                    if isinstance(message, wire.Bye) and message.status:
                        raise Failed(message.reason, message.status)
                    yield message
        except wire.WireError as error:
            raise Failed(f"the probe sent what cannot be read: {error}") from None
        if not decoder.ended:
            await asyncio.wait({listening}, timeout=GRACE_S)
            raise Failed(await self._why(decoder), self._status())
        listening.cancel()

    async def _reader(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        reader, loop = asyncio.StreamReader(READ_BYTES), asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        self._transports.append(transport)
        return reader

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(STDERR_BYTES):
            self._words = (self._words + data)[-STDERR_BYTES:]

    def _status(self) -> int:
        code = self._process.returncode
        return code if code is not None and code > 0 else 1

    async def _why(self, decoder: wire.Decoder) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, GRACE_S)
        lines = self._words.decode(errors="replace").strip().splitlines()
        code = self._process.returncode
        if lines and code is not None and code > 0:
            return lines[-1].removeprefix("perfprobe: ")
        how = f"ended by signal {-code}" if code is not None and code < 0 else "ended"
        tail = f", {decoder.cut} bytes into a message" if decoder.cut else ""
        return f"the probe {how} without a word{tail}"

    async def close(self) -> None:
        process = self._process
        if process.stdin is not None:
            process.stdin.close()  # the probe ends when its stdin does
        for transport in self._transports:
            transport.close()
        try:
            await asyncio.to_thread(process.wait, GRACE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(PermissionError):  # it is root's: its stdin has told it
                process.kill()
                await asyncio.to_thread(process.wait)


@asynccontextmanager
async def attached(process: subprocess.Popen[bytes]) -> AsyncIterator[Stream]:
    """A probe that has been launched; at the end it is told to end, and has."""
    probe = _Probe(process)
    try:
        yield probe
    finally:
        await probe.close()


@asynccontextmanager
async def spawn(argv: Sequence[str]) -> AsyncIterator[Stream]:
    async with attached(launch(argv)) as stream:
        yield stream
