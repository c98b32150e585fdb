"""The screen until the monitor is ready: the lines around the views, which need no numpy."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from perftop.tui.frame.key_line import KeyLine, Told
from perftop.tui.frame.status import STARTING
from perftop.tui.screen.messages import Refreshed
from perftop.tui.shared import keys


class Opening(Screen[None]):
    CSS_PATH = "monitor.tcss"
    ALLOW_SELECT = False

    def __init__(self, keymap: Mapping[str, str], *, ascii_: bool) -> None:
        super().__init__()
        self._top = Told(ascii_=ascii_, id="top")
        self._keys = KeyLine(keys.captions(keymap), ascii_=ascii_, id="keys")

    def compose(self) -> ComposeResult:
        yield self._top
        yield Widget(id="blank")
        yield self._keys

    def on_refreshed(self, _: Refreshed) -> None:
        self._top.tell(STARTING)
        self._keys.show("overview", (), {})
