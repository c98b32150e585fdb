"""The charts of a core's page, with their scales, their labels and the numbers beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.base.text import round_number
from perftop.draw import charts
from perftop.draw.charts import Column, rows_of
from perftop.draw.columns import Run, fit
from perftop.model.kinds import Episode
from perftop.model.machine_totals import READ_KEY, WRITE_KEY
from perftop.model.smt import bounds
from perftop.session.session import Session
from perftop.tui.core_page.numbers import (
    ACCOUNT,
    L3,
    L3_TRAFFIC,
    LABEL_WIDTH,
    PAIR_ACCOUNT,
    TRAFFIC,
    CoreMoment,
    Panel,
    panel_numbers,
    shared_rows,
)
from perftop.tui.shared import time_axis
from perftop.tui.shared.episode_style import (
    MIN_AWAKE_UTIL,
    find_losing_cpu,
    is_running_at,
    lowered_number,
)
from perftop.tui.shared.places import Place
from perftop.tui.shared.sheet import busiest_rows, core_values
from perftop.tui.shared.time_axis import Axis, BinValues, Lookup

_SHARE_ENDS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible upper ends of the scale for shares of which a few per cent are already a lot. The lowest
end is high enough that noise does not stand out."""
_SCALE_ENDS = {"involuntary": _SHARE_ENDS, "steal": _SHARE_ENDS, "ipc": charts.IPC_SCALE_ENDS}
CEILING_STEP_HZ = 50e6
"""Minimum change of the ceiling that is shown as a step, in Hz. It is half a turbo step, because
each column is a mean."""
CLOCK_STEP_HZ = 0.25e9
"""The ends of the clock's scale are multiples of this, in Hz."""


PanelChart = tuple[Sequence[str], Sequence[list[Run]]]
"""The labels and the cells of a panel, by line."""


