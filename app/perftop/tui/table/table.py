"""The table: one line a CPU, with every number known of it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import BindingType

from perftop.base.arrays import Ints
from perftop.base.format import GHZ
from perftop.draw import strips
from perftop.model.numbers import Number
from perftop.session.interval import ALWAYS, Interval
from perftop.session.session import Session
from perftop.session.values import CpuColumns, doubted
from perftop.tui.panels.below import Paneled
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.cursor import Cursor
from perftop.tui.shared.fields import clock_of
from perftop.tui.shared.keys import bindings
from perftop.tui.shared.sheet import AWAKE, IDLE, Reader
from perftop.tui.shared.trouble import Troubles
from perftop.tui.table import layout, lines

_ORDERS = {"cpu": "CPU number", "core": "topology"}
"""Names that other views use for sorting by a column that stays."""
_NAMES = {order: key for key, order in _ORDERS.items()}


class Table(Paneled, Cursor):
    HINTS: ClassVar[tuple[str, ...]] = ("open", "sort", "columns", "reverse", "units")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("table")]

    _tabular: CpuColumns
    _reader: Reader
    _troubles: Troubles
    _rows: Ints
    """Positions of the CPUs that are shown, by topology."""

    def __init__(self, choice: Choice, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(choice, id=id)
        self._known: tuple[Number, ...] = ()
        self._page = layout.Page({})
        self._plan = layout.TableLayout((), (), 0, 0, 0)
        self._left = 0
        """Index of the first scrolling column in sight."""
        self._strays: list[int] = []
        """Positions of offline CPUs whose core is unknown; they are the last lines."""
        self._clock = GHZ
        self._lines: list[int] = []
        """Position of the CPU of each line."""
        self._row = 0
        """Position of the CPU under the cursor."""

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        changed = self.settle(session, interval)
        if changed:
            self._begin(session)
        known = self._tabular.columns()
        if changed or known != self._known:
            self._known = known
            self.lay_out()
            return
        self._read()
        self.paint()

    def _begin(self, session: Session) -> None:
        self._tabular, self._reader = CpuColumns(session), Reader(session, self.places)
        self._troubles = Troubles(session)
        mask, shown = self.choice.mask, frozenset(session.shown)
        wanted = shown if mask is None else shown & mask
        by_core = [place.rows for place in self.places.places]
        groups = self.places.groups.values()
        rows = [row for group in groups for core in group for row in by_core[core]]
        self._rows = np.array([row for row in rows if row in wanted], np.intp)
        self._strays = [session.position[cpu] for cpu in self.places.strays]
        self._lines, self.count, self.feet = [], 0, []  # until it has a width, and is laid out
        self._made.clear()
        topology = session.topology
        self._page = layout.Page({
            "cpu": [str(row.cpu) for row in topology],
            "core": ["-" if row.core is None else f"{row.package}:{row.core}" for row in topology],
            "type": [row.type or "" for row in topology],
        })  # fmt: skip

    # --- columns and lines

    def build(self) -> None:
        self._clock = clock_of(self.session, self.choice.units)
        self._plan = self._planned(self._left)
        self._left = self._plan.before
        order = _NAMES.get(self.choice.order, self.choice.order)
        heading = lines.heading(self._plan, order, reverse=self.choice.reverse)
        self.heads = [] if self.bare else [heading]
        self._read()
        self.redraw()
        self.show_cursor()

    def _planned(self, left: int) -> layout.TableLayout:
        slots = [layout.slot(column, self._clock) for column in self._columns()]
        return layout.plan(layout.names(self._page), slots, left, self.width)

    def _columns(self) -> list[Number]:
        """The columns the user chose, in that order; all if none of them is known here."""
        by_key = {column.key: column for column in self._known}
        chosen = [by_key[key] for key in self.choice.columns if key in by_key]
        return chosen or list(self._known)

    def _read(self) -> None:
        """Update the numbers of the columns in sight, and the order of lines."""
        tabular, interval, page = self._tabular, self.interval, self._page
        self._troubles.read(interval)
        slots = [slot for slot in self._plan.slots if not slot.left]
        page.values = {slot.key: tabular.values(slot.key, interval).tolist() for slot in slots}
        page.online = interval.online.tolist()
        page.doubted = {
            slot.key: doubted(slot.key, self.session, interval).tolist() for slot in slots
        }
        page.estimated = {
            slot.key: (interval.shares[slot.key] < ALWAYS).tolist()
            for slot in slots
            if slot.key in interval.shares
        }
        page.awake = (~(interval.values["util"] < AWAKE)).tolist()
        page.idle = (interval.values["util"] < IDLE).tolist()
        page.resting = interval.resting.tolist()
        self._lines = [*self._arranged(), *self._strays]
        self.count = len(self._lines)
        first = tabular.first
        if self._row not in self._lines or first[self._row] != self.choice.cpu:
            alike = (row for row in self._lines if first[row] == self.choice.cpu)
            self._row = next(alike, self._lines[0] if self._lines else 0)
        room = 0 if self.bare else self.size.height - len(self.heads) - max(1, self.count)
        self.feet = self.panels(room)

    def _arranged(self) -> list[int]:
        order, reverse = self.choice.order, self.choice.reverse
        column = next((column for column in self._known if column.key == order), None)
        if column is not None:
            found = self._tabular.arranged(
                self._rows, column, self.interval, self._clock, reverse=reverse
            )
            return [*found.tolist()]
        rows: list[int] = self._rows.tolist()
        if order == "CPU number":
            rows.sort(key=lambda row: self.session.topology[row].cpu)
        elif order == "worst first":
            rows.sort(key=self._scores().__getitem__)
        return rows[::-1] if reverse else rows

    def _scores(self) -> dict[int, float]:
        """Score of each CPU's core, by position of the CPU."""
        scores, places = self._reader.read(self.interval).scores(), self.places.places
        return {row: scores[i] for i, place in enumerate(places) for row in place.rows}

    def line(self, y: int) -> strips.Line:
        row = self._lines[y]
        chosen = row == self._row
        task = self._tabular.task(row, self.interval)
        trouble = self._troubles.of([row]) if self._troubles else None
        return lines.row(self._plan, self._page, row, task, trouble, chosen=chosen)

    # --- the cursor is on a CPU; other views select its core

    def cpu(self, y: int) -> int | None:
        return self._tabular.first[self._lines[y]] if y < len(self._rows) else None

    def _at(self) -> int:
        return self._lines.index(self._row) if self._row in self._lines else 0

    def choose(self, y: int, towards: int = 1) -> None:  # noqa: ARG002 - no headings to step over
        last = min(len(self._rows), len(self._lines)) - 1  # CPUs may have come or gone
        if last >= 0:
            self._row = self._lines[max(0, min(last, y))]
            self.choice.cpu = self._tabular.first[self._row]
            self.chosen()

    def action_move(self, by: int) -> None:
        self.choose(self._at() + by)

    # --- columns

    def action_scroll_columns(self, by: int) -> None:
        self._left = max(0, self._left + by)
        self.lay_out()

    async def action_column(self, by: int) -> None:
        """Sort by a column to the left (`by` < 0) or right of the sorted one."""
        keys = [*_ORDERS, *(column.key for column in self._columns())]
        order = _NAMES.get(self.choice.order, self.choice.order)
        at = keys.index(order) + by if order in keys else 0
        key = keys[max(0, min(len(keys) - 1, at))]
        if key != order:
            self._reveal_column(key)
            await self._sort(key)

    def _reveal_column(self, key: str) -> None:
        keys = [column.key for column in self._columns()]
        if key in keys:
            at = keys.index(key)
            firsts = range(min(self._left, at), at + 1)
            shown = (left for left in firsts if self._planned(left).has(key))
            self._left = next(shown, at)

    async def _sort(self, key: str) -> None:
        order = _ORDERS.get(key, key)
        again = order == self.choice.order
        await self.run_action("screen.reverse" if again else f"screen.sort({order!r})")

    async def action_columns(self) -> None:
        await self.run_action("screen.columns")

    async def on_click(self, event: events.Click) -> None:  # type: ignore[override]
        """Sort by a clicked heading; clicks on lines move the cursor."""
        key = self._plan.at(event.x) if event.y < len(self.heads) else None
        if key is not None and key != "type":
            await self._sort(key)
