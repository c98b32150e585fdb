"""The hint for people who see the screen for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import Machine
from playing import running
from waiting import until

from perftop.base.user_directory import user_directory
from perftop.tui import first_picture as first_run
from perftop.tui.shared import keys

CAPTIONS = keys.captions({})


def test_it_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    first = first_run.hint(CAPTIONS)
    assert first == "New here?  ? shows keys and shapes · enter opens a core · perftop demo"
    assert first_run.hint(CAPTIONS) == ""
    assert [path.name for path in (tmp_path / "state" / "perftop").iterdir()] == ["greeted"]


def test_keys_are_those_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "F2 shows keys" in first_run.hint(keys.captions({"help": "f2"}))


def test_where_nothing_can_be_remembered_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert first_run.hint(CAPTIONS) == ""


def test_a_relative_directory_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/ada")
    assert user_directory("STATE", "~/.local/state") == Path("/home/ada/.local/state")


async def test_it_comes_with_the_first_numbers_and_goes_with_a_key() -> None:
    async with running(Machine(), greeting="New here?") as run:
        await run.sees("New here?")
        await run.pilot.press("down")
        await until(lambda: not run.has("New here?"), "the hint has gone")
        await run.intervals(2)
        assert not run.has("New here?")
