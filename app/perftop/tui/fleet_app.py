"""The terminal app for many machines. It feeds a fleet from a source and draws the fleet."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol

from textual import events, work
from textual.binding import BindingType

from perftop.base.errors import Failed
from perftop.base.text import duration, safe, utf8
from perftop.draw.strips import Line
from perftop.session.fleet import ORDERS, Fleet, RowChoice
from perftop.session.fleet_machine import FIELDS, TRACED, Machine
from perftop.tui.config import Config
from perftop.tui.fleet import views
from perftop.tui.fleet.page import grid_of, halves, key_at, page
from perftop.tui.fleet.words import Look
from perftop.tui.frame.monitor import FLEET_VARIABLE
from perftop.tui.shared import keys
from perftop.tui.shared.canvas import PageWidget
from perftop.tui.terminal_app import PageApp, show

REFRESH_S = 1.0
MAX_PROBLEM = 200
"""Maximum characters shown of a source's problem."""
MOVE_S = 10.0
"""Seconds after which rows are ordered anew."""
PAGE = 20
"""Number of machines by which PgUp and PgDn move."""
MAX_FILTER = 60
"""Maximum characters of a filter."""
CROWDED = 4
"""Maximum machines per line of the screen; with more, the heat map is the first view."""


class Source(Protocol):
    """The source of the fleet's numbers."""

    fleet: Fleet
    what: str
    """Description of the source for the first line, such as "over ssh"."""
    every_s: float
    problem: str
    """Why no new numbers arrive; '' while they do."""

    @property
    def now(self) -> float:
        """The shown moment in Unix seconds, by the viewer's clock or, in a recording, by the
        recording's."""

    @property
    def moment(self) -> str:
        """The shown moment as text; '' if it is the newest."""

    def facts(self) -> Sequence[str]:
        """Returns the cost of the source, as separate pieces of text."""

    async def run(self) -> None:
        """Feeds the fleet until cancelled. Raises Failed if no machine can ever be shown."""

    def travel(self, by: int, /) -> bool:
        """Moves by this many steps in time. Returns False if the source has no history."""

    def pause(self) -> None:
        """Pauses or resumes."""


