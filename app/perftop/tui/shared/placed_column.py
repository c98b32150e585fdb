"""A column at its place in lines."""

from __future__ import annotations

from dataclasses import dataclass

from perftop.draw.strips import fit


@dataclass(frozen=True, slots=True)
class Placed:
    key: str
    """Of a number that of its column."""
    title: str
    width: int
    """Cells, the gap to its left included: two of them before text."""
    left: bool = False
    arg: int = 0
    """Which of several alike."""
    scale: float = 1.0
    digits: int = 0

    def text(self, text: str) -> str:
        if self.left:
            return ("  " + fit(text, max(0, self.width - 2)))[: self.width]
        return f"{text:>{self.width}}"
