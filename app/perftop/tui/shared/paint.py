"""The painter writes lines to the terminal with little CPU time.

At each refresh, Textual alone would send messages to each widget, wait for a timer, cut each strip
into segments, and write each segment with its own escape sequence. Most lines change several times
a second, so this would be most of the cost of a refresh. Three measures avoid it:

1. A line is one text. `RunWriter` writes runs with as few escape sequences as their styles need,
   and a `RenderedStrip` stores the text. When Textual paints the strip or a part of it, for example
   below a menu, the strip behaves as an ordinary one.
2. Lines are written immediately. `DirectScreen.collect_lines` collects the lines of all widgets
   that no other widget covers, and writes them at once. Textual paints all other widgets.
3. Only differences are written. While nothing else writes to the terminal, its lines are known, and
   equal runs at both ends of a line are not written again.

Without these measures, a refresh takes 1.3 times (2 CPUs) to 2.5 times (256 CPUs) the CPU time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from perftop.base.text import printable, to_ascii
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import has_own_background, merge_runs, width

_RESET = "\x1b[0m"


# --- runs as text with escape sequences


_StyleSwitch = tuple[object, str, str, bool]
"""The attributes of a style except its letter colour, the escape sequences that switch to the style
and only to its letter colour, and whether the style has its own background."""


class RunWriter:
    """Writes runs as text with the escape sequences of their styles."""

    def __init__(self, styles: Mapping[str, Style], system: ColorSystem, ascii_: bool) -> None:
        self.styles = theme.Styles(styles)
        self.system, self.ascii = system, ascii_
        self._switches: dict[str, _StyleSwitch] = {}

    def write(self, runs: Iterable[Run], blanks: int = 0) -> str:
        """Returns the runs with their escape sequences, followed by `blanks` blanks. Adjacent runs
        of one style share a sequence, and spaces on an unchanged background need none. A change of
        only the letter colour, which is the most frequent, has a shorter sequence."""
        parts: list[str] = []
        append, switches = parts.append, self._switches
        last_key, last_attributes, had_background = "", None, False
        for text, key in (*runs, (" " * blanks, "text")) if blanks else runs:
            if key != last_key:
                switch = switches.get(key) or self._switch(key)
                attributes, full_code, colour, has_background = switch
                if not text:
                    continue
                is_visible = has_background or had_background or not text.isspace()
                if is_visible or last_attributes is None:
                    append(colour if attributes == last_attributes else full_code)
                    last_key, last_attributes, had_background = key, attributes, has_background
            append(text)
        append(_RESET)
        return "".join(parts)

    def _switch(self, key: str) -> _StyleSwitch:
        style = self.styles[key]
        full_code = _style_codes(style, self.system).replace("\x1b[", "\x1b[0;", 1) or _RESET
        colour = _style_codes(Style(color=style.color), self.system)
        attributes = style.bgcolor, style.bold, style.dim, style.reverse
        switch = self._switches[key] = attributes, full_code, colour, has_own_background(key)
        return switch


def _style_codes(style: Style, system: ColorSystem) -> str:
    """Returns the escape sequence that Rich writes before text of this style."""
    return style.render("|", color_system=system).partition("|")[0]


def run_writer(app: App[Any], state: theme.LineState = "calm") -> RunWriter:
    """Returns the writer of runs for the current theme on this app's terminal."""
    system = app.console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001 - as Strip.render does
    return _run_writer(app.current_theme.name, state, app.no_color, system, is_ascii(app))


def is_ascii(app: App[Any]) -> bool:
    """Returns whether the terminal of `PerfTopApp` shows only ASCII characters."""
    return bool(getattr(app, "ascii", False))


@lru_cache(maxsize=32)
def _run_writer(
    name: str, state: theme.LineState, no_color: bool, system: ColorSystem, ascii_: bool
) -> RunWriter:
    styles = theme.line_styles(name, state)
    if no_color:
        styles = theme.without_colours(styles)
    if system is ColorSystem.EIGHT_BIT and not theme.PALETTES[name].ansi:
        styles = {key: theme.to_256_colours(style) for key, style in styles.items()}
    return RunWriter(styles, system, ascii_)


