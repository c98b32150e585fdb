"""Lines that are painted past Textual."""

from __future__ import annotations

import io

from rich.color import ColorSystem
from rich.console import Console

from perftop.draw import theme
from perftop.tui.shared.paint import Ink, Lines, line

INK = Ink(theme.styles("perftop-dark"), ColorSystem.TRUECOLOR)
CONSOLE = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")


def test_what_a_scrollbar_covers_is_not_written() -> None:
    before, after = (line([(text, "text")], INK, 4, ascii_=False) for text in ("1234", "1235"))
    for visible, written in ((4, True), (3, False)):
        text = Lines({(0, 0): (after, visible)}, {(0, 0): (before, visible)}).render_segments(
            CONSOLE
        )
        assert text.removesuffix("\x1b[0m").endswith("5") == written
