"""Widgets that consist of lines of runs, drawn with Textual's Line API. A `PageWidget` computes all
its lines together. A `Canvas` is a view of the main screen, with fixed lines at its top and bottom,
and lines between them that scroll and can be clicked. A `CursorCanvas` has a cursor that moves from
line to line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from perftop.draw import theme
from perftop.draw.charts import Glyphs
from perftop.draw.columns import Run
from perftop.draw.strips import BLANK, Line, justify, merge_runs, safe_cells, width
from perftop.model.kinds import Episode
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.keys import bindings
from perftop.tui.shared.paint import RenderedStrip, RunWriter, is_ascii, repaint, run_writer
from perftop.tui.shared.row_numbers import ViewSettings

ClickTarget = Episode | int | None
"""Target of a click: an episode to open, the number of a CPU to select, or None."""
PanelLine = tuple[list[Run], ClickTarget]


def chart_glyphs(app: App[Any]) -> Glyphs:
    """Returns the glyphs for charts on this app's terminal, in its current theme."""
    if is_ascii(app) or app.no_color:
        return "ascii" if is_ascii(app) else "shapes"
    return "sixteen" if theme.PALETTES[app.current_theme.name].ansi else "colour"


TOUR_NOTES = (
    ("report", "This is the verdict: what is lost, and to whom. ", " shows the evidence"),
    ("next_episode", "What happened: ", " selects the next episode"),
    ("time", "Last: ", " goes to its moment; so does a click in a chart"),
)
"""Notes for a new user: id of the key that ends the note, and the words before and after it."""
EPISODES_NOTE, LAST_NOTE = 1, 2
MIN_SIZE_FOR_NOTES, MIN_HEIGHT_FOR_NEXT_NOTE = Size(100, 50), 28
"""Minimum size of a screen that has a row for each note, and minimum height of a screen that shows
the note about episodes while an earlier note is in the row below the verdict. Smaller screens show
one note at a time."""


def has_note_rows(screen: Size, min_height: int = MIN_SIZE_FOR_NOTES.height) -> bool:
    return screen.width >= MIN_SIZE_FOR_NOTES.width and screen.height >= min_height


def note_line(settings: ViewSettings, note: int, x: int, size: int, *, is_above: bool) -> Line:
    """Returns the line of a note for a new user in `size` cells, bright if it is the first one
    left. A stroke at cell `x` leads to the line below or, unless `is_above`, to the line above."""
    key, text_before, text_after = TOUR_NOTES[note]
    is_first, stroke = note == settings.tour_notes[0], "╭─ " if is_above else "╰─ "
    styles = ("key", "bright", "text") if is_first else ("dim", "dim", "dim")
    runs: list[Run] = [
        (" " * x, "text"),
        (f"{stroke}{note + 1} of {len(TOUR_NOTES)}  ", styles[0]),
        (text_before, styles[1]),
        (settings.captions[key], "key"),
        (text_after, styles[2]),
    ]
    hint = f"{settings.captions['back']}: no tour "
    if is_first and width(runs) + len(hint) + 2 <= size:
        runs = justify(runs, [(hint, "dim")], size)
    return merge_runs(runs, size), "chosen" if is_first else "calm"


MARKS_WIDTH = 2
"""Number of cells before the columns of a line, for its mark if selected and an episode marker."""


def mark_selected(line: Line) -> Line:
    """Returns the line with the mark of the selected line in its first cell, and its background."""
    runs, state = line
    mark: Run = (theme.SELECTED_SIGN, "mark")
    return [mark, *runs[1:]], "chosen victim" if state == "victim" else "chosen"


