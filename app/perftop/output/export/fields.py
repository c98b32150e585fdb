"""The columns of an exported table, which has a row for each CPU and interval. They are the same on
every machine, and their names include the units."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal, Protocol

import numpy as np

from perfprobe import wire
from perfprobe.wire import Cpu
from perftop.base.arrays import Floats, Ints
from perftop.base.errors import USAGE, Failed
from perftop.base.text import did_you_mean
from perftop.model import numbers
from perftop.model.counters import Cores, with_extra_column
from perftop.model.kinds import Episode
from perftop.model.numbers import (
    COUNTER_BY_NAME,
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
from perftop.model.smt import BOUNDS, METHODS, STATES
from perftop.model.tasks import TaskSnapshot
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import CORE_ARRAYS, L3_FIELDS, PACKAGE_FIELDS, cpu_values, doubt_texts

Column = np.ndarray[Any, Any]
"""The values of a field in several intervals, (intervals, owners): by exported CPU, by core or by
package, depending on the scope of the field. An axis has length 1 if all its values are equal.
Unknown numbers are NaN, unknown texts None."""
UNKNOWN: Floats = np.full((1, 1), math.nan)
"""The column of a number that is unknown in all rows."""
_NO_SUSPECT_COUNTERS: Floats = np.zeros((1, 1))
_NO_TEXT = np.array([[""]], object)
OWNER_SCOPES = "core", "package"


class RowBlock:
    """The exported CPUs of a session, in consecutive intervals with the same cores. Its methods
    return columns; one that has not changed since the previous block is the same object."""

    cores: Cores

    def __init__(self, session: Session) -> None:
        self.session, self.rows = session, session.selected
        self._index: Ints = np.array(self.rows, int)
        self._has_all = self.rows == [*range(len(session.topology))]
        self._topology: list[Cpu] = []
        self._topology_columns: dict[str, Floats] = {}
        self._snapshot: TaskSnapshot | None = None
        self.clear()

    def clear(self) -> None:
        self.intervals: list[Interval] = []
        self._frame_counts: list[tuple[int, int]] = []
        """Number of dropped and of late frames up to the end of each interval."""
        self._arrays: dict[str, Column] = {}
        self._tasks: list[dict[str, Column]] = []
        """For each interval, the columns of `first_task_column`."""

    def add(self, interval: Interval) -> None:
        """Adds the interval that has just ended. All intervals of a block have the same cores."""
        if not self._topology or interval.cores is not self.cores:
            self.cores, self._topology_columns = interval.cores, {}
            self._topology = [self.session.topology[row] for row in self.rows]
        self.intervals.append(interval)
        self._frame_counts.append((self.session.dropped_frames, self.session.late_samples))

    def array(self, name: str) -> Column:
        """Returns an attribute of the intervals as one array, (intervals, ...)."""
        if name not in self._arrays:
            self._arrays[name] = np.array([*map(attrgetter(name), self.intervals)])
        return self._arrays[name]

    def owners(self, scope: Scope) -> Ints:
        """Returns, for each row, the index in a column of its core or package, depending on the
        scope, or else of its CPU."""
        if scope in OWNER_SCOPES:
            owners = {"core": self.cores.core_by_cpu, "package": self.cores.package_by_cpu}[scope]
            return np.asarray(owners[self._index])
        return np.arange(len(self.rows))

    def by_row(self, column: Column, scope: Scope) -> Column:
        """Returns the values of a column by exported CPU."""
        has_owners = scope in OWNER_SCOPES and column.shape[1] > 1
        return column.take(self.owners(scope), axis=1) if has_owners else column

    def values(self, number: Number) -> Column:
        """Returns the values of a number whose key is in `NUMBERS`."""
        key, session = number.key, self.session
        if number.scope == "machine":
            return self.machine_column(i.machine.get(key) for i in self.intervals)
        if number.scope == "package":
            rates = self._stack_intervals(lambda i: i.packages.get(PACKAGE_FIELDS[key]))
            return rates if rates is UNKNOWN else self._with_unknown_owner(rates, "package")
        if number.scope == "l3":
            name = L3_FIELDS[key]
            arrays = (i.caches[name] for i in self.intervals if name in i.caches)
            if not any(np.isfinite(values).any() for values in arrays):
                return UNKNOWN
            return self.cpu_column(lambda interval: cpu_values(session, interval, key))
        if key in STATES:
            return self.core_column(self.array("split.states")[..., STATES.index(key)])
        if key in CORE_ARRAYS:
            return self.core_column(self.array(CORE_ARRAYS[key]))
        values = self.array("values.metrics")[:, session.evaluator.registry.index[key]]
        return values if self._has_all else values.take(self._index, axis=1)

    def machine_column(self, values: Iterable[float | None]) -> Column:
        """Returns the column of a number that all rows of an interval share."""
        numbers = [math.nan if v is None or math.isinf(v) else v for v in values]
        is_known = any(number == number for number in numbers)  # noqa: PLR0124
        return np.array(numbers, float)[:, None] if is_known else UNKNOWN

    def cpu_column(self, values: Callable[[Interval], Floats | None]) -> Column:
        """Returns a column from an interval's values by CPU, which are None if unknown."""
        column = self._stack_intervals(values)
        return column if self._has_all or column is UNKNOWN else column.take(self._index, axis=1)

    def core_column(self, values: Floats) -> Column:
        """Returns a column from values (intervals, cores)."""
        return self._with_unknown_owner(values, "core")

    def _with_unknown_owner(self, values: Column, scope: Scope) -> Column:
        """Appends a column of NaN if a row belongs to no core or package."""
        has_unknown = np.count_nonzero(self.owners(scope) < 0)
        return with_extra_column(values, math.nan) if has_unknown else values

    def _stack_intervals(self, values: Callable[[Interval], Floats | None]) -> Column:
        arrays = [*map(values, self.intervals)]
        example = next((array for array in arrays if array is not None), None)
        if example is None:
            return UNKNOWN
        unknown = np.full(len(example), math.nan)
        return np.array([unknown if array is None else array for array in arrays], float)

    def suspect_counts(self) -> Column:
        """Returns the number of counters with left-out samples."""
        doubts = self.array("doubts")
        if not np.count_nonzero(doubts):
            return _NO_SUSPECT_COUNTERS
        return np.asarray(np.count_nonzero(doubts.take(self._index, axis=1), axis=2), float)

    def suspects(self) -> Column:
        """Returns the reasons why samples were left out."""
        if not self.suspect_counts().any():
            return _NO_TEXT
        doubts = self.array("doubts").take(self._index, axis=1)
        texts = np.full(doubts.shape[:2], "", object)
        for index, row in np.argwhere(doubts.any(axis=2)).tolist():
            texts[index, row] = "; ".join(doubt_texts(self.intervals[index], self.rows[row]))
        return texts

    def methods(self) -> Column:
        """Returns the method that computed the SMT states of each core."""
        codes = np.nan_to_num(self.core_column(self.array("split.method_codes")), nan=0).astype(int)
        return np.array(METHODS, object).take(codes)

    def topology_numbers(self, name: str) -> Floats:
        """Returns a number of each CPU's topology, such as its package."""
        if name not in self._topology_columns:
            numbers = [getattr(cpu, name) for cpu in self._topology]
            self._topology_columns[name] = np.array([numbers], float)
        return self._topology_columns[name]

    def first_task_column(self, name: str) -> Column:
        """Returns an attribute of the task that ran longest on each CPU."""
        if not self._tasks:
            for interval in self.intervals:
                if interval.snapshot is not self._snapshot:
                    self._snapshot, cpus = interval.snapshot, [str(c.cpu) for c in self._topology]
                    tasks = interval.snapshot.columns(cpus)
                    rows, first_tasks = np.unique(tasks.cpus, return_index=True)
                    names = np.full((1, len(cpus)), None)
                    names[0, rows] = [tasks.names[task] or None for task in first_tasks.tolist()]
                    pids, shares = np.full((2, 1, len(cpus)), np.nan)
                    pids[0, rows] = np.array(tasks.pids)[first_tasks]
                    shares[0, rows] = tasks.shares[first_tasks]
                    self._newest_tasks = {"comm": names, "pid": pids, "share": shares}
                self._tasks.append(self._newest_tasks)
        columns = [tasks[name] for tasks in self._tasks]
        is_unchanged = all(column is columns[0] for column in columns)
        return columns[0] if is_unchanged else np.concatenate(columns)

    def job_column(self, name: str) -> Column:
        activities = (interval.watched for interval in self.intervals)
        return self.machine_column(None if a is None else getattr(a, name) for a in activities)

    def frame_counts(self, index: int) -> Column:
        """Returns the number of frames so far that were dropped (index 0) or late (1)."""
        return self.machine_column(counts[index] for counts in self._frame_counts)


