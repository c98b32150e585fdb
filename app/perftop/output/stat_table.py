"""Human-readable tables of `stat` intervals: their columns and their lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import isnan, nan

from perftop.base.text import GHZ, clock_time, percent, safe_text, whole_percent
from perftop.draw.columns import Column, columns_line, text_of
from perftop.model.machine_totals import MEMORY_COUNTERS, OF_BEST_NAME
from perftop.model.numbers import EVENT, L3, MACHINE, NUMBERS, PACKAGE, Number
from perftop.model.smt import STATES
from perftop.output.stat_json import estimates, multiplexed
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import CpuColumns, cpu_values, is_possible_column, machine_value

DEFAULT_COLUMNS = ("util", "busy_hz", "net_hz", "halt", "idle", "poll", "involuntary", "steal",
                   "ipc", "kernel_cycles", "kernel_instructions")  # fmt: skip
"""Keys of the default columns: the most useful metrics that fit on one line."""
SCREEN_LINES = 24
"""Lines between two headings if the height of the terminal is unknown."""
NAME_WIDTH, TIME_WIDTH, STATE_WIDTH, MIN_WIDTH = 5, 10, 9, 6
"""Widths in columns of a CPU's name, a time, the widest range of a state (100..100) and any number.
The last two include the gap before the cell."""
SHARE_WIDTH = len(" (100 %)")
MAX_NAME, MAX_TASK = 15, 24
MAX_CACHES = 8
"""Maximum number of L3 caches listed, those with the most traffic."""


# --- the numbers


def columns(session: Session, asked: Sequence[str] | None) -> tuple[Number, ...]:
    """Returns the numbers requested by key, else the default ones that this stream can provide. The
    SMT states of cores are not included: see `has_states`."""
    variants = session.evaluator.chosen
    if asked is None:
        keys = [key for key in DEFAULT_COLUMNS if variants[key]]
        keys += [key for key in variants if key.startswith(EVENT) and variants[key]]
    else:
        keys = [*dict.fromkeys(key for key in asked if key not in {"smt", "task", *STATES})]
    known_numbers = NUMBERS | session.evaluator.registry.events
    return tuple(known_numbers[key] for key in keys)


def has_states(asked: Sequence[str] | None) -> bool:
    return asked is None or not {"smt", *STATES}.isdisjoint(asked)


def is_known_number(key: str) -> bool:
    """Whether a table can have a column for this key."""
    return is_possible_column(key) or key in MACHINE or key in PACKAGE or key in L3 or key == "smt"


def shown_unit(number: Number) -> str:
    """Returns the unit that is shown with the label. The values of rates do not include the
    unit."""
    return number.unit_name(GHZ) or (number.unit.removeprefix("1") if number.rate else "")


def number_text(number: Number, value: float | None) -> str:
    """Returns the value without its unit, with the number's decimals; `n/a` if the value is
    unknown."""
    return number.text(nan if value is None else value, GHZ)


def seconds_text(seconds: float) -> str:
    """Formats the duration of a command or a job: "5.65 s", "3 ms", "0 s"."""
    if not seconds:
        return "0 s"
    return f"{1e3 * seconds:.2g} ms" if seconds < 0.0995 else f"{seconds:.2f} s"


def table_columns(name_width: int, numbers: Sequence[Number], states: int = 0) -> list[Column]:
    """Returns a column for the name of a line, for each number and for each state of a core."""
    placed = [Column("", "", name_width)]
    placed += [Column(n.key, n.label, max(MIN_WIDTH, len(n.label) + 1)) for n in numbers]
    return placed + [Column(state, state, STATE_WIDTH) for state in STATES[:states]]


def table_line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    """Returns a line of a table; cells after the last column are appended unpadded."""
    cells = [*cells, *[""] * (len(columns) - len(cells))]
    runs = columns_line(columns, [(cell, "") for cell in cells[: len(columns)]])
    return text_of([*runs, ("".join(cells[len(columns) :]), "")])


# --- the table


class StatTable:
    """Formats the intervals of a session. `asked`: keys of the columns; None: the default ones.
    `brief`: one line an interval, for the machine only. `height`: maximum lines between two
    headings."""

    def __init__(
        self, session: Session, asked: Sequence[str] | None = None, *, brief: bool = False,
        height: int = SCREEN_LINES,
    ) -> None:  # fmt: skip
        self._session, self._brief, self._height = session, brief, height
        self.columns = columns(session, asked)
        self._states = len(STATES) if has_states(asked) else 0
        self._tasks = asked is not None and "task" in asked
        self._tabular = CpuColumns(session)
        width = TIME_WIDTH if brief else NAME_WIDTH
        self._placed = table_columns(width, self.columns, self._states)
        self._lines_left = 0
        """Lines until the next heading."""
        self._estimated: set[str] = set()
        """Keys of the events that were multiplexed so far."""

    def lines(self, interval: Interval) -> list[str]:
        session = self._session
        shared_events = {key for row in session.shown for key in estimates(interval, row)}
        if not self._brief and shared_events - self._estimated:
            # An event is multiplexed now: widen its column for shares of time and print a new
            # heading.
            self._estimated |= shared_events
            is_wide = [n.key in self._estimated for n in self.columns]
            placed = table_columns(NAME_WIDTH, self.columns, self._states)
            for place, is_wider in enumerate(is_wide, start=1):
                width = placed[place].width + SHARE_WIDTH * is_wider
                placed[place] = Column(placed[place].key, placed[place].heading, width)
            self._placed, self._lines_left = placed, 0
        machine_row = [
            number_text(number, machine_value(session, interval, number.key))
            if number.scope == "machine" or number.key in session.evaluator.metrics else ""
            for number in self.columns
        ]  # fmt: skip
        if self._brief:
            split = interval.split
            cores = [i for i in session.shown_cores() if i < len(split.states)]
            states = [percent(split.mean(state, cores)) for state in STATES[: self._states]]
            above, rows = [], [[clock_time(interval.time), *machine_row, *states]]
        else:
            above = _machine_lines(session, interval)
            rows = [["all", *machine_row], *self._rows(interval)]
        titles: list[str] = []
        if self._lines_left < len(above) + len(rows):
            units = [shown_unit(number) for number in self.columns] + ["%"] * self._states
            labels = [column.heading for column in self._placed[1:]]
            labels += [f"{'task':>{STATE_WIDTH}}"] * self._tasks
            names = ["time" if self._brief else "cpu", *labels], ["", *units]
            titles = [table_line(self._placed, cells) for cells in names]
            self._lines_left = self._height - len(titles)
        self._lines_left -= len(above) + len(rows)
        return [*above, *titles, *(table_line(self._placed, cells) for cells in rows)]

    def _rows(self, interval: Interval) -> list[list[str]]:
        """Returns a row for each CPU; the states of a core are in the row of its first CPU."""
        session, rows = self._session, []
        first = {session.cores[i][0]: i for i in session.shown_cores()}
        values = [cpu_values(session, interval, number.key) for number in self.columns]
        for row in session.shown:
            cpu = session.topology[row].cpu
            name = f"~{cpu}" if row in interval.suspect else str(cpu)
            if not interval.online[row]:
                rows.append([str(cpu), "off"])
                continue
            shares = estimates(interval, row)
            cells = [name]
            for number, by_cpu in zip(self.columns, values, strict=True):
                is_of_machine = number.scope == "machine"
                cell = "" if is_of_machine else number_text(number, float(by_cpu[row]))
                if number.key in shares:  # the share of time in which the event was counted
                    cell += f" ({whole_percent(shares[number.key])})"
                cells.append(cell)
            core = first.get(cpu) if self._states else None
            cells += [""] * self._states if core is None else state_cells(interval, core)
            if self._tasks:
                task = f"  {safe_text(self._tabular.task(row, interval), MAX_TASK)}"
                cells.append(f"{task:>{STATE_WIDTH}}")
            rows.append(cells)
        return rows


def state_cells(interval: Interval, core: int) -> list[str]:
    split = interval.split
    if split.method[core] != "bounds":
        return [percent(v) for v in split.states[core]]
    return [
        f"{100 * low:.0f}..{100 * high:.0f}" if math.isfinite(low) else percent(low)
        for low, high in zip(split.low[core], split.high[core], strict=True)
    ]


# --- lines above the table


def _machine_lines(session: Session, interval: Interval) -> list[str]:
    """Returns the lines above the table: the time and how reliable the interval is; then the known
    packages, the L3 caches with the most traffic, and the watched job."""
    time = f"{clock_time(interval.time)}  {interval.elapsed_s:.3f} s"
    if interval.suspect:
        time += f"  ~ {len(interval.suspect)} CPUs with suspect samples, left out"
    if shares := multiplexed(interval):
        lowest_share = percent(min(shares.values()))
        time += f"  counters shared: counted {lowest_share} % of the time at least, and scaled"
    lines = ["", time]

    for i, cpus in enumerate(session.hello.packages):
        values = {name: float(values[i]) for name, values in interval.packages.items()}
        power, limit, dram, share = (
            values.get(name, nan)
            for name in ("power_w", "power_limit_w", "power_dram_w", OF_BEST_NAME)
        )
        parts = []
        if not isnan(power):
            limit_text = "" if isnan(limit) else f" of {limit:.0f}"
            dram_text = "" if isnan(dram) else f" and {dram:.1f} W for memory"
            parts.append(f"{power:.1f}{limit_text} W{dram_text}")
        elif not isnan(dram):
            parts.append(f"{dram:.1f} W for memory")
        read, written = (values.get(name, nan) / 1e9 for name in MEMORY_COUNTERS)
        if not isnan(read + written):
            best_text = "" if isnan(share) else f", {percent(share)} % of the best seen"
            parts.append(f"memory {read:.1f} GB/s read, {written:.1f} written{best_text}")
        if parts:
            number = session.topology[session.position[cpus[0]]].package
            lines.append(f"package {number}: {' · '.join(parts)}")

    traffic = interval.caches.get("memory_bytes_per_s")
    occupancy = interval.caches.get("occupancy_bytes")
    if traffic is not None:
        rows = [i for i, rate in enumerate(traffic.tolist()) if math.isfinite(rate)]
        rows.sort(key=lambda i: -float(traffic[i]))
        for i in sorted(rows[:MAX_CACHES]):
            text = f"L3 {session.topology[i].l3}: {traffic[i] / 1e9:.1f} GB/s"
            if occupancy is not None and not isnan(occupancy[i]):
                text += f", {occupancy[i] / 1e6:.1f} MB in use"
            lines.append(text)

    activity, watched_job = interval.watched, session.neighbours.watched_job
    if activity is not None and watched_job.name is not None:
        job = f"job {safe_text(watched_job.name, MAX_NAME)}:"
        if not watched_job.threads:
            return [*lines, f"{job} no running thread found"]
        text = f"{job} ran {seconds_text(activity.run_s)}"
        if not isnan(activity.wait_s):
            text += f", waited {seconds_text(activity.wait_s)} for a CPU"
        count = activity.involuntary
        times = {0: "never preempted", 1: "preempted once"}.get(count, f"preempted {count} times")
        lines.append(f"{text}, was {times}")
    return lines
