"""Rows of the grid as runs of text. Pure: takes a row of a sheet, returns text and style keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from perftop.base.arrays import Ints
from perftop.base.format import GHZ, MISSING, ClockUnit
from perftop.draw import bars, theme
from perftop.draw.strips import QUIET, Run, at_rest, doubted, fit, foreign, number
from perftop.samples.metrics import METRICS
from perftop.session.interval import Tasks
from perftop.tui.overview.layout import BEFORE, SLOTS
from perftop.tui.overview.recent import Recent
from perftop.tui.shared.placed_column import Placed
from perftop.tui.shared.places import Places
from perftop.tui.shared.sheet import IDLE, LEAD, Row, Sheet
from perftop.tui.shared.trouble import Trouble, Troubles


@dataclass(slots=True)
class Picture:
    """Everything that rows are drawn from."""

    places: Places
    sheet: Sheet
    columns: Sequence[Placed]
    troubles: Troubles
    recent: Recent | None = None
    """The past of the rows in sight; None if no column shows it."""
    order: str = "topology"
    clock: ClockUnit = GHZ
    _groups: dict[int | None, tuple[Ints, Ints]] = field(default_factory=dict)
    _names: dict[int, list[str]] = field(default_factory=dict)
    """The tasks by row, as far as they were asked for; they are told anew once a second."""
    _of: Tasks | None = None
    """What these names are from."""

    def tasks(self, row: int) -> list[str]:
        """Names and pids of the tasks on the CPUs of a row."""
        if (tasks := self.sheet.interval.tasks) is not self._of:
            self._of, self._names = tasks, {}
        if row not in self._names:
            self._names[row] = [_task(tasks, cpu) for cpu in self.places.places[row].cpus]
        return self._names[row]

    def rows(self, package: int | None) -> Ints:
        """The rows of a package."""
        return self._group(package)[0]

    def cpus(self, package: int | None) -> Ints:
        """Positions of the CPUs of a package that the user asked for."""
        return self._group(package)[1]

    def _group(self, package: int | None) -> tuple[Ints, Ints]:
        if package not in self._groups:
            rows, reader = np.array(self.places.of_package(package), np.intp), self.sheet.reader
            self._groups[package] = rows, reader.cpus[rows][reader.asked[rows]]
        return self._groups[package]


def row(picture: Picture, i: int, *, chosen: bool = False) -> tuple[list[Run], theme.Mood]:
    """The line of one core or CPU, and how it is drawn."""
    mark: Run = (theme.CHOSEN, "mark") if chosen else (" ", "text")
    calm: theme.Mood = "chosen" if chosen else "calm"
    cells = picture.sheet.row(i)
    if True not in cells.online:
        return [mark, (" ", "text"), *_off(picture, cells)], calm
    trouble = picture.troubles.of(picture.places.places[i].rows) if picture.troubles else None
    runs = [mark, (trouble.sign, trouble.key) if trouble else (" ", "text")]
    for column in picture.columns:
        _DRAW.get(column.key, _number)(picture, cells, column, trouble, runs)
    if trouble is None or not trouble.victim:
        return runs, calm
    return runs, "chosen victim" if chosen else "victim"


def _off(picture: Picture, row: Row) -> list[Run]:
    runs: list[Run] = []
    for column in picture.columns:
        if column.key in {"core", "cpus"}:
            _DRAW[column.key](picture, row, column, None, runs)
        elif column.key in {"bar", "use"}:
            runs.append((f"  {'off':<{column.width - 2}}", "dim"))
        else:
            runs.append((" " * column.width, "dim"))
    return runs


def _quiet(row: Row, key: str) -> str:
    return "faint" if row.idle else key


def _core(p: Picture, row: Row, column: Placed, trouble: Trouble | None, runs: list[Run]) -> None:
    key = "bright" if trouble and trouble.victim else _quiet(row, "text")
    runs.append((f"{p.places.name(row.at, p.order):>{column.width}}", key))


def _cpus(p: Picture, row: Row, column: Placed, _: Trouble | None, runs: list[Run]) -> None:
    runs.append(("  " + fit(p.places.cpus[row.at], column.width - 2), _quiet(row, "dim")))


def _cache(p: Picture, row: Row, column: Placed, _: Trouble | None, runs: list[Run]) -> None:
    l3 = p.places.places[row.at].l3
    runs.append((f"{'' if l3 is None else l3:>{column.width}}", _quiet(row, "dim")))


def _bar(_: Picture, row: Row, column: Placed, __: Trouble | None, runs: list[Run]) -> None:
    width = column.width - 2
    runs.append(("  ", "text"))
    states, method = row.states, row.method
    if method == "bounds" and not isnan(row.low[0]):
        runs += bars.possible(row.low, width)
    elif method == "single" and not isnan(states[1]):
        thread = row.online.index(True) if len(row.online) > 1 else None
        runs += bars.single(states[1], width, thread)
    elif not isnan(states[3]):
        runs += bars.smt(states, width)
    elif not isnan(states[0]):
        runs += bars.possible([states[0], 0.0, 0.0, 0.0], width)
    else:
        runs.append((f"{MISSING:<{width}}", "faint"))


def _use(_: Picture, row: Row, column: Placed, __: Trouble | None, runs: list[Run]) -> None:
    width = column.width - 2
    runs.append(("  ", "text"))
    util, system, steal = (row.numbers[key][0] for key in ("util", "system", "steal"))
    if isnan(util):
        runs.append((f"{MISSING:<{width}}", "faint"))
        return
    kernel = 0.0 if isnan(system) else min(util, system)
    runs += bars.account(util - kernel, kernel, 0.0 if isnan(steal) else steal, width)


def _slots(p: Picture, row: Row, column: Placed, _: Trouble | None, runs: list[Run]) -> None:
    width = column.width - 2
    runs.append(("  ", "text"))
    at = p.places.places[row.at].rows[row.lead]
    values = p.sheet.interval.values
    retiring, frontend, speculation = (float(values[key][at]) for key in SLOTS)
    if row.resting[row.lead]:
        runs.append((f"{theme.NEITHER:<{width}}", "faint"))
    elif isnan(retiring + frontend + speculation):
        runs.append((f"{MISSING:<{width}}", "faint"))
    else:
        runs += bars.slots(retiring, frontend, speculation, width)


def _number(p: Picture, row: Row, slot: Placed, trouble: Trouble | None, runs: list[Run]) -> None:
    key, thread, width = slot.key, slot.arg, slot.width
    if thread == LEAD:
        thread = _which(p, row, key, trouble)
    if thread >= len(row.online):  # this core has fewer threads than others
        runs.append((" " * width, "text"))
    elif not row.online[thread]:
        runs.append((f"{'off':>{width}}", "dim"))
    elif row.resting[thread] and slot.column is not None and slot.column.of_running:
        runs.append(at_rest(width))
    else:
        value = row.numbers[key][thread]
        style = _style(p, row, slot, thread, value, trouble)
        told = number(value * slot.scale, slot.digits, width, style)
        runs.append(doubted(told) if (thread, key) in row.doubted else told)


def _which(p: Picture, row: Row, key: str, trouble: Trouble | None) -> int:
    """Index of the CPU whose number stands for its core: one that loses, else the busiest."""
    if trouble is not None:
        for i, at in enumerate(p.places.places[row.at].rows):
            if (at, key) in trouble.lost:
                return i
    return row.which(key, LEAD)


def _style(
    p: Picture, row: Row, slot: Placed, thread: int, value: float, trouble: Trouble | None
) -> str:
    key, column = slot.key, slot.column
    if trouble is not None and (p.places.places[row.at].rows[thread], key) in trouble.lost:
        return "alarm"
    if row.idle:
        return "faint"
    if column is None or key not in METRICS or key == "net_hz":
        return "dim"
    if column.of_running or column.unit == "Hz":
        return "text"
    if value >= column.stands_out:  # amber, unless the line of the package says it for all
        return "text" if trouble is not None and key in trouble.shared else "warn"
    return "dim" if value < QUIET else "text"


def _lost(p: Picture, _: Row, column: Placed, trouble: Trouble | None, runs: list[Run]) -> None:
    text = p.troubles.lost(trouble) if trouble is not None else ""
    runs.append((f"{text:>{column.width}}", "alarm" if text else "text"))


def _past(p: Picture, row: Row, column: Placed, trouble: Trouble | None, runs: list[Run]) -> None:
    runs.append((" " * column.gap, "text"))
    if p.recent is None:
        runs.append((" " * (column.width - column.gap), "text"))
    elif column.key == "work":
        runs += p.recent.work(row.at)
    else:
        runs += p.recent.ipc(row.at, trouble)


def _who(p: Picture, row: Row, column: Placed, trouble: Trouble | None, runs: list[Run]) -> None:
    """The tasks of the core; or the one that loses, and its taker."""
    place, room = p.places.places[row.at], column.width - column.gap
    names = p.tasks(row.at)
    runs.append((" " * column.gap, "text"))
    if trouble is not None and trouble.victim:
        tasks = dict(zip(place.rows, names, strict=True))
        taker = p.troubles.taker(trouble, tasks)
        loser = tasks.get(trouble.row, "")
        if loser and taker:
            runs += _taken(loser, taker, room)
        else:
            runs.append((fit(loser or taker, room), "bright"))
        return
    at_work = [
        name
        for name, util in zip(names, row.numbers["util"], strict=True)
        if name and (row.idle or not util < IDLE)
    ]
    runs.append((fit(" · ".join(dict.fromkeys(at_work)), room), "dim" if row.idle else "text"))


def _taken(loser: str, taker: str, room: int) -> list[Run]:
    """Who loses and who takes, without their numbers where those do not fit."""
    sign = f" {theme.TAKEN_BY} "
    if len(loser) + len(sign) + len(taker) > room:
        loser, taker = (name.rpartition(" ")[0] or name for name in (loser, taker))
    loser = fit(loser, min(len(loser), max(room - len(sign) - len(taker), room // 2 - 1)))
    left = max(0, room - len(loser) - len(sign))
    return [(loser, "bright"), (sign, "alarm"), (fit(taker, left), "taker")]


def _task(tasks: Tasks, cpu: int) -> str:
    """Name and pid of the task on a CPU; '' if none was seen."""
    match tasks.get(str(cpu)):
        case [int(pid), str(name), *_]:
            return foreign(f"{name[:64]} {pid}")
    return ""


def start(picture: Picture, key: str) -> int:
    """Cell at which the text of the column begins; 0 if there is no such column."""
    at = BEFORE
    for column in picture.columns:
        if column.key == key:
            return at + column.gap
        at += column.width
    return 0


_Draw = Callable[[Picture, Row, Placed, Trouble | None, list[Run]], None]
_DRAW: dict[str, _Draw] = {
    "core": _core, "cpus": _cpus, "l3": _cache, "bar": _bar, "use": _use, "lost": _lost,
    "slots": _slots, "work": _past, "past ipc": _past, "who": _who,
}  # fmt: skip
"""Drawing function of a column, by its key; `_number` draws all other columns."""
