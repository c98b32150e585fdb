"""The main screen: its views, times in the past, and scrollbars."""

from __future__ import annotations

import itertools

import pytest
from fakes import CpuLoad, Machine, guest, task_records
from nightly import cases_by_day, nightly_case
from played_apps import Run, running_app
from terminal_apps import messages, shown_app
from waiting import until_true

from perftop.model.kinds import Episode
from perftop.tui.frame.monitor import FLEET_VARIABLE, Monitor
from perftop.tui.frame.top import ScreenState
from perftop.tui.shared import keys
from perftop.tui.shared.canvas import Canvas


def view_text(run: Run) -> str:
    """Returns all lines of the current view."""
    view = run.monitor.view
    return "\n".join(view.render_line(y).text.rstrip() for y in range(view.size.height))


@pytest.mark.parametrize("cause", ["first numbers", "episode", "core"])
async def test_a_view_that_was_due_when_the_app_quits_is_not_opened(cause: str) -> None:
    """The first numbers of many CPUs and clicks open a view in a later turn of the event loop."""
    async with running_app(Machine(cores=80)) as run:
        await run.pilot.press("1")
        monitor, view = run.monitor, run.monitor.view
        monitor._views = {"overview": view}
        if cause == "first numbers":
            state = monitor.last_state
            monitor.last_state = ScreenState(None, None, state.status)
            monitor.show_state(state)
        elif cause == "episode":
            monitor.post_message(Canvas.EpisodeClicked(Episode("steal", [0], 0, 1)))
        else:
            view.open_core()
        run.app.exit()
        await run.pilot.pause()
        assert monitor.view is view


async def test_hidden_views_are_not_updated() -> None:
    async with running_app(Machine()) as run:
        assert len(run.monitor.query("Canvas")) == 1
        await run.pilot.press("4")
        before = run.grid.strip_count
        await run.send_intervals(2)
        assert run.grid.strip_count == before


@pytest.mark.parametrize("key", cases_by_day(["1", "2", "3", "4"], ["1", "3"]))
async def test_views_of_the_past_equal_the_live_views_of_that_time(key: str) -> None:
    m = Machine(cores=40)  # on a low screen without panels, since drawn episodes change later

    async with running_app(m, (100, 12)) as run:
        await run.pilot.press(key)
        m.loads = {cpu: CpuLoad(0.25, ipc=0.5) for cpu in range(8)}
        await run.send_intervals(3)
        then, moment = view_text(run), run.interval.time_ns
        m.loads = {cpu: CpuLoad(0.75, ipc=1.5) for cpu in range(8)}
        await run.send_intervals(3)
        assert view_text(run) != then
        await run.pilot.press("space", *["comma"] * 6)
        await run.pilot.pause()
        assert run.interval.time_ns == moment
        assert view_text(run) == then


@pytest.mark.parametrize(
    "machine", [Machine(cores=40), nightly_case(guest())], ids=["counters", "guest"]
)
async def test_any_keys_and_sizes_in_all_views_are_handled(machine: Machine) -> None:
    """No key fails, and all lines are as wide as the screen."""
    sizes = itertools.cycle([(160, 50), (80, 24), (20, 5), (240, 70), (61, 9)])
    keys = ["down", "G", "v", "V", "o", "r", "u", "t", "left", "space", "bracketleft", "s", "j",
            "enter", "]", "[", "pagedown", "w", "<", ">", "c", "escape", "T", "g", "up", "right",
            "space", "l", "k", "home", "end", "shift+left", "shift+right", "n", "N"]  # fmt: skip

    async with running_app(machine) as run:
        for turn, view in enumerate(("1", "2", "3", "4", "5", "6", "enter")):
            await run.pilot.press("escape", "escape", view)
            await run.pilot.resize_terminal(*next(sizes))
            await run.pilot.press(*(2 * keys)[5 * turn :][:12])
            await run.send_intervals(1)
            look = run.monitor.view
            lines = [look.render_line(y) for y in range(look.size.height)]
            assert {line.cell_length for line in lines} <= {look.size.width}
        assert run.app.failure is None
        assert run.app.is_running


async def test_names_from_outside_do_not_control_the_terminal() -> None:
    """The names are of a task on its CPU, of a task that takes the CPU, of details, and in records
    of another form."""
    records = task_records(["evil\x1b[31m\n漢", "\x1b[2J\u202e猫"]) | {
        "details": {"4000": {"command": "\x1b]0;x\x07"}}
    }
    records["tasks"] |= {"2": "no", "3": []}
    machine = Machine(cores=2, loads={0: CpuLoad(0.7), 1: CpuLoad(0.7)})
    async with running_app(machine, (240, 70)) as run:
        await run.send_intervals(10, records=records)
        for key in ("2", "3", "4", "6", "1", "enter"):
            await run.pilot.press(key)
            text = view_text(run)
            assert all(line.isprintable() for line in text.splitlines()), key
            assert "evil?[31m??" in text or key in "36", key
            assert "evil?[31m??:4000" in text or key != "4"


FRAMES = 40


@pytest.mark.parametrize("size", [(80, 24), (120, 30)])
async def test_scrollbars_do_not_touch_digits(size: tuple[int, int]) -> None:
    """All views that have more lines than the screen."""

    touched, scrolled = [], 0
    async with shown_app(messages(128, FRAMES), size) as app:
        for name in (view for view in keys.VIEW_ORDER if view != "core"):
            screen = app.screen
            assert isinstance(screen, Monitor)
            await screen.action_view(name)
            view = screen.view
            await until_true(lambda of=view: bool(of.virtual_size), name)  # type: ignore[misc]
            if not view.show_vertical_scrollbar:
                continue
            scrolled += 1
            texts = [view.render_line(y).text for y in range(view.size.height)]
            touched += [f"{name}: {t}" for t in texts if t[view.width - 1].isalnum()]
    assert scrolled > 1
    assert touched == []


async def test_a_screen_that_fits_again_has_no_scrollbar() -> None:
    async with running_app(Machine(cores=4), (80, 25)) as run:
        for height in (25, 24):
            await run.pilot.resize_terminal(80, height)
            await run.pilot.pause()
            view = run.monitor.view
            assert view.line_count + len(view.footer_lines) <= view.size.height
            assert not view.show_vertical_scrollbar
            assert not any(v.text[view.width :].strip() for v in map(view.render_line, range(19)))


@pytest.mark.parametrize("aside", [True, False])
async def test_escape_closes_only_a_screen_opened_from_a_fleet(
    aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if aside:
        monkeypatch.setenv(FLEET_VARIABLE, "1")

    async with running_app(Machine()) as run:
        await run.send_intervals(1)
        await run.pilot.press("enter", "escape")  # the keys go to a core and back to the overview
        assert not run.app._exit
        await run.pilot.press("escape")
        assert run.app._exit is aside
