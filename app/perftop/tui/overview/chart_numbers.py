"""The numbers and texts beside the charts of a small machine. Each chart shows one unit: a core if
clocks are counted, else a CPU. This module reads the values of a unit in one interval and formats
them as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from perftop.base.text import GHZ, ClockUnit, count_noun
from perftop.draw import charts, theme
from perftop.draw.columns import AT_REST, DOUBTED_SIGN, Run, fit
from perftop.draw.strips import Piece, fit_line, merge_runs, width
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX, METRICS
from perftop.model.smt import STATES
from perftop.session.values import has_few_ticks, suspect_rows, unaccounted_text
from perftop.tui.shared import episode_style
from perftop.tui.shared.cores import Cores, package_name
from perftop.tui.shared.episode_style import (
    MIN_AWAKE_UTIL,
    RowEpisodes,
    find_losing_index,
    lowered_number,
)
from perftop.tui.shared.row_numbers import RowNumbers
from perftop.tui.shared.tables import task_ranking

_CHART_NAMES = {key: METRICS[key].label for key in ("busy_hz", "ipc", "steal")}
"""Names of the metrics that have charts, by key."""
_SHARE_KEYS = {METRICS[key].label: key for key in ("util", "user", "system", "steal")}
"""Keys of the shares of a CPU's time, by name."""
_READ_KEYS = ("util", "busy_hz", "ipc", "user", "system", "steal", "idle")
_READ_INDEXES = np.array([[INDEX[key]] for key in _READ_KEYS])


def lowered_metric_name(episode: Episode) -> str:
    """Returns the name of the metric that the episode makes worse; '' if the metric has no
    chart."""
    return _CHART_NAMES.get(lowered_number(episode), "")


@dataclass(frozen=True, slots=True)
class ChartUnit:
    row: int
    """Index of the unit's row in `Cores.rows`."""
    core_position: int
    positions: tuple[int, ...]
    cpus: tuple[int, ...]
    package: int | None
    package_name: str
    type: str | None
    name: str

    @property
    def is_pair(self) -> bool:
        return len(self.positions) > 1


def chart_units(cores: Cores, order: Sequence[int], *, counted: bool) -> list[ChartUnit]:
    """Returns a unit for each core, or for each CPU if there are no counters, in the order in which
    they are drawn. `order`: indexes of rows."""
    units = []
    for index in order:
        core = cores.rows[index]
        whole_core = [(core.positions, core.cpus)]
        cpus = [((row,), (cpu,)) for row, cpu in zip(core.positions, core.cpus, strict=True)]
        for unit_rows, unit_cpus in whole_core if counted else cpus:
            name = f"CPU {unit_cpus[0]}"
            if len(unit_rows) > 1:
                name = f"core {cores.name(index, 'CPU number')}"
            units.append(ChartUnit(
                index, core.core_position, unit_rows, unit_cpus, core.package,
                package_name(core.package), core.type, name,
            ))  # fmt: skip
    return units