class LineWidget(Widget):
    """A widget of lines. Only changed lines become strips (Textual's form of a line)."""

    _painted: Sequence[tuple[Line, Strip]] = ()
    """The lines that were painted last, from the top, with their strips."""
    _writers: Mapping[theme.LineState, RunWriter] = {}
    """Writers of runs in the current theme, by state of the line."""
    _theme = ""
    """Name of the theme that the lines were made in."""
    strip_count = 0
    """Number of strips created so far, to measure how many lines are redrawn."""

    def visible_lines(self) -> Sequence[Line]:
        """Returns the lines from the top of the widget; missing lines are blank."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Computes and draws all lines, for another size or theme."""
        raise NotImplementedError

    @property
    def size(self) -> Size:
        """Returns the size in cells; there are no borders, which Textual would look up."""
        return self.outer_size

    def forget_strips(self) -> None:
        """Causes the next painting to draw all lines, in the current theme."""
        self._painted, self._writers = [], {}
        self._theme = self.app.current_theme.name

    def paint(self, visible_width: int) -> None:
        """Paints the lines that have changed. The first `visible_width` cells are visible."""
        painted, self._painted = self._painted, self._lines_with_strips(self.size.height)
        old_strips = dict(enumerate([strip for _, strip in painted]))
        changed_strips = {
            y: s for y, (_, s) in enumerate(self._painted) if s is not old_strips.get(y)
        }
        if changed_strips:
            repaint(self, changed_strips, visible_width)

    def _lines_with_strips(self, count: int) -> list[tuple[Line, Strip]]:
        """Returns the first lines and their strips; strips of unchanged lines are reused."""
        lines = [*self.visible_lines()][:count]
        lines += [BLANK] * (count - len(lines))
        painted, width, strips = self._painted, self.size.width, list[tuple[Line, Strip]]()
        for y, line in enumerate(lines):
            if y < len(painted) and painted[y][0] == line:
                strips.append(painted[y])
                continue
            runs, state = line
            if state not in self._writers:
                self._writers = {**self._writers, state: run_writer(self.app, state)}
            strips.append((line, RenderedStrip(runs, self._writers[state], width)))
            self.strip_count += 1
        return strips

    def render_lines(self, crop: Region) -> list[Strip]:
        """Returns the strips of a region. They have their background and need no borders or
        filters, which would take most of the time spent on a line."""
        strips = [strip for _, strip in self._lines_with_strips(crop.bottom)]
        return [strips[y].crop_extend(crop.x, crop.right, None) for y in crop.line_range]

    def render_line(self, y: int) -> Strip:
        return self._lines_with_strips(y + 1)[y][1]

    def on_resize(self) -> None:
        self.redraw()

    def notify_style_update(self) -> None:
        """Draws all lines if the theme has changed. A hidden widget does so when it is shown."""
        super().notify_style_update()
        if self.is_mounted and self.display and self.app.current_theme.name != self._theme:
            self.redraw()


class PageWidget(LineWidget):
    """A widget that computes all its lines together."""

    _lines: Sequence[Line] = ()

    def page(self, width: int, height: int) -> Sequence[Line]:
        """Returns the lines of the whole widget at this size; missing lines are blank."""
        raise NotImplementedError

    def update(self) -> None:
        width, height = self.size
        if width and height:
            self._lines = self.page(width, height)
            self.paint(width)

    def redraw(self) -> None:
        self.forget_strips()
        self.update()

    def visible_lines(self) -> Sequence[Line]:
        return self._lines


