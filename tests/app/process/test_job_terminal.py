"""The terminal that a command has for its own."""

from __future__ import annotations

import asyncio
import os

import pytest
from waiting import until

from perftop.process.job_terminal import INTERRUPT, READ_BYTES, TURN_BYTES, JobTerminal


async def test_its_terminal_is_its_own_and_knows_its_size() -> None:
    with JobTerminal(["sh", "-c", "stty size; tty; echo ready; exec cat"], 99, 12) as tty:
        tty.job.go()
        printed = bytearray()
        tty.follow(printed.extend)
        await until(lambda: b"ready" in printed, "it prints")
        tty.resize(70, 5)
        tty.type(INTERRUPT)
        done = await tty.job.ended()
        assert done.status == 130
        await until(lambda: tty.closed, "nobody is left")
    size, name, *_ = bytes(printed).splitlines()
    assert size == b"12 99"
    assert name.startswith(b"/dev/pts/")


async def test_a_flood_is_followed_in_turns() -> None:
    with JobTerminal(["yes"], 80, 24) as tty:
        tty.job.go()
        sizes: list[int] = []
        tty.follow(lambda data: sizes.append(len(data)))
        turns = 0
        while sum(sizes) < 500_000:
            await asyncio.sleep(0)
            turns += 1
        tty.leave()
        tty.job.kill(9)
        await tty.job.ended()
    assert max(sizes) <= TURN_BYTES + READ_BYTES
    assert turns > 2, "others had their turn"


async def test_after_the_screen_all_that_it_prints_is_handed_on() -> None:
    ours, theirs = os.pipe()
    with JobTerminal(["seq", "5000"], 80, 24) as tty:
        tty.job.go()
        copying = asyncio.ensure_future(asyncio.to_thread(tty.copy, theirs))
        await tty.job.ended()
        tty.finish()
        await copying
    os.close(theirs)
    with os.fdopen(ours, "rb") as printed:
        assert printed.read().split() == [b"%d" % n for n in range(1, 5001)]


@pytest.mark.parametrize("script", ["sleep 60 & exit 4", "timeout --foreground 60 yes & exit 4"])
async def test_who_is_left_behind_there_is_not_waited_for(script: str) -> None:
    to = os.open(os.devnull, os.O_WRONLY)
    with JobTerminal(["sh", "-c", f"trap '' HUP; {script}"], 80, 24) as tty:
        try:
            tty.job.go()
            copying = asyncio.ensure_future(asyncio.to_thread(tty.copy, to))
            done = await tty.job.ended()
            tty.finish()
            await asyncio.wait_for(copying, 20)
            assert done.status == 4
        finally:
            os.killpg(tty.job.pid, 9)
    os.close(to)