# --- strips that keep their text with escape sequences


class RenderedStrip(Strip):
    """A strip of exactly `size` cells: runs, which are cut or followed by blanks."""

    # The base class creates its attributes when they are first read.
    __slots__ = ["_rendered", "runs", "used_width", "writer"]

    def __init__(self, runs: Sequence[Run], writer: RunWriter, size: int) -> None:
        text_of_line = "".join([text for text, _ in runs])
        used_width = len(text_of_line)
        if not text_of_line.isprintable():
            runs = [(printable(text), key) for text, key in runs]
            used_width = width(runs)
        if used_width > size:
            runs, used_width = merge_runs(runs, size), size
        if writer.ascii:
            runs = [(to_ascii(text), key) for text, key in runs]
        self.runs, self.used_width = runs, used_width
        self.writer = writer
        self._cell_length = size
        self._rendered: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in Strip.__slots__:
            raise AttributeError(name)
        styles = self.writer.styles
        super().__init__(
            [Segment(text, styles[key]) for text, key in merge_runs(self.runs, self.cell_length)],
            self._cell_length,
        )
        return object.__getattribute__(self, name)

    def render(self, console: Console) -> str:
        if console._color_system is not self.writer.system:  # noqa: SLF001 - such as for screenshots
            return super().render(console)
        if self._rendered is None:
            self._rendered = self.writer.write(self.runs, self.cell_length - self.used_width)
        return self._rendered

    def difference(self, shown_strip: Strip | None, x: int, y: int, console: Console) -> str | None:
        """Returns the text that turns the line `shown_strip`, at cell `x`, `y` of the terminal,
        into this line, without equal runs at both ends; None if the lines cannot be compared."""
        if not isinstance(shown_strip, RenderedStrip) or shown_strip.writer is not self.writer:
            return None
        is_comparable = console._color_system is self.writer.system  # noqa: SLF001
        if shown_strip.used_width != self.used_width or not is_comparable:
            return None
        old_runs, new_runs = shown_strip.runs, self.runs
        first, last = 0, len(new_runs)
        for old_run, new_run in zip(old_runs, new_runs, strict=False):
            if old_run != new_run:
                break
            first += 1
            x += len(new_run[0])
        for old_run, new_run in zip(reversed(old_runs), reversed(new_runs), strict=False):
            if last <= first or old_run != new_run:
                break
            last -= 1
        changed_runs = new_runs[first:last]
        return f"{_cursor_sequence(x, y)}{self.writer.write(changed_runs)}" if changed_runs else ""

    def crop(self, start: int, end: int | None = None) -> Strip:
        end = self.cell_length if end is None else min(end, self.cell_length)
        if start or end == self.cell_length or end < self.used_width:
            return super().crop(start, end)
        return RenderedStrip(self.runs, self.writer, end)  # only cuts off blanks


# --- writing past Textual's queue of updates

ScreenCell = tuple[int, int]
"""The column and the row of a cell of the screen."""
ShownLines = Mapping[ScreenCell, tuple[Strip, int]]
"""Lines by the position of their first cell, each with the number of its visible cells."""
_VisibleRegions = dict[Widget, tuple[Region, Region]]
"""The region of each widget, and the region to which its parents clip it."""