class Canvas(ScrollView, LineWidget, can_focus=True, inherit_bindings=False):
    HINTS: ClassVar[tuple[str, ...]] = ()
    """Ids of the keys that the last line shows for this view, the most important first."""

    @dataclass(eq=False)
    class EpisodeClicked(Message):
        """Message: an episode below the scrolling lines was clicked."""

        episode: Episode

    @dataclass(eq=False)
    class TimePicked(Message):
        """Message: a moment in a chart was clicked (two equal times), or a range was dragged."""

        first_ns: int
        last_ns: int

    is_tiny = False
    """Whether the screen has room for only the most important lines."""

    def __init__(self, settings: ViewSettings, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.settings = settings
        self.line_count = 0
        self.header_lines: list[list[Run]] = []
        self.footer_lines: list[Line] = []
        """Fixed lines below the scrolling lines, at the bottom of the canvas."""
        self.side_width = 0
        self.side_lines: list[list[Run]] = []
        """Fixed lines of `side_width` cells to the right of all lines, from the top."""
        self.cores: Cores
        self.session: Session
        self.interval: Interval
        """The interval shown last. These three do not exist before the first numbers."""
        self._layout_inputs: tuple[Session, list[list[int]], frozenset[int] | None] | None = None
        """The session, CPUs and mask from which `cores` was made; None before the first numbers."""
        self._is_laid_out = False
        if settings.ascii:  # scrollbars need block characters
            self.styles.scrollbar_size_vertical = 0

    # --- methods that a view provides

    @property
    def hints(self) -> tuple[str, ...]:
        """Ids of the keys in HINTS that work now."""
        return self.HINTS

    def reset(self) -> None:
        """Prepares the view for another machine or filter. The view may have no size yet."""

    def needs_layout(self) -> bool:
        """Returns whether lines must be laid out again for this interval. Called after `reset`."""
        return False

    def make_layout(self) -> None:
        """Chooses the content and widths of lines for this size, order and machine."""

    def make_lines(self) -> None:
        """Lays out this interval's lines: sets `line_count`, `header_lines`, `footer_lines`."""

    def line(self, y: int) -> Line:
        """Returns the scrolling line `y`, which is visible."""
        raise NotImplementedError

    def scroll_to_cursor(self) -> None:
        """Scrolls to the selected core."""

    def target_at(self, x: int, y: int) -> ClickTarget:
        """Returns the target at column `x` of the footer line `y`, which is 1 for the last line."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables the view's keys until it has its first numbers, and so lines."""
        return self._layout_inputs is not None and super().check_action(action, parameters)

    @property
    def remedy(self) -> str | None:
        """The remedy for the selected item, which the key `try` copies; '' if none is known; None
        if that key copies the verdict's remedy instead."""
        return None

    def handle_enter(self) -> bool:
        """Handles Enter. Returns whether to show the page of the selected core."""
        return True

    # --- setting an interval, laying out, drawing

    def show_interval(
        self, session: Session, interval: Interval, *, settings_changed: bool = False
    ) -> None:
        """Sets the interval to show, the newest or an earlier one. Lays out lines if the machine or
        a setting has changed, else draws. Only called while the view is visible."""
        self.session, self.interval = session, interval
        inputs = (session, interval.cores.lists, self.settings.mask)
        if self._layout_inputs is None or any(
            a is not b for a, b in zip(inputs, self._layout_inputs, strict=True)
        ):
            self._layout_inputs, self._is_laid_out = inputs, False
            self.cores = Cores(session, self.settings.mask, interval.cores.lists)
            cpus = [cpu for core in self.cores.rows for cpu in core.cpus]
            if self.settings.cpu not in cpus and cpus:
                self.settings.cpu = cpus[0]
            self.reset()
        elif self.needs_layout():
            self._is_laid_out = False
            self.reset()
        if settings_changed or not self._is_laid_out:
            self.lay_out()
        else:
            self.draw()

    def lay_out(self) -> None:
        """Rebuilds all lines for a new width, order or machine, and draws the canvas."""
        if self._layout_inputs is None or not self.size.width:
            return
        self.forget_strips()
        self.settings.glyphs = chart_glyphs(self.app)
        self._is_laid_out = True
        self.make_layout()
        self.draw()
        self.refresh()
        self.scroll_to_cursor()

    def draw(self) -> None:
        if self._is_laid_out:
            self.make_lines()
            self._paint()

    def draw_selection(self) -> None:
        """Scrolls to the selected core and draws. Called after another core was selected."""
        if self._is_laid_out:
            self.make_lines()
            self.scroll_to_cursor()
            self._paint()

    # --- values that a view uses

    @property
    def width(self) -> int:
        """Width of a line in cells, without the scrollbar and the lines beside it."""
        return self.size.width - self.scrollbar_size_vertical - self.side_width

    @property
    def height(self) -> int:
        """Number of scrolling lines for which there is room."""
        return max(0, self.size.height - len(self.header_lines) - len(self.footer_lines))

    @property
    def top_line(self) -> int:
        return round(self.scroll_y)  # `scroll_offset.y` is equal to this, but costs twice as much

    def _paint(self) -> None:
        if not self.size.width:
            return
        lines = self.line_count + len(self.header_lines) + len(self.footer_lines)
        size = Size(self.width + self.side_width, lines)
        if size != self.virtual_size:
            self.virtual_size = size
            self._refresh_scrollbars()  # Textual only refreshes them when the widget's size changes
        self.paint(size.width)

    def reveal_lines(self, first: int, last: int) -> None:
        """Scrolls just enough to show lines `first` to `last`, or the last ones if not all fit."""
        is_below = last >= self.top_line + self.height
        if is_below or first < self.top_line:
            y = last - self.height + 1 if is_below else first
            self.scroll_to(y=max(0, y), animate=False, immediate=True)

    def line_at(self, y: int) -> int | None:
        """Returns the index of the scrolling line at row `y` of the widget, or None."""
        index = y - len(self.header_lines) + self.top_line
        is_scrolling = len(self.header_lines) <= y < len(self.header_lines) + self.height
        return index if is_scrolling and index < self.line_count else None

    def handle_footer_click(self, event: events.Click) -> bool:
        """Handles a click on a footer line. Returns False for a click elsewhere."""
        if event.y < max(len(self.header_lines), self.size.height - len(self.footer_lines)):
            return False
        self.follow_click(event, self.target_at(event.x, self.size.height - event.y))
        return True

    def follow_click(self, event: events.Click, target: ClickTarget) -> None:
        """Opens the clicked episode, or selects the clicked CPU's core (double click: its page)."""
        if isinstance(target, Episode):
            self.post_message(self.EpisodeClicked(target))
        elif target in self.cores.row_of_cpu:
            self.select_row(self.cores.row_of_cpu[target])
        if event.chain == 2 and target is not None:
            self.open_core()

    def open_core(self) -> None:
        """Shows the page of the selected core, as Enter does."""
        self.call_later(self.run_action, "screen.open")

    @property
    def selected_row(self) -> int | None:
        """Index of the selected core among the rows; None if the core has no row."""
        cpu = self.settings.cpu
        return None if cpu is None else self.cores.row_of_cpu.get(cpu)

    def select_row(self, row: int) -> None:
        self.settings.cpu = self.cores.rows[row].cpus[0]
        self.draw_selection()

    async def sort_by(self, order: str) -> None:
        """Sorts rows in this order, or reverses them if they already have it."""
        is_same = order == self.settings.order
        await self.run_action("screen.reverse" if is_same else f"screen.sort({order!r})")

    @property
    def shown_positions(self) -> frozenset[int]:
        """Positions of the CPUs that the user asked for and that match the filter."""
        positions, mask = self.cores.shown_positions, self.settings.mask
        return positions if mask is None else positions & mask

    # --- the Line API

    def visible_lines(self) -> list[Line]:
        top, height = self.top_line, self.size.height
        # Footer lines that do not fit are cut.
        first_footer = max(len(self.header_lines), height - len(self.footer_lines))
        room = first_footer - len(self.header_lines)
        lines = [self.line(y) for y in range(top, min(top + room, self.line_count))]
        has_cores = self._layout_inputs is not None and bool(self.cores.rows)
        if not (self.line_count or has_cores) and self.settings.filter is not None:
            text = safe_cells(self.settings.filter.text)
            lines = [([(" no CPU matches ", "text"), (text, "bright")], "calm")]
        lines += [BLANK] * (room - len(lines))
        lines = [*((runs, "calm") for runs in self.header_lines), *lines, *self.footer_lines]
        line_width = self.width
        for y, side in enumerate(self.side_lines[: len(lines)]):
            runs, state = lines[y]
            gap = " " * (line_width - width(runs)), "text"
            lines[y] = [*runs, gap, *side], state
        if self.settings.is_stale:
            return [(runs, "stale") for runs, _ in lines]
        return lines

    def redraw(self) -> None:
        self.lay_out()


class CursorCanvas(Canvas):
    """A canvas with a cursor that moves up and down between items, such as cores. The core under
    the cursor is the selected core of all views."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("rows")]
    HAS_OWN_ITEMS: ClassVar[bool] = False
    """Whether the items are not cores but, for example, CPUs or tasks."""

    _selected: object = None
    """The selected item, as returned by `item_of_line`, in a view with HAS_OWN_ITEMS."""

    def cpu_of_line(self, y: int) -> int | None:
        """Returns the first CPU of the core that line `y` shows; None for headings."""
        raise NotImplementedError

    def item_of_line(self, y: int) -> object:
        """Returns the identity of the item that line `y` shows; None for headings."""
        return self.cpu_of_line(y)

    def _cursor_line(self) -> int:
        """Returns the first line of the selected item, else the first one that is not a heading."""
        selected = self._selected if self.HAS_OWN_ITEMS else self.settings.cpu
        lines = [y for y in range(self.line_count) if self.item_of_line(y) is not None]
        matching_lines = (y for y in lines if self.item_of_line(y) == selected)
        return next(matching_lines, lines[0] if lines else 0)

    def select_line(self, y: int, direction: int = 1) -> None:
        """Selects the item at this line or, at a heading, the next one, first in `direction`."""
        first = max(0, min(self.line_count - 1, y))
        for step in (direction, -direction):
            y = first
            while 0 <= y < self.line_count and self.item_of_line(y) is None:
                y += step
            if 0 <= y < self.line_count:
                self._selected, self.settings.cpu = self.item_of_line(y), self.cpu_of_line(y)
                self.draw_selection()
                return

    def scroll_to_cursor(self) -> None:
        """Scrolls to the selected core and the headings directly above it."""
        y = first = self._cursor_line()
        while first > 0 and self.item_of_line(first - 1) is None:
            first -= 1
        self.reveal_lines(first, y)

    def action_move(self, steps: int) -> None:
        y = self._cursor_line()
        current = self.item_of_line(y) if y < self.line_count else None
        while 0 <= y < self.line_count and self.item_of_line(y) in {None, current}:
            y += steps
        if 0 <= y < self.line_count:
            self.select_line(y, steps)

    def action_page(self, pages: int) -> None:
        self.select_line(self._cursor_line() + pages * max(1, self.height - 1), pages)

    def action_end(self, direction: int) -> None:
        self.select_line(0 if direction < 0 else self.line_count - 1, -direction)

    def on_click(self, event: events.Click) -> None:
        if self.handle_footer_click(event):
            return
        y = self.line_at(event.y)
        if y is not None and self.item_of_line(y) is not None:
            self.select_line(y)
            if event.chain == 2:
                self.open_core()
