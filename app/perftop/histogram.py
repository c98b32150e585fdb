"""Counts as a line of bars."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = ".:-=+*#@"


def bars(counts: Sequence[int], *, unicode: bool = True) -> str:
    """A character a bin, the fullest at full height. What is not empty can be seen, and what is
    empty is a space."""
    levels = LEVELS if unicode else ASCII_LEVELS
    highest = max(counts, default=0)
    return "".join(_bar(count, highest, levels) if count else " " for count in counts)


def _bar(count: int, highest: int, levels: str) -> str:
    return levels[-(-count * len(levels) // highest) - 1]
