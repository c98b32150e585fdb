"""JSON lines, the same as those of `stat`."""

from __future__ import annotations

from collections.abc import Sequence

from perfprobe import wire
from perftop.base.text import Line
from perftop.model.kinds import Episode
from perftop.model.numbers import is_event_key
from perftop.output import run_summary, stat_lines
from perftop.output.export.fields import MEASURES, EpisodeCounts, ExportFormat, Field, Output
from perftop.session.interval import Interval
from perftop.session.session import Session

_KEYS = {field.key for field in MEASURES if field.kind != "count"}


class JsonLines(ExportFormat):
    """With all measures, the lines equal the output of `stat` byte for byte, except for marks,
    which `stat` does not have."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        self._session, self._measures, self._out = session, measures, out
        self._write_line(stat_lines.hello_line(session))

    def write_interval(self, interval: Interval) -> None:
        self._write_line(
            select_measures(stat_lines.interval_line(self._session, interval), self._measures)
        )

    def write_episode_start(self, episode: Episode) -> None:
        self._write_line(stat_lines.episode_line(self._session, episode, is_start=True))

    def write_episode(self, episode: Episode) -> None:
        self._write_line(stat_lines.episode_line(self._session, episode))

    def read_message(self, message: wire.Message) -> None:
        if isinstance(message, wire.Note) and message.kind == "mark":
            mark = self._session.marks[-1]
            time = self._session.unix_s(mark.start_ns)
            self._write_line({"type": "mark", "time": time, "label": mark.evidence["label"]})

    def write_summary(self, counted: EpisodeCounts) -> None:
        line = run_summary.summary_line(self._session, counted)
        self._write_line(select_measures(line, self._measures))

    def _write_line(self, line: Line) -> None:
        self._out.write(f"{stat_lines.line_text(line)}\n".encode())


def select_measures(line: Line, measures: Sequence[Field]) -> Line:
    """Returns the line of an interval or summary with only the chosen measures."""
    if len(measures) >= len(MEASURES):
        return line
    chosen_keys = {field.key for field in measures if field.kind != "count"}
    events = {key for row in line["cpus"] for key in row if is_event_key(key)}
    omitted_keys = (_KEYS | events) - chosen_keys
    counts = {field.key for field in measures if field.kind == "count"}
    for part in ("machine", "job", "rest"):
        if line.get(part):
            line[part] = _without_keys(line[part], omitted_keys)
    for part in ("packages", "cpus", "cores"):
        if part in line:  # a summary has no packages
            line[part] = [_without_keys(row, omitted_keys) for row in line[part]]
    for row in line["cpus"]:
        if "counts" in row:
            row["counts"] = {key: n for key, n in row["counts"].items() if key in counts}
    if "why" in line:
        line["why"] = _without_keys(line["why"], omitted_keys)
    return line


def _without_keys(row: Line, keys: set[str]) -> Line:
    row = {key: value for key, value in row.items() if key not in keys}
    return row | {"why": _without_keys(row["why"], keys)} if "why" in row else row
