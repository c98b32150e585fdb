"""The columns of the overview's grid, and the histories that two of them show. The columns depend
only on the source and the screen size, so that nothing moves when values change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from perftop.base.arrays import Codes
from perftop.base.text import GHZ, ClockUnit, time_of_day
from perftop.draw import strips, theme
from perftop.draw.columns import Column, Run, fit_columns, headings
from perftop.draw.strips import join_cells
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import COLUMNS_BY_KEY
from perftop.tui.shared import episode_style, time_axis
from perftop.tui.shared.canvas import MARKS_WIDTH
from perftop.tui.shared.cores import Core, Cores, width_of_names
from perftop.tui.shared.episode_style import RowEpisode
from perftop.tui.shared.row_numbers import BUSIEST_CPU
from perftop.tui.shared.time_axis import MIN_CELL_NS, TICK_SIGN, Axis, BinValues

MIN_ROOMY_WIDTH = 140
"""Minimum width, in cells, at which numbers have wider gaps."""
MAX_THREADS = 4
"""Maximum CPUs per core that have a column each; else the only column shows the busiest CPU."""
MAX_RANK_AT_80 = 4
"""Maximum rank of columns that fit a screen of 80 cells, which have narrow gaps."""
SLOT_METRICS = ("topdown_retiring_ratio", "topdown_frontend_ratio", "topdown_bad_speculation_ratio")
"""Metrics shown as parts of the bar of issue slots. The remainder is the share of the back end."""
ORDER_BY_COLUMN = {"core": "topology", "cpus": "CPU number", "lost": "worst first", "who": "task"}
"""The order that a click on a heading selects, by key of the column; other columns select an order
with their own key."""


def grid_columns(
    session: Session, cores: Cores, width: int, clock: ClockUnit = GHZ
) -> list[Column]:
    """Returns the columns that fit into `width` cells, in display order. Columns of numbers that
    this stream does not have are left out. The source of a column is the index, within its core,
    of the CPU whose number is shown, or BUSIEST_CPU."""
    is_roomy, pairs = width >= MIN_ROOMY_WIDTH, cores.has_pairs
    names = [cores.name(row, "CPU number") for row in range(len(cores.rows))]
    columns = [
        Column("core", "core" if pairs else "CPU", width_of_names(names)),
        *(_core_columns if pairs else _cpu_columns)(cores, clock, is_roomy=is_roomy),
        Column("who", "who runs", 26 if is_roomy else 14, is_left=True, gap=4 if is_roomy else 2,
               rank=3, max_width=48, weight=2),
    ]  # fmt: skip
    metrics = {key for key, variants in session.evaluator.variants.items() if variants}
    has_ceiling = bool(session.reader.turbo.cpus.any())
    has_steal = "steal" in metrics and (not pairs or session.hello.virtualisation is not None)
    can_lose = has_ceiling or "involuntary" in metrics
    has_two_threads, has_ipc = cores.max_threads == 2, "ipc" in metrics
    is_shown = dict.fromkeys(("core", "cpus", "bar", "use"), True) | {
        "util": "util" in metrics or not pairs,
        "l3": len(cores.rows_by_group) > cores.package_count,
        "slots": SLOT_METRICS[0] in metrics and is_roomy,
        "steal": has_steal,
        "lost": can_lose or (pairs and (has_ipc or has_steal)),
        "work": has_two_threads or not pairs,
        "past ipc": has_two_threads and has_ipc,
        "turbo_ceiling_hz": "busy_hz" in metrics and has_ceiling and is_roomy,
        "who": all(missing.what != "tasks" for missing in session.hello.missing),
    }
    if pairs and not (is_roomy and cores.max_threads <= MAX_THREADS):
        metrics -= {"idle", "kernel_cycles", "net_hz"}
    elif not pairs and "stat_user_s" not in session.counters.columns:
        metrics -= {"user", "system", "iowait"}
    shown_columns = [c for c in columns if is_shown.get(c.key, c.key in metrics)]
    scales = {key: number.scale(clock, brief=True) for key, number in COLUMNS_BY_KEY.items()}
    return [
        replace(column, scale=scale, digits=digits)
        for column in fit_columns(shown_columns, width)
        for scale, digits in [scales.get(column.key, (1.0, 0))]
    ]


def _core_columns(cores: Cores, clock: ClockUnit, *, is_roomy: bool) -> list[Column]:
    """Returns the columns of a machine with siblings, with their minimum widths."""
    extra = int(is_roomy)
    busy, width, gap = ("busy, lp0 over lp1", 24, 3) if is_roomy else ("busy", 10, 2)
    return [
        Column("cpus", "CPUs", max(5, cores.cpus_width) + 2, is_left=True),
        Column("l3", "L3", 4, rank=10),
        Column("bar", "SMT states", 22 if is_roomy else 12, is_left=True, rank=1, max_width=24,
               weight=2),
        *_thread_columns(cores, "util", "lp{} %", 6 + extra, 0),
        Column("work", busy, width + gap, is_left=True, gap=gap, rank=6, max_width=60, weight=3),
        _SLOTS,
        *_thread_columns(cores, "ipc", "lp{}", 5 + 2 * extra, 2, ("IPC lp0", 8 + extra)),
        Column("lost", "lost", 6 + 2 * extra),
        Column("past ipc", "IPC of lp0", 12 + 3 * extra, is_left=True, gap=2 + extra, rank=7,
               max_width=30),
        _clock_column(clock, extra), _CEILING,
        _number_column("steal", 2), _number_column("involuntary", 5),
        *_thread_columns(cores, "idle", "idle lp{}", 6 + extra, 9),
        *_thread_columns(cores, "kernel_cycles", "krn lp{}", 6 + extra, 8),
        *_thread_columns(cores, "net_hz", "net lp{}", 6 + extra, 11),
    ]  # fmt: skip


def _cpu_columns(_cores: Cores, clock: ClockUnit, *, is_roomy: bool) -> list[Column]:
    """Returns the columns of a machine without siblings, on which each row is a CPU."""
    extra = int(is_roomy)
    return [
        Column("l3", "L3", 4, rank=10),
        Column("util", "busy %", 8),
        Column("use", "where time goes", 8 + 2, is_left=True, rank=1, max_width=52, weight=2),
        Column("work", "busy", 12 + 2 + extra, is_left=True, gap=2 + extra, rank=6, max_width=90,
               weight=4),
        _SLOTS, _number_column("steal", 0), _number_column("ipc", 2),
        Column("lost", "lost", 7 + extra),
        _clock_column(clock, extra), _CEILING,
        *(_number_column(key, rank) for key, rank in (
            ("involuntary", 4), ("idle", 7), ("user", 3), ("system", 3), ("iowait", 5),
            ("kernel_cycles", 8), ("net_hz", 9),
        )),
    ]  # fmt: skip


_SLOTS = Column("slots", "issue slots", 12 + 2, is_left=True, rank=8, max_width=24)
_CEILING = Column("turbo_ceiling_hz", "ceiling", 9, rank=9)


def _clock_column(clock: ClockUnit, extra: int) -> Column:
    width = max(5, len(clock.name)) + 1 + extra
    return Column("busy_hz", clock.name, width, source=BUSIEST_CPU)


def _number_column(key: str, rank: int) -> Column:
    """Returns the column of a metric, which shows the value of the core's busiest CPU."""
    number = COLUMNS_BY_KEY[key]
    title = number.label if number.unit == "Hz" else number.name(GHZ)
    return Column(key, title, max(4, len(title)) + 2, source=BUSIEST_CPU, rank=rank)


