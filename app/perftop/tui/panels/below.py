"""The lines that a view leaves at the bottom of the screen, filled with panels."""

from __future__ import annotations

from perftop.draw.strips import Line
from perftop.samples.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels import losses
from perftop.tui.panels.panel import LEAST
from perftop.tui.panels.row import Kind, PanelRow
from perftop.tui.shared.choice import Choice

THREE = 200
"""Width from which there are three panels."""
_SHARES = {2: (5, 4), 3: (5, 6, 4)}
"""Widths of so many panels."""


class Below:
    """Who runs or who loses to whom, what happened, the selected core: side by side."""

    def __init__(self, *without: Kind) -> None:
        """`without`: what the view itself shows."""
        self._without = without
        self._drawn: tuple[PanelRow, Session, Interval] | None = None

    def lines(
        self, session: Session, interval: Interval, choice: Choice, width: int, room: int,
        gap: int = 1,
    ) -> list[Line]:  # fmt: skip
        """`room` lines, of which the first `gap` are empty; all are where there is no room for
        panels."""
        if room < LEAST + gap:
            self._drawn = None
            return [([], "calm")] * room
        row = self._row(session, interval, width, room - gap)
        empty: list[Line] = [([], "calm")] * gap
        return empty + self.drawn(row, session, interval, choice)

    def drawn(
        self, row: PanelRow, session: Session, interval: Interval, choice: Choice
    ) -> list[Line]:
        """These panels."""
        self._drawn = row, session, interval
        return [(line, "calm") for line in row.lines(session, interval, choice)]

    def _row(self, session: Session, interval: Interval, width: int, height: int) -> PanelRow:
        """Where losses are, they take the place of the tasks on a low row."""
        lose = "losses" not in self._without and losses.any_pair(session, interval)
        first: Kind = "losses" if lose and height < 2 * LEAST else "who"
        every: tuple[Kind, ...] = (first, "happened", "selected")
        count = 3 - len(self._without[:1]) if width >= THREE else 2
        kinds = tuple(kind for kind in every if kind not in self._without)[:count]
        return PanelRow(kinds, _SHARES[len(kinds)], width, height)

    def target(self, x: int, y: int) -> Episode | int | None:
        """What stands at column `x` of line `y` from the last one, which is 1."""
        if self._drawn is None or not 0 < y <= self._drawn[0].height:
            return None
        row, session, interval = self._drawn
        return row.target(session, interval, x, row.height - y)
