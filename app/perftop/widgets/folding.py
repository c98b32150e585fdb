"""Which packages are shown as a single line: that all of them are in sight is worth more than the
rows of those where the cursor is not."""

from __future__ import annotations

from typing import Literal

from perftop.widgets.places import Line, Places

Fold = Literal["needed", "never", "always"]
FOLDS: tuple[Fold, ...] = ("needed", "never", "always")


def folded(
    places: Places, tall: int, room: int, fold: Fold, cpu: int | None, *, bare: bool
) -> list[Line]:
    """Lines by topology. If they do not fit into `room` and that is when to fold, only the package
    with this CPU keeps its rows. `bare`: rows and nothing between them."""
    lines = places.lines(tall)
    if bare:
        return [line for line in lines if line.kind == "row"]
    packages = list(dict.fromkeys(place.package for place in places.places))
    if len(packages) < 2 or fold == "never" or (fold == "needed" and len(lines) <= room):
        return lines
    if fold == "always":
        return places.lines(tall, packages)
    here = next((place.package for place in places.places if cpu in place.cpus), packages[0])
    shut = [package for package in packages if package != here]
    for package in tuple(shut):  # what still fits is shown
        fewer = [other for other in shut if other != package]
        if len(places.lines(tall, fewer)) <= room:
            shut = fewer
    return places.lines(tall, shut)
