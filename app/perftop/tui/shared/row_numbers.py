"""The settings that all views of a screen share, such as the order of rows, the filter and the
units, and the numbers of rows that views show by these settings.

A row is a core, or a CPU without siblings. Each refresh reads the numbers of all rows as arrays,
and converts only those of visible rows to Python numbers. As in `stat`, nothing is averaged over
siblings: a row shows a number for each of its CPUs or, if it has one cell, that of the busiest CPU
(for halts and steal, the highest). Rows are ordered by these numbers.

A field is a number that a heat map or a time axis can show for every CPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf, isfinite, isnan, nan
from typing import TYPE_CHECKING, Literal

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import GHZ, MISSING, ClockUnit, Units, clock_unit, rate_unit
from perftop.draw import columns
from perftop.draw.theme import HEAT_STEPS
from perftop.model.numbers import EVENT_PREFIX, PER_KI, SMALL_SHARE_ENDS, Number
from perftop.model.tasks import parse_task
from perftop.session.interval import Interval
from perftop.session.selection import Filter, parse_filter
from perftop.session.session import Session
from perftop.session.values import COLUMNS_BY_KEY, CpuColumns, columns_by_key
from perftop.tui.shared import episode_style
from perftop.tui.shared.cores import ORDERS, Cores
from perftop.tui.shared.episode_style import MIN_AWAKE_UTIL, is_loss
from perftop.tui.shared.keys import key_captions

if TYPE_CHECKING:
    from perftop.draw.charts import Glyphs
    from perftop.tui.shared.verdict import Verdict

WINDOWS_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
Grouping = Literal["task", "job", "cgroup"]
GROUPINGS: tuple[Grouping, ...] = ("task", "job", "cgroup")


@dataclass(slots=True)
class ViewSettings:
    order: str = "topology"
    """Sort order: "topology", "CPU number", "worst first", "task", or the key of a column."""
    reverse: bool = False
    cpu: int | None = None
    """The first CPU of the selected core. The core stays selected when rows are sorted."""
    metric: str = "util"
    """Key of the metric that the heat map and the time view show."""
    units: Units = "GHz"
    grouping: Grouping = "task"
    """Whether tasks are listed by name, by job (unit, container, pod), or by control group."""
    window_s: float = 60.0
    columns: tuple[str, ...] = ()
    """Keys of the table's columns, in display order; empty: all columns."""
    filter: Filter | None = None
    mask: frozenset[int] | None = None
    """Positions of the CPUs that currently match the filter; None if there is no filter."""
    pinned_ns: int | None = None
    """Monotonic time in ns at which time axes end while paused; None for the shown moment."""
    cursor_ns: int | None = None
    """Monotonic time in ns of the cursor in charts; None for the newest numbers."""
    now: Interval | None = None
    """The newest interval of a live session while an earlier moment is shown; else None."""
    range_ns: tuple[int, int] | None = None
    """Monotonic times in ns of the ends of the selected range; None if there is none."""
    held_range: tuple[Interval, Verdict | None] | None = None
    """Range A of a comparison, and the verdict on it; None without a comparison."""
    tour_notes: list[int] = field(default_factory=list)
    """Indexes in `canvas.TOUR_NOTES` of the notes for a new user that were not dismissed yet."""
    captions: Mapping[str, str] = field(default_factory=partial(key_captions, {}))
    is_stale: bool = False
    """Whether the stream has ended, so that the shown numbers are no longer updated."""
    ascii: bool = False
    glyphs: Glyphs = "colour"
    _mask_source: tuple[Filter, Session, Sequence[object]] | None = None
    """The filter, session and topology from which `mask` was computed."""

    @property
    def ranges_ns(self) -> dict[str, tuple[int, int]]:
        """Ends of ranges in monotonic ns. "A" is the held range, and "B" the selected one if it
        differs; without a held range, "A" is the selected one."""
        ranges = {}
        if self.held_range is not None:
            end_ns = self.held_range[0].time_ns
            ranges["A"] = end_ns - round(self.held_range[0].elapsed_s * 1e9), end_ns
        if self.range_ns is not None and self.range_ns != ranges.get("A"):
            ranges["B" if ranges else "A"] = self.range_ns
        return ranges

    @property
    def range_name(self) -> str:
        """Name of the selected range."""
        return next(name for name, ends in self.ranges_ns.items() if ends == self.range_ns)

    def set_filter(self, text: str, cpu: int | None) -> None:
        """Sets filter and selected CPU; raises FilterError, changing nothing, for invalid text."""
        self.filter = parse_filter(text)
        self.cpu = cpu
        self.mask = self._mask_source = None  # a new mask makes views recheck the selected core

    def update_mask(self, session: Session | None, interval: Interval | None) -> None:
        """Computes the mask if needed. An equal mask stays the same object: views compare those."""
        if session is None or self.filter is None:
            self.mask = self._mask_source = None
            return
        source = self.filter, session, list(session.topology)
        if self.filter.is_steady and source == self._mask_source:
            return
        self._mask_source = source
        mask = frozenset(self.filter.cpus(session, interval).nonzero()[0].tolist())
        if mask != self.mask:
            self.mask = mask

    def match_text(self, session: Session | None) -> str:
        """Returns the number of CPUs that match the filter, as text of a fixed width."""
        if session is None or self.mask is None:
            return ""
        count, total = len(self.mask.intersection(session.selected)), len(session.selected)
        return f"{count:>{len(str(total))}} of {total} CPUs" if count else "no CPU matches"


