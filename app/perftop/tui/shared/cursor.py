"""A canvas with a cursor that moves up and down from item to item, such as cores, and is scrolled
into view. The core under the cursor is the selected core of all views."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.keys import bindings


class Cursor(Canvas):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("rows")]

    _selected: object = None
    """Identity of the item that was selected last."""

    @abstractmethod
    def cpu(self, y: int) -> int | None:
        """Returns the first CPU of the core to which line `y` belongs; None for headings."""

    def identity(self, y: int) -> object:
        """Returns the identity of the item that line `y` shows; None for headings."""
        return self.cpu(y)

    def _cursor_line(self) -> int:
        """Returns the line of the cursor: the line of the selected item, else the first line of the
        selected core."""
        lines = [y for y in range(self.count) if self.cpu(y) == self.choice.cpu]
        same = (y for y in lines if self.identity(y) == self._selected)
        return next(same, lines[0] if lines else 0)

    def choose(self, y: int, towards: int = 1) -> None:
        """Selects the item at this line. If the line is a heading, selects the next item in
        direction `towards`, or, if there is none, in the other direction."""
        first = max(0, min(self.count - 1, y))
        for step in (towards, -towards):
            y = first
            while 0 <= y < self.count and self.identity(y) is None:
                y += step
            if 0 <= y < self.count:
                self._selected, self.choice.cpu = self.identity(y), self.cpu(y)
                self.chosen()
                return

    def chosen(self) -> None:
        self.show_cursor()
        self.paint()

    def show_cursor(self) -> None:
        """Scrolls to the selected core and the headings directly above it."""
        y = first = self._cursor_line()
        while first > 0 and self.cpu(first - 1) is None:
            first -= 1
        self.reveal(first, y)

    def action_move(self, by: int) -> None:
        y = self._cursor_line()
        current = self.identity(y) if y < self.count and self.cpu(y) == self.choice.cpu else None
        while 0 <= y < self.count and self.identity(y) in {None, current}:
            y += by
        if 0 <= y < self.count:
            self.choose(y, by)

    def action_page(self, by: int) -> None:
        self.choose(self._cursor_line() + by * max(1, self.height - 1), by)

    def action_end(self, to: int) -> None:
        self.choose(0 if to < 0 else self.count - 1, -to)

    def on_click(self, event: events.Click) -> None:
        if self.pick(event):
            return
        y = self.line_at(event.y)
        if y is not None and self.cpu(y) is not None:
            self.choose(y)
            if event.chain == 2:
                self.post_message(self.Opened())
