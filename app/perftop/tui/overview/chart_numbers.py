"""The numbers and texts beside the charts of a small machine. Each chart shows one unit: a core if
clocks are counted, else a CPU. This module reads the values of units and formats them as text."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from perftop.base.text import ClockUnit, count_noun, fit
from perftop.draw import charts, theme
from perftop.draw.columns import AT_REST, SUSPECT_SIGN, Run
from perftop.draw.strips import Piece, fit_line, merge_runs, width
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX, METRICS
from perftop.model.smt import STATES
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import has_few_ticks, suspect_rows, unaccounted_text
from perftop.tui.shared import episode_style
from perftop.tui.shared.cores import Core, Cores
from perftop.tui.shared.episode_style import MIN_AWAKE_UTIL, find_losing_index, marker_run
from perftop.tui.shared.row_numbers import RowNumbers
from perftop.tui.shared.tables import TaskRanking, task_ranking

_CHART_NAMES = {key: METRICS[key].label for key in ("busy_hz", "ipc", "steal")}
"""Names of the metrics that have charts, by key."""
_SHARE_KEYS = {METRICS[key].label: key for key in ("util", "user", "system", "steal")}
"""Keys of the shares of a CPU's time, by name."""
_READ_KEYS = ("util", "busy_hz", "ipc", "user", "system", "steal", "idle")
_READ_INDEXES = np.array([[INDEX[key]] for key in _READ_KEYS])


def lowered_metric_name(episode: Episode) -> str:
    """Returns the name of the metric that the episode makes worse; '' if it has no chart."""
    return _CHART_NAMES.get(episode_style.lowered_number(episode), "")


@dataclass(frozen=True, slots=True)
class ChartUnit:
    row: int
    """Index of the unit's row in `Cores.rows`."""
    core: Core
    positions: tuple[int, ...]
    cpus: tuple[int, ...]
    name: str

    @property
    def is_pair(self) -> bool:
        return len(self.positions) > 1


def chart_units(cores: Cores, order: Sequence[int], *, clocks: bool) -> list[ChartUnit]:
    """Returns a unit for each core, or for each CPU if not `clocks`. `order`: indexes of
    rows."""
    units = []
    for row in order:
        core = cores.rows[row]
        if clocks and len(core.cpus) > 1:
            name = f"core {cores.name(row, 'CPU number')}"
            units.append(ChartUnit(row, core, core.positions, core.cpus, name))
            continue
        for position, cpu in zip(core.positions, core.cpus, strict=True):
            units.append(ChartUnit(row, core, (position,), (cpu,), f"CPU {cpu}"))
    return units


def unit_values(
    numbers: RowNumbers, units: Sequence[ChartUnit], clock: ClockUnit, running: Sequence[Episode]
) -> list[UnitValues]:
    """Returns the values of units in one interval. `numbers`: those of all rows. `running`: the
    episodes in the interval, the worst first."""
    session, interval = numbers.session, numbers.interval
    ranking = task_ranking(session, interval)
    has_counters = bool(session.evaluator.variants["busy_hz"])
    positions = [position for unit in units for position in unit.positions]
    columns = interval.values.metrics[_READ_INDEXES, positions].T.tolist()
    values_by_key = [dict(zip(_READ_KEYS, column, strict=True)) for column in columns]
    values = dict(zip(positions, values_by_key, strict=True))
    online, at_rest = interval.online.tolist(), interval.is_at_rest.tolist()
    few_ticks = has_few_ticks(interval)
    has_doubts = bool(np.count_nonzero(interval.doubts))  # usually no number is suspect
    values_of_units = []
    for unit in units:
        position = unit.positions[numbers.busiest[unit.row] if unit.is_pair else 0]
        is_online = any(online[position] for position in unit.positions)
        episodes = [e for e in running if is_online and not {*unit.cpus}.isdisjoint(e.cpus)]
        worst_episode = next(filter(episode_style.is_loss, episodes), next(iter(episodes), None))
        lowered_names = frozenset(filter(None, map(lowered_metric_name, episodes)))
        ipc_episode = next((e for e in episodes if lowered_metric_name(e) == "IPC"), None)
        losing_cpu = None if ipc_episode is None else find_losing_index(unit.cpus, episodes)
        ipc_position = position if losing_cpu is None else unit.positions[losing_cpu]
        # Without running time, clock and IPC have no meaning.
        hz = nan if at_rest[position] else values[position]["busy_hz"]
        ipc = nan if at_rest[ipc_position] else values[ipc_position]["ipc"]
        is_below_ceiling = "clock" in lowered_names or (
            not isnan(hz) and bool(numbers.is_below_ceiling[unit.row])
        )
        ipc_cpu = unit.cpus[unit.positions.index(ipc_position)]
        busy = sum(values[position]["util"] for position in unit.positions)
        if unit.is_pair:
            shares, texts = _state_shares(interval, unit)
        else:
            is_coarse = bool(few_ticks[position])
            shares, texts = _time_shares(session, values[position], has_few_ticks=is_coarse)
        values_of_units.append(
            UnitValues(
                unit,
                shares,
                texts,
                lowered_names,
                _suspect_names(numbers, unit, shares) if has_doubts else (),
                marker=marker_run(worst_episode),
                tasks=_task_texts(ranking, unit, ipc_cpu, busy),
                hz=hz,
                ceiling_hz=float(numbers.ceiling_hz[unit.row]),
                is_below_ceiling=is_below_ceiling,
                ipc=ipc,
                ipc_marker=marker_run(ipc_episode),
                is_online=is_online,
                is_asleep=values[position]["util"] < MIN_AWAKE_UTIL,
                clock=clock,
                waiting_tasks=sum(ranking.waiting_by_cpu.get(cpu, nan) for cpu in unit.cpus),
                has_counters=has_counters,
            )
        )
    return values_of_units


