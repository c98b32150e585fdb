"""Widgets of lines by the Line API. A view provides lines as runs; strips are made of those that
changed, and only these are painted.

A `PageWidget` makes all its lines in one go. A `Canvas` is one of the views of the main screen:
fixed lines at its top and bottom, and between them lines that scroll and can be clicked.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.message_pump import _MessagePumpMeta
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import BLANK, Line, foreign, text
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.choice import Choice, Sorting
from perftop.tui.shared.paint import Ink, ink_of, ready_strip, repaint
from perftop.tui.shared.places import ORDERS, Places

if TYPE_CHECKING:
    from perftop.draw.charts import Look


class Abstract(_MessagePumpMeta, ABCMeta):
    """The metaclass of widgets and screens with methods that a class made from them must have."""


class StripCache:
    """The strips of a widget's lines. A strip is kept as long as its line stays the same."""

    def __init__(self, widget: Widget, *, ascii_: bool) -> None:
        self._widget, self._ascii = widget, ascii_
        self._made: dict[Hashable, tuple[Line, Strip]] = {}
        self._painted: list[Strip] = []
        """By height in the widget, the strips that were painted last."""
        self._inks: dict[theme.Mood, Ink] = {}
        """Inks by mood, looked up once a paint: the theme may change between two."""
        self.built = 0
        """Number of strips made so far, to measure the use of the cache."""

    def clear(self) -> None:
        self._made, self._painted, self._inks = {}, [], {}

    def strip(self, key: Hashable, line: Line, size: int) -> Strip:
        """The strip of a line; `key`: its identity, which stays while its text changes."""
        held = self._made.get(key)
        if held is not None and held[0] == line:
            return held[1]
        self.built += 1
        runs, mood = line
        ink = self._inks.get(mood)
        if ink is None:
            ink = self._inks[mood] = ink_of(self._widget.app, mood)
        made = ready_strip(runs, ink, size, ascii_=self._ascii)
        self._made[key] = line, made
        return made

    def cropped(self, key: Hashable, line: Line, size: int, crop: Region) -> Strip:
        """The strip of a line, cut for Textual. It includes the background and needs no border or
        filter, which would be most of the cost of a line."""
        return self.strip(key, line, size).crop_extend(crop.x, crop.right, None)

    def paint(self, lines: Sequence[tuple[Hashable, Line]], size: int, wide: int) -> None:
        """Paints the changed lines of the whole widget, of `size` cells, `wide` of them visible."""
        self._inks.clear()
        strips = [self.strip(key, line, size) for key, line in lines]
        before = self._painted
        changed = {
            y: strip for y, strip in enumerate(strips) if y >= len(before) or before[y] is not strip
        }
        self._painted = strips
        self._made = {key: self._made[key] for key, _ in lines}
        repaint(self._widget, changed, wide)