@dataclass(frozen=True, slots=True)
class Charts:
    """The charts of one core at one moment."""

    moment: CoreMoment
    history: CoreHistory
    look: charts.Look = "colour"

    def panels(self) -> list[list[Run]]:
        """Returns the lines of all panels, each with label, chart and numbers."""
        lines: list[list[Run]] = []
        page = self.moment.page
        for panel in page.panels:
            if panel.gap:
                lines.append([])
            labels, chart = self._chart(panel)
            for label, cells, numbers in zip(
                labels, chart, panel_numbers(self.moment, panel), strict=True
            ):
                start = f" {label:>{LABEL_WIDTH - 2}} "
                lines.append([(start, "dim"), *cells, (" ", "text"), *numbers])
        return lines

    def foot(self) -> list[list[Run]]:
        """Returns the time axis: a line of episodes and, if there is room, a line of clock
        times."""
        moment, axis = self.moment, self.history.axis
        if not moment.page.axis:
            return []
        unix = moment.session.unix
        ticks = time_axis.ticks(axis, unix)
        left_margin: Run = (" " * LABEL_WIDTH, "dim")
        line = time_axis.tick_line(
            axis, moment.episodes, ticks, times_inside=moment.page.axis == 1,
            steps=self._ceiling_steps(), marks=moment.session.marks,
            since=None if axis.first_ns is None else unix(axis.first_ns),
        )  # fmt: skip
        return [[left_margin, *line], [left_margin, *time_axis.times_line(axis, ticks)]][
            : moment.page.axis
        ]

    def _chart(self, panel: Panel) -> PanelChart:
        if panel.key == "clock":
            return self._clock(panel.lines)
        if panel.key == "smt":
            return _labels(panel.lines, "SMT lp0", "lp1"), self._smt(panel.lines)
        if panel.key in {ACCOUNT, PAIR_ACCOUNT}:
            return _labels(panel.lines, "time 100 %", "0"), self._account(panel.lines)
        if panel.key in {TRAFFIC, L3}:
            return self._traffic(panel)
        return self._strips(panel)

    def _clock(self, lines: int) -> PanelChart:
        """Returns the chart of the clock and its ceiling. The clock is red during alarms, and faint
        where the core was mostly asleep; the scale need not include the faint part. If a ramp is in
        sight, the scale starts at 0."""
        history, (unit, per_hz, digits) = self.history, self.moment.unit
        busy_hz, ceiling, is_awake = history.core("busy_hz"), history.ceiling(), history.is_awake()
        shown_hz = np.concatenate([busy_hz[is_awake] if is_awake.any() else busy_hz, ceiling])
        low, high = history.clock_ends = charts.axis_span(
            shown_hz, CLOCK_STEP_HZ, history.clock_ends
        )
        climbs = [episode for episode in self.moment.episodes if episode.kind == "ramp"]
        if climbs:
            low = 0.0
        if np.isfinite(ceiling).any():  # the first line shows the ceiling
            high = max(float(np.nanmax(ceiling)), float(np.nanmax(np.append(busy_hz, 0.0))))
        kinds = np.where(is_awake, charts.AWAKE, charts.ASLEEP)
        kinds[self._is_alarmed("busy_hz")] = charts.LOSING
        cells = charts.clock(
            _doubled_columns(busy_hz, ceiling, kinds), (low, high), lines, self.look
        )
        for episode in climbs:
            cells = charts.with_rules(cells, ramp_columns(self.history.axis, episode))
        labels = _labels(
            lines, f"{high * per_hz:.{digits}f} {unit}", f"{low * per_hz:.{digits}f}", len(unit) + 1
        )
        if (busy_hz < low).any() and lines > 1:
            labels[-1] = f"< {labels[-1]}"
        return labels, rows_of(cells)

    def _is_alarmed(self, key: str) -> Bools:
        """Returns the columns during which an episode ran that is an alarm now and makes the metric
        `key` worse."""
        now_ns = self.moment.interval.time_ns

        def alarmed(episode: Episode) -> bool:
            return (
                lowered_number(episode) == key
                and time_axis.episode_mark(episode, now_ns)[1] == "alarm"
            )

        return self._bins_during(alarmed)

    def _bins_during(self, accepts: Callable[[Episode], bool]) -> Bools:
        """Returns the columns during which an episode ran for which `accepts` is true."""
        mask = np.zeros(self.history.axis.columns, bool)
        for episode in filter(accepts, self.moment.episodes):
            if cells := self.history.axis.cells_of(episode):
                mask[cells[0].start : cells[0].stop] = True
        return mask

    def _ceiling_steps(self) -> list[int]:
        """Returns the columns in which the ceiling changed, which is not an episode; an empty list
        if there is no clock panel."""
        if all(panel.key != "clock" for panel in self.moment.page.panels):
            return []
        has_moved = np.abs(np.diff(self.history.ceiling(), prepend=np.nan)) >= CEILING_STEP_HZ
        has_moved[1:] &= ~has_moved[:-1]  # a step within a column appears in two columns
        return np.flatnonzero(has_moved).tolist()

    def _smt(self, lines: int) -> Sequence[list[Run]]:
        """Returns the chart of SMT states: the first thread above the middle, the second below."""
        states, place = self.history.states(), self.moment.place
        if self.moment.interval.split.method[place.core_index] == "bounds":
            is_unknown = np.isnan(states).all(axis=1)
            states[is_unknown] = self.history.lowest()[is_unknown]
        if len(place.cpus) > 2:  # it is only known whether any thread runs
            states[:, 1:] = 0.0
        _, lp0, lp1, both_share = states.T
        undetermined = np.maximum(0.0, 1 - states.sum(axis=1))
        values = np.stack([both_share, undetermined, lp0, lp1], axis=1)
        return rows_of(charts.states(values, lines, self.look))

    def _account(self, lines: int) -> Sequence[list[Run]]:
        """Returns the chart of how time is used: user and kernel from the bottom, stolen time from
        the top."""
        heat = np.where(self._is_alarmed("steal"), charts.DURING_EPISODE, charts.OUTSIDE_EPISODES)
        values = np.column_stack([self.history.account(), heat])
        return rows_of(charts.account(values, lines, self.look))

    def _strips(self, panel: Panel) -> PanelChart:
        """Returns a metric over time, with a strip for each sibling or one strip for the core."""
        key, height, evaluator = panel.key, panel.height, self.moment.session.evaluator
        metric = evaluator.metrics[key]
        values = self.history.of_cpus(key).T if panel.strips > 1 else self._single_series(key)[None]
        scale, top = "", 1.0
        scale_ends = charts.SCALE_ENDS if metric.rate else _SCALE_ENDS.get(key)
        if scale_ends is not None:
            top = self.history.top(key, values, scale_ends)
            scale = f"0-{100 * top:g}%" if metric.unit == "ratio" else f"0-{round_number(top)}"
        labels: list[str] = []
        cells: list[list[Run]] = []
        is_losing = self._is_alarmed(key)
        for i, strip in enumerate(values):
            cells += self._rate(strip, is_losing, top, height)
            if height > 1 or panel.strips > 1:
                name = f"lp{i} {metric.label}" if panel.strips > 1 else metric.label
                name = fit(name, LABEL_WIDTH - 2) if len(name) > LABEL_WIDTH - 2 else name
                labels += [name, scale, *[""] * height][:height]
            else:
                label = f"{metric.label} {scale}".rstrip()
                if len(label) > LABEL_WIDTH - 2:  # leave out the 0 of the scale
                    label = f"{metric.label} {scale.removeprefix('0-')}"
                if len(label) > LABEL_WIDTH - 2:  # leave out the scale
                    label = fit(metric.label, LABEL_WIDTH - 2).rstrip()
                labels.append(label)
        return labels, cells

    def _traffic(self, panel: Panel) -> PanelChart:
        """Returns the chart of memory traffic of the core's package or L3, red while this traffic
        slows the core."""
        traffic = self.history.traffic() if panel.key == TRAFFIC else self.history.l3()
        top = self.history.top(panel.key, traffic, charts.SCALE_ENDS)
        now_ns = self.moment.interval.time_ns
        saturated = self._bins_during(lambda e: e.cause == "memory" and is_running_at(e, now_ns))
        cells = self._rate(traffic, saturated, top, panel.height)
        name = "mem" if panel.key == TRAFFIC else "L3"
        if panel.height > 1:
            return [f"{name} B/s", f"0-{round_number(top)}", *[""] * panel.height][
                : panel.height
            ], cells
        return [f"{name} 0-{round_number(top)}"], cells

    def _single_series(self, key: str) -> Floats:
        """Returns the core's value of a metric over time. As in the overview, it is the value of
        the CPU that is losing some of it now, if any, else of the busiest or the worst CPU."""
        moment, now_ns = self.moment, self.moment.interval.time_ns
        running_episodes = [
            episode for episode in moment.episodes if is_running_at(episode, now_ns)
        ]
        losing_cpu = find_losing_cpu(moment.place.cpus, running_episodes, key)
        return (
            self.history.core(key)
            if losing_cpu is None
            else self.history.of_cpus(key)[:, losing_cpu]
        )

    def _rate(
        self, values: Floats, is_losing: Bools, top: float, height: int
    ) -> Sequence[list[Run]]:
        """Returns a strip that is red where `is_losing` is true. Values of 0 are a faint line at
        the bottom; unknown values are blank."""
        columns = _doubled_columns(values, np.where(is_losing, charts.LOSING, charts.AWAKE))
        cells = charts.rate(columns, top, height, self.look)
        floor = "_" if self.look == "ascii" else "⣀"
        for cell, (value, _) in enumerate(columns[::2]):
            signs, styles = cells[cell]
            if signs[-1] == " " and isfinite(value):
                cells[cell] = Column(signs[:-1] + floor, (*styles[:-1], "rule"))
        return rows_of(cells)


