"""Draws the rows of the overview's grid as runs of text, from rows of a sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isnan

from perftop.base.arrays import Ints
from perftop.base.text import GHZ, MISSING, ClockUnit
from perftop.draw import cells, strips, theme
from perftop.draw.columns import Column, Run, fit
from perftop.draw.strips import QUIET_SHARE, safe_cells
from perftop.model.numbers import METRICS
from perftop.model.smt import BOUNDS, SINGLE_METHOD
from perftop.session.interval import Tasks
from perftop.tui.overview.columns import SLOT_COLUMNS, RowHistories
from perftop.tui.shared.choice import Places
from perftop.tui.shared.episode_style import RowEpisode, RowEpisodes
from perftop.tui.shared.sheet import BUSIEST_CPU, MAX_IDLE_UTIL, Sheet, VisibleRows

WorstThread = Mapping[int, RowEpisode]
"""The worst running episode of each row, by the row's index among the lines being drawn."""
_BLANK: Run = (" ", "text")


@dataclass(slots=True)
class Grid:
    """The data of the grid, from which its lines are drawn."""

    places: Places
    sheet: Sheet
    columns: Sequence[Column]
    episodes: RowEpisodes
    histories: RowHistories | None = None
    """Histories of the visible rows; None if no column shows them."""
    order: str = "topology"
    clock: ClockUnit = GHZ
    _groups: dict[int | None, tuple[Ints, Ints]] = field(default_factory=dict)
    _names: dict[int, list[str]] = field(default_factory=dict)
    """Names of tasks by row, looked up when needed. They change once a second."""
    _named_tasks: Tasks | None = None
    """The task records from which `_names` were made."""

    def tasks(self, rows: Sequence[int]) -> list[list[str]]:
        """Returns names and PIDs of the tasks on the CPUs of each of these rows."""
        if (tasks := self.sheet.interval.tasks) is not self._named_tasks:
            self._named_tasks, self._names = tasks, {}
        names, places = self._names, self.places.places
        for row in rows:
            if row not in names:
                names[row] = [_task_name(tasks, cpu) for cpu in places[row].cpus]
        return [names[row] for row in rows]


def row_lines(grid: Grid, rows: Sequence[int]) -> dict[int, strips.Line]:
    """Returns the lines of cores or CPUs by row, with a blank in place of the mark of the selected
    row. Each column draws its cells in all lines at once."""
    online = grid.sheet.online[[*rows]].tolist()
    online_rows = [row for row, cpus in zip(rows, online, strict=True) if True in cpus]
    lines = _online_lines(grid, online_rows) if online_rows else []
    online_lines = dict(zip(online_rows, lines, strict=True))
    return {row: online_lines.get(row) or _offline_line(grid, row) for row in rows}


def _online_lines(grid: Grid, shown: Sequence[int]) -> list[strips.Line]:
    places, episodes = grid.places.places, grid.episodes
    rows = enumerate(places[i].rows for i in shown) if episodes else ()
    worst = {at: it for at, positions in rows if (it := episodes.on_rows(positions)) is not None}
    lines: list[list[Run]] = [[_BLANK, _BLANK] for _ in shown]
    for at, episode in worst.items():
        lines[at][1] = episode.sign, episode.key
    visible = VisibleRows(grid.sheet, shown)
    for column in grid.columns:
        _DRAW_CELLS.get(column.key, _draw_number)(grid, visible, column, worst, lines)
    victims = {at for at, episode in worst.items() if episode.victim}
    return [(runs, "victim" if at in victims else "calm") for at, runs in enumerate(lines)]


def selected_line(line: strips.Line) -> strips.Line:
    """Returns the line with the mark and the background of the selected row."""
    runs, mood = line
    mark: Run = (theme.CHOSEN_SIGN, "mark")
    return [mark, *runs[1:]], "chosen victim" if mood == "victim" else "chosen"


def _offline_line(grid: Grid, i: int) -> strips.Line:
    runs: list[Run] = [_BLANK, _BLANK]
    for column in grid.columns:
        if column.key in {"core", "cpus"}:
            _DRAW_CELLS[column.key](grid, VisibleRows(grid.sheet, [i]), column, {}, [runs])
        elif column.key in {"bar", "use"}:
            runs.append((f"  {'off':<{column.width - 2}}", "dim"))
        else:
            runs.append((" " * column.width, "dim"))
    return runs, "calm"


def _draw_core(
    g: Grid, s: VisibleRows, column: Column, worst: WorstThread, lines: list[list[Run]]
) -> None:
    names, width = g.places.names(g.order), column.width
    for runs, i, idle in zip(lines, s.rows, s.idle, strict=True):
        runs.append((names[i].rjust(width), "faint" if idle else "text"))
    for at, episode in worst.items():
        if episode.victim:
            lines[at][-1] = lines[at][-1][0], "bright"


