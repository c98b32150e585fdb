"""The panels on the page of a core: their heights and widths, and the numbers beside their charts.
The layout depends only on the source and the available room, so that nothing moves when values
change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

import numpy as np

from perftop.base.text import MISSING, ClockUnit
from perftop.draw import theme
from perftop.draw.columns import Column, Run, fit, number
from perftop.draw.strips import QUIET_SHARE, safe_cells, width
from perftop.model import smt
from perftop.model.counters import MIN_COUNTED_SHARE
from perftop.model.kinds import Episode
from perftop.model.machine_totals import (
    L3_COUNTERS,
    MEMORY_COUNTERS,
    OF_BEST_NAME,
    READ_KEY,
    TRAFFIC_KEYS,
)
from perftop.model.numbers import PER_KI
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import cpu_values, suspect_rows
from perftop.tui.shared import time_axis
from perftop.tui.shared.choice import Units
from perftop.tui.shared.episode_style import MIN_AWAKE_UTIL, lowered_number
from perftop.tui.shared.places import Place
from perftop.tui.shared.sheet import DROP_KEY, busiest_rows, clock_of, core_values

LABEL_WIDTH = 12
"""Number of cells to the left of the charts, for the names of lines or the marks of a scale."""
NAME_WIDTH, VALUE_WIDTH = 12, 7
"""Number of cells to the right of the charts, for the name of a number and for each value."""
MIN_WIDTH_FOR_NUMBERS = 56
"""Minimum width of a page with numbers beside the charts, in cells."""
MIN_WIDTH_FOR_ORIGINS = 160
"""Minimum width of a page that shows the origins of numbers, in cells."""
MIN_CHART_WIDTH = 90
"""Minimum width of the charts on a page that shows origins, in cells."""
MAX_ORIGIN_WIDTH = 60
MAX_EVENTS = 4
"""Maximum number of chosen events with a panel; further events are shown only in the table view."""
MIN_HEIGHT_FOR_PAIRS = 36
"""Minimum number of lines for a strip for each sibling, and for empty lines between groups of
panels."""
MIN_HEIGHT_FOR_ACCOUNT = 50
"""Minimum number of lines for a panel of user and kernel time in addition to the SMT states."""

ACCOUNT, PAIR_ACCOUNT = "account", "pair_account"
"""Keys of the panels of user, kernel and stolen time: in place of the panel of busy time, and in
addition to it on the page of a core with several threads."""
TRAFFIC, L3 = "traffic", "l3"
"""Keys of the panels of memory traffic: of the core's package, and of its L3."""
L3_TRAFFIC = L3_COUNTERS["memory_bytes_per_s"]
"""Key of the counter of memory traffic of each L3."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the source can show about a core."""

    threads: int
    metrics: frozenset[str]
    states: bool
    """Whether the core's SMT states are known, at least within bounds."""
    virtual: bool
    tasks: bool
    """Whether tasks are known."""
    events: tuple[str, ...] = ()
    """Keys of the metrics of chosen events."""
    shared: tuple[str, ...] = ()
    """TRAFFIC and L3, if they are counted."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the page: a chart with its numbers."""

    key: str
    """"clock", "smt", one of the constants above, or the key of a metric drawn as strips."""
    strips: int
    """Number of stacked strips: one for each CPU, or one for the core."""
    height: int
    """Lines of each strip."""
    gap: bool = False
    """Whether there is an empty line above the panel."""

    @property
    def lines(self) -> int:
        return self.strips * self.height


@dataclass(frozen=True, slots=True)
class Page:
    """The layout of the page."""

    panels: tuple[Panel, ...]
    tasks: bool
    """Whether there is a line of tasks."""
    axis: int
    """Number of lines of the time axis."""
    notes: int
    """Number of lines of notes."""
    columns: int
    """Width of the charts, in cells."""
    values: int
    """Number of values side by side: one for each CPU, or 1 for the core; 0 if the page has no
    numbers."""
    origin: int
    """Width of the origins of numbers, in cells; 0 if origins are not shown."""


