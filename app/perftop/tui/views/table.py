"""The table: a line for each CPU, with all numbers that the stream has. The first columns identify
the CPU and are always visible. The others scroll sideways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import BindingType

from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import ClockUnit
from perftop.draw.columns import (
    Cell,
    Column,
    Run,
    column_at,
    fit_columns,
    fit_to_texts,
    headings,
    join_columns,
    total_width,
)
from perftop.draw.strips import MAX_QUIET_SHARE, Line, safe_cells
from perftop.model.counters import MIN_COUNTED_SHARE
from perftop.model.numbers import Metric, Number
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import CpuColumns, suspect_rows
from perftop.tui.shared import row_numbers
from perftop.tui.shared.canvas import MARKS_WIDTH, CursorCanvas, mark_selected
from perftop.tui.shared.episode_style import MIN_AWAKE_UTIL, RowEpisode, RowEpisodes
from perftop.tui.shared.keys import bindings
from perftop.tui.shared.panels import PaneledView

MIN_NUMBER_WIDTH = 6
"""Minimum width of a column of numbers, in cells: enough for 100.0 with a minus sign."""
MIN_TASK_WIDTH, MAX_TASK_WIDTH = 18, 32
LEFT_ARROW, RIGHT_ARROW = "←", "→"
"""Arrows at the left and right end of the headings if more columns are hidden there."""
_ORDERS = {"cpu": "CPU number", "core": "topology"}
"""Orders of rows that have other names in other views, by key of the column that selects them."""
_KEYS = {order: key for key, order in _ORDERS.items()}
_RISING_KEYS = frozenset({"cpu", "core", "type", "task"})
"""Keys of columns sorted from low to high unless reversed; others are sorted from high to low."""


@dataclass(slots=True)
class VisibleColumns:
    """The visible columns, and their values."""

    name_columns: list[Column] = field(default_factory=list)
    """The columns that identify the CPU."""
    number_columns: list[Column] = field(default_factory=list)
    """The visible columns among those that scroll: numbers, and the task."""
    hidden_left: int = 0
    hidden_right: int = 0
    values: dict[str, Floats] = field(default_factory=dict)
    """Values by key of the column and position of the CPU."""
    suspect_flags: dict[str, Bools] = field(default_factory=dict)
    """Whether a counter of the value is suspect, like `values`."""
    interval: Interval | None = None

    @property
    def columns(self) -> list[Column]:
        return [*self.name_columns, *self.number_columns]

    def scroll(self, columns: list[Column], first: int, width: int) -> None:
        """Chooses the visible columns. The first is `columns[first]`, or an earlier one if
        otherwise cells would remain blank at the right."""
        # one cell is reserved for the arrow at the end
        room = width - MARKS_WIDTH - 1 - total_width(self.name_columns)
        last = max(0, len(columns) - 1)
        while last > 0 and total_width(columns[last - 1 :]) <= room:
            last -= 1
        self.hidden_left = max(0, min(first, last))
        end = min(len(columns), self.hidden_left + 1)
        while end < len(columns) and total_width(columns[self.hidden_left : end + 1]) <= room:
            end += 1
        self.number_columns = fit_columns(columns[self.hidden_left : end], room)
        self.hidden_right = len(columns) - end

    def read(self, cpu_columns: CpuColumns, session: Session, interval: Interval) -> None:
        keys = [column.key for column in self.number_columns if not column.is_left]
        self.values = {key: cpu_columns.values(key, interval) for key in keys}
        self.suspect_flags = {key: suspect_rows(key, session, interval) for key in keys}
        self.interval = interval

    def headings(self, order: str, width: int, *, reverse: bool) -> list[Run]:
        """Returns the headings. Arrows mark the sorted column and ends with hidden columns."""
        runs = headings(self.columns, order, rising=(order in _RISING_KEYS) != reverse)
        name_count = len(self.name_columns)
        if self.hidden_left:
            text, style = runs[name_count]
            runs[name_count : name_count + 1] = [(LEFT_ARROW, "key"), (text[1:], style)]
        if self.hidden_right:
            spare_cells = width - MARKS_WIDTH - 1 - total_width(self.columns)
            runs.append((" " * max(0, spare_cells) + RIGHT_ARROW, "key"))
        return [(" " * MARKS_WIDTH, "text"), *runs]

    def cells(self, row: int, task: str, row_episode: RowEpisode | None) -> Iterator[Cell]:
        """Yields the cells of the CPU at position `row`. `task`: name of its task, which may
        contain control characters. `row_episode`: the worst episode that runs on this CPU."""
        interval = self.interval
        assert interval is not None
        for column in self.name_columns:
            yield column.source[row], "text" if column.key == "cpu" else "dim"
        online, busy_share = bool(interval.online[row]), float(interval.values["util"][row])
        for i, column in enumerate(self.number_columns):
            if not online:
                yield "" if i else f"{'off':>{column.room}}", "dim"
            elif column.is_left:
                yield safe_cells(task), "dim"
            else:
                key, number, value = column.key, column.source, float(self.values[column.key][row])
                is_lowered = row_episode is not None and (row, key) in row_episode.lowered_numbers
                shares = interval.event_counted_shares.get(key)
                yield column.cell(
                    value,
                    "alarm" if is_lowered else number_style(number, value, busy_share),
                    resting=number.while_running and bool(interval.is_at_rest[row]),
                    doubted=bool(self.suspect_flags[key][row]),
                    estimated=shares is not None and shares[row] < MIN_COUNTED_SHARE,
                )


def number_style(number: Number, value: float, busy_share: float) -> str:
    """Returns the style of a number on a CPU that is busy for `busy_share` of the time."""
    if busy_share < row_numbers.MAX_IDLE_UTIL and not value >= number.min_highlighted:
        return "faint"
    if isinstance(number, Metric) and (number.while_running or number.unit == "Hz"):
        return "dim" if busy_share < MIN_AWAKE_UTIL else "text"
    if number.unit == "Hz":
        return "dim"
    if value >= number.min_highlighted:
        return "warn"
    return "dim" if value < MAX_QUIET_SHARE else "text"


def name_columns(session: Session) -> list[Column]:
    """Returns the columns that identify a CPU; that of the type only if there are several."""
    topology = session.topology
    texts = {
        "cpu": [str(cpu.cpu) for cpu in topology],
        "core": ["-" if cpu.core is None else f"{cpu.package}:{cpu.core}" for cpu in topology],
        "type": [safe_cells(cpu.type or "") for cpu in topology],
    }
    if len(set(texts["type"])) == 1:
        del texts["type"]
    columns = (Column(key, key, 0, is_left=key == "type", source=texts[key]) for key in texts)
    return [fit_to_texts(column, column.source) for column in columns]


def number_column(number: Number, clock: ClockUnit) -> Column:
    """Returns the column of a number, or of the task, which has no unit."""
    name = number.name(clock)
    if number.unit:
        return row_numbers.make_number_column(number, clock, max(MIN_NUMBER_WIDTH, len(name)) + 2)
    return Column(number.key, name, MIN_TASK_WIDTH + 2, is_left=True, max_width=MAX_TASK_WIDTH + 2)


class Table(PaneledView, CursorCanvas):
    HAS_LOSS_CHART: ClassVar[bool] = True
    HAS_OWN_ITEMS: ClassVar[bool] = True
    HINTS: ClassVar[tuple[str, ...]] = ("open", "sort", "columns", "reverse", "units")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("table")]

    _cpu_columns: CpuColumns
    _row_episodes: RowEpisodes
    _known_columns: tuple[Number, ...]
    _page: VisibleColumns
    _clock: ClockUnit
    _selected: int = 0
    """Position of the CPU under the cursor."""
    _rows: Ints
    """Positions of the shown CPUs whose core is known, in topology order."""
    _offline_rows: list[int]
    """Positions of offline CPUs whose core is unknown, which are the last lines."""
    _positions_by_line: list[int]
    """The position of the CPU on each line."""
    _first_column = 0
    """Index of the first visible column among those that scroll."""

    # --- lines from an interval

    def needs_layout(self) -> bool:
        """Returns whether columns have been added, as that of the task when tasks become known."""
        return self._cpu_columns.columns() != self._known_columns

    def reset(self) -> None:
        session = self.session
        self._cpu_columns = CpuColumns(session)
        self._known_columns = self._cpu_columns.columns()
        by_core = [core.positions for core in self.cores.rows]
        groups = self.cores.rows_by_group.values()
        rows = [row for group in groups for i in group for row in by_core[i]]
        shown_positions = self.shown_positions
        self._rows = np.array([row for row in rows if row in shown_positions], np.intp)
        self._offline_rows = [session.position[cpu] for cpu in self.cores.offline_cpus]
        self._page = VisibleColumns(name_columns(session))
        # Nothing is drawn before the first layout.
        self._positions_by_line, self.line_count, self.footer_lines = [], 0, []
        self.forget_strips()

    def make_layout(self) -> None:
        self._clock = row_numbers.session_clock_unit(self.session, self.settings.units)
        by_key = {column.key: column for column in self._known_columns}
        chosen = [by_key[key] for key in self.settings.columns if key in by_key]
        numbers = [number_column(number, self._clock) for number in chosen or self._known_columns]
        self._page.scroll(numbers, self._first_column, self.width)
        self._first_column = self._page.hidden_left
        order = _KEYS.get(self.settings.order, self.settings.order)
        heading = self._page.headings(order, self.width, reverse=self.settings.reverse)
        self.header_lines = [] if self.is_tiny else [heading]

    def make_lines(self) -> None:
        self._row_episodes = RowEpisodes(self.session, self.interval)
        self._page.read(self._cpu_columns, self.session, self.interval)
        self._positions_by_line = [*self._ordered_positions(), *self._offline_rows]
        self.line_count = len(self._positions_by_line)
        first, shown, cpu = self._cpu_columns.first_cpus, self._positions_by_line, self.settings.cpu
        if self._selected not in shown or first[self._selected] != cpu:
            matching_rows = (row for row in shown if first[row] == cpu)
            self._selected = next(matching_rows, shown[0] if shown else 0)
        self.footer_lines = self.make_panels(self.spare_lines)

    def _ordered_positions(self) -> list[int]:
        order, reverse = self.settings.order, self.settings.reverse
        rows: list[int] = self._rows.tolist()
        number = next((number for number in self._known_columns if number.key == order), None)
        if number is not None:
            sort = self._cpu_columns.sorted_rows
            return [*sort(self._rows, number, self.interval, self._clock, reverse=reverse).tolist()]
        if order == "CPU number":
            rows.sort(key=lambda row: self.session.topology[row].cpu)
        elif order == "worst first":
            keys = row_numbers.worst_first_keys(self.cores, self.session, self.interval)
            keys_of_cores = zip(self.cores.rows, keys, strict=True)
            by_row = {row: key for core, key in keys_of_cores for row in core.positions}
            rows.sort(key=by_row.__getitem__)
        return rows[::-1] if reverse else rows

    def line(self, y: int) -> Line:
        row = self._positions_by_line[y]
        row_episode = self._row_episodes.worst_on([row]) if self._row_episodes else None
        task = self._cpu_columns.task(row, self.interval)
        marker = (row_episode.marker, row_episode.style) if row_episode else (" ", "text")
        cells = join_columns(self._page.columns, self._page.cells(row, task, row_episode))
        is_victim = row_episode is not None and row_episode.is_victim
        line: Line = [(" ", "text"), marker, *cells], "victim" if is_victim else "calm"
        return mark_selected(line) if row == self._selected else line

    # --- the cursor is on a CPU; other views select its core

    def cpu_of_line(self, y: int) -> int | None:
        row = self.item_of_line(y)
        return None if row is None else self._cpu_columns.first_cpus[row]

    def item_of_line(self, y: int) -> int | None:
        """Returns the position of the CPU on line `y`; None for CPUs whose core is unknown."""
        rows = self._positions_by_line[: len(self._rows)]  # the CPUs may have changed
        return rows[y] if y < len(rows) else None

    # --- columns

    def action_scroll_columns(self, columns: int) -> None:
        self._first_column = max(0, self._first_column + columns)
        self.lay_out()

    async def on_click(self, event: events.Click) -> None:  # type: ignore[override]
        """Sorts by a clicked heading; clicks on lines move the cursor."""
        if event.y < len(self.header_lines):
            column = column_at(self._page.columns, event.x - MARKS_WIDTH)
            if column is not None and column.key != "type":
                await self.sort_by(_ORDERS.get(column.key, column.key))
