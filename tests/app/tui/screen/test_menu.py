"""Lists over a view: what is chosen, what comes back, and that the view stays in sight."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from fakes import Machine
from playing import Run, play, running
from textual.widgets import OptionList

from perftop.base.text import plain
from perftop.draw import theme
from perftop.tui.screen.menu import Chooser, Menu

THREE = [("a", "apple"), ("b", "pear ×2"), ("c", "[plum]")]
Act = Callable[[Run, list[object]], Awaitable[None]]


def over(screen: Callable[[], Menu | Chooser], act: Act, *, ascii_: bool = False) -> list[object]:
    """What came back."""
    found: list[object] = []

    async def go(run: Run) -> None:
        await run.app.push_screen(screen(), found.append)
        await run.pilot.pause()
        await act(run, found)

    play(Machine(), go, (80, 24), ascii_=ascii_)
    return found


def pressing(*keys: str) -> Act:
    async def act(run: Run, found: list[object]) -> None:
        await run.pilot.press(*keys)
        assert len(run.app.screen_stack) == 1

    return act


def picture(run: Run) -> str:
    return run.app.export_screenshot().replace("&#160;", " ")


@pytest.mark.parametrize(
    ("keys", "found"),
    [(["enter"], "b"), (["j", "enter"], "c"), (["k", "enter"], "a"), (["down", "enter"], "c"),
     (["home", "enter"], "a"), (["escape"], None), (["j", "q"], None)],
)  # fmt: skip
def test_a_menu_gives_the_one_that_is_taken(keys: list[str], found: str | None) -> None:
    assert over(lambda: Menu("fruit", THREE, "b"), pressing(*keys)) == [found]


def test_a_menu_begins_at_the_top_where_nothing_of_it_is_chosen() -> None:
    assert over(lambda: Menu("fruit", THREE, "x"), pressing("enter")) == ["a"]


@pytest.mark.parametrize(
    ("keys", "found"),
    [(["enter"], {"b"}), (["space", "enter"], {"a", "b"}), (["j", "space", "enter"], set()),
     (["a", "enter"], {"a", "b", "c"}), (["a", "a", "enter"], set()), (["a", "escape"], None),
     (["space", "q"], None)],
)  # fmt: skip
def test_a_chooser_gives_those_that_are_marked(keys: list[str], found: set[str] | None) -> None:
    assert over(lambda: Chooser("fruit", THREE, {"b"}), pressing(*keys)) == [found]


def test_a_click_takes_one_turns_one_or_leaves() -> None:
    async def take(run: Run, found: list[object]) -> None:
        await run.pilot.click(OptionList, offset=(5, 3))

    async def turn(run: Run, found: list[object]) -> None:
        await run.pilot.click(OptionList, offset=(5, 3))
        assert found == []
        await run.pilot.press("enter")

    async def leave(run: Run, found: list[object]) -> None:
        await run.pilot.click(offset=(1, 1))

    assert over(lambda: Menu("fruit", THREE, "b"), take) == ["c"]
    assert over(lambda: Chooser("fruit", THREE, {"b"}), turn) == [{"b", "c"}]
    assert over(lambda: Menu("fruit", THREE, "b"), leave) == [None]


def test_labels_are_drawn_as_they_are_and_the_view_is_not_dimmed() -> None:
    async def act(run: Run, found: list[object]) -> None:
        text = picture(run)
        for part in (
            "fruit",
            "▌ pear ×2",
            "[plum]",
            "package 0",
            theme.PALETTES["perftop-dark"].colors["both"],
        ):
            assert part in text
        await run.intervals(2)  # numbers go on beneath
        await run.pilot.press("slash", "question_mark", "4", "escape")

    assert over(lambda: Menu("fruit", THREE, "b"), act) == [None]


def test_a_locale_without_shapes_gets_plain_ones() -> None:
    async def act(run: Run, found: list[object]) -> None:
        panel = run.app.screen.query_one(OptionList)
        drawn = [panel.render_line(y).text for y in range(3)]
        assert all(text.isascii() for text in drawn)
        assert drawn[1].strip() == f"{plain(theme.CHOSEN)} pear x2"
        edges = {c for c in picture(run) if c in "─│╭╮╰╯"}
        assert not edges
        await run.pilot.press("q")

    over(lambda: Menu("fruit", THREE, "b", ascii_=True), act, ascii_=True)


def test_many_scroll_on_a_small_screen() -> None:
    many = [(str(i), f"number {i}") for i in range(90)]

    async def act(run: Run, found: list[object]) -> None:
        panel = run.app.screen.query_one(OptionList)
        assert panel.region.bottom <= 24
        assert "number 89" in "".join(panel.render_line(y).text for y in range(panel.size.height))
        await run.pilot.resize_terminal(20, 5)
        await run.pilot.press("end", "enter")

    assert over(lambda: Menu("long", many, "89"), act) == ["89"]


async def test_sorting_from_the_menu() -> None:
    async with running(Machine()) as run:
        await run.pilot.press("s", *["j"] * 3, "enter")
        assert run.grid.choice.order == "util"
        await run.pilot.press("r", "s", "escape")
        assert (run.grid.choice.order, run.grid.choice.reverse) == ("util", True)
        await run.pilot.press("s", "home", "enter")
        assert (run.grid.choice.order, run.grid.choice.reverse) == ("topology", False)


async def test_the_menu_has_full_names_and_marks_the_order_in_force() -> None:
    async with running(Machine()) as run:
        await run.pilot.press("s", *["j"] * 3, "enter", "r", "s")
        panel = run.app.screen.query_one(OptionList)
        drawn = [panel.render_line(y).text.strip() for y in range(panel.option_count)]
        assert drawn[:5] == [
            "topology", "CPU number", "worst first",
            f"{theme.CHOSEN} busy time, %  {theme.RISING}", "clock, GHz",
        ]  # fmt: skip
        assert {"involuntary halts, %", "kernel cycles, %", "IPC"} <= set(drawn)


def test_a_second_enter_that_comes_too_late_does_nothing() -> None:
    async def twice(run: Run, found: list[object]) -> None:
        menu = run.app.screen
        assert isinstance(menu, Menu)
        menu.dismiss("a")
        menu.dismiss("b")
        await run.pilot.pause()
        assert len(run.app.screen_stack) == 1
        assert found == ["a"]

    over(lambda: Menu("fruit", THREE, "a"), twice)


def test_where_there_is_no_room_for_a_line_there_is_no_page() -> None:
    async def act(run: Run, _: list[object]) -> None:
        await run.pilot.resize_terminal(1, 1)
        await run.pilot.press("pageup", "pagedown")
        assert isinstance(run.app.screen, Menu)

    over(lambda: Menu("fruit", THREE, "a"), act)
