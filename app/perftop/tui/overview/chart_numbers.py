"""The numbers and texts beside the charts of a small machine. Each chart shows one unit: a core if
clocks are counted, else a CPU. This module reads the values of a unit in one interval and formats
them as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from perftop.base.text import GHZ, ClockUnit
from perftop.draw import charts, theme
from perftop.draw.columns import AT_REST, DOUBTED_SIGN, Run
from perftop.draw.strips import merge_runs, width
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX, METRICS
from perftop.model.smt import STATES
from perftop.session.values import suspect_rows, unaccounted_text
from perftop.tui.panels.tables import task_ranking
from perftop.tui.shared import episode_style
from perftop.tui.shared.cores import Cores, package_name
from perftop.tui.shared.episode_style import (
    MIN_AWAKE_UTIL,
    RowEpisodes,
    find_losing_index,
    lowered_number,
)
from perftop.tui.shared.row_numbers import RowNumbers

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
        session, interval = row_numbers.reader.session, row_numbers.interval
        self._session, self._interval, self._clock = session, interval, clock
        self._row_numbers = row_numbers
        self._running_episodes = episodes.running
        self._row_episodes = episodes
        self._ranking = task_ranking(session, interval)
        has_steal = session.hello.virtualisation is not None  # only virtual machines have steal
        chosen = session.evaluator.variants
        self._accounts = {name: key for name, key in _SHARE_KEYS.items() if name == "busy" or (
            chosen[key] and (has_steal or name != "steal"))}  # fmt: skip
        """Keys of the shares of a CPU's time, by name."""
        self._has_suspects = bool(np.count_nonzero(interval.doubts))
        self._online = interval.online.tolist()
        rows = [row for unit in units for row in unit.positions]
        numbers = interval.values.all[_READ_INDEXES, rows].T.tolist()
        self._numbers = dict(zip(rows, numbers, strict=True))
        """The values of the metrics in _READ_KEYS, by position of the CPU."""

    def package_marker(self, package: int | None) -> Run:
        """Returns the marker of the worst running episode that affects most of a package."""
        _, package_wide = self._row_episodes.package_episodes(package)
        return _marker_run(next(iter(package_wide), None))

    def common_marker(self, units: Sequence[ChartUnit]) -> Run:
        """Returns the marker of the worst running episode that affects all of these units."""
        shared = (
            e for e in self._running_episodes
            if all(not {*unit.cpus}.isdisjoint(e.cpus) for unit in units)
        )  # fmt: skip
        return _marker_run(next(shared, None))

    def unit_values(self, unit: ChartUnit, *, is_selected: bool) -> UnitValues:
        row_numbers = self._row_numbers
        row = unit.positions[row_numbers.busiest[unit.row] if unit.is_pair else 0]
        episodes = [e for e in self._running_episodes if not {*unit.cpus}.isdisjoint(e.cpus)]
        is_package_wide = self._row_episodes.is_package_wide
        own_episodes = [e for e in episodes if not is_package_wide(e, unit.positions[0])]
        worst = next(filter(episode_style.is_loss, own_episodes), next(iter(own_episodes), None))
        shares = self._states(unit) if unit.is_pair else self._time_shares(row)
        lowered_names = [*map(lowered_metric_name, episodes)]
        ipc_episode = next((e for e in own_episodes if lowered_metric_name(e) == "IPC"), None)
        losing_cpu = None if ipc_episode is None else find_losing_index(unit.cpus, own_episodes)
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
        names = [f"{name} {100 * share:.0f}" for share, name in tasks]
        busy = sum(self._numbers[row][0] for row in unit.positions)
        if unseen := unaccounted_text(busy, sum(share for share, _ in tasks)):
            names = [unseen]  # the tasks cover less than half of the busy time
        return UnitValues(
            unit.name, ",".join(map(str, unit.cpus)) if unit.is_pair else "",
            shares, frozenset(filter(None, map(lowered_metric_name, own_episodes))),
            self._doubtful_shares(unit, shares),
            _marker_run(worst), names, hz,
            float(row_numbers.ceiling_hz[unit.row]),
            (theme.DROP_SIGN, "alarm") if is_below_ceiling else (" ", "text"),
            ipc, _marker_run(ipc_episode), any(self._online[row] for row in unit.positions),
            self._share_texts(unit) if unit.is_pair else {},
            util < MIN_AWAKE_UTIL, is_selected, self._clock,
            sum(self._ranking.waiting_by_cpu.get(cpu, nan) for cpu in unit.cpus),
        )  # fmt: skip

    def _util_clock_ipc(self, row: int) -> tuple[float, float, float]:
        """Returns utilisation, clock in Hz and IPC of a CPU. Clock and IPC are NaN if the CPU is at
        rest."""
        util, hz, ipc, *_ = self._numbers[row]
        return (util, nan, nan) if self._interval.is_at_rest[row] else (util, hz, ipc)

    def _states(self, unit: ChartUnit) -> Mapping[str, float]:
        states = self._interval.split.states[unit.core_position].tolist()
        shares = dict(zip(STATES, states, strict=True))
        if not self._online[unit.positions[0]]:  # the only online thread is stored as the first
            shares["lp0"], shares["lp1"] = shares["lp1"], shares["lp0"]
        return {name: shares[name] for name in ("both", "lp0", "lp1", "neither")}

    def _share_texts(self, unit: ChartUnit) -> Mapping[str, str]:
        """Returns the texts that replace unknown shares, by SMT state: the lowest and highest
        possible share in per cent, or "off" for an offline thread."""
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
        rest = max(0.0, 1 - shares["busy"] - (0.0 if isnan(steal) else steal))
        shares["idle"] = numbers["idle"] if self._session.evaluator.variants["idle"] else rest
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

