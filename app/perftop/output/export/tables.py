"""Tables with a row for each CPU and interval, as CSV or Parquet."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import numpy as np

from perftop.base.arrays import Bools, Codes, Floats
from perftop.base.errors import UNAVAILABLE, Failed
from perftop.base.text import escaped
from perftop.model.counters import MIN_COUNTED_SHARE, Cores
from perftop.model.numbers import INDEX
from perftop.output.export.cells import (
    Cells,
    boolean_cells,
    exact_cells,
    number_cells,
    rounded_numbers,
    text_cells,
    whole_cells,
)
from perftop.output.export.fields import (
    ELAPSED,
    ONLINE,
    RELIABILITY_FIELDS,
    TIME,
    TOPOLOGY_FIELDS,
    UNKNOWN,
    BlockFormat,
    Column,
    Field,
    Output,
    RowBlock,
)
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import Reasons

NO_VALUE = np.array(None)
"""Unknown text, as an array, with which texts are compared one by one."""
MAX_REASON_TEXTS = 1 << 14
"""Maximum number of cached texts of `why`."""


class ExportTable(BlockFormat):
    """A table. Its last column, `why`, explains missing values of the others."""

    def __init__(self, session: Session, measures: Sequence[Field]) -> None:
        self._session, self._reasons = session, Reasons(session)
        # These columns identify the machine and the run, so that tables of several runs can be
        # joined.
        labels = {f"label_{key}": text for key, text in session.hello.labels.items()}
        run_labels = {"host": session.hello.host, **labels}
        self.fields = (
            TIME, ELAPSED, *TOPOLOGY_FIELDS, ONLINE, *measures, *RELIABILITY_FIELDS,
            *(_constant(name, text) for name, text in run_labels.items()),
            Field("suspect", "Why samples were left out.", RowBlock.suspects, "suspect", "text",
                  has_reasons=False),
        )  # fmt: skip
        """The fields in column order, without `why`."""
        super().__init__(session, self.fields)
        self.names = [*(field.name for field in self.fields), "why"]
        self._reason_cache: dict[tuple[int, bytes], str] = {}
        """Cached texts of `why`, by row and the state that they depend on, which rarely changes."""
        self._cores: Cores | None = None
        self._texts: list[str] = []
        """The texts of `why` in the newest interval, and the states that they depend on: of all
        CPUs, and by row."""
        self._state, self._keys = b"", np.zeros((0, 0), np.uint8)

    def reasons(self, block: RowBlock, columns: Sequence[Column]) -> list[list[str]]:
        """Returns, by interval and row, the reasons for missing values, each after the names of its
        fields. If nothing has changed, the list is the same as that of the previous interval."""
        if self._cores is not block.cores:
            self._cores, self._reason_cache, self._state = block.cores, {}, b""
        missing = np.zeros((len(block.intervals), len(self.fields), len(block.rows)), bool)
        """Mask of the missing values that have a reason."""
        for index, (field, column) in enumerate(zip(self.fields, columns, strict=True)):
            if column is UNKNOWN and field.has_reasons:
                missing[:, index] = True
            elif field.has_reasons and field.kind != "boolean":
                is_missing = column == NO_VALUE if field.kind == "text" else np.isnan(column)
                missing[:, index] = block.by_row(is_missing, field.scope)
        texts, states = [], _reason_states(block)
        for index, interval in enumerate(block.intervals):
            state = missing[index].tobytes() + states[index].tobytes()
            if state != self._state:
                self._update_texts(block, interval, missing[index], states[index])
                self._state = state
            texts.append(self._texts)
        return texts

    def _update_texts(
        self, block: RowBlock, interval: Interval, missing: Bools, states: Codes
    ) -> None:
        """Updates the texts of the rows that have changed in this interval. `missing`: mask
        (fields, rows)."""
        cores = block.cores
        padded = np.concatenate([states, np.zeros((1, states.shape[1]), np.uint8)])
        padded_rows = np.concatenate([cores.rows, np.full((1, cores.rows.shape[1]), -1)])
        siblings = padded[padded_rows[cores.core_by_cpu]].reshape(len(states), -1)
        keys = np.concatenate([missing.T, states[block.rows], siblings[block.rows]], axis=1)
        changed_rows: Sequence[int] = range(len(keys))
        if self._state:
            changed_rows = np.flatnonzero((keys != self._keys).any(axis=1)).tolist()
        if len(self._reason_cache) > MAX_REASON_TEXTS:
            self._reason_cache = {}
        self._texts = self._texts[:] if self._state else [""] * len(keys)
        for row in changed_rows:
            key = row, keys[row].tobytes()
            text = self._reason_cache.get(key)
            if text is None:
                text = self._reason_text(interval, block.rows[row], missing[:, row])
                self._reason_cache[key] = text
            self._texts[row] = text
        self._keys = keys

    def _reason_text(self, interval: Interval, row: int, missing: Bools) -> str:
        names: dict[str, list[str]] = {}
        for index in np.flatnonzero(missing).tolist():
            field = self.fields[index]
            names.setdefault(self._missing_reason(field, interval, row), []).append(field.name)
        parts = (f"{','.join(keys)}={' '.join(reason.split())}" for reason, keys in names.items())
        return "; ".join(parts)

    def _missing_reason(self, field: Field, interval: Interval, row: int) -> str:
        if field.scope in {"machine", "package"}:
            return self._reasons.machine_reason(field.key.removeprefix("package_"))
        if field.scope == "l3":
            return self._reasons.l3_reason(field.key.removeprefix("l3_"))
        if field.key in {"smt", "smt_method", "active_threads"}:
            return self._reasons.states_reason(interval, row)
        # the hello message has one reason for all three ceilings
        key = "turbo_ceiling_hz" if field.key.startswith("turbo_ceiling") else field.key
        return self._reasons.cpu_reason(key, interval, row, count=field.kind == "count")


def _constant(name: str, text: str) -> Field:
    description, column = f"The {name.replace('_', ' ')}.", np.array([[text]], object)
    return Field(name, description, lambda _: column, name, "text", has_reasons=False)


def _reason_states(block: RowBlock) -> Codes:
    """Returns the states of each CPU and its core that explain missing values, (intervals, CPUs,
    states)."""
    util, first = block.array("values.metrics")[:, INDEX["util"]], block.intervals[0]
    parts = [block.array("online"), util == 0, np.isnan(util)]
    shares = [] if first.counted_share is None else [block.array("counted_share")]
    for key in first.event_counted_shares:
        shares += [np.array([i.event_counted_shares[key] for i in block.intervals])]
    for share in shares:
        parts += [share < MIN_COUNTED_SHARE, share == 0, np.isnan(share)]
    codes = np.append(block.array("split.method_codes"), [[0]] * len(util), axis=1)
    parts.append(codes[:, block.cores.core_by_cpu])
    states = np.stack(parts, axis=2).astype(np.uint8)
    return np.concatenate([states, block.array("doubts")], axis=2)


NOTHING_MISSING = "-"
"""Value of `why` in the first row of a CPU in which no value is missing any longer."""
_CELL_FORMATTERS: dict[str, Callable[[Floats], Cells]] = {
    "number": number_cells, "exact": exact_cells, "whole": whole_cells, "count": whole_cells,
    "total": whole_cells, "boolean": boolean_cells,
}  # fmt: skip


class CsvTable(ExportTable):
    """A header line, then a row for each CPU and interval. Unknown values are empty. To keep the
    file small, `why` is only in a CPU's first row and where it has changed."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        super().__init__(session, measures)
        self._out, self._last_reasons = out, list[str]()
        """The values of `why` in the previous interval."""
        self._columns: list[Column] = [np.zeros((0, 0))] * len(self.fields)
        """The columns of the previous block."""
        self._uniform_values: list[object] = [None] * len(self.fields)
        """The value that each column had in all rows of the previous block, as an integer or text;
        None for a column with different values."""
        self._widths = [1] * len(self.fields)
        """Number of bytes of each column's widest cell so far."""
        self._lines = _empty_lines((self._max_intervals, len(session.selected)), self._widths)
        """(intervals, rows): lines without `why`. The cells of columns that are equal in all
        intervals are in the lines of all intervals."""
        out.write(f"{','.join(map(_cell, self.names))}\n".encode())

    def _write_block(self, block: RowBlock) -> None:
        columns = [field.values(block) for field in self.fields]
        new_cells = self._new_cells(block, columns)
        widths = {index: cells.itemsize for index, cells in new_cells.items()}
        if any(width > self._widths[index] for index, width in widths.items()):
            old_lines = self._lines
            self._widths = [max(w, widths.get(i, 0)) for i, w in enumerate(self._widths)]
            self._lines = _empty_lines(old_lines.shape, self._widths)
            for name in old_lines.dtype.names or ():
                self._lines[name] = old_lines[name]
        for index, cells in new_cells.items():
            part = self._lines if len(cells) == 1 else self._lines[: len(block.intervals)]
            part[f"{index}"] = cells
        lines, width = self._lines[: len(block.intervals)].tobytes(), self._lines.itemsize
        begin = 0
        for index, texts in enumerate(self.reasons(block, columns)):
            old_texts, self._last_reasons = self._last_reasons, texts
            for row, text in enumerate(texts) if texts is not old_texts else ():
                if text != (old_texts[row] if old_texts else ""):
                    end = (index * len(texts) + row + 1) * width - 1
                    cell = _cell(text or NOTHING_MISSING)
                    self._out.write(lines[begin:end].translate(None, b"\0") + cell.encode())
                    begin = end
        self._out.write(lines[begin:].translate(None, b"\0"))

    def finish(self) -> None:
        self.flush()

    def _new_cells(self, block: RowBlock, columns: list[Column]) -> dict[int, Cells]:
        """Returns the cells of the columns whose cells are not in all lines yet, by field. They are
        arrays (intervals, rows), in which an axis may have length 1."""
        cells: dict[int, Cells] = {}
        numbers: dict[Callable[[Floats], Cells], dict[int, Column]] = {}
        for index, (field, column) in enumerate(zip(self.fields, columns, strict=True)):
            if column is self._columns[index]:
                continue
            values = column.view(np.int64) if column.dtype == float else column
            first, old_value = values[0, 0], self._uniform_values[index]
            is_uniform = first == values[-1, -1] and (values == first).all()
            value = ("" if first is None else first) if is_uniform else None
            self._uniform_values[index] = value
            if is_uniform and value == old_value:
                continue
            distinct = column[:1, :1] if is_uniform else column
            if field.kind == "text":
                texts = [_cell(text) if text else "" for text in distinct.ravel().tolist()]
                cells[index] = text_cells(texts).reshape(distinct.shape)
            else:
                numbers.setdefault(_CELL_FORMATTERS[field.kind], {})[index] = distinct
        self._columns = columns
        for cells_of_kind, columns_of_kind in numbers.items():
            cells |= _format_columns(cells_of_kind, columns_of_kind)
        return {i: block.by_row(column, self.fields[i].scope) for i, column in cells.items()}


