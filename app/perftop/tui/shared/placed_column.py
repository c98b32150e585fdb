"""A column of a view, with its width and format."""

from __future__ import annotations

from dataclasses import dataclass

from perftop.draw.strips import fit
from perftop.model.numbers import Number


@dataclass(frozen=True)
class Placed:
    key: str
    """Names the column; where it shows a metric, the metric's key."""
    title: str
    width: int
    """Cells, including the gap to the left."""
    left: bool = False
    """Whether it begins at its left, after `gap` cells."""
    gap: int = 2
    arg: int = 0
    """Position among columns of the same key."""
    scale: float = 1.0
    digits: int = 0
    column: Number | None = None
    """What it shows; None: only its key says."""

    def text(self, text: str) -> str:
        if self.left:
            return (" " * self.gap + fit(text, max(0, self.width - self.gap)))[: self.width]
        return f"{text:>{self.width}}"
