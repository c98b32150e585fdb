"""The columns of an exported table, which has a row for each CPU and interval. They are the same on
every machine, and their names include the units."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.base.errors import USAGE, Failed
from perftop.base.text import did_you_mean
from perftop.model import numbers
from perftop.model.counters import packages, with_extra_column
from perftop.model.delta import any_by_sample
from perftop.model.evaluation import COUNTER_BY_NAME
from perftop.model.numbers import (
    COUNTS,
    EVENT_PREFIX,
    METRICS,
    NUMBERS,
    PER_KI,
    RARE_METRICS,
    Number,
    Scope,
    is_event_key,
)
from perftop.model.smt import BOUNDS, STATES
from perftop.model.tasks import TaskSnapshot
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import L3_FIELDS, PACKAGE_FIELDS, cpu_values

ColumnValues = Floats | Bools | Sequence[str | None]
"""The values of a column: one for each row, or a single one for all rows. Unknown numbers are NaN,
unknown texts None."""
UNKNOWN: Floats = np.full(1, math.nan)
"""The column of a number that is unknown in all rows."""


class IntervalRows:
    """The exported CPUs of a session, in one interval. Methods return columns. A column that is the
    same object as in the previous interval is not formatted again."""

    interval: Interval

    def __init__(self, session: Session) -> None:
        self.session, self.rows = session, session.selected
        self._index: Ints = np.array(self.rows, int)
        self._has_all = self.rows == [*range(len(session.topology))]
        self._packages: Ints = packages(session.hello)[self._index]
        self._places: dict[str, Floats] = {}
        self._snapshot: TaskSnapshot | None = None

    def set_interval(self, interval: Interval) -> IntervalRows:
        self.interval = interval
        self.cores: Ints = self.session.reader.cores.core_by_cpu[self._index]
        """Index of the core of each row; -1 if unknown."""
        return self

    def values(self, number: Number) -> Floats:
        """Returns the values of a number whose key is in `NUMBERS`."""
        key, interval = number.key, self.interval
        if number.scope == "machine":
            return self.machine_column(interval.machine.get(key, math.nan))
        if number.scope == "package":
            rates = interval.packages.get(PACKAGE_FIELDS[key])
            if rates is None:
                return UNKNOWN
            return np.asarray(with_extra_column(rates, np.nan)[self._packages])
        counted = interval.caches.get(L3_FIELDS[key], UNKNOWN) if number.scope == "l3" else None
        if counted is not None and not np.isfinite(counted).any():
            return UNKNOWN
        return self.cpu_column(cpu_values(self.session, interval, key))

    def machine_column(self, value: float) -> Floats:
        return np.array([value], float) if math.isfinite(value) else UNKNOWN

    def cpu_column(self, values: Floats | None) -> Floats:
        if values is None or self._has_all:
            return UNKNOWN if values is None else values
        return np.asarray(values.take(self._index))

    def core_column(self, values: Floats) -> Floats:
        return np.asarray(with_extra_column(values, np.nan)[self.cores])

    def is_doubted(self) -> list[bool]:
        is_doubted: list[bool] = any_by_sample(self.interval.doubts[self._index] != 0).tolist()
        return is_doubted

    def suspect_counts(self) -> Floats:
        """Returns by CPU the number of counters with left-out samples."""
        doubts = self.interval.doubts
        if not np.count_nonzero(doubts):  # the usual case
            return np.zeros(1)
        return np.asarray(np.count_nonzero(doubts[self._index], axis=1), float)

    def methods(self) -> list[str | None]:
        """Returns, for each row, the method that computed the SMT states of its core."""
        methods = [*self.interval.split.method, None]
        return [methods[core] for core in self.cores.tolist()]

    def topology_numbers(self, name: str) -> Floats:
        """Returns a number of each CPU's topology, such as its package; NaN where unknown."""
        if name not in self._places:
            numbers = (getattr(self.session.topology[row], name) for row in self.rows)
            self._places[name] = np.array([math.nan if n is None else n for n in numbers], float)
        return self._places[name]

    def first_task_column(self, name: str) -> ColumnValues:
        """Returns an attribute of the task that ran longest on each CPU."""
        snapshot = self.interval.snapshot
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            cpus = [str(self.session.topology[row].cpu) for row in self.rows]
            tasks = snapshot.columns(cpus)
            rows, first_tasks = np.unique(tasks.cpus, return_index=True)
            names: list[str | None] = [None] * len(cpus)
            for row, first_task in zip(rows.tolist(), first_tasks.tolist(), strict=True):
                names[row] = tasks.names[first_task] or None
            pids, shares = np.full((2, len(cpus)), np.nan)
            pids[rows], shares[rows] = np.array(tasks.pids)[first_tasks], tasks.shares[first_tasks]
            self._tasks: dict[str, ColumnValues] = {"comm": names, "pid": pids, "share": shares}
        return self._tasks[name]

    def job_column(self, name: str) -> Floats:
        activity = self.interval.watched
        return UNKNOWN if activity is None else self.machine_column(getattr(activity, name))