class UnitReader:
    """Reads the values and the running episodes of units in one interval."""

    def __init__(
        self, row_numbers: RowNumbers, units: Sequence[ChartUnit], clock: ClockUnit,
        episodes: RowEpisodes,
    ) -> None:  # fmt: skip
        session, interval = row_numbers.session, row_numbers.interval
        self._session, self._interval, self._clock = session, interval, clock
        self._row_numbers = row_numbers
        self._running_episodes = episodes.running
        self._ranking = task_ranking(session, interval)
        has_steal = session.hello.virtualisation is not None  # only virtual machines have steal
        variants = session.evaluator.variants
        self._accounts = {name: key for name, key in _SHARE_KEYS.items() if name == "busy" or (
            variants[key] and (has_steal or name != "steal"))}  # fmt: skip
        """Keys of the shares of a CPU's time, by name."""
        self._has_counters = bool(variants["busy_hz"])
        self._has_few_ticks = has_few_ticks(interval)
        self._has_suspects = bool(np.count_nonzero(interval.doubts))
        self._online = interval.online.tolist()
        rows = [row for unit in units for row in unit.positions]
        numbers = interval.values.all[_READ_INDEXES, rows].T.tolist()
        self._numbers = dict(zip(rows, numbers, strict=True))
        """The values of the metrics in _READ_KEYS, by position of the CPU."""

    def common_marker(self, units: Sequence[ChartUnit]) -> Run:
        """Returns the marker of the worst running episode that affects all of these units."""
        shared = (
            e for e in self._running_episodes
            if all(not {*unit.cpus}.isdisjoint(e.cpus) for unit in units)
        )  # fmt: skip
        return _marker_run(next(shared, None))

    def unit_values(self, unit: ChartUnit) -> UnitValues:
        row_numbers = self._row_numbers
        row = unit.positions[row_numbers.busiest[unit.row] if unit.is_pair else 0]
        is_online = any(self._online[row] for row in unit.positions)
        episodes = [e for e in self._running_episodes
                    if is_online and not {*unit.cpus}.isdisjoint(e.cpus)]  # fmt: skip
        worst_episode = next(filter(episode_style.is_loss, episodes), next(iter(episodes), None))
        shares = self._states(unit) if unit.is_pair else self._time_shares(row)
        lowered_names = frozenset(filter(None, map(lowered_metric_name, episodes)))
        ipc_episode = next((e for e in episodes if lowered_metric_name(e) == "IPC"), None)
        losing_cpu = None if ipc_episode is None else find_losing_index(unit.cpus, episodes)
        ipc_row = row if losing_cpu is None else unit.positions[losing_cpu]
        util, hz, _ = self._util_clock_ipc(row)
        is_below_ceiling = "clock" in lowered_names or (
            not isnan(hz) and bool(row_numbers.is_below_ceiling[unit.row])
        )
        *_, ipc = self._util_clock_ipc(ipc_row)
        # The IPC is that of one CPU, so the tasks of that CPU come first.
        cpus = sorted(unit.cpus, key=lambda cpu: cpu != unit.cpus[unit.positions.index(ipc_row)])
        names_by_cpu = self._ranking.names_by_cpu
        tasks = [task for cpu in cpus for task in names_by_cpu.get(cpu, ())]
        names = [f"{name} {100 * share:.0f} %" for share, name in tasks]
        busy = sum(self._numbers[row][0] for row in unit.positions)
        if unseen_text := unaccounted_text(busy, sum(share for share, _ in tasks)):
            names = [unseen_text]  # the tasks cover less than half of the busy time
        return UnitValues(
            unit.name, ",".join(map(str, unit.cpus)) if unit.is_pair else "",
            shares, lowered_names, self._doubtful_shares(unit, shares),
            _marker_run(worst_episode), names, hz,
            float(row_numbers.ceiling_hz[unit.row]),
            (theme.DROP_SIGN, "alarm") if is_below_ceiling else (" ", "text"),
            ipc, _marker_run(ipc_episode), is_online,
            self._share_texts(unit, row), util < MIN_AWAKE_UTIL, self._clock,
            sum(self._ranking.waiting_by_cpu.get(cpu, nan) for cpu in unit.cpus),
            has_counters=self._has_counters,
        )  # fmt: skip

    def _util_clock_ipc(self, row: int) -> tuple[float, float, float]:
        """Returns the utilisation, the clock in Hz and the IPC of a CPU. Clock and IPC are NaN if
        the CPU is at rest."""
        util, hz, ipc, *_ = self._numbers[row]
        return (util, nan, nan) if self._interval.is_at_rest[row] else (util, hz, ipc)

    def _states(self, unit: ChartUnit) -> Mapping[str, float]:
        states = self._interval.split.states[unit.core_position].tolist()
        shares = dict(zip(STATES, states, strict=True))
        if not self._online[unit.positions[0]]:  # the only online thread is stored as the first
            shares["lp0"], shares["lp1"] = shares["lp1"], shares["lp0"]
        return {name: shares[name] for name in ("both", "lp0", "lp1", "neither")}

    def _share_texts(self, unit: ChartUnit, row: int) -> Mapping[str, str]:
        """Returns the texts that replace shares: of SMT states that are not measured, the lowest
        and highest possible share in per cent; "off" for an offline thread; and AT_REST for shares
        that the kernel counts in ticks, if there were too few."""
        if not unit.is_pair:
            coarse = {name for name in self._accounts if METRICS[_SHARE_KEYS[name]].is_coarse}
            return dict.fromkeys(coarse, AT_REST) if self._has_few_ticks[row] else {}
        split, core, texts = self._interval.split, unit.core_position, dict[str, str]()
        if split.method[core] == "bounds":
            for name, *ends in zip(STATES, split.low[core], split.high[core], strict=True):
                texts[name] = "–".join(dict.fromkeys(f"{100 * end:.0f}" for end in ends))
        offline = (f"lp{i}" for i, row in enumerate(unit.positions) if not self._online[row])
        return texts | dict.fromkeys(offline, "off")

    def _time_shares(self, row: int) -> Mapping[str, float]:
        numbers = dict(zip(_READ_KEYS, self._numbers[row], strict=True))
        shares = {name: numbers[key] for name, key in self._accounts.items()}
        steal = shares.get("steal", 0.0)
        idle_share = max(0.0, 1 - shares["busy"] - (0.0 if isnan(steal) else steal))
        shares["idle"] = numbers["idle"] if self._session.evaluator.variants["idle"] else idle_share
        return shares

    def _doubtful_shares(self, unit: ChartUnit, shares: Mapping[str, float]) -> frozenset[str]:
        if not self._has_suspects:  # usually no number is suspect
            return frozenset()
        keys = {name: _SHARE_KEYS.get(name, name) for name in shares if name != "idle"}
        return frozenset(
            name for name, key in keys.items()
            if suspect_rows(key, self._session, self._interval)[list(unit.positions)].any()
        )  # fmt: skip


