"""The last line: keys of this view. What does not fit is under `?`."""

from __future__ import annotations

from textual.strip import Strip
from textual.widget import Widget

from perftop import theme
from perftop.widgets.strips import Run, shed, strip

Key = tuple[str, str]
"""The key, and what it does."""


class Keys(Widget):
    def __init__(self, *, ascii_: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ascii = ascii_
        self._keys: list[Key] = []
        self._strip: Strip | None = None

    def show(self, keys: list[Key]) -> None:
        """Most important first."""
        if keys != self._keys:
            self._keys, self._strip = keys, None
            self.refresh()

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - there is only one
        if self._strip is None:
            runs = [(" ", "text"), *line(self._keys, self.size.width - 1)]
            colors = theme.styles(dark=self.app.current_theme.dark)
            self._strip = strip(runs, colors, self.size.width, ascii_=self._ascii)
        return self._strip

    def on_resize(self) -> None:
        self._strip = None

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strip = None


def line(keys: list[Key], width: int) -> list[Run]:
    pieces: list[tuple[int, list[Run]]] = [
        (i, [(key, "key"), (f" {what}", "dim")]) for i, (key, what) in enumerate(keys)
    ]
    return shed(pieces, width, 3)