FieldKind = Literal["number", "exact", "whole", "count", "total", "boolean", "text"]
"""`number`: printed with seven digits; `exact`: with all digits; `whole`: an integer; `count`:
events in the interval; `total`: events since the start."""
ColumnGetter = Callable[[IntervalRows], ColumnValues]


@dataclass(frozen=True)
class Field:
    name: str
    help: str
    values: ColumnGetter
    key: str = ""
    """The key in a line of `stat --json`."""
    kind: FieldKind = "number"
    scope: Scope = "cpu"
    has_reasons: bool = True
    """Whether `why` has a reason for each missing value."""


TIME = Field(
    "time_unix_s", "End of the interval, Unix time.",
    lambda rows: rows.machine_column(rows.interval.time), kind="exact", scope="machine",
)  # fmt: skip
ELAPSED = Field(
    "elapsed_s", "Length of the interval.",
    lambda rows: rows.machine_column(rows.interval.elapsed_s), scope="machine",
)  # fmt: skip
TOPOLOGY_FIELDS = (
    Field("package", "Package of the CPU.", lambda rows: rows.topology_numbers("package"),
          kind="count", has_reasons=False),
    Field("core", "Core of the CPU, by the kernel's number within the package.",
          lambda rows: rows.topology_numbers("core"), kind="count", has_reasons=False),
    Field("cpu", "Number of the CPU.", lambda rows: rows.topology_numbers("cpu"), kind="count"),
)  # fmt: skip
ONLINE = Field(
    "online", "Whether the CPU was online at the end.",
    lambda rows: rows.interval.online[rows.rows], kind="boolean",
)  # fmt: skip
RELIABILITY_FIELDS = (
    Field(
        "lost_frames_total", "Frames dropped so far.",
        lambda rows: rows.machine_column(rows.session.dropped_frames), "lost", "total", "machine",
    ),
    Field(
        "late_frames_total", "Frames so far for which every CPU was read late.",
        lambda rows: rows.machine_column(rows.session.late_samples), "late", "total", "machine",
    ),
    Field(
        "suspect_counters", "Number of counters of which samples of the interval were left out.",
        IntervalRows.suspect_counts, "suspect", "whole",
    ),
)  # fmt: skip
"""Columns about the reliability of an interval, in every export."""


# --- fields of measures


def _field_of(number: Number, key: str = "") -> Field:
    """Returns the column of a number. `key`: its key in a JSON line, if that differs."""
    name = f"machine_{number.column}" if number.scope == "machine" else number.column
    return Field(
        name, number.help, lambda rows: rows.values(number), key or number.key, scope=number.scope
    )


def _bound_fields(end: str, description: str) -> Iterable[Field]:
    """Yields the columns of lower or upper bounds of SMT states, from the method `bounds`."""

    def values(i: int, rows: IntervalRows) -> Floats:
        split = rows.interval.split
        is_bounded = split.method_codes == BOUNDS
        if not np.count_nonzero(is_bounded):
            return UNKNOWN
        return rows.core_column(np.where(is_bounded, getattr(split, end)[:, i], np.nan))

    for i, state in enumerate(STATES):
        yield Field(
            f"smt_{state}_{end}_ratio", f"{description} bound of {state}, by the method bounds.",
            partial(values, i), f"smt_{end}", scope="core", has_reasons=False,
        )  # fmt: skip