FieldKind = Literal["number", "exact", "whole", "count", "total", "boolean", "text"]
"""`number`: printed with seven digits; `exact`: with all digits; `whole`: an integer; `count`:
events in the interval; `total`: events since the start."""
ColumnGetter = Callable[[RowBlock], Column]


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
    "time_unix_s",
    "End of the interval, Unix time.",
    lambda block: block.machine_column(i.time for i in block.intervals),
    kind="exact",
    scope="machine",
)
ELAPSED = Field(
    "elapsed_s",
    "Length of the interval.",
    lambda block: block.machine_column(i.elapsed_s for i in block.intervals),
    scope="machine",
)
TOPOLOGY_FIELDS = (
    Field("package", "Package of the CPU.", lambda block: block.topology_numbers("package"),
          kind="count", has_reasons=False),
    Field("core", "Core of the CPU, by the kernel's number within the package.",
          lambda block: block.topology_numbers("core"), kind="count", has_reasons=False),
    Field("cpu", "Number of the CPU.", lambda block: block.topology_numbers("cpu"), kind="count"),
)  # fmt: skip
ONLINE = Field(
    "online", "Whether the CPU was online at the end.",
    lambda block: block.array("online")[:, block.rows], kind="boolean",
)  # fmt: skip
RELIABILITY_FIELDS = (
    Field(
        "lost_frames_total", "Frames dropped so far.",
        lambda block: block.frame_counts(0), "lost", "total", "machine",
    ),
    Field(
        "late_frames_total", "Frames so far for which every CPU was read late.",
        lambda block: block.frame_counts(1), "late", "total", "machine",
    ),
    Field(
        "suspect_counters", "Number of counters of which samples of the interval were left out.",
        RowBlock.suspect_counts, "suspect", "whole",
    ),
)  # fmt: skip
"""Columns about the reliability of an interval, in every export."""


