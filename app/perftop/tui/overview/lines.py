"""Lines of the grid as runs of text. Pure: takes a row of a sheet, returns text and style keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from perftop.base.arrays import Ints
from perftop.base.format import GHZ, MISSING, ClockUnit
from perftop.draw import bars, theme
from perftop.draw.strips import QUIET, Run, doubted, fit, number, task
from perftop.session.columns import BY_KEY
from perftop.tui.shared.placed_column import Placed
from perftop.tui.shared.places import Places
from perftop.tui.shared.sheet import Row, Sheet


@dataclass(slots=True)
class Picture:
    """Everything that rows are drawn from."""

    places: Places
    sheet: Sheet
    columns: Sequence[Placed]
    recent: Callable[[int], bytes] | None = None
    """Recent utilisation of a CPU (by position), as `bars.history` takes it; None if no column
    shows it."""
    order: str = "topology"
    clock: ClockUnit = GHZ
    ascii_: bool = False
    tall: int = 1
    """Lines of a row."""
    _groups: dict[tuple[int | None, ...], Ints] = field(default_factory=dict)

    @property
    def high(self) -> int:
        """Lines of a graph: an empty line below sets tall rows apart."""
        return self.tall - 1 if self.tall > 2 else self.tall

    def rows(self, *of: int | None) -> Ints:
        """The rows of a package, or of a package and L3."""
        if of not in self._groups:
            groups = self.places.groups.items()
            found = [row for key, rows in groups if key[: len(of)] == of for row in rows]
            self._groups[of] = np.array(found, np.intp)
        return self._groups[of]


def row(picture: Picture, i: int, part: int = 0, *, chosen: bool = False) -> list[Run]:
    """A line of one core or CPU; `part` counts the lines of a tall row, 0 is the top one."""
    if part > 0:
        return _below(picture, i, part)
    runs: list[Run] = [(theme.CHOSEN, "mark") if chosen else (" ", "text")]
    cells = picture.sheet.row(i)
    if True not in cells.online:
        return runs + _off(picture, cells)
    for column in picture.columns:
        _DRAW.get(column.key, _number)(picture, cells, column, runs)
    return runs


def _below(picture: Picture, i: int, part: int) -> list[Run]:
    """A lower line of a tall row: only the graph continues below the numbers."""
    runs: list[Run] = [(" ", "text")]
    for column in picture.columns:
        if column.key == "history":
            _graph(picture, i, column, runs, part)
        else:
            runs.append((" " * column.width, "text"))
    return runs


def _off(picture: Picture, row: Row) -> list[Run]:
    runs: list[Run] = []
    for column in picture.columns:
        if column.key in {"core", "cpus"}:
            _DRAW[column.key](picture, row, column, runs)
        elif column.key in {"bar", "use"}:
            runs.append((f"  {'off':<{column.width - 2}}", "dim"))
        else:
            runs.append((" " * column.width, "dim"))
    return runs


def _share(value: float, width: int) -> Run:
    return number(100 * value, 1, width, "dim" if value < QUIET else "text")


def _core(p: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    key = "alarm" if row.alone else "text"
    runs.append((f"{p.places.name(row.at, p.order):>{column.width}}", key))


def _cpus(p: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    runs.append(("  " + fit(p.places.cpus[row.at], column.width - 2), "dim"))


def _bar(_: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    width = column.width - 2
    runs.append(("  ", "text"))
    states, online = row.states, row.online
    method = row.method
    if method == "bounds" and not isnan(row.low[0]):
        runs += bars.possible(row.low, width)
    elif method == "single" and not isnan(states[1]):
        thread = online.index(True) if len(online) > 1 else None
        runs += bars.single(states[1], width, thread)
    elif not isnan(states[3]):
        runs += bars.smt(states, width)
    elif not isnan(states[0]):
        runs += bars.possible([states[0], 0.0, 0.0, 0.0], width)
    else:
        runs.append((f"{MISSING:<{width}}", "faint"))


def _use(_: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    width = column.width - 2
    runs.append(("  ", "text"))
    util, system = row.util[0], row.numbers["system"]
    if isnan(util):
        runs.append((f"{MISSING:<{width}}", "faint"))
        return
    steal = 0.0 if isnan(row.numbers["steal"]) else row.numbers["steal"]
    kernel = 0.0 if isnan(system) else min(util, system)
    runs += bars.account(util - kernel, kernel, steal, width)


def _util(_: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    width = column.width
    if column.arg < 0:
        there = [u for u, on in zip(row.util, row.online, strict=True) if on]
        runs.append(_share(sum(there) / len(there), width))
    elif column.arg >= len(row.util):
        runs.append((" " * width, "text"))
    elif not row.online[column.arg]:
        runs.append((f"{'off':>{width}}", "dim"))
    elif row.suspect[column.arg]:
        runs.append(doubted(_share(row.util[column.arg], width)))
    else:
        runs.append(_share(row.util[column.arg], width))


def _busy(p: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    width = column.width - 1
    key = "alarm" if row.alone else _awake(row)
    told = number(row.busy * p.clock.per_hz, p.clock.digits, width, key)
    if "busy_hz" in row.doubted:
        runs += [doubted(told), (" ", "text")]
        return
    runs.append(told)
    runs.append((theme.DROPPED, "alarm" if row.alone else "text") if row.dropped
                else (" ", "text"))  # fmt: skip


def _awake(row: Row) -> str:
    return "text" if row.awake else "dim"


def _clock(p: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    key = "alarm" if row.alone else "clock" if _awake(row) == "text" else "faint"
    runs.append((" ", "text"))
    runs += bars.clock(row.busy, row.ceiling, p.sheet.top_hz, column.width - 1, key)


def _number(p: Picture, row: Row, slot: Placed, runs: list[Run]) -> None:
    column, value = BY_KEY[slot.key], row.numbers[slot.key]
    scale, digits = column.scale(p.clock, brief=True)
    if column.unit == "Hz":
        key = "dim"
    elif column.of_running:
        key = _awake(row)
    else:
        key = "warn" if value >= column.stands_out else "dim" if value < QUIET else "text"
    told = number(value * scale, digits, slot.width, key)
    runs.append(doubted(told) if slot.key in row.doubted else told)


def _history(p: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    _graph(p, row.at, column, runs, 0)


def _graph(p: Picture, i: int, column: Placed, runs: list[Run], part: int) -> None:
    high = p.high
    place = p.places.places[i]
    width = column.width // len(place.rows) - 2
    for row in place.rows:
        runs.append(("  ", "text"))
        if part < high and p.recent is not None:
            runs += bars.history(p.recent(row), width, part, high, ascii_=p.ascii_)
        else:
            runs.append((" " * width, "text"))
    runs.append((" " * (column.width - (width + 2) * len(place.rows)), "text"))


def _who(p: Picture, row: Row, column: Placed, runs: list[Run]) -> None:
    """Each sibling has its own part of the column; names are joined if parts are too narrow."""
    tasks, width = p.sheet.tasks, column.width - 2
    names = [task(tasks.get(str(cpu))) for cpu in p.places.places[row.at].cpus]
    part = width // len(names)
    text = "".join(fit(name, part - 1) + " " for name in names) if part >= 14 else (
        fit(" ".join(name for name in names if name), width))  # fmt: skip
    runs.append(("  " + fit(text, width), "dim"))


_DRAW: dict[str, Callable[[Picture, Row, Placed, list[Run]], None]] = {
    "core": _core, "cpus": _cpus, "bar": _bar, "use": _use, "util": _util, "busy_hz": _busy,
    "clock": _clock, "history": _history, "who": _who,
}  # fmt: skip
"""Drawing function of a column, by its key; `_number` draws all other columns."""
