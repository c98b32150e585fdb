"""Draws the rows of the overview's grid, a line for each core, as runs of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite, isnan

import numpy as np

from perftop.base.text import GHZ, MISSING, ClockUnit, cut, fit, whole_percent
from perftop.draw import strips, theme
from perftop.draw.columns import Cell, Column, Run
from perftop.draw.strips import MAX_QUIET_SHARE, safe_cells
from perftop.model.numbers import METRICS
from perftop.model.smt import BOUNDS, SINGLE_METHOD
from perftop.model.tasks import parse_task
from perftop.session.interval import Interval, Tasks
from perftop.session.session import Session
from perftop.session.values import COLUMNS_BY_KEY, suspect_rows
from perftop.tui.overview.columns import SLOT_METRICS, RowHistories
from perftop.tui.shared.cores import Cores
from perftop.tui.shared.episode_style import RowEpisodes
from perftop.tui.shared.row_numbers import BUSIEST_CPU, MAX_IDLE_UTIL, ROW_NUMBER_KEYS, RowNumbers

_BLANK: Run = (" ", "text")


@dataclass(slots=True)
class GridData:
    session: Session
    cores: Cores
    interval: Interval
    columns: Sequence[Column]
    episodes: RowEpisodes
    histories: RowHistories | None = None
    """Histories of the visible rows; None if no column shows them."""
    order: str = "topology"
    clock: ClockUnit = GHZ
    _names: dict[int, list[str]] = field(default_factory=dict)
    """Names of tasks by row, for the rows that were visible since the last record of tasks."""
    _named_tasks: Tasks | None = None

    def task_names(self, rows: Sequence[int]) -> list[list[str]]:
        """Returns the names and PIDs of the tasks on the CPUs of each of these rows."""
        if (tasks := self.interval.tasks) is not self._named_tasks:
            self._named_tasks, self._names = tasks, {}
        names, cores = self._names, self.cores.rows
        for row in rows:
            if row not in names:
                cpu_tasks = [parse_task(tasks.get(str(cpu))) for cpu in cores[row].cpus]
                names[row] = [safe_cells(f"{t.comm} {t.pid}") if t else "" for t in cpu_tasks]
        return [names[row] for row in rows]


def row_lines(grid: GridData, rows: Sequence[int]) -> dict[int, strips.Line]:
    """Returns the lines of these rows, by row, without the mark of the selected row. Each column
    draws its cells in all lines at once."""
    is_online = grid.interval.online.tolist()
    online = {row: any(is_online[i] for i in grid.cores.rows[row].positions) for row in rows}
    online_rows = [row for row in rows if online[row]]
    lines = dict(zip(online_rows, _RowDrawer(grid, online_rows).lines(), strict=True))
    for row in [row for row in rows if not online[row]]:
        drawer, runs = _RowDrawer(grid, [row]), [_BLANK, _BLANK]
        for column in grid.columns:
            text = column.pad("off" if column.key in {"bar", "use"} else "")
            is_name = column.key in {"core", "cpus"}
            runs += drawer.name_cells(column) if is_name else [(text, "dim")]
        lines[row] = runs, "calm"
    return lines


class _RowDrawer:
    """Draws some rows of the grid. The methods that draw a column yield the cell of each row: text
    padded to its width, or runs that fill its width after its gap."""

    def __init__(self, grid: GridData, visible_rows: Sequence[int]) -> None:
        self._grid, self._rows = grid, visible_rows
        numbers = RowNumbers(grid.session, grid.cores, grid.interval, visible_rows)
        self._row_numbers = numbers
        self._is_online: list[list[bool]] = numbers.is_online.tolist()
        self._is_idle: list[bool] = (np.fmax.reduce(numbers.util, axis=1) < MAX_IDLE_UTIL).tolist()
        """Whether all CPUs of the row are almost idle, so that most numbers mean little."""
        self._is_at_rest: list[list[bool]] = grid.interval.is_at_rest[numbers.cpus].tolist()
        """Whether each CPU hardly ran, which hides numbers that describe its running time."""
        self._cores = [grid.cores.rows[row] for row in visible_rows]
        rows = enumerate(self._cores) if grid.episodes else ()
        self._worst = {
            i: episode for i, core in rows if (episode := grid.episodes.worst_on(core.positions))
        }
        """The worst running episode of each row, by index of its line."""
        self._numbers_by_key: dict[str, list[list[float]]] = {}

    def lines(self) -> list[strips.Line]:
        lines: list[list[Run]] = [[_BLANK, _BLANK] for _ in self._cores]
        for i, episode in self._worst.items():
            lines[i][1] = episode.marker, episode.style
        for column in self._grid.columns:
            gap: Run = " " * column.gap, "text"
            for i, cell in enumerate(self.cells(column)):
                # type() is faster than isinstance(): a screen full of rows has 700 cells.
                lines[i] += (cell,) if type(cell) is tuple else (gap, *cell)
        victims = {i for i, episode in self._worst.items() if episode.is_victim}
        return [(runs, "victim" if i in victims else "calm") for i, runs in enumerate(lines)]

    def _values(self, key: str) -> list[list[float]]:
        """Returns a number of each CPU by row. Kept, because several columns show one number."""
        if key not in self._numbers_by_key:
            self._numbers_by_key[key] = self._row_numbers.values(key).tolist()
        return self._numbers_by_key[key]

    def cells(self, column: Column) -> Iterable[Cell]:
        match column.key:
            case "core" | "cpus" | "l3":
                return self.name_cells(column)
            case "bar":
                return self._state_bars(column.room)
            case "use":
                return self._cpu_time_bars(column.room)
            case "slots":
                return self._slot_bars(column.room)
            case "work" | "past ipc":
                return self._histories(column)
            case "lost":
                victims = [(i, e) for i, e in self._worst.items() if e.is_victim]
                lost = {i: self._grid.episodes.lost_share(e) for i, e in victims}
                texts = {i: f"−{whole_percent(lost[i])}" for i in lost if isfinite(lost[i])}
                rows = range(len(self._cores))
                return [(column.pad(texts.get(row, "")), "alarm") for row in rows]
            case "who":
                return self._tasks(column.room)
        return self._numbers(column)

    def name_cells(self, column: Column) -> Iterator[Run]:
        cores = self._grid.cores
        names = cores.names(self._grid.order) if column.key == "core" else cores.cpu_lists
        for i, (row, core) in enumerate(zip(self._rows, self._cores, strict=True)):
            text = names[row]
            if column.key == "l3":
                text = "" if core.l3 is None else str(core.l3)
            style = "faint" if self._is_idle[i] else "text" if column.key == "core" else "dim"
            if column.key == "core" and i in self._worst and self._worst[i].is_victim:
                style = "bright"
            yield column.pad(text), style

    def _state_bars(self, room: int) -> Iterator[list[Run]]:
        split, cores = self._grid.interval.split, self._row_numbers.cores
        numbers = (part[cores].tolist() for part in (split.states, split.low, split.method_codes))
        rows = zip(self._cores, self._is_online, *numbers, strict=True)
        for core, online, states, lower_bounds, method in rows:
            if method == BOUNDS and not isnan(lower_bounds[0]):
                yield strips.smt_bounds_bar(lower_bounds, room)
            elif method == SINGLE_METHOD and not isnan(states[1]):
                thread = online.index(True) if len(core.positions) > 1 else None
                yield strips.single_thread_bar(states[1], room, thread)
            elif not isnan(states[3]):
                yield strips.smt_bar(states, room)
            elif not isnan(states[0]):
                yield strips.smt_bounds_bar([states[0], 0.0, 0.0, 0.0], room)
            else:
                yield _missing_runs(room)

    def _cpu_time_bars(self, room: int) -> Iterator[list[Run]]:
        shares = (self._values(key) for key in ("util", "system", "steal"))
        for (util, *_), (system, *_), (steal, *_) in zip(*shares, strict=True):
            if isnan(util):
                yield _missing_runs(room)
                continue
            kernel = 0.0 if isnan(system) else min(util, system)
            parts = util - kernel, kernel, 0.0 if isnan(steal) else steal
            yield strips.stacked_bar(parts, strips.CPU_TIME_SHAPES, room)

    def _slot_bars(self, room: int) -> Iterator[list[Run]]:
        """Yields, for each core, a bar of the issue slots of its busiest CPU: those whose
        instruction retired, those that the front end left empty, and those discarded after wrong
        speculation. The back end blocked the rest."""
        parts = [self._grid.interval.values[key] for key in SLOT_METRICS]
        busiest = self._row_numbers.busiest.tolist()
        for core, index, resting in zip(self._cores, busiest, self._is_at_rest, strict=True):
            shares = [float(part[core.positions[index]]) for part in parts]
            if resting[index] or isnan(sum(shares)):
                yield _missing_runs(room, theme.NEITHER if resting[index] else MISSING)
            else:
                yield strips.stacked_bar(shares, strips.CPU_TIME_SHAPES, room)

    def _numbers(self, column: Column) -> Iterator[Run]:
        key, number, thread = column.key, COLUMNS_BY_KEY[column.key], column.source or 0
        rows, episodes = self._row_numbers, self._worst
        threads = [thread] * len(self._cores)
        if thread == BUSIEST_CPU:  # unless an episode lowers the number of another CPU
            threads = rows.shown_cpus(key).tolist()
            for line, episode in episodes.items():
                positions = self._cores[line].positions
                is_lowered = [(position, key) in episode.lowered_numbers for position in positions]
                if True in is_lowered:
                    threads[line] = is_lowered.index(True)
        values = [numbers[i] for numbers, i in zip(self._values(key), threads, strict=True)]
        is_plain, threshold = number.while_running or number.unit == "Hz", number.min_highlighted
        normal_style = "dim" if key not in METRICS or key == "net_hz" else "text"
        styles = ["faint" if is_idle else normal_style for is_idle in self._is_idle]
        if normal_style == "text" and not is_plain:
            for line, value in enumerate(values):
                if styles[line] != "faint" and value >= threshold:
                    styles[line] = "warn"
                elif styles[line] != "faint" and value < MAX_QUIET_SHARE:
                    styles[line] = "dim"
        for line, episode in episodes.items():
            cpu_rows = self._cores[line].positions[threads[line] :]  # some cores have fewer threads
            if cpu_rows and (cpu_rows[0], key) in episode.lowered_numbers:
                styles[line] = "alarm"
            elif styles[line] == "warn" and key in episode.package_wide_keys:
                styles[line] = "text"  # the package's line shows this number for all cores
        running, doubts = number.while_running, None
        if key in ROW_NUMBER_KEYS and self._grid.interval.doubts.any():
            is_suspect = suspect_rows(key, self._grid.session, self._grid.interval)
            doubts = is_suspect[rows.cpus].tolist()
        cells = column.numbers(values, styles)
        for line, (thread, cell) in enumerate(zip(threads, cells, strict=True)):
            online = self._is_online[line][thread]
            is_resting = running and self._is_at_rest[line][thread]
            doubted = doubts is not None and doubts[line][thread]
            if thread >= len(self._cores[line].positions):
                yield column.pad(""), "text"
            elif doubted or is_resting or not online:
                text, style = column.cell(
                    values[line], styles[line], online=online, resting=is_resting, doubted=doubted
                )
                yield column.pad(text), style
            else:
                yield cell

    def _histories(self, column: Column) -> Iterator[Cell]:
        histories = self._grid.histories
        for i, row in enumerate(self._rows):
            if histories is None:
                yield column.pad(""), "text"
            elif column.key == "work":
                yield [*histories.busy_runs(row)]
            else:
                yield [*histories.ipc_runs(row, self._worst.get(i))]

    def _tasks(self, room: int) -> Iterator[list[Run]]:
        """Yields the tasks of each core; for a core that loses time, the task that loses it and the
        task that takes it."""
        all_names, util = self._grid.task_names(self._rows), self._values("util")
        for i, (core, names, idle) in enumerate(
            zip(self._cores, all_names, self._is_idle, strict=True)
        ):
            episode = self._worst.get(i)
            if episode is not None and episode.is_victim:
                tasks = dict(zip(core.positions, names, strict=True))
                victim = tasks.get(episode.position, "")
                culprit = self._grid.episodes.culprit_name(episode, tasks)
                yield _victim_and_culprit(victim, culprit, room)
                continue
            min_share, shares = 0.0 if idle else MAX_IDLE_UTIL, zip(names, util[i], strict=False)
            busy_names = [name for name, share in shares if name and not share < min_share]
            yield [(_joined_names(tuple(busy_names), room), "dim" if idle else "text")]


def _missing_runs(room: int, text: str = MISSING) -> list[Run]:
    return [(f"{text:<{room}}", "faint")]


@lru_cache(maxsize=4096)
def _joined_names(names: tuple[str, ...], room: int) -> str:
    """Returns the distinct names in `room` cells. Cached: names change only once a second."""
    return fit(" · ".join(dict.fromkeys(names)), room)


def _victim_and_culprit(victim: str, culprit: str, room: int) -> list[Run]:
    """Returns the task that loses time and the task that takes it, without their PIDs if these do
    not fit. One of the names may be '', for unknown."""
    if not (victim and culprit):
        return [(fit(victim or culprit, room), "bright")]
    sign = f" {theme.TAKEN_BY_SIGN} "
    if len(victim) + len(sign) + len(culprit) > room:
        victim, culprit = (name.rpartition(" ")[0] or name for name in (victim, culprit))
    victim = cut(victim, max(room - len(sign) - len(culprit), room // 2 - 1))
    name_width = max(0, room - len(victim) - len(sign))
    return [(victim, "bright"), (sign, "alarm"), (fit(culprit, name_width), "culprit")]
