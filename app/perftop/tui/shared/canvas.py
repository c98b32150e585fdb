"""A widget of lines by the Line API: some that stay at its top, and below them lines that scroll.

A view says which lines there are and of what runs they are made; here they become strips, are kept
as long as their runs stay the same, and only those that changed are painted.
"""

from __future__ import annotations

from typing import ClassVar

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from perftop.draw import theme
from perftop.draw.ansi_strip import Ready, ink, line
from perftop.draw.strips import Run, foreign
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.choice import Choice, Sorting
from perftop.tui.shared.places import ORDERS, Places

Line = tuple[list[Run], theme.Mood]


class Canvas(ScrollView, can_focus=True, inherit_bindings=False):
    HINTS: ClassVar[tuple[str, ...]] = ()
    """Ids of the keys that the last line of the screen tells for this view; the least important
    last."""
    ORDERS: ClassVar[tuple[str, ...]] = ORDERS
    """What a key goes through; there may be more in the list to choose from."""
    bare = False
    """The screen is so low that there is no room but for the lines that matter most."""

    def __init__(self, choice: Choice, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.choice = choice
        self.count = 0
        """Lines that scroll, visible or not."""
        self.heads: list[list[Run]] = []
        """Lines above them that do not."""
        self.foot: list[Run] | None = None
        """A line below them that does not."""
        self._made: dict[int, tuple[Line, Strip]] = {}
        self._head_strips: list[tuple[list[Run], Strip]] = []
        self._foot: tuple[list[Run], Strip] | None = None
        self._empty: Strip | None = None
        self._area = Size(0, 0)
        self.places: Places
        self._of: tuple[Session, list[list[int]], frozenset[int] | None] | None = None
        self.built = 0
        """Strips made so far: what a cache is worth is counted, not believed."""
        if choice.ascii:  # a scrollbar is drawn with blocks
            self.styles.scrollbar_size_vertical = 0

    # --- for the view to provide

    def show(self, session: Session, interval: Interval) -> None:
        """There is something newer, or another moment of the past, or another choice. Ends with
        `lay_out` or `paint`. Only called while the view is the one that is looked at."""
        raise NotImplementedError

    def line(self, y: int) -> Line:
        """What line `y` of those that scroll shows now. Only asked for visible ones."""
        raise NotImplementedError

    def lay_out(self) -> None:
        """Lines anew: another width, order or machine. Sets `count` and `heads`; ends with
        `redraw`."""
        raise NotImplementedError

    @property
    def sorting(self) -> Sorting:
        """How its lines stand: alike in all views whose lines are CPUs."""
        return self.choice

    def open(self) -> bool:
        """Enter: whether there is a core to show."""
        return True

    # --- for the view to use

    def settle(self, session: Session) -> bool:
        """`places` anew, if machine or filter are not those from before."""
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
    def width(self) -> int:
        """Cells of a line, without the scrollbar."""
        return self.scrollable_content_region.width

    @property
    def height(self) -> int:
        """Lines of the window that scrolls."""
        return max(0, self.size.height - self._fixed)

    @property
    def _fixed(self) -> int:
        """Lines that stay where they are."""
        return len(self.heads) + (self.foot is not None)

    @property
    def top(self) -> int:
        """The first visible one of the lines that scroll."""
        return self.scroll_offset.y

    def redraw(self) -> None:
        """Nothing on the canvas is as it was."""
        self._made.clear()
        self._head_strips.clear()
        self._foot = self._empty = None
        self.paint()
        self.refresh()

    def paint(self) -> None:
        """Have those lines painted that show something else than before."""
        wide, high = self._area = self.size  # Textual works it out anew each time it is asked
        if not wide:
            return
        size = Size(self.width, self.count + self._fixed)
        if size != self.virtual_size:
            self.virtual_size = size
        regions = [Region(0, y, wide, 1) for y in self._changed()]
        if len(regions) >= high:
            self.refresh()
        elif regions:
            self.refresh(*regions)

    def reveal(self, first: int, last: int) -> None:
        """Scroll as little as shows lines `first` to `last`; if they are too many, the last."""
        if last >= self.top + self.height:
            self._go(last - self.height + 1)
        elif first < self.top:
            self._go(first)

    def at(self, y: int) -> int | None:
        """Which of the lines that scroll is at height `y` of the widget."""
        found = y - len(self.heads) + self.top
        scrolls = len(self.heads) <= y < len(self.heads) + self.height
        return found if scrolls and found < self.count else None

    # --- the Line API

    def _changed(self) -> list[int]:
        """Heights at which there is something new, with their strips made."""
        heights = []
        for y, runs in enumerate(self.heads):
            if y >= len(self._head_strips) or self._head_strips[y][0] != runs:
                self._head_strips[y : y + 1] = [(runs, self._strip(runs, "calm"))]
                heights.append(y)
        top, first = self.top, len(self.heads)
        made: dict[int, tuple[Line, Strip]] = {}
        for y in range(top, min(top + self._area.height - self._fixed, self.count)):
            fresh, held = self.line(y), self._made.get(y)
            if held is not None and held[0] == fresh:
                made[y] = held
            else:
                made[y] = fresh, self._strip(*fresh)
                heights.append(y - top + first)
        if self.foot is not None and (self._foot is None or self._foot[0] != self.foot):
            self._foot = self.foot, self._strip(self.foot, "chosen")
            heights.append(self._area.height - 1)
        gone = len(self._made) > len(made)
        self._made = made
        return list(range(self._area.height)) if gone else heights

    def _strip(self, runs: list[Run], mood: theme.Mood) -> Ready:
        self.built += 1
        mood = "stale" if self.choice.stale else mood
        return line(runs, ink(self.app, mood), self._area.width, ascii_=self.choice.ascii)

    def _go(self, y: int) -> None:
        self.scroll_to(y=max(0, y), animate=False, immediate=True)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Our strips are finished, down to the background: neither border nor filters remain to be
        laid over them, which is most of what a line would cost."""
        lines = (self.render_line(y) for y in crop.line_range)
        return [made.crop_extend(crop.x, crop.right, None) for made in lines]

    def render_line(self, y: int) -> Strip:
        if y < len(self.heads):
            return self._head_strips[y][1] if y < len(self._head_strips) else self._blank()
        if self.foot is not None and y == self._area.height - 1:
            return self._foot[1] if self._foot is not None else self._blank()
        at = self.top + y - len(self.heads)
        held = self._made.get(at)
        if held is None:
            if at >= self.count:
                chosen = self.choice.filter if at == 0 else None
                return self._strip(nothing(chosen.text), "calm") if chosen else self._blank()
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


def nothing(text: str) -> list[Run]:
    """Instead of lines, where this filter lets nobody through."""
    return [(" no CPU matches ", "text"), (foreign(text), "bright")]
