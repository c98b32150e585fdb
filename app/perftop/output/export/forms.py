"""Export formats: JSON lines, and tables as CSV or Parquet. OpenMetrics has its own file."""

from __future__ import annotations

import json
import re
import shlex
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from operator import gt
from typing import Any, Protocol, cast

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats
from perftop.base.errors import UNAVAILABLE, Failed
from perftop.base.text import escaped
from perftop.model.counters import MIN_COUNTED_SHARE
from perftop.model.kinds import Episode
from perftop.model.numbers import is_event_key
from perftop.model.tasks import WatchedJob
from perftop.output import run_summary, stat_lines
from perftop.output.export.fields import (
    ELAPSED,
    MEASURES,
    ONLINE,
    RELIABILITY_FIELDS,
    TIME,
    TOPOLOGY_FIELDS,
    UNKNOWN,
    ColumnValues,
    Field,
    IntervalRows,
    boolean_cells,
    exact_cells,
    number_cells,
    rounded_numbers,
    text_cells,
    whole_cells,
)
from perftop.output.run_summary import run_time_fields
from perftop.output.stat_lines import Line
from perftop.process.command_window import WindowBounds
from perftop.process.job import RESOURCE_KEYS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.task_times import JobFootprint
from perftop.session.values import Reasons, doubt_texts

EpisodeCounts = dict[str, dict[str, int]]


class Output(Protocol):
    def write(self, data: bytes | bytearray, /) -> object: ...


class ExportFormat(Protocol):
    """An export format. Each method writes its argument, at the latest with `flush`. `finish` is
    called last, even for a damaged recording; `write_summary` just before it, if there was a frame.
    Tables write only intervals."""

    @abstractmethod
    def write_interval(self, interval: Interval) -> None: ...

    def write_beginning(self, episode: Episode) -> None: ...

    def write_episode(self, episode: Episode) -> None: ...

    def write_mark(self, mark: Episode) -> None:
        """Writes a mark, which is a time that the user labelled."""

    def write_summary(
        self, counted: EpisodeCounts, elapsed_s: float, command: RecordedCommand
    ) -> None: ...

    def flush(self) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None:
        """Releases resources. Called if `finish` has failed or will not be called."""


# --- the recorded command


