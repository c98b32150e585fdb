"""The terminal app of many machines: feeds a fleet from its source, and draws it."""

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
from perftop.base.format import duration
from perftop.base.text import safe, utf8
from perftop.session.fleet.fleet import Fleet
from perftop.tui.config import Config
from perftop.tui.fleet.look import Look
from perftop.tui.fleet.screen import FleetScreen
from perftop.tui.screen.monitor import ASIDE
from perftop.tui.shared import keys
from perftop.tui.terminal_app import PageApp, show

REFRESH_S = 1.0
MOST_PROBLEM = 200
"""Characters of what a source has to say."""


class Source(Protocol):
    """Where the fleet's numbers come from."""

    fleet: Fleet
    what: str
    """For the first line: over ssh, from this server."""
    every_s: float
    problem: str
    """Why there is nothing new; '' if there is."""

    @property
    def now(self) -> float:
        """The moment shown, in Unix seconds of the viewer, or of the recording."""

    @property
    def moment(self) -> str:
        """Where in the past that is; '' at its newest."""

    def facts(self) -> Sequence[str]:
        """What it costs, piece by piece."""

    async def run(self) -> None:
        """Feed the fleet until cancelled. Raises Failed if there can be nothing to show."""

    def travel(self, by: int, /) -> bool:
        """Go so many steps on in time. False: it has no past."""

    def pause(self) -> None:
        """Stand still, or go on."""


class FleetApp(PageApp):
    TITLE = "perftop fleet"
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bound(keys.FLEET)]
    page: FleetScreen

    def __init__(
        self, source: Source, config: Config | None = None, *, ascii_: bool = False,
        opener: Callable[[Sequence[str]], Awaitable[None]] | None = None,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:  # fmt: skip
        """`opener`: shows one machine by a perftop with these arguments, and returns at its end."""
        config = config or Config()
        super().__init__(config)
        self.source = source
        self._opener = opener or self._beside
        self._cpu_clock, self._began = cpu_clock, time.monotonic()
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
        spent, now = self._cpu_clock(), time.monotonic()
        if now > self._began:
            share = (spent - self._cpu_s) / (now - self._began)
            self._share += (share - self._share) * 0.2 if self._share else share
        self._cpu_s, self._began = spent, now
        if not self.page.look.paused or self.source.moment:
            self.page.update()

    def _fill(self, look: Look) -> None:
        source = self.source
        look.now, look.problem = source.now, safe(source.problem, MOST_PROBLEM)
        look.every_s, look.what = source.every_s, source.what
        own = f"own {100 * self._share:.1f} % here"
        look.facts = (f"every {duration(source.every_s)}", own, *source.facts())
        look.paused = source.moment or ("paused" if look.paused == "paused" else "")

    # --- keys, but for those of the list of machines

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and self.page.typed(event):
            return
        await super().on_event(event)

    def action_step(self, by: int) -> None:
        """A step in time, or a cell in the heat map; there, leaps step in time."""
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
            self.page.anew()

    def action_why(self) -> None:
        self.action_open("why")

    async def _beside(self, arguments: Sequence[str]) -> None:
        """A perftop of its own on this terminal. The fleet goes on listening meanwhile."""
        command = [sys.executable, "-P", "-m", "perftop", *arguments]
        with self.suspend():
            if arguments[0] == "why":
                print(f"{safe(arguments[-1], MOST_PROBLEM)}: looking for ten seconds …", flush=True)
            child = await asyncio.create_subprocess_exec(*command, env=os.environ | {ASIDE: "1"})
            try:
                status = await child.wait()
            except asyncio.CancelledError:
                child.terminate()
                raise
            if status not in {0, 130} or arguments[0] == "why":  # what it says is still to be read
                await asyncio.to_thread(input, "\nenter: back to the fleet ")


def run(source: Source, config: Config, *, mouse: bool = True) -> int:
    """Runs the app; returns the exit status. Raises Failed if the source or the app failed."""
    return show(FleetApp(source, config, ascii_=not utf8()), mouse=mouse)