class PageWidget(Widget, metaclass=Abstract):
    def __init__(self, *, id: str | None, ascii_: bool) -> None:  # noqa: A002
        super().__init__(id=id)
        self._ascii = ascii_
        self._lines: Sequence[Line] = []
        self._strips = StripCache(self, ascii_=ascii_)

    @abstractmethod
    def page(self, width: int, height: int) -> Sequence[Line]:
        """The lines of the whole widget, at this size; missing ones are blank."""

    def update(self) -> None:
        """Draws the changed lines."""
        width, height = self.size
        if width and height:
            self._lines = self.page(width, height)
            self._strips.paint([(y, self._line(y)) for y in range(height)], width, width)

    def redraw(self) -> None:
        """Draws all lines."""
        self._strips.clear()
        self.update()

    def text(self) -> list[str]:
        return [text(runs).rstrip() for runs, _ in self._lines]

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        return [self._strips.cropped(y, self._line(y), width, crop) for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        return self._strips.strip(y, self._line(y), self.size.width)

    def _line(self, y: int) -> Line:
        return self._lines[y] if y < len(self._lines) else BLANK

    def on_resize(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.redraw()


class Canvas(ScrollView, metaclass=Abstract, can_focus=True, inherit_bindings=False):
    HINTS: ClassVar[tuple[str, ...]] = ()
    """Ids of the keys that the last line of the screen shows for this view; the least important
    last."""
    ORDERS: ClassVar[tuple[str, ...]] = ORDERS
    """Orders that the order key goes through; the sort list may have more."""

    class Opened(Message):
        """A core was double-clicked."""

    @dataclass(eq=False)
    class EpisodeClicked(Message):
        """An episode below the lines was clicked."""

        episode: Episode

    bare = False
    """Whether the screen is so low that only the most important lines fit."""

    def __init__(self, choice: Choice, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.choice = choice
        self.count = 0
        """Number of lines that scroll, visible or not."""
        self.heads: list[list[Run]] = []
        """Fixed lines above those that scroll."""
        self.feet: list[Line] = []
        """Fixed lines below those that scroll, at the bottom of the canvas."""
        self._made = StripCache(self, ascii_=choice.ascii)
        self._area = Size(0, 0)
        """Its size as of the last paint: Textual computes `size` at each access."""
        self._theme = ""
        """The name of the theme for which lines were made last."""
        self.places: Places
        self.session: Session
        self.interval: Interval
        """Last given to `settle`; there are none before the first numbers."""
        self._of: tuple[Session, list[list[int]], frozenset[int] | None] | None = None
        """The origin of `places`; None before the first numbers."""
        if choice.ascii:  # a scrollbar is drawn with blocks
            self.styles.scrollbar_size_vertical = 0

    # --- methods that a view provides

    @abstractmethod
    def show(self, session: Session, interval: Interval) -> None:
        """Shows a new interval, another moment of the past, or another choice. Ends with `lay_out`
        or `paint`. Only called while the view is visible."""

    @abstractmethod
    def line(self, y: int) -> Line:
        """The runs and mood of line `y` of those that scroll. Only called for visible lines."""

    @abstractmethod
    def build(self) -> None:
        """Makes all lines. Sets `count`, `heads` and `feet`; ends with `redraw`. Only called
        where there are numbers to show and room for them."""

    def chosen(self) -> None:
        """Called after another core was selected."""
        self.paint()

    def target(self, x: int, y: int) -> Episode | int | None:  # noqa: ARG002 - for views to provide
        """The episode, or the number of the CPU, at column `x` of a line of `feet`. `y`: 1 for the
        last of these lines, 2 for that above it."""
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of the view wait for its first numbers: without them it has no lines."""
        return self._of is not None and super().check_action(action, parameters)

    @property
    def sorting(self) -> Sorting:
        """The order of its lines; all views whose lines are CPUs share it."""
        return self.choice

    def open(self) -> bool:
        """Handles Enter; returns whether there is a core to show."""
        return True

    # --- methods that a view uses

    def lay_out(self) -> None:
        """Makes all lines for another width, order or machine."""
        if self._of is not None and self.size.width:
            self._theme = self.app.current_theme.name
            self.build()

    def settle(self, session: Session, interval: Interval) -> bool:
        """Stores this interval. Makes `places` if the machine or the filter has changed; returns
        whether it did."""
        self.session, self.interval = session, interval
        of = (session, session.cores, self.choice.mask)
        if self._of is not None and all(a is b for a, b in zip(of, self._of, strict=True)):
            return False
        self._of = of
        self.places = Places(session, self.choice.mask)
        shown = [cpu for place in self.places.places for cpu in place.cpus]
        if self.choice.cpu not in shown and shown:
            self.choice.cpu = shown[0]
        return True

    @property
    def look(self) -> Look:
        """The cells of areas on this terminal."""
        from perftop.draw.charts import look  # numpy is imported after the first picture

        name = self.app.current_theme.name
        return look(name, no_color=self.app.no_color, ascii_=self.choice.ascii)

    @property
    def width(self) -> int:
        """Cells in a line, without the scrollbar."""
        return self.scrollable_content_region.width

    @property
    def height(self) -> int:
        """Visible lines of those that scroll."""
        return max(0, self.size.height - self._fixed)

    @property
    def _fixed(self) -> int:
        """Number of fixed lines, above and below."""
        return len(self.heads) + len(self.feet)

    @property
    def top(self) -> int:
        """Number of the first visible line of those that scroll."""
        return round(self.scroll_y)  # as in scroll_offset, which costs twice as much

    @property
    def built(self) -> int:
        """Number of strips made so far."""
        return self._made.built

    def redraw(self) -> None:
        """Drops all strips and paints the whole canvas."""
        self._made.clear()
        self.paint()
        self.refresh()

    def paint(self) -> None:
        """Paints the lines whose runs have changed."""
        wide, _ = self._area = self.size
        if not wide:
            return
        size = Size(self.width, self.count + self._fixed)
        if size != self.virtual_size:
            self.virtual_size = size
            self._refresh_scrollbars()  # Textual itself only does it when the size changes
        self._made.paint(self._visible_lines(), wide, size.width)

    def reveal(self, first: int, last: int) -> None:
        """Scrolls no more than needed to show lines `first` to `last`; if they do not all fit, the
        last ones."""
        if last >= self.top + self.height:
            self._go(last - self.height + 1)
        elif first < self.top:
            self._go(first)

    def line_at(self, y: int) -> int | None:
        """Number of the scrolling line at height `y` of the widget; None if there is none."""
        found = y - len(self.heads) + self.top
        scrolls = len(self.heads) <= y < len(self.heads) + self.height
        return found if scrolls and found < self.count else None

    def pick(self, event: events.Click) -> bool:
        """Whether this is a click on a line of `feet`: it opens the episode there, or selects
        the CPU's core, and goes there if it is the second at once."""
        if event.y < max(len(self.heads), self._area.height - len(self.feet)):
            return False
        found = self.target(event.x, self.size.height - event.y)
        if isinstance(found, Episode):
            self.post_message(self.EpisodeClicked(found))
        elif found is not None:
            core = next((place.cpus for place in self.places.places if found in place.cpus), None)
            if core is not None:
                self.choice.cpu = core[0]
                self.chosen()
        if event.chain == 2 and found is not None:
            self.post_message(self.Opened())
        return True

    # --- the Line API

    def _visible_lines(self) -> list[tuple[Hashable, Line]]:
        """The lines from the top of the widget, each with its place among heads, lines or feet."""
        top, height = self.top, self._area.height
        first_foot = max(len(self.heads), height - len(self.feet))  # without room, some are cut
        room = first_foot - len(self.heads)
        lines = [self.line(y) for y in range(top, min(top + room, self.count))]
        if not self.count:
            lines = [self._no_match()]
        lines += [BLANK] * (room - len(lines))
        found: list[tuple[Hashable, Line]] = [
            *((("head", y), (runs, "calm")) for y, runs in enumerate(self.heads)),
            *((("line", top + y), line) for y, line in enumerate(lines)),
            *((("foot", y), line) for y, line in enumerate(self.feet)),
        ]
        if self.choice.stale:
            found = [(key, (runs, "stale")) for key, (runs, _) in found]
        return found[:height]

    def _no_match(self) -> Line:
        """The first line where there are none."""
        if self.choice.filter is None:
            return BLANK
        return [(" no CPU matches ", "text"), (foreign(self.choice.filter.text), "bright")], "calm"

    def _go(self, y: int) -> None:
        self.scroll_to(y=max(0, y), animate=False, immediate=True)

    def render_lines(self, crop: Region) -> list[Strip]:
        self._area = self.size
        lines = self._visible_lines()
        lines += [(("line", -1), BLANK)] * (crop.bottom - len(lines))
        return [self._made.cropped(*lines[y], self._area.width, crop) for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        (strip,) = self.render_lines(Region(0, y, self._area.width, 1))
        return strip

    def on_resize(self) -> None:
        self.lay_out()

    def notify_style_update(self) -> None:
        """Lays out for another theme. A hidden view waits until it is shown."""
        super().notify_style_update()
        if self.is_mounted and self.display and self.app.current_theme.name != self._theme:
            self.lay_out()
