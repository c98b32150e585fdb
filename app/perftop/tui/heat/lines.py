"""Text of the heat map around its cells: the lines above and below them, and headings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan

import numpy as np

from perftop.base.format import MISSING, many
from perftop.draw import heat_ramp, theme
from perftop.draw.strips import Run, at_rest, doubted, fit, foreign, shed, spread, width
from perftop.model.numbers import INDEX, METRICS
from perftop.model.tasks import task
from perftop.session import values as columns
from perftop.session.interval import Interval
from perftop.session.missing import Reasons, doubts
from perftop.session.session import Session
from perftop.tui.heat.layout import Cell
from perftop.tui.heat.values import Heat
from perftop.tui.shared.places import Place, Places, package_name
from perftop.tui.shared.sheet import busiest

Piece = tuple[int, list[Run]]
"""Rank (the highest is left out first) and text."""
TOLD = 52
"""Columns reserved for the outlier, so that nothing moves when one appears."""
SIGNS = 42
"""Columns for the meaning of the signs."""
NARROW = 100
"""Minimum columns for a full ramp; below it every other step is shown."""
ROOMY = 50
"""Minimum columns of a heading that shows the ceiling beside the clock."""


def title(heat: Heat, size: int) -> list[Run]:
    runs: list[Run] = [(" heat map", "bright"), (" · ", "faint"), (heat.field.words, "text")]
    lead = "   next: "
    room = size - width(runs) - len(lead)
    shown: list[str] = []
    for name in heat.others:
        if sum(len(other) + 3 for other in shown) + len(name) > room:
            break
        shown.append(name)
    return [*runs, (lead, "faint"), (" · ".join(shown), "dim")] if shown else runs


def legend(
    heat: Heat, places: Places, cell: Cell, size: int, *, asked: bool, ascii_: bool
) -> list[Run]:
    """How to read a cell, the ramp with its ends, and the furthest outlier."""
    low, high = heat.text(heat.scale.low), heat.text(heat.scale.high)
    if heat.field.unit == "ratio":
        low, high = (f"{100 * end:.0f}" for end in (heat.scale.low, heat.scale.high))
    steps = heat_ramp.ramp(ascii_=ascii_)
    if size < NARROW and not ascii_:
        steps = steps[1::2]
    ramp = [(f"{low} ", "dim"), *steps, (f" {high} {heat.unit.name}".rstrip(), "dim")]
    room = size - TOLD - width(ramp) - 4
    ways = _ways(heat, places, cell, ascii_=ascii_)
    how = next((way for way in ways if width(way) <= room), ways[-1])
    left: list[Run] = [(" ", "text"), *how, ("  ", "text"), *ramp]
    if size - width(left) - TOLD >= SIGNS:
        idle = "idle or " if heat.field.of_running else ""
        left += [("   – ", "faint"), (f"{idle}unknown  ", "dim"), (theme.SUSPECT, "dim"),
                 (" doubtful  ", "dim"), (theme.NEITHER, "neither"), (" off", "dim")]  # fmt: skip
    room = size - width(left) - 3
    right = outlier(heat, places, room)
    if not right:
        text = next((text for text in _ALIKE if len(text) <= room), "")
        right = [(text, "bright" if asked else "dim")]
    return spread(left, right, size - 1)


_ALIKE = "no core differs from its package", "no core differs", "all alike"


def _ways(heat: Heat, places: Places, cell: Cell, *, ascii_: bool) -> list[list[Run]]:
    """Explanations of a cell, the longest first."""
    if not places.pairs:
        return [[("a cell is a CPU", "dim")], []]
    if heat.field.of_core or places.threads == 1:
        return [[("a cell is a core", "dim")], []]
    if places.threads > 2:
        last, order = f"lp{places.threads - 1}", "row by row" if ascii_ else "from above"
        return [[(f"a cell is a core: lp0 to {last} {order}", "dim")],
                [(f"lp0–{last[2:]} {order}", "dim")]]  # fmt: skip
    if not cell.halves:
        return [[("a cell is a core: lp0 above lp1", "dim")], [("lp0 above lp1", "dim")]]
    if ascii_:
        return [[("a cell is a core: left lp0, right lp1", "dim")], [("lp0 lp1", "dim")]]
    pair: list[Run] = [(theme.LP0, "lp0"), (" lp0  ", "dim"), (theme.LP1, "lp1"), (" lp1", "dim")]
    long: list[Run] = [("a cell is a core: ", "dim"),
                       (theme.LP0, "lp0"), (" upper half lp0, ", "dim"),
                       (theme.LP1, "lp1"), (" lower half lp1", "dim")]  # fmt: skip
    return [long, pair]


def outlier(heat: Heat, places: Places, room: int) -> list[Run]:
    """The furthest outlier and the number of others, as far as they fit into `room` columns."""
    at = {place.at: i for i, place in enumerate(places.places)}
    far = [found for found in heat.outliers if found.far and found.core in at]
    if not far:
        return []
    first = far[0]
    i = at[first.core]
    what = "core" if places.pairs else "CPU"
    name = f"outlier {what} {places.name(i, '')}"
    kind = places.places[i].type
    of = "package" if kind is None else f"{foreign(kind)}-core"
    value = f" · {heat.text(heat.values[first.row])} {heat.unit.name}".rstrip()
    usual = heat.text(first.usual)
    more = f" and {len(far) - 1} more" if len(far) > 1 else ""
    for text in (f"{name}{value}, {of} median {usual}{more}", f"{name}{value}, {of} median {usual}",
                 f"{name}{value}, median {usual}", f"{name}{value}", name):  # fmt: skip
        if len(text) + 4 <= room:
            return [("[ ] ", "bright"), (text, "bright")]
        if len(text) <= room:
            return [(text, "bright")]
    return []


def heading(interval: Interval, places: Places, package: int | None, heat: Heat, size: int
            ) -> list[Run]:  # fmt: skip
    """Heading of a package, worded as in the overview; what does not fit is left out."""
    mine = [places.places[i] for i in places.of_package(package)]
    rows = [row for place in mine for row in place.rows if row in places.shown]
    what = many(len(mine), "core" if places.pairs else "CPU")
    pieces: list[Piece] = [(0, [(f" {package_name(package)}", "bright")]), (3, [(what, "dim")])]
    found = interval.values.group(rows, [INDEX[key] for key in ("util", "busy_hz")])
    util, busy = map(float, found)
    if not isnan(util):
        pieces.append((1, [("busy ", "dim"), (f"{100 * util:5.1f}", "text"), (" %", "dim")]))
    if not isnan(busy):
        wide, down = size >= ROOMY, package in heat.limited
        clock: list[Run] = [("clock " if wide else "", "dim"),
                            (heat.hz(busy), "alarm" if down else "text")]  # fmt: skip
        at = [place.at for place in mine for row in place.rows if row in places.shown]
        ceiling = columns.mean_ceiling(interval.ceiling_hz[at], interval.values["util"][rows])
        if wide and not isnan(ceiling):
            clock += [(" of ", "dim"), (heat.hz(ceiling), "text")]
        clock.append((f" {heat.clock.name}", "dim"))
        pieces.append((2, [*clock, (f" {theme.DROPPED}", "alarm")] if down else clock))
    runs = shed(pieces, size, 2)
    return [*runs, (" " + theme.RULE * (size - width(runs) - 2), "rule"), (" ", "text")]


def foot(session: Session, interval: Interval, places: Places, i: int, heat: Heat, size: int
         ) -> list[Run]:  # fmt: skip
    """Numbers of the core in row `i`, and reasons to doubt them."""
    place = places.places[i]
    name = f" {'core' if places.pairs else 'CPU'} {places.name(i, '')}"
    pieces: list[Piece] = [(0, [(theme.CURSOR[0], "mark"), (name, "bright")])]
    if places.pairs:
        pieces.append((5, [(f"cpus {places.cpus[i]}", "dim")]))
    pieces.append((1, _field(place, heat, interval)))
    pieces += _numbers(session, interval, place, heat)
    unlike = next((o for o in heat.outliers if o.far and o.core == place.at), None)
    if unlike is not None:
        pieces.append((2, [("outlier, median ", "text"), (heat.text(unlike.usual), "bright")]))
    tasks = (task(interval.tasks.get(str(cpu))) for cpu in place.cpus)
    if who := [foreign(f"{it.comm}:{it.pid}"[:32]) for it in tasks if it]:
        pieces.append((7, [(" · ".join(who), "text")]))
    against = "; ".join(dict.fromkeys(_against(session, interval, place, heat)))
    if not against:
        return shed(pieces, size - 1, 2)
    runs = shed(pieces, size - 1 - min(len(against) + 2, size // 2), 2)
    room = size - 3 - width(runs)
    return [*runs, ("  ", "text"), (fit(against, min(room, len(against))), "text")]


def _field(place: Place, heat: Heat, interval: Interval) -> list[Run]:
    """Values of the map's field for each sibling."""
    if heat.field.of_core or len(place.rows) == 1:
        rows: Sequence[int] = place.rows[:1]
        runs: list[Run] = [(f"{heat.field.words} ", "dim")]
    else:
        rows, runs = place.rows, []
    wide = 5 if heat.field.unit == "ratio" else 4
    if len(rows) > 2:
        runs.append((f"lp0–{len(rows) - 1} ", "dim"))
    for thread, row in enumerate(rows):
        if len(rows) == 2:
            runs.append((f"{'  ' * thread}lp{thread} ", "dim"))
        elif thread:
            runs.append((" ", "text"))
        runs.append(_value(heat, row, wide, interval))
    return [*runs, (f" {heat.unit.name}", "dim")] if heat.unit.name else runs