class RecordedCommand:
    """The report of `stat` on the recorded command, reconstructed from notes on its start and end.
    Notes are untrusted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        watch = session.hello.watch or ""
        self._pid = int(watch) if watch.isdecimal() and len(watch) <= 10 else 0
        """PID that the probe watched from the start; 0 if none."""
        self._footprint = JobFootprint(self._pid)
        self._separate_job = WatchedJob("", "command")
        """The command, as a second job beside the one that the probe watched."""
        self._separate_footprint: JobFootprint | None = None
        self._start_note: wire.Note | None = None
        self._end_note: wire.Note | None = None

    def on_message(self, message: wire.Message) -> None:
        """Processes a message that the session has applied."""
        if isinstance(message, wire.Frame):
            self._footprint.add_record(self._session.neighbours.watched_job, message.time_ns)
            job = self._separate_job
            if job.read_record(message.records, message.time_ns) and job.last_threads:
                # The first record has only the command, which is not started yet.
                footprint = self._separate_footprint or JobFootprint(job.last_threads[0].pid)
                footprint.add_record(job, message.time_ns)
                self._separate_footprint = footprint
        elif isinstance(message, wire.Note) and message.kind == "run-start":
            self._start_note = message
        elif isinstance(message, wire.Note) and message.kind == "run-end":
            self._end_note = message

    @property
    def footprint(self) -> JobFootprint | None:
        """The CPUs on which the command ran; None if the probe did not watch it."""
        pid = None if self._start_note is None else self._start_note.data.get("pid")
        if pid is not None and pid == self._pid:
            return self._footprint
        footprint = self._separate_footprint
        return footprint if footprint is not None and pid == footprint.root else None

    def line(self) -> Line | None:
        """Returns the `run` part of the summary; None if no end of a command was recorded."""
        start, end = self._start_note, self._end_note
        if start is None or end is None:
            return None
        data = end.data
        line: Line = {key: _whole_number(data.get(key)) for key in ("pid", "status")}
        for key in ("wall_s", "late_s", "user_s", "sys_s"):
            value = data.get(key)
            line[key] = value if type(value) is float and 0 <= value < 1e12 else None
        line |= {key: _whole_number(data.get(key)) for key in RESOURCE_KEYS}
        ranges = []
        for key in ("first_ns", "last_ns"):
            match data.get(key):
                case [int(first), int(last)] if 0 <= first <= last < wire.LATEST_NS:
                    ranges.append((first, last))
        bounds = WindowBounds(*ranges) if len(ranges) == 2 else None
        line |= run_time_fields(self._session, start.time_ns, end.time_ns, bounds)
        missed_cpus = data.get("missed")
        is_valid = isinstance(missed_cpus, list) and all(type(cpu) is int for cpu in missed_cpus)
        return line | {"missed": missed_cpus if is_valid else None}


def _whole_number(value: object) -> int | None:
    return value if type(value) is int else None


# --- JSON lines

_KEYS = {field.key for field in MEASURES if field.kind != "count"}


class JsonLines(ExportFormat):
    """With all measures, the lines equal the output of `stat` byte for byte, except for marks,
    which `stat` does not have."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        self._session, self._measures, self._out = session, measures, out
        self._write_line(stat_lines.hello_line(session))

    def write_interval(self, interval: Interval) -> None:
        self._write_line(
            only_measures(stat_lines.interval_line(self._session, interval), self._measures)
        )

    def write_beginning(self, episode: Episode) -> None:
        self._write_line(stat_lines.beginning_line(self._session, episode))

    def write_episode(self, episode: Episode) -> None:
        self._write_line(stat_lines.episode_line(self._session, episode))

    def write_mark(self, mark: Episode) -> None:
        time = self._session.unix(mark.start_ns)
        self._write_line({"type": "mark", "time": time, "label": mark.evidence["label"]})

    def write_summary(
        self, counted: EpisodeCounts, elapsed_s: float, command: RecordedCommand
    ) -> None:
        run, footprint = command.line(), command.footprint
        line = run_summary.summary_line(self._session, counted, elapsed_s, run, footprint)
        self._write_line(only_measures(line, self._measures))

    def _write_line(self, line: stat_lines.Line) -> None:
        self._out.write(f"{stat_lines.line_text(line)}\n".encode())


def only_measures(line: stat_lines.Line, measures: Sequence[Field]) -> stat_lines.Line:
    """Returns the line of an interval or summary with only the chosen measures."""
    if len(measures) >= len(MEASURES):
        return line
    chosen_keys = {field.key for field in measures if field.kind != "count"}
    events = {key for row in line["cpus"] for key in row if is_event_key(key)}
    left_out = (_KEYS | events) - chosen_keys
    counts = {field.key for field in measures if field.kind == "count"}
    for part in ("machine", "job", "rest"):
        if line.get(part):
            line[part] = _without_keys(line[part], left_out)
    for part in ("packages", "cpus", "cores"):
        if part in line:  # a summary has no packages
            line[part] = [_without_keys(row, left_out) for row in line[part]]
    for row in line["cpus"]:
        if "counts" in row:
            row["counts"] = {key: n for key, n in row["counts"].items() if key in counts}
    if "why" in line:
        line["why"] = _without_keys(line["why"], left_out)
    return line


def _without_keys(row: stat_lines.Line, keys: set[str]) -> stat_lines.Line:
    row = {key: value for key, value in row.items() if key not in keys}
    return row | {"why": _without_keys(row["why"], keys)} if "why" in row else row


# --- tables: CSV and Parquet


MAX_REASON_TEXTS = 1 << 14
"""Maximum number of cached texts of `why`."""