def _count_field(key: str) -> Field:
    text = f"Increase of the counter {key}, without suspect samples."
    return Field(
        f"{key}_count",
        text,
        lambda rows: rows.cpu_column(rows.interval.counts.get(key)),
        key,
        "count",
    )


MEASURES = (
    *map(_field_of, METRICS.values()),
    Field("smt_method", "How the states of its core were measured.", IntervalRows.methods,
          "smt_method", "text", "core"),
    *(_field_of(NUMBERS[state], "smt") for state in STATES),
    *_bound_fields("low", "Lower"), *_bound_fields("high", "Upper"),
    *(_field_of(number) for key, number in numbers.CORE.items() if key not in STATES),
    *map(_count_field, ("tsc", *COUNTS)),
    Field("counted_ratio", "Share of the time in which counters were active, if multiplexed.",
          lambda rows: rows.cpu_column(rows.interval.counted_share), "counted", has_reasons=False),
    *(_field_of(NUMBERS[key])
      for key in (*COUNTER_BY_NAME, *numbers.PACKAGE, *numbers.L3)),
    Field("task", "Name of the task that ran most.", lambda rows: rows.first_task_column("comm"),
          "task", "text", has_reasons=False),
    Field("task_pid", "PID of that task.", lambda rows: rows.first_task_column("pid"), "task",
          "whole", has_reasons=False),
    Field("task_ratio", "Share of the time in which that task ran.",
          lambda rows: rows.first_task_column("share"), "task", "exact", has_reasons=False),
    Field("job_run_s", "Time that the watched job ran.", lambda rows: rows.job_column("run_s"),
          "watched", scope="machine", has_reasons=False),
    Field("job_wait_s", "Time that it waited for a CPU.", lambda rows: rows.job_column("wait_s"),
          "watched", scope="machine", has_reasons=False),
    Field("job_preemptions", "Number of times that it was preempted.",
          lambda rows: rows.job_column("involuntary"), "watched", scope="machine",
          has_reasons=False),
)  # fmt: skip


def _fields_of_event(session: Session, key: str) -> tuple[Field, ...]:
    name, metrics = key.removeprefix(EVENT_PREFIX), session.evaluator.registry.events
    return (
        replace(_field_of(metrics[key]), name=f"{key}_hz", help=f"Events {name} per second."),
        replace(_field_of(metrics[key + PER_KI]), name=f"{key}_per_ki",
                help=f"Events {name} per thousand instructions."),
        _count_field(key),
        Field(f"{key}_counted_ratio", f"Share of the time in which {name} was counted.",
              lambda rows: rows.cpu_column(rows.interval.event_counted_shares.get(key)), key,
              has_reasons=False),
    )  # fmt: skip


# --- choosing fields


def chosen_fields(names: Sequence[str] | None) -> tuple[Field, ...]:
    """Returns the measures with these column names or keys; None: all. `with_events` adds measures
    of chosen events, which only a session knows. Raises Failed for an unknown name."""
    if names is None:
        return MEASURES
    keys = [field.key for field in MEASURES if field.kind != "count"]
    known_names = {*keys, *(field.name for field in MEASURES)}
    for name in names:
        if name not in known_names and not is_event_key(name):
            suggestion = did_you_mean(name, sorted(known_names), "perftop help numbers lists them")
            text = f"--metrics: unknown metric {name!r}{suggestion}"
            raise Failed(text, USAGE)
    return _named_fields(MEASURES, names)


def _named_fields(fields: Iterable[Field], names: Sequence[str]) -> tuple[Field, ...]:
    """Returns the fields with these names or keys. A count is selected only by its name, because
    its rate has the same key."""
    return tuple(f for f in fields if f.name in names or (f.key in names and f.kind != "count"))