LEFT_WIDTH = 17
"""Width of the names and numbers to the left of a chart, in cells."""
WIDE_LEFT_WIDTH = 31
"""Width of the names and numbers to the left of a chart of two lines, in cells."""
SCALE_WIDTH = 7
"""Width of a scale to the left of a chart, with its margin, in cells."""
MAX_DIM_SHARE = 0.05
MIN_SHOWN_QUEUE, LONG_QUEUE = 0.05, 0.5
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
    """Texts that replace unknown shares, by name."""
    is_asleep: bool = False
    """Whether the unit is too idle for its clock and IPC to be meaningful."""
    is_selected: bool = False
    clock: ClockUnit = GHZ
    waiting_tasks: float = nan


_LEGEND: Mapping[str, Run] = {
    "user": (theme.USER, "user-9"), "kernel": (theme.KERNEL, "kernel-9"),
    "steal": (theme.STEAL, "over"), "busy": (theme.USER, "user-9"),
}  # fmt: skip
"""Character and style with which a chart shows a share, by name of the share."""


def _share_cell(values: UnitValues, name: str, size: int) -> Run:
    """Returns a share in per cent, in `size` cells. Small shares are dim, a share that an episode
    makes worse is red, and a suspect share has a mark."""
    value = values.shares[name]
    if isnan(value):
        return f"{'–':>{size}}", "faint"
    if name in values.suspect_names:
        return f"{f'{DOUBTED_SIGN}{100 * value:.1f}':>{size}}", "dim"
    key = "alarm" if name in values.lowered_names else "dim" if value < MAX_DIM_SHARE else "text"
    return f"{100 * value:>{size}.1f}", key


