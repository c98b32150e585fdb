"""The neighbour view: which CPUs lose to whom, and how the watched job fares."""

from __future__ import annotations

from math import isnan
from typing import ClassVar

from perftop.base.format import time_of_day
from perftop.draw import strips, theme
from perftop.draw.strips import Run
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.neighbours import lines as words
from perftop.tui.neighbours.values import Neighbourhood, Runner
from perftop.tui.panels import losses
from perftop.tui.panels.below import Paneled
from perftop.tui.panels.pairs import Pair
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.cursor import Cursor
from perftop.tui.shared.fields import clock_of

Row = list[Run] | Pair | Runner
"""A line: plain text, a CPU that loses, or a thread of the job."""


class Neighbours(Paneled, Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("open", "order", "reverse")
    TELLS = "losses"

    def __init__(self, choice: Choice, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(choice, id=id)
        self._rows: list[Row] = []
        self._first: dict[int, int] = {}
        """First CPU of the core, by CPU."""
        self._line = 0
        """Index of the line under the cursor; -1 if there is none."""
        self._key: object = None
        """Identity of what is under the cursor, as its line may move."""
        self._pairs = losses.columns(79, since=True)
        self._runners = words.runner_columns(80)

    def show(self, session: Session, interval: Interval) -> None:
        if self.settle(session, interval):
            self._first = {cpu: core[0] for core in session.cores for cpu in core}
        self._read()
        self.paint()

    def build(self) -> None:
        self._pairs = losses.columns(max(20, self.width - 2), since=True)
        self._runners = words.runner_columns(self.width)
        self._read()
        self.redraw()
        self.show_cursor()

    # --- lines

    def _read(self) -> None:
        here = Neighbourhood(self.session, self.interval, self.choice.mask)
        unit = clock_of(self.session, self.choice.units)
        job = here.job()
        pairs = here.running()
        title = [] if self.bare else [words.summary(len(pairs), self.width)]
        self.heads = title + ([words.job(job, unit, self.width)] if job is not None else [])
        self._rows = [*self._losers(here, pairs)]
        if job is not None and job.threads:
            self._rows += [[], words.heading(self._runners), *self._arranged(here.runners())]
        if over := here.over():
            self._rows += [[], [(" over", "bright")], *over]
        self._rows += [[], *words.untold(here.untold(), self.width)]
        self.count = len(self._rows)
        room = 0 if self.bare else self.size.height - len(self.heads) - self.count
        self.feet = self.panels(room)
        self._follow()

    def _losers(self, here: Neighbourhood, pairs: list[Pair]) -> list[Row]:
        if not pairs:
            return [*words.calm(here.watched_job.name, here.looked_at(), self.width)]
        if self.choice.order == "CPU number":  # in all other orders the worst comes first
            pairs.sort(key=lambda one: one.cpu)
        ordered = pairs[::-1] if self.choice.reverse else pairs
        return [[(" ", "text"), *losses.headings(self._pairs)], *ordered]

    def _arranged(self, runners: list[Runner]) -> list[Runner]:
        if self.choice.order == "worst first":
            runners.sort(key=lambda one: 1.0 if isnan(one.moved.wait) else -one.moved.wait)
        return runners[::-1] if self.choice.reverse else runners

    def line(self, y: int) -> strips.Line:
        row, chosen = self._rows[y], y == self._line
        if isinstance(row, list):
            return row, "calm"
        mood: theme.Mood = "chosen" if chosen else "calm"
        if isinstance(row, Pair):
            if not row.lasted:
                mood = "chosen victim" if chosen else "victim"
            since = time_of_day(self.session.unix(row.since_ns))
            return words.pair(row, self._pairs, since, chosen=chosen), mood
        return words.runner(row, self._runners, chosen=chosen), mood

    # --- the cursor is on a loss or a thread; other views select its core

    def cpu(self, y: int) -> int | None:
        row = self._rows[y] if 0 <= y < len(self._rows) else []
        return None if isinstance(row, list) else self._first.get(row.cpu, row.cpu)

    def _named(self, y: int) -> object:
        """Identity of a line's loss or thread, which its numbers do not change; None for text."""
        row = self._rows[y]
        if isinstance(row, list):
            return None
        if isinstance(row, Pair):
            return row.cause, row.cpu, row.since_ns if row.lasted else None
        return row.tid

    def _follow(self) -> None:
        """Keep the cursor on its loss or thread while that core is selected; else move it to the
        selected core's first line, or to none if that core has no line."""
        lines = [y for y in range(self.count) if self.cpu(y) == self.choice.cpu]
        same = (y for y in lines if self._named(y) == self._key)
        self._line = next(same, lines[0] if lines else -1)

    def _at(self) -> int:
        return max(0, self._line)

    def choose(self, y: int, towards: int = 1) -> None:
        first = max(0, min(self.count - 1, y))
        lines = [y for y in range(self.count) if self.cpu(y) is not None]
        ahead = [y for y in lines if (y - first) * towards >= 0]
        if lines:
            self._line = min(ahead or lines, key=lambda y: abs(y - first))
            self._key, self.choice.cpu = self._named(self._line), self.cpu(self._line)
            self.chosen()

    def action_move(self, by: int) -> None:
        if 0 <= self._line + by < self.count:
            self.choose(self._line + by, by)