def with_events(
    session: Session, measures: tuple[Field, ...], names: Sequence[str] | None
) -> tuple[Field, ...]:
    """Returns `measures` and the requested measures of chosen events. Raises Failed for an event
    that is not counted."""
    counters, metrics = session.evaluator.registry.counters, session.evaluator.registry.events
    events = [field for key in counters for field in _fields_of_event(session, key)]
    rare_fields = [_field_of(metric) for metric in metrics.values() if metric.key in RARE_METRICS]
    if names is None:
        return (*measures, *events, *rare_fields)
    events += rare_fields
    for name in names:
        if name in RARE_METRICS and name not in session.evaluator.metrics:
            raise Failed(f"--metrics: {name!r} is not counted here", USAGE)
        if name.startswith(EVENT_PREFIX) and all(name not in {f.name, f.key} for f in events):
            available = ", ".join(counters) or "none (choose them with -e)"
            raise Failed(f"--metrics: no event {name!r} here; counted: {available}", USAGE)
    return (*measures, *_named_fields(events, names))


# --- Columns as cells. Cells are an array of bytes with a row for each cell, padded with NUL bytes
# that are dropped on output. Digits are looked up in tables that have the text of every number of
# four digits.

MAX_FORMATTED_VALUES = 1 << 12
"""Maximum number of values that are formatted at once. More do not fit into the caches of a CPU."""
_MAX_SAFE_DISTANCE = 0.4999
"""Maximum distance of a scaled number from the nearest integer for it to be rounded safely. A
number closer to a half is formatted by `repr`."""
_MIN_EXPONENT, _MAX_EXPONENT = -16, 11
"""Decimal exponents for which seven digits of a number can be scaled precisely."""
_EXPONENTS = np.arange(_MIN_EXPONENT, _MAX_EXPONENT + 1)
_LAST_PLACE = np.where(_EXPONENTS < -4, -6, _EXPONENTS - 6)
"""Exponent of the seventh and last printed digit of a number, by the number's exponent. Numbers
below 1e-4 are printed in scientific notation."""
_SCALE_UP, _SCALE_DOWN, _UNITS_OF_ONE, _ONES_OF_UNIT, _DECIMALS_OF_UNIT = (
    10.0 ** np.maximum(powers, 0)
    for powers in (6 - _EXPONENTS, _EXPONENTS - 6, -_LAST_PLACE, _LAST_PLACE, 12 + _LAST_PLACE)
)
"""Powers of ten by exponent: the factor and the divisor that move a number's decimal point to just
after its seventh digit; and, for units of 10 ** _LAST_PLACE: the units in one, the ones in a unit,
and the last printed decimals in a unit."""
_PRINTED_EXPONENTS = np.array(
    [b"e-%02d" % -e if e < -4 else b"" for e in _EXPONENTS.tolist()], "S4"
).view(np.uint32)
_FOURS, _PLACE_VALUES = np.arange(10_000)[:, None], np.array([1000, 100, 10, 1])
_ALL_DIGITS = _FOURS // _PLACE_VALUES % 10 + ord("0")
_HIGHEST_DIGITS = np.where(_FOURS < _PLACE_VALUES, 0, _ALL_DIGITS)
_LOWEST_DIGITS = np.where(_FOURS % (10 * _PLACE_VALUES) == 0, 0, _ALL_DIGITS)


def _table(*digits: Ints) -> np.ndarray:
    return np.concatenate(digits).astype(np.uint8).view(np.uint32).ravel()


_ZERO = np.array([[ord("0"), 0, 0, 0]])
_WHOLE_TABLES = (
    *[_table(_ALL_DIGITS, _HIGHEST_DIGITS)] * 3,
    _table(_ALL_DIGITS, _ZERO, _HIGHEST_DIGITS[1:]),
)
"""Texts of the groups of four digits of an integer below 10**16: with all digits, and without
leading zeros for the first group."""
_DECIMAL_TABLES = (
    _table(_ALL_DIGITS, _ZERO, _LOWEST_DIGITS[1:]),
    *[_table(_ALL_DIGITS, _LOWEST_DIGITS)] * 2,
)
"""Texts of the groups of four of twelve decimals: with all digits, and without trailing zeros."""


def _write_whole_numbers(cells: np.ndarray, values: Floats) -> None:
    rest = above = values.astype(np.int64)
    columns = cells.shape[1]
    for index, table in enumerate(_WHOLE_TABLES[-columns:]):
        digits = rest // 10 ** (4 * (columns - 1 - index))
        place = digits - 10_000 * above + 10_000 * (above == 0) if index else digits + 10_000
        cells[:, index] = table.take(place)
        above = digits


