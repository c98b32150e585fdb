"""What a key has done is said in words, until the next key."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import Machine
from playing import running
from waiting import until


async def test_a_mark_is_told_with_its_time_and_goes_with_the_next_key() -> None:
    async with running(Machine()) as run:
        await run.pilot.press("m", *"warm", "enter")
        await until(lambda: run.app.status.notice.startswith('marked "warm" at '), "the mark")
        told = run.app.status.notice
        await run.sees(told)
        await run.pilot.press("down")
        assert run.app.status.notice == ""
        assert not run.has(told)


async def test_a_recording_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async with running(Machine()) as run:
        await run.pilot.press("R")
        await run.sees("recording to ")
        await run.pilot.press("down")
        await until(lambda: run.app.status.notice == "", "the message has gone")
        assert run.app.status.recording is not None
        await run.pilot.press("R")
        await until(lambda: not run.app.status.recording, "the end of the recording")


@pytest.mark.parametrize(
    ("keys", "words"), [(["n"], "no later episode"), (["N", "N"], "no earlier episode")]
)
async def test_where_there_is_no_other_episode(keys: list[str], words: str) -> None:
    """One runs from the first sample on."""

    async with running(Machine()) as run:
        await run.intervals(4)
        await run.pilot.press(*keys)
        await run.sees(words)
        await run.pilot.click(offset=(0, 20))
        await until(lambda: run.app.status.notice == "", "a click ends it, too")


async def test_a_jump_says_where_it_led() -> None:
    async with running(Machine()) as run:
        await run.intervals(12)
        await run.pilot.press("J", "minus", "1", "s", "enter")
        await until(lambda: run.app.status.notice.startswith("at "), "the moment")
        assert run.app.status.notice.endswith("; space goes on from there")
        assert run.app.status.paused is not None
