"""The widget that draws two recordings."""

from __future__ import annotations

from perftop.draw.strips import Line
from perftop.tui.pair.look import Look
from perftop.tui.pair.page import page
from perftop.tui.shared.page_widget import PageWidget


class PairScreen(PageWidget):
    def __init__(self, look: Look) -> None:
        super().__init__(id="pair", ascii_=look.ascii)
        self.look = look

    def page(self, width: int, height: int) -> list[Line]:
        self.look.width, self.look.height = width, height
        return page(self.look)