class ExportTable:
    """The columns of a table, and their values in each interval of a session."""

    def __init__(self, session: Session, measures: Sequence[Field]) -> None:
        self._session, self._reasons = session, Reasons(session)
        self._rows = IntervalRows(session)
        # These columns identify the machine and the run, so that tables of several runs can be
        # joined.
        labels = {f"label_{key}": text for key, text in session.hello.labels.items()}
        named = {"host": session.hello.host, **labels}
        self.fields = (
            TIME, ELAPSED, *TOPOLOGY_FIELDS, ONLINE, *measures, *RELIABILITY_FIELDS,
            *(_constant(name, text) for name, text in named.items()),
            Field("suspect", "Why samples were left out.", self._suspects, "suspect", "text",
                  has_reasons=False),
            Field("why", "Why values are missing.", self._missing_reasons, "why", "text",
                  has_reasons=False),
        )  # fmt: skip
        """The fields in column order. `why` is last and explains the others."""
        self._columns: list[ColumnValues] = []
        self._reason_cache: dict[tuple[int, bytes], str] = {}
        """Cached texts of `why`, by row and the state that they depend on, which rarely changes."""
        self._texts: list[str] = []
        """The texts of `why` in the previous interval, and the states that they depend on: of all
        CPUs, and by row."""
        self._state, self._keys = b"", np.zeros((0, 0), np.uint8)
        self._cores: object = None

    @property
    def rows(self) -> list[int]:
        """Indices in hello of the exported CPUs."""
        return self._rows.rows

    def columns(self, interval: Interval) -> list[ColumnValues]:
        """Returns the columns in the order of `fields`, for the CPUs shown."""
        rows = self._rows.set_interval(interval)
        if self._cores is not self._session.reader.cores:
            self._cores, self._reason_cache, self._state = self._session.reader.cores, {}, b""
        self._columns = []
        for field in self.fields:
            self._columns.append(field.values(rows))
        return self._columns

    def _suspects(self, rows: IntervalRows) -> Sequence[str]:
        if not np.count_nonzero(rows.interval.doubts):  # the usual case
            return [""]
        return [
            "; ".join(doubt_texts(rows.interval, row)) if doubted else ""
            for row, doubted in zip(rows.rows, rows.is_doubted(), strict=True)
        ]

    def _missing_reasons(self, rows: IntervalRows) -> Sequence[str]:
        """Returns by CPU the reasons for missing values, each after the names of its fields. If
        nothing has changed, returns the same list."""
        missing, states = self._is_missing(rows), _reason_states(self._session, rows.interval)
        state = missing.tobytes() + states.tobytes()
        if state == self._state:  # the usual case
            return self._texts
        states = self._with_siblings(states)[rows.rows]
        keys = np.concatenate([missing.T, states], axis=1)
        changed_rows: Sequence[int] = range(len(keys))
        if self._state and keys.shape == self._keys.shape:
            changed_rows = np.flatnonzero((keys != self._keys).any(axis=1)).tolist()
        if len(self._reason_cache) > MAX_REASON_TEXTS:
            self._reason_cache = {}
        self._texts, kept = self._texts[:] if self._state else [""] * len(keys), self._reason_cache
        for row in changed_rows:
            key = row, keys[row].tobytes()
            why = kept.get(key)
            if why is None:
                why = kept[key] = self._reason_text(rows, rows.rows[row], missing[:, row])
            self._texts[row] = why
        self._state, self._keys = state, keys
        return self._texts

    def _with_siblings(self, states: Codes) -> Codes:
        """Returns for each CPU its state and those of its core's CPUs."""
        cores = self._session.reader.cores
        padded = np.concatenate([states, np.zeros((1, states.shape[1]), np.uint8)])
        padded_rows = np.concatenate([cores.rows, np.full((1, cores.rows.shape[1]), -1)])
        siblings = padded_rows[cores.core_by_cpu]
        return np.concatenate([states, padded[siblings].reshape(len(states), -1)], axis=1)

    def _is_missing(self, rows: IntervalRows) -> Bools:
        """Returns a mask (fields, rows) of the missing values in fields with `has_reasons`."""
        missing = np.zeros((len(self.fields), len(rows.rows)), bool)
        of_rows = []
        for index, (field, column) in enumerate(zip(self.fields, self._columns, strict=False)):
            if not field.has_reasons or field.kind == "boolean":
                continue
            if not isinstance(column, np.ndarray):
                missing[index] = [text is None for text in column] if None in column else False
            elif len(column) == 1:
                missing[index] = column is UNKNOWN or column[0] != column[0]
            else:
                of_rows.append(index)
        if of_rows:
            missing[of_rows] = np.isnan(np.array([self._columns[index] for index in of_rows]))
        return missing

    def _reason_text(self, rows: IntervalRows, row: int, missing: Bools) -> str:
        names: dict[str, list[str]] = {}
        for index in np.flatnonzero(missing).tolist():
            field = self.fields[index]
            names.setdefault(self._reason(field, rows, row), []).append(field.name)
        parts = (f"{','.join(keys)}={' '.join(reason.split())}" for reason, keys in names.items())
        return "; ".join(parts)

    def _reason(self, field: Field, rows: IntervalRows, row: int) -> str:
        if field.scope in {"machine", "package"}:
            return self._reasons.machine_reason(field.key.removeprefix("package_"))
        if field.scope == "l3":
            return self._reasons.l3_reason(field.key.removeprefix("l3_"))
        if field.key in {"smt", "smt_method", "active_threads"}:
            return self._reasons.states_reason(rows.interval, row)
        # hello has one reason for all three ceilings
        key = "turbo_ceiling_hz" if field.key.startswith("turbo_ceiling") else field.key
        return self._reasons.cpu_reason(key, rows.interval, row, count=field.kind == "count")


