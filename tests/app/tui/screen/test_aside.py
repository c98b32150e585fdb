"""A screen that a fleet has opened: Esc leads back there."""

from __future__ import annotations

import pytest
from fakes import Machine
from playing import running

from perftop.tui.screen.monitor import ASIDE


@pytest.mark.parametrize("aside", [True, False])
async def test_escape_leaves_only_what_a_fleet_has_opened(
    aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if aside:
        monkeypatch.setenv(ASIDE, "1")

    async with running(Machine()) as run:
        await run.intervals(1)
        await run.pilot.press("enter", "escape")  # from a core to the overview
        assert not run.app._exit
        await run.pilot.press("escape")
        assert run.app._exit is aside