def _draw_cpus(
    g: Grid, s: VisibleRows, column: Column, _: WorstThread, lines: list[list[Run]]
) -> None:
    cpus, width = g.places.cpus, column.width - 2
    for runs, i, idle in zip(lines, s.rows, s.idle, strict=True):
        runs.append(("  " + fit(cpus[i], width), "faint" if idle else "dim"))


def _draw_cache(
    g: Grid, s: VisibleRows, column: Column, _: WorstThread, lines: list[list[Run]]
) -> None:
    places, width = g.places.places, column.width
    for runs, i, idle in zip(lines, s.rows, s.idle, strict=True):
        l3 = places[i].l3
        runs.append((f"{'' if l3 is None else l3:>{width}}", "faint" if idle else "dim"))


def _draw_bar(
    g: Grid, s: VisibleRows, column: Column, _: WorstThread, lines: list[list[Run]]
) -> None:
    width = column.width - 2
    for runs, i, online, states, low, how in zip(lines, s.rows, s.online, *s.split(), strict=True):
        runs.append(("  ", "text"))
        if how == BOUNDS and not isnan(low[0]):
            runs.extend(cells.bounded_smt(low, width))
        elif how == SINGLE_METHOD and not isnan(states[1]):
            thread = online.index(True) if len(g.places.places[i].rows) > 1 else None
            runs.extend(cells.single_thread(states[1], width, thread))
        elif not isnan(states[3]):
            runs.extend(cells.smt(states, width))
        elif not isnan(states[0]):
            runs.extend(cells.bounded_smt([states[0], 0.0, 0.0, 0.0], width))
        else:
            runs.append((f"{MISSING:<{width}}", "faint"))


def _draw_use(
    _: Grid, s: VisibleRows, column: Column, __: WorstThread, lines: list[list[Run]]
) -> None:
    width = column.width - 2
    account = (s.numbers(key) for key in ("util", "system", "steal"))
    for runs, (util, *_rest), (system, *_rest), (steal, *_rest) in zip(
        lines, *account, strict=True
    ):
        runs.append(("  ", "text"))
        if isnan(util):
            runs.append((f"{MISSING:<{width}}", "faint"))
            continue
        kernel = 0.0 if isnan(system) else min(util, system)
        runs.extend(cells.account(util - kernel, kernel, 0.0 if isnan(steal) else steal, width))


def _draw_slots(
    g: Grid, s: VisibleRows, column: Column, _: WorstThread, lines: list[list[Run]]
) -> None:
    width = column.width - 2
    parts = [g.sheet.interval.values[key] for key in SLOT_COLUMNS]
    for runs, i, lead, resting in zip(lines, s.rows, s.lead, s.resting, strict=True):
        runs.append(("  ", "text"))
        at = g.places.places[i].rows[lead]
        retiring, frontend, speculation = (float(part[at]) for part in parts)
        if resting[lead]:
            runs.append((f"{theme.NEITHER:<{width}}", "faint"))
        elif isnan(retiring + frontend + speculation):
            runs.append((f"{MISSING:<{width}}", "faint"))
        else:
            runs.extend(cells.slots(retiring, frontend, speculation, width))


def _draw_number(
    g: Grid, s: VisibleRows, column: Column, worst: WorstThread, lines: list[list[Run]]
) -> None:
    key, number, thread = column.key, column.source.number, column.source.thread
    threads = _shown_threads(g, s, key, worst) if thread == BUSIEST_CPU else [thread] * len(lines)
    values = [of[thread] for of, thread in zip(s.numbers(key), threads, strict=True)]
    styles = _styles(column, s.idle, values)
    places = [g.places.places[row].rows for row in s.rows]
    for at, episode in worst.items():
        rows = places[at][threads[at] :]  # some cores have fewer threads
        if rows and (rows[0], key) in episode.lost:
            styles[at] = "alarm"
        elif styles[at] == "warn" and key in episode.shared:
            styles[at] = "text"  # the package's line shows this number for all cores
    cells = column.numbers(values, styles)
    doubts, running = s.doubted(key), number is not None and number.while_running
    for at, thread in enumerate(threads):
        online, resting = s.online[at][thread], running and s.resting[at][thread]
        doubted = doubts is not None and doubts[at][thread]
        if thread >= len(places[at]):
            cells[at] = " " * column.width, "text"
        elif doubted or resting or not online:
            text, style = column.cell(
                values[at], styles[at], online=online, resting=resting, doubted=doubted
            )
            cells[at] = column.place(text), style
    for runs, cell in zip(lines, cells, strict=True):
        runs.append(cell)


def _shown_threads(g: Grid, s: VisibleRows, key: str, worst: WorstThread) -> list[int]:
    """Returns, for each core, the index of the CPU whose number is shown: a CPU that is losing this
    number, if any, else the usual one."""
    threads = [*s.cpu_index(key)]
    for at, episode in worst.items():
        rows = g.places.places[s.rows[at]].rows
        loses = (i for i, row in enumerate(rows) if (row, key) in episode.lost)
        threads[at] = next(loses, threads[at])
    return threads


