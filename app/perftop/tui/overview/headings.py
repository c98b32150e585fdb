"""Lines of packages in the overview: what their rows need not repeat, and what befalls a package as
a whole."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

import numpy as np

from perftop.base.arrays import Ints
from perftop.base.text import ranges
from perftop.draw import bars, theme
from perftop.draw.strips import Run, width
from perftop.model.episode import Episode
from perftop.model.machine_totals import MEMORY, OF_BEST
from perftop.model.numbers import INDEX
from perftop.output.sentences import depth
from perftop.session.values import mean_ceiling
from perftop.tui.overview.lines import Picture, start
from perftop.tui.shared import episode_style
from perftop.tui.shared.places import Line, package_name
from perftop.tui.shared.row_episodes import number
from perftop.tui.shared.sheet import of_package

GAP = 3
"""Cells between two numbers, where there is room."""
LEAST = 16
"""Minimum room for a bar, in cells; a narrower one cannot be read."""
_LOSE = {
    "sibling": "to a sibling", "hypervisor": "to the hypervisor", "steal": "to the hypervisor",
    "package": "clock to their package", "scheduler": "time in the queue",
    "memory": "to a pressed memory",
    "turbo-drop": "clock", "license": "clock", "throttle": "time to heat",
    "involuntary-halt": "time in halts", "smi": "time to firmware",
}  # fmt: skip
"""What cores lose, by kind of episode or cause of a neighbour."""


def heading(picture: Picture, line: Line, size: int, *, chosen: bool = False) -> list[Run]:
    """The line of a package, or of CPUs that are offline."""
    if line.kind == "off":
        return [(f"   off   CPUs {ranges(picture.places.strays)}", "dim")]
    package = picture.places.places[line.row].package
    every, wide = picture.troubles.on(package)
    mark: Run = (theme.CHOSEN, "mark") if chosen else (" ", "text")
    sign: Run = (episode_style.sign(every[0]), "alarm") if every else (" ", "text")
    told = _Filling([mark, sign, (" ", "text"), (package_name(package), "bright")], size)
    util, hz = _over(picture, package)
    if not isnan(util):
        busy: list[Run] = [("busy ", "dim"), (f"{100 * util:4.1f}", "text"), (" %", "dim")]
        told.place(busy, start(picture, "bar"))
    told.place(_clock(picture, package, hz, wide))
    cpu = picture.places.places[line.row].cpus[0]
    losses = _losses(picture, package, wide, told.room - GAP - 1)
    left = width(losses) + 2 * GAP
    power = _power(picture, cpu)
    if width(power) + left <= told.room or not losses:
        told.place(power, start(picture, "work"))
    memory = _memory(picture, cpu)
    if width(memory) + left <= told.room:
        told.place(memory)
    told.place(losses)
    room = max(0, told.room - 2)
    bar = _states(picture, picture.rows(package), room) if line.kind == "folded" else []
    return [*told.runs, *(bar or [(" " + theme.RULE * room, "rule")])]


class _Filling:
    """A line of `size` cells that is filled from its left."""

    def __init__(self, runs: list[Run], size: int) -> None:
        self.runs, self._size = runs, size
        self.room = size - width(runs)
        """Cells that are left."""

    def place(self, piece: list[Run], column: int = 0) -> None:
        """Append a piece if it fits with a cell behind it, at this column if that is further
        right."""
        wide, most = width(piece), self.room - 1
        gap = min(GAP, max(1, most - wide))
        ahead = column - (self._size - self.room)
        if ahead > gap and ahead + wide <= most:
            gap = ahead
        if piece and gap + wide <= most:
            self.runs += [(" " * gap, "text"), *piece]
            self.room -= gap + wide


def _over(picture: Picture, package: int | None) -> tuple[float, float]:
    """Utilisation and clock of all CPUs of a package that the user asked for."""
    values, cpus = picture.sheet.interval.values, picture.cpus(package)
    util, hz = values.group(cpus, [INDEX["util"], INDEX["busy_hz"]]).tolist()
    return util, hz


def _clock(picture: Picture, package: int | None, hz: float, wide: Iterable[Episode]) -> list[Run]:
    """Clock of the package's CPUs while they ran, red if the whole package lost some."""
    if isnan(hz):
        return []
    unit, per_hz, digits = picture.clock
    red = any(number(episode) == "busy_hz" for episode in wide)
    runs: list[Run] = [("clock ", "dim")]
    runs.append((f"{hz * per_hz:.{digits}f}", "alarm" if red else "text"))
    rows, sheet = picture.rows(package), picture.sheet
    ceiling = mean_ceiling(sheet.ceiling[rows, None], sheet.util[rows])
    if not isnan(ceiling):
        runs.append((f" of {ceiling * per_hz:.{digits}f}", "dim"))
    return [*runs, (f" {unit}", "dim")]


def _power(picture: Picture, cpu: int) -> list[Run]:
    sheet = picture.sheet
    keys = "power_w", "power_limit_w", "power_dram_w"
    power, limit, dram = of_package(sheet.reader.session, sheet.interval, cpu, *keys)
    if isnan(power):
        return []
    of = "" if isnan(limit) else f" of {limit:.0f}"
    more: list[Run] = (
        [] if isnan(dram) else [(" + ", "dim"), (f"{dram:.0f}", "text"), (" dram", "dim")]
    )
    return [(f"{power:3.0f}", "text"), (f"{of} W", "dim"), *more]


def _memory(picture: Picture, cpu: int) -> list[Run]:
    """Traffic to memory, and its share of the best that this run has seen."""
    sheet = picture.sheet
    *rates, share = of_package(sheet.reader.session, sheet.interval, cpu, *MEMORY, OF_BEST)
    rate = sum(rates)
    if isnan(rate):
        return []
    of = "" if isnan(share) else f" {100 * share:3.0f} % of best"
    return [("mem ", "dim"), (f"{rate / 1e9:5.1f}", "text"), (f" GB/s{of}", "dim")]


def _losses(picture: Picture, package: int | None, wide: Iterable[Episode], room: int) -> list[Run]:
    """What the whole package lost; else how many of its cores lose something."""
    worst = next(iter(wide), None)
    if worst is not None:
        return [(f"{worst.kind} {depth(worst.kind, worst.depth)}".rstrip(), "alarm")]
    rows = picture.rows(package)
    places = picture.places.places
    counts = picture.troubles.count(places[row].rows for row in rows.tolist())
    if not counts:
        return []
    name, count = max(counts.items(), key=lambda item: item[1])
    what = ("core" if picture.places.pairs else "CPU") + ("s" if len(rows) > 1 else "")
    loses = "loses" if count == 1 else "lose"
    text = f"{count} of {len(rows)} {what} {loses}"
    long = f"{text} {_LOSE.get(name, '')}".rstrip()
    return [(long if room >= len(long) else text, "text")]


def _states(picture: Picture, rows: Ints, width: int) -> list[Run]:
    """Bar of SMT states, averaged over these rows."""
    states = picture.sheet.states(rows)
    known = states[~np.isnan(states[:, 3])]
    if not len(known) or width < LEAST:
        return []
    return [("  ", "text"), *bars.smt(known.mean(axis=0).tolist(), width - 2)]
