"""The lines of a page. Most series keep their labels, so that what stands before a value is made
once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perftop.base.arrays import Floats
from perftop.output.exposition import Heading, labels

Labels = Mapping[str, object]
Family = tuple[Heading, list[str]]
"""A heading, and the lines of its samples."""


class Grids:
    """Families with a series for each place and name."""

    def __init__(self) -> None:
        self._begins: dict[str, tuple[Sequence[Labels], list[str]]] = {}
        """By family: its places, and what its lines begin with."""

    def lines(
        self,
        heading: Heading,
        places: Sequence[Labels],
        values: Floats,
        label: str = "",
        names: Sequence[str] = ("",),
    ) -> Family:
        """`places`: another object once they change; `values`: (names, places), NaN for what is not
        known."""
        kept, begins = self._begins.get(heading.name, ([], []))
        if kept is not places:
            more = [{label: name} if label else {} for name in names]
            begins = [begin(heading, **place, **one) for one in more for place in places]
            self._begins[heading.name] = places, begins
        flat = zip(begins, values.ravel().tolist(), strict=True)
        return heading, [f"{text}{value:.15g}\n" for text, value in flat if math.isfinite(value)]


def begin(heading: Heading, **of: object) -> str:
    """A line up to its value."""
    return f"{heading.sample}{labels(**of)} "


def single(heading: Heading, value: float, **of: object) -> Family:
    """A family of one series; of none if its value is not known."""
    line = f"{begin(heading, **of)}{value:.15g}\n"
    return heading, [line] if math.isfinite(value) else []
