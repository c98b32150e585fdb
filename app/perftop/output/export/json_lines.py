"""The lines of `stat --json`, and of marks."""

from __future__ import annotations

from collections.abc import Sequence

from perftop.model.episode import Episode
from perftop.model.numbers import EVENT, RARE
from perftop.output import run_summary, stat_json
from perftop.output.export.fields import MEASURES, Field
from perftop.output.export.form import Counted, Form, Out
from perftop.output.export.recorded_command import Command
from perftop.session.interval import Interval
from perftop.session.session import Session

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
