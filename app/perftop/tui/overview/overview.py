"""The overview: a grid with one line for each core, grouped by package, or charts on a small
machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.geometry import Size

from perftop.draw import strips
from perftop.draw.columns import Column, column_at
from perftop.draw.strips import text
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import BY_KEY
from perftop.tui.overview import layout
from perftop.tui.overview.charts import ChartOptions, Charts
from perftop.tui.overview.layout import FOLDS, Arrangement, Fold, arrangement
from perftop.tui.overview.recent import RowHistories, rule
from perftop.tui.overview.rows import Picture, heading, marked, rows
from perftop.tui.panels.panels import MIN_HEIGHT, Paneled, PanelRow
from perftop.tui.shared.cursor import Cursor
from perftop.tui.shared.fields import clock_of
from perftop.tui.shared.order import arranged
from perftop.tui.shared.places import PlaceLine
from perftop.tui.shared.row_episodes import RowEpisodes
from perftop.tui.shared.sheet import Reader

_FIXED_ORDERS = frozenset({"topology", "CPU number"})
"""Orders of rows that do not depend on measured values."""


class CoreGrid(Paneled, Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("open", "order", "fold")

    _reader: Reader | None = None
    """None if the next interval must create a new picture."""
    _picture: Picture
    _troubles: RowEpisodes
    _fold: Fold = "needed"
    _plan = Arrangement([], [], [], [])
    _lines: Mapping[int, strips.Line] = {}
    """Lines of the rows in sight, by row, without the mark of the selected row."""
    _top_ipc = 0.0
    """Highest IPC of the scale so far. The scale only grows, so that columns change only when their
    values do."""

    # --- lines from an interval

    def show(self, session: Session, interval: Interval) -> None:
        fresh = self.settle(session, interval) or self._reader is None
        if fresh or self._reader is None:
            self._reader, self._troubles = Reader(session, self.places), RowEpisodes(session)
            self._plan, self.count = Arrangement([], [], [], []), 0
        sheet = self._reader.read(interval)
        self._troubles.read(interval)
        if fresh:
            self._picture = Picture(self.places, sheet, [], self._troubles)
            self.lay_out()
            return
        self._picture.sheet = sheet
        if self.choice.order not in _FIXED_ORDERS:
            self._arrange()
        self._draw_rows()
        self.paint()

    def _sight(self) -> list[int]:
        lines = self._plan.lines[self.top : self.top + self.height]
        return [line.row for line in lines if line.kind == "row"]

    def _draw_rows(self) -> None:
        """Makes the lines of the rows in sight, and the lines that do not scroll."""
        picture = self._picture
        sight = self._sight()
        if picture.recent is not None:
            top_ipc = max(self._top_ipc, self._troubles.ipc_alone)
            picture.recent.read(self.interval, sight, top_ipc)
            self._top_ipc = picture.recent.top_ipc
        self._lines = rows(picture, sight)
        self._draw_fixed_lines()

    def _draw_fixed_lines(self) -> None:
        """Makes the lines that do not scroll."""
        picture, plan, width = self._picture, self._plan, self.width
        self.heads = [] if self.bare else [
            layout.titles(picture.columns, self.choice.order, reverse=self.choice.reverse),
            *(heading(picture, line, width) for line in plan.above),
        ]  # fmt: skip
        self.feet = [(heading(picture, line, width), "calm") for line in plan.below]
        room = self.size.height - len(self.heads) - len(self.feet) - max(1, self.count)
        if not self.bare and room > 0:
            axis = rule(picture.columns, self.session, self.interval)
            gap = int(
                room > MIN_HEIGHT + 1 and bool(text(axis).strip())
            )  # an empty axis already is a gap
            self.feet += [(axis, "calm"), *self.panels(room - 1, gap)]

    # --- lines

    def build(self) -> None:
        picture = self._picture
        picture.clock = clock_of(self.session, self.choice.units, known=True)
        known = layout.known(self.session, self.places, picture.clock)
        picture.columns = layout.layout(known, self.width - layout.BEFORE - 1)
        work, ipc = (
            next((c.width - c.gap for c in picture.columns if c.key == key), 0)
            for key in ("work", "past ipc")
        )
        picture.recent = None
        if work or ipc:
            places, ascii_ = self.places.places, self.choice.ascii
            picture.recent = RowHistories(self.session, places, work, ipc, ascii_=ascii_)
        self._arrange()
        self._draw_rows()
        self.redraw()
        self.show_cursor()

    def _arrange(self) -> None:
        picture, choice = self._picture, self.choice
        order = None
        if choice.order != "topology" or choice.reverse:
            order = arranged(self.places, choice, self.session, self.interval)
        room = self.size.height - (not self.bare)
        self._plan = arrangement(self.places, room, self._fold, choice.cpu, order, bare=self.bare)
        picture.order = choice.order if self._plan.grouped else "every package"
        self.count = len(self._plan.lines)

    def line(self, y: int) -> strips.Line:
        picture, line = self._picture, self._plan.lines[y]
        if line.kind == "row":
            if line.row not in self._lines:  # the row was scrolled into sight
                self._lines = {**self._lines, **rows(picture, [line.row])}
            made = self._lines[line.row]
            chosen = self.places.places[line.row].cpus[0] == self.choice.cpu
            return marked(made) if chosen else made
        chosen = line.kind == "folded" and self.cpu(y) == self.choice.cpu
        runs = heading(picture, line, self.width, chosen=chosen)
        return runs, "chosen" if chosen else "calm"

    # --- the cursor

    def cpu(self, y: int) -> int | None:
        """Returns the first CPU of the line's core. For a folded package, it is the first CPU of
        the selected core if the package contains it, else of the package's first core. Returns None
        for headings."""
        line, places = self._plan.lines[y], self.places.places
        if line.kind == "row":
            return places[line.row].cpus[0]
        if line.kind != "folded":
            return None
        cpus = [places[row].cpus[0] for row in self.places.of_package(places[line.row].package)]
        return self.choice.cpu if self.choice.cpu in cpus else cpus[0]

    def chosen(self) -> None:
        """Arranges the lines again, because the cursor may have moved into a folded package."""
        before = self._plan
        self._arrange()
        if (len(before.above), before.lines) == (len(self._plan.above), self._plan.lines):
            self._draw_rows()
            super().chosen()
        else:
            self.lay_out()

    def _select(self, index: int) -> None:
        """Selects the row at this index of the display order, even if its package is folded."""
        order = self._plan.order
        if order:
            row = order[max(0, min(len(order) - 1, index))]
            self.choice.cpu = self.places.places[row].cpus[0]
            self.chosen()

    def action_move(self, by: int) -> None:
        """Moves the cursor by rows, or by packages if all packages are folded."""
        if not self.count:  # no CPU matches the filter
            return
        places = self.places.places
        at = {places[row].cpus[0]: i for i, row in enumerate(self._plan.order)}
        if self._fold == "always" and any(line.kind == "folded" for line in self._plan.lines):
            super().action_move(by)
        else:
            self._select(at.get(self.choice.cpu or 0, 0) + by)

    def action_page(self, by: int) -> None:
        self.action_move(by * max(1, self.height - 1))

    def action_end(self, to: int) -> None:
        if self.count:
            self._select(0 if to < 0 else len(self._plan.order) - 1)

    def action_fold(self) -> None:
        self._fold = FOLDS[(FOLDS.index(self._fold) + 1) % len(FOLDS)]
        self.lay_out()

    async def on_click(self, event: events.Click) -> None:  # type: ignore[override]
        """Sorts by a clicked heading, or opens a clicked package. Other clicks are handled by
        `Cursor`."""
        below = event.y - len(self.heads) - self.height
        fixed = event.y < len(self.heads) or 0 <= below < len(self._plan.below)
        if self._reader is None or not fixed:
            return
        event.prevent_default()  # the lines may move
        if event.y == 0 and self.heads:
            await self._sort(column_at(self._picture.columns, event.x - layout.BEFORE))
        elif 0 < event.y < len(self.heads):
            self._open(self._plan.above[event.y - 1])
        elif below >= 0:
            self._open(self._plan.below[below])

    def _open(self, line: PlaceLine) -> None:
        if line.row >= 0:
            self._select(self._plan.order.index(line.row))

    async def _sort(self, column: Column | None) -> None:
        if column is None or (column.key not in layout.SORTED and column.key not in BY_KEY):
            return
        order = layout.SORTED.get(column.key, column.key)
        again = order == self.choice.order
        await self.run_action("screen.reverse" if again else f"screen.sort({order!r})")


# --- the overview: charts where they fit the screen, else a row for each core

_THREE, _COUNTED_THREE = 200, 140
"""Minimum widths, in cells, for three panels: without counters, and with counters."""


class Overview(CoreGrid):
    _charts: Charts | None = None
    _fits = False
    """Whether the charts fit the screen. A filter does not change this."""
    _room = Size(0, 0)
    """Width and height, in cells, when the charts were fitted. They are stored because Textual
    computes them at each access."""

    # --- lines from an interval

    def show(self, session: Session, interval: Interval) -> None:
        if self.settle(session, interval) or self._charts is None:
            self._reader = None  # the machine may have changed
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
        """Makes all lines. Returns whether their number changed."""
        session, interval, charts = self.session, self.interval, self._charts
        assert charts is not None
        self._reader = None  # if rows are shown again, they are made anew
        clock = clock_of(session, self.choice.units, known=True)
        order = arranged(self.places, self.choice, session, interval)
        options = ChartOptions(self.look, self.choice.window_s, clock, self.choice.cpu)
        charts.read(session, interval, order, options)
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
        """Returns the class whose actions move the cursor. With charts, the cursor moves from line
        to line, as `Cursor` does."""
        return Cursor if self._fits else CoreGrid

    def action_fold(self) -> None:
        if not self._fits:
            super().action_fold()
