"""Lines between the rows: summaries of packages and L3s, which the rows then need not repeat."""

from __future__ import annotations

from math import isnan, nan

import numpy as np

from perftop.base.arrays import Ints
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
        rows = picture.rows(place.package, place.l3)
        runs: list[Run] = [(f"   L3 {place.l3} ", "dim")]
    else:
        rows = picture.rows(place.package)
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


def _differing(picture: Picture, rows: Ints) -> list[Run]:
    """Number of cores of a folded package that would be red in their hidden rows."""
    alone = int(picture.sheet.alone[rows].sum())
    return [(f"  {alone} slower than the others", "alarm")] if alone else []


def _states(picture: Picture, rows: Ints, width: int) -> list[Run]:
    """Bar of SMT states, averaged over these rows."""
    states = picture.sheet.states(rows)
    known = states[~np.isnan(states[:, 3])]
    if not len(known) or width < LEAST:
        return []
    return [("  ", "text"), *bars.smt(known.mean(axis=0).tolist(), width - 2)]


def _size(picture: Picture, rows: Ints) -> list[Run]:
    what = "core" if picture.places.pairs else "CPU"
    return [("  " + many(len(rows), what), "dim")]


def _work(picture: Picture, rows: Ints) -> list[Run]:
    sheet = picture.sheet
    util = sheet.util[rows][sheet.reader.asked[rows]]
    util = util[np.isfinite(util)]
    if not len(util):
        return []
    return [("  util ", "dim"), (f"{100 * float(util.mean()):5.1f}", "text"), (" %", "dim")]


def _clock(picture: Picture, package: int | None, rows: Ints) -> list[Run]:
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


def busy_hz(picture: Picture, rows: Ints) -> float:
    """Mean clock of these rows while they ran, weighted by utilisation; NaN if none is known."""
    sheet = picture.sheet
    busy = sheet.busy[rows]
    known = np.isfinite(busy)
    weights = np.nansum(sheet.util[rows][known], axis=1)
    total = float(weights.sum())
    return float((busy[known] * weights).sum()) / total if total else nan


def ceiling_hz(picture: Picture, rows: Ints) -> float:
    return float(np.fmax.reduce(picture.sheet.ceiling[rows], initial=nan))
