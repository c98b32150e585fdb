"""Lines between the rows: summaries of packages and L3s, which the rows then need not repeat."""

from __future__ import annotations

from math import isnan

from perftop.base.format import many
from perftop.base.text import ranges
from perftop.draw import bars, theme
from perftop.draw.strips import Run
from perftop.tui.overview.lines import Picture
from perftop.tui.shared.places import Line

LEAST = 16
"""Minimum room for a bar, in cells; a narrower one cannot be read."""


def heading(picture: Picture, line: Line, width: int, *, chosen: bool = False) -> list[Run]:
    if line.kind == "off":
        return [(f" off   CPUs {ranges(picture.places.strays)}", "dim")]
    place = picture.places.places[line.row]
    if line.kind == "l3":
        rows = picture.places.groups[place.package, place.l3]
        runs: list[Run] = [(f"   L3 {place.l3} ", "dim")]
    else:
        rows = picture.places.of_package(place.package)
        name = "package " + ("?" if place.package is None else str(place.package))
        mark: Run = (theme.CHOSEN, "mark") if chosen else (" ", "text")
        runs = [mark, (name, "bright"), *_size(picture, rows)]
    runs += _work(picture, rows)
    if line.kind == "l3":
        return runs
    runs += _clock(picture, place.package, rows)
    if line.kind == "folded":
        runs += _differing(picture, rows)
    used = sum(len(text) for text, _ in runs)
    room = max(0, width - used - 2)
    bar = _states(picture, rows, room) if line.kind == "folded" else []
    return [*runs, *(bar or [(" " + theme.RULE * room, "rule")])]


def _differing(picture: Picture, rows: list[int]) -> list[Run]:
    """Number of cores of a folded package that would be red in their hidden rows."""
    alone = sum(picture.sheet.alone[row] for row in rows)
    return [(f"  {alone} slower than the others", "alarm")] if alone else []


def _states(picture: Picture, rows: list[int], width: int) -> list[Run]:
    """Bar of SMT states, averaged over these rows."""
    known = [picture.sheet.states[row] for row in rows if not isnan(picture.sheet.states[row][3])]
    if not known or width < LEAST:
        return []
    mean = [sum(parts) / len(known) for parts in zip(*known, strict=True)]
    return [("  ", "text"), *bars.smt(mean, width - 2)]


def _size(picture: Picture, rows: list[int]) -> list[Run]:
    what = "core" if picture.places.pairs else "CPU"
    return [("  " + many(len(rows), what), "dim")]


def _work(picture: Picture, rows: list[int]) -> list[Run]:
    shown, sheet, places = picture.places.shown, picture.sheet, picture.places.places
    util = [
        share
        for i in rows
        for row, share in zip(places[i].rows, sheet.util[i], strict=True)
        if row in shown and not isnan(share)
    ]
    if not util:
        return []
    return [("  util ", "dim"), (f"{100 * sum(util) / len(util):5.1f}", "text"), (" %", "dim")]


def _clock(picture: Picture, package: int | None, rows: list[int]) -> list[Run]:
    """Mean clock of the busy cores, and a mark if most of them miss their ceiling."""
    mean = busy_hz(picture, rows)
    if isnan(mean):
        return []
    limited = picture.sheet.limited.get(package, False)
    key = "alarm" if limited else "text"
    unit, per_hz, digits = picture.clock
    runs: list[Run] = [("  busy ", "dim"), (f"{mean * per_hz:.{digits}f}", key)]
    ceiling = ceiling_hz(picture, rows)
    if not isnan(ceiling):
        runs += [(" of ", "dim"), (f"{ceiling * per_hz:.{digits}f}", "text")]
    runs.append((f" {unit}", "dim"))
    return [*runs, (f" {theme.DROPPED}", "alarm")] if limited else runs


def busy_hz(picture: Picture, rows: list[int]) -> float:
    """Mean clock of these rows while they ran, weighted by utilisation; NaN if none is known."""
    sheet = picture.sheet
    parts = [
        (sheet.busy[i], sum(u for u in sheet.util[i] if not isnan(u)))
        for i in rows
        if not isnan(sheet.busy[i])
    ]
    total = sum(weight for _, weight in parts)
    return sum(hz * weight for hz, weight in parts) / total if total else float("nan")


def ceiling_hz(picture: Picture, rows: list[int]) -> float:
    return max((c for i in rows if not isnan(c := picture.sheet.ceiling[i])), default=float("nan"))
