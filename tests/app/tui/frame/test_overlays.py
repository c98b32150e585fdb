"""Menus and the command palette over a view."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from inspect import signature

import pytest
from fakes import Machine, observe
from played_apps import Run, running_app
from rich.style import Style
from textual import events
from textual.actions import parse
from textual.command import CommandList
from textual.errors import NoWidget
from textual.geometry import Size
from textual.widgets import OptionList, Static
from waiting import until_true

from perftop.draw import strips, theme
from perftop.session.selection import HELP
from perftop.session.values import CpuColumns
from perftop.tui.app import PerfTopApp
from perftop.tui.frame import overlays
from perftop.tui.frame.monitor import Monitor
from perftop.tui.frame.overlays import (
    EPISODES,
    Chooser,
    Menu,
    Palette,
    _PaletteList,
    commands,
    cpu_commands,
)
from perftop.tui.shared import keys

OPTIONS = [("a", "apple"), ("b", "pear ×2"), ("c", "[plum]")]


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


async def results_after_keys(screen: Callable[[], Menu | Chooser], *keys: str) -> list[object]:
    async with menu_result(screen) as (run, result):
        await run.pilot.press(*keys)
        await until_true(lambda: len(run.app.screen_stack) == 1, "the list to close")
    return result


@pytest.mark.parametrize(("previous", "ticked", "order"), [
    ((), {"util", "ipc"}, ("util", "ipc")),
    (("ipc", "e.other", "busy_hz", "util"), {"util", "ipc"}, ("ipc", "e.other", "util")),
    (("ipc",), None, ()),
])  # fmt: skip
def test_ticked_columns_keep_their_order_and_unavailable_ones(
    previous: tuple[str, ...], ticked: set[str] | None, order: tuple[str, ...]
) -> None:
    session, _ = observe(Machine())
    everything = {column.key for column in CpuColumns(session).columns()}
    assert overlays.column_order(session, previous, ticked or everything) == order


@pytest.mark.parametrize(("keys", "marked_items"), [
    (["enter"], {"b"}), (["space", "enter"], {"a", "b"}), (["j", "space", "enter"], set()),
    (["a", "enter"], {"a", "b", "c"}), (["a", "a", "enter"], set()), (["a", "escape"], None),
    (["space", "q"], None),
])  # fmt: skip
async def test_a_chooser_returns_the_marked_items(
    keys: list[str], marked_items: set[str] | None
) -> None:
    assert await results_after_keys(lambda: Chooser("fruit", OPTIONS, {"b"}), *keys) == [
        marked_items
    ]


@pytest.mark.parametrize("key", ["s", "colon"])
async def test_a_list_survives_a_terminal_of_a_few_columns(key: str) -> None:
    async with running_app(Machine(cores=4)) as run:
        await run.pilot.press(key)
        await until_true(lambda: bool(run.app.screen.query(OptionList)), "there is a list")
        for columns in (9, 7, 6, 5, 4, 3, 2):
            await run.pilot.resize_terminal(columns, 13)
            await run.pilot.pause()
        assert run.app.screen.query(OptionList)


@pytest.mark.parametrize("key", ["s", "colon"])
async def test_a_click_on_an_option_that_is_gone_is_dropped(key: str) -> None:
    async with running_app(Machine()) as run:
        await run.pilot.press(key)
        await until_true(lambda: bool(run.app.screen.query(OptionList)), "there is a list")
        options = run.app.screen.query_one(OptionList)
        click = events.Click(options, 5, 3, 0, 0, 1, False, False, False)
        click.style = Style.from_meta({"option": options.option_count})
        options.post_message(click)
        await run.pilot.pause()
        assert run.app.screen.query_one(OptionList) is options


async def test_long_menus_scroll_on_a_small_screen() -> None:
    many = [(str(i), f"number {i}") for i in range(90)]

    async with menu_result(lambda: Menu("long", many, ["89"])) as (run, result):
        panel = run.app.screen.query_one(OptionList)
        assert panel.region.bottom <= 24
        assert "number 89" in "".join(panel.render_line(y).text for y in range(panel.size.height))
        await run.pilot.resize_terminal(20, 5)
        await run.pilot.press("end", "enter")
    assert result == ["89"]


async def test_a_second_enter_after_closing_does_nothing() -> None:
    async with menu_result(lambda: Menu("fruit", OPTIONS, ["a"])) as (run, result):
        menu = run.app.screen
        assert isinstance(menu, Menu)
        menu.dismiss("a")
        menu.dismiss("b")
        await run.pilot.pause()
        assert len(run.app.screen_stack) == 1
        assert result == ["a"]


# --- the command palette: search results and their execution


THEMES = theme.theme_names(no_color=False)


def test_all_choices_have_a_command() -> None:
    session, _ = observe(Machine())
    results = {name: action for name, _, action in commands(session, THEMES)}
    assert results["Theme perftop-safe"] == "app.theme('perftop-safe')"
    assert results["Clocks in MHz"] == "cycle('units','MHz')"
    assert results["Sort by worst first"] == "sort('worst first')"
    assert results["Sort by IPC"] == "sort('ipc')"
    assert results["Show IPC"] == "metric('ipc')"
    assert {f"Filter {text}" for text, _ in HELP} <= set(results)
    assert not any("steal" in name for name in results) or session.evaluator.variants["steal"]


def test_all_commands_can_be_executed() -> None:
    session, _ = observe(Machine())
    for _, _, action in (*commands(session, THEMES), *cpu_commands(session, "3")):
        whose, verb, arguments = parse(action)
        owner = PerfTopApp if whose == "app" else Monitor
        signature(getattr(owner, f"action_{verb}")).bind(owner, *arguments)


@pytest.mark.parametrize(("query", "names"), [
    ("cpu 5", ["Go to CPU 5"]), ("1", ["Go to CPU 1", "Go to core 1 of package 0"]), ("", []),
    ("77", []), ("2 6", ["Go to CPU 2", "Go to CPU 6", "Go to core 2 of package 0"]),
])  # fmt: skip
def test_cpus_and_cores_are_found_by_number(query: str, names: list[str]) -> None:
    session, _ = observe(Machine(cores=4))
    assert sorted(name for name, *_ in cpu_commands(session, query)) == names


def screen_lines(run: Run) -> list[str]:
    lists = run.app.screen.query(CommandList)
    return [str(option.prompt).partition("\n")[0] for result in lists for option in result.options]


async def query_results(run: Run, query: str, first_result: str) -> list[str]:
    """Results of a query, once the first one appears."""
    await run.pilot.press("colon")
    await until_true(lambda: isinstance(run.app.screen, Palette), "the palette is open")
    await run.pilot.press(*query)
    await until_true(lambda: screen_lines(run)[:1] == [first_result], f"{first_result} comes first")
    return screen_lines(run)


async def test_a_click_beyond_a_smaller_terminal_does_not_reach_the_palette(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_widget(x: int, y: int) -> None:
        raise NoWidget(f"{x}, {y}")

    async with running_app(Machine()) as run:
        await query_results(run, "", "Pause")
        palette = run.app.screen
        assert isinstance(palette, Palette)
        monkeypatch.setattr(palette, "get_widget_at", no_widget)
        click = events.Click(palette, 5, 5, 0, 0, 1, False, False, False, 5, 5)
        await palette._on_click(click)
        assert click._no_default_action


async def test_a_palette_may_be_closed_while_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A click outside of the palette right after its key closes it."""
    async with running_app(Machine()) as run:
        push = run.app.push_screen

        async def push_and_close(screen: Palette) -> None:
            await push(screen)
            await screen.dismiss()

        monkeypatch.setattr(run.app, "push_screen", push_and_close)
        await run.source.open_palette()
        assert len(run.app.screen_stack) == 1


