"""The last lines: the prompt and the shown keys."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import fleets
import pytest
from fakes import Machine
from played_apps import Run, running_app
from textual import events
from textual.app import App, ComposeResult
from textual.widgets import Input, Static
from waiting import until_true

from perftop.draw import theme
from perftop.tui.app import PerfTopApp
from perftop.tui.fleet_screen import FleetScreen, FleetSource
from perftop.tui.frame.bottom import KeyPiece, Prompt, ShownKeys, key_pieces
from perftop.tui.frame.monitor import make_view
from perftop.tui.shared import keys
from perftop.tui.shared.row_numbers import ViewSettings

# --- the input line


class PromptApp(App[None]):
    """An app that has only a prompt."""

    def __init__(self, *, ascii_: bool = False) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.ascii = ascii_
        self._prompt = Prompt(lambda: self._called("done"))
        self.register_theme(theme.THEMES[0])
        self.theme = theme.THEMES[0].name

    def compose(self) -> ComposeResult:
        yield self._prompt

    def _called(self, name: str, text: str = "") -> str:
        self.calls.append((name, text))
        if "!" in text:
            raise ValueError(f"no {text}")
        return text.upper()

    def ask(self, text: str = "", hint: str = "") -> Prompt:
        self._prompt.ask(
            "filter", hint, lambda text: self._called("preview", text), text=text,
            on_accept=lambda text: self.calls.append(("accept", text)),
            on_cancel=lambda: self.calls.append(("leave", "")),
        )  # fmt: skip
        return self._prompt


async def test_all_texts_are_previewed_and_only_valid_ones_accepted() -> None:
    app = PromptApp()
    async with app.run_test(size=(120, 5)) as pilot:
        prompt = app.ask("ab")
        assert prompt.is_asking("filter")
        await pilot.press("c", "exclamation_mark", "enter")
        assert prompt.has_error
        assert prompt.is_asking("filter")  # refused
        await pilot.press("backspace", "enter")
        texts = dict.fromkeys(text for name, text in app.calls if name == "preview")
        assert [*texts] == ["ab", "abc", "abc!"]
        assert app.calls[-2:] == [("done", ""), ("accept", "abc")]
        assert not prompt.is_asking("filter")


async def test_keys_typed_before_a_prompt_closes_are_dropped() -> None:
    """Textual reports a text after its change: Esc may have been pressed by then."""
    app = PromptApp()
    async with app.run_test(size=(120, 5)) as pilot:
        prompt = app.ask("ab")
        await pilot.pause()
        line = prompt.query_one(Input)
        line.value = "abc"
        line.post_message(Input.Submitted(line, "abc"))
        prompt.action_leave()
        await pilot.pause()
        assert app.calls[-2:] == [("leave", ""), ("done", "")]
        assert {text for _, text in app.calls} == {"ab", ""}


@pytest.mark.parametrize("name", theme.PALETTES)
async def test_the_cursor_is_visible_in_all_themes(name: str) -> None:
    async with running_app(Machine(), (120, 24)) as run:
        run.app.theme = name
        await run.pilot.press("slash", "a")
        await run.pilot.pause()
        text, cursor, *_ = prompt(run).query_one(Input).render_line(0)
        assert text.style
        assert cursor.style
        assert (text.text, cursor.text, cursor.style.reverse) == ("a", " ", True)
        assert (cursor.style.color, cursor.style.bgcolor) == (text.style.color, text.style.bgcolor)


# --- filters


def prompt(run: Run) -> Prompt:
    return run.monitor.query_one(Prompt)


def words(run: Run) -> str:
    return str(prompt(run).query_one("#prompt-words", Static).content)


def rows(run: Run) -> list[str]:
    """Returns the CPUs of the rows in the overview."""
    grid = run.grid
    lines = [grid.render_line(y).text for y in range(grid.size.height - len(grid.footer_lines))]
    return [part for line in lines for part in line.split()[:4] if re.fullmatch(r"\d,\d", part)]


async def test_a_closed_prompt_does_not_take_keys() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("slash", "escape")
        run.monitor.query_one(Input).focus()  # a late return of the focus after a click elsewhere
        await run.pilot.press("2")
        assert run.monitor.view.id == "heat"


async def test_a_core_remains_selected_after_intermediate_filters() -> None:
    async with running_app(Machine()) as run:
        settings = run.monitor.settings
        await run.pilot.press("down", "down", "slash", *"0-3")
        assert settings.cpu == 2
        await run.pilot.press("backspace", "backspace")
        assert settings.cpu == 0
        await run.pilot.press("-", "2", "enter")
        assert settings.cpu == 2
        await run.pilot.press("slash", *["backspace"] * 3, "3", "enter")
        assert settings.cpu == 3


async def test_an_unmatched_filter_does_not_stop_updates() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("slash", *"nobody")
        await until_true(lambda: words(run) == "no CPU matches", "the hint")
        await run.pilot.press("enter")
        await run.wait_for_text("nobody · no CPU matches")
        await run.wait_for_text(" no CPU matches nobody")
        await run.wait_for_text("4 cores, 8 CPUs")
        for key in ("down", "end", "pageup", "o", "r", "enter", "s", "escape", "4", "1"):
            await run.pilot.press(key)
        await run.send_intervals(2)
        await run.pilot.press("escape", "escape")
        await until_true(lambda: len(rows(run)) == 4, "all cores")


async def test_typed_characters_are_not_commands() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("slash", *"q1:?sTo 4", "space", "tab")
        assert run.app.is_running
        assert len(run.app.screen_stack) == 1
        assert run.monitor.view.id == "overview"
        await run.pilot.click("#overview", offset=(20, 4))
        await run.pilot.press("x")
        assert prompt(run).query_one(Input).value.endswith("x")  # text can still be typed
        await run.pilot.press("f6", "slash", "escape", "f1", "slash", "escape", "y", "escape")
        assert prompt(run).query_one(Input).value.endswith("xy")
        await run.pilot.press("down")
        assert run.monitor.settings.cpu == 1
        await run.pilot.press("slash", "J", "escape", "J", "slash", "f4", "escape", "ctrl+c")
        await until_true(lambda: not run.app.is_running, "ctrl+c quits from everywhere")


# --- times


async def test_jumping_shows_the_given_time() -> None:
    async with running_app(Machine()) as run:
        await run.send_intervals(10)
        newest = run.source.interval

        def back_ns() -> int:
            assert newest
            assert run.source.interval
            return newest.time_ns - run.source.interval.time_ns

        await run.pilot.press("J", *"noon", "enter")
        assert "12:03:05" in words(run)
        assert run.source.status.paused_at is None
        await run.pilot.press(*["backspace"] * 4, *"-1", "enter")
        assert not prompt(run).display
        await until_true(lambda: run.source.status.paused_at is not None, "a pause")
        assert back_ns() == 10**9
        await run.pilot.press("J", *"+500ms", "enter")
        await until_true(lambda: back_ns() == 10**9 // 2, "half way back")
        await run.pilot.press("J", *"-1h", "enter")
        assert "history holds" in words(run)
        await run.pilot.press("escape", "space")
        assert run.source.status.paused_at is None


async def test_a_long_filter_is_cut_in_the_line_of_keys() -> None:
    async with running_app(Machine()) as run:
        for text, label in (("x" * 24, "x" * 24), ("x" * 25, "x" * 23 + "…")):
            run.monitor.settings.set_filter(text, 0)
            run.monitor._apply_filter()
            shown = run.monitor._keys.shown
            assert shown is not None
            assert shown.labels["clear"].split(" · ")[1] == label


@pytest.mark.parametrize("previous_filter", ["", "0-3"])
async def test_a_filter_without_a_match_is_applied_only_when_accepted(previous_filter: str) -> None:
    async with running_app(Machine()) as run:
        if previous_filter:
            await run.pilot.press("slash", *previous_filter, "enter")
        count = len(rows(run))
        await run.pilot.press("slash", *["backspace"] * len(previous_filter), *"busy>99")
        await run.send_intervals(2)
        await until_true(lambda: words(run) == "no CPU matches", "the prompt reports the filter")
        assert len(rows(run)) == count
        await run.pilot.press("enter")
        assert rows(run) == []


@pytest.mark.parametrize(
    ("typed", "label"), [("/0-1", "filter"), ("m12b", "mark"), ("J-3", "jump to")]
)
async def test_keys_pressed_together_reach_the_prompt_opened_by_the_first(
    typed: str, label: str
) -> None:
    async with running_app(Machine()) as run:
        await run.send_intervals(2)
        for sign in typed:
            name = {"/": "slash", "-": "minus"}.get(sign, sign)
            run.app.post_message(events.Key(name, sign))
        await until_true(lambda: run.monitor.query("Prompt > Input"), "a prompt")
        await until_true(lambda: prompt(run).text == typed[1:], "the text")
        assert prompt(run).is_asking(label)


async def test_keys_pressed_together_reach_the_palette() -> None:
    async with running_app(Machine()) as run:
        for sign in ":qn2":
            run.app.post_message(events.Key("colon" if sign == ":" else sign, sign))
        await until_true(
            lambda: any(one.value == "qn2" for one in run.app.screen.query(Input)), "text"
        )


async def test_a_key_without_an_action_is_reported() -> None:
    async with running_app(Machine()) as run:
        for key, text in (
            ("f9", "F9 has no action in perftop"),
            ("{", "{ has no action in this view"),
        ):
            await run.pilot.press(key)
            await run.wait_for_text(f"{text}; ? lists all keys")


@pytest.mark.parametrize(("burst", "filter_text"), [
    (["slash", "x", "escape", "3"], None), (["slash", "escape", "escape", "3"], None),
    (["slash", "0", "enter", "3"], "0"),
])  # fmt: skip
async def test_keys_behind_the_one_that_closes_the_prompt_do_not_belong_to_it(
    burst: list[str], filter_text: str | None
) -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("slash", "escape", "2")
        for name in burst:
            sign = "/" if name == "slash" else name if len(name) == 1 else None
            run.app.post_message(events.Key(name, sign))
        for _ in range(20):
            await run.pilot.pause()
        shown = run.monitor.settings.filter
        assert (run.monitor.view.id, shown and shown.text) == ("time", filter_text)


async def test_esc_closes_the_prompt_just_after_a_click_elsewhere() -> None:
    """A click takes the focus, which returns a few turns of the event loop later. Between these,
    Esc goes to the view."""
    async with running_app(Machine()) as run:
        await run.pilot.press("slash", "x")
        run.monitor.set_focus(run.monitor.view)
        await run.monitor.action_back()
        assert not prompt(run).display
        await run.pilot.press("question_mark")
        assert len(run.app.screen_stack) == 2, "the help"


async def test_esc_closes_the_prompt_of_a_fleet_without_its_focus() -> None:
    source = FleetSource(fleets.Made(fleets.racks(1, 2), "over ssh"), cpu_clock=lambda: 0.0)
    async with PerfTopApp(source).run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", "k")
        screen = pilot.app.screen
        assert isinstance(screen, FleetScreen)
        screen.action_back()
        assert not screen.query_one(Prompt).display
        assert screen.focused is screen.page
        assert source.screen.state.selection.filter == "", "as before the prompt"


# --- the key line


CAPTIONS = keys.key_captions({})
LAST_KEYS = "? help  q quit"
HINTS = {name: make_view(name, ViewSettings()).HINTS for name in (*keys.VIEW_ORDER, "core")}


def text_of(pieces: Iterable[KeyPiece]) -> str:
    return "".join(piece.text for piece in pieces).strip()


def line(name: str, width: int, *, replay: bool = False, **labels: str) -> list[KeyPiece]:
    return key_pieces(ShownKeys(name, HINTS[name], labels, replay=replay), CAPTIONS, width)


def test_the_key_line_fits_and_always_has_help_and_quit() -> None:
    widths = 20, 26, 40, 60, 80, 100, 120, 160, 240
    for name, width, replay in itertools.product(HINTS, widths, (False, True)):
        result = line(name, width, replay=replay)
        assert sum(len(piece.text) for piece in result) < width, (name, width, replay)
        assert text_of(result).endswith(LAST_KEYS), (name, width, replay)