@dataclass(frozen=True, slots=True)
class _PanelRequest:
    """A panel with its minimum height, and how it grows if there is room."""

    panel: Panel
    max_height: int
    """Maximum lines of each strip."""
    weight: int
    """The panel's share of the room, relative to the weights of other panels."""
    rank: int
    """The panel of the highest rank is dropped first if not all panels fit."""
    step: int = 1
    """Number of lines by which each strip grows at a time."""


def capabilities(session: Session, place: Place, *, tasks: bool) -> Capabilities:
    evaluator, columns = session.evaluator, session.counters.columns
    served_keys = [
        key for key in evaluator.chosen if any(evaluator.has_metric(key, r) for r in place.rows)
    ]
    package, l3 = shared_rows(session, place)
    shared_keys = [TRAFFIC] if package is not None and columns.keys() >= {*TRAFFIC_KEYS} else []
    if l3 is not None and L3_TRAFFIC in columns:
        shared_keys.append(L3)
    return Capabilities(
        threads=len(place.cpus),
        metrics=frozenset(served_keys),
        states="util" in served_keys,
        virtual=session.hello.virtualisation is not None,
        tasks=tasks,
        shared=tuple(shared_keys),
        events=tuple(
            key
            for key in evaluator.registry.events
            if key in served_keys and not key.endswith(PER_KI)
        ),
    )


def shared_rows(session: Session, place: Place) -> tuple[int | None, int | None]:
    """Returns the rows of a core's package and of its L3 among the counted packages and L3s; None
    for those that are not counted."""
    own_cpus = {*place.cpus}
    packages = enumerate(session.hello.packages)
    column = session.counters.columns.get(L3_TRAFFIC)
    counter_cpus = {*(column.counter.cpus or ())} if column else set()
    caches = [row for row in session.topology if row.cpu in counter_cpus]
    return (
        next((index for index, cpus in packages if not own_cpus.isdisjoint(cpus)), None),
        next((index for index, row in enumerate(caches) if row.l3 == place.l3), None),
    )


def page_layout(capability: Capabilities, width: int, lines: int) -> Page:
    tasks = capability.tasks and lines >= 12
    axis = 2 if lines >= 12 else 1 if lines >= 6 else 0
    notes = next(
        (n for min_lines, n in ((60, 5), (40, 3), (24, 2), (14, 1)) if lines >= min_lines), 0
    )
    room = lines - 1 - tasks - axis - notes
    columns, values, origin = _widths(capability.threads, width)
    return Page(tuple(_panels(capability, room)), tasks, axis, notes, columns, values, origin)


def _widths(threads: int, width: int) -> tuple[int, int, int]:
    room = max(1, width - LABEL_WIDTH - 1)
    if width < MIN_WIDTH_FOR_NUMBERS:
        return room, 0, 0
    values = threads if NAME_WIDTH + VALUE_WIDTH * threads <= 0.45 * width else 1
    room -= NAME_WIDTH + VALUE_WIDTH * values
    origin = (
        min(MAX_ORIGIN_WIDTH, max(0, room - MIN_CHART_WIDTH))
        if width >= MIN_WIDTH_FOR_ORIGINS
        else 0
    )
    return max(1, room - origin), values, origin


def _panels(capability: Capabilities, room: int) -> Iterable[Panel]:
    """Returns the panels from the top. Each panel gets its minimum height, then spare lines are
    shared by weight."""
    requests = _requests(capability, room)
    gaps = sum(request.panel.gap for request in requests)
    while len(requests) > 1 and sum(request.panel.lines for request in requests) + gaps > room:
        requests.remove(max(requests, key=lambda request: request.rank))
    room -= gaps
    spare_lines = room - sum(request.panel.lines for request in requests)
    while growing_requests := [
        request for request in requests
        if request.panel.height < request.max_height
        and request.panel.strips * request.step <= spare_lines
    ]:  # fmt: skip
        lowest_request = min(
            growing_requests, key=lambda request: request.panel.height / request.weight
        )
        panel = replace(
            lowest_request.panel, height=lowest_request.panel.height + lowest_request.step
        )
        requests[requests.index(lowest_request)] = replace(lowest_request, panel=panel)
        spare_lines -= panel.strips * lowest_request.step
    return (request.panel for request in requests)


