"""What all panels are made from: a title with a thin rule, exact sizes, and panels side by side.

A panel is a list of lines, each a list of runs as wide as the panel. Titles and lines have no
margin of their own; `beside` gives the row of panels its margins and gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from perftop.draw import theme
from perftop.draw.strips import Run, fit, merged, width

GAP = 3
"""Cells between two panels."""
MARGIN = 1
"""Cells left and right of a row of panels."""
INDENT = 2
"""Cells before the names of a tall panel, for the sign of a line."""
LEAST = 4
"""Minimum lines of panels: a title and three lines."""
LOW = 8
"""Minimum height at which titles of columns have a line of their own."""


def title(word: str, rest: str, size: int, after: Sequence[Run] = ()) -> list[Run]:
    """The first line of a panel: a bold word, dim words behind it, a thin rule up to the end or up
    to the runs `after`."""
    left: list[Run] = [(fit(word, min(len(word), size)), "bright")]
    room = size - width(left) - width(after)
    if rest and len(rest) + 2 <= room:
        left.append((f"  {rest}", "dim"))
        room -= len(rest) + 2
    gap = " " if after else ""
    rule = theme.RULE * max(0, room - 1 - len(gap))
    return merged([*left, (f" {rule}{gap}", "rule"), *after], size)


def sized(lines: Sequence[list[Run]], size: int, height: int) -> list[list[Run]]:
    """Exactly `height` lines of exactly `size` cells; what is too much is cut."""
    found = [merged(line, size) for line in lines[:height]]
    blank: list[Run] = [(" " * size, "text")] if size else []
    return found + [[*blank] for _ in range(height - len(found))]


def divided(size: int, shares: Sequence[int]) -> list[int]:
    """Widths of panels side by side on a screen of `size` cells, in proportion to their shares."""
    room = max(0, size - 2 * MARGIN - GAP * (len(shares) - 1))
    ends = [room * so_far // sum(shares) for so_far in accumulate(shares)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def beside(panels: Sequence[list[list[Run]]]) -> list[list[Run]]:
    """Panels of one height side by side, with margins and gaps."""
    lines = []
    for parts in zip(*panels, strict=True):
        runs: list[Run] = []
        for i, part in enumerate(parts):
            runs += [(" " * (GAP if i else MARGIN), "text"), *part]
        lines.append([*runs, (" " * MARGIN, "text")])
    return lines


def panel_at(x: int, widths: Sequence[int]) -> int | None:
    """Index of the panel at column `x` of a row of panels; None between them."""
    start = MARGIN
    for i, size in enumerate(widths):
        if start <= x < start + size:
            return i
        start += size + GAP
    return None


def wrapped(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` characters, divided between pieces of evidence where that
    is possible, else between words, else anywhere."""
    lines: list[str] = []
    held = ""
    for piece in text.split(" · "):
        joined = f"{held} · {piece}" if held else piece
        if len(joined) <= room:
            held = joined
            continue
        lines += [held] if held else []
        *full, held = _words(piece, room)
        lines += full
    return [*lines, held] if held else lines


def _words(text: str, room: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if len(joined) <= room:
            lines[-1] = joined
            continue
        parts = [word[i : i + room] for i in range(0, len(word), room)]
        lines += parts if lines[-1] else []
        lines = lines if lines[0] else parts
    return lines
