"""A widget of lines by the Line API: fixed lines at its top and bottom, and between them lines that
scroll.

A view provides the lines as runs. The canvas makes strips of them, keeps each strip as long as its
runs stay the same, and paints only the lines that changed.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
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
from perftop.draw.strips import Line, Run, foreign, text
from perftop.model.episode import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.choice import Choice, Sorting
from perftop.tui.shared.paint import Ink, ReadyStrip, ink_of, ready_strip, repaint
from perftop.tui.shared.places import ORDERS, Places

if TYPE_CHECKING:
    from perftop.draw.charts import Look


class Abstract(_MessagePumpMeta, ABCMeta):
    """The metaclass of widgets and screens with methods that a class made from them must have."""


class Canvas(ScrollView, metaclass=Abstract, can_focus=True, inherit_bindings=False):
    HINTS: ClassVar[tuple[str, ...]] = ()
    """Ids of the keys that the last line of the screen shows for this view; the least important
    last."""
    ORDERS: ClassVar[tuple[str, ...]] = ORDERS
    """Orders that the order key goes through; the sort list may have more."""

    class Opened(Message):
        """A core was double-clicked."""

    @dataclass(eq=False)
    class Told(Message):
        """An episode that is told below the lines was clicked."""

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
        self._made: dict[int, tuple[Line, Strip]] = {}
        self._head_strips: list[tuple[list[Run], Strip]] = []
        self._foot_strips: list[tuple[Line, Strip]] = []
        self._empty: Strip | None = None
        self._inks: dict[theme.Mood, Ink] = {}
        """Inks by mood, looked up once a paint: the theme may change between two."""
        self._area = Size(0, 0)
        self.places: Places
        self.session: Session
        self.interval: Interval
        """What was last given to `settle`; there is none before the first numbers."""
        self._of: tuple[Session, list[list[int]], frozenset[int] | None] | None = None
        """What `places` were made from; None before the first numbers."""
        self.built = 0
        """Number of strips made so far, to measure the use of the cache."""
        if choice.ascii:  # a scrollbar is drawn with blocks
            self.styles.scrollbar_size_vertical = 0

    # --- for the view to provide

    @abstractmethod
    def show(self, session: Session, interval: Interval) -> None:
        """Shows a new interval, another moment of the past, or another choice. Ends with `lay_out`
        or `paint`. Only called while the view is visible."""

    @abstractmethod
    def line(self, y: int) -> Line:
        """The runs and mood of line `y` of those that scroll. Only called for visible lines."""

    @abstractmethod
    def build(self) -> None:
        """Makes all lines anew. Sets `count`, `heads` and `feet`; ends with `redraw`. Only called
        where there are numbers to show and room for them."""

    def chosen(self) -> None:
        """Called after another core was selected."""
        self.paint()

    def target(self, x: int, y: int) -> Episode | int | None:  # noqa: ARG002 - for views to provide
        """What stands at column `x` of the line `y` from the last one of `feet`, which is 1: an
        episode, or something on the CPU of this number."""
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

    # --- for the view to use

    def lay_out(self) -> None:
        """Makes all lines anew for another width, order or machine."""
        if self._of is not None and self.size.width:
            self.build()

    def settle(self, session: Session, interval: Interval) -> bool:
        """Takes up this interval. Makes `places` anew if the machine or the filter has changed;
        returns whether it did."""
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
        """What areas are made of on this terminal."""
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
    def _first_foot(self) -> int:
        """Height in the widget of the first of `feet`; where there is no room, the last are cut."""
        return max(len(self.heads), self._area.height - len(self.feet))

    @property
    def top(self) -> int:
        """Number of the first visible line of those that scroll."""
        return round(self.scroll_y)  # as in scroll_offset, which costs twice as much

    def redraw(self) -> None:
        """Drops all strips and paints the whole canvas."""
        self._made.clear()
        self._inks.clear()
        self._head_strips.clear()
        self._foot_strips.clear()
        self._empty = None
        self.paint()
        self.refresh()

    def paint(self) -> None:
        """Paints the lines whose runs have changed."""
        wide, _ = self._area = self.size  # Textual computes `size` at each access
        if not wide:
            return
        size = Size(self.width, self.count + self._fixed)
        if size != self.virtual_size:
            self.virtual_size = size
            self._refresh_scrollbars()  # Textual itself only does it when the size changes
        repaint(self, self._changed(), size.width)

    def reveal(self, first: int, last: int) -> None:
        """Scrolls no more than needed to show lines `first` to `last`; if they do not all fit, the
        last ones."""
        if last >= self.top + self.height:
            self._go(last - self.height + 1)
        elif first < self.top:
            self._go(first)

    def at(self, y: int) -> int | None:
        """Number of the scrolling line at height `y` of the widget; None if there is none."""
        found = y - len(self.heads) + self.top
        scrolls = len(self.heads) <= y < len(self.heads) + self.height
        return found if scrolls and found < self.count else None

    def pick(self, event: events.Click) -> bool:
        """Whether this is a click on a line of `feet`: it tells of the episode there, or selects
        the CPU's core, and goes there if it is the second at once."""
        if event.y < self._first_foot:
            return False
        found = self.target(event.x, self.size.height - event.y)
        if isinstance(found, Episode):
            self.post_message(self.Told(found))
        elif found is not None:
            core = next((place.cpus for place in self.places.places if found in place.cpus), None)
            if core is not None:
                self.choice.cpu = core[0]
                self.chosen()
        if event.chain == 2 and found is not None:
            self.post_message(self.Opened())
        return True

    # --- the Line API

    def _changed(self) -> dict[int, Strip]:
        """Makes the strips of lines that changed; returns them by their heights in the widget."""
        found: dict[int, Strip] = {}
        for y, runs in enumerate(self.heads):
            if y >= len(self._head_strips) or self._head_strips[y][0] != runs:
                found[y] = self._strip(runs, "calm")
                self._head_strips[y : y + 1] = [(runs, found[y])]
        top, first = self.top, len(self.heads)
        self._inks.clear()
        made: dict[int, tuple[Line, Strip]] = {}
        for y in range(top, min(top + self._area.height - self._fixed, self.count)):
            fresh, held = self.line(y), self._made.get(y)
            if held is not None and held[0] == fresh:
                made[y] = held
            else:
                found[y - top + first] = strip = self._strip(*fresh)
                made[y] = fresh, strip
        feet, gone = self._changed_feet(), len(self._made) > len(made)
        self._made = made
        if gone or feet is None:
            return {y: self.render_line(y) for y in range(self._area.height)}
        return found | feet

    def _changed_feet(self) -> dict[int, Strip] | None:
        """As `_changed`, for the lines at the bottom; None: all lines are others, as there is
        another number of these."""
        held, begin, height = self._foot_strips, self._first_foot, self._area.height
        if len(held) != len(self.feet):
            self._foot_strips = [(foot, self._strip(*foot)) for foot in self.feet]
            return None
        changed = [y for y, foot in enumerate(self.feet) if held[y][0] != foot]
        for y in changed:
            held[y] = self.feet[y], self._strip(*self.feet[y])
        return {begin + y: held[y][1] for y in changed if begin + y < height}

    def _strip(self, runs: list[Run], mood: theme.Mood) -> ReadyStrip:
        self.built += 1
        mood = "stale" if self.choice.stale else mood
        inked = self._inks.get(mood)
        if inked is None:
            inked = self._inks[mood] = ink_of(self.app, mood)
        return ready_strip(runs, inked, self._area.width, ascii_=self.choice.ascii)

    def _go(self, y: int) -> None:
        self.scroll_to(y=max(0, y), animate=False, immediate=True)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns the strips as they are. They include the background and need no border or filter,
        which would be most of the cost of a line."""
        lines = (self.render_line(y) for y in crop.line_range)
        return [made.crop_extend(crop.x, crop.right, None) for made in lines]

    def render_line(self, y: int) -> Strip:
        if y < len(self.heads):
            return self._head_strips[y][1] if y < len(self._head_strips) else self._blank()
        if (foot := y - self._first_foot) >= 0:
            return self._foot_strips[foot][1] if foot < len(self._foot_strips) else self._blank()
        at = self.top + y - len(self.heads)
        held = self._made.get(at)
        if held is None:
            if at >= self.count:
                chosen = self.choice.filter if at == 0 else None
                if chosen is None:
                    return self._blank()
                text = foreign(chosen.text)
                return self._strip([(" no CPU matches ", "text"), (text, "bright")], "calm")
            fresh = self.line(at)
            held = self._made[at] = fresh, self._strip(*fresh)
        return held[1]

    def _blank(self) -> Strip:
        if self._empty is None:
            self._empty = self._strip([], "calm")
        return self._empty

    def on_resize(self) -> None:
        self.lay_out()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.lay_out()


# --- A widget whose lines are made anew as a whole; it paints those that changed.


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
        made = self._strips[y] = ready_strip(runs, ink_of(self.app, mood), wide, ascii_=self._ascii)
        return made

    def on_resize(self) -> None:
        self.anew()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self.anew()
