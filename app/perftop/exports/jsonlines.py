"""The lines of `stat --json`, and of marks."""

from __future__ import annotations

from collections.abc import Sequence

from perftop import export, overall
from perftop.exports.command import Command
from perftop.exports.fields import MEASURES, Field
from perftop.exports.form import Counted, Form, Out
from perftop.samples.episode import Episode
from perftop.session.session import Interval, Session

_KEYS = {field.key for field in MEASURES if field.kind != "count"}


class JsonLines(Form):
    """With all measures a line is what `stat` prints, byte by byte. `stat` has no marks."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Out) -> None:
        self._session, self._measures, self._out = session, measures, out
        self._line(export.hello_line(session))

    def interval(self, interval: Interval) -> None:
        self._line(self._only(export.interval_line(self._session, interval)))

    def episode(self, episode: Episode) -> None:
        self._line(export.episode_line(self._session, episode))

    def mark(self, mark: Episode) -> None:
        at = self._session.unix(mark.start_ns)
        self._line({"type": "mark", "time": at, "label": mark.evidence["label"]})

    def summary(self, counted: Counted, elapsed_s: float, command: Command) -> None:
        run, footprint = command.line(), command.footprint
        line = overall.summary_line(self._session, counted, elapsed_s, run, footprint)
        self._line(self._only(line))

    def _line(self, line: export.Line) -> None:
        self._out.write(f"{export.text(line)}\n".encode())

    def _only(self, line: export.Line) -> export.Line:
        """With those measures only that were asked for."""
        if len(self._measures) == len(MEASURES):
            return line
        away = _KEYS - {field.key for field in self._measures if field.kind != "count"}
        counts = {field.key for field in self._measures if field.kind == "count"}
        for part in ("machine", "job", "rest"):
            if line.get(part):
                line[part] = _without(line[part], away)
        for part in ("cpus", "cores"):
            line[part] = [_without(row, away) for row in line[part]]
        for row in line["cpus"]:
            if "why" in row:
                row["why"] = _without(row["why"], away)
            if "counts" in row:
                row["counts"] = {key: n for key, n in row["counts"].items() if key in counts}
        return line


def _without(row: export.Line, keys: set[str]) -> export.Line:
    return {key: value for key, value in row.items() if key not in keys}
