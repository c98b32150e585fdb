"""Parts that all panels share: a title with a thin rule, and wrapped text.

A panel is a function of the session, an interval, the user's choices and a size. It returns lines,
each with its target for clicks. The module `row` puts panels of equal height side by side, makes
each line exactly as wide as its panel, and adds margins and gaps.
"""

from __future__ import annotations

from collections.abc import Sequence

from perftop.draw import theme
from perftop.draw.columns import Run, fit
from perftop.draw.strips import merged, width
from perftop.model.episode import Episode

Target = Episode | int | None
"""What a click opens or selects: an episode, or a CPU by its number; None: nothing."""
PanelLine = tuple[list[Run], Target]

INDENT = 2
"""Cells before the names in a tall panel, for the marker of a line."""
MIN_HEIGHT = 4
"""Minimum height of a panel in lines: a title and three lines."""
MIN_HEIGHT_FOR_HEADINGS = 8
"""Minimum height of a panel, in lines, for a separate line of column headings."""


def title(word: str, rest: str, size: int, after: Sequence[Run] = ()) -> list[Run]:
    """Returns the first line of a panel: the bold title `word`, the dim text `rest`, and a thin
    rule up to the end of the line or up to the runs `after`."""
    left: list[Run] = [(fit(word, min(len(word), size)), "bright")]
    room = size - width(left) - width(after)
    if rest and len(rest) + 2 <= room:
        left.append((f"  {rest}", "dim"))
        room -= len(rest) + 2
    gap = " " if after else ""
    rule = theme.RULE * max(0, room - 1 - len(gap))
    return merged([*left, (f" {rule}{gap}", "rule"), *after], size)


def wrapped(text: str, room: int) -> list[str]:
    """Returns the text in lines of at most `room` characters. Lines are broken between pieces of
    evidence if possible, else between words, else within a word."""
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