def _requests(capability: Capabilities, room: int) -> list[_PanelRequest]:
    """Returns the panels for which the source has data, in their order on the page. Nothing is
    drawn twice: the account shows the busy time of a core with one thread, and steal."""
    is_pair = capability.threads > 1 and capability.states
    account = capability.metrics >= {"user", "system"}
    has_room = room >= MIN_HEIGHT_FOR_PAIRS
    draws_account = account and (not is_pair or room >= MIN_HEIGHT_FOR_ACCOUNT)
    requests = []
    if "busy_hz" in capability.metrics:
        requests.append(_PanelRequest(Panel("clock", 1, 3), 16, 6, 1))
    gap = has_room and bool(requests)
    if is_pair:
        requests.append(_PanelRequest(Panel("smt", 1, 2, gap=gap), 14, 6, 2, step=2))
    if is_pair or not account:
        panel = Panel("util", capability.threads, 1, gap=has_room)
        requests.append(_PanelRequest(panel, 6 if capability.threads == 1 else 3, 1, 0))
    else:
        panel = Panel(ACCOUNT, 1, min(3, max(1, room)), gap=gap)
        requests.append(_PanelRequest(panel, 24, 2, 0))
    ranks = {"steal": 1, "involuntary": 3, "ipc": 4, "kernel_cycles": 5}
    for key in ("ipc", "involuntary", "kernel_cycles", "steal"):
        if key == "steal" and (draws_account or not capability.virtual):
            continue
        if key in capability.metrics:
            is_per_cpu = has_room and capability.threads == 2 and key != "steal"
            panel = Panel(key, 2, 2) if is_per_cpu else Panel(key, 1, 1)
            requests.append(_PanelRequest(panel, 3, 1, ranks[key]))
    for rank, key in enumerate(capability.shared, 6):
        requests.append(_PanelRequest(Panel(key, 1, 1), 3, 1, rank))
    for rank, key in enumerate(capability.events[:MAX_EVENTS], 8):
        requests.append(_PanelRequest(Panel(key, 1, 1), 3, 1, rank))
    if draws_account and is_pair:
        requests.append(_PanelRequest(Panel(PAIR_ACCOUNT, 1, 4, gap=True), 6, 2, 12))
    return requests


# --- the numbers beside the charts. Every line is exactly as wide as the area for numbers.

DRAM_KEY = "power_dram_w"
_NUMBERS_OF_PANEL = {
    "clock": ("busy_hz", "ceiling", "net_hz"),
    ACCOUNT: ("util", "user", "system", "steal", "iowait", "idle", "halt", "poll"),
    PAIR_ACCOUNT: ("user", "system", "iowait", "steal"),
    "util": ("util", "idle", "halt", "poll"),
    "involuntary": ("involuntary", "smi"),
    "kernel_cycles": ("kernel_cycles", "kernel_instructions"),
    TRAFFIC: (TRAFFIC, "of_best", "dram"),
}
"""Keys of the numbers beside a panel, of which as many are shown as the panel has lines. Other
panels show only the number of their own key."""


@dataclass(frozen=True, slots=True)
class CoreMoment:
    """One core at one moment."""

    session: Session
    interval: Interval
    place: Place
    page: Page
    unit: ClockUnit
    episodes: Sequence[Episode]
    """Episodes on the core's CPUs that had begun by this moment."""
    awake: bool
    """Whether the core is busy enough for its clock to be meaningful."""

    def is_lost(self, key: str, rows: Sequence[int]) -> bool:
        """Returns whether an episode that is an alarm makes this metric worse now, on any of these
        CPUs."""
        affected_cpus, now_ns = (
            {self.session.topology[row].cpu for row in rows},
            self.interval.time_ns,
        )
        alarm_episodes = (
            e for e in self.episodes if time_axis.episode_mark(e, now_ns)[1] == "alarm"
        )
        return any(
            lowered_number(e) == key and not affected_cpus.isdisjoint(e.cpus)
            for e in alarm_episodes
        )

    @property
    def ceiling_hz(self) -> float:
        return float(self.interval.ceiling_hz[self.place.core_index])

    @property
    def size(self) -> int:
        """Width of the numbers in cells; 0 if the page has no numbers."""
        return (
            NAME_WIDTH + VALUE_WIDTH * self.page.values + self.page.origin
            if self.page.values
            else 0
        )