def _suspect_names(numbers: RowNumbers, unit: ChartUnit, shares: Iterable[str]) -> set[str]:
    """Returns the names of the shares that a suspect counter affects."""
    names = set[str]()
    for name in shares:
        key = _SHARE_KEYS.get(name, name)
        is_suspect = suspect_rows(key, numbers.session, numbers.interval)
        if name != "idle" and is_suspect[[*unit.positions]].any():
            names.add(name)
    return names


def _task_texts(ranking: TaskRanking, unit: ChartUnit, ipc_cpu: int, busy: float) -> list[str]:
    """Returns the tasks on the unit with their shares of a CPU, first those on the CPU whose IPC is
    shown. If they cover less than half of the busy time, returns a text that says so."""
    cpus = sorted(unit.cpus, key=lambda cpu: cpu != ipc_cpu)
    tasks = [task for cpu in cpus for task in ranking.names_by_cpu.get(cpu, ())]
    if unseen_text := unaccounted_text(busy, sum(share for share, _ in tasks)):
        return [unseen_text]
    return [f"{name} {100 * share:.0f} %" for share, name in tasks]


def _state_shares(
    interval: Interval, unit: ChartUnit
) -> tuple[Mapping[str, float], Mapping[str, str]]:
    """Returns the shares of the SMT states of a core, and texts that replace some of them: the
    lowest and highest possible share if they are not measured, and "off" for offline threads."""
    split, core, texts = interval.split, unit.core.core_position, dict[str, str]()
    shares = dict(zip(STATES, split.states[core].tolist(), strict=True))
    online = [bool(interval.online[position]) for position in unit.positions]
    if not online[0]:  # the only online thread is stored as the first
        shares["lp0"], shares["lp1"] = shares["lp1"], shares["lp0"]
    if split.method[core] == "bounds":
        for name, *ends in zip(STATES, split.low[core], split.high[core], strict=True):
            texts[name] = "–".join(dict.fromkeys(f"{100 * end:.0f}" for end in ends))
    texts |= {f"lp{i}": "off" for i, is_online in enumerate(online) if not is_online}
    return {name: shares[name] for name in ("both", "lp0", "lp1", "neither")}, texts


def _time_shares(
    session: Session, values: Mapping[str, float], *, has_few_ticks: bool
) -> tuple[Mapping[str, float], Mapping[str, str]]:
    """Returns the shares of a CPU's time, and AT_REST for those counted in too few ticks."""
    variants = session.evaluator.variants
    has_steal = session.hello.virtualisation is not None  # only virtual machines have steal
    shares = {
        name: values[key]
        for name, key in _SHARE_KEYS.items()
        if name == "busy" or (variants[key] and (has_steal or name != "steal"))
    }
    coarse_names = [name for name in shares if METRICS[_SHARE_KEYS[name]].is_coarse]
    steal = shares.get("steal", 0.0)
    idle_share = max(0.0, 1 - shares["busy"] - (0.0 if isnan(steal) else steal))
    shares["idle"] = values["idle"] if variants["idle"] else idle_share
    return shares, dict.fromkeys(coarse_names, AT_REST) if has_few_ticks else {}


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

    unit: ChartUnit
    shares: Mapping[str, float]
    """Shares of the unit's time, by name. The available shares depend on the machine."""
    share_texts: Mapping[str, str]
    """Texts that replace shares, by name."""
    lowered_names: Collection[str]
    suspect_names: Collection[str]
    marker: Run
    tasks: Sequence[str]
    """Names of the tasks that run on the unit, the busiest first."""
    hz: float
    ceiling_hz: float
    is_below_ceiling: bool
    """Whether the clock is below its ceiling, which a marker after the clock shows."""
    ipc: float
    ipc_marker: Run
    """Marker after the IPC, of the episode that lowers it."""
    is_online: bool
    is_asleep: bool
    """Whether the unit is too idle for its clock and IPC to be meaningful."""
    clock: ClockUnit
    waiting_tasks: float
    has_counters: bool


