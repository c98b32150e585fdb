"""A Prometheus server as a source of the fleet: thousands of machines, and their past."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from math import isfinite

from perftop.base.errors import Failed
from perftop.base.format import time_of_day
from perftop.base.text import safe
from perftop.process.prometheus import Server
from perftop.session.fleet import scraped
from perftop.session.fleet.fleet import Fleet
from perftop.session.fleet.machine import PAST_S

EVERY_S = 15.0
"""How often the server is asked unless told otherwise: what its scrapes usually are apart."""
WINDOW = 4
"""Spans that numbers cover; a rate needs two scrapes in it."""
MOST_BACK_S = 30 * 86400.0
"""How far one can go back."""


class PrometheusSource:
    over = False

    def __init__(
        self, url: str, match: str = "", every_s: float = EVERY_S, *,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """Raises Failed for what is no URL."""
        self._server, self.every_s, self._clock = Server(url), every_s, clock
        self._questions = scraped.Questions(match, WINDOW * every_s)
        self.fleet = Fleet([])
        self.what = f"prometheus {safe(url, 60)}"
        self.problem = ""
        self._back_s = 0.0
        """How long ago the moment is that is shown; 0: now."""
        self._shown = clock()
        self._wake = asyncio.Event()
        self._rate = 0.0

    @property
    def now(self) -> float:
        return self._clock() if not self._back_s else self._shown

    @property
    def moment(self) -> str:
        return f"at {time_of_day(self._shown)}" if self._back_s else ""

    def facts(self) -> Sequence[str]:
        return [f"{self._rate / 1e3:.0f} kB/s"]

    async def run(self) -> None:
        """Ask again and again. A first question that is refused ends it: Failed."""
        while True:
            self._wake.clear()
            began, before = self._clock(), self._server.bytes
            try:
                await asyncio.to_thread(self._ask, self._back_s)
                self.problem = ""
            except Failed as failed:
                if not self.fleet.machines and not self._back_s:
                    raise
                self.problem = str(failed)
            self._rate = (self._server.bytes - before) / max(self.every_s, 0.1)
            wait_s = None if self._back_s else max(0.1, self.every_s - (self._clock() - began))
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _ask(self, back_s: float) -> None:
        """Three questions for one moment. Runs in a thread; what the screen reads is changed at
        the end, at once."""
        server, asked = self._server, self._questions
        at = None
        if back_s:
            found = server.query("vector(time())")
            at = scraped.newest(found) - back_s
        numbers = server.query(asked.now(), at)
        end = scraped.newest(numbers) if at is None else at
        if not isfinite(end):
            if at is None:
                raise Failed("the server has no series of perftop exporter that match")
            end = at
        now = self._clock() - back_s
        shift_s = now - end
        made = scraped.shown(numbers, now, {} if back_s else self.fleet.machines)
        step = scraped.past_step(len(made.machines), self.every_s)
        past = server.query_range(asked.past(), end - PAST_S, end, step)
        scraped.remember(made, past, shift_s)
        step = max(self.every_s, scraped.EPISODES_S / scraped.EPISODE_STEPS)
        start = end - scraped.EPISODES_S
        told = server.query_range(asked.episodes(), start, end, step)
        last = max((points[-1][0] for _, points in told if points), default=end)
        scraped.happen(made, told, max(last, end - step), step, shift_s)
        self._shown = now
        self.fleet.machines = made.machines

    def travel(self, by: int) -> bool:
        """Back and on in steps of the source; beyond the newest it is live again."""
        self._back_s = min(max(0.0, self._back_s - by * self.every_s), MOST_BACK_S)
        self._wake.set()
        return True

    def pause(self) -> None:
        """Stand at this moment; or be live again."""
        self._back_s = 0.0 if self._back_s else 0.001
        self._wake.set()
