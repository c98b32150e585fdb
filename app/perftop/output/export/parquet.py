"""Parquet, written by pyarrow, an optional package."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from perftop.base.errors import UNAVAILABLE, Failed
from perftop.output.export.fields import Field
from perftop.output.export.form import Form, Out
from perftop.output.export.table import ExportTable
from perftop.session.interval import Interval
from perftop.session.session import Session

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