def _styles(slot: Column, idle: Sequence[bool], values: Sequence[float]) -> list[str]:
    """Returns the styles of numbers, ignoring episodes: faint in idle rows; in other rows by the
    size of the number, for metrics whose size matters."""
    key, number = slot.key, slot.source.number
    if number is None or key not in METRICS or key == "net_hz":
        return ["faint" if rests else "dim" for rests in idle]
    if number.while_running or number.unit == "Hz":
        return ["faint" if rests else "text" for rests in idle]
    much = number.stands_out
    return [
        "faint" if rests else "warn" if value >= much else "dim" if value < QUIET_SHARE else "text"
        for rests, value in zip(idle, values, strict=True)
    ]


def _draw_loss(
    g: Grid, _: VisibleRows, column: Column, worst: WorstThread, lines: list[list[Run]]
) -> None:
    blank: Run = " " * column.width, "text"
    for at, runs in enumerate(lines):
        text = g.episodes.lost(worst[at]) if at in worst else ""
        runs.append((f"{text:>{column.width}}", "alarm") if text else blank)


def _draw_history(
    g: Grid, s: VisibleRows, column: Column, worst: WorstThread, lines: list[list[Run]]
) -> None:
    gap: Run = " " * column.gap, "text"
    for at, (runs, i) in enumerate(zip(lines, s.rows, strict=True)):
        runs.append(gap)
        if g.histories is None:
            runs.append((" " * (column.width - column.gap), "text"))
        elif column.key == "work":
            runs.extend(g.histories.busy(i))
        else:
            runs.extend(g.histories.ipc(i, worst.get(at)))


def _draw_tasks(
    g: Grid, s: VisibleRows, column: Column, worst: WorstThread, lines: list[list[Run]]
) -> None:
    """Appends the tasks of each core; on a core that loses time to a neighbour, the losing task and
    the task that takes the time."""
    gap: Run = " " * column.gap, "text"
    room, shares = column.width - column.gap, s.numbers("util")
    rows = zip(g.tasks(s.rows), shares, s.idle, lines, strict=True)
    for at, (names, util, idle, runs) in enumerate(rows):
        episode = worst.get(at)
        if episode is not None and episode.victim:
            tasks = dict(zip(g.places.places[s.rows[at]].rows, names, strict=True))
            runs.extend((gap, *_loss_runs(g, episode, tasks, room)))
            continue
        busy_names = [
            name
            for name, share in zip(names, util, strict=False)
            if name and (idle or not share < MAX_IDLE_UTIL)
        ]
        runs.extend((gap, (_joined_names(tuple(busy_names), room), "dim" if idle else "text")))


@lru_cache(maxsize=4096)
def _joined_names(names: tuple[str, ...], room: int) -> str:
    """Returns the names without repetitions, in `room` cells. Cached, because names change only
    once a second."""
    return fit(" · ".join(dict.fromkeys(names)), room)


def _loss_runs(g: Grid, episode: RowEpisode, tasks: dict[int, str], room: int) -> list[Run]:
    taker, loser = g.episodes.taker(episode, tasks), tasks.get(episode.row, "")
    return (
        _loser_and_taker(loser, taker, room)
        if loser and taker
        else [(fit(loser or taker, room), "bright")]
    )


def _loser_and_taker(loser: str, taker: str, room: int) -> list[Run]:
    """Returns the losing and the taking task, without their PIDs if these do not fit."""
    sign = f" {theme.TAKEN_BY} "
    if len(loser) + len(sign) + len(taker) > room:
        loser, taker = (name.rpartition(" ")[0] or name for name in (loser, taker))
    loser = fit(loser, min(len(loser), max(room - len(sign) - len(taker), room // 2 - 1)))
    left = max(0, room - len(loser) - len(sign))
    return [(loser, "bright"), (sign, "alarm"), (fit(taker, left), "taker")]


def _task_name(tasks: Tasks, cpu: int) -> str:
    """Returns name and PID of the task on a CPU; '' if no task was sampled there."""
    match tasks.get(str(cpu)):
        case [pid, name, *_] if isinstance(pid, int) and isinstance(name, str):
            return safe_cells(f"{name[:64]} {pid}")
    return ""


_DrawCells = Callable[[Grid, VisibleRows, Column, WorstThread, list[list[Run]]], None]
_DRAW_CELLS: dict[str, _DrawCells] = {
    "core": _draw_core, "cpus": _draw_cpus, "l3": _draw_cache, "bar": _draw_bar, "use": _draw_use,
    "lost": _draw_loss, "slots": _draw_slots, "work": _draw_history, "past ipc": _draw_history,
    "who": _draw_tasks,
}  # fmt: skip
"""Functions that append the cells of a column to the lines, by its key. `_draw_number` draws all
other columns."""
