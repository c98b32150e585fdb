"""Menus over a view: selection, results, and the view behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from fakes import Machine
from playing import Run, running_app
from rich.style import Style
from textual import events
from textual.widgets import OptionList
from waiting import until_true

from perftop.draw import theme
from perftop.draw.columns import RISING
from perftop.tui.frame.overlays import Chooser, Menu

THREE = [("a", "apple"), ("b", "pear ×2"), ("c", "[plum]")]


@asynccontextmanager
async def menu_result(
    screen: Callable[[], Menu | Chooser], *, ascii_: bool = False
) -> AsyncIterator[tuple[Run, list[object]]]:
    """Opens the menu and collects its results."""
    results: list[object] = []
    async with running_app(Machine(), (80, 24), ascii_=ascii_) as run:
        await run.app.push_screen(screen(), results.append)
        await until_true(lambda: run.app.screen.focused, "the list to take the keys")
        await run.pilot.pause()
        yield run, results


async def pressed(screen: Callable[[], Menu | Chooser], *keys: str) -> list[object]:
    async with menu_result(screen) as (run, result):
        await run.pilot.press(*keys)
        await until_true(lambda: len(run.app.screen_stack) == 1, "the list to close")
    return result


def picture(run: Run) -> str:
    return run.app.export_screenshot().replace("&#160;", " ")


@pytest.mark.parametrize(
    ("keys", "found"),
    [(["enter"], "b"), (["j", "enter"], "c"), (["k", "enter"], "a"), (["down", "enter"], "c"),
     (["home", "enter"], "a"), (["escape"], None), (["j", "q"], None)],
)  # fmt: skip
async def test_a_menu_returns_the_selected_item(keys: list[str], found: str | None) -> None:
    assert await pressed(lambda: Menu("fruit", THREE, "b"), *keys) == [found]


@pytest.mark.parametrize(
    ("keys", "found"),
    [(["enter"], {"b"}), (["space", "enter"], {"a", "b"}), (["j", "space", "enter"], set()),
     (["a", "enter"], {"a", "b", "c"}), (["a", "a", "enter"], set()), (["a", "escape"], None),
     (["space", "q"], None)],
)  # fmt: skip
async def test_a_chooser_returns_the_marked_items(keys: list[str], found: set[str] | None) -> None:
    assert await pressed(lambda: Chooser("fruit", THREE, {"b"}), *keys) == [found]


async def test_a_click_selects_marks_or_closes() -> None:
    async with menu_result(lambda: Menu("fruit", THREE, "b")) as (run, taken):
        await run.pilot.click(OptionList, offset=(5, 3))
    assert taken == ["c"]
    async with menu_result(lambda: Chooser("fruit", THREE, {"b"})) as (run, turned):
        await run.pilot.click(OptionList, offset=(5, 3))
        assert turned == []
        await run.pilot.press("enter")
    assert turned == [{"b", "c"}]
    async with menu_result(lambda: Menu("fruit", THREE, "b")) as (run, left):
        await run.pilot.click(offset=(1, 1))
    assert left == [None]


async def test_a_click_on_an_option_that_is_gone_is_dropped() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("s")
        options = run.app.screen.query_one(OptionList)
        click = events.Click(options, 5, 3, 0, 0, 1, False, False, False)
        click.style = Style.from_meta({"option": options.option_count})
        options.post_message(click)
        await run.pilot.pause()
        assert run.app.screen.query_one(OptionList) is options


async def test_labels_are_literal_and_the_view_is_not_dimmed() -> None:
    async with menu_result(lambda: Menu("fruit", THREE, "b")) as (run, result):
        text = picture(run)
        for part in (
            "fruit",
            "▌ pear ×2",
            "[plum]",
            "package 0",
            theme.PALETTES["perftop-dark"].colors["both"],
        ):
            assert part in text
        await run.intervals(2)  # the view below is updated
        await run.pilot.press("slash", "question_mark", "4", "escape")
    assert result == [None]


async def test_long_menus_scroll_on_a_small_screen() -> None:
    many = [(str(i), f"number {i}") for i in range(90)]

    async with menu_result(lambda: Menu("long", many, "89")) as (run, result):
        panel = run.app.screen.query_one(OptionList)
        assert panel.region.bottom <= 24
        assert "number 89" in "".join(panel.render_line(y).text for y in range(panel.size.height))
        await run.pilot.resize_terminal(20, 5)
        await run.pilot.press("end", "enter")
    assert result == ["89"]


async def test_the_menu_has_full_names_and_marks_the_current_order() -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press("s", *["j"] * 3, "enter", "r", "s")
        panel = run.app.screen.query_one(OptionList)
        drawn = [panel.render_line(y).text.strip() for y in range(panel.option_count)]
        assert drawn[:5] == [
            "topology", "CPU number", "worst first",
            f"{theme.CHOSEN_SIGN} busy time, %  {RISING}", "clock, GHz",
        ]  # fmt: skip
        assert {"involuntary halts, %", "kernel cycles, %", "IPC"} <= set(drawn)


async def test_a_second_enter_after_closing_does_nothing() -> None:
    async with menu_result(lambda: Menu("fruit", THREE, "a")) as (run, result):
        menu = run.app.screen
        assert isinstance(menu, Menu)
        menu.dismiss("a")
        menu.dismiss("b")
        await run.pilot.pause()
        assert len(run.app.screen_stack) == 1
        assert result == ["a"]


async def test_a_menu_without_room_is_not_shown() -> None:
    async with menu_result(lambda: Menu("fruit", THREE, "a")) as (run, _):
        await run.pilot.resize_terminal(1, 1)
        await run.pilot.press("pageup", "pagedown")
        assert isinstance(run.app.screen, Menu)