def _constant(name: str, text: str) -> Field:
    description = f"The {name.replace('_', ' ')}."
    return Field(name, description, lambda _: [text], name, "text", has_reasons=False)


def _reason_states(session: Session, interval: Interval) -> Codes:
    """Returns the states of each CPU and its core that explain missing values."""
    util = interval.values["util"]
    parts = [interval.online, util == 0, np.isnan(util)]
    shares = [] if interval.counted_share is None else [interval.counted_share]
    for share in (*shares, *interval.event_counted_shares.values()):
        parts += [share < MIN_COUNTED_SHARE, share == 0, np.isnan(share)]
    how = np.append(interval.split.method_codes, 0)[session.reader.cores.core_by_cpu]
    return np.column_stack([*parts, how, interval.doubts]).astype(np.uint8)


NOTHING_MISSING = "-"
"""Value of `why` in the first row of a CPU in which no value is missing any longer."""
_CELLS_OF_KIND: dict[str, Callable[[Floats], Codes]] = {
    "number": number_cells, "exact": exact_cells, "whole": whole_cells, "count": whole_cells,
    "total": whole_cells, "boolean": boolean_cells,
}  # fmt: skip


MAX_WAITING_CELLS = 1 << 16
"""Maximum number of cells, over several intervals, that are formatted together. More do not fit
into the caches of a CPU."""