def title_runs(values: UnitValues, size: int, *, colour: bool) -> list[Run]:
    """Returns the line above a chart, in at most `size` cells: the episode marker, name and numbers
    of the core or CPU, then a thin rule, then the tasks that ran there, flush right."""
    left: list[Run] = [values.marker, (f"  {values.name:<8}", "bright")]
    if not values.is_online:
        return merge_runs([*left, ("off", "dim")], size)
    busy = values.shares.get("busy", nan)
    left += [("   –", "faint") if isnan(busy) else (f"{100 * busy:>5.1f}", "bright"), (" %", "dim")]
    pieces = [_share_piece(values, name, colour=colour) for name in values.shares if name != "busy"]
    min_task_width = 2 + width(task_runs(values.tasks[:1], size // 3))
    if values.waiting_tasks >= MIN_SHOWN_QUEUE:
        style = "alarm" if values.waiting_tasks >= LONG_QUEUE else "text"
        queue: list[Run] = [
            ("  ", "text"), (theme.USER if colour else QUEUE_LETTER, "queue"), (" queue ", "dim"),
            (f"{values.waiting_tasks:.1f}", style),
        ]  # fmt: skip
        # On a narrow screen the queue replaces shares that the chart also shows.
        fits = size - width(left) - sum(map(width, pieces)) - width(queue) >= min_task_width
        pieces.insert(len(pieces) if fits else 0, queue)
    room = size - width(left) - sum(map(width, pieces))
    while pieces and room < min_task_width:
        room += width(pieces.pop())
    tasks = task_runs(values.tasks, room - 8) or task_runs(values.tasks[:1], room - 2)
    left += [run for piece in pieces for run in piece]
    rule = room - width(tasks) - 1
    if rule < 6:
        return merge_runs([*left, (" " * max(2, rule), "text"), *tasks], size)
    line: list[Run] = [("  ", "text"), (theme.RULE * (rule - 3 if tasks else rule - 2), "rule")]
    return [*left, *line, (" ", "text"), *tasks]


def _share_piece(values: UnitValues, name: str, *, colour: bool) -> list[Run]:
    value = _share_cell(values, name, 6)
    if name not in _LEGEND:
        return [(f"  {name}", "dim"), value]
    char, key = _LEGEND[name]
    if name in values.lowered_names:
        key = "alarm"
    elif colour and name != "steal":
        char = theme.USER
    return [("  ", "text"), (char, key), (f" {name}", "dim"), value]


def task_runs(names: Sequence[str], room: int) -> list[Run]:
    """Returns as many of the first three tasks as fit; all but the first are dim."""
    runs: list[Run] = []
    for i, name in enumerate(names[:3]):
        text = f"  {name}" if runs else name
        room -= len(text)
        if room < 0:
            break
        runs.append((text, "dim" if i else "text"))
    return runs


def left_lines(values: UnitValues, rows: int) -> list[list[Run]]:
    """Returns the `rows` lines to the left of a chart: the name of the unit, its CPUs, and as many
    shares as fit. Lines have LEFT_WIDTH cells, or WIDE_LEFT_WIDTH if there are only two."""
    if rows == 2:
        return _two_left_lines(values)
    names = [*values.shares]
    lines = [_name_runs(values, with_cpus=True)]
    if not values.is_online:
        lines, names = [_name_runs(values), [("off", "dim")]], []
    elif values.cpu_list and rows >= len(names) + 2:
        lines = [_name_runs(values), [(values.cpu_list, "dim")]]
    lines += [_share_runs(values, name) for name in names[: rows - len(lines)]]
    return _add_margin(values, lines, rows, LEFT_WIDTH)


def _two_left_lines(values: UnitValues) -> list[list[Run]]:
    """Returns the lines to the left of a chart of two lines: the name and the first share, then the
    second and the third share."""
    names = [*values.shares]
    half, gap = (WIDE_LEFT_WIDTH - 5) // 2, ("  ", "text")
    left = merge_runs(_name_runs(values, with_cpus=True), half)
    upper = [*left, gap, *_share_runs(values, names[0], half - 2)]
    lower = _share_runs(values, names[1], half) if len(names) > 1 else []
    for name in names[2:3]:
        lower += [gap, *_share_runs(values, name, half - 2)]
    if not values.is_online:
        upper, lower = _name_runs(values), [("off", "dim")]
    return _add_margin(values, [upper, lower], 2, WIDE_LEFT_WIDTH)


def _add_margin(
    values: UnitValues, lines: list[list[Run]], rows: int, size: int
) -> list[list[Run]]:
    """Returns `rows` lines with a margin at the left: the bar that marks the selected unit, and the
    episode marker."""
    framed = []
    for i, runs in enumerate([*lines, *[list[Run]()] * rows][:rows]):
        line = merge_runs([(" ", "text"), *runs], size - 3)
        marker = values.marker if i == 0 else (" ", "text")
        if not values.is_selected:
            framed.append([(" ", "text"), marker, *line, (" ", "text")])
            continue
        ground = [(text, f"{key}/chosen-back") for text, key in (marker, *line)]
        framed.append([(SELECTION_BAR, "key"), *ground, (" ", "text")])
    return framed


def _name_runs(values: UnitValues, *, with_cpus: bool = False) -> list[Run]:
    kind, _, number = values.name.partition(" ")
    cpus: list[Run] = [(f"  {values.cpu_list}", "dim")] if with_cpus and values.cpu_list else []
    return [(f"{kind} ", "dim"), (number, "bright"), *cpus]


def _share_runs(values: UnitValues, name: str, size: int = LEFT_WIDTH - 5) -> list[Run]:
    """Returns the name and the value of a share in `size` cells."""
    room, key = size - len(name), name if name in {"both", "lp0", "lp1"} else "dim"
    if name in values.share_texts:
        return [(name, key), (f"{values.share_texts[name]:>{room}}", "dim")]
    return [(name, key), _share_cell(values, name, room)]


def scale_marks(rows: int, queue_rows: int = 0) -> list[str]:
    """Returns the labels of a scale from 0 to 100 % for the lines of a chart, below the labels of
    `queue_rows` lines for waiting tasks."""
    marks = [""] * rows
    marks[-1], marks[0] = "0", "100"
    if rows >= 5:
        marks[rows // 2] = "50"
    marks = [*(f"+{task}" for task in range(queue_rows, 0, -1)), *marks]
    return [f"{mark:>{SCALE_WIDTH - 2}}" for mark in marks]


def row_of_clock(hz: float, ends: tuple[float, float], rows: int) -> int:
    """Returns the index of the row at the height of a clock, from the top of a chart; 0 if the
    clock is unknown. `ends`: the ends of the scale in Hz, the lower one first."""
    low_hz, high_hz = ends
    return 0 if isnan(hz) else max(0, rows - 1 - int(rows * (hz - low_hz) / (high_hz - low_hz)))


def numbers_beside_clock(
    values: UnitValues, ends: tuple[float, float], rows: int, *, ipc: bool
) -> list[list[Run]]:
    """Returns the lines to the right of the clock chart, in RIGHT_WIDTH cells: the ceiling and the
    clock, each at its height, and the lower end of the scale. `ipc`: whether to add the IPC, if it
    has no chart of its own."""
    unit = values.clock
    key, lowered = "dim" if values.is_asleep else "bright", values.lowered_names
    clock = _number_cell(values.hz * unit.per_hz, unit.digits, key, lowered="clock" in lowered)
    clock_runs: list[Run] = [clock, (" ", "text"), values.drop_marker]
    ipc_cell = _number_cell(values.ipc, 2, key, lowered="IPC" in lowered)
    rate: list[Run] = [ipc_cell, (" IPC", "dim")]
    if rows == 2:
        return [merge_runs(clock_runs, RIGHT_WIDTH), merge_runs(rate if ipc else [], RIGHT_WIDTH)]
    lines: list[list[Run]] = [[] for _ in range(rows)]
    at_clock, at_ceiling = (row_of_clock(hz, ends, rows) for hz in (values.hz, values.ceiling_hz))
    at_ceiling = min(at_ceiling, rows - 2 - ipc)
    at_clock = max(at_ceiling + 1, min(at_clock, rows - 1 - ipc))
    lines[at_ceiling] = [_number_cell(values.ceiling_hz * unit.per_hz, unit.digits, "dim")]
    lines[at_clock] = clock_runs
    if ipc:
        lines[at_clock + 1] = rate
    elif not lines[-1]:
        lines[-1] = [_number_cell(ends[0] * unit.per_hz, unit.digits, "faint")]
    return [merge_runs(line, RIGHT_WIDTH) for line in lines]


def numbers_beside_rate(values: UnitValues, rows: int) -> list[list[Run]]:
    """Returns the lines to the right of the IPC chart. They are one cell narrower than RIGHT_WIDTH,
    because they end at the right edge of the screen."""
    lines: list[list[Run]] = [[] for _ in range(rows)]
    lines[-1] = [("   0", "faint")] if rows > 2 else []
    style = "dim" if values.is_asleep else "bright"
    ipc = _number_cell(values.ipc, 2, style, lowered="IPC" in values.lowered_names)
    lines[max(0, rows // 2 - 1)] = [ipc, (" ", "text"), values.ipc_marker]
    return [merge_runs(line, RIGHT_WIDTH - 1) for line in lines]


RIGHT_WIDTH = 9
CAUSES_WIDTH, MIN_WIDTH_FOR_CAUSES = 17, 156
"""Width in cells of the list of seconds lost by cause, and minimum width of a screen with it."""
MIN_LOST_S, MIN_UNEXPLAINED_S = 0.01, 0.05
"""Minimum loss that is listed, in seconds: to a known and to an unknown cause. A clock that varies
by some per cent looks like a small loss to an unknown cause."""


def lost_time_lines(
    lost_s: Sequence[float], window_s: float, rows: int, *, colour: bool
) -> list[list[Run]]:
    """Returns `rows` lines of CAUSES_WIDTH cells with the seconds lost below the clock ceiling by
    each cause, the largest loss first. `window_s`: seconds over which losses are summed."""
    lines: list[list[Run]] = [[(f"lost in {window_s:.0f} s", "dim")]] if rows > 3 else []
    order = sorted(range(len(lost_s)), key=lost_s.__getitem__, reverse=True)
    min_lost_s = [
        MIN_LOST_S if name != "unknown" else MIN_UNEXPLAINED_S for name in charts.GAP_CAUSES
    ]
    shown = [cause for cause in order if lost_s[cause] >= min_lost_s[cause]]
    for cause in shown[: rows - len(lines)]:
        name, seconds = charts.GAP_CAUSES[cause], lost_s[cause]
        char = charts.GAP_CHARS[cause], f"bright/gap-{name}" if colour else "text"
        number = f"{seconds:>6.{2 if seconds < 10 else 1}f}"
        lines.append([char, (f" {name:<7}", "text"), (number, "text"), (" s", "dim")])
    if not shown:
        lines.append([("nothing", "dim")])
    return [merge_runs(line, CAUSES_WIDTH) for line in [*lines, *[[]] * rows][:rows]]


def _number_cell(value: float, digits: int, key: str, *, lowered: bool = False) -> Run:
    """Returns a number in 5 cells. An unknown number is replaced by a symbol, or by nothing in the
    style "faint"."""
    if isnan(value) and key == "faint":
        return "", "text"
    if isnan(value):
        return f"{AT_REST if key == 'dim' else '–':>5}", "faint"
    return f"{value:>5.{digits}f}", "alarm" if lowered else key
