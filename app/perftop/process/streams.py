"""Streams of messages from a local or remote probe:
`async with open_stream(probe) as stream: async for messages in stream: ...`"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Protocol, Self

from perfprobe import wire
from perftop.base.errors import UNAVAILABLE, Failed
from perftop.process.launch import SOCKET_SCHEME, START_FILE_FIX, AnyProbe, BrokenLink
from perftop.process.link import Link, StreamJoiner
from perftop.process.signals import run_in_thread

READ_BYTES = 1 << 18
MAX_PAUSED_BYTES = 1 << 15
"""Bytes of one read after which the next read follows without a pause, so that the pipe, which has
at least twice as much room, is never full. A dozen CPUs send as much in a second."""
MAX_ARRIVAL_S = 0.01
MAX_HELLO_WAIT_S = 30.0
"""Longest wait in s for the first complete message of a probe; includes connection, login and
start."""
MAX_LOCAL_HELLO_WAIT_S = 120.0
"""Longest wait in s for the first message of a probe on this machine, which starts slowly if many
programs compete for each CPU."""
PING_PERIOD_S = 2.0
MAX_SILENCE_S = 10.0
"""A stream is silent after this time in s plus two sample periods without a sample from a remote
machine. For a probe on this machine, it applies only if nothing else is pending."""


class Stream(Protocol):
    def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        """Yields lists of all messages that have arrived, in order."""


StreamOpener = Callable[[], AbstractAsyncContextManager[Stream]]


class _SilenceTimer:
    """Limits the time since the last sample. It waits twice for half of the limit: while perftop
    itself is stopped, only one of these waits can end, so data in the pipe are read before the
    limit has passed."""

    def __init__(self, limit_s: float) -> None:
        self.restart(limit_s)

    def restart(self, limit_s: float) -> None:
        """Restarts the timer after a sample, with this limit."""
        self.limit_s, self._halves = limit_s, 0
        self.check_s = asyncio.get_running_loop().time() + limit_s / 2
        """Time, by the loop's clock, at which the current half of the limit ends."""

    def has_expired(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self.check_s:
            self._halves += 1
            self.check_s = now_s + self.limit_s / 2
        return self._halves > 1


def _has_sample(messages: Sequence[wire.Message]) -> bool:
    return any(isinstance(message, wire.Hello | wire.Frame) for message in messages)


class _ClosingStream(ABC):
    """A stream that ends its probe at the end of the `async with` block, and raises Failed there if
    registers were not restored."""

    @abstractmethod
    async def close(self, earlier_failure: Failed | None = None) -> None:
        """Ends the probe. Raises Failed if registers were not restored or if there was an
        `earlier_failure`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        await self.close(error if isinstance(error, Failed) else None)


class ProbeStream(_ClosingStream):
    """The messages of one connection to a probe."""

    def __init__(
        self, probe: AnyProbe, count_bytes: Callable[[int], None] = lambda _: None
    ) -> None:
        """`count_bytes` is called with the number of bytes of each read."""
        self._probe, self._count = probe, count_bytes
        self._transport: asyncio.ReadTransport | None = None
        self._read_pause_s = self._due_s = 0.0
        """Seconds between two reads (0: no pause), and time of the next read by the loop's
        clock."""
        self._read_pause_changed = asyncio.Event()
        self.fails_when_silent: Callable[[], bool] = lambda: False
        """Returns whether a local probe that hangs for MAX_SILENCE_S is a failure. It is if the
        caller waits only for this stream, as before the start of a command and after its end."""

    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        decoder = wire.Decoder()
        stdout, loop = asyncio.StreamReader(READ_BYTES), asyncio.get_running_loop()
        is_local = self._probe.remote_name is None
        silence = _SilenceTimer(MAX_LOCAL_HELLO_WAIT_S if is_local else MAX_HELLO_WAIT_S)
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout), self._probe.stdout
        )
        while data := await self._read(stdout, decoder.hello, silence):
            self._count(len(data))
            messages: list[wire.Message] = []
            failed = _decode(decoder, data, messages, self._probe.remote_name)
            if decoder.hello is not None and _has_sample(messages):
                silence.restart(MAX_SILENCE_S + 2 * decoder.hello.sample_ns / 1e9)
            if messages:
                yield messages
            if failed is not None:
                raise failed
            if self._read_pause_s and len(data) < MAX_PAUSED_BYTES:
                await self._pause_between_reads()
        if not decoder.ended:
            failed = await run_in_thread(partial(self._probe.end_failure, decoder.cut_byte_count))
            self._probe.failure_raised = True  # not reached if cancelled
            raise failed

    async def _read(
        self, stdout: asyncio.StreamReader, hello: wire.Hello | None, silence: _SilenceTimer
    ) -> bytes:
        """Returns the data that have arrived; b"" at the end. Raises Failed if no sample arrives in
        time."""
        while True:
            data = None
            with suppress(TimeoutError):
                async with asyncio.timeout_at(silence.check_s):
                    data = await stdout.read(READ_BYTES)
            if silence.has_expired():
                remote_name, span = self._probe.remote_name, f"for {silence.limit_s:.0f} s"
                if remote_name is not None:
                    nothing = "connected, but received nothing"
                    what = nothing if hello is None else "received no sample"
                    raise BrokenLink(f"{remote_name}: {what} {span}", UNAVAILABLE)
                if hello is None or self.fails_when_silent():
                    tail = "" if hello is None else "; the measurement is incomplete"
                    raise Failed(f"the probe has sent nothing {span} (was it stopped?){tail}")
            if data is not None:
                return data

    def set_read_pause(self, seconds: float) -> None:
        """Makes the stream read once every `seconds`; 0, the default: whenever data arrive. Between
        two reads, the probe's output waits in the pipe. If this is called when a sample has
        arrived, later reads follow just after samples."""
        self._read_pause_s = seconds
        self._due_s = asyncio.get_running_loop().time() + seconds + MAX_ARRIVAL_S
        if not seconds:
            self._read_pause_changed.set()

    async def _pause_between_reads(self) -> None:
        assert self._transport is not None
        due_s = self._due_s
        self._read_pause_changed.clear()
        self._transport.pause_reading()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due_s):
                await self._read_pause_changed.wait()
        self._transport.resume_reading()
        if self._due_s == due_s:  # `set_read_pause` was not called since
            self._due_s = max(due_s + self._read_pause_s, asyncio.get_running_loop().time())

    def disconnect(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def close(self, earlier_failure: Failed | None = None) -> None:
        self.disconnect()
        end_failure = await run_in_thread(self._probe.end)
        if end_failure is not None:
            self._probe.failure_raised = True
            if earlier_failure is None:
                raise end_failure
            text, status = str(earlier_failure), earlier_failure.status
            raise Failed(text, status, extra_lines=end_failure.lines)
        if earlier_failure is not None:
            raise earlier_failure


def _decode(
    decoder: wire.Decoder, data: bytes, messages: list[wire.Message], remote_name: str | None
) -> Failed | None:
    """Decodes these bytes, and adds the complete messages to `messages`. Returns a failure if the
    stream cannot continue."""
    try:
        for message in decoder.feed(data):
            if isinstance(message, wire.Bye) and message.status:
                return Failed(message.reason, message.status)
            messages.append(message)
    except wire.WireError as error:
        if remote_name is not None and decoder.hello is None:
            text = f"{remote_name}: its output is not a stream of perfprobe: {error}"
            is_foreign = isinstance(error, wire.ForeignDataError)
            if is_foreign and not remote_name.startswith(SOCKET_SCHEME):
                text += f"; {START_FILE_FIX.format(host=remote_name)}"
            return Failed(text, UNAVAILABLE)
        prefix = f"{remote_name}: " if remote_name else ""
        return Failed(f"{prefix}the probe sent unreadable data: {error}, at byte {decoder.offset}")
    return None


class StreamEnded(Failed):
    """The stream cannot continue: no time is left for another attempt, or the machine or its
    counters have changed."""


class LinkedStream(_ClosingStream):
    """The stream of a remote probe or of a server. A broken connection is re-established after
    increasing waits, and the stream continues after a gap. This is not possible after a restart of
    the machine: then, with `restarts`, the stream begins again with the new hello, else it
    fails."""

    def __init__(self, probe: AnyProbe, remote_name: str, *, restarts: bool) -> None:
        self.link = probe.link = Link(remote_name, probe)
        self._probe, self._restarts = probe, restarts
        self._connection = ProbeStream(probe)
        self._joiner = StreamJoiner()
        self._has_hello = False
        """Whether the current connection has sent its hello."""

    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        pinging = asyncio.create_task(self._ping())
        try:
            while True:
                self._has_hello = False
                self._connection.disconnect()
                self._connection = ProbeStream(self._probe, self.link.count)
                try:
                    async for messages in self._connection:
                        if joined_messages := self._join_messages(messages):
                            yield joined_messages
                except Failed as failed:
                    self._mark_broken(failed)
                else:
                    return  # the probe sent a bye message
                await self._reconnect()
        finally:
            pinging.cancel()

    async def close(self, earlier_failure: Failed | None = None) -> None:
        await self._connection.close(earlier_failure)

    async def _ping(self) -> None:
        while True:
            if self._has_hello:
                self.link.ping()
            await asyncio.sleep(PING_PERIOD_S)

    def _join_messages(self, messages: list[wire.Message]) -> list[wire.Message]:
        """Returns the messages, changed to continue the stream. Echoes are left out, because only
        the link needs them."""
        joined_messages: list[wire.Message] = []
        rest: list[wire.Message] = []
        for message in messages:
            if isinstance(message, wire.Hello):
                link, mismatch = self.link, ""
                if self._joiner.hello is not None:
                    reason = link.broken_reason
                    link.set_connected()
                    mismatch = self._joiner.mismatch_text(message)
                    if mismatch and not self._restarts:
                        text = f"{link.remote_name}: {mismatch}; the earlier data is kept"
                        raise StreamEnded(text)
                if self._joiner.hello is None or mismatch:
                    self._joiner, joined_messages = StreamJoiner(message), [message]
                else:
                    joined_messages = self._joiner.gap_notes(message, reason)
                self._has_hello = True
            elif isinstance(message, wire.Note) and message.kind == "echo":
                self.link.on_echo(message)
            else:
                rest.append(message)
        return [*joined_messages, *self._joiner.joined_messages(rest)]

    def _mark_broken(self, failure: Failed) -> None:
        """Marks the link as broken. Raises the failure if another attempt would be useless: there
        was no hello yet, or the stream was invalid."""
        is_invalid = self._has_hello and not isinstance(failure, BrokenLink)
        if self._joiner.hello is None or is_invalid or isinstance(failure, StreamEnded):
            raise failure
        if self.link.is_over:
            raise StreamEnded(f"{failure}; there is no time left to try again")
        self._has_hello = False
        self.link.set_broken(str(failure))

    async def _reconnect(self) -> None:
        """Connects again, after a wait, until it succeeds."""
        while True:
            await run_in_thread(self._probe.end)
            await asyncio.sleep(self.link.wait_s())
            try:
                self._probe.start()
            except Failed as failed:
                self._mark_broken(failed)
            else:
                return


def open_stream(probe: AnyProbe, *, restarts: bool = False) -> LinkedStream | ProbeStream:
    """Returns the stream of a probe. `restarts`: the reader accepts another hello if the machine is
    restarted."""
    if probe.remote_name is None:
        return ProbeStream(probe)
    return LinkedStream(probe, probe.remote_name, restarts=restarts)