def _cursor_sequence(x: int, y: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


class LineUpdate(CompositorUpdate):
    """An update of some lines of the screen. `shown`: the known lines of the terminal."""

    def __init__(self, lines: ShownLines, shown: ShownLines) -> None:
        self._lines, self._lines_on_terminal = lines, shown

    def render_segments(self, console: Console) -> str:
        parts: list[str] = []
        for cell, (strip, visible_cells) in self._lines.items():
            shown_strip, visible = self._lines_on_terminal.get(cell, (None, 0))
            text = None
            if isinstance(strip, RenderedStrip) and strip.used_width <= visible_cells == visible:
                text = strip.difference(shown_strip, *cell, console)
            if text is None:
                text = f"{_cursor_sequence(*cell)}{strip.crop(0, visible_cells).render(console)}"
            parts.append(text)
        return "".join(parts)


def repaint(widget: Widget, lines: Mapping[int, Strip], visible_cells: int) -> None:
    """Paints the first `visible_cells` cells of the widget's lines, given by row of the widget. If
    the screen collects lines, they are painted together with lines of other widgets."""
    screen = widget.screen
    if isinstance(screen, DirectScreen) and screen.collected_lines is not None:
        screen.collected_lines.append((widget, lines, visible_cells))
    else:
        widget.refresh(*(Region(0, y, visible_cells, 1) for y in lines))


class TerminalSizedScreen:
    """A screen that has the terminal's size after any order of events. Textual repeats each resize
    as an event to the screen itself. If the terminal is resized again in between, the repeated
    event comes later and would give the screen its earlier size."""

    def _screen_resized(self, _: Size) -> None:
        super()._screen_resized(self.app.size)  # type: ignore[misc, attr-defined]


class DirectScreen(TerminalSizedScreen, Screen[None]):
    collected_lines: list[tuple[Widget, Mapping[int, Strip], int]] | None = None
    """Lines to be painted together; None: each widget paints its own lines."""
    _visible_regions: _VisibleRegions | None = None
    """The visible widgets from which `_uncovered` was computed."""
    _uncovered: dict[Widget, Region]
    _lines_on_terminal: ShownLines = MappingProxyType({})
    """The lines that this class has written and that are still on the terminal."""
    _display_count = 0
    """The app's count of displays after the last write. If the count has changed since, something
    else has drawn, and no line of the terminal is known."""

    def on_resize(self, event: events.Resize) -> None:
        """Redraws the screen even if its size is unchanged: the terminal may have been smaller for
        a moment and have lost its content, which Textual would not draw again."""
        if event.size == self.outer_size:
            self.refresh()

    @contextmanager
    def collect_lines(self) -> Iterator[None]:
        """Collects the lines that are repainted within the block, and paints them at its end."""
        self.collected_lines = []
        try:
            yield
        finally:
            collected, self.collected_lines = self.collected_lines, None
            if not self._paint(collected):
                for widget, lines, visible_cells in collected:
                    repaint(widget, lines, visible_cells)

    def _paint(self, collected_lines: list[tuple[Widget, Mapping[int, Strip], int]]) -> bool:
        app: Any = self.app
        is_dirty = self._layout_required or self._scroll_required or self._repaint_required
        if is_dirty or app.screen is not self or app._batch_count or app.is_inline:  # noqa: SLF001
            return False
        visible = self._compositor.visible_widgets
        if visible is not self._visible_regions:
            self._visible_regions, self._uncovered = visible, _uncovered_regions(visible, self)
        lines: dict[ScreenCell, tuple[Strip, int]] = {}
        for widget, new_lines, visible_cells in collected_lines:
            region = self._uncovered.get(widget)
            if region is None or region.width < visible_cells:
                return False
            x, y, _, height = region
            for line_y, strip in new_lines.items():
                if line_y < height:
                    # A scrollbar may be to the right of the strip.
                    lines[x, y + line_y] = strip, visible_cells
        if lines:
            shown = self._lines_on_terminal if app.display_count == self._display_count else {}
            app._display(self, LineUpdate(lines, shown))  # noqa: SLF001
            self._lines_on_terminal, self._display_count = {**shown, **lines}, app.display_count
        return True


def _uncovered_regions(visible: _VisibleRegions, screen: Widget) -> dict[Widget, Region]:
    """Returns the widgets that no unrelated widget covers, and their regions."""
    regions: dict[Widget, Region] = {}
    for widget, (region, clip) in visible.items():
        if widget is screen or clip.intersection(region) != region:
            continue
        related_widgets = {widget, *widget.ancestors}
        if not any(
            other_region.intersection(other_clip).overlaps(region)
            for other, (other_region, other_clip) in visible.items()
            if other not in related_widgets and other.parent is not widget
        ):
            regions[widget] = region
    return regions