def core_moment(
    session: Session, interval: Interval, place: Place, page: Page, units: Units, since_ns: int
) -> CoreMoment:
    """Returns the core at the end of this interval, with the episodes that had begun by then and
    had not ended by `since_ns` (raw)."""
    unit = clock_of(session, units, known=True)
    episodes = [
        episode
        for episode in session.episodes(since_ns, interval.time_ns)
        if not set(episode.cpus).isdisjoint(place.cpus)
    ]
    util, _ = _values_of_core(interval, place, "util")
    is_awake = max((share for share in util if not isnan(share)), default=0.0) >= MIN_AWAKE_UTIL
    return CoreMoment(session, interval, place, page, unit, episodes, is_awake)


def _values_of_core(interval: Interval, place: Place, key: str) -> tuple[list[float], float]:
    """Returns a metric in the interval: its value for each CPU, and for the core."""
    rows = list(place.rows)
    online = interval.online[rows]
    values, util, hz = (
        np.where(online, interval.values[name][rows], np.nan) for name in (key, "util", "busy_hz")
    )
    return values.tolist(), float(core_values(key, values, busiest_rows(util, hz)))


# --- numbers beside the charts


def panel_numbers(moment: CoreMoment, panel: Panel) -> list[list[Run]]:
    """Returns the numbers for each line of the panel."""
    if not moment.page.values:
        return [[] for _ in range(panel.lines)]
    if panel.key == "smt":
        lines = _state_lines(moment)
    else:
        keys = _NUMBERS_OF_PANEL.get(panel.key, (panel.key,))
        lines = [line for key in keys if (line := _number_line(moment, key))]
    blank: list[Run] = [(" " * moment.size, "text")]
    return (lines + [blank] * panel.lines)[: panel.lines]


def _number_line(moment: CoreMoment, key: str) -> list[Run] | None:
    """Returns the line of a metric; None if the source does not have this metric at all."""
    if key in _SPECIAL_LINES:
        return _SPECIAL_LINES[key](moment)
    if key in _SHARED_NUMBERS:
        return _shared_line(moment, key)
    origin = moment.session.evaluator.origin(key)
    if origin is None:
        return None
    metric = moment.session.evaluator.metrics[key]
    scale, digits = metric.scale(moment.unit, brief=True)
    column = Column(
        key, metric.label, VALUE_WIDTH - 1, scale=scale, digits=digits, prefixed=metric.rate
    )
    cells = []
    for rows, value in _values_by_cpus(
        moment, *_values_of_core(moment.interval, moment.place, key)
    ):
        style = "alarm" if moment.is_lost(key, rows) else _number_style(moment, key, value)
        rests = metric.while_running and bool(moment.interval.resting[list(rows)].all())
        cells.append(_number_cell(moment, column, rows, value, style, rests=rests))
        is_low = moment.awake and not rests and value < moment.ceiling_hz * (1 - DROP_KEY)
        if key == "busy_hz" and is_low:
            cells[-1][-1] = (theme.DROPPED, style)
    label = metric.label + (" %" if metric.unit == "ratio" else "")
    name = _metric_name(label, _counted_share(moment, key, moment.place.rows))
    if metric.unit == "Hz":
        name.insert(0, (f"{theme.RULE} ", "clock") if key == "busy_hz" else ("  ", "text"))
    return _number_runs(moment, name, cells, origin)


def _metric_name(label: str, counted_share: float) -> list[Run]:
    """Returns the label of a metric. For a multiplexed event, the label also has the share of time
    for which the event was counted."""
    if counted_share >= MIN_COUNTED_SHARE:
        return [(fit(label, NAME_WIDTH - 1) if len(label) >= NAME_WIDTH else label, "dim")]
    share = f" {100 * counted_share:.0f}%"
    return [(fit(label, NAME_WIDTH - 1 - len(share)), "dim"), (share, "text")]


