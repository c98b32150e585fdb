"""The interface of an export format."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Sequence
from typing import Any

from perftop.base.errors import UNAVAILABLE, Failed
from perftop.base.text import escaped
from perftop.model.episode import Episode
from perftop.model.registry import EVENT, RARE
from perftop.output import run_summary, stat_json
from perftop.output.export.conversion import Command, Counted, Form, Out
from perftop.output.export.fields import (
    BELIEF,
    ELAPSED,
    MEASURES,
    ONLINE,
    PLACES,
    TIME,
    Field,
    IntervalRows,
    Values,
)
from perftop.session.interval import Interval
from perftop.session.missing import Reasons, doubts
from perftop.session.session import Session
from perftop.session.shared_numbers import L3, PACKAGE

_KEYS = {field.key for field in MEASURES if field.kind != "count"}


class JsonLines(Form):
    """JSON lines. With all measures they equal those of `stat` byte by byte, except that `stat` has
    no marks."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._session, self._measures, self._out = session, measures, out
        self._line(stat_json.hello_line(session))

    def interval(self, interval: Interval) -> None:
        self._line(only(stat_json.interval_line(self._session, interval), self._measures))

    def beginning(self, episode: Episode) -> None:
        self._line(stat_json.beginning_line(self._session, episode))

    def episode(self, episode: Episode) -> None:
        self._line(stat_json.episode_line(self._session, episode))

    def mark(self, mark: Episode) -> None:
        at = self._session.unix(mark.start_ns)
        self._line({"type": "mark", "time": at, "label": mark.evidence["label"]})

    def summary(self, counted: Counted, elapsed_s: float, command: Command) -> None:
        run, footprint = command.line(), command.footprint
        line = run_summary.summary_line(self._session, counted, elapsed_s, run, footprint)
        self._line(only(line, self._measures))

    def _line(self, line: stat_json.Line) -> None:
        self._out.write(f"{stat_json.text(line)}\n".encode())


def only(line: stat_json.Line, measures: Sequence[Field]) -> stat_json.Line:
    """An interval or a summary with the chosen measures only."""
    if len(measures) >= len(MEASURES):
        return line
    chosen = {field.key for field in measures if field.kind != "count"}
    events = {key for row in line["cpus"] for key in row if key.startswith(EVENT) or key in RARE}
    away = (_KEYS | events) - chosen
    counts = {field.key for field in measures if field.kind == "count"}
    for part in ("machine", "job", "rest"):
        if line.get(part):
            line[part] = _without(line[part], away)
    for part in ("packages", "cpus", "cores"):
        if part in line:  # a summary tells nothing of packages
            line[part] = [_without(row, away) for row in line[part]]
    for row in line["cpus"]:
        if "counts" in row:
            row["counts"] = {key: n for key, n in row["counts"].items() if key in counts}
    if "why" in line:
        line["why"] = _without(line["why"], away)
    return line


def _without(row: stat_json.Line, keys: set[str]) -> stat_json.Line:
    """The row without these keys, and without the reasons under them."""
    found = {key: value for key, value in row.items() if key not in keys}
    return found | {"why": _without(found["why"], keys)} if "why" in found else found


class ExportTable:
    """The fields of a table with their values for each interval of a session."""

    def __init__(self, session: Session, measures: Sequence[Field]) -> None:
        self._session, self._reasons = session, Reasons(session)
        self.fields = (
            TIME, ELAPSED, *PLACES, ONLINE, *measures, *BELIEF,
            *_named(session),
            Field("suspect", "Why samples were left out.", _suspect, "suspect", "text"),
            Field("why", "Why values are not there.", lambda _: self._told(), "why", "text"),
        )  # fmt: skip

    def columns(self, interval: Interval) -> list[Sequence[object]]:
        """The columns in the order of `fields`, with one value for each CPU shown."""
        now = IntervalRows(self._session, interval)
        self._missing: list[dict[str, list[str]]] = [{} for _ in now.rows]
        return [self._column(field, now) for field in self.fields]

    def _column(self, field: Field, now: IntervalRows) -> Sequence[object]:
        values = field.values(now)
        if field.explained and None in values:
            for place, (row, value) in enumerate(zip(now.rows, values, strict=True)):
                if value is None:
                    reason = " ".join(_reason(self._reasons, field, now, row).split())
                    self._missing[place].setdefault(reason, []).append(field.name)
        return values

    def _told(self) -> list[object]:
        """Reasons for missing values by CPU, each after the names that share it. This column must
        stand behind those that fill `_missing`."""
        return [
            "; ".join(f"{','.join(names)}={reason}" for reason, names in found.items())
            for found in self._missing
        ]


