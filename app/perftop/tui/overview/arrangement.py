"""Which lines the overview has: those that scroll, and the packages' lines that stay in sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from perfprobe.frozen import frozen
from perftop.tui.shared.places import Line, Places

Fold = Literal["needed", "never", "always"]
FOLDS: tuple[Fold, ...] = ("needed", "never", "always")
MOST = 3
"""At most one line in this many may be a package's that stays."""


@frozen
class Arrangement:
    above: Sequence[Line]
    """Packages' lines that stay above the rows, and `below` them."""
    lines: Sequence[Line]
    below: Sequence[Line]
    order: Sequence[int]
    """All rows in their order, folded or not."""
    grouped: bool = True
    """Whether a line names the package of the rows below it."""


def arrangement(
    places: Places, room: int, fold: Fold, cpu: int | None, order: Sequence[int] | None,
    *, bare: bool,
) -> Arrangement:  # fmt: skip
    """`order`: of the rows; None for the topology's. If `fold` is "needed" and the lines exceed
    `room`, packages without `cpu` are folded, except those that still fit. `bare`: rows only."""
    packages = list(dict.fromkeys(place.package for place in places.places))
    every = _lines(places, ())
    rows = [line.row for line in every if line.kind == "row"] if order is None else [*order]
    plain = [Line("row", row) for row in rows]
    named = [line for line in _lines(places, packages) if line.kind == "folded"]
    if bare or not any(line.kind == "package" for line in every):
        off = [line for line in every if line.kind == "off" and not bare]
        return Arrangement([], [*plain, *off], [], rows)
    if order is not None:
        above = named if len(named) * MOST <= room else []
        return Arrangement(above, plain, [], rows, grouped=False)
    if fold != "always" and len(every) <= room:
        return Arrangement([], every, [], rows)
    if fold == "never" and len(named) * MOST <= room:
        return Arrangement(named, plain, [], rows, grouped=False)
    if fold == "never":
        return Arrangement([], every, [], rows)
    return _folded(places, packages, room, fold, cpu, rows)


def _folded(
    places: Places, packages: Sequence[int | None], room: int, fold: Fold, cpu: int | None,
    rows: list[int],
) -> Arrangement:  # fmt: skip
    here = next((place.package for place in places.places if cpu in place.cpus), packages[0])
    shut = [package for package in packages if package != here or fold == "always"]
    for package in tuple(shut) if fold == "needed" else ():  # unfold what still fits
        fewer = [other for other in shut if other != package]
        if len(_lines(places, fewer)) <= room:
            shut = fewer
    lines = _lines(places, shut)
    if len(lines) <= room or fold == "always" or len(packages) * MOST > room:
        return Arrangement([], lines, [], rows)
    inside = [i for i, line in enumerate(lines) if line.kind == "row"]
    first, last = inside[0], inside[-1] + 1
    return Arrangement(lines[:first], lines[first:last], lines[last:], rows)


def _lines(places: Places, fold: Sequence[int | None]) -> list[Line]:
    return [line for line in places.lines(1, fold) if line.kind != "l3"]