def _counted_share(moment: CoreMoment, key: str, rows: Sequence[int]) -> float:
    """Returns the minimum share of time, over these CPUs, for which an event was counted; 1 for
    other metrics."""
    shares = moment.interval.shares.get(key.removesuffix(PER_KI))
    return 1.0 if shares is None else float(np.fmin.reduce(shares[[*rows]], initial=1.0))


def _values_by_cpus(
    moment: CoreMoment, values: Sequence[float], core: float
) -> Iterable[tuple[Sequence[int], float]]:
    """Returns values with the positions of their CPUs: one value for each CPU, or one for the core
    if there is no room for more."""
    if moment.page.values == len(values):
        return [((row,), value) for row, value in zip(moment.place.rows, values, strict=True)]
    return [(moment.place.rows, core)]


def _number_cell(
    moment: CoreMoment, column: Column, rows: Sequence[int], value: float, style: str,
    *, rests: bool = False,
) -> list[Run]:  # fmt: skip
    """Returns a number, and a blank after it, which a clock below its ceiling replaces by a
    mark."""
    online = [row for row in rows if moment.interval.online[row]]
    text, style = column.cell(
        value, style, online=bool(online), resting=rests,
        doubted=bool(suspect_rows(column.key, moment.session, moment.interval)[online].any()),
        estimated=not isnan(value)
        and _counted_share(moment, column.key, online) < MIN_COUNTED_SHARE,
    )  # fmt: skip
    if len(text) > column.width:  # the prefix replaces the decimals
        text = re.sub(r"\.\d+", "", text)
    return [(column.place(text), style), (" ", "text")]


def _number_style(moment: CoreMoment, key: str, value: float) -> str:
    metric = moment.session.evaluator.metrics[key]
    if metric.unit == "Hz":
        return "text" if moment.awake else "dim"
    if metric.unit != "ratio":
        return "text"
    return "warn" if value >= metric.stands_out else "dim" if value < QUIET_SHARE else "text"


def _ceiling_line(moment: CoreMoment) -> list[Run] | None:
    origin = moment.session.reader.turbo.origin
    if origin is None:
        return None
    hz, (_, scale, digits) = moment.ceiling_hz, moment.unit
    text = number(hz * scale, digits)
    name: list[Run] = [(f"{theme.NEITHER} ceiling", "dim")]
    return _centred_line(moment, name, text, origin)


def _smi_line(moment: CoreMoment) -> list[Run] | None:
    """Returns the line of system-management interrupts in the interval: for each CPU, or the
    maximum over the CPUs, because each interrupt affects all CPUs."""
    counts = moment.interval.counts.get("smi")
    if counts is None:
        return None
    counts_of_cpus = [float(counts[row]) for row in moment.place.rows]
    max_count = max((count for count in counts_of_cpus if not isnan(count)), default=nan)
    column = Column("smi", "SMIs", VALUE_WIDTH - 1)
    cells = [
        _number_cell(moment, column, rows, count, "warn" if count > 0 else "dim")
        for rows, count in _values_by_cpus(moment, counts_of_cpus, max_count)
    ]
    origin = moment.session.counters.columns["smi"].counter.origin
    return _number_runs(moment, [("SMIs", "dim")], cells, origin)


def _state_lines(moment: CoreMoment) -> list[list[Run]]:
    """Returns lines with the shares of the four SMT states, or their bounds. For a core without
    exactly two threads, the lines are the share of `neither` and the number of active threads."""
    is_pair = len(moment.place.cpus) == 2
    lines = []
    for shape, name in theme.STATES if is_pair else theme.STATES[-1:]:
        label = f"{name} only" if name in {"lp0", "lp1"} else name
        runs: list[Run] = [(f"{shape} ", name), (label, "dim")]
        lines.append(_centred_line(moment, runs, _state_share(moment, name)))
    if not is_pair:
        active_threads = float(moment.interval.split.active_threads[moment.place.core_index])
        runs = [(f"{theme.UNKNOWN} ", "unknown"), ("active", "dim")]
        lines.append(_centred_line(moment, runs, number(active_threads, 2)))
    method = method_text(moment)
    if len(method) > moment.size:  # a note shows the whole text
        method = method.rpartition(" ")[0]
    return [*lines, [(fit(method, moment.size), "dim")]]


