"""Draws a page of `perftop help` for a terminal or a pipe."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perftop.base.text import in_ascii
from perftop.docs.page import Block, Page, cells, linkless

MARGIN, GAP = 2, 2
"""Columns before text and between columns of a table."""
WIDEST, ENDLESS = 96, 10_000
BOLD, CODE, END = "\x1b[1m", "\x1b[34m", "\x1b[0m"
_JOINED = "\xa0"
"""Stands for blanks at which no line may end: within code, and before a percent sign."""


def lines(page: Page, width: int, *, colour: bool, unicode: bool) -> list[str]:
    """`colour`: with sequences for a terminal. `unicode`: signs may be drawn."""
    room = max(40, min(width, WIDEST)) - MARGIN
    found = [_strong(page.title, colour=colour)]
    before = ""
    for block in page.blocks:
        if (block.kind, before) != ("item", "item"):
            found.append("")
        found += _block(block, room, colour=colour)
        before = block.kind
    return found if unicode else [in_ascii(line) for line in found]


def _block(block: Block, room: int, *, colour: bool) -> list[str]:
    text = block.lines[0]
    if block.kind == "heading":
        return [_strong(text, colour=colour)]
    if block.kind == "code":
        return [(" " * (MARGIN + 2) + line).rstrip() for line in block.lines]
    margin = " " * MARGIN
    if block.kind == "table":
        return [margin + line for line in _table([cells(row) for row in block.lines], room, colour)]
    first, later = ("- ", "  ") if block.kind == "item" else ("", "")
    filled = _filled(text, room - len(first), colour=colour)
    return [margin + (later if at else first) + line for at, line in enumerate(filled)]


def _strong(text: str, *, colour: bool) -> str:
    plain = text.replace("`", "")
    return f"{BOLD}{plain}{END}" if colour else plain


def _table(rows: Sequence[list[str]], room: int, colour: bool) -> list[str]:
    """The rows, each in as many lines as its highest cell needs."""
    rows = rows if any(rows[0]) else rows[1:]
    natural, least = (
        [max(_longest(cell, most, colour) for cell in column) for column in zip(*rows, strict=True)]
        for most in (ENDLESS, 1)
    )
    widths = _widths(natural, least, room - GAP * (len(natural) - 1))
    found = []
    for at, row in enumerate(rows):
        filled = [_filled(cell, w, colour=colour) for cell, w in zip(row, widths, strict=True)]
        for line in range(max(map(len, filled))):
            parts = [cell[line] if line < len(cell) else "" for cell in filled]
            padded = (
                part + " " * (w - _shown(part)) for part, w in zip(parts, widths, strict=True)
            )
            found.append((" " * GAP).join(padded).rstrip())
        if at == 0:
            found.append("-" * (sum(widths) + GAP * (len(widths) - 1)))
    return found


def _widths(natural: list[int], least: list[int], room: int) -> list[int]:
    """Widths of columns. The widest give way first, none below its longest word."""
    widths = list(natural)
    while sum(widths) > room:
        spare = [width if width > low else 0 for width, low in zip(widths, least, strict=True)]
        if not any(spare):
            break
        widths[spare.index(max(spare))] -= 1
    return widths


def _filled(text: str, width: int, *, colour: bool) -> list[str]:
    """Lines of at most `width` columns, unless a word is longer."""
    text = re.sub("([0-9]) %", rf"\1{_JOINED}%", linkless(text))
    text = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _JOINED), text)
    text = re.sub(r"\*\*[^*]*\*\*|\*[^*]*\*", lambda strong: _emphasis(strong[0], colour), text)
    found: list[str] = []
    used = 0
    for word in text.split(" "):
        shown = re.sub(r"`([^`]*)`", rf"{CODE}\1{END}", word) if colour else word
        shown = shown.replace(_JOINED, " ")
        length = _shown(shown)
        if found and used + 1 + length <= width:
            found[-1] += f" {shown}"
            used += 1 + length
        else:
            found.append(shown)
            used = length
    return found


def _emphasis(text: str, colour: bool) -> str:
    words = text.strip("*").split(" ")
    return " ".join(f"{BOLD}{word}{END}" if colour else word for word in words)


def _longest(text: str, width: int, colour: bool) -> int:
    """Columns of the longest line, if lines end at `width`."""
    return max(map(_shown, _filled(text, width, colour=colour)))


def _shown(text: str) -> int:
    return len(re.sub(r"\x1b\[[0-9]*m", "", text))
