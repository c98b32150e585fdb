"""A pane with the output of a command: a few lines below the view, or a whole screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import groupby
from typing import ClassVar, Literal

from rich.ansi import AnsiDecoder
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from perftop.base.text import ELLIPSIS, to_ascii
from perftop.draw import theme
from perftop.draw.strips import width
from perftop.process.job_terminal import OutputLines
from perftop.tui.shared.keys import bindings
from perftop.tui.shared.paint import RenderedStrip, is_ascii, run_writer

Extent = Literal["small", "whole", "hidden"]


class OutputPane(ScrollView, can_focus=False, inherit_bindings=False):
    DEFAULT_CSS = """
    OutputPane {
        height: 25%;
        min-height: 4;
        background: $background;
    }
    OutputPane.-whole {
        height: 1fr;
    }
    OutputPane.-hidden {
        display: none;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("output")]

    def __init__(
        self, output_lines: OutputLines, caption: str, resize: Callable[[int, int], None]
    ) -> None:
        """`caption`: displayed name of the key that changes the pane's extent. `resize`: called
        with each new size of the pane, in columns and lines of output."""
        super().__init__()
        self._output_lines, self._caption, self._resize = output_lines, caption, resize
        self._dropped_count = 0
        """Number of old lines that had been dropped at the last call of `show`."""
        self._follows = True
        self.extent: Extent = "small"
        if is_ascii(self.app):  # scrollbars need block characters
            self.styles.scrollbar_size_vertical = 0

    def set_extent(self, extent: Extent) -> None:
        self.extent = extent
        self.can_focus = extent == "whole"
        for name in ("whole", "hidden"):
            self.set_class(extent == name, f"-{name}")

    def show(self) -> None:
        """Shows new output. Scrolls to the last line, unless the user has scrolled back."""
        newly_dropped = self._output_lines.dropped_count - self._dropped_count
        self._dropped_count += newly_dropped
        self.virtual_size = Size(self.scrollable_content_region.width, 1 + len(self._output_lines))
        if self._follows:
            self._scroll_to_line(self.max_scroll_y)
        elif newly_dropped:
            self._scroll_to_line(self.scroll_offset.y - newly_dropped)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._follows = new_value >= self.max_scroll_y

    def _scroll_to_line(self, y: int) -> None:
        self.scroll_to(y=max(0, y), animate=False, immediate=True, force=True)

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self._title()
        style, size = run_writer(self.app).styles["text"], self.scrollable_content_region.width
        index, strip = y - 1 + self.scroll_offset.y, Strip([])
        if index < len(self._output_lines):
            strip = printed_line(*self._output_lines[index], ascii_=is_ascii(self.app))
        if strip.cell_length > size:
            end = Strip([Segment(to_ascii(ELLIPSIS) if is_ascii(self.app) else ELLIPSIS)])
            strip = Strip.join([strip.crop(0, size - 1), end])
        return strip.apply_style(style).adjust_cell_length(size, style)

    def _title(self) -> Strip:
        other_extent = "small" if self.extent == "whole" else "whole"
        words = [("output ", "dim")]
        ends = [(f" {self._caption}", "key"), (f" {other_extent} ", "dim"), (theme.RULE, "rule")]
        size = self.scrollable_content_region.width
        rule = max(0, size - width(words) - width(ends) - 2)
        runs = [(theme.RULE + " ", "rule"), *words, (theme.RULE * rule, "rule"), *ends]
        return RenderedStrip(runs, run_writer(self.app), size)

    def on_resize(self, event: events.Resize) -> None:
        self._resize(self.scrollable_content_region.width, event.size.height - 1)
        self.show()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()


# --- a printed line

MAX_COLUMNS = 1024
"""Maximum columns of a line of output; the rest is dropped."""
TAB_WIDTH = 8
_OUTPUT_PIECES = re.compile(
    r"(?P<colours>\x1b\[[0-9;:]*m)|\x1b\[(?P<erase>[0-2]?)K"
    r"|\x1b\[[0-?]*[ -/]*(?:[@-~]|$)|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?"
    r"|(?P<move>[\r\b\t])|(?P<text>[^\x00-\x1f\x7f]+)"
)
_STYLE_PARTS = "color", "bgcolor", "bold", "dim", "italic", "underline", "reverse", "strike"
"""The parts of a style that are shown; text is never hidden, and does not blink."""
Cell = tuple[str, Style]


def printed_line(colours: bytes, raw: bytes, *, ascii_: bool = False) -> Strip:
    """Returns a line of output as a terminal would show it, ignoring escape sequences other than
    those for colours and erasing in the line. `colours`: the sequences in force at its start."""
    text = raw.decode(errors="replace")
    if text.isprintable() and not colours:
        cells: list[Cell] = [(text[:MAX_COLUMNS], Style.null())]
    else:
        cells = _final_cells(colours.decode("ascii") + text)
    segments = []
    for style, group in groupby(cells, lambda cell: cell[1]):
        part = "".join(c for chars, _ in group for c in chars if c.isprintable())
        segments.append(Segment(to_ascii(part) if ascii_ else part, style or None))
    return Strip(segments)


def _final_cells(text: str) -> list[Cell]:
    """Returns the content of each column after all characters were written."""
    decoder, style, null_style = AnsiDecoder(), Style.null(), Style.null()
    cells: list[Cell] = []
    x = 0
    for match in _OUTPUT_PIECES.finditer(text):
        kind, piece = match.lastgroup, match[match.lastgroup or 0]
        if kind == "colours":
            decoder.decode_line(piece)
            style = Style(**{part: getattr(decoder.style, part) for part in _STYLE_PARTS})
        elif kind == "erase":
            begin, end = {"1": (0, x), "2": (0, len(cells))}.get(piece, (x, len(cells)))
            cells[begin:end] = [(" ", null_style)] * (min(end, len(cells)) - begin)
        elif kind == "move":
            next_tab = x // TAB_WIDTH * TAB_WIDTH + TAB_WIDTH
            x = {"\r": 0, "\b": max(0, x - 1), "\t": next_tab}[piece]
        elif kind == "text":
            new_cells = [(char, style) for char in piece[: max(0, MAX_COLUMNS - x)]]
            cells += [(" ", null_style)] * (x - len(cells))
            cells[x : x + len(new_cells)] = new_cells
            x += len(new_cells)
    return cells