def _empty_lines(shape: tuple[int, ...], widths: Sequence[int]) -> np.ndarray[Any, Any]:
    """Returns lines with empty cells of these widths, each after its index as field name."""
    starts = [0, *accumulate(width + 1 for width in widths)]
    names, formats = [f"{i}" for i in range(len(widths))], [f"S{width}" for width in widths]
    layout: Any = {"names": names, "formats": formats, "offsets": starts[:-1],
                   "itemsize": starts[-1] + 1}  # fmt: skip
    text = bytearray(starts[-1]) + b"\n"
    for start in starts[1:]:
        text[start - 1] = ord(",")
    return np.frombuffer(text * math.prod(shape), np.dtype(layout)).reshape(shape)


def _format_columns(
    cells_of_kind: Callable[[Floats], Cells], columns: Mapping[int, Column]
) -> dict[int, Cells]:
    """Returns the cells of columns of one kind, which are formatted together."""
    values = np.concatenate([column.ravel() for column in columns.values()])
    cells = cells_of_kind(values)
    size = cells.itemsize
    starts = [0, *accumulate(column.size for column in columns.values())]
    words = cells.view(np.uint64).reshape(len(values), -1)
    is_used = np.bitwise_or.reduceat(words, starts[:-1]).view(np.uint8) != 0
    # Only the used bytes of a column's cells are written, because narrow cells are written faster.
    begins = is_used.argmax(axis=1)
    ends = np.where(is_used.any(axis=1), size - is_used[:, ::-1].argmax(axis=1), 1)
    spans = zip(columns.items(), starts, begins.tolist(), ends.tolist(), strict=False)
    return {
        index: np.ndarray(
            column.shape, f"S{end - begin}", cells, start * size + begin,
            (column.shape[1] * size, size),
        )
        for (index, column), start, begin, end in spans
    }  # fmt: skip


