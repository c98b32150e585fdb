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

from perftop.base.text import ascii_line

Kind = Literal["heading", "paragraph", "item", "table", "code"]
_PARAGRAPH_END = re.compile(r"#+ |- |\||```|!\[|$")
MARGIN, GAP = 2, 2
"""Width of the margin before text, and of the gap between the columns of a table, in cells."""
MAX_WIDTH, UNLIMITED_WIDTH = 96, 10_000
"""Maximum width of a page, and a width at which no line is broken, in cells."""
BOLD, CODE, RESET = "\x1b[1m", "\x1b[34m", "\x1b[0m"
_NO_BREAK = "\xa0"
"""Replaces spaces at which lines must not break: within code and before a percent sign."""


@dataclass(frozen=True, slots=True)
class Block:
    kind: Kind
    lines: tuple[str, ...]
    """The rows of a table without the rule below the headings, the lines of code, or for other
    kinds a single line of text."""
    level: int = 0
    """Level of a heading, from 1; 0 for other kinds."""


@dataclass(frozen=True, slots=True)
class Page:
    topic: str
    title: str
    """One line that names the subject of the page."""
    blocks: tuple[Block, ...]


def topics() -> list[str]:
    names = (file.name for file in resources.files(__package__).iterdir())
    return sorted(name.removesuffix(".md") for name in names if name.endswith(".md"))


def read_page(topic: str) -> Page:
    text = (resources.files(__package__) / f"{topic}.md").read_text(encoding="utf-8")
    first, *body = parse_blocks(text)
    while body[-1].kind == "heading":  # the heading has only pictures below it
        body.pop()
    return Page(topic, first.lines[0], tuple(body))


def contains_word(page: Page, word: str) -> bool:
    """Returns whether the page contains this word or its plural."""
    text = "\n".join(line for block in page.blocks for line in block.lines).lower()
    return re.search(rf"\b{re.escape(word.lower())}s?\b", text) is not None


def parse_blocks(text: str) -> Iterator[Block]:
    source = text.splitlines()
    start = 0
    while start < len(source):
        line = source[start]
        end = start + 1
        if line.startswith("```"):
            end = source.index("```", end) + 1
            yield Block("code", tuple(source[start + 1 : end - 1]))
        elif line.startswith("#"):
            marks, _, words = line.partition(" ")
            yield Block("heading", (words,), len(marks))
        elif line.startswith("|"):
            while end < len(source) and source[end].startswith("|"):
                end += 1
            rows = (row for row in source[start:end] if not row.startswith("|--"))
            yield Block("table", tuple(rows))
        elif line and not line.startswith("!["):
            while end < len(source) and not _PARAGRAPH_END.match(source[end]):
                end += 1
            item = line.startswith("- ")
            words = " ".join(part.strip() for part in source[start:end]).removeprefix("- ")
            yield Block("item" if item else "paragraph", (words,))
        start = end


def split_cells(row: str) -> list[str]:
    """Returns the cells of a table's row. A bar within code does not end a cell."""
    inner = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\0"), row.strip()[1:-1])
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]


def without_links(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


# --- drawing


def page_lines(page: Page, width: int, *, colour: bool, unicode: bool) -> list[str]:
    """Returns the lines of a page. `colour`: with escape sequences for a terminal. `unicode`: if
    false, the text is converted to ASCII."""
    text_width = max(40, min(width, MAX_WIDTH)) - MARGIN
    output = [_bold_text(page.title, colour=colour)]
    previous_kind = ""
    for block in page.blocks:
        if (block.kind, previous_kind) != ("item", "item"):
            output.append("")
        previous_kind, text = block.kind, block.lines[0]
        if block.kind == "heading":
            output.append(_bold_text(text, colour=colour))
        elif block.kind == "code":
            output += [(" " * (MARGIN + 2) + line).rstrip() for line in block.lines]
        elif block.kind == "table":
            rows = [split_cells(row) for row in block.lines]
            output += [" " * MARGIN + line for line in _table(rows, text_width, colour)]
        else:
            prefix = "- " if block.kind == "item" else ""
            for line in _wrap(text, text_width - len(prefix), colour=colour):
                output.append(" " * MARGIN + prefix + line)
                prefix = " " * len(prefix)
    return output if unicode else [ascii_line(line) for line in output]


def _bold_text(text: str, *, colour: bool) -> str:
    unquoted = text.replace("`", "")
    return f"{BOLD}{unquoted}{RESET}" if colour else unquoted


def _table(rows: Sequence[list[str]], room: int, colour: bool) -> list[str]:
    """Returns the lines of a table; a row has as many lines as its tallest cell. If there is not
    enough room, the widest columns are narrowed first, but not below their longest word."""
    rows = rows if any(rows[0]) else rows[1:]

    def width_of(column: Sequence[str], max_width: int) -> int:
        lines = (line for cell in column for line in _wrap(cell, max_width, colour=colour))
        return max(map(_display_width, lines))

    columns = [*zip(*rows, strict=True)]
    widths = [width_of(column, UNLIMITED_WIDTH) for column in columns]
    min_widths = [width_of(column, 1) for column in columns]
    while sum(widths) > room - GAP * (len(widths) - 1):
        pairs = zip(widths, min_widths, strict=True)
        spare_widths = [width if width > min_width else 0 for width, min_width in pairs]
        if not any(spare_widths):
            break
        widths[spare_widths.index(max(spare_widths))] -= 1
    lines = []
    for index, row in enumerate(rows):
        cell_lines = [_wrap(cell, w, colour=colour) for cell, w in zip(row, widths, strict=True)]
        for line in range(max(map(len, cell_lines))):
            parts = [cell[line] if line < len(cell) else "" for cell in cell_lines]
            padded = (p + " " * (w - _display_width(p)) for p, w in zip(parts, widths, strict=True))
            lines.append((" " * GAP).join(padded).rstrip())
        if index == 0:
            lines.append("-" * (sum(widths) + GAP * (len(widths) - 1)))
    return lines


def _wrap(text: str, width: int, *, colour: bool) -> list[str]:
    """Returns the text in lines of at most `width` cells, unless a word is longer."""
    text = re.sub("([0-9]) %", rf"\1{_NO_BREAK}%", without_links(text))
    text = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", _NO_BREAK), text)
    bold = f"{BOLD}%s{RESET}" if colour else "%s"
    text = re.sub(
        r"\*\*[^*]*\*\*|\*[^*]*\*",
        lambda match: " ".join(bold % word for word in match[0].strip("*").split(" ")),
        text,
    )
    lines: list[str] = []
    line_width = 0
    for word in text.split(" "):
        styled_word = re.sub(r"`([^`]*)`", rf"{CODE}\1{RESET}", word) if colour else word
        styled_word = styled_word.replace(_NO_BREAK, " ")
        length = _display_width(styled_word)
        if lines and line_width + 1 + length <= width:
            lines[-1] += f" {styled_word}"
            line_width += 1 + length
        else:
            lines.append(styled_word)
            line_width = length
    return lines


def _display_width(text: str) -> int:
    return len(re.sub(r"\x1b\[[0-9]*m", "", text))
