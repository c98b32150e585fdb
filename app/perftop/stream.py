"""Where messages come from: a probe as a child process, or a file. The same bytes, one interface.

`async with spawn([...]) as stream: async for message in stream: ...`
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from perfprobe import wire
from perftop.failed import Failed

UNAVAILABLE = 3
"""Exit status: what was asked for cannot be had here."""
READ_BYTES = 1 << 18
STDERR_BYTES = 4096
"""Of a dying probe's last words: enough for its one line, bounded whatever it says."""
GRACE_S = 2.0
"""A probe restores what it changed before it ends; after this long it is ended without."""


class Stream(Protocol):
    def __aiter__(self) -> AsyncIterator[wire.Message]: ...


def probe_command(*arguments: str, sudo: bool = False) -> list[str]:
    """The argv of a probe on this machine: the same interpreter, never what PATH may hold. With
    `sudo` it alone runs as root; the password must have been given before (`authorize`)."""
    # -P: a perfprobe/ in the working directory must not be what runs with our rights.
    own = [os.path.abspath(sys.executable), "-P", "-m", "perfprobe", *arguments]  # noqa: PTH100
    return ["sudo", "-n", "--", *own] if sudo else own


def authorize() -> None:
    """Has sudo ask for the password now, while the terminal is still the user's."""
    if shutil.which("sudo") is None:
        raise Failed("--sudo: there is no sudo here; run perftop as root instead", UNAVAILABLE)
    if subprocess.run(["sudo", "-v"], check=False).returncode:
        raise Failed("--sudo: sudo did not let the probe run as root", UNAVAILABLE)


class _Probe:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._words = b""

    async def __aiter__(self) -> AsyncIterator[wire.Message]:
        decoder = wire.Decoder()
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
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

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(STDERR_BYTES):
            self._words = (self._words + data)[-STDERR_BYTES:]

    def _status(self) -> int:
        code = self._process.returncode
        return code if code is not None and code > 0 else 1

    async def _why(self, decoder: wire.Decoder) -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), GRACE_S)
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
        if process.stdout is not None:
            process.stdout._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        try:
            await asyncio.wait_for(process.wait(), GRACE_S)
        except TimeoutError:
            with contextlib.suppress(PermissionError):  # it is root's: its stdin has told it
                process.kill()
                await process.wait()


@asynccontextmanager
async def spawn(argv: Sequence[str]) -> AsyncIterator[Stream]:
    """A probe as a child, in a process group of its own: the terminal's signals are for us."""
    if shutil.which(argv[0]) is None:
        raise Failed(f"{argv[0]} is not here")
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        process_group=0,
        limit=READ_BYTES,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    probe = _Probe(process)
    try:
        yield probe
    finally:
        await probe.close()


async def replay(data: bytes, chunk: int = READ_BYTES) -> AsyncIterator[wire.Message]:
    """A stream that lies in memory, for tests and short captures."""
    decoder = wire.Decoder()
    for start in range(0, len(data), chunk):
        for message in decoder.feed(data[start : start + chunk]):
            yield message
