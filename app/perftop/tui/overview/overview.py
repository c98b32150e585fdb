"""The overview: charts where the machine is small enough for the screen, else a row for each
core."""

from __future__ import annotations

from textual.geometry import Size

from perftop.draw import strips
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.charts import Charts, Wishes
from perftop.tui.overview.core_grid import CoreGrid
from perftop.tui.panels.row import PanelRow
from perftop.tui.shared.cursor import Cursor
from perftop.tui.shared.fields import clock_of
from perftop.tui.shared.order import arranged

_THREE, _COUNTED_THREE = 200, 140
"""Widths from which there are three panels: on a machine without counters, and with them."""


class Overview(CoreGrid):
    _charts: Charts | None = None
    _fits = False
    """Whether the charts fit the screen; a filter does not change it."""
    _room = Size(0, 0)
    """Cells in a line, and lines, as of then: Textual computes both at each access."""

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        if self.settle(session, interval) or self._charts is None:
            self._reader = None  # of another machine
            self._charts = Charts(session, self.places)
            self._fit()
        if not self._fits:
            super().show(session, interval)
            return
        if self._draw():
            self.redraw()
        else:
            self.paint()

    def build(self) -> None:
        before = self._fits
        self._fit()
        if self._fits:
            self._draw()
            self.redraw()
            self.show_cursor()
        elif before:
            self.feet = []
            super().show(self.session, self.interval)
        else:
            super().build()

    def _fit(self) -> None:
        assert self._charts is not None
        self._room = Size(self.width, self.size.height)
        self._fits = not self.bare and self._charts.fit(self._room.height, self._room.width)

    def _draw(self) -> bool:
        """Makes the lines anew; returns whether there is another number of them."""
        session, interval, charts = self.session, self.interval, self._charts
        assert charts is not None
        self._reader = None  # the rows are made anew if they come back
        clock = clock_of(session, self.choice.units, known=True)
        order = arranged(self.places, self.choice, session, interval)
        wishes = Wishes(self.look, self.choice.window_s, clock, self.choice.cpu)
        charts.read(session, interval, order, wishes)
        before = self.count, len(self.feet)
        self.count, self.heads = len(charts.lines), []
        room = self._room.height - self.count
        self.feet = [([], "calm")] if room > charts.below else []
        row = self._panel_row(room - len(self.feet))
        self.feet += self.drawn(row)
        return before != (self.count, len(self.feet))

    def _panel_row(self, height: int) -> PanelRow:
        assert self._charts is not None
        width = self._room.width
        if self._charts.counted and width >= _COUNTED_THREE:
            return PanelRow(("selected", "who", "happened"), (44, 44, 62), width, height)
        if width >= _THREE:
            return PanelRow(("selected", "who", "happened"), (60, 100, 70), width, height)
        shares = (60, 37) if width >= _COUNTED_THREE else (37, 38)
        return PanelRow(("who", "happened"), shares, width, height)

    # --- lines and the cursor

    def line(self, y: int) -> strips.Line:
        if self._fits and self._charts is not None:
            return self._charts.lines[y], "calm"
        return super().line(y)

    def cpu(self, y: int) -> int | None:
        if self._fits and self._charts is not None:
            at = self._charts.rows[y]
            return None if at is None else self.places.places[at].cpus[0]
        return super().cpu(y)

    def chosen(self) -> None:
        if self._fits:
            self._draw()
            Cursor.chosen(self)
        else:
            super().chosen()

    def action_move(self, by: int) -> None:
        self._kind().action_move(self, by)

    def action_page(self, by: int) -> None:
        self._kind().action_page(self, by)

    def action_end(self, to: int) -> None:
        self._kind().action_end(self, to)

    def _kind(self) -> type[Cursor]:
        """Who moves the cursor: with charts it only goes from line to line."""
        return Cursor if self._fits else CoreGrid

    def action_fold(self) -> None:
        if not self._fits:
            super().action_fold()
