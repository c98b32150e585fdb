"""The pages of `perftop help`: files of Markdown beside this module, read into blocks and drawn for
a terminal or a pipe.

Only what the pages use is understood: headings, paragraphs, lists, tables, code between fences, and
within a line `code`, **strong** and [links](of.md). Pictures are left out: a terminal shows none.
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
"""Columns before text and between columns of a table."""
MAX_WIDTH, UNLIMITED = 96, 10_000
"""Columns of a page, and of a line that is never broken."""
BOLD, CODE, END = "\x1b[1m", "\x1b[34m", "\x1b[0m"
_JOINED = "\xa0"
"""Stands for blanks at which no line may end: within code, and before a percent sign."""


@dataclass(frozen=True, slots=True)
class Block:
    kind: Kind
    lines: tuple[str, ...]
    """A table's rows without the rule below the headings; code's lines; else one line of text."""
    level: int = 0
    """From 1, for headings."""


@dataclass(frozen=True, slots=True)
class Page:
    topic: str
    title: str
    """One line on what the page is about."""
    blocks: tuple[Block, ...]


def topics() -> list[str]:
    names = (file.name for file in resources.files(__package__).iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def read(topic: str) -> Page:
    text = (resources.files(__package__) / f"{topic}.md").read_text(encoding="utf-8")
    first, *rest = blocks(text)
    while rest[-1].kind == "heading":  # there are only pictures below it
        rest.pop()
    return Page(topic, first.lines[0], tuple(rest))


def names_word(page: Page, word: str) -> bool:
    """Whether the page has this word, or its plural."""
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
    """The cells of a table's row. A bar within code is a part of it."""
    inner = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\0"), row.strip()[1:-1])
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]


def linkless(text: str) -> str:
    """The text with links as their words."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


# --- drawing


def lines(page: Page, width: int, *, colour: bool, unicode: bool) -> list[str]:
    """`colour`: with sequences for a terminal. `unicode`: without it the text is ASCII."""
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
    """The rows, each in as many lines as its highest cell needs. If there is no room the widest
    columns shrink first, none below its longest word."""
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
    """Lines of at most `width` columns, unless a word is longer."""
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
    """Columns of the text on a terminal."""
    return len(re.sub(r"\x1b\[[0-9]*m", "", text))
