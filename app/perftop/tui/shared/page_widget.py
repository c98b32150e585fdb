"""A widget whose lines are made anew as a whole; it paints those that changed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from perftop.draw.ansi_strip import ink, line
from perftop.draw.strips import Line, text
from perftop.tui.shared.canvas import Abstract
from perftop.tui.shared.direct import repaint


class PageWidget(Widget, metaclass=Abstract):
    def __init__(self, *, id: str | None, ascii_: bool) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ascii = ascii_
        self._lines: Sequence[Line] = []
        self._strips: dict[int, Strip] = {}

    @abstractmethod
    def page(self, width: int, height: int) -> Sequence[Line]:
        """The lines of the whole widget, at this size; those that are lacking are blank."""

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
        repaint(self, {y: self._strip(y, width) for y in changed}, width)

    def anew(self) -> None:
        """Draws all lines."""
        self._lines, self._strips = [], {}
        self.update()

    def text(self) -> list[str]:
        return [text(runs).rstrip() for runs, _ in self._lines]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns finished strips, for the reason given in Canvas."""
        lines = (self.render_line(y) for y in crop.line_range)
        return [made.crop_extend(crop.x, crop.right, None) for made in lines]

    def render_line(self, y: int) -> Strip:
        held = self._strips.get(y)
        return self._strip(y, self.size.width) if held is None else held

    def _strip(self, y: int, wide: int) -> Strip:
        runs, mood = self._lines[y] if y < len(self._lines) else ([], "calm")
        made = self._strips[y] = line(runs, ink(self.app, mood), wide, ascii_=self._ascii)
        return made

    def on_resize(self) -> None:
        self.anew()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.anew()
