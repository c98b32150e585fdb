"""Streams of many machines, read side by side. One that hangs, lies or is gone holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from perfprobe import wire
from perfprobe.frozen import frozen
from perftop.base.errors import Failed
from perftop.process.probe_stream import Stream
from perftop.process.retry import Retry

STARTING = 8
"""Machines that are being connected to at once: each costs a process here, and one there."""
START_S = 2.0
"""Longest time for which one that starts keeps others waiting."""
HELLO_S = 30.0
"""Longest time until a machine's first message: connection, login and start take place in it."""
SILENT_S = 10.0
"""Longest time between two messages of a machine, plus two samples."""

Opener = Callable[[], AbstractAsyncContextManager[Stream]]


class Listener(Protocol):
    """Who wants the messages of one machine."""

    def take(self, messages: Sequence[wire.Message]) -> None:
        """Take what has come. Raises wire.WireError for what cannot be true."""

    def fail(self, why: str, retry_s: float) -> None:
        """Called when it does not answer; the next try comes after `retry_s`."""


@frozen
class Member:
    """One of the machines."""

    open: Opener
    listener: Listener
    sample_s: float = 1.0


async def listen(members: Sequence[Member]) -> None:
    """Read all of them until it is cancelled; then all streams are closed, side by side."""
    threads = ThreadPoolExecutor(max(1, len(members)), "link")  # each waits for a process's end
    asyncio.get_running_loop().set_default_executor(threads)
    gate = asyncio.Semaphore(STARTING)
    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(_keep(member, gate))


async def _keep(member: Member, gate: asyncio.Semaphore) -> None:
    """Read the stream, and open it again whenever it has ended."""
    retry = Retry()
    while True:
        pace = _Pace(gate)
        try:
            await _read(member, pace)
        except Failed as failed:
            why = str(failed)
        except wire.WireError as error:
            why = f"it sent what cannot be true: {error}"
        except TimeoutError:
            why = "it has fallen silent" if pace.heard else f"no answer within {HELLO_S:.0f} s"
        finally:
            pace.go_on()
        if pace.heard:
            retry.answered()
        wait_s = retry.wait_s()
        member.listener.fail(why, wait_s)
        await asyncio.sleep(wait_s)


async def _read(member: Member, pace: _Pace) -> None:
    """Read a stream to its end. Raises Failed, WireError, or TimeoutError if nothing comes."""
    await pace.start()
    now = asyncio.get_running_loop().time
    async with asyncio.timeout(HELLO_S) as limit, member.open() as stream:
        async for messages in stream:
            member.listener.take(messages)
            pace.heard = True
            pace.go_on()
            limit.reschedule(now() + SILENT_S + 2 * member.sample_s)
        raise Failed("the probe there has ended")


class _Pace:
    """Lets a machine start when few others do, and these start when it has, or is slow."""

    def __init__(self, gate: asyncio.Semaphore) -> None:
        self._gate: asyncio.Semaphore | None = None
        self._wanted = gate
        self.heard = False
        """A message has come."""

    async def start(self) -> None:
        await self._wanted.acquire()
        self._gate = self._wanted
        asyncio.get_running_loop().call_later(START_S, self.go_on)

    def go_on(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.release()