_LEGEND: Mapping[str, Run] = {
    "user": (theme.USER, "user-9"), "kernel": (theme.KERNEL, "kernel-9"),
    "steal": (theme.STEAL, "over"), "busy": (theme.USER, "user-9"),
    **{style: (char, style) for char, style in theme.STATES[:3]},
    "neither": (theme.NEITHER, "text"),
}  # fmt: skip
"""Character and style with which a chart shows a share, by name of the share."""


def title_runs(values: UnitValues, size: int, *, colour: bool) -> list[Run]:
    """Returns the line above a chart, in at most `size` cells: the episode marker, name and numbers
    of the core or CPU, then a thin rule, then the tasks that ran there, flush right."""
    start: list[Run] = [values.marker, (f"  {values.unit.name:<7} ", "bright")]
    if values.unit.is_pair:
        start.append((f"{','.join(map(str, values.unit.cpus)):<6}", "dim"))
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
        sign, count_text = theme.USER if colour else QUEUE_LETTER, f"{values.waiting_tasks:.1f}"
        queue: list[Run] = [
            ("  ", "text"),
            (sign, "queue"),
            (" queue ", "dim"),
            (count_text, style),
        ]
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
    """Returns a share in per cent, after its name. Small shares are dim, a share that an episode
    makes worse is red, and a suspect share has a mark."""
    value, is_lowered = values.shares[name], name in values.lowered_names
    style = "alarm" if is_lowered else "dim" if value < MAX_DIM_SHARE else "text"
    number: Run = f"{100 * value:>6.1f}", style
    if name in values.share_texts:
        number = f"{values.share_texts[name]:>6}", "dim"
    elif isnan(value):
        number = f"{'–':>6}", "faint"
    elif name in values.suspect_names:
        number = f"{f'{SUSPECT_SIGN}{100 * value:.1f}':>6}", "dim"
    if name not in _LEGEND:
        return [(f"  {name}", "dim"), number]
    char, key = _LEGEND[name]
    char = theme.USER if colour and name == "kernel" and not is_lowered else char
    return [("  ", "text"), (char, "alarm" if is_lowered else key), (f" {name}", "dim"), number]


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


def clock_row(hz: float, ends: tuple[float, float], rows: int) -> int:
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
    is_lowered = "clock" in values.lowered_names
    clock_runs = [_number_cell(hz * clock.per_hz, clock.digits, style, lowered=is_lowered)]
    at_clock = min(last, clock_row(hz, ends, rows))
    if values.is_below_ceiling and ceiling_hz > hz:
        at_ceiling = min(max(0, last - 1), clock_row(ceiling_hz, ends, rows))
        at_clock = max(min(at_ceiling + 1, last), at_clock)
        clock_runs += [(" clock", "dim"), (" ", "text")] if has_title else [(" ", "text")]
        clock_runs.append((theme.DROP_SIGN, "alarm"))
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
by a few per cent looks like a small loss to an unknown cause."""


def lost_time_lines(
    lost_s: Sequence[float], window_s: float, rows: int, *, colour: bool
) -> list[list[Run]]:
    """Returns `rows` lines of CAUSES_WIDTH cells with the seconds lost below the clock ceiling by
    each cause, the largest loss first. `window_s`: seconds over which losses are summed."""
    window = f"{window_s:.{0 if window_s >= 10 else 1}f} s"
    lines: list[list[Run]] = [[(f"clock lost, {window}", "dim")]] if rows > 2 else []
    order = sorted(range(len(lost_s)), key=lost_s.__getitem__, reverse=True)
    min_lost_s = {"unknown": MIN_UNEXPLAINED_S}
    shown_causes = [
        i for i in order if lost_s[i] >= min_lost_s.get(charts.GAP_CAUSES[i], MIN_LOST_S)
    ]
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
    ]
    for name, char in zip(charts.GAP_CAUSES, charts.GAP_CHARS, strict=True):
        style = f"bright/gap-{name}" if colour else "text"
        pieces.append((1, [(char, style), (f" {name}", "dim")]))
    return [(" ", "text"), *fit_line(pieces, size - 1, 3)]


def group_heading(
    name: str, units: Sequence[ChartUnit], running: Sequence[Episode], size: int
) -> list[Run]:
    """Returns the heading of the cores of one L3, or of a package that has only one L3, with the
    marker of the worst of the `running` episodes that affects all of them."""
    shared = (e for e in running if all(not {*unit.cpus}.isdisjoint(e.cpus) for unit in units))
    marker, count = marker_run(next(shared, None)), count_noun(len(units), "core")
    runs: list[Run] = [(" ", "text"), marker, (f" {name}", "bright"), (f"  {count}   ", "dim")]
    return [*runs, (theme.RULE * max(0, size - width(runs)), "rule")]


def _number_cell(value: float, digits: int, key: str, *, lowered: bool = False) -> Run:
    """Returns a number in 5 cells."""
    if isnan(value):
        return f"{AT_REST if key == 'dim' else '–':>5}", "faint"
    return f"{value:>5.{digits}f}", "alarm" if lowered else key
