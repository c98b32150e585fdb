"""Streams of many machines: those that hang, break or lie hold nobody up, and are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import pytest
from fakes import Feed, Machine
from waiting import until

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.process import link, streams
from perftop.process.streams import Member, Stream, listen


class CountingListener:
    def __init__(self) -> None:
        self.messages = 0
        self.fails: list[tuple[str, float]] = []

    def take(self, messages: Sequence[wire.Message]) -> None:
        self.messages += len(messages)

    def fail(self, why: str, retry_s: float) -> None:
        self.fails.append((why, retry_s))


@asynccontextmanager
async def hangs() -> AsyncIterator[Stream]:
    await asyncio.Event().wait()
    yield Feed(Machine())


def refuses() -> AbstractAsyncContextManager[Stream]:
    raise Failed("connection refused")


class Broken:
    async def __aiter__(self) -> AsyncIterator[list[wire.Message]]:
        yield [Machine().hello]
        raise Failed("cut")


@asynccontextmanager
async def breaks() -> AsyncIterator[Stream]:
    yield Broken()


@asynccontextmanager
async def reading(members: Sequence[Member]) -> AsyncIterator[None]:
    task = asyncio.create_task(listen(members))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits of the module end soon."""
    for name in ("START_S", "HELLO_S", "SILENT_S"):
        monkeypatch.setattr(streams, name, 0.01)
    monkeypatch.setattr(link, "WAITS_S", (0.01, 0.02))


def linked(opener: streams.Opener) -> tuple[Member, CountingListener]:
    listener = CountingListener()
    return Member(opener, listener, 0.0), listener


async def test_who_hangs_or_refuses_holds_nobody_up() -> None:
    bad = [linked(hangs) for _ in range(20)] + [linked(refuses) for _ in range(20)]
    feed = Feed(Machine())
    good, listener = linked(feed.open)
    async with reading([member for member, _ in bad] + [good]):
        await until(lambda: listener.messages >= 2, "frames of the last machine")
        await until(lambda: all(one.fails for _, one in bad), "all others have failed")
    assert "no answer" in bad[0][1].fails[0][0]
    assert bad[20][1].fails[0] == ("connection refused", 0.01)
    assert feed.closed


async def test_a_broken_stream_is_opened_again_and_waits_grow() -> None:
    openers = iter([breaks, refuses, refuses, breaks, refuses])
    member, listener = linked(lambda: next(openers, hangs)())  # noqa: PLW0108 - another each time
    async with reading([member]):
        await until(lambda: len(listener.fails) >= 5, "five failures")
    texts = [why for why, _ in listener.fails[:4]]
    assert texts == ["cut", "connection refused", "connection refused", "cut"]
    assert [wait for _, wait in listener.fails[:4]] == [0.01, 0.02, 0.02, 0.01]


async def test_who_falls_silent_is_closed() -> None:
    feed = Feed(Machine())
    member, listener = linked(feed.open)
    async with reading([member]):
        await until(lambda: listener.fails, "silence is told")
        assert listener.fails[0][0] == "it has fallen silent"
        assert feed.closed


async def test_a_lie_ends_the_stream_of_that_machine() -> None:
    def lies(messages: object) -> None:
        raise wire.WireError("a frame before the hello")

    feed = Feed(Machine())
    member, listener = linked(feed.open)
    listener.take = lies  # type: ignore[method-assign]
    async with reading([member]):
        await until(lambda: listener.fails, "the lie is told")
    assert "cannot be true" in listener.fails[0][0]
