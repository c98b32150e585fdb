"""The text format of Prometheus, for the exporter and, with timestamps, for later import."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import tempfile
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.base.errors import Failed
from perftop.base.text import escaped, ranges
from perftop.model.counters import Cores
from perftop.model.numbers import EVENT_PREFIX
from perftop.output.export.cells import rounded_numbers
from perftop.output.export.fields import (
    ELAPSED,
    ONLINE,
    RELIABILITY_FIELDS,
    BlockFormat,
    Field,
    Output,
    RowBlock,
)
from perftop.session.session import Session

# --- Names, labels and headings in that text, which is OpenMetrics or the older format.
#
# Names of metrics end with the full name of their unit. Both formats write the samples of a family
# alike, but not its heading.

UNITS = ("hertz", "seconds", "watts", "celsius", "ratio", "joules")
END_LINE = "# EOF\n"
"""Last line of an OpenMetrics page. A page in the older format has no such line."""


@dataclass(frozen=True)
class Heading:
    name: str
    """Name of the family, without the suffix of its series."""
    help: str
    kind: Literal["counter", "gauge", "info"] = "counter"

    @property
    def unit(self) -> str:
        """The unit at the end of the name; '' if the name has no unit."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else ""

    @property
    def sample(self) -> str:
        suffix = {"counter": "_total", "info": "_info"}
        return self.name + suffix.get(self.kind, "")

    @property
    def openmetrics(self) -> str:
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        kind = f"# TYPE {self.name} {self.kind}\n"
        return f"# HELP {self.name} {escape_text(self.help)}\n{kind}{unit}"

    @property
    def text(self) -> str:
        """The heading in the older format, version 0.0.4. It gives the name of the samples, and for
        an `info` family the type gauge."""
        kind = "gauge" if self.kind == "info" else self.kind
        help_ = self.help.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {self.sample} {help_}\n# TYPE {self.sample} {kind}\n"


def labels(**values: object) -> str:
    """Returns the labels of a series as text; '' if the series has no labels."""
    pairs = ",".join(f'{key}="{escape_text(str(value))}"' for key, value in values.items())
    return f"{{{pairs}}}" if pairs else ""


def escape_text(text: str) -> str:
    """Escapes text for a label value or a help line. The format has escapes for three characters
    only; other special characters are escaped in the text itself."""
    return escaped(text).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


# --- OpenMetrics text with timestamps, for later import into Prometheus.
#
# All samples of a series must be adjacent, but an interval has one sample of every series. So
# blocks of intervals are written to a temporary file, and read back series by series. The file is
# not mapped, because its mapped pages would count as memory of this process.

READ_BYTES = 4 << 20
"""Maximum bytes of the temporary file that are read at once, but at least one series."""
TEXT_SAMPLES = 1 << 14
"""Maximum number of samples that are formatted at once."""


