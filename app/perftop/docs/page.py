"""The pages of `perftop help`: Markdown files in the directory of this module, parsed into blocks
and drawn for a terminal or a pipe.

Only the Markdown that the pages use is supported: headings, paragraphs, lists, tables, fenced code,
and within a line `code`, **strong** and [links](of.md). Pictures are left out, since a terminal
cannot show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from perftop.base.text import in_ascii

Kind = Literal["heading", "paragraph", "item", "table", "code"]
_ENDS = re.compile(r"#+ |- |\||```|!\[|$")
"""Start of a line that ends a paragraph."""
MARGIN, GAP = 2, 2
"""Width of the margin before text, and of the gap between the columns of a table, in cells."""
MAX_WIDTH, UNLIMITED = 96, 10_000
"""Maximum width of a page, and a width at which no line is ever broken, in cells."""
BOLD, CODE, END = "\x1b[1m", "\x1b[34m", "\x1b[0m"
_JOINED = "\xa0"
"""Replaces blanks at which a line must not be broken: within code, and before a percent sign."""


@dataclass(frozen=True, slots=True)
class Block:
    kind: Kind
    lines: tuple[str, ...]
    """The rows of a table, without the rule below the headings; the lines of code; or a single line
    of text for other kinds."""
    level: int = 0
    """Level of a heading, from 1; 0 for other kinds."""


@dataclass(frozen=True, slots=True)
class Page:
    topic: str
    title: str
    """The title: one line on the subject of the page."""
    blocks: tuple[Block, ...]


def topics() -> list[str]:
    names = (file.name for file in resources.files(__package__).iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def read(topic: str) -> Page:
    text = (resources.files(__package__) / f"{topic}.md").read_text(encoding="utf-8")
    first, *rest = blocks(text)
    while rest[-1].kind == "heading":  # only pictures are below it
        rest.pop()
    return Page(topic, first.lines[0], tuple(rest))


def names_word(page: Page, word: str) -> bool:
    """Whether the page contains this word or its plural."""
    text = "\n".join(line for block in page.blocks for line in block.lines).lower()
    return re.search(rf"\b{re.escape(word.lower())}s?\b", text) is not None


def blocks(text: str) -> Iterator[Block]:
    source = text.splitlines()
    at = 0
    while at < len(source):
        line = source[at]
        end = at + 1
        if line.startswith("```"):
            end = source.index("```", end) + 1
            yield Block("code", tuple(source[at + 1 : end - 1]))
        elif line.startswith("#"):
            marks, _, words = line.partition(" ")
            yield Block("heading", (words,), len(marks))
        elif line.startswith("|"):
            while end < len(source) and source[end].startswith("|"):
                end += 1
            yield Block("table", tuple(row for row in source[at:end] if not row.startswith("|--")))
        elif line and not line.startswith("!["):
            while end < len(source) and not _ENDS.match(source[end]):
                end += 1
            item = line.startswith("- ")
            words = " ".join(part.strip() for part in source[at:end]).removeprefix("- ")
            yield Block("item" if item else "paragraph", (words,))
        at = end


def cells(row: str) -> list[str]:
    """The cells of a table's row. A bar within code does not end a cell."""
    inner = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\0"), row.strip()[1:-1])
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]


def linkless(text: str) -> str:
    """The text in which each link is replaced by its label."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


# --- drawing


def lines(page: Page, width: int, *, colour: bool, unicode: bool) -> list[str]:
    """The lines of a page. `colour`: with escape sequences for a terminal. `unicode`: if false, the
    text is converted to ASCII."""
    room = max(40, min(width, MAX_WIDTH)) - MARGIN
    drawn = [_strong(page.title, colour=colour)]
    before = ""
    for block in page.blocks:
        if (block.kind, before) != ("item", "item"):
            drawn.append("")
        drawn += _block_lines(block, room, colour=colour)
        before = block.kind
    return drawn if unicode else [in_ascii(line) for line in drawn]


def _block_lines(block: Block, room: int, *, colour: bool) -> list[str]:
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
    """The lines of a table, with as many lines for a row as its highest cell needs. If there is not
    enough room, the widest columns are narrowed first, but no column below its longest word."""
    rows = rows if any(rows[0]) else rows[1:]
    widths, least = (
        [
            max(max(map(_shown, _filled(cell, most, colour=colour))) for cell in column)
            for column in zip(*rows, strict=True)
        ]
        for most in (UNLIMITED, 1)
    )
    while sum(widths) > room - GAP * (len(widths) - 1):
        spare = [width if width > low else 0 for width, low in zip(widths, least, strict=True)]
        if not any(spare):
            break
        widths[spare.index(max(spare))] -= 1
    printed = []
    for at, row in enumerate(rows):
        filled = [_filled(cell, w, colour=colour) for cell, w in zip(row, widths, strict=True)]
        for line in range(max(map(len, filled))):
            parts = [cell[line] if line < len(cell) else "" for cell in filled]
            padded = (
                part + " " * (w - _shown(part)) for part, w in zip(parts, widths, strict=True)
            )
            printed.append((" " * GAP).join(padded).rstrip())
        if at == 0:
            printed.append("-" * (sum(widths) + GAP * (len(widths) - 1)))
    return printed


def _filled(text: str, width: int, *, colour: bool) -> list[str]:
    """The text in lines of at most `width` cells, unless a word is longer."""
    text = re.sub("([0-9]) %", rf"\1{_JOINED}%", linkless(text))
    text = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _JOINED), text)
    text = re.sub(r"\*\*[^*]*\*\*|\*[^*]*\*", lambda strong: _emphasis(strong[0], colour), text)
    filled: list[str] = []
    used = 0
    for word in text.split(" "):
        shown = re.sub(r"`([^`]*)`", rf"{CODE}\1{END}", word) if colour else word
        shown = shown.replace(_JOINED, " ")
        length = _shown(shown)
        if filled and used + 1 + length <= width:
            filled[-1] += f" {shown}"
            used += 1 + length
        else:
            filled.append(shown)
            used = length
    return filled


def _emphasis(text: str, colour: bool) -> str:
    words = text.strip("*").split(" ")
    return " ".join(f"{BOLD}{word}{END}" if colour else word for word in words)


def _shown(text: str) -> int:
    """Width of the text on a terminal, in cells."""
    return len(re.sub(r"\x1b\[[0-9]*m", "", text))