@lru_cache(maxsize=1 << 12)
def _cell(text: str) -> str:
    """Returns a text as a cell of a line."""
    cell = escaped(text)
    return cell if _PLAIN(cell) else '"' + cell.replace('"', '""') + '"'


_PLAIN = re.compile(r'[^,"\r\n]*').fullmatch


_WHOLE_KINDS = {"whole", "count", "total"}
MIN_GROUP_ROWS = 1 << 14
"""Minimum number of rows in a row group. Four times as many would take 60 MB more, for a file that
is 5 to 12 % smaller."""


def pyarrow() -> Any:
    """Returns the module pyarrow, an optional dependency. Raises Failed if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        text = "parquet needs pyarrow: pip install pyarrow, or pipx inject perftop pyarrow"
        raise Failed(text, UNAVAILABLE) from None
    return pa


class Parquet(ExportTable):
    """Writes the table of `CsvTable` in row groups; the file is readable only after `finish`."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        self._arrow, hello = pyarrow(), session.hello
        super().__init__(session, measures)
        types = {"number": "float64", "exact": "float64", "boolean": "bool_", "text": "string"}
        metadata = {
            "host": hello.host, "start_unix_s": f"{session.unix_s(hello.raw_ns):.3f}",
            "model": hello.identity.name, "kernel": hello.kernel, "source": hello.source,
            "perftop": hello.perftop, "command": shlex.join(hello.command),
            "labels": json.dumps(hello.labels),
        }  # fmt: skip
        names = [types.get(field.kind, "int64") for field in self.fields] + ["string"]
        columns = zip(self.names, names, strict=True)
        fields = [(column, getattr(self._arrow, name)()) for column, name in columns]
        self._schema = self._arrow.schema(fields, metadata=metadata)
        self._writer = self._arrow.parquet.ParquetWriter(out, self._schema, compression="zstd")
        self._batches: list[Any] = []
        self._rows = 0

    def _write_block(self, block: RowBlock) -> None:
        columns = [field.values(block) for field in self.fields]
        shape = len(block.intervals), len(block.rows)
        arrays = []
        for field, column, name in zip(self.fields, columns, self.names, strict=False):
            rounded = rounded_numbers(column) if field.kind == "number" else column
            values = np.broadcast_to(block.by_row(rounded, field.scope), shape).ravel()
            target = self._schema.field(name).type
            if field.kind == "text":
                arrays.append(self._arrow.array(values.tolist(), target))
            elif field.kind in _WHOLE_KINDS:
                missing = np.isnan(values)
                whole_values = np.where(missing, 0, values).astype(np.int64)
                arrays.append(self._arrow.array(whole_values, target, mask=missing))
            else:
                is_nan_missing = field.kind != "boolean"
                arrays.append(self._arrow.array(values, target, from_pandas=is_nan_missing))
        arrays.append(self._arrow.array(chain(*self.reasons(block, columns))))
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._rows += self._batches[-1].num_rows
        if self._rows >= MIN_GROUP_ROWS:
            self._write_group()

    def finish(self) -> None:
        self.flush()
        self._write_group()
        self._writer.close()

    def discard(self) -> None:
        self._writer.is_open = False  # otherwise the writer would try to finish the file and fail

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches, self._schema))
        self._batches, self._rows = [], 0
