"""OpenMetrics text with times, for later import into Prometheus.

The format needs all samples of a series together, but intervals hold one sample of every series. So
intervals are kept in a temporary file and read back series by series.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.base.errors import Failed
from perftop.base.text import ranges
from perftop.model.numbers import EVENT
from perftop.output.export.fields import BELIEF, ELAPSED, ONLINE, Field, IntervalRows
from perftop.output.export.form import Form, Out
from perftop.output.exposition import END, Heading, labels
from perftop.session.interval import Interval
from perftop.session.session import Session

READ_BYTES = 16 << 20
"""Bytes of the temporary file that are read at once."""
_UNITS = {"_hz": "hertz", "_per_s": "per_second", "_s": "seconds", "_w": "watts", "_c": "celsius",
          "_ratio": "ratio"}  # fmt: skip
"""Ends of names of fields, and what a family's name has in their place. The first that fits."""


class OpenMetrics(Form):
    """OpenMetrics text with gauges, and with counters that start at 0 with the recording."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._session, self._out = session, out
        told = [field for field in measures if field.kind != "text"]
        told.sort(key=_family)  # all samples of a family stand together
        self._fields = [ELAPSED, ONLINE, *told, *BELIEF]
        self._counts = np.zeros((len(self._fields), len(session.shown)))
        self._waiting = tempfile.TemporaryFile()  # noqa: SIM115 - it ends with the object
        self._times: list[float] = []

    def interval(self, interval: Interval) -> None:
        now = IntervalRows(self._session, interval)
        values = np.array([field.values(now) for field in self._fields], float)
        again = np.ones(len(now.rows), bool)
        again[np.unique(now.cores, return_index=True)[1]] = False
        for i, field in enumerate(self._fields):
            if field.scope == "core":
                values[i, again] = np.nan
            elif field.scope in {"package", "l3"}:
                values[i, ~self._first(field.scope)] = np.nan
            elif field.kind == "count":
                self._counts[i] += np.nan_to_num(values[i])
                values[i] = np.where(np.isnan(values[i]), np.nan, self._counts[i])
        self._times.append(interval.time)
        try:
            self._waiting.write(values.tobytes())
            self._waiting.flush()
        except OSError as error:
            raise Failed(
                f"cannot keep what has to wait in {tempfile.gettempdir()}: "
                f"{error.strerror or error}; TMPDIR names another place"
            ) from None

    def finish(self) -> None:
        self._info()
        cpus = [labels(**_of_cpu(self._session, row)) for row in self._session.shown]
        machine = labels(host=self._session.hello.host)
        places = {"machine": [machine], "cpu": cpus, "core": self._core_labels()}
        places |= {scope: self._shared_labels(scope) for scope in ("package", "l3")}
        with self._waiting:
            for i, field in enumerate(self._fields):
                self._family(i, field, places[field.scope])
        self._text(END)

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            self._waiting.close()

    def _family(self, i: int, field: Field, places: list[str]) -> None:
        heading = _heading(field)
        if i == 0 or _heading(self._fields[i - 1]) != heading:
            self._text(heading.openmetrics)
        if field.key.startswith(EVENT):
            event = labels(event=_event(field))[1:]
            places = [place[:-1] + "," + event for place in places]
        for place, series in zip(places, self._series(i, len(places)), strict=bool(self._times)):
            self._samples(f"{heading.sample}{place}", series)

    def _series(self, i: int, count: int) -> Iterator[Floats]:
        """The series of a field, one CPU, core or machine after the other; each holds all times."""
        if not self._times:
            return
        shape = (len(self._times), *self._counts.shape)
        table = np.memmap(self._waiting, np.float64, "r", shape=shape)
        step = max(1, READ_BYTES // (8 * len(self._times)))
        for first in range(0, count, step):
            yield from np.array(table[:, i, first : min(first + step, count)]).T

    def _samples(self, name: str, series: Floats) -> None:
        told = zip(self._times, series.tolist(), strict=True)
        self._text("".join(f"{name} {v:.15g} {t:.6f}\n" for t, v in told if math.isfinite(v)))

    def _info(self) -> None:
        hello = self._session.hello
        told = labels(
            version=hello.perftop, host=hello.host, source=hello.source,
            model=hello.identity.name, kernel=hello.kernel,
            start=f"{self._session.unix(hello.raw_ns):.3f}", command=shlex.join(hello.command),
            **{f"label_{name}": value for name, value in hello.labels.items()},
        )  # fmt: skip
        heading = Heading("perftop", "info", "What was recorded, and by what.")
        self._text(heading.openmetrics)
        self._samples(f"{heading.sample}{told}", np.ones(len(self._times)))

    def _shared_labels(self, scope: str) -> list[str]:
        """Labels of each row's package or L3, which is written in the row of its first CPU."""
        host = self._session.hello.host
        rows = [self._session.topology[row] for row in self._session.shown]
        return [labels(host=host, **{scope: str(getattr(row, scope))}) for row in rows]

    def _first(self, scope: str) -> Bools:
        """Which rows are the first of their package or L3."""
        rows = [getattr(self._session.topology[row], scope) for row in self._session.shown]
        return np.array([rows.index(each) == at for at, each in enumerate(rows)], bool)

    def _core_labels(self) -> list[str]:
        """Labels of each row's core. A core is written in the row of its first CPU. The label
        `cpus` tells apart cores to which the kernel gives the same number, or none."""
        session, found = self._session, []
        cores = session.reader.cores
        held = cores.of_cpu[session.shown].tolist()
        for place, (core, row) in enumerate(zip(held, session.shown, strict=True)):
            known = core >= 0 and held.index(core) == place
            cpus = cores.lists[core] if known else [session.topology[row].cpu]
            of_core = {key: text for key, text in _of_cpu(session, row).items() if key != "cpu"}
            found.append(labels(**of_core, cpus=ranges(cpus)))
        return found

    def _text(self, text: str) -> None:
        self._out.write(text.encode())


def _of_cpu(session: Session, row: int) -> dict[str, object]:
    place = session.topology[row]
    host = session.hello.host
    found = {"host": host, "cpu": place.cpu, "core": place.core, "package": place.package}
    return {key: value for key, value in found.items() if value is not None}


_EVENTS = {
    "_count": Heading("perftop_event", "counter", "Chosen events, of samples that are believed."),
    "_hz": Heading("perftop_event_hertz", "gauge", "Chosen events per second."),
    "_per_ki": Heading("perftop_event_per_thousand_instructions", "gauge",
                       "Chosen events per thousand instructions."),
    "_counted_ratio": Heading("perftop_event_counted_ratio", "gauge",
                              "Share of the time for which a chosen event was counted."),
}  # fmt: skip
"""Families of chosen events, by the end of the field's name; the event is a label."""


def _end(field: Field) -> str:
    return next(end for end in _EVENTS if field.name.endswith(end))


def _event(field: Field) -> str:
    return field.name.removeprefix(EVENT).removesuffix(_end(field))


def _family(field: Field) -> str:
    """Puts fields of a family beside each other, those of no event first."""
    return _end(field) if field.key.startswith(EVENT) else ""


def _heading(field: Field) -> Heading:
    if field.key.startswith(EVENT):
        return _EVENTS[_end(field)]
    name = f"perftop_{field.name}".removesuffix("_count").removesuffix("_total")
    for suffix, unit in _UNITS.items():
        if name.endswith(suffix):
            name = f"{name.removesuffix(suffix)}_{unit}"
            break
    kind: Literal["counter", "gauge"] = "counter" if field.kind in {"count", "total"} else "gauge"
    return Heading(name, kind, field.help)
