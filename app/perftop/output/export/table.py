"""Intervals as columns of equal length, for all formats that are tables; and the simplest of them,
comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from perftop.base.text import escaped
from perftop.output.export.fields import BELIEF, ELAPSED, ONLINE, PLACES, TIME, Field, Values
from perftop.output.export.form import Form, Out
from perftop.output.export.interval_rows import IntervalRows
from perftop.session.interval import Interval
from perftop.session.missing import Reasons, doubts
from perftop.session.session import Session
from perftop.session.values import L3, PACKAGE


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
