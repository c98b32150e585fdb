"""The first screen: every core, one row each."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from perftop.format import duration
from perftop.messages import Refreshed
from perftop.screens.help import Help
from perftop.widgets.grid import CoreGrid
from perftop.widgets.keys import Keys
from perftop.widgets.places import ORDERS
from perftop.widgets.status import Status
from perftop.widgets.top import Top

SHORT = 12
"""Lines below which the head of the screen makes room for rows."""


TINY = 8
"""Lines below which all goes that is not a row, but for the first two lines."""


class Overview(Screen[None]):
    CSS_PATH = "overview.tcss"
    AUTO_FOCUS = "#grid"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,h,f1", "help", "help", key_display="?", id="help",
                tooltip="Keys, shapes and what every number means"),
        Binding("o", "order", "order", id="order",
                tooltip="Order of rows: topology, CPU number, worst first"),
    ]  # fmt: skip

    def __init__(self, *, ascii_: bool = False) -> None:
        super().__init__()
        self._ascii = ascii_
        self._last = Refreshed(None, None, Status(0))

    def compose(self) -> ComposeResult:
        yield Top(ascii_=self._ascii, id="top")
        yield CoreGrid(ascii_=self._ascii, id="grid")
        yield Keys(ascii_=self._ascii, id="keys")

    def on_mount(self) -> None:
        self._top = self.query_one(Top)
        self._grid = self.query_one(CoreGrid)
        self._keys = self.query_one(Keys)
        if self._ascii:  # a scrollbar is drawn with blocks
            self._grid.styles.scrollbar_size_vertical = 0
        self._tell_keys()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < SHORT, "-short")
        tiny = event.size.height < TINY
        self.set_class(tiny, "-tiny")
        if self._grid.bare != tiny:
            self._grid.bare = tiny
            self._grid.lay_out()
            self._grid.reveal()

    def on_refreshed(self, message: Refreshed) -> None:
        newer = message.interval is not self._last.interval
        self._last = message
        self._top.show(message.session, message.interval, message.status)
        self._tell_keys()
        if self._grid.stale != (message.status.failed is not None):
            self._grid.stale = not self._grid.stale
            self._grid.lay_out()
        if newer and message.session is not None and message.interval is not None:
            self._grid.show(message.session, message.interval)

    def action_order(self) -> None:
        self._grid.reorder(ORDERS[(ORDERS.index(self._grid.order) + 1) % len(ORDERS)])
        self._tell_keys()

    def action_help(self) -> None:
        bindings = [active.binding for active in self.active_bindings.values()]
        self.app.push_screen(Help(self._last.session, bindings, ascii_=self._ascii))

    def _tell_keys(self) -> None:
        status = self._last.status
        pause = "resume" if status.paused is not None else "pause"
        self._keys.show([
            ("q", "quit"), ("?", "help"), ("space", pause), ("o", self._grid.order),
            ("+ -", duration(status.interval_ns / 1e9)), ("↑↓", "core"), ("T", "theme"),
        ])  # fmt: skip