def _thread_columns(
    cores: Cores, key: str, title: str, width: int, rank: int, first: tuple[str, int] | None = None
) -> list[Column]:
    """Returns the columns of a metric: one for each thread, or, if cores have more than MAX_THREADS
    threads, one for the busiest CPU. `first`: title and minimum width of the first column."""
    if cores.max_threads > MAX_THREADS:
        name = COLUMNS_BY_KEY[key].name(GHZ) + " max" * (key == "util")
        return [Column(key, name, max(width, len(name) + 2), source=BUSIEST_CPU, rank=rank)]
    gap = 2 if rank > MAX_RANK_AT_80 else 1
    titles = [(title.format(thread), 0) for thread in range(cores.max_threads)]
    titles[0] = first or titles[0]
    return [
        Column(key, heading, max(minimum, width, len(heading) + gap), source=thread, rank=rank)
        for thread, (heading, minimum) in enumerate(titles)
    ]


def grid_headings(
    columns: Sequence[Column], order: str = "topology", *, reverse: bool = False
) -> list[Run]:
    """Returns the headings of the grid. An arrow marks the first column by which rows are
    sorted: the columns of several threads have the same key."""
    if not columns:  # the view has no size yet
        return []
    key_by_order = {ORDER_BY_COLUMN.get(column.key, column.key): column.key for column in columns}
    is_marked = order != "topology" or reverse
    is_rising = (order in {"topology", "CPU number", "task"}) != reverse
    title_columns = [replace(columns[0], width=MARKS_WIDTH + columns[0].width), *columns[1:]]
    return headings(title_columns, key_by_order.get(order, "") * is_marked, rising=is_rising)


# --- histories. Each cell covers one interval; the newest is at the right edge.

_IPC_STEP = 0.5
"""The upper end of an IPC scale is a multiple of this number."""
MIN_WIDTH_FOR_TIME = 24
"""Minimum width of an axis that contains a clock time, in cells."""


