"""A line that a program printed, as a terminal would show it. Sequences that move the cursor to
another line, or that do more than write and colour text, are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from rich.ansi import AnsiDecoder
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from perftop.base.text import plain

MAX_COLUMNS = 1024
"""Columns kept of a line; no screen is wider."""
TAB = 8
_PIECES = re.compile(
    r"(?P<pen>\x1b\[[0-9;:]*m)|\x1b\[(?P<erase>[0-2]?)K"
    r"|\x1b\[[0-?]*[ -/]*(?:[@-~]|$)|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]?"
    r"|(?P<move>[\r\b\t])|(?P<text>[^\x00-\x1f\x7f]+)"
)
Cell = tuple[str, Style]


def strip(pen: bytes, raw: bytes, *, ascii_: bool = False) -> Strip:
    """The line as a strip. `pen`: the colour sequences in force at its beginning."""
    text = raw.decode(errors="replace")
    if text.isprintable() and not pen:
        return Strip([Segment(_safe(text[:MAX_COLUMNS], ascii_))])
    cells = _cells(_pieces(pen.decode("ascii") + text))
    groups = groupby(cells, lambda cell: cell[1])
    return Strip(
        [Segment(_safe("".join(sign for sign, _ in group), ascii_), style or None)
         for style, group in groups]
    )  # fmt: skip


def _safe(text: str, ascii_: bool) -> str:
    shown = text if text.isprintable() else "".join(c for c in text if c.isprintable())
    return plain(shown) if ascii_ else shown


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    return ((it.lastgroup, it[it.lastgroup]) for it in _PIECES.finditer(text) if it.lastgroup)


def _cells(pieces: Iterator[tuple[str, str]]) -> list[Cell]:
    """The final content of each column."""
    colours, style, nothing = AnsiDecoder(), Style.null(), Style.null()
    cells: list[Cell] = []
    at = 0
    for kind, piece in pieces:
        if kind == "pen":
            colours.decode_line(piece)
            style = _calm(colours.style)
        elif kind == "erase":
            begin, end = {"1": (0, at), "2": (0, len(cells))}.get(piece, (at, len(cells)))
            cells[begin:end] = [(" ", nothing)] * (min(end, len(cells)) - begin)
        elif kind == "move":
            at = {"\r": 0, "\b": max(0, at - 1), "\t": at // TAB * TAB + TAB}[piece]
        else:
            written = [(sign, style) for sign in piece[: max(0, MAX_COLUMNS - at)]]
            cells += [(" ", nothing)] * (at - len(cells))
            cells[at : at + len(written)] = written
            at += len(written)
    return cells


def _calm(style: Style) -> Style:
    """The style with its colours and weight only: no blinking, hidden text or links."""
    return Style(
        color=style.color, bgcolor=style.bgcolor, bold=style.bold, dim=style.dim,
        italic=style.italic, underline=style.underline, reverse=style.reverse,
        strike=style.strike,
    )  # fmt: skip
