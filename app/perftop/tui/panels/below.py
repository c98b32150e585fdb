"""The lines that a view leaves at the bottom of the screen, filled with panels."""

from __future__ import annotations

from typing import ClassVar

from perftop.draw.strips import BLANK, Line
from perftop.model.episode import Episode
from perftop.tui.panels import losses
from perftop.tui.panels.panel import LEAST
from perftop.tui.panels.row import Kind, PanelRow
from perftop.tui.shared.canvas import Canvas

THREE = 200
"""Width from which there are three panels."""
_SHARES = {2: (5, 4), 3: (5, 6, 4)}
"""Widths in proportion to each other, by the number of panels."""


class Paneled(Canvas):
    """A view with panels below its lines: who runs or who loses to whom, what happened, the
    selected core, side by side."""

    TELLS: ClassVar[Kind | None] = None
    """What the view itself shows, so that no panel need."""
    _drawn: PanelRow | None = None

    def panels(self, room: int, gap: int = 1) -> list[Line]:
        """`room` lines, of which the first `gap` are empty; all are where there is no room for
        panels."""
        if room < LEAST + gap:
            self._drawn = None
            return [BLANK] * room
        return [BLANK] * gap + self.drawn(self._chosen_panels(room - gap))

    def drawn(self, row: PanelRow) -> list[Line]:
        """The lines of these panels, in which clicks are looked up from now on."""
        self._drawn = row
        return [(line, "calm") for line in row.lines(self.session, self.interval, self.choice)]

    def _chosen_panels(self, height: int) -> PanelRow:
        """Where losses are, they take the place of the tasks on a low row."""
        width = self.size.width
        lose = self.TELLS != "losses" and losses.any_pair(self.session, self.interval)
        first: Kind = "losses" if lose and height < 2 * LEAST else "who"
        every: tuple[Kind, ...] = (first, "happened", "selected")
        count = 2 if width < THREE or self.TELLS else 3
        kinds = tuple(kind for kind in every if kind != self.TELLS)[:count]
        return PanelRow(kinds, _SHARES[len(kinds)], width, height)

    def target(self, x: int, y: int) -> Episode | int | None:
        row = self._drawn
        if row is None or not 0 < y <= row.height:
            return None
        return row.target(self.session, self.interval, x, row.height - y)