# --- the numbers of one interval by row

MAX_IDLE_UTIL = 0.05
"""Busy share of the busiest CPU below which a row is drawn dim."""
ROW_NUMBER_KEYS = ("util", "busy_hz", "net_hz", "idle", "involuntary", "steal", "ipc",
                   "kernel_cycles", "user", "system", "iowait")  # fmt: skip
_HIGHEST_VALUE_KEYS = frozenset({"involuntary", "steal"})
"""Keys of the numbers for which a row shows the highest value of its CPUs."""
BUSIEST_CPU = -1
"""Index of a row's busiest CPU; for _HIGHEST_VALUE_KEYS, of the CPU with the highest number."""
MIN_DROP_SHARE = 0.05
"""Minimum share by which a low clock is below its ceiling. Smaller differences may result from idle
time in the averages."""


RowIndexes = slice | Sequence[int]


class RowNumbers:
    """The numbers of some rows in one interval, as arrays with an entry for each row, or for each
    row and sibling. Unknown numbers, and siblings that a core lacks, are NaN."""

    def __init__(
        self, session: Session, cores: Cores, interval: Interval, rows: RowIndexes = slice(None)
    ) -> None:
        self.session, self.interval = session, interval
        self.cpus, self.cores = cores.cpu_positions[rows], cores.core_positions[rows]
        self.is_online: Bools = interval.online[self.cpus] & cores.has_thread[rows]
        self.ceiling_hz: Floats = np.where(
            cores.has_ceiling[rows], interval.ceiling_hz[self.cores], np.nan
        )
        self.util = self.values("util")

    def values(self, key: str) -> Floats:
        """Returns a metric, or the clock ceiling, of each CPU."""
        if key == "turbo_ceiling_hz":
            values = np.broadcast_to(self.ceiling_hz[:, None], self.cpus.shape)
        else:
            values = self.interval.values[key][self.cpus]
        return np.where(self.is_online, values, np.nan)

    @cached_property
    def busiest(self) -> Ints:
        return busiest_cpu_indexes(self.util, self.values("busy_hz"))

    @cached_property
    def is_below_ceiling(self) -> Bools:
        """Whether the busiest CPU's clock is meaningful and clearly below its ceiling, by row."""
        busiest_hz = core_values("busy_hz", self.values("busy_hz"), self.busiest)
        is_awake = np.asarray(np.fmax.reduce(self.util, axis=1) >= MIN_AWAKE_UTIL)
        return is_awake & (busiest_hz < self.ceiling_hz * (1 - MIN_DROP_SHARE))

    def shown_cpus(self, key: str) -> Ints:
        """Returns, by row, the index of the CPU that the row shows: the CPU with the highest number
        for keys in _HIGHEST_VALUE_KEYS, else the busiest CPU."""
        if key in _HIGHEST_VALUE_KEYS:
            return np.asarray(np.fmax(self.values(key), -1.0).argmax(axis=1))
        return self.busiest


def busiest_cpu_indexes(util: Floats, hz: Floats) -> Ints:
    """Returns the index of the busiest CPU along the last axis. Busy shares are rounded to 1 %, so
    that it rarely changes. Of equally busy CPUs, it is the first one with a known clock."""
    rank = np.where(np.isnan(util), -1.0, np.round(util, 2)) + 0.001 * np.isfinite(hz)
    index: Ints = np.argmax(rank, axis=-1)
    return index


def package_values(session: Session, interval: Interval, cpu: int, *keys: str) -> list[float]:
    """Returns the numbers with these keys for the package of a CPU; NaN where unknown."""
    index = next((i for i, cpus in enumerate(session.hello.packages) if cpu in cpus), -1)
    series = (interval.packages.get(key) for key in keys)
    return [
        nan if values is None or not 0 <= index < len(values) else float(values[index])
        for values in series
    ]


