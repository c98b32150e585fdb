"""Wakeups of the app: one for each batch from the pipe, and no others."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from painted import PaintedApp, messages
from simulated import SAMPLE_NS
from waiting import MAX_WAIT_S, until_quiet, until_true

from perfprobe import wire
from perftop.process.streams import ProbeStream, Stream
from perftop.tui.stream import LiveSource

BATCHES = 12


class Counted(PaintedApp):
    """The app on the read end of a pipe. It counts sleeps of its event loop, and writes."""

    def __init__(self, reader: int) -> None:
        probe: Any = SimpleNamespace(stdout=io.FileIO(reader), place=None)

        @asynccontextmanager
        async def opener() -> AsyncIterator[Stream]:
            yield ProbeStream(probe)

        self.live = LiveSource(opener, SAMPLE_NS)
        super().__init__(self.live)
        self.slept = self.writes = 0
        self.drew = threading.Event()

    def post_display_hook(self) -> None:
        super().post_display_hook()
        self.writes += 1
        self.drew.set()

    def watch_sleep(self) -> None:
        loop: Any = asyncio.get_running_loop()
        select = loop._selector.select

        def counted(timeout: float | None = None) -> Any:
            self.slept += timeout is None or timeout > 0
            return select(timeout)

        loop._selector.select = counted


def feed(app: Counted, writer: int, batches: list[bytes]) -> None:
    """Writes each batch after the previous one was drawn and the app sleeps again."""
    for batch in batches:
        app.drew.clear()
        before = app.slept
        os.write(writer, batch)
        assert app.drew.wait(MAX_WAIT_S)
        while app.slept == before:
            threading.Event().wait(0.001)


async def test_a_batch_causes_one_wakeup_and_one_write() -> None:
    reader, writer = os.pipe()
    texts = [wire.encode(message) for message in messages(2, 20 + BATCHES)]
    app = Counted(reader)
    run = asyncio.ensure_future(app.run_async(size=(160, 50)))
    os.write(writer, b"".join(texts[:20]))
    await until_true(lambda: app._up and app.live.interval is not None, "the first numbers")
    await until_quiet()
    app.watch_sleep()
    slept, writes = app.slept, app.writes
    await asyncio.to_thread(feed, app, writer, texts[20:])
    # The loop sleeps once before the first batch and once after each; a slow machine may add one.
    assert app.slept - slept <= BATCHES + 3
    assert app.writes - writes <= BATCHES + 1
    assert not [*app._timers]
    app.exit()
    await run
    os.close(writer)