def _doubled_columns(*kinds: np.ndarray) -> Floats:
    """Stacks arrays of columns, with each column repeated, because a cell shows two columns."""
    return np.stack(kinds, axis=1).repeat(2, axis=0)


def _labels(lines: int, first: str, last: str, blank: int = 0) -> list[str]:
    """Returns labels for the upper and lower end of a scale. `blank`: number of blanks after the
    lower label."""
    labels = [first, *[""] * (lines - 1)]
    if lines > 1:
        labels[-1] = last + " " * blank
    return labels


RAMP_LEVELS = {"t90_s": "90 %", "t99_s": "99 %", "steady_s": "steady"}
"""Names of the levels of a ramp, by the evidence key of the time until the level was reached."""


def ramp_columns(axis: Axis, episode: Episode) -> dict[int, str]:
    """Returns the cells in which the core woke (with '') or reached a level of its ramp (with the
    name of the highest level reached in this cell). Times that are not longer than the resolution
    are only bounds and have no cell."""
    evidence, least_s = episode.evidence, episode.evidence.get("resolution_s", 0.0)
    moments = {"": episode.start_ns}
    moments |= {
        name: episode.start_ns + round(evidence[key] * 1e9)
        for key, name in RAMP_LEVELS.items()
        if evidence.get(key, 0.0) > least_s
    }
    if episode.end_ns is not None:
        moments["steady"] = episode.end_ns
    name_by_bin = {axis.bin(ns + 1): name for name, ns in moments.items()}
    return {column: name for column, name in name_by_bin.items() if 0 <= column < axis.cells}


# --- the values of a core over time