# --- fields of measures


def _number_field(number: Number, key: str = "") -> Field:
    """Returns the column of a number. `key`: its key in a JSON line, if that differs."""
    name = f"machine_{number.column}" if number.scope == "machine" else number.column
    return Field(
        name, number.help, lambda block: block.values(number), key or number.key, scope=number.scope
    )


def _bound_fields(end: str, description: str) -> Iterable[Field]:
    """Yields the columns of lower or upper bounds of SMT states, from the method `bounds`."""

    def values(i: int, block: RowBlock) -> Column:
        is_bounded = block.array("split.method_codes") == BOUNDS
        if not np.count_nonzero(is_bounded):
            return UNKNOWN
        bounds = block.array(f"split.{end}")[..., i]
        return block.core_column(np.where(is_bounded, bounds, np.nan))

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
        lambda block: block.cpu_column(lambda interval: interval.counts.get(key)),
        key,
        "count",
    )


MEASURES = (
    *map(_number_field, METRICS.values()),
    Field("smt_method", "How the states of its core were measured.", RowBlock.methods,
          "smt_method", "text", "core"),
    *(_number_field(NUMBERS[state], "smt") for state in STATES),
    *_bound_fields("low", "Lower"), *_bound_fields("high", "Upper"),
    *(_number_field(number) for key, number in numbers.CORE.items() if key not in STATES),
    *map(_count_field, ("tsc", *COUNTS)),
    Field("counted_ratio", "Share of the time in which counters were active, if multiplexed.",
          lambda block: block.cpu_column(attrgetter("counted_share")), "counted",
          has_reasons=False),
    *(_number_field(NUMBERS[key])
      for key in (*COUNTER_BY_NAME, *numbers.PACKAGE, *numbers.L3)),
    Field("task", "Name of the task that ran most.", lambda block: block.first_task_column("comm"),
          "task", "text", has_reasons=False),
    Field("task_pid", "PID of that task.", lambda block: block.first_task_column("pid"), "task",
          "whole", has_reasons=False),
    Field("task_ratio", "Share of the time in which that task ran.",
          lambda block: block.first_task_column("share"), "task", "exact", has_reasons=False),
    Field("job_run_s", "Time that the watched job ran.", lambda block: block.job_column("run_s"),
          "watched", scope="machine", has_reasons=False),
    Field("job_wait_s", "Time that it waited for a CPU.", lambda block: block.job_column("wait_s"),
          "watched", scope="machine", has_reasons=False),
    Field("job_preemptions", "Number of times that it was preempted.",
          lambda block: block.job_column("involuntary_switches"), "watched", scope="machine",
          has_reasons=False),
)  # fmt: skip


