"""JSON lines, the same as those of `stat`."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from perfprobe import wire
from perftop.base.text import Line
from perftop.model.control_groups import is_pid
from perftop.model.kinds import Episode
from perftop.model.numbers import is_event_key
from perftop.model.tasks import JobFootprint, WatchedJob
from perftop.output import run_summary, stat_lines
from perftop.output.export.fields import MEASURES, EpisodeCounts, ExportFormat, Field, Output
from perftop.output.run_summary import run_time_fields
from perftop.process.command_window import RUN_COUNTS, RUN_TIMES, WindowBounds
from perftop.session.episodes import run_seconds
from perftop.session.interval import Interval
from perftop.session.session import Session


class RecordedCommand:
    """The report of `stat` on the recorded command, reconstructed from notes on its start and end.
    Notes are untrusted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        watch = session.hello.watch or ""
        self._pid = int(watch) if is_pid(watch) and len(watch) <= 10 else 0
        """PID that the probe watched from the start; 0 if none."""
        self._footprint = JobFootprint()
        self._footprint.start(self._pid)
        self._separate_job = WatchedJob("", "command")
        """The command, as a second job beside the one that the probe watched."""
        self._separate_footprint = JobFootprint()
        self._start_note: wire.Note | None = None
        self._end_note: wire.Note | None = None

    def read_message(self, message: wire.Message) -> None:
        """Processes a message that the session has applied."""
        if isinstance(message, wire.Frame):
            self._footprint.add_record(self._session.neighbours.watched_job, message.time_ns)
            job = self._separate_job
            if job.read_record(message.records, message.time_ns) and job.last_threads:
                # The first record has only the command, which has not started yet.
                if self._separate_footprint.root < 0:
                    self._separate_footprint.start(job.last_threads[0].pid)
                self._separate_footprint.add_record(job, message.time_ns)
        elif isinstance(message, wire.Note) and message.kind == "run-start":
            self._start_note = message
        elif isinstance(message, wire.Note) and message.kind == "run-end":
            self._end_note = message

    @property
    def footprint(self) -> JobFootprint | None:
        """The CPUs on which the command ran; None if the probe did not watch it."""
        pid = None if self._start_note is None else self._start_note.data.get("pid")
        if pid is not None and pid == self._pid:
            return self._footprint
        return self._separate_footprint if pid == self._separate_footprint.root else None

    def line(self) -> Line | None:
        """Returns the `run` part of the summary; None if no end of a command was recorded."""
        start, end = self._start_note, self._end_note
        if start is None or end is None:
            return None
        data = end.data
        line: Line = {key: _whole_number(data.get(key)) for key in ("pid", "status")}
        for key in RUN_TIMES:
            seconds = run_seconds(end, key)
            line[key] = seconds if isfinite(seconds) else None
        line |= {key: _whole_number(data.get(key)) for key in RUN_COUNTS}
        ranges = []
        for key in ("first_ns", "last_ns"):
            match data.get(key):
                case [int(first), int(last)] if 0 <= first <= last < wire.MAX_TIME_NS:
                    ranges.append((first, last))
        bounds = WindowBounds(*ranges) if len(ranges) == 2 else None
        line |= run_time_fields(self._session, start.time_ns, end.time_ns, bounds)
        if data.get("remote") is True:  # as in run_line
            line |= {"start": None, "end": None}
        missed_cpus = data.get("missed")
        is_valid = isinstance(missed_cpus, list) and all(type(cpu) is int for cpu in missed_cpus)
        return line | {"missed": missed_cpus if is_valid else None}


def _whole_number(value: object) -> int | None:
    return value if type(value) is int else None


_KEYS = {field.key for field in MEASURES if field.kind != "count"}


class JsonLines(ExportFormat):
    """With all measures, the lines equal the output of `stat` byte for byte, except for marks,
    which `stat` does not have."""

    def __init__(self, session: Session, measures: Sequence[Field], out: Output) -> None:
        self._session, self._measures, self._out = session, measures, out
        self._command = RecordedCommand(session)
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
        self._command.read_message(message)
        if isinstance(message, wire.Note) and message.kind == "mark":
            mark = self._session.marks[-1]
            time = self._session.unix_s(mark.start_ns)
            self._write_line({"type": "mark", "time": time, "label": mark.evidence["label"]})

    def write_summary(self, counted: EpisodeCounts, elapsed_s: float) -> None:
        run, footprint = self._command.line(), self._command.footprint
        line = run_summary.summary_line(self._session, counted, elapsed_s, run, footprint)
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