def _write_decimals(cells: np.ndarray, values: Floats) -> None:
    rest = values.astype(np.int64)
    for index, table in enumerate(_DECIMAL_TABLES):
        unit = 10 ** (8 - 4 * index)
        digits = rest // unit
        rest -= digits * unit
        cells[:, index] = table.take(digits + 10_000 * (rest == 0))


def number_cells(values: Floats) -> Codes:
    """Returns `repr(json_number(value))` of each value; an empty cell where it is not finite."""
    cells = np.zeros((len(values), 9), np.uint32)
    for first in range(0, len(values), MAX_FORMATTED_VALUES):
        part = slice(first, first + MAX_FORMATTED_VALUES)
        _write_numbers(cells[part], values[part])
    return cells.view(np.uint8)


def _write_numbers(cells: np.ndarray, values: Floats) -> None:
    is_finite, magnitude = np.isfinite(values), np.abs(values)
    is_plain = (magnitude >= 10.0**_MIN_EXPONENT) & (magnitude < 10.0 ** (_MAX_EXPONENT + 1))
    magnitude = np.where(is_plain, magnitude, 1.0)
    exponent = np.floor(np.log10(magnitude)).astype(np.intp) - _MIN_EXPONENT
    scaled = magnitude * _SCALE_UP.take(exponent) / _SCALE_DOWN.take(exponent)
    units = np.rint(scaled)
    is_plain &= (np.abs(scaled - units) <= _MAX_SAFE_DISTANCE) & (units < 1e7)
    units *= is_plain
    units_of_one = _UNITS_OF_ONE.take(exponent)
    whole = np.floor(units / units_of_one)
    decimals = (units - whole * units_of_one) * _DECIMALS_OF_UNIT.take(exponent)
    cells[:, 0], cells[:, 4] = np.where(values < 0, ord("-"), 0), ord(".")
    _write_whole_numbers(cells[:, 1:4], whole * _ONES_OF_UNIT.take(exponent))
    _write_decimals(cells[:, 5:8], decimals)
    cells[:, 8] = _PRINTED_EXPONENTS.take(exponent)
    # Setting a few rows by index takes a tenth of the time of setting them by mask.
    cells[np.flatnonzero((cells[:, 8] != 0) & (decimals == 0)), 4:6] = 0
    cells[np.flatnonzero(~is_finite)] = 0
    for index in np.flatnonzero(is_finite & ~is_plain & (values != 0)).tolist():
        text = repr(float(f"{values[index]:.7g}")).encode()
        cells[index] = np.frombuffer(text.ljust(cells.shape[1] * 4, b"\0"), np.uint32)


def whole_cells(values: Floats) -> Codes:
    """Returns the text of each integer; an empty cell where it is unknown."""
    is_known = np.isfinite(values)
    known_values = np.where(is_known, values, 0.0)
    if not np.logical_and.reduce((known_values >= 0) & (known_values < 1e16)):
        return text_cells(f"{int(v)}" if v == v else "" for v in values.tolist())  # noqa: PLR0124
    cells = np.zeros((len(values), 4), np.uint32)
    _write_whole_numbers(cells, known_values)
    cells[~is_known] = 0
    return cells.view(np.uint8)


def exact_cells(values: Floats) -> Codes:
    """Returns the shortest text that identifies each number exactly; '' where unknown."""
    return text_cells("" if v != v else repr(v) for v in values.tolist())  # noqa: PLR0124


def boolean_cells(values: Floats) -> Codes:
    cells: Codes = text_cells(["false", "true"])[values.astype(int)]
    return cells


def text_cells(texts: Iterable[str]) -> Codes:
    encoded = np.array([text.encode() for text in texts], np.bytes_)
    cells = encoded.astype(f"S{-(-encoded.itemsize // 4) * 4}")  # as wide as whole words
    return np.asarray(cells.view(np.uint8).reshape(len(cells), cells.itemsize))


def rounded_numbers(values: Floats) -> Floats:
    """Returns `json_number(value)` of each value; NaN where it is not finite."""
    texts = ("%.7g " * values.size % tuple(values.ravel().tolist())).split()
    numbers = np.array([*map(float, texts)]).reshape(values.shape)
    return np.where(np.isfinite(numbers), numbers, np.nan)
