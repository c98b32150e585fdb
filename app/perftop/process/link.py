"""A stream over a connection that can break: over ssh, or through a socket whose server may end. A
broken one is made again, with growing waits, until the reader leaves."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from math import inf, nan
from typing import Protocol

from perfprobe import wire
from perfprobe.frozen import frozen
from perftop.base.errors import Failed
from perftop.process.job import raw_ns
from perftop.process.rejoin import Rejoin
from perftop.process.retry import Retry
from perftop.process.ssh import Broken

PING_S = 2.0
UNANSWERED = 3
"""Echoes without an answer after which none is sent: an older probe knows none."""
LOST_NS = 30_000_000_000
"""Age of an echo that is not waited for any more, in ns: a probe whose output is full drops
some."""
RATE_S = 5.0
"""Span of the mean of bytes a second."""


class Ended(Failed):
    """The stream does not go on: it is too late, or what is there again is not what it was."""


Connect = Callable[[], AsyncIterator[list[wire.Message]]]


class Far(Protocol):
    """What a link needs of a probe."""

    def echo(self, number: int) -> None: ...

    def again(self) -> None:
        """Starts anew. Raises Failed."""

    def end(self) -> Failed | None: ...


@frozen
class Echo:
    """An answer from there. Times of the two machines are never compared."""

    sent_ns: int  # raw, here
    there_ns: int  # raw, there: when it was read
    took_ns: int


@frozen
class Way:
    """A link at one moment, as a screen shows it."""

    place: str
    rtt_s: float
    rate: float
    """Bytes a second that come."""
    down: str = ""
    """Why it is broken; '': it is not."""
    down_s: float = nan
    next_s: float = nan
    """Seconds since it broke, and until it is tried again; 0: it is being tried."""


class Link:
    """The state of a link, for those who show it. It is used in one loop."""

    def __init__(self, place: str, far: Far, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        self._far = far
        self._clock = clock
        self.down = ""
        """Why the link is broken; '': it is not."""
        self.down_since_s = self.next_s = nan
        """When it broke, and when it is tried again, by `clock`."""
        self.until_s = inf
        """Time of `clock` from which on a broken link is not tried again."""
        self.echoed: Echo | None = None
        """The newest answer."""
        self.bytes = 0
        self._counts: deque[tuple[float, int]] = deque([(clock(), 0)])
        self._sent: dict[int, int] = {}
        self._number = 0
        self._retry = Retry()

    @property
    def mute(self) -> bool:
        """Whether the probe there answers no echo, as older ones do not."""
        return self.echoed is None and len(self._sent) >= UNANSWERED

    @property
    def rtt_s(self) -> float:
        """Time to there and back; NaN: unknown."""
        return nan if self.echoed is None else self.echoed.took_ns / 1e9

    def rate(self) -> float:
        """Bytes a second that come from there; NaN: unknown yet."""
        now_s, counts = self._clock(), self._counts
        if now_s - counts[-1][0] >= 1:
            counts.append((now_s, self.bytes))
        while len(counts) > 2 and now_s - counts[0][0] > RATE_S:
            counts.popleft()
        (first_s, first), (last_s, last) = counts[0], counts[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else nan

    def count(self, read: int) -> None:
        self.bytes += read

    def way(self) -> Way:
        now_s = self._clock()
        ahead_s = max(0.0, self.next_s - now_s)
        return Way(
            self.place, self.rtt_s, self.rate(), self.down, now_s - self.down_since_s, ahead_s
        )

    def broken(self, why: str) -> None:
        if not self.down:
            self.down_since_s = self._clock()
        self.down = why
        self._sent.clear()

    @property
    def over(self) -> bool:
        """Whether it is too late for another try."""
        return self._clock() >= self.until_s

    def end_within(self, seconds: float) -> None:
        self.until_s = self._clock() + seconds

    def wait_s(self) -> float:
        """How long to wait now for the next try."""
        now_s = self._clock()
        wait_s = min(self._retry.wait_s(), max(0.0, self.until_s - now_s))
        self.next_s = now_s + wait_s
        return wait_s

    def back(self) -> None:
        self._retry.answered()
        self.down, self.down_since_s, self.next_s = "", nan, nan

    def ping(self) -> None:
        """Asks for an echo now."""
        now_ns = raw_ns()
        if self.echoed is not None:
            self._sent = {n: ns for n, ns in self._sent.items() if now_ns - ns < LOST_NS}
        if len(self._sent) < UNANSWERED:
            self._number += 1
            self._sent[self._number] = now_ns
            self._far.echo(self._number)

    def answered(self, note: wire.Note) -> None:
        number = note.data.get("number")
        sent_ns = self._sent.get(number) if isinstance(number, int) else None
        if sent_ns is not None:
            self._sent = {n: ns for n, ns in self._sent.items() if ns > sent_ns}
            self.echoed = Echo(sent_ns, note.time_ns, raw_ns() - sent_ns)


class LinkStream:
    """Messages of all connections to one probe, as one stream with gaps. Where a later connection
    does not continue the first (the machine was restarted), its hello is handed over if `anew`;
    else it is a failure."""

    def __init__(self, far: Far, link: Link, connect: Connect, *, anew: bool) -> None:
        """`connect`: the messages of the present connection."""
        self.link = link
        self._far, self._connect, self._anew = far, connect, anew
        self._joined = Rejoin()
        self._up = False
        """Whether the present connection has said hello."""

    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        pinging = asyncio.create_task(self._ping())
        try:
            while True:
                self._up = False
                try:
                    async for messages in self._connect():
                        if told := self._taken(messages):
                            yield told
                except Failed as failed:
                    self._broken(failed)
                else:
                    return  # it said goodbye
                await self._start()
        finally:
            pinging.cancel()

    async def _ping(self) -> None:
        while True:
            if self._up:
                self.link.ping()
            await asyncio.sleep(PING_S)

    def _taken(self, messages: list[wire.Message]) -> list[wire.Message]:
        told: list[wire.Message] = []
        if isinstance(hello := messages[0], wire.Hello):
            told, messages = self._hello(hello), messages[1:]
            self._up = True
        rest = [message for message in messages if not self._answer(message)]
        return [*told, *self._joined.taken(rest)]

    def _hello(self, hello: wire.Hello) -> list[wire.Message]:
        joined, link = self._joined, self.link
        why, first = link.down, joined.hello is None
        if not first:
            link.back()
        if not first and not (unfit := joined.unfit(hello)):
            return joined.again(hello, why)
        if not first and not self._anew:
            raise Ended(f"{link.place}: {unfit}; what came before is kept")
        self._joined = Rejoin(hello)
        return [hello]

    def _answer(self, message: wire.Message) -> bool:
        echo = isinstance(message, wire.Note) and message.kind == "echo"
        if echo:
            self.link.answered(message)  # type: ignore[arg-type]
        return echo

    def _broken(self, failed: Failed) -> None:
        """Raises the failure if trying again is of no use: nothing has ever come, or what came is
        wrong."""
        fatal = isinstance(failed, Ended) or (self._up and not isinstance(failed, Broken))
        if self._joined.hello is None or fatal:
            raise failed
        if self.link.over:
            raise Ended(f"{failed}; there is no time left to try again")
        self._up = False
        self.link.broken(str(failed))

    async def _start(self) -> None:
        """Waits, and starts the next connection."""
        link = self.link
        while True:
            await asyncio.to_thread(self._far.end)
            await asyncio.sleep(link.wait_s())
            try:
                self._far.again()
            except Failed as failed:
                self._broken(failed)
            else:
                return