def _marker_run(episode: Episode | None) -> Run:
    if episode is None:
        return " ", "text"
    return episode_style.marker(episode), episode_style.severity_style(episode)


# --- as text

SCALE_WIDTH = 7
"""Width of a scale to the left of a chart, with its margin, in cells."""
NAME_WIDTH = 11
"""Width of the name and the scale to the left of a chart without a title, in cells."""
MAX_DIM_SHARE = 0.05
MIN_SHOWN_QUEUE, MIN_ALARM_QUEUE = 0.05, 0.5
"""Minimum mean number of waiting tasks that is shown in a title, and that is red."""
QUEUE_LETTER = "w"
"""Character for waiting tasks on a screen without colour."""
SELECTION_BAR = "▌"


class UnitValues(NamedTuple):
    """Values of a CPU or a core over one interval; NaN where unknown."""

    name: str
    cpu_list: str
    """The CPU numbers of a core; '' for a single CPU."""
    shares: Mapping[str, float]
    """Shares of the unit's time, by name. The available shares depend on the machine."""
    lowered_names: frozenset[str] = frozenset()
    suspect_names: frozenset[str] = frozenset()
    marker: Run = (" ", "text")
    tasks: Sequence[str] = ()
    """Names of the tasks that run on the unit, the busiest first."""
    hz: float = nan
    ceiling_hz: float = nan
    drop_marker: Run = (" ", "text")
    """Marker after the clock; blank unless the clock is below its ceiling."""
    ipc: float = nan
    ipc_marker: Run = (" ", "text")
    """Marker after the IPC: that of the episode that lowers it."""
    is_online: bool = True
    share_texts: Mapping[str, str] = {}
    """Texts that replace shares, by name."""
    is_asleep: bool = False
    """Whether the unit is too idle for its clock and IPC to be meaningful."""
    clock: ClockUnit = GHZ
    waiting_tasks: float = nan
    has_counters: bool = False