def history_axis(session: Session, interval: Interval, cells: int) -> Axis:
    """Returns an axis whose cells cover the interval's length, at least MIN_CELL_NS, in samples."""
    sample_ns = session.hello.sample_ns
    bin_ns = max(1, round(max(interval.elapsed_s * 1e9, MIN_CELL_NS) / sample_ns)) * sample_ns
    end_ns = -(-interval.time_ns // bin_ns) * bin_ns
    # At a past moment, the newest cell also shows samples after that moment.
    return Axis(end_ns, bin_ns, cells, min(end_ns, session.now_ns))


class RowHistories:
    """Histories of utilisation and IPC of the visible rows. Complete cells are read only once."""

    def __init__(
        self, session: Session, cores: list[Core], busy_width: int, ipc_width: int, *, ascii_: bool
    ) -> None:
        """`busy_width`, `ipc_width`: widths of the histories in cells; 0 if no column shows it."""
        self._session, self._cores, self._ascii = session, cores, ascii_
        self._busy_width, self._ipc_width = busy_width, ipc_width
        self._pairs = np.array([len(core.positions) == 2 for core in cores], bool)
        self._visible_rows: list[int] = []
        self._bins: BinValues
        self._interval: Interval
        self._busy_cells: dict[int, bytes] = {}
        self._ipc_cells: dict[int, Codes] = {}
        self.top_ipc = 0.0

    def update(self, interval: Interval, visible_rows: list[int], top_ipc: float) -> None:
        """Reads the histories up to the interval. `top_ipc`: minimum end of the IPC scale."""
        self._interval, self.top_ipc, rows = interval, top_ipc, visible_rows
        busy_width, ipc_width = self._busy_width, self._ipc_width
        if not rows:
            return
        if rows != self._visible_rows:
            self._visible_rows, cores = rows, [self._cores[row] for row in rows]
            # The first CPU of each core, then the last of each.
            cpus = [core.positions[i] for i in (0, -1) for core in cores]
            keys = ("util", "ipc") if ipc_width else ("util",)
            self._bins = BinValues(lambda history, i: history.metrics(keys, cpus, i))
        bins = max(busy_width, ipc_width)
        self._bins.update(self._session.past, history_axis(self._session, interval, bins))
        values = self._bins.values
        first, second = np.split(strips.heat_steps(values[bins - busy_width :, 0].T), 2)
        pairs = self._pairs[[*rows], None]
        # ASCII has no half cells: a cell shows the busier of two threads.
        both = np.maximum(first, second) if self._ascii else strips.pack_step_pairs(first, second)
        cells = np.where(pairs, both, first)
        self._busy_cells = {row: line.tobytes() for row, line in zip(rows, cells, strict=True)}
        if ipc_width:
            util, ipc_values = values[-ipc_width:, :, : len(rows)].swapaxes(0, 1)
            drawn_ipc = np.where(util >= strips.MIN_DRAWN_SHARE, ipc_values, np.nan).T
            highest = float(np.fmax.reduce(drawn_ipc, axis=None, initial=0.0))
            self.top_ipc = max(self.top_ipc, _IPC_STEP * np.ceil(highest / _IPC_STEP), _IPC_STEP)
            heights = strips.bar_heights(drawn_ipc, self.top_ipc)
            self._ipc_cells = dict(zip(rows, heights, strict=True))

    def busy_runs(self, row: int) -> tuple[Run, ...]:
        pair = bool(self._pairs[row]) and not self._ascii
        return strips.history_runs(self._busy_cells[row], pair=pair, ascii_=self._ascii)

    def ipc_runs(self, row: int, row_episode: RowEpisode | None) -> tuple[Run, ...]:
        """Returns the IPC history of the row's first CPU. `row_episode`: the running episode; if it
        lowers the IPC, cells since its start are red."""
        cells, first_lost = self._ipc_cells[row].tobytes(), self._ipc_width
        position = self._cores[row].positions[0]
        if row_episode is not None and (position, "ipc") in row_episode.lowered_numbers:
            axis = history_axis(self._session, self._interval, self._ipc_width)
            first_lost = max(0, axis.bin_at(row_episode.episode.start_ns + 1))
        return strips.bar_runs(cells, "ipc", first_lost, ascii_=self._ascii)


def axis_line(columns: Iterable[Column], session: Session, interval: Interval) -> list[Run]:
    """Returns the line below the rows, with an axis below each column that shows a history."""
    runs: list[Run] = [(" " * MARKS_WIDTH, "text")]
    for column in columns:
        runs.append((" " * (column.gap if column.is_left else column.width), "text"))
        if column.key in {"work", "past ipc"}:
            cells = column.room
            axis = history_axis(session, interval, cells)
            episodes = filter(episode_style.is_loss, time_axis.visible_episodes(axis, session))
            line = time_axis.axis_rule(axis, episodes)
            start, stamp_ns = cells // 6, axis.start_ns + cells // 6 * axis.bin_ns
            stamp = TICK_SIGN + time_of_day(session.unix_s(stamp_ns))
            is_free = all(run[0] == theme.RULE for run in line[start : start + len(stamp) + 1])
            if cells >= MIN_WIDTH_FOR_TIME and is_free:
                line[start : start + len(stamp)] = [(char, "dim") for char in stamp]
            runs += join_cells(line)
        elif column.is_left:
            runs.append((" " * column.room, "text"))
    return runs