def _state_share(moment: CoreMoment, name: str) -> Run:
    split, core, first = moment.interval.split, moment.place.core_index, moment.place.rows[0]
    if split.method[core] == "single" and not moment.interval.online[first]:
        name = {"lp0": "lp1", "lp1": "lp0"}.get(name, name)  # a lone online thread is stored as lp0
    column = smt.STATES.index(name)
    share, low, high = (float(part[core, column]) for part in (split.states, split.low, split.high))
    if isnan(share) and not isnan(low):
        end_texts = f"{100 * low:.0f}", f"{100 * high:.0f}"
        return "–".join(dict.fromkeys(end_texts)), "text"
    percent = Column(name, name, VALUE_WIDTH - 1, scale=100.0, digits=1)
    is_doubted = bool(suspect_rows(name, moment.session, moment.interval)[first])
    return percent.cell(share, "dim" if share < QUIET_SHARE else "text", doubted=is_doubted)


def _centred_line(moment: CoreMoment, name: list[Run], number: Run, origin: str = "") -> list[Run]:
    """Returns a line with one value for all siblings, centred between the siblings' columns."""
    text, key = number
    indent = " " * (VALUE_WIDTH * (moment.page.values - 1) // 2)
    return _number_runs(moment, name, [[(f"{indent}{text:>{VALUE_WIDTH - 1}}", key)]], origin)


def _number_runs(
    moment: CoreMoment, name: list[Run], cells: Iterable[list[Run]], origin: str
) -> list[Run]:
    runs: list[Run] = [*name, (" " * (NAME_WIDTH - width(name)), "text")]
    for cell in cells:
        runs += cell
    room = moment.size - moment.page.origin
    runs.append((" " * (room - width(runs)), "text"))
    if moment.page.origin:
        runs.append((fit("  " + safe_cells(origin), moment.page.origin), "faint"))
    return runs


def method_text(moment: CoreMoment) -> str:
    """Returns how the SMT states were measured, with the calibration factor of the counter's
    ticks."""
    name = moment.interval.split.method[moment.place.core_index]
    if name is None:
        return MISSING
    calibration = moment.session.calibrations.get(name.replace("-", "_"))
    if calibration is None:
        return name
    state = "calibrated" if calibration.state == "settled" else calibration.state
    return f"{name} ×{calibration.factor:g} {state}"


_SHARED_NUMBERS: dict[str, tuple[str, float, int, tuple[str, ...], str]] = {
    TRAFFIC: ("mem GB/s", 1e-9, 1, tuple(f"package_{name}" for name in MEMORY_COUNTERS), READ_KEY),
    "of_best": ("of best %", 100.0, 0, (f"package_{OF_BEST_NAME}",), ""),
    "dram": ("memory W", 1.0, 1, (f"package_{DRAM_KEY}",), ""),
    L3: ("L3 GB/s", 1e-9, 1, ("l3_memory_bytes_per_s",), L3_TRAFFIC),
}
"""Numbers of the core's package or L3, by key: label, factor to the displayed unit, decimals, keys
whose values are added up, and the counter whose origin is shown."""


def _shared_line(moment: CoreMoment, key: str) -> list[Run] | None:
    """Returns the line of a number of the core's package or L3; None for the power of memory if it
    is not counted."""
    label, scale, digits, keys, counter = _SHARED_NUMBERS[key]
    if key == "dram" and DRAM_KEY not in moment.interval.packages:
        return None
    row, session = moment.place.rows[0], moment.session
    value = sum(float(cpu_values(session, moment.interval, name)[row]) for name in keys)
    origin = session.counters.columns[counter].counter.origin if counter else ""
    return _centred_line(moment, [(label, "dim")], number(value * scale, digits), origin)


_SPECIAL_LINES = {"ceiling": _ceiling_line, "smi": _smi_line}
"""Functions that return the line of a number that is not a metric, by its key."""