_LEGEND: Mapping[str, Run] = {
    "user": (theme.USER, "user-9"), "kernel": (theme.KERNEL, "kernel-9"),
    "steal": (theme.STEAL, "over"), "busy": (theme.USER, "user-9"),
    **{style: (char, style) for char, style in theme.STATES[:3]},
    "neither": (theme.NEITHER, "text"),
}  # fmt: skip
"""Character and style with which a chart shows a share, by name of the share."""


def _share_cell(values: UnitValues, name: str, size: int) -> Run:
    """Returns a share in per cent, in `size` cells. Small shares are dim, a share that an episode
    makes worse is red, and a suspect share has a mark."""
    value = values.shares[name]
    if name in values.share_texts:
        return f"{values.share_texts[name]:>{size}}", "dim"
    if isnan(value):
        return f"{'–':>{size}}", "faint"
    if name in values.suspect_names:
        return f"{f'{DOUBTED_SIGN}{100 * value:.1f}':>{size}}", "dim"
    key = "alarm" if name in values.lowered_names else "dim" if value < MAX_DIM_SHARE else "text"
    return f"{100 * value:>{size}.1f}", key


def title_runs(values: UnitValues, size: int, *, colour: bool) -> list[Run]:
    """Returns the line above a chart, in at most `size` cells: the episode marker, name and numbers
    of the core or CPU, then a thin rule, then the tasks that ran there, flush right."""
    start: list[Run] = [values.marker, (f"  {values.name:<7} ", "bright")]
    if values.cpu_list:
        start.append((f"{values.cpu_list:<6}", "dim"))
    if not values.is_online:
        return merge_runs([*start, ("off", "dim")], size)
    if "busy" in values.shares:
        busy = values.shares["busy"]
        number: Run = ("   –", "faint") if isnan(busy) else (f"{100 * busy:>5.1f}", "bright")
        start += [number, (" %", "dim")]
    pieces = [_share_piece(values, name, colour=colour) for name in values.shares if name != "busy"]
    if values.has_counters:
        pieces.insert(0, [("  ", "text"), *_ipc_runs(values)])
    min_task_width = 2 + width(task_runs(values.tasks[:1], size // 3))
    if values.waiting_tasks >= MIN_SHOWN_QUEUE:
        style = "alarm" if values.waiting_tasks >= MIN_ALARM_QUEUE else "text"
        queue: list[Run] = [
            ("  ", "text"), (theme.USER if colour else QUEUE_LETTER, "queue"), (" queue ", "dim"),
            (f"{values.waiting_tasks:.1f}", style),
        ]  # fmt: skip
        # On a narrow screen the queue replaces shares that the chart also shows.
        has_room = size - width(start) - sum(map(width, pieces)) - width(queue) >= min_task_width
        pieces.insert(len(pieces) if has_room else 0, queue)
    room = size - width(start) - sum(map(width, pieces))
    while pieces and room < min_task_width:
        room += width(pieces.pop())
    tasks = task_runs(values.tasks, room - 8) or task_runs(values.tasks[:1], room - 2)
    start += [run for piece in pieces for run in piece]
    rule = room - width(tasks) - 1
    if rule < 6:
        return merge_runs([*start, (" " * max(2, rule), "text"), *tasks], size)
    line: list[Run] = [("  ", "text"), (theme.RULE * (rule - 3 if tasks else rule - 2), "rule")]
    return [*start, *line, (" ", "text"), *tasks]


def _share_piece(values: UnitValues, name: str, *, colour: bool) -> list[Run]:
    value = _share_cell(values, name, 6)
    if name not in _LEGEND:
        return [(f"  {name}", "dim"), value]
    char, key = _LEGEND[name]
    if name in values.lowered_names:
        key = "alarm"
    elif colour and name == "kernel":
        char = theme.USER
    return [("  ", "text"), (char, key), (f" {name}", "dim"), value]


def task_runs(names: Sequence[str], room: int) -> list[Run]:
    """Returns the first tasks that fit, at most three; all but the first are dim."""
    runs: list[Run] = []
    for i, name in enumerate(names[:3]):
        text = f"  {name}" if runs else name
        room -= len(text)
        if room < 0:
            break
        runs.append((text, "dim" if i else "text"))
    return runs


def _ipc_runs(values: UnitValues) -> list[Run]:
    style = "dim" if values.is_asleep else "bright"
    number = _number_cell(values.ipc, 2, style, lowered="IPC" in values.lowered_names)
    return [("IPC", "dim"), number, (" ", "text"), values.ipc_marker]


def share_marks(rows: int) -> list[str]:
    """Returns the labels of a scale from 0 to 100 % for the lines of a chart."""
    marks = [""] * rows
    marks[-1], marks[0] = "0", "100"
    if rows >= 5:
        marks[rows // 2] = "50"
    return marks


def row_of_clock(hz: float, ends: tuple[float, float], rows: int) -> int:
    """Returns the index of the row at the height of a clock, from the top of a chart; 0 if the
    clock is unknown. `ends`: the ends of the scale in Hz, the lower one first."""
    low_hz, high_hz = ends
    return 0 if isnan(hz) else max(0, rows - 1 - int(rows * (hz - low_hz) / (high_hz - low_hz)))


CLOCK_WIDTH, WIDE_CLOCK_WIDTH = 19, 27
"""Widths in cells of the numbers to the right of a clock chart."""


def numbers_beside_clock(
    values: UnitValues, ends: tuple[float, float], rows: int, size: int, *, has_title: bool
) -> list[list[Run]]:
    """Returns the lines to the right of a clock chart, in `size` cells: the ceiling with the
    difference to the clock, and the clock, each at its height. A clock at its ceiling has no second
    number. `has_title`: whether the IPC and the task are in a title above the chart."""
    lines: list[list[Run]] = [[] for _ in range(rows)]
    clock, hz, ceiling_hz = values.clock, values.hz, values.ceiling_hz
    has_task_line = not has_title and rows > 2
    last = rows - 1 - has_task_line
    style = "dim" if values.is_asleep else "bright"
    clock_runs = [_number_cell(hz * clock.per_hz, clock.digits, style,
                               lowered="clock" in values.lowered_names)]  # fmt: skip
    at_clock = min(last, row_of_clock(hz, ends, rows))
    if values.drop_marker[0] != " " and ceiling_hz > hz:
        at_ceiling = min(max(0, last - 1), row_of_clock(ceiling_hz, ends, rows))
        at_clock = max(min(at_ceiling + 1, last), at_clock)
        clock_runs += [(" clock", "dim"), (" ", "text")] if has_title else [(" ", "text")]
        clock_runs.append(values.drop_marker)
        loss: Run = (f" −{(ceiling_hz - hz) * clock.per_hz:.{clock.digits}f}", clock_runs[0][1])
        ceiling = _number_cell(ceiling_hz * clock.per_hz, clock.digits, "text")
        if has_title and at_clock - at_ceiling > 1:
            lines[at_ceiling] = [ceiling, (" ceiling", "dim")]
            lines[at_ceiling + 1] = [loss]
        else:
            lines[at_ceiling] = [ceiling, loss]
    if not values.is_online:
        lines[0] = [(" off", "dim")]
    elif hz > 0:
        lines[at_clock] = clock_runs
    elif has_title:
        lines[-1] = [(" idle", "dim")]
    if has_title or not values.is_online:
        return [merge_runs(line, size) for line in lines]
    task, is_wide = values.tasks[0] if values.tasks else "idle", size >= WIDE_CLOCK_WIDTH
    half = 13 if is_wide else 8  # cells for the ceiling and the loss, or for the clock and its sign
    if is_wide:
        lines[0] = [*merge_runs(lines[0], half), *_ipc_runs(values)]
    elif values.ipc_marker[0] != " ":
        lines[at_clock] += [(f"  IPC {values.ipc:.2f} ", "alarm"), values.ipc_marker]
    first_cell = 1 if has_task_line else half
    while len(task) > size - first_cell and " " in task:  # no part of the share or PID is shown
        task = task.removesuffix(" %").rpartition(" ")[0]
    lines[-1] = [*merge_runs(lines[-1], first_cell), (fit(task, size - first_cell), "dim")]
    return [merge_runs(line, size) for line in lines]


CAUSES_WIDTH = 18
"""Width in cells of the list of seconds lost by cause."""
MIN_LOST_S, MIN_UNEXPLAINED_S = 0.01, 0.05
"""Minimum loss that is listed, in seconds: to a known and to an unknown cause. A clock that varies
by some per cent looks like a small loss to an unknown cause."""


def lost_time_lines(
    lost_s: Sequence[float], window_s: float, rows: int, *, colour: bool
) -> list[list[Run]]:
    """Returns `rows` lines of CAUSES_WIDTH cells with the seconds lost below the clock ceiling by
    each cause, the largest loss first. `window_s`: seconds over which losses are summed."""
    lines: list[list[Run]] = [[(f"lost in {window_s:.0f} s", "dim")]] if rows > 2 else []
    order = sorted(range(len(lost_s)), key=lost_s.__getitem__, reverse=True)
    min_lost_s = [
        MIN_LOST_S if name != "unknown" else MIN_UNEXPLAINED_S for name in charts.GAP_CAUSES
    ]
    shown_causes = [cause for cause in order if lost_s[cause] >= min_lost_s[cause]]
    for cause in shown_causes[: rows - len(lines)]:
        name, seconds = charts.GAP_CAUSES[cause], lost_s[cause]
        char = charts.GAP_CHARS[cause], f"bright/gap-{name}" if colour else "text"
        number = f"{seconds:>6.{2 if seconds < 10 else 1}f}"
        lines.append([char, (f" {name:<7}", "text"), (number, "text"), (" s", "dim")])
    if not shown_causes:
        lines.append([("nothing", "dim")])
    return [merge_runs(line, CAUSES_WIDTH) for line in [*lines, *[[]] * rows][:rows]]


def legend_line(clock: ClockUnit, size: int, *, colour: bool) -> list[Run]:
    """Returns the line above charts of clocks, which explains the colours of the gaps."""
    pieces: list[Piece] = [
        (0, [("clock", "bright"), (f" and its ceiling, {clock.name}", "dim")]),
        (3, [(theme.USER, "clock-9" if colour else "text"), (" clock", "dim")]),
        (2, [("between them:", "dim")]),
    ]  # fmt: skip
    for name, char in zip(charts.GAP_CAUSES, charts.GAP_CHARS, strict=True):
        style = f"bright/gap-{name}" if colour else "text"
        pieces.append((1, [(char, style), (f" {name}", "dim")]))
    return [(" ", "text"), *fit_line(pieces, size - 1, 3)]


def group_heading(name: str, unit_count: int, marker: Run, size: int) -> list[Run]:
    """Returns the heading of the cores of one L3, or of a package that has only one L3."""
    left_runs: list[Run] = [(" ", "text"), marker, (f" {name}", "bright"),
                       (f"  {count_noun(unit_count, 'core')}   ", "dim")]  # fmt: skip
    return [*left_runs, (theme.RULE * max(0, size - width(left_runs)), "rule")]


def _number_cell(value: float, digits: int, key: str, *, lowered: bool = False) -> Run:
    """Returns a number in 5 cells."""
    if isnan(value):
        return f"{AT_REST if key == 'dim' else '–':>5}", "faint"
    return f"{value:>5.{digits}f}", "alarm" if lowered else key
