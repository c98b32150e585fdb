"""The widget that draws two recordings: it paints the lines that changed."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget

from perftop.draw.ansi_strip import ink, line
from perftop.tui.pair.look import Line, Look
from perftop.tui.pair.page import page
from perftop.tui.shared.direct import repaint


class PairScreen(Widget, can_focus=True):
    def __init__(self, look: Look) -> None:
        super().__init__(id="pair")
        self.look = look
        self._lines: list[Line] = []

    def update(self) -> None:
        """Draws what is new."""
        look = self.look
        look.width, look.height = self.size
        if look.width < 1 or look.height < 1:
            return
        fresh, held = page(look), self._lines
        same = len(held) == len(fresh)
        changed = [y for y in range(len(fresh)) if not same or fresh[y] != held[y]]
        self._lines = fresh
        repaint(self, changed, look.width)

    def render_line(self, y: int) -> Strip:
        runs, mood = self._lines[y] if y < len(self._lines) else ([], "calm")
        return line(runs, ink(self.app, mood), self.size.width, ascii_=self.look.ascii)

    def on_resize(self) -> None:
        self.anew()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.anew()

    def anew(self) -> None:
        self._lines = []
        self.update()
