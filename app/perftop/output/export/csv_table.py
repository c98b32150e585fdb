"""Comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from perftop.base.text import escaped
from perftop.output.export.fields import Field
from perftop.output.export.form import Form, Out
from perftop.output.export.table import ExportTable
from perftop.session.interval import Interval
from perftop.session.session import Session

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