def core_values(key: str, values: Floats, busiest: Ints) -> Floats:
    """Returns the value of a core from those of its CPUs, along the last axis: the highest for keys
    in _HIGHEST_VALUE_KEYS, else that of the CPU with index `busiest`."""
    if key in _HIGHEST_VALUE_KEYS:
        return np.asarray(np.fmax.reduce(values, axis=-1))
    return np.take_along_axis(values, busiest[..., None], axis=-1)[..., 0]


# --- fields: the metrics of the registry, and the SMT states of the CPU's core

_FIRST_FIELDS = ("util", "busy_hz", "ipc", "involuntary", "both", "steal", "kernel_cycles")
"""Keys of the fields that are listed first, in this order."""
_SCALE_STEPS = {"Hz": 2e8, "1": 0.5}
"""Step by unit: the ends of a scale are multiples of it."""
_MAX_SCALE_RATIO = 2.5
"""Maximum width of a scale, as a multiple of the needed width. A wider scale is replaced."""


def session_clock_unit(session: Session, units: str, *, ghz_if_unknown: bool = False) -> ClockUnit:
    """Returns the unit of clocks. If the base clock is unknown, its multiples are NaN, or GHz."""
    base_hz = session.hello.base_hz
    unit = clock_unit(units, math.nan if base_hz is None else base_hz.hz)
    return GHZ if ghz_if_unknown and math.isnan(unit.per_hz) else unit


def value_unit(field: Number, clock: ClockUnit, max_value: float = 0.0) -> ClockUnit:
    """Returns the unit for values of a field. `max_value`: the highest value, for a rate."""
    if field.is_rate:
        return rate_unit(max_value)
    if field.unit == "Hz":
        return clock
    return ClockUnit("%", 100.0, 1) if field.unit == "ratio" else ClockUnit("", 1.0, 2)


def value_text(value: float, unit: ClockUnit, digits: int) -> str:
    """Returns the value as text; MISSING if the value or the unit's factor is unknown."""
    scaled_value = value * unit.per_hz
    return f"{scaled_value:.{digits}f}" if isfinite(scaled_value) else MISSING


def scale_ends(field: Number, scale: Scale, unit: ClockUnit) -> tuple[str, str]:
    """Returns the ends of a scale as text, without the unit."""
    digits = 0 if field.unit == "ratio" else unit.digits
    return value_text(scale.low, unit, digits), value_text(scale.high, unit, digits)


