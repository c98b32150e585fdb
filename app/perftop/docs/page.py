"""The pages of `perftop help`: files of Markdown beside this module, read into blocks.

It understands what the pages use: headings, paragraphs, lists, tables, code between fences, and
within a line `code`, **strong** and [links](of.md). Pictures are left out: a terminal shows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from typing import Literal

from perfprobe.frozen import frozen

Kind = Literal["heading", "paragraph", "item", "table", "code"]
_ENDS = re.compile(r"#+ |- |\||```|!\[|$")
"""Beginnings of lines that end a paragraph."""


@frozen
class Block:
    kind: Kind
    lines: tuple[str, ...]
    """A table's rows without the rule below the headings; code's lines; else one line of text."""
    level: int = 0
    """From 1, for headings."""


@frozen
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
    while rest[-1].kind == "heading":  # nothing but pictures below it
        rest.pop()
    return Page(topic, first.lines[0], tuple(rest))


def names_word(page: Page, word: str) -> bool:
    text = "\n".join(line for block in page.blocks for line in block.lines).lower()
    return re.search(rf"\b{re.escape(word.lower())}s?\b", text) is not None


def blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        end = at + 1
        if line.startswith("```"):
            end = lines.index("```", end) + 1
            yield Block("code", tuple(lines[at + 1 : end - 1]))
        elif line.startswith("#"):
            marks, _, words = line.partition(" ")
            yield Block("heading", (words,), len(marks))
        elif line.startswith("|"):
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            yield Block("table", tuple(row for row in lines[at:end] if not row.startswith("|--")))
        elif line and not line.startswith("!["):
            while end < len(lines) and not _ENDS.match(lines[end]):
                end += 1
            item = line.startswith("- ")
            words = " ".join(each.strip() for each in lines[at:end]).removeprefix("- ")
            yield Block("item" if item else "paragraph", (words,))
        at = end


def cells(row: str) -> list[str]:
    """The cells of a table's row. A bar within code is a part of it."""
    inner = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\0"), row.strip()[1:-1])
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]


def linkless(text: str) -> str:
    """The text with links as their words."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
