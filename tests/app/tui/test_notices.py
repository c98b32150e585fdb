"""Messages on the screen: effects of keys, a broken link, and a restarted machine."""

from __future__ import annotations

import dataclasses

import pytest
from fake_ssh import RemoteFeed
from fakes import Machine
from playing import running_app
from waiting import until_true

from perftop.process.link import Link


async def test_a_mark_is_reported_with_its_time_until_the_next_key() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("m", *"warm", "enter")
        await until_true(
            lambda: run.source.status.notice.startswith('marked "warm" at '), "the mark"
        )
        output = run.source.status.notice
        await run.sees(output)
        await run.pilot.press("down")
        assert run.source.status.notice == ""
        assert not run.has(output)


@pytest.mark.parametrize(
    ("keys", "words"), [(["n"], "no later episode"), (["N", "N"], "no earlier episode")]
)
async def test_the_last_episode_is_reported_as_such(keys: list[str], words: str) -> None:
    """One episode runs from the first sample on."""

    async with running_app(Machine()) as run:
        await run.intervals(4)
        await run.pilot.press(*keys)
        await run.sees(words)
        await run.pilot.click(offset=(0, 20))
        await until_true(lambda: run.source.status.notice == "", "a click ends it, too")


async def test_a_jump_reports_its_time() -> None:
    async with running_app(Machine()) as run:
        await run.intervals(12)
        await run.pilot.press("J", "minus", "1", "s", "enter")
        await until_true(lambda: run.source.status.notice.startswith("at "), "the moment")
        assert run.source.status.notice.endswith("; space goes on from there")
        assert run.source.status.paused is not None


async def test_a_broken_link_is_shown_until_it_is_restored() -> None:
    link = Link("n7", RemoteFeed(), lambda: 0.0)

    async with running_app(Machine(), link=lambda: link) as run:
        link.set_down("n7: connection: refused")
        await run.sees("NO LINK FOR 0 s")
        assert run.has("n7: connection: refused")
        assert run.source.interval is not None, "what came before is kept"
        link.set_up()
        await until_true(lambda: not run.has("NO LINK"), "it is back")


async def test_a_restarted_machine_starts_a_new_session() -> None:
    async with running_app(Machine()) as run:
        await run.intervals(2)
        await run.pilot.press("space")
        hello = run.feed.machine.hello
        later = dataclasses.replace(hello, raw_ns=hello.raw_ns + 5, boot_id="another")
        run.feed.send(later)
        run.feed.seq = 0
        run.feed.frames(4)
        await run.sees("was restarted")
        await until_true(lambda: run.seq() >= 1, "numbers of the new session")
        assert not run.source.paused
        await run.pilot.press("2", "3", "4", "5", "1")
        await run.intervals(1)
