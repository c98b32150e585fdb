"""A widget that draws a page of lines, made anew as a whole: it paints the lines that changed."""

from __future__ import annotations

from abc import abstractmethod

from textual.strip import Strip
from textual.widget import Widget

from perftop.draw.ansi_strip import ink, line
from perftop.draw.strips import Line
from perftop.tui.shared.canvas import Abstract
from perftop.tui.shared.direct import repaint


class PageWidget(Widget, metaclass=Abstract, can_focus=True):
    def __init__(self, *, id: str, ascii_: bool) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ascii = ascii_
        self._lines: list[Line] = []
        self._strips: dict[int, Strip] = {}

    @abstractmethod
    def page(self, width: int, height: int) -> list[Line]:
        """The lines of the whole widget, at this size."""

    def update(self) -> None:
        """Draws what is new."""
        width, height = self.size
        if width < 1 or height < 1:
            return
        fresh, held = self.page(width, height), self._lines
        same = len(held) == len(fresh)
        changed = [y for y in range(len(fresh)) if not same or fresh[y] != held[y]]
        self._lines = fresh
        for y in changed:
            self._strips.pop(y, None)
        repaint(self, changed, width)

    def anew(self) -> None:
        """Draws all lines."""
        self._lines, self._strips = [], {}
        self.update()

    def text(self) -> list[str]:
        return ["".join(text for text, _ in runs).rstrip() for runs, _ in self._lines]

    def render_line(self, y: int) -> Strip:
        if y not in self._strips:
            runs, mood = self._lines[y] if y < len(self._lines) else ([], "calm")
            wide = self.size.width
            self._strips[y] = line(runs, ink(self.app, mood), wide, ascii_=self._ascii)
        return self._strips[y]

    def on_resize(self) -> None:
        self.anew()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.anew()