def _event_fields(session: Session, key: str) -> tuple[Field, ...]:
    name, metrics = key.removeprefix(EVENT_PREFIX), session.evaluator.registry.events
    return (
        replace(_number_field(metrics[key]), name=f"{key}_hz", help=f"Events {name} per second."),
        replace(_number_field(metrics[key + PER_KI]), name=f"{key}_per_ki",
                help=f"Events {name} per thousand instructions."),
        _count_field(key),
        Field(f"{key}_counted_ratio", f"Share of the time in which {name} was counted.",
              lambda block: block.cpu_column(lambda i: i.event_counted_shares.get(key)), key,
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
    events = [field for key in counters for field in _event_fields(session, key)]
    rare_fields = [
        _number_field(metric) for metric in metrics.values() if metric.key in RARE_METRICS
    ]
    if names is None:
        return (*measures, *events, *rare_fields)
    events += rare_fields
    for name in names:
        if name in RARE_METRICS and name not in session.evaluator.metrics:
            raise Failed(f"--metrics: {name!r} is not counted here", USAGE)
        if name.startswith(EVENT_PREFIX) and all(name not in {f.name, f.key} for f in events):
            available_names = ", ".join(counters) or "none (choose them with -e)"
            raise Failed(f"--metrics: no event {name!r} here; counted: {available_names}", USAGE)
    return (*measures, *_named_fields(events, names))


# --- the base classes of export formats

EpisodeCounts = dict[str, dict[str, int]]


class Output(Protocol):
    def write(self, data: bytes | bytearray, /) -> object: ...


class ExportFormat(Protocol):
    """An export format. Each method writes its argument, at the latest with `flush`. `finish` is
    called last, even for a damaged recording; `write_summary` just before it, if there was a frame.
    Tables write only intervals."""

    @abstractmethod
    def write_interval(self, interval: Interval) -> None: ...

    def write_episode_start(self, episode: Episode) -> None: ...

    def write_episode(self, episode: Episode) -> None: ...

    def read_message(self, message: wire.Message) -> None:
        """Called for each message that the session has applied."""

    def write_summary(self, counted: EpisodeCounts) -> None: ...

    def flush(self) -> None: ...

    def finish(self) -> None: ...

    def discard(self) -> None:
        """Releases resources. Called if `finish` has failed or will not be called."""


MAX_BLOCK_CELLS = 1 << 18
"""Maximum number of cells, over several intervals, that are computed and formatted together. More
would gain little."""


class BlockFormat(ExportFormat):
    """A format of columns, which are computed together for several intervals."""

    def __init__(self, session: Session, fields: Sequence[Field]) -> None:
        self._block = RowBlock(session)
        cells = len(fields) * max(1, len(self._block.rows))
        self._max_intervals = max(1, MAX_BLOCK_CELLS // cells)

    def write_interval(self, interval: Interval) -> None:
        if self._block.intervals and self._block.cores is not interval.cores:
            self.flush()
        self._block.add(interval)
        if len(self._block.intervals) == self._max_intervals:
            self.flush()

    def flush(self) -> None:
        if self._block.intervals:
            self._write_block(self._block)
            self._block.clear()

    @abstractmethod
    def _write_block(self, block: RowBlock) -> None: ...