async def test_a_list_without_room_has_a_height() -> None:
    async with running_app(Machine()) as run:
        await query_results(run, "", "Pause")
        options = run.app.screen.query_one(CommandList)
        padding = options.get_component_styles("option-list--option").padding.width
        no_room = Size(padding, 1)
        assert options.get_content_height(no_room, no_room, padding) >= options.option_count


async def test_a_search_without_a_match_may_end_after_the_palette_has_closed() -> None:
    async with running_app(Machine()) as run:
        await query_results(run, "", "Pause")
        palette = run.app.screen
        assert isinstance(palette, Palette)
        palette._start_no_matches_countdown("nothing")
        timers = [palette._no_matches_timer]
        closed = palette.dismiss()
        timers.append(palette._no_matches_timer)
        assert [timer is None for timer in timers] == [False, True]
        await closed


async def test_a_report_may_get_its_size_before_its_text_is_mounted() -> None:
    async with running_app(Machine()) as run:
        screen = overlays.TextScreen(lambda columns: [[(str(columns), "text")]])
        screen.on_resize()
        await run.app.push_screen(screen)
        await run.pilot.pause()
        text = str(screen.query_one(Static).render())
        assert text == f"{run.app.size.width - 2}\n"


def test_a_search_may_end_before_the_list_is_on_the_screen() -> None:
    assert _PaletteList().clear_options().add_options(["Pause"]).option_count == 1


async def test_a_palette_without_room_has_no_pages() -> None:
    async with running_app(Machine()) as run:
        await query_results(run, "", "Pause")
        for columns in (*range(7, 0, -1), 40):
            await run.pilot.resize_terminal(columns, 24 if columns > 1 else 1)
            await run.pilot.press("pageup", "pagedown")
        assert isinstance(run.app.screen, Palette)


@pytest.mark.parametrize(("size", "has_columns"), [(109, False), (110, True)])
def test_wide_help_has_shapes_beside_the_keys(size: int, has_columns: bool) -> None:
    bindings = keys.bindings("monitor")
    lines = [strips.text(line) for line in overlays.help_page(bindings, [EPISODES], [], size)]
    (line,) = (line for line in lines if " episodes ─" in line)
    assert (not line.startswith(" episodes")) is has_columns
    if has_columns:
        assert line.index(" episodes") == (110 - 3) // 2 + 3


@pytest.mark.parametrize("size", [39, 78, 118])
def test_no_line_of_the_help_is_wider_than_the_screen(size: int) -> None:
    sections = [overlays.SHAPES_AND_COLOURS, overlays.EPISODES, overlays.FILTERS]
    keys = overlays.HelpSection(
        "keys", [overlays.HelpEntry([("enter", "key")], "Open the page of a core")]
    )
    lines = overlays.help_page([], [keys, *sections], [], size)
    assert max(strips.width(line) for line in lines) <= size
