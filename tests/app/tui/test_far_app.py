"""The screen of another machine: a link that breaks, and a machine that comes back as another."""

from __future__ import annotations

import dataclasses

from fakes import Machine
from far import Far
from playing import running
from waiting import until

from perftop.process.link import Link


async def test_a_broken_link_is_on_the_screen_and_goes_again() -> None:
    link = Link("n7", Far(), lambda: 0.0)

    async with running(Machine(), link=lambda: link) as run:
        link.broken("n7: connection: refused")
        await run.sees("NO LINK FOR 0 s")
        assert run.has("n7: connection: refused")
        assert run.app.interval is not None, "what came before is kept"
        link.back()
        await until(lambda: not run.has("NO LINK"), "it is back")


async def test_a_restarted_machine_begins_a_new_session() -> None:
    async with running(Machine()) as run:
        await run.intervals(2)
        await run.pilot.press("space")
        before = run.app.playhead
        hello = run.feed.machine.hello
        later = dataclasses.replace(hello, raw_ns=hello.raw_ns + 5, boot_id="another")
        run.feed._queue.put_nowait(later)
        run.feed.seq = 0
        run.feed.frames(4)
        await run.sees("was restarted")
        await until(lambda: run.seq() >= 1, "numbers of the new session")
        assert run.app.playhead is not before
        assert not run.app.playhead.paused
        await run.pilot.press("2", "3", "4", "5", "1")
        await run.intervals(1)