def make_number_column(number: Number, clock: ClockUnit, width: int) -> columns.Column:
    scale, digits = number.scale(clock)
    name, is_rate = number.name(clock), number.is_rate
    return columns.Column(
        number.key, name, width, scale=scale, digits=digits, has_si_prefix=is_rate, source=number
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale that maps values to steps of the heat ramp."""

    low: float
    high: float

    def levels(self, values: Floats) -> np.ndarray:
        """Returns steps from 0 to HEAT - 1; -1 where the value is unknown."""
        with np.errstate(invalid="ignore"):
            share = (values - self.low) / (self.high - self.low)
            steps = np.clip(share * HEAT_STEPS, 0, HEAT_STEPS - 1)
            return np.where(np.isnan(values), -1, steps).astype(int)

    def level(self, value: float) -> int:
        """Returns the step of a single value, as `levels` does."""
        return int(self.levels(np.array(value)))

    def covers(self, other: Scale) -> bool:
        """Returns whether this scale covers the other, and is not _MAX_SCALE_RATIO times wider."""
        is_inside = self.low <= other.low and other.high <= self.high
        return is_inside and self.high - self.low <= _MAX_SCALE_RATIO * (other.high - other.low)


def metric_fields(session: Session) -> list[Number]:
    """Returns the fields that this stream has, in the order in which a key cycles through them."""
    served_keys = [key for key, variants in session.evaluator.variants.items() if variants]
    if any(len(core) == 2 for core in session.cores):
        served_keys += ["both", "neither"]
    first = [key for key in _FIRST_FIELDS if key in served_keys]
    keys = first + [key for key in served_keys if key not in first]
    known_columns = columns_by_key(session)
    return [known_columns[key] for key in keys]


def selected_field(session: Session, metric: str) -> tuple[Number, list[str]]:
    """Returns the field with this key, or else the first, and the names of the fields after it."""
    served_fields = metric_fields(session)
    index = next((i for i, field in enumerate(served_fields) if field.key == metric), 0)
    other_names = served_fields[index + 1 :] + served_fields[:index]
    return served_fields[index], [field.plain_name for field in other_names]


def field_scale(field: Number, values: Floats, previous: Scale | None = None) -> Scale:
    """Returns a scale that shows differences between CPUs: for shares from 0, for clocks from about
    the slowest to about the fastest. `previous`: the current scale, returned while it fits."""
    known_values = values[np.isfinite(values)]
    known_values = known_values if len(known_values) else np.zeros(1)
    min_value, max_value = float(known_values.min()), float(known_values.max())
    if field.unit == "ratio":
        ends = SMALL_SHARE_ENDS if field.is_small else ()
        new_scale = Scale(0.0, next((end for end in ends if max_value <= end), 1.0))
    elif field.is_rate or field.key.endswith(PER_KI):
        power = 10.0 ** math.floor(math.log10(max(max_value, 1e-3)))
        new_scale = Scale(0.0, next(power * n for n in (1, 2, 5, 10) if max_value <= power * n))
    else:
        step = _SCALE_STEPS[field.unit]
        high = max(step * math.ceil(max_value / step), 1.0)
        low = step * math.floor(min(min_value, 0.75 * high) / step) if field.unit == "Hz" else 0.0
        new_scale = Scale(low, high)
    return previous if previous is not None and previous.covers(new_scale) else new_scale


# --- the order of rows, which all views with rows share


def ordered_rows(
    cores: Cores, settings: ViewSettings, session: Session, interval: Interval
) -> list[int]:
    """Returns the indexes of rows in the selected order: by number from the highest, or by task
    name, unknown values last. Numbers are compared as displayed."""
    rows = [row for group in cores.rows_by_group.values() for row in group]
    if settings.order == "CPU number":
        rows.sort(key=lambda row: cores.rows[row].cpus[0])
    elif settings.order == "worst first":
        rows.sort(key=worst_first_keys(cores, session, interval).__getitem__)
    elif settings.order == "task":
        tasks = {cpu: parse_task(interval.tasks.get(str(cpu))) for cpu in cores.row_of_cpu}
        names = [
            next((task.comm.casefold() for cpu in core.cpus if (task := tasks[cpu])), "")
            for core in cores.rows
        ]
        named_rows = sorted((row for row in rows if names[row]), key=names.__getitem__)
        unnamed_rows = [row for row in rows if not names[row]]
        return [*(named_rows[::-1] if settings.reverse else named_rows), *unnamed_rows]
    elif settings.order != "topology":
        values = _values_by_row(cores, settings.order, session, interval)
        fill = inf if settings.reverse else -inf  # unknown values are last in both directions
        rows.sort(key=lambda row: fill if isnan(values[row]) else values[row], reverse=True)
    return rows[::-1] if settings.reverse else rows


def worst_first_keys(cores: Cores, session: Session, interval: Interval) -> list[float]:
    """Returns a sort key for each row, for the order "worst first": the share that the core loses,
    then the load of its CPUs. Both have coarse steps, so that small changes move no row."""
    episodes = episode_style.RowEpisodes(session, interval)
    worst = episodes.worst_by_row(cores).items()
    lost = {row: np.nan_to_num(episodes.lost_share(e)) for row, e in worst if is_loss(e.episode)}
    loads = np.nansum(RowNumbers(session, cores, interval).util, axis=1).tolist()
    return [
        -(100 * round(lost.get(row, 0.0), 2) + round(load, 1)) for row, load in enumerate(loads)
    ]


def order_name(order: str) -> str:
    """Returns the displayed name of the order, as in headings."""
    if order in ORDERS:
        return order
    label = COLUMNS_BY_KEY[order].label if order in COLUMNS_BY_KEY else order
    return label.removeprefix(EVENT_PREFIX)


def _values_by_row(cores: Cores, key: str, session: Session, interval: Interval) -> list[float]:
    """Returns the number that each row shows; if it shows none, the highest of its CPUs."""
    column, numbers = columns_by_key(session).get(key), RowNumbers(session, cores, interval)
    if column is None:
        return [nan] * len(cores.rows)
    scale, digits = column.scale(clock_unit("GHz", nan))
    values = (CpuColumns(session).values(key, interval) * scale).round(digits)
    values = np.where(numbers.is_online, values[numbers.cpus], np.nan)
    is_shown = key in ROW_NUMBER_KEYS
    by_row = core_values(key, values, numbers.busiest) if is_shown else np.fmax.reduce(values, 1)
    row_values: list[float] = by_row.tolist()
    return row_values
