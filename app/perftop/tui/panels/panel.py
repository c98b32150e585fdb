"""Parts of all panels: a title with a thin rule, and text in lines.

A panel is a function of the session, an interval, the user's choices and a size; it returns lines,
each with its target for clicks. `row` puts panels of one height side by side, makes
each line exactly as wide as its panel, and adds margins and gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

from perftop.draw import theme
from perftop.draw.columns import Run, fit
from perftop.draw.strips import merged, width
from perftop.model.episode import Episode

Target = Episode | int | None
"""An episode, or a CPU by its number: that of a task, or one that loses."""
PanelLine = tuple[list[Run], Target]

INDENT = 2
"""Cells before the names of a tall panel, for the sign of a line."""
MIN_HEIGHT = 4
"""A title and three lines."""
MIN_HEIGHT_FOR_HEADINGS = 8
"""Height from which headings of columns have a line of their own."""


def title(word: str, rest: str, size: int, after: Sequence[Run] = ()) -> list[Run]:
    """The first line of a panel: a bold word, dim words to its right, a thin rule up to the end or
    up to the runs `after`."""
    left: list[Run] = [(fit(word, min(len(word), size)), "bright")]
    room = size - width(left) - width(after)
    if rest and len(rest) + 2 <= room:
        left.append((f"  {rest}", "dim"))
        room -= len(rest) + 2
    gap = " " if after else ""
    rule = theme.RULE * max(0, room - 1 - len(gap))
    return merged([*left, (f" {rule}{gap}", "rule"), *after], size)


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
