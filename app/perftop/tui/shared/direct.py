"""Painting of whole lines past Textual's queue of updates.

A refresh changes some lines of some widgets. Textual would send messages for each widget, wait for
a timer, and cut every line of the screen into pieces before it writes. Where nothing lies above the
widgets the result is known beforehand: each line as it is, at its place. This is written at once;
in all other cases Textual paints.

As long as nothing else is written, the lines of the terminal are known, too, and what has moved on
them is moved there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from textual import events
from textual._compositor import CompositorUpdate
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from perftop.draw.ansi_strip import Ready

Place = tuple[int, int]
"""Column and row of the screen."""


class Lines(CompositorUpdate):
    """Lines of widgets at their places on the screen, each with its visible cells."""

    def __init__(
        self, lines: Mapping[Place, tuple[Strip, int]], shown: Mapping[Place, tuple[Strip, int]]
    ) -> None:
        """`shown`: what the terminal has at these places, as far as is known."""
        self._lines, self._shown = lines, shown

    def render_segments(self, console: Console) -> str:
        return "".join([self._written(at, *line, console) for at, line in self._lines.items()])

    def _written(self, at: Place, line: Strip, wide: int, console: Console) -> str:
        (x, y), shown = at, self._shown.get(at)
        if isinstance(line, Ready) and shown is not None and line.wide <= wide == shown[1]:
            moved = line.moved(shown[0], x, y, console)
            if moved is not None:
                return moved
        return f"\x1b[{y + 1};{x + 1}H{line.crop(0, wide).render(console)}"


def repaint(widget: Widget, lines: Mapping[int, Strip], wide: int) -> None:
    """Paints these lines of the widget, by height, the first `wide` cells of each, together with
    those of other widgets if its screen collects them."""
    screen = widget.screen
    if isinstance(screen, Direct) and screen.collected is not None:
        screen.collected.append((widget, lines, wide))
    elif len(lines) >= widget.size.height:
        widget.refresh()
    elif lines:
        widget.refresh(*(Region(0, y, wide, 1) for y in lines))


class Direct(Screen[None]):
    collected: list[tuple[Widget, Mapping[int, Strip], int]] | None = None
    """Lines to be painted together; None: each widget paints its own."""
    _seen: dict[Widget, tuple[Region, Region]] | None = None
    """The visible widgets from which `_alone` was made."""
    _alone: dict[Widget, Region]
    """Widgets above which there is nothing but what belongs to them, and their places."""
    _shown: Mapping[Place, tuple[Strip, int]] = {}
    """The lines that were written last."""
    _displays = 0
    """How often the app had drawn by then; if it has since, what is shown is not known."""

    def on_resize(self, event: events.Resize) -> None:
        """Textual calls this before it lays out. A terminal that is as large as before may have
        been smaller in between, and have lost what it showed; Textual would leave it so."""
        if event.size == self.outer_size:
            self.refresh()

    def lay_out(self) -> None:
        """Lays out now. Textual would collect messages of widgets whose height is another, and then
        wait for a timer: 25 ms later."""
        self._clear_arrangement_cache()
        self._refresh_layout()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Collects the lines that are repainted in the block, and paints them at its end."""
        self.collected = []
        try:
            yield
        finally:
            collected, self.collected = self.collected, None
            if not self._paint(collected):
                for widget, lines, wide in collected:
                    repaint(widget, lines, wide)

    def _paint(self, collected: list[tuple[Widget, Mapping[int, Strip], int]]) -> bool:
        app: Any = self.app
        waits = self._layout_required or self._scroll_required or self._repaint_required
        if waits or app.screen is not self or app._batch_count or app.is_inline:  # noqa: SLF001
            return False
        visible = self._compositor.visible_widgets
        if visible is not self._seen:
            self._seen, self._alone = visible, _alone(visible, self)
        lines: dict[Place, tuple[Strip, int]] = {}
        for widget, fresh, wide in collected:
            place = self._alone.get(widget)
            if place is None or place.width < wide:
                return False
            x, y, _, height = place
            for at, line in fresh.items():
                if at < height:
                    lines[x, y + at] = line, wide  # a scrollbar may be behind it
        if lines:
            self._write(lines)
        return True

    def _write(self, lines: dict[Place, tuple[Strip, int]]) -> None:
        app: Any = self.app
        shown = self._shown if app.displays == self._displays else {}
        app._display(self, Lines(lines, shown))  # noqa: SLF001
        self._shown, self._displays = {**shown, **lines}, app.displays


def _alone(visible: dict[Widget, tuple[Region, Region]], screen: Widget) -> dict[Widget, Region]:
    """The widgets that no other covers, without their scrollbars."""
    found: dict[Widget, Region] = {}
    for widget, (region, clip) in visible.items():
        if widget is screen or clip.intersection(region) != region:
            continue
        own = {widget, *widget.ancestors}
        others = (
            other.intersection(cut)
            for it, (other, cut) in visible.items()
            if it not in own and it.parent is not widget
        )
        if not any(other.overlaps(region) for other in others):
            found[widget] = region
    return found