def _named(session: Session) -> list[Field]:
    """Fields that name the machine and the run, so that tables of several can be put together."""
    hello = session.hello
    told = {"host": hello.host, **{f"label_{key}": text for key, text in hello.labels.items()}}
    return [Field(name, f"The {name.replace('_', ' ')}.", _always(text), name, "text")
            for name, text in told.items()]  # fmt: skip


def _always(text: str) -> Values:
    return lambda now: [text] * len(now.rows)


def _suspect(now: IntervalRows) -> list[object]:
    return ["; ".join(doubts(now.interval, row)) for row in now.rows]


CEILINGS = "turbo_ceiling"
"""Start of the keys of the three ceilings; hello gives one reason for all of them."""


def _reason(reasons: Reasons, field: Field, now: IntervalRows, row: int) -> str:
    if field.scope == "machine":
        return reasons.of_machine(field.key)
    if field.key in PACKAGE:
        return reasons.of_machine(PACKAGE[field.key])
    if field.key in L3:
        return reasons.of_l3(L3[field.key])
    if field.key in {"smt", "smt_method", "active_threads"}:
        return reasons.of_states(now.interval, row)
    key = "turbo_ceiling_hz" if field.key.startswith(CEILINGS) else field.key
    return reasons.of_cpu(key, now.interval, row, count=field.kind == "count")


ALL_THERE = "-"
"""Stands in `why` where no value is missing any more."""
_TRUTHS = {True: "true", False: "false"}


class Delimited(Form):
    """A heading, then a row for each CPU and interval. Unknown values are empty. `why` stands in
    the first row of a CPU, and again where it has changed: else it would be most of the bytes."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._out, self._table = out, ExportTable(session, measures)
        self._truths = [i for i, f in enumerate(self._table.fields) if f.kind == "truth"]
        self._texts = [i for i, f in enumerate(self._table.fields) if f.kind == "text"]
        self._why = next(i for i, f in enumerate(self._table.fields) if f.name == "why")
        self._told: list[object] = []
        self._write([[field.name for field in self._table.fields]])

    def interval(self, interval: Interval) -> None:
        columns = self._table.columns(interval)
        for i in self._truths:
            columns[i] = [_TRUTHS[bool(value)] for value in columns[i]]
        for i in self._texts:
            columns[i] = [value and escaped(str(value)) for value in columns[i]]
        whys = list(columns[self._why])
        if len(self._told) == len(whys):
            pairs = zip(whys, self._told, strict=True)
            columns[self._why] = ["" if now == old else now or ALL_THERE for now, old in pairs]
        self._told = whys
        self._write(list(zip(*columns, strict=True)))

    def _write(self, rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._out.write(text.getvalue().encode())


# --- Parquet, written by pyarrow, an optional package.

GROUP_ROWS = 1 << 16
"""Rows in a row group: enough for good compression; a group takes some tens of MB of memory."""


def pyarrow() -> Any:
    """The pyarrow module. Raises Failed if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        text = "parquet needs pyarrow: pip install pyarrow, or pipx inject perftop pyarrow"
        raise Failed(text, UNAVAILABLE) from None
    return pa


class Parquet(Form):
    """The same table as in CSV, in row groups. The file is readable only after `finish`."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._arrow = pyarrow()
        self._table = ExportTable(session, measures)
        types = {"number": "float64", "truth": "bool_", "text": "string"}
        self._schema = self._arrow.schema(
            [
                (field.name, getattr(self._arrow, types.get(field.kind, "int64"))())
                for field in self._table.fields
            ],
            metadata=_metadata(session),
        )
        self._writer = self._arrow.parquet.ParquetWriter(out, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._rows = 0

    def interval(self, interval: Interval) -> None:
        columns = zip(self._table.columns(interval), self._schema, strict=True)
        arrays = [self._arrow.array(values, field.type) for values, field in columns]
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._rows += self._batches[-1].num_rows
        if self._rows >= GROUP_ROWS:
            self._group()

    def finish(self) -> None:
        self._group()
        self._writer.close()

    def drop(self) -> None:
        self._writer.is_open = False  # else it would try to end the file, and fail

    def _group(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches, self._schema))
        self._batches, self._rows = [], 0


def _metadata(session: Session) -> dict[str, str]:
    """What was recorded, as keys of the file's schema."""
    hello = session.hello
    return {
        "host": hello.host, "start_unix_s": f"{session.unix(hello.raw_ns):.3f}",
        "model": hello.identity.name, "kernel": hello.kernel, "source": hello.source,
        "perftop": hello.perftop, "command": shlex.join(hello.command),
        "labels": json.dumps(hello.labels),
    }  # fmt: skip