class FleetScreen(PageWidget, can_focus=True):
    """The fleet's page. The actions of keys are defined here or, failing that, in the app."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings_of(keys.FLEET)]

    def __init__(self, fill: Callable[[Look], None], look: Look) -> None:
        """`fill`: updates the state of the page, `look`, before it is drawn."""
        super().__init__(id="fleet", ascii_=look.ascii)
        self.look = look
        self._fill = fill
        self._selects = False
        """Whether the user has selected a machine; until then the worst machine that answers is
        selected."""
        self._basis: object = None
        """The choice and the machines when the rows were ordered last."""
        self._moved, self._places = 0.0, dict[str, int]()
        """Unix time at which that was, and the place of each machine, by name."""
        self._begun = False
        """Whether any machine has been drawn so far."""

    def page(self, width: int, height: int) -> list[Line]:
        look = self.look
        look.width, look.height = width, height
        self._fill(look)
        look.theme = self.app.current_theme.name
        look.rows = self._ordered_rows(look)
        if not self._selects or all(machine.name != look.chosen for machine in look.rows):
            first = next((m for m in look.rows if m.answers), None) or next(iter(look.rows), None)
            look.chosen = first.name if first is not None else ""
        if not self._begun and look.fleet.machines:
            self._begun = True
            look.view = "heat" if len(look.fleet.machines) > CROWDED * look.height else look.view
        look.mouse.clear()
        return page(look)

    def _ordered_rows(self, look: Look) -> list[Machine]:
        """Returns the machines in order. Rows move only every MOVE_S, when the order or the filter
        changes, or when a machine begins or ceases to answer."""
        rows = look.fleet.rows(look.choice, look.now)
        basis = look.choice, frozenset((machine.name, machine.answers) for machine in rows)
        if basis != self._basis or not 0 <= look.now - self._moved < MOVE_S:
            self._basis, self._moved = basis, look.now
            self._places = {machine.name: i for i, machine in enumerate(rows)}
        return sorted(rows, key=lambda machine: self._places[machine.name])

    # --- actions of keys

    def action_view(self, name: str) -> None:
        self.look.view = name
        self.redraw()

    def action_help(self) -> None:
        self.action_view("rows" if self.look.view == "help" else "help")

    def action_move(self, down: int, aside: int = 0) -> None:
        look = self.look
        self._selects = True
        if look.view == "heat":
            step = (aside > 0) - (aside < 0), (down > 0) - (down < 0)
            for _ in range(abs(aside) + abs(down)):
                look.chosen = grid_of(look).neighbour(look.chosen, *step)
        else:
            self._choose(self._chosen_index() + down)
        self.update()

    def action_page(self, by: int) -> None:
        self.action_move(by * PAGE)

    def action_end(self, by: int) -> None:
        self._choose(len(self.look.rows) if by > 0 else 0)

    def _chosen_index(self) -> int:
        names = [machine.name for machine in self.look.rows]
        return names.index(self.look.chosen) if self.look.chosen in names else 0

    def _choose(self, index: int) -> None:
        look = self.look
        self._selects = True
        if look.rows:
            look.chosen = look.rows[max(0, min(len(look.rows) - 1, index))].name
        self.update()

    def action_episode(self, by: int) -> None:
        """Selects the next (`by` = 1) or previous (-1) machine on which a harmful episode runs."""
        look, index = self.look, self._chosen_index()
        count = len(look.rows)
        for step in range(1, count + 1):
            i = (index + by * step) % count
            if any(event.is_wrong for event in look.rows[i].running):
                self._choose(i)
                return

    def action_sort(self, by: int) -> None:
        self._order(ORDERS[(ORDERS.index(self.look.choice.order) + by) % len(ORDERS)])

    def action_reverse(self) -> None:
        self._order(self.look.choice.order)

    def _order(self, name: str) -> None:
        """Sorts by this column, or reverses the order if the machines are already sorted by it."""
        choice = self.look.choice
        reverse = not choice.reverse if name == choice.order else False
        self.look.choice = RowChoice(name, reverse, choice.filter)
        self.update()

    def action_metric(self, by: int) -> None:
        look = self.look
        metric_keys = TRACED if look.view == "time" else tuple(FIELDS)
        index = metric_keys.index(look.shown) if look.shown in metric_keys else 0
        look.shown = metric_keys[(index + by) % len(metric_keys)]
        self.update()

    def action_filter(self) -> None:
        self.look.typing = self.look.choice.filter
        self.redraw()

    def action_back(self) -> None:
        if self.look.view == "help":
            self.action_view("rows")
        else:
            self._narrow("")

    def _narrow(self, text: str) -> None:
        choice = self.look.choice
        self.look.choice = RowChoice(choice.order, choice.reverse, text[:MAX_FILTER])
        self.update()

    # --- typing a filter

    def handle_typing(self, event: events.Key) -> bool:
        """Handles a key while a filter is being typed. Returns whether the key was handled."""
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
            look.typing = (look.typing + event.character)[:MAX_FILTER]
            self._narrow(look.typing)
        else:
            return False
        self.redraw()
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
            look.chosen, self._selects = name, True
            if event.chain > 1:
                await self._press("open")
        elif order := views.order_at(views.table(look, halves(look)[0]), event.x):
            self._order(order)
        self.update()

    async def _press(self, name: str) -> None:
        """Runs the action of the key with this id."""
        action = keys.BY_ID[name].action
        if not await self.app.run_action(action, self):
            await self.app.run_action(action)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)


class FleetApp(PageApp):
    TITLE = "perftop fleet"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings_of(keys.FLEET)]
    page: FleetScreen

    def __init__(
        self, source: Source, config: Config | None = None, *, ascii_: bool = False,
        opener: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:  # fmt: skip
        """`opener`: runs a perftop with the given arguments, which shows one machine, and returns
        when that perftop ends."""
        config = config or Config()
        super().__init__(config)
        self.source = source
        self._opener = opener or self._run_here
        self._cpu_clock, self._refreshed_s = cpu_clock, time.monotonic()
        self._cpu_s = cpu_clock()
        self._share = 0.0
        look = Look(source.fleet, source.now, 80, 24, every_s=source.every_s, what=source.what,
                    captions=keys.captions(config.keys), ascii=ascii_)  # fmt: skip
        self.page = FleetScreen(self._fill, look)

    def on_ready(self) -> None:
        self.page.focus()
        self.set_interval(REFRESH_S, self._refresh)
        self._feed()
        self._refresh()

    @work(exclusive=True)
    async def _feed(self) -> None:
        try:
            await self.source.run()
        except Failed as failed:
            self.failure = failed
            self.leave(failed.status)

    def _refresh(self) -> None:
        cpu_s, now_s = self._cpu_clock(), time.monotonic()
        if now_s > self._refreshed_s:
            share = (cpu_s - self._cpu_s) / (now_s - self._refreshed_s)
            self._share += (share - self._share) * 0.2 if self._share else share
        self._cpu_s, self._refreshed_s = cpu_s, now_s
        if not self.page.look.paused or self.source.moment:
            self.page.update()

    def _fill(self, look: Look) -> None:
        source = self.source
        look.now, look.problem = source.now, safe(source.problem, MAX_PROBLEM)
        look.every_s, look.what = source.every_s, source.what
        own_text = f"own {100 * self._share:.1f} % here"
        look.facts = (f"every {duration(source.every_s)}", own_text, *source.facts())
        look.paused = source.moment or ("paused" if look.paused == "paused" else "")

    # --- keys for which the list of machines has no action

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and self.page.handle_typing(event):
            return
        await super().on_event(event)

    def action_step(self, by: int) -> None:
        """Steps in time. In the heat map, moves to the next cell instead; leaps step in time
        there."""
        if self.page.look.view == "heat":
            self.page.action_move(0, by)
        else:
            self.action_leap(by)

    def action_leap(self, by: int) -> None:
        if self.source.travel(by):
            self.page.update()

    def action_pause(self) -> None:
        look = self.page.look
        self.source.pause()
        if not self.source.moment:
            look.paused = "" if look.paused else "paused"
        self.page.update()

    @work(exclusive=True, group="open")
    async def action_open(self, verb: str = "") -> None:
        machine = self.page.look.selected
        if machine is not None and machine.opens:
            await self._opener((verb or machine.opens[0], *machine.opens[1:]))
            self.page.redraw()

    def action_why(self) -> None:
        self.action_open("why")

    async def _run_here(self, arguments: Sequence[str]) -> None:
        """Runs another perftop on this terminal. The fleet keeps reading while that perftop
        runs."""
        command = [sys.executable, "-P", "-m", "perftop", *arguments]
        with self.suspend():
            if arguments[0] == "why":
                print(f"{safe(arguments[-1], MAX_PROBLEM)}: looking for ten seconds …", flush=True)
            child = await asyncio.create_subprocess_exec(
                *command, env=os.environ | {FLEET_VARIABLE: "1"}
            )
            try:
                status = await child.wait()
            except asyncio.CancelledError:
                child.terminate()
                raise
            if status not in {0, 130} or arguments[0] == "why":  # let the user read the output
                await asyncio.to_thread(input, "\nenter: back to the fleet ")


def run(source: Source, config: Config, *, mouse: bool = True) -> int:
    """Runs the app; returns the exit status. Raises Failed if the source or the app failed."""
    return show(FleetApp(source, config, ascii_=not utf8()), mouse=mouse)
