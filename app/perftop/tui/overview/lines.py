"""Lines of the grid as runs of text. Pure: takes a row of a sheet, returns text and style keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from perftop.base.format import GHZ, MISSING, ClockUnit
from perftop.draw import bars, theme
from perftop.draw.strips import QUIET, Run, doubted, fit, number, task
from perftop.session.columns import BY_KEY
from perftop.tui.shared.placed_column import Placed
from perftop.tui.shared.places import Places
from perftop.tui.shared.sheet import Sheet


@dataclass(slots=True)
class Picture:
    """Everything that rows are drawn from."""

    places: Places
    sheet: Sheet
    columns: Sequence[Placed]
    recent: Callable[[int], list[float]] | None = None
    """Recent utilisation of a CPU (by position); None if no column shows it."""
    order: str = "topology"
    clock: ClockUnit = GHZ
    ascii_: bool = False
    tall: int = 1
    """Lines of a row."""


def row(picture: Picture, i: int, part: int = 0, *, chosen: bool = False) -> list[Run]:
    """A line of one core or CPU; `part` counts the lines of a tall row, 0 is the top one."""
    sheet = picture.sheet
    if part > 0:
        return _below(picture, i, part)
    runs: list[Run] = [(theme.CHOSEN, "mark") if chosen else (" ", "text")]
    if not any(sheet.online[i]):
        return runs + _off(picture, i)
    for column in picture.columns:
        _DRAW.get(column.key, _number)(picture, i, column, runs)
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


def _off(picture: Picture, i: int) -> list[Run]:
    runs: list[Run] = []
    for column in picture.columns:
        if column.key in {"core", "cpus"}:
            _DRAW[column.key](picture, i, column, runs)
        elif column.key in {"bar", "use"}:
            runs.append((f"  {'off':<{column.width - 2}}", "dim"))
        else:
            runs.append((" " * column.width, "dim"))
    return runs


def _share(value: float, width: int) -> Run:
    return number(100 * value, 1, width, "dim" if value < QUIET else "text")


def _core(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    key = "alarm" if p.sheet.alone[i] else "text"
    runs.append((f"{p.places.name(i, p.order):>{column.width}}", key))


def _cpus(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    runs.append(("  " + fit(p.places.cpus[i], column.width - 2), "dim"))


def _bar(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    sheet, width = p.sheet, column.width - 2
    runs.append(("  ", "text"))
    states, online = sheet.states[i], sheet.online[i]
    method = sheet.method[i]
    if method == "bounds" and not isnan(sheet.low[i][0]):
        runs += bars.possible(sheet.low[i], width)
    elif method == "single" and not isnan(states[1]):
        thread = online.index(True) if len(online) > 1 else None
        runs += bars.single(states[1], width, thread)
    elif not isnan(states[3]):
        runs += bars.smt(states, width)
    elif not isnan(states[0]):
        runs += bars.possible([states[0], 0.0, 0.0, 0.0], width)
    else:
        runs.append((f"{MISSING:<{width}}", "faint"))


def _use(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    sheet, width = p.sheet, column.width - 2
    runs.append(("  ", "text"))
    util, system = sheet.util[i][0], sheet.numbers["system"][i]
    if isnan(util):
        runs.append((f"{MISSING:<{width}}", "faint"))
        return
    steal = 0.0 if isnan(sheet.numbers["steal"][i]) else sheet.numbers["steal"][i]
    kernel = 0.0 if isnan(system) else min(util, system)
    runs += bars.account(util - kernel, kernel, steal, width)


def _util(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    sheet, width = p.sheet, column.width
    if column.arg < 0:
        there = [u for u, on in zip(sheet.util[i], sheet.online[i], strict=True) if on]
        runs.append(_share(sum(there) / len(there), width))
    elif column.arg >= len(sheet.util[i]):
        runs.append((" " * width, "text"))
    elif not sheet.online[i][column.arg]:
        runs.append((f"{'off':>{width}}", "dim"))
    elif sheet.suspect[i][column.arg]:
        runs.append(doubted(_share(sheet.util[i][column.arg], width)))
    else:
        runs.append(_share(sheet.util[i][column.arg], width))


def _busy(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    sheet, width = p.sheet, column.width - 1
    value = sheet.busy[i]
    key = "alarm" if sheet.alone[i] else _awake(sheet, i)
    told = number(value * p.clock.per_hz, p.clock.digits, width, key)
    if sheet.doubted["busy_hz"][i]:
        runs += [doubted(told), (" ", "text")]
        return
    runs.append(told)
    runs.append((theme.DROPPED, "alarm" if sheet.alone[i] else "text") if sheet.dropped[i]
                else (" ", "text"))  # fmt: skip


def _awake(sheet: Sheet, i: int) -> str:
    return "text" if sheet.awake[i] else "dim"


def _clock(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    sheet = p.sheet
    key = "alarm" if sheet.alone[i] else "clock" if _awake(sheet, i) == "text" else "faint"
    runs.append((" ", "text"))
    runs += bars.clock(sheet.busy[i], sheet.ceiling[i], sheet.top_hz, column.width - 1, key)


def _number(p: Picture, i: int, slot: Placed, runs: list[Run]) -> None:
    column, value = BY_KEY[slot.key], p.sheet.numbers[slot.key][i]
    scale, digits = column.scale(p.clock, brief=True)
    if column.unit == "Hz":
        key = "dim"
    elif column.of_running:
        key = _awake(p.sheet, i)
    else:
        key = "warn" if value >= column.stands_out else "dim" if value < QUIET else "text"
    told = number(value * scale, digits, slot.width, key)
    runs.append(
        doubted(told) if slot.key in p.sheet.doubted and p.sheet.doubted[slot.key][i] else told
    )


def _history(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    _graph(p, i, column, runs, 0)


def _graph(p: Picture, i: int, column: Placed, runs: list[Run], part: int) -> None:
    high = p.tall - 1 if p.tall > 2 else p.tall  # an empty line below sets tall rows apart
    place = p.places.places[i]
    width = column.width // len(place.rows) - 2
    for row in place.rows:
        runs.append(("  ", "text"))
        if part < high and p.recent is not None:
            runs += bars.history(p.recent(row), width, part, high, ascii_=p.ascii_)
        else:
            runs.append((" " * width, "text"))
    runs.append((" " * (column.width - (width + 2) * len(place.rows)), "text"))


def _who(p: Picture, i: int, column: Placed, runs: list[Run]) -> None:
    """Each sibling has its own part of the column; names are joined if parts are too narrow."""
    tasks, width = p.sheet.tasks, column.width - 2
    names = [task(tasks.get(str(cpu))) for cpu in p.places.places[i].cpus]
    part = width // len(names)
    text = "".join(fit(name, part - 1) + " " for name in names) if part >= 14 else (
        fit(" ".join(name for name in names if name), width))  # fmt: skip
    runs.append(("  " + fit(text, width), "dim"))


_DRAW: dict[str, Callable[[Picture, int, Placed, list[Run]], None]] = {
    "core": _core, "cpus": _cpus, "bar": _bar, "use": _use, "util": _util, "busy_hz": _busy,
    "clock": _clock, "history": _history, "who": _who,
}  # fmt: skip
"""Drawing function of a column, by its key; `_number` draws all other columns."""
