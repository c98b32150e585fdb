"""Painting of whole lines past Textual's queue of updates.

A refresh changes some lines of some widgets. Textual would send messages for each widget, wait for
a timer, and cut every line of the screen into pieces before it writes. Where nothing lies above the
widgets the result is known beforehand: each line as it is, at its place. This is written at once;
in all other cases Textual paints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from textual._compositor import CompositorUpdate
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget


class Lines(CompositorUpdate):
    """Whole lines of widgets, at their places on the screen."""

    def __init__(self, lines: Iterable[tuple[int, int, Strip]]) -> None:
        self._lines = lines
        """Column, row and content of each."""

    def render_segments(self, console: Console) -> str:
        return "".join(
            [f"\x1b[{y + 1};{x + 1}H{strip.render(console)}" for x, y, strip in self._lines]
        )


def repaint(widget: Widget, heights: Sequence[int], wide: int) -> None:
    """Paints these lines of the widget, the first `wide` cells of each, together with those of
    other widgets if its screen collects them."""
    screen = widget.screen
    if isinstance(screen, Direct) and screen.collected is not None:
        screen.collected.append((widget, heights, wide))
    elif len(heights) >= widget.size.height:
        widget.refresh()
    elif heights:
        widget.refresh(*(Region(0, y, wide, 1) for y in heights))


class Direct(Screen[None]):
    collected: list[tuple[Widget, Sequence[int], int]] | None = None
    """Lines to be painted together; None: each widget paints its own."""
    _seen: dict[Widget, tuple[Region, Region]] | None = None
    """The visible widgets from which `_alone` was made."""
    _alone: dict[Widget, Region]
    """Widgets above which there is nothing but what belongs to them, and their places."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Collects the lines that are repainted in the block, and paints them at its end."""
        self.collected = []
        try:
            yield
        finally:
            collected, self.collected = self.collected, None
            if not self._paint(collected):
                for widget, heights, wide in collected:
                    repaint(widget, heights, wide)

    def _paint(self, collected: list[tuple[Widget, Sequence[int], int]]) -> bool:
        app: Any = self.app
        waits = self._layout_required or self._scroll_required or self._repaint_required
        if waits or app.screen is not self or app._batch_count or app.is_inline:  # noqa: SLF001
            return False
        visible = self._compositor.visible_widgets
        if visible is not self._seen:
            self._seen, self._alone = visible, _alone(visible, self)
        lines: list[tuple[int, int, Strip]] = []
        for widget, heights, wide in collected:
            place = self._alone.get(widget)
            if place is None or place.width < wide:
                return False
            x, y = place.offset
            lines += [
                (x, y + at, widget.render_line(at).crop(0, wide))  # a scrollbar may be behind it
                for at in heights
                if at < place.height
            ]
        if lines:
            app._display(self, Lines(lines))  # noqa: SLF001
        return True


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