def _value(heat: Heat, row: int, wide: int, interval: Interval) -> Run:
    value = heat.values[row]
    if not interval.online[row]:
        return f"{'off':>{wide}}", "dim"
    if interval.resting[row] and heat.field.of_running:
        return at_rest(wide)
    if isnan(value):
        return f"{MISSING:>{wide}}", "faint"
    told: Run = f"{heat.text(value):>{wide}}", "bright"
    return doubted(told) if heat.doubted[row] else told


def _numbers(session: Session, interval: Interval, place: Place, heat: Heat) -> Iterator[Piece]:
    """Numbers of the core as a whole."""
    rows = list(place.rows)

    trouble = heat.troubles.of(rows) if heat.troubles else None
    chosen = session.evaluator.chosen
    values = {key: interval.values[key][rows].tolist() for key in ("util", "busy_hz", "ipc")}

    def told(key: str, i: int, text: str) -> Run:
        if any(columns.doubted(key, session, interval)[rows[i : i + 1]]):
            return doubted((f" {text}", "text"))
        lost = trouble is not None and (rows[i], key) in trouble.lost
        return text, "alarm" if lost else "text"

    def one(key: str, i: int, wide: int, text: str) -> Run:
        if interval.resting[rows[i]] and METRICS[key].of_running:
            return at_rest(wide)
        return told(key, i, f"{MISSING if isnan(values[key][i]) else text:>{wide}}")

    def each(key: str, scale: float, digits: int) -> Iterator[Run]:
        for i, value in enumerate(values[key]):
            yield one(key, i, 4 + (digits < 2) + bool(i), f"{value * scale:.{digits}f}")

    lead = int(busiest(np.array(values["util"]), np.array(values["busy_hz"])))
    if heat.field.key != "util" and not all(map(isnan, values["util"])):
        yield 6, [("busy ", "dim"), *each("util", 100.0, 1), (" %", "dim")]
    if chosen["busy_hz"]:
        ceiling = float(interval.ceiling_hz[place.at])
        of: list[Run] = [] if isnan(ceiling) else [(" of ", "dim"), (heat.hz(ceiling), "text")]
        clock = one("busy_hz", lead, 4, heat.hz(values["busy_hz"][lead]))
        yield 2, [("clock ", "dim"), clock, *of, (f" {heat.clock.name}", "dim")]
    split = interval.split
    both = float(split.states[place.at][3])
    if not isnan(both) and heat.field.key != "both" and len(place.rows) > 1:
        yield 4, [("both ", "dim"), told("both", 0, f"{100 * both:5.1f}"), (" %", "dim")]
    elif split.method[place.at] == "bounds" and not isnan(low := float(split.low[place.at][3])):
        high = float(split.high[place.at][3])
        yield 4, [("both ", "dim"), (f"{100 * low:.0f}–{100 * high:.0f}", "text"), (" %", "dim")]
    if heat.field.key != "ipc" and chosen["ipc"]:
        yield 3, [("IPC ", "dim"), *each("ipc", 1.0, 2)]


def _against(session: Session, interval: Interval, place: Place, heat: Heat) -> Iterator[str]:
    """Reasons why values of this core are doubtful or absent."""
    for row in place.rows:
        for reason in doubts(interval, row):
            yield f"{theme.SUSPECT} {foreign(reason)}"
    for row in place.rows:
        if interval.online[row] and isnan(heat.values[row]):
            if interval.resting[row] and heat.field.of_running:
                continue
            bounds = interval.split.method[place.at] == "bounds"
            why = Reasons(session).in_short(heat.field.key, row, bounds=bounds)
            yield f"{MISSING}: {foreign(why)}"
