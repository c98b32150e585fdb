"""Export formats except OpenMetrics: JSON lines, and tables as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
import shlex
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from perfprobe import wire
from perftop.base.errors import UNAVAILABLE, Failed
from perftop.base.text import escaped
from perftop.model.kinds import Episode
from perftop.model.numbers import EVENT, RARE_METRICS
from perftop.model.tasks import WatchedJob
from perftop.output import run_summary, stat_json
from perftop.output.export.fields import (
    BELIEF,
    ELAPSED,
    MEASURES,
    ONLINE,
    PLACES,
    TIME,
    Field,
    IntervalRows,
)
from perftop.output.run_summary import run_times
from perftop.output.stat_json import Line
from perftop.process.command_window import Bounds
from perftop.process.job import RESOURCE_KEYS
from perftop.session.interval import Interval
from perftop.session.missing import Reasons, doubt_texts
from perftop.session.session import Session
from perftop.session.task_times import JobFootprint

EpisodeCounts = dict[str, dict[str, int]]
"""Number of episodes by kind and cause."""


class Out(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Form(Protocol):
    """An export format. Each method writes its argument immediately. `finish` is the last call,
    also for a damaged recording. `summary` is called just before `finish` if there was a frame.
    Tables write intervals only."""

    @abstractmethod
    def interval(self, interval: Interval) -> None: ...

    def beginning(self, episode: Episode) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def mark(self, mark: Episode) -> None:
        """Write a mark, which is a time that the user labelled."""

    def summary(self, counted: EpisodeCounts, elapsed_s: float, command: Command) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None:
        """Release the resources of the format, because `finish` will not be called or has
        failed."""


# --- the recorded command


class Command:
    """Reconstructs what `stat` would have reported about the recorded command, from the notes on
    its start and its end. The notes are untrusted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        watch = session.hello.watch or ""
        self._pid = int(watch) if watch.isdecimal() and len(watch) <= 10 else 0
        """PID that the probe watched from the start; 0 if it watched none."""
        self._footprint = JobFootprint(self._pid)
        self._job_apart = WatchedJob("", "command")
        """The command, used if the probe watched another job."""
        self._seen_apart: JobFootprint | None = None
        self._start_note: wire.Note | None = None
        self._end_note: wire.Note | None = None

    def take(self, message: wire.Message) -> None:
        """Process a message that the session has applied."""
        if isinstance(message, wire.Frame):
            self._footprint.take(self._session.neighbours.watched_job, message.time_ns)
            if (
                self._job_apart.take(message.records, message.time_ns)
                and self._job_apart.last_threads
            ):
                # The first record contains only the command, which is still waiting for its start.
                footprint = self._seen_apart or JobFootprint(self._job_apart.last_threads[0].pid)
                footprint.take(self._job_apart, message.time_ns)
                self._seen_apart = footprint
        elif isinstance(message, wire.Note) and message.kind == "run-start":
            self._start_note = message
        elif isinstance(message, wire.Note) and message.kind == "run-end":
            self._end_note = message

    @property
    def footprint(self) -> JobFootprint | None:
        """The CPUs on which the command ran; None if the probe did not watch the command."""
        pid = None if self._start_note is None else self._start_note.data.get("pid")
        if pid is not None and pid == self._pid:
            return self._footprint
        apart = self._seen_apart
        return apart if apart is not None and pid == apart.root else None

    def line(self) -> Line | None:
        """Returns the `run` part of the summary; None without a command, or if its end was not
        recorded."""
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
        bounds = Bounds(*ranges) if len(ranges) == 2 else None
        line |= run_times(self._session, start.time_ns, end.time_ns, bounds)
        missed_cpus = data.get("missed")
        is_valid = isinstance(missed_cpus, list) and all(type(cpu) is int for cpu in missed_cpus)
        return line | {"missed": missed_cpus if is_valid else None}


def _whole_number(value: object) -> int | None:
    return value if type(value) is int else None


# --- JSON lines

_KEYS = {field.key for field in MEASURES if field.kind != "count"}