class CoreHistory:
    """The history of one core in bins of a time axis, and the scales of its charts. Only the series
    that are drawn are read, and only their new bins, because complete bins do not change."""

    axis: Axis
    clock_ends: tuple[float, float] | None = None
    """Ends of the clock's scale at the last refresh, in Hz; kept so that the scale seldom
    changes."""

    def __init__(self, session: Session, place: Place) -> None:
        self._history, self._place = session.past, place
        self._package, self._l3 = shared_rows(session, place)
        self._series: dict[str, BinValues] = {}
        self._tops: dict[str, float] = {}
        """Upper ends of the scales of strips at the last refresh, by key."""

    def move_to(self, axis: Axis) -> None:
        self.axis = axis

    def top(self, key: str, values: Floats, ends: Sequence[float]) -> float:
        """Returns the upper end of a scale, which is one of `ends`."""
        top = self._tops[key] = charts.axis_top(values, ends, self._tops.get(key))
        return top

    def of_cpus(self, key: str) -> Floats:
        """Returns a metric of each CPU, (columns, CPUs)."""
        rows = self._place.rows
        return self._bins(key, lambda history, edges: history.field(key, rows, edges))

    def _bins(self, key: str, lookup: Lookup) -> Floats:
        """Returns the values of a lookup for all bins of the axis. Values already read are cached
        under `key`."""
        bins = self._series.setdefault(key, BinValues({key: lookup}))
        bins.read(self._history, self.axis)
        return bins[key]

    def core(self, key: str) -> Floats:
        """Returns a metric of the core, (columns): the value of the busiest CPU, or for involuntary
        halts and steal the worst value, as in other views."""
        return core_values(
            key, self.of_cpus(key), busiest_rows(self.of_cpus("util"), self.of_cpus("busy_hz"))
        )

    def ceiling(self) -> Floats:
        """Returns the core's ceiling in Hz, (columns)."""
        return self._of_core()[:, -1]

    def is_awake(self) -> Bools:
        """Returns the columns in which the core was busy enough for its clock to be meaningful."""
        mask: Bools = np.fmax.reduce(self.of_cpus("util"), axis=1) >= MIN_AWAKE_UTIL
        return mask

    def states(self) -> Floats:
        """Returns the shares of the SMT states, (columns, 4). If only one thread is online, the
        history stores it as the first thread; which thread it was follows from the utilisations,
        as only this thread has one."""
        shares = self._of_core()[:, :-1].copy()
        util = self.of_cpus("util")
        if util.shape[1] == 2:
            second = np.isnan(util[:, 0]) & np.isfinite(util[:, 1])
            shares[second] = shares[second][:, [0, 2, 1, 3]]
        return shares

    def _of_core(self) -> Floats:
        """Returns the shares of the SMT states as stored, then the ceiling in Hz, (columns, 5)."""
        cores = [self._place.cpus]
        return self._bins("core", lambda history, edges: history.cores(cores, edges)[:, 0])

    def lowest(self) -> Floats:
        """Returns the minimum share of each state, (columns, 4), for cores whose states are known
        only within bounds."""
        util = self.of_cpus("util")
        if util.shape[1] == 2:
            return bounds(util[:, 0], util[:, 1])[0]
        neither_share = np.maximum(0.0, 1 - util.sum(axis=1))
        return np.stack(
            [neither_share, 0 * neither_share, 0 * neither_share, 0 * neither_share], axis=1
        )

    def traffic(self) -> Floats:
        """Returns the bytes per second between the core's package and memory, (columns)."""
        return self._shared(READ_KEY, self._package) + self._shared(WRITE_KEY, self._package)

    def l3(self) -> Floats:
        """Returns the bytes per second between the core's L3 and memory, (columns). A zero while
        the core is busy means that the bandwidth monitor does not work, so the value is unknown."""
        traffic = self._shared(L3_TRAFFIC, self._l3)
        return np.where((traffic == 0) & self.is_awake(), np.nan, traffic)

    def _shared(self, key: str, row: int | None) -> Floats:
        """Returns one row of a counter of packages or L3s, (columns); NaN if `row` is None. Each
        call reads all bins, because a read of such a counter may cover earlier bins."""
        series = self._history.shared_counter(key, self.axis.edges)
        is_known = row is not None and row < series.shape[1]
        return series[:, row] if is_known else np.full(self.axis.columns, np.nan)

    def account(self) -> Floats:
        """Returns the shares of user, kernel and stolen time, (columns, 3). The share of running
        time is `util`; its kernel part comes from the system's accounting."""
        util, system, steal = (self.core(key) for key in ("util", "system", "steal"))
        kernel = np.fmin(util, np.nan_to_num(system))
        return np.stack([util - kernel, kernel, np.nan_to_num(steal)], axis=1)