class OpenMetrics(BlockFormat):
    """OpenMetrics text with gauges, and with counters that are 0 at the start of the recording."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        self._session, self._out = session, out
        fields = [field for field in measures if field.kind != "text"]
        # The samples of a family must be adjacent; the families of chosen events are last.
        fields.sort(key=lambda field: _suffix(field) if field.key.startswith(EVENT_PREFIX) else "")
        self._fields = [ELAPSED, ONLINE, *fields, *RELIABILITY_FIELDS]
        super().__init__(session, self._fields)
        self._counts = np.zeros((len(self._fields), len(session.selected)))
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed with the object
        self._times = array("d")
        """Unix time in s of the end of each interval."""
        self._block_sizes: list[int] = []
        """Number of intervals in each block of the file: an array (fields, rows, intervals)."""

    def _write_block(self, block: RowBlock) -> None:
        values = np.empty((len(block.intervals), *self._counts.shape))
        scopes = "core", "package", "l3"
        first = {scope: _is_first_of_owner(self._owners(block.cores, scope)) for scope in scopes}
        for i, field in enumerate(self._fields):
            column = field.values(block)
            rounded = rounded_numbers(column) if field.kind == "number" else column
            values[:, i] = block.by_row(rounded, field.scope)
            if field.scope in first:
                # only the row of its first CPU has the value of a core, package or L3
                values[:, i, ~first[field.scope]] = np.nan
            elif field.kind == "count":
                counts = self._counts[i] + np.nan_to_num(values[:, i]).cumsum(axis=0)
                self._counts[i] = counts[-1]
                values[:, i] = np.where(np.isnan(values[:, i]), np.nan, counts)
        self._times.extend(interval.time for interval in block.intervals)
        self._block_sizes.append(len(values))
        try:
            self._file.write(values.transpose(1, 2, 0).tobytes())
            self._file.flush()
        except OSError as error:
            directory, reason = tempfile.gettempdir(), error.strerror or error
            text = f"cannot write to {directory}: {reason}; set TMPDIR to another directory"
            raise Failed(text) from None

    def finish(self) -> None:
        self.flush()
        session, hello = self._session, self._session.hello
        info = labels(
            version=hello.perftop, host=hello.host, source=hello.source,
            model=hello.identity.name, kernel=hello.kernel,
            start=f"{session.unix_s(hello.raw_ns):.3f}", command=shlex.join(hello.command),
            **{f"label_{name}": value for name, value in hello.labels.items()},
        )  # fmt: skip
        heading = Heading("perftop", "Machine, command and version of the recording.", "info")
        self._write_text(heading.openmetrics)
        self._write_samples(f"{heading.sample}{info}", np.ones(len(self._times)))
        cores, core_labels = session.reader.cores, []
        owners = self._owners(cores, "core")
        first_of_core = _is_first_of_owner(owners).tolist()
        for core, row, is_first in zip(owners, session.selected, first_of_core, strict=True):
            # The label `cpus` distinguishes cores whose kernel number is equal or unknown.
            cpus = [session.topology[row].cpu]
            if is_first and core is not None and core >= 0:
                cpus = cores.lists[core]
            names = {key: text for key, text in _cpu_labels(session, row).items() if key != "cpu"}
            core_labels.append(labels(**names, cpus=ranges(cpus)))
        labels_by_scope = {
            "machine": [labels(host=hello.host)],
            "cpu": [labels(**_cpu_labels(session, row)) for row in session.selected],
            "core": core_labels,
            **{scope: [labels(host=hello.host, **{scope: owner})
                       for owner in self._owners(session.reader.cores, scope)]
               for scope in ("package", "l3")},
        }  # fmt: skip
        with self._file:
            for i, field in enumerate(self._fields):
                self._write_family(i, field, labels_by_scope[field.scope])
        self._write_text(END_LINE)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def _owners(self, cores: Cores, scope: str) -> list[int | None]:
        """Returns each row's core, package or L3."""
        if scope == "core":
            return [*cores.core_by_cpu[self._session.selected].tolist()]
        return [getattr(self._session.topology[row], scope) for row in self._session.selected]

    def _write_family(self, i: int, field: Field, row_labels: list[str]) -> None:
        heading = _heading(field)
        if i == 0 or _heading(self._fields[i - 1]) != heading:
            self._write_text(heading.openmetrics)
        if field.key.startswith(EVENT_PREFIX):
            event = field.name.removeprefix(EVENT_PREFIX).removesuffix(_suffix(field))
            row_labels = [f"{label[:-1]},{labels(event=event)[1:]}" for label in row_labels]
        if not self._times:
            return
        # The series of a field are written one after the other, each with the samples of all times.
        fields, all_rows = self._counts.shape
        step = max(1, READ_BYTES // (8 * len(self._times)))
        for first in range(0, len(row_labels), step):
            part = row_labels[first : first + step]
            blocks, start = [], 0
            for size in self._block_sizes:
                offset = 8 * (start * fields * all_rows + size * (i * all_rows + first))
                data = os.pread(self._file.fileno(), 8 * size * len(part), offset)
                blocks.append(np.frombuffer(data).reshape(len(part), size))
                start += size
            for label, series in zip(part, np.concatenate(blocks, axis=1), strict=True):
                self._write_samples(f"{heading.sample}{label}", series)

    def _write_samples(self, name: str, series: Floats) -> None:
        for first in range(0, len(series), TEXT_SAMPLES):
            part = slice(first, first + TEXT_SAMPLES)
            samples = zip(self._times[part], series[part].tolist(), strict=True)
            self._write_text(
                "".join(f"{name} {v:.15g} {t:.6f}\n" for t, v in samples if math.isfinite(v))
            )

    def _write_text(self, text: str) -> None:
        self._out.write(text.encode())


def _is_first_of_owner(owners: Sequence[object]) -> Bools:
    return np.array([owners.index(owner) == index for index, owner in enumerate(owners)], bool)


def _cpu_labels(session: Session, row: int) -> dict[str, object]:
    cpu = session.topology[row]
    host = session.hello.host
    names = {"host": host, "cpu": cpu.cpu, "core": cpu.core, "package": cpu.package}
    return {key: value for key, value in names.items() if value is not None}


# --- headings of families

_UNITS = {"_hz": "hertz", "_per_s": "per_second", "_s": "seconds", "_w": "watts", "_c": "celsius",
          "_ratio": "ratio"}  # fmt: skip
"""Suffixes of field names, and their replacement in family names. The first match is used."""
_EVENTS = {
    "_count": Heading("perftop_event", "Chosen events, without suspect samples."),
    "_hz": Heading("perftop_event_hertz", "Chosen events per second.", "gauge"),
    "_per_ki": Heading(
        "perftop_event_per_thousand_instructions",
        "Chosen events per thousand instructions.",
        "gauge",
    ),
    "_counted_ratio": Heading(
        "perftop_event_counted_ratio",
        "Share of the time in which a chosen event was counted.",
        "gauge",
    ),
}
"""Families of chosen events, by suffix of the field name; the event is a label."""


def _suffix(field: Field) -> str:
    return next(end for end in _EVENTS if field.name.endswith(end))


def _heading(field: Field) -> Heading:
    if field.key.startswith(EVENT_PREFIX):
        return _EVENTS[_suffix(field)]
    name = f"perftop_{field.name}".removesuffix("_count").removesuffix("_total")
    for suffix, unit in _UNITS.items():
        if name.endswith(suffix):
            name = f"{name.removesuffix(suffix)}_{unit}"
            break
    kind: Literal["counter", "gauge"] = "counter" if field.kind in {"count", "total"} else "gauge"
    return Heading(name, field.help, kind)