class CsvTable(ExportFormat):
    """A header line, then a row for each CPU and interval. Unknown values are empty. To keep the
    file small, `why` is only in a CPU's first row and where it has changed."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        self._out, self._table = out, ExportTable(session, measures)
        self._texts: Sequence[str] = ()
        """The values of `why` in the previous interval."""
        # without `why`, which is written separately: it is long and mostly empty
        fields = self._table.fields[:-1]
        self._rows = len(session.selected)
        self._max_waiting = max(1, MAX_WAITING_CELLS // max(1, self._rows * len(fields)))
        self._waiting: list[tuple[list[ColumnValues], Sequence[str]]] = []
        """For each interval that is not written yet: its columns, and the changed reasons."""
        self._contents: list[list[bytes | Sequence[str | None]]] = [[] for _ in fields]
        """The contents of each column in the intervals written last; numbers are bytes."""
        self._cells = [np.zeros((1, 1, 0), np.uint8)] * len(fields)
        """The cells of each column in the intervals written last, (intervals, rows, bytes). The
        first or the second axis has length 1 if all its values are equal."""
        self._places = [(0, -1)] * len(fields)
        """Start and end of each column's cells in a line, without the comma."""
        self._lines = np.zeros((0, self._rows, 0), np.uint8)
        """(intervals, rows, bytes): the lines, as wide as the widest cells so far."""
        names = (field.name for field in self._table.fields)
        out.write(f"{','.join(map(_cell, names))}\n".encode())

    def write_interval(self, interval: Interval) -> None:
        *columns, reasons = self._table.columns(interval)
        self._waiting.append((columns, self._changed_reasons(cast("Sequence[str]", reasons))))
        if len(self._waiting) >= self._max_waiting:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # Numbers of one kind are formatted together.
        new_numbers: dict[Callable[[Floats], Codes], dict[int, Floats]] = {}
        new_columns: dict[int, tuple[int, int, int]] = {}
        orders: dict[int, list[int]] = {}
        """By changed field: for each interval, the index of its column among the different ones."""
        for index, field in enumerate(self._table.fields[:-1]):
            columns = [columns_of_interval[index] for columns_of_interval, _ in waiting]
            by_id = {id(column): column for column in columns}  # many columns stay the same object
            distinct = [*by_id.values()]
            contents = [c.tobytes() if isinstance(c, np.ndarray) else c for c in distinct]
            if contents.count(contents[0]) == len(contents):
                del distinct[1:], contents[1:]
            elif len(by_id) < len(waiting):
                ids = [*by_id]
                orders[index] = [ids.index(id(column)) for column in columns]
            if contents == self._contents[index] and len(contents) == 1:
                continue
            self._contents[index] = contents
            size = max(map(len, distinct))
            new_columns[index] = len(distinct), size, -1
            if isinstance(distinct[0], np.ndarray):
                parts: list[Any] = [np.asarray(c).repeat(size // len(c)) for c in distinct]
                values: Floats = np.concatenate(parts).astype(float, copy=False)
                cells_of_kind = _CELLS_OF_KIND[field.kind]
                new_numbers.setdefault(cells_of_kind, {})[index] = values
            else:
                texts = (text for c in distinct for text in [*c] * (size // len(c)))
                cells = text_cells(_cell(text) if text else "" for text in texts)
                self._cells[index] = cells.reshape(new_columns[index])
        for cells_of_kind, numbers in new_numbers.items():
            words = cells_of_kind(np.concatenate([*numbers.values()])).view(np.uint32)
            starts = [0, *accumulate(map(len, numbers.values()))]
            has_digits = np.bitwise_or.reduceat(words, starts[:-1]) != 0
            spans = zip(numbers, pairwise(starts), has_digits, strict=True)
            for index, (first, last), used in spans:
                places = np.flatnonzero(used)  # narrow cells are written faster
                begin, end = (places[0], places[-1] + 1) if len(places) else (0, 0)
                cells = words[first:last, begin:end].view(np.uint8)
                self._cells[index] = cells.reshape(new_columns[index])
        for index, order in orders.items():
            self._cells[index] = self._cells[index][order]
        self._place_cells(len(waiting), new_columns)
        lines, width = self._lines.tobytes(), self._lines.shape[2]
        reasons = chain(*(changed or [""] * self._rows for _, changed in waiting))
        begin = 0
        for row, why in enumerate(reasons, 1):
            if why:
                end = row * width - 1
                line = lines[begin:end].translate(None, b"\0")
                self._out.write(line + _cell(why).encode())
                begin = end
        self._out.write(lines[begin:].translate(None, b"\0"))

    def finish(self) -> None:
        self.flush()

    def _place_cells(self, intervals: int, new_columns: Iterable[int]) -> None:
        """Puts the cells of these columns into the lines. All columns get new places if a cell is
        wider than any before in its column, or if the number of intervals has changed."""
        widths = [cells.shape[2] for cells in self._cells]
        rooms = [end - start for start, end in self._places]
        is_new = len(self._lines) != intervals or any(map(gt, widths, rooms))
        if is_new:
            widths = [*map(max, widths, rooms)]
            ends = [*accumulate(width + 1 for width in widths)]
            self._places = [(e - 1 - width, e - 1) for e, width in zip(ends, widths, strict=True)]
            self._lines = np.zeros((intervals, self._rows, ends[-1] + 1), np.uint8)
            self._lines[..., [end for _, end in self._places]] = ord(",")
            self._lines[..., -1] = ord("\n")
            new_columns = range(len(ends))
        for index in new_columns:
            cells, (start, end) = self._cells[index], self._places[index]
            self._lines[..., start : start + cells.shape[2]] = cells
            self._lines[..., start + cells.shape[2] : end] = 0

    def _changed_reasons(self, reasons: Sequence[str]) -> Sequence[str]:
        """Returns the values of `why`, with '' for those that equal the previous interval's."""
        before, self._texts = self._texts, reasons
        if reasons is before:
            return ()
        if len(before) != len(reasons):
            return reasons
        pairs = zip(reasons, before, strict=True)
        return ["" if why == why_before else why or NOTHING_MISSING for why, why_before in pairs]


@lru_cache(maxsize=1 << 12)
def _cell(text: str) -> str:
    """Returns a text as a cell of a line."""
    cell = escaped(text)
    return cell if _PLAIN(cell) else '"' + cell.replace('"', '""') + '"'


_PLAIN = re.compile(r'[^,"\r\n]*').fullmatch


_WHOLE_KINDS = {"whole", "count", "total"}
MIN_GROUP_ROWS = 1 << 16
"""Minimum number of rows in a row group, for good compression. It takes some tens of MB."""


def pyarrow() -> Any:
    """Returns the module pyarrow, an optional dependency. Raises Failed if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        text = "parquet needs pyarrow: pip install pyarrow, or pipx inject perftop pyarrow"
        raise Failed(text, UNAVAILABLE) from None
    return pa


class Parquet(ExportFormat):
    """Writes the table of `CsvTable` in row groups; the file is readable only after `finish`."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        self._arrow, hello = pyarrow(), session.hello
        self._table = ExportTable(session, measures)
        types = {"number": "float64", "exact": "float64", "boolean": "bool_", "text": "string"}
        metadata = {
            "host": hello.host, "start_unix_s": f"{session.unix(hello.raw_ns):.3f}",
            "model": hello.identity.name, "kernel": hello.kernel, "source": hello.source,
            "perftop": hello.perftop, "command": shlex.join(hello.command),
            "labels": json.dumps(hello.labels),
        }  # fmt: skip
        fields = [(field.name, getattr(self._arrow, types.get(field.kind, "int64"))())
                  for field in self._table.fields]  # fmt: skip
        self._schema = self._arrow.schema(fields, metadata=metadata)
        self._writer = self._arrow.parquet.ParquetWriter(out, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._rows = 0

    def write_interval(self, interval: Interval) -> None:
        columns = self._table.columns(interval)
        arrays = [*map(self._array, self._table.fields, columns, self._schema)]
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._rows += self._batches[-1].num_rows
        if self._rows >= MIN_GROUP_ROWS:
            self._write_group()

    def _array(self, field: Field, column: ColumnValues, target: Any) -> Any:
        count = len(self._table.rows)
        if not isinstance(column, np.ndarray):
            texts = [*column] * (1 if len(column) == count else count)
            return self._arrow.array(texts, target.type)
        numbers = rounded_numbers(column.astype(float)) if field.kind == "number" else column
        values = np.broadcast_to(numbers, count)
        if field.kind in _WHOLE_KINDS:
            missing = np.isnan(values)
            whole_values = np.where(missing, 0, values).astype(np.int64)
            return self._arrow.array(whole_values, target.type, mask=missing)
        return self._arrow.array(values, target.type, from_pandas=field.kind != "boolean")

    def finish(self) -> None:
        self._write_group()
        self._writer.close()

    def drop(self) -> None:
        self._writer.is_open = False  # otherwise the writer would try to finish the file and fail

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches, self._schema))
        self._batches, self._rows = [], 0
