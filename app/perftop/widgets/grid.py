"""The grid: one line a core, by the Line API. Lines are built when data, size, order, selection or
theme change; `render_line` only looks up."""

from __future__ import annotations

from collections import deque
from math import isnan
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.filter import Monochrome
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from perftop import theme
from perftop.widgets import rows
from perftop.widgets.columns import known, layout, titles
from perftop.widgets.heading import heading
from perftop.widgets.places import Line, Order, Places
from perftop.widgets.sheet import STEAL
from perftop.widgets.strips import Run, strip

if TYPE_CHECKING:
    from perftop.session import Interval, Session
    from perftop.widgets.reader import Reader

PAST = 400
"""Intervals of history kept: more than any terminal has columns for it."""
TALLEST = 12
"""Lines that a CPU may take where there are few of them."""


class CoreGrid(ScrollView, can_focus=True, inherit_bindings=False):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "core", key_display="↑↓", id="up", tooltip="One row up"),
        Binding("down,j", "move(1)", "Down", show=False, id="down", tooltip="One row down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="pageup", tooltip="A page up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="pagedown",
                tooltip="A page down"),
        Binding("home,g", "end(-1)", "First", show=False, id="first", tooltip="First row"),
        Binding("end,G", "end(1)", "Last", show=False, id="last", tooltip="Last row"),
    ]  # fmt: skip

    def __init__(self, *, ascii_: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.order: Order = "topology"
        self.stale = False
        self.bare = False
        """Rows only: there is no room for the heads of columns or for headings."""
        self.selected: int | None = None
        """The first CPU of the selected row: it outlives sorts, resizes and regrouping."""
        self._ascii = ascii_
        self._picture: rows.Picture | None = None
        self._reader: Reader | None = None
        self._session: Session | None = None
        self._places: Places
        self._lines: list[Line] = []
        self._made: dict[Line, tuple[list[Run], Strip]] = {}
        self._shown: dict[int, Strip] = {}
        self._heads = self._blank = Strip([])
        self._seen_who = self._seen_steal = False
        self._past: deque[list[float]] = deque(maxlen=PAST)
        self._wide = 0
        self.built = 0
        """Strips made so far: what a cache is worth is counted, not believed."""

    # --- what there is to show

    def show(self, session: Session, interval: Interval) -> None:
        """A newer interval."""
        if self._reader is None or self._is_new(session):
            self._begin(session)
        assert self._reader is not None
        sheet = self._reader.read(session, interval)
        self._past.append([_mean(util) for util in sheet.util])
        changed = self._notice(session, interval)
        if self._picture is None:
            self._picture = rows.Picture(self._places, sheet, [], self.order, self._past)
            self._picture.ascii_ = self._ascii
            changed = True
        self._picture.sheet = sheet
        if changed:
            self.lay_out()
            return
        if self.order == "worst first":
            self._arrange()
        self._paint()

    def _is_new(self, session: Session) -> bool:
        """Another session, or cores that were not known before."""
        return session is not self._session or self._places.cores is not session.splitter.cores

    def _begin(self, session: Session) -> None:
        from perftop.widgets.reader import Reader  # brings numpy, which the first paint can spare

        self._session, self._places = session, Places(session)
        self._reader = Reader(session, self._places)
        self._past.clear()
        self._picture = None
        if self.selected is None and self._places.places:
            self.selected = self._places.places[0].cpus[0]

    def _notice(self, session: Session, interval: Interval) -> bool:
        """Columns that come once there is something for them, and then stay."""
        who = self._seen_who or bool(session.tasks)
        steal = self._seen_steal or session.hello.virtualisation is not None
        if not steal:
            share = interval.values.over("steal", session.shown)
            steal = not isnan(share) and share >= STEAL / 10
        changed = (who, steal) != (self._seen_who, self._seen_steal)
        self._seen_who, self._seen_steal = who, steal
        return changed

    # --- lines

    def lay_out(self) -> None:
        """Columns and lines anew: another width, order or machine."""
        picture = self._picture
        if picture is None or self._session is None or not self.size.width:
            return
        self._wide = self.scrollable_content_region.width
        can = known(self._session, picture.places, who=self._seen_who, steal=self._seen_steal)
        picture.columns = layout(can, self._wide - 1)
        picture.order = self.order
        self._arrange()
        heads: list[Run] = [(" " + titles(picture.columns), "dim")]
        self._heads, self._blank = self._strip(heads, "calm"), self._strip([], "calm")
        self._forget()

    def _arrange(self) -> None:
        assert self._picture is not None
        places = self._picture.places
        tall = 1
        if not places.pairs and places.places:
            tall = max(1, min(TALLEST, (self.size.height - 2) // len(places.places)))
        self._picture.tall = tall
        self._lines = places.lines(self.order, self._picture.sheet.score, tall, bare=self.bare)
        self.virtual_size = Size(self._wide, len(self._lines) + self._above)

    @property
    def _above(self) -> int:
        """Lines above the rows."""
        return 0 if self.bare else 1

    def _forget(self) -> None:
        self._made.clear()
        self._shown.clear()
        self._paint()
        self.refresh()

    def _paint(self) -> None:
        """Build the visible lines; have those painted that are not as they were."""
        top = self.scroll_offset.y
        last = min(top + max(0, self.size.height - self._above), len(self._lines))
        fresh = {y: self._line(self._lines[y]) for y in range(top, last)}
        dirty = [y for y, made in fresh.items() if self._shown.get(y) is not made]
        gone = len(self._shown) > len(fresh)
        self._shown = fresh
        if gone:
            self.refresh()
        elif dirty:
            self.refresh(*(Region(0, y - top + self._above, self._wide, 1) for y in dirty))

    def _line(self, line: Line) -> Strip:
        """The line as it is now; the strip from before if nothing in it has changed."""
        picture = self._picture
        assert picture is not None
        chosen = line.kind == "row" and self._cpu(line) == self.selected
        if line.kind == "row":
            runs = rows.row(picture, line.row, line.part, chosen=chosen)
        else:
            runs = heading(picture, line, self._wide)
        held = self._made.get(line)
        if held is not None and held[0] == runs:
            return held[1]
        made = self._strip(runs, "stale" if self.stale else "chosen" if chosen else "calm")
        self._made[line] = runs, made
        return made

    def _strip(self, runs: list[Run], mood: theme.Mood) -> Strip:
        self.built += 1
        styles = theme.styles(dark=self.app.current_theme.dark, mood=mood)
        made = strip(runs, styles, self.size.width, ascii_=self._ascii)
        if self.app.no_color:
            made = made.apply_filter(Monochrome(), self.background_colors[1])
        return made

    def render_lines(self, crop: Region) -> list[Strip]:
        """Our strips are finished, down to the background: neither border nor filters remain to be
        laid over them, which is most of what a line would cost."""
        lines = (self.render_line(y) for y in crop.line_range)
        return [made.crop_extend(crop.x, crop.right, None) for made in lines]

    def render_line(self, y: int) -> Strip:
        if y < self._above:
            return self._heads
        at = self.scroll_offset.y + y - self._above
        made = self._shown.get(at)
        if made is None:
            if at >= len(self._lines):
                return self._blank
            made = self._shown[at] = self._line(self._lines[at])
        return made

    # --- moving about

    def _cpu(self, line: Line) -> int:
        assert self._picture is not None
        return self._picture.places.places[line.row].cpus[0]

    def _at(self) -> int:
        """The line of the selected row."""
        for y, line in enumerate(self._lines):
            if line.kind == "row" and self._cpu(line) == self.selected:
                return y
        return 0

    def select(self, y: int, towards: int = 1) -> None:
        """The row at this line, or the next one in that direction."""
        first = max(0, min(len(self._lines) - 1, y))
        for step in (towards, -towards):
            y = first
            while 0 <= y < len(self._lines) and self._lines[y].kind != "row":
                y += step
            if 0 <= y < len(self._lines):
                self.selected = self._cpu(self._lines[y])
                self.reveal()
                self._paint()
                return

    def reveal(self) -> None:
        """Scroll as little as shows the selected row, with the headings right above it."""
        y = first = self._at()
        while first > 0 and self._lines[first - 1].kind != "row":
            first -= 1
        top, height = self.scroll_offset.y, self.size.height - self._above
        if first < top:
            self.scroll_to(y=first, animate=False, immediate=True)
        elif y >= top + height:
            self.scroll_to(y=y - height + 1, animate=False, immediate=True)

    def action_move(self, by: int) -> None:
        y = self._at()
        while 0 <= y < len(self._lines) and (
            self._lines[y].kind != "row" or self._cpu(self._lines[y]) == self.selected
        ):
            y += by
        if 0 <= y < len(self._lines):
            self.select(y, by)

    def action_page(self, by: int) -> None:
        self.select(self._at() + by * max(1, self.size.height - 2), by)

    def action_end(self, to: int) -> None:
        self.select(0 if to < 0 else len(self._lines) - 1, -to)

    def on_click(self, event: events.Click) -> None:
        y = self.scroll_offset.y + event.y - self._above
        if event.y >= self._above and y < len(self._lines) and self._lines[y].kind == "row":
            self.select(y)

    # --- what makes lines anew

    def on_resize(self) -> None:
        self.lay_out()
        if self._lines:
            self.reveal()

    def reorder(self, order: Order) -> None:
        self.order = order
        self.lay_out()
        self.reveal()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.lay_out()


def _mean(util: list[float]) -> float:
    there = [share for share in util if not isnan(share)]
    return sum(there) / len(there) if there else float("nan")
