"""The widget that draws the fleet: keeps what was chosen, and paints the lines that changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from perftop.draw.strips import Line
from perftop.session.fleet.fleet import ORDERS, Sight
from perftop.session.fleet.machine import TRACED
from perftop.session.fleet.numbers import FIELDS
from perftop.tui.fleet import rows
from perftop.tui.fleet.look import Look
from perftop.tui.fleet.page import grid_of, halves, key_at, page
from perftop.tui.shared import keys
from perftop.tui.shared.canvas import PageWidget

PAGE = 20
"""Machines that PgUp and PgDn go past."""
MOST_FILTER = 60
"""Characters of a filter."""
CROWDED = 4
"""Machines per line of the screen; with more, the fleet begins with its heat map."""


class FleetScreen(PageWidget, can_focus=True):
    """A key has its action here, or else in the app."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bound(keys.FLEET)]

    def __init__(self, fill: Callable[[Look], None], look: Look) -> None:
        """`fill`: puts what is newest into the look before it is drawn."""
        super().__init__(id="fleet", ascii_=look.ascii)
        self.look = look
        self._fill = fill
        self._touched = False
        """Whether the user has selected a machine; until then the worst one that answers is."""
        self._met = False
        """Whether there have been machines to draw."""

    def page(self, width: int, height: int) -> list[Line]:
        look = self.look
        look.width, look.height = width, height
        self._fill(look)
        look.theme = self.app.current_theme.name
        look.rows = look.fleet.rows(look.sight, look.now)
        if not self._touched or look.chosen not in look.fleet.machines:
            first = next((m for m in look.rows if m.answers), None) or next(iter(look.rows), None)
            look.chosen = first.name if first is not None else ""
        if not self._met and look.fleet.machines:
            self._met = True
            look.view = "heat" if len(look.fleet.machines) > CROWDED * look.height else look.view
        look.mouse.clear()
        return page(look)

    # --- what keys do

    def action_view(self, name: str) -> None:
        self.look.view = name
        self.anew()

    def action_help(self) -> None:
        self.action_view("rows" if self.look.view == "help" else "help")

    def action_move(self, down: int, aside: int = 0) -> None:
        look = self.look
        self._touched = True
        if look.view == "heat":
            step = (aside > 0) - (aside < 0), (down > 0) - (down < 0)
            for _ in range(abs(aside) + abs(down)):
                look.chosen = grid_of(look).beside(look.chosen, *step)
        else:
            self._choose(self._at() + down)
        self.update()

    def action_page(self, by: int) -> None:
        self.action_move(by * PAGE)

    def action_end(self, by: int) -> None:
        self._choose(len(self.look.rows) if by > 0 else 0)

    def _at(self) -> int:
        names = [machine.name for machine in self.look.rows]
        return names.index(self.look.chosen) if self.look.chosen in names else 0

    def _choose(self, at: int) -> None:
        look = self.look
        self._touched = True
        if look.rows:
            look.chosen = look.rows[max(0, min(len(look.rows) - 1, at))].name
        self.update()

    def action_episode(self, by: int) -> None:
        """Select the next machine on which an episode runs."""
        look, at = self.look, self._at()
        every = len(look.rows)
        around: Iterable[int] = ((at + by * step) % every for step in range(1, every + 1))
        for i in around:
            if any(event.wrong for event in look.rows[i].running):
                self._choose(i)
                return

    def action_sort(self, by: int) -> None:
        self._order(ORDERS[(ORDERS.index(self.look.sight.order) + by) % len(ORDERS)])

    def action_reverse(self) -> None:
        self._order(self.look.sight.order)

    def _order(self, name: str) -> None:
        """Sort by this; by the same again: the other way round."""
        sight = self.look.sight
        reverse = not sight.reverse if name == sight.order else False
        self.look.sight = Sight(name, reverse, sight.filter)
        self.update()

    def action_metric(self, by: int) -> None:
        look = self.look
        known = TRACED if look.view == "time" else tuple(FIELDS)
        at = known.index(look.shown) if look.shown in known else 0
        look.shown = known[(at + by) % len(known)]
        self.update()

    def action_filter(self) -> None:
        self.look.typing = self.look.sight.filter
        self.anew()

    def action_back(self) -> None:
        if self.look.view == "help":
            self.action_view("rows")
        else:
            self._narrow("")

    def _narrow(self, text: str) -> None:
        sight = self.look.sight
        self.look.sight = Sight(sight.order, sight.reverse, text[:MOST_FILTER])
        self.update()

    # --- the filter that is typed

    def typed(self, event: events.Key) -> bool:
        """Takes a key while a filter is typed; returns whether it did."""
        look = self.look
        if look.typing is None:
            return False
        if event.key == "enter":
            look.typing = None
        elif event.key == "escape":
            look.typing = None
            self._narrow("")
        elif event.key == "backspace":
            look.typing = look.typing[:-1]
            self._narrow(look.typing)
        elif event.character is not None and event.is_printable:
            look.typing = (look.typing + event.character)[:MOST_FILTER]
            self._narrow(look.typing)
        else:
            return False
        self.anew()
        return True

    # --- the mouse

    async def on_click(self, event: events.Click) -> None:
        look = self.look
        if event.y == look.height - 1:
            if key := key_at(look, event.x):
                await self._press(key)
            return
        if (name := look.mouse.get(event.y)) is None:
            return
        if name:
            look.chosen, self._touched = name, True
            if event.chain > 1:
                await self._press("open")
        elif order := rows.order_at(rows.table(look, halves(look)[0]), event.x):
            self._order(order)
        self.update()

    async def _press(self, name: str) -> None:
        """Does what the key of this name does."""
        action = keys.BY_ID[name].action
        if not await self.app.run_action(action, self):
            await self.app.run_action(action)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)