class JsonLines(Form):
    """JSON lines. With all measures, the lines equal the output of `stat` byte by byte, except that
    `stat` has no marks."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._session, self._measures, self._out = session, measures, out
        self._line(stat_json.hello_line(session))

    def interval(self, interval: Interval) -> None:
        self._line(only_measures(stat_json.interval_line(self._session, interval), self._measures))

    def beginning(self, episode: Episode) -> None:
        self._line(stat_json.beginning_line(self._session, episode))

    def episode(self, episode: Episode) -> None:
        self._line(stat_json.episode_line(self._session, episode))

    def mark(self, mark: Episode) -> None:
        time = self._session.unix(mark.start_ns)
        self._line({"type": "mark", "time": time, "label": mark.evidence["label"]})

    def summary(self, counted: EpisodeCounts, elapsed_s: float, command: Command) -> None:
        run, footprint = command.line(), command.footprint
        line = run_summary.summary_line(self._session, counted, elapsed_s, run, footprint)
        self._line(only_measures(line, self._measures))

    def _line(self, line: stat_json.Line) -> None:
        self._out.write(f"{stat_json.text(line)}\n".encode())


def only_measures(line: stat_json.Line, measures: Sequence[Field]) -> stat_json.Line:
    """Returns the line of an interval or summary, reduced to the chosen measures."""
    if len(measures) >= len(MEASURES):
        return line
    chosen_keys = {field.key for field in measures if field.kind != "count"}
    events = {
        key for row in line["cpus"] for key in row if key.startswith(EVENT) or key in RARE_METRICS
    }
    left_out = (_KEYS | events) - chosen_keys
    counts = {field.key for field in measures if field.kind == "count"}
    for part in ("machine", "job", "rest"):
        if line.get(part):
            line[part] = _without(line[part], left_out)
    for part in ("packages", "cpus", "cores"):
        if part in line:  # a summary has no packages
            line[part] = [_without(row, left_out) for row in line[part]]
    for row in line["cpus"]:
        if "counts" in row:
            row["counts"] = {key: n for key, n in row["counts"].items() if key in counts}
    if "why" in line:
        line["why"] = _without(line["why"], left_out)
    return line


def _without(row: stat_json.Line, keys: set[str]) -> stat_json.Line:
    """The row without these keys, and without the reasons under them."""
    kept_fields = {key: value for key, value in row.items() if key not in keys}
    return (
        kept_fields | {"why": _without(kept_fields["why"], keys)}
        if "why" in kept_fields
        else kept_fields
    )


# --- tables


class ExportTable:
    """The fields of a table with their values for each interval of a session."""

    def __init__(self, session: Session, measures: Sequence[Field]) -> None:
        self._session, self._reasons = session, Reasons(session)
        # Columns that identify the machine and the run, so that tables of several runs can be
        # joined.
        labels = {f"label_{key}": text for key, text in session.hello.labels.items()}
        named = {"host": session.hello.host, **labels}
        self.fields = (
            TIME, ELAPSED, *PLACES, ONLINE, *measures, *BELIEF,
            *(_constant(name, text) for name, text in named.items()),
            Field("suspect", "Why samples were left out.",
                  lambda now: [
                      "; ".join(doubt_texts(now.interval, row)) if doubted else ""
                      for row, doubted in zip(now.rows, now.doubted(), strict=True)
                  ],
                  "suspect", "text"),
            Field("why", "Why values are not there.", lambda _: self._whys(), "why", "text"),
        )  # fmt: skip
        """The fields in the order of the columns. `why` is last, because the other fields fill
        `_missing`."""

    def columns(self, interval: Interval) -> list[Sequence[object]]:
        """Returns the columns in the order of `fields`, with one value for each CPU shown."""
        rows = IntervalRows(self._session, interval)
        self._missing: list[dict[str, list[str]]] = [{} for _ in rows.rows]
        """For each row, the names of the fields without a value, by reason."""
        columns = []
        for field in self.fields:
            values = field.values(rows)
            if field.explained and None in values:
                is_shared = field.scope in {"machine", "package", "l3"}
                shared_reason = self._reason(field, rows, rows.rows[0]) if is_shared else ""
                for place, (row, value) in enumerate(zip(rows.rows, values, strict=True)):
                    if value is None:
                        reason = shared_reason or self._reason(field, rows, row)
                        self._missing[place].setdefault(reason, []).append(field.name)
            columns.append(values)
        return columns

    def _whys(self) -> list[object]:
        """Returns the reasons for missing values by CPU, each after the names of the fields that it
        applies to."""
        texts: dict[str, str] = {}
        for reason in {reason for missing_of_row in self._missing for reason in missing_of_row}:
            texts[reason] = " ".join(reason.split())
        return [
            "; ".join(
                [f"{','.join(names)}={texts[reason]}" for reason, names in missing_of_row.items()]
            )
            for missing_of_row in self._missing
        ]

    def _reason(self, field: Field, rows: IntervalRows, row: int) -> str:
        """Returns why a value is missing; for numbers that CPUs share, of any row."""
        if field.scope in {"machine", "package"}:
            return self._reasons.of_machine(field.key.removeprefix("package_"))
        if field.scope == "l3":
            return self._reasons.of_l3(field.key.removeprefix("l3_"))
        if field.key in {"smt", "smt_method", "active_threads"}:
            return self._reasons.of_states(rows.interval, row)
        # hello has one reason for all three ceilings
        key = "turbo_ceiling_hz" if field.key.startswith("turbo_ceiling") else field.key
        return self._reasons.of_cpu(key, rows.interval, row, count=field.kind == "count")


def _constant(name: str, text: str) -> Field:
    description = f"The {name.replace('_', ' ')}."
    return Field(name, description, lambda rows: [text] * len(rows.rows), name, "text")


ALL_THERE = "-"
"""Value of `why` in the first row of a CPU in which no value is missing any more."""


class Delimited(Form):
    """A header line, then a row for each CPU and interval. Unknown values are empty. `why` is only
    in the first row of a CPU and in rows where it has changed; otherwise it would dominate the size
    of the file."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._out, self._table = out, ExportTable(session, measures)
        self._whys: list[object] = []
        """The values of `why` in the previous interval."""
        self._write([[field.name for field in self._table.fields]])

    def interval(self, interval: Interval) -> None:
        columns = self._table.columns(interval)
        for i, field in enumerate(self._table.fields):
            if field.kind == "truth":
                columns[i] = ["true" if value else "false" for value in columns[i]]
            elif field.kind == "text":
                columns[i] = [value and escaped(str(value)) for value in columns[i]]
        whys = list(columns[-1])
        if len(self._whys) == len(whys):
            pairs = zip(whys, self._whys, strict=True)
            columns[-1] = [
                "" if new_value == previous_value else new_value or ALL_THERE
                for new_value, previous_value in pairs
            ]
        self._whys = whys
        self._write(list(zip(*columns, strict=True)))

    def _write(self, rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._out.write(text.getvalue().encode())


MIN_GROUP_ROWS = 1 << 16
"""Minimum rows in a row group: enough for good compression. A group takes some tens of MB of
memory."""


def pyarrow() -> Any:
    """Returns the module pyarrow, an optional dependency. Raises Failed if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        text = "parquet needs pyarrow: pip install pyarrow, or pipx inject perftop pyarrow"
        raise Failed(text, UNAVAILABLE) from None
    return pa


class Parquet(Form):
    """The same table as `Delimited`, written in row groups. The file is readable only after
    `finish`."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._arrow, hello = pyarrow(), session.hello
        self._table = ExportTable(session, measures)
        types = {"number": "float64", "truth": "bool_", "text": "string"}
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

    def interval(self, interval: Interval) -> None:
        columns = zip(self._table.columns(interval), self._schema, strict=True)
        arrays = [self._arrow.array(values, field.type) for values, field in columns]
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._rows += self._batches[-1].num_rows
        if self._rows >= MIN_GROUP_ROWS:
            self._group()

    def finish(self) -> None:
        self._group()
        self._writer.close()

    def drop(self) -> None:
        self._writer.is_open = False  # otherwise the writer would try to finish the file and fail

    def _group(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches, self._schema))
        self._batches, self._rows = [], 0
