"""The command palette: all actions by name, with and without a key."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from textual import work
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.css.query import NoMatches
from textual.markup import escape

from perftop.draw import theme
from perftop.session.filter import HELP
from perftop.session.session import Session
from perftop.tui.shared.choice import UNITS
from perftop.tui.shared.fields import fields
from perftop.tui.shared.keys import KEYS, caption
from perftop.tui.shared.places import ORDERS

SEARCH = inspect.unwrap(CommandPalette._gather_commands)  # noqa: SLF001 - no public name
"""Textual's search function, without its worker decorator."""

Command = tuple[str, str, str]
"""A name, a line of help, and an action; the action is the screen's unless it names another
owner."""


def commands(session: Session | None, themes: Iterable[str]) -> Iterator[Command]:
    yield from ((f"Theme {name}", "", f"app.theme({name!r})") for name in themes)
    yield from ((f"Clocks in {unit}", "", f"units({unit!r})") for unit in UNITS)
    yield from ((f"Sort by {order}", "", f"sort({order!r})") for order in ORDERS)
    if session is not None:
        for field in fields(session):
            yield f"Sort by {field.words}", "The highest first", f"sort({field.key!r})"
            yield f"Show {field.words}", "Heat map and time", f"metric({field.key!r})"
        yield from ((f"Filter {text}", means, f"filter({text!r})") for text, means in HELP)


def places(session: Session, query: str) -> Iterator[Command]:
    """Yields commands that go to the CPUs and cores whose numbers are in the query."""
    numbers = set(re.findall(r"[0-9]+", query))
    shown = [session.topology[position] for position in session.shown]
    names = {f"Go to CPU {row.cpu}": row.cpu for row in shown if str(row.cpu) in numbers}
    for row in reversed(shown):  # reversed, so that a core's first CPU overwrites its siblings
        if str(row.core) in numbers:
            names[f"Go to core {row.core} of package {row.package}"] = row.cpu
    return ((name, f"CPU {cpu}", f"goto({cpu})") for name, cpu in names.items())


class Commands(Provider):
    session: Session | None = None

    def _all(self, query: str) -> Iterator[tuple[str, str, Callable[[], object]]]:
        do, bound = self.app.run_action, reversed(self.screen.active_bindings.values())
        active = {it.binding.id: it for it in bound if it.enabled}  # first key of an action
        for key in sorted(KEYS, key=lambda key: key.id == "quit"):  # Enter runs the first entry
            if (it := active.get(key.id)) and key.id not in {"interrupt", "palette"}:
                means = f"{key.tooltip}  {caption(it.binding.key)}"
                yield key.label.capitalize(), escape(means), partial(do, key.action, it.node)
        if self.screen is self.app.screen_stack[0]:  # no other screen covers the views
            more = [] if self.session is None else places(self.session, query)
            themes = theme.names(no_color=self.app.no_color)
            for name, means, action in (*commands(self.session, themes), *more):
                yield name, escape(means), partial(do, action, self.screen)

    async def discover(self) -> Hits:
        for name, means, run in self._all(""):
            yield DiscoveryHit(name, run, help=means)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, means, run in self._all(query):
            if score := matcher.match(name) or 0.1 * (query.casefold() in means.casefold()):
                yield Hit(score, matcher.highlight(name), run, name, means)


class Palette(CommandPalette):
    CSS_PATH = "palette.tcss"

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).scrollable_content_region:  # without room, paging would fail
            super()._action_command_list(action)

    def dismiss(self, result: None = None) -> AwaitComplete:
        closed = self.app.screen_stack[-1] is not self  # a second Enter may follow the first
        return AwaitComplete() if closed else super().dismiss(result)

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)  # noqa: SLF001 - as above
    async def _gather_commands(self, search_value: str) -> None:
        """Searches for commands. The search for the last typed key may begin after the list has
        closed; it then ends without an error."""
        with contextlib.suppress(NoMatches):
            await SEARCH(self, search_value)


def palette(session: Session | None) -> Palette:
    of_session = type("OfSession", (Commands,), {"session": session})
    return Palette([of_session], placeholder="What to do, or where to go")
