"""Scrollbars: there only where lines do not fit, and beside what is drawn."""

from __future__ import annotations

import pytest
from fakes import Machine
from painted import messages, shown
from playing import running
from waiting import until

from perftop.tui.screen.monitor import Monitor
from perftop.tui.shared import keys

FRAMES = 40


@pytest.mark.parametrize("size", [(80, 24), (120, 30)])
async def test_no_scrollbar_touches_a_digit(size: tuple[int, int]) -> None:
    """All views with more lines than the screen has."""

    touched, scrolled = [], 0
    async with shown(messages(128, FRAMES), size) as app:
        for name in (view for view in keys.TURN if view != "core"):
            screen = app.screen
            assert isinstance(screen, Monitor)
            await screen.action_view(name)
            view = screen.view
            await until(lambda of=view: bool(of.virtual_size), name)  # type: ignore[misc]
            if not view.show_vertical_scrollbar:
                continue
            scrolled += 1
            texts = [view.render_line(y).text for y in range(view.size.height)]
            touched += [f"{name}: {t}" for t in texts if t[view.width - 1].isalnum()]
    assert scrolled > 1
    assert touched == []


async def test_a_screen_that_fits_again_has_no_scrollbar() -> None:
    async with running(Machine(cores=4), (80, 25)) as run:
        for height in (25, 24):
            await run.pilot.resize_terminal(80, height)
            await run.pilot.pause()
            view = run.monitor.view
            assert view.count + len(view.feet) <= view.size.height
            assert not view.show_vertical_scrollbar
            assert not any(v.text[view.width :].strip() for v in map(view.render_line, range(19)))
