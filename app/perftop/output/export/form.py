"""The interface of an export format, and the recorded command as an export reports it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.model.tasks import WatchedJob
from perftop.output.run_summary import run_times
from perftop.output.stat_json import Line
from perftop.process.command_window import Bounds
from perftop.process.job import RESOURCE_KEYS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.task_times import JobFootprint

EpisodeCounts = dict[str, dict[str, int]]
"""Number of episodes by kind and cause."""


class Out(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Form(Protocol):
    """An export format. Each method writes its argument immediately. `finish` is the last call,
    also for a damaged recording. `summary` is called just before `finish` if there was a frame.
    Tables write intervals only."""

    @abstractmethod
    def interval(self, interval: Interval) -> None: ...

    def beginning(self, episode: Episode) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def mark(self, mark: Episode) -> None:
        """Write a mark, which is a time that the user labelled."""

    def summary(self, counted: EpisodeCounts, elapsed_s: float, command: Command) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None:
        """Release the resources of the format, because `finish` will not be called or has
        failed."""


# --- the recorded command


class Command:
    """Reconstructs what `stat` would have reported about the recorded command, from the notes on
    its start and its end. The notes are untrusted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        watch = session.hello.watch or ""
        self._pid = int(watch) if watch.isdecimal() and len(watch) <= 10 else 0
        """PID that the probe watched from the start; 0 if it watched none."""
        self._footprint = JobFootprint(self._pid)
        self._job_apart = WatchedJob("", "command")
        """The command, used if the probe watched another job."""
        self._seen_apart: JobFootprint | None = None
        self._start_note: wire.Note | None = None
        self._end_note: wire.Note | None = None

    def take(self, message: wire.Message) -> None:
        """Process a message that the session has applied."""
        if isinstance(message, wire.Frame):
            self._footprint.take(self._session.neighbours.watched_job, message.time_ns)
            if (
                self._job_apart.take(message.records, message.time_ns)
                and self._job_apart.last_threads
            ):
                # The first record contains only the command, which is still waiting for its start.
                footprint = self._seen_apart or JobFootprint(self._job_apart.last_threads[0].pid)
                footprint.take(self._job_apart, message.time_ns)
                self._seen_apart = footprint
        elif isinstance(message, wire.Note) and message.kind == "run-start":
            self._start_note = message
        elif isinstance(message, wire.Note) and message.kind == "run-end":
            self._end_note = message

    @property
    def footprint(self) -> JobFootprint | None:
        """The CPUs on which the command ran; None if the probe did not watch the command."""
        pid = None if self._start_note is None else self._start_note.data.get("pid")
        if pid is not None and pid == self._pid:
            return self._footprint
        apart = self._seen_apart
        return apart if apart is not None and pid == apart.root else None

    def line(self) -> Line | None:
        """Returns the `run` part of the summary; None without a command, or if its end was not
        recorded."""
        start, end = self._start_note, self._end_note
        if start is None or end is None:
            return None
        data = end.data
        line: Line = {key: _whole_number(data.get(key)) for key in ("pid", "status")}
        for key in ("wall_s", "late_s", "user_s", "sys_s"):
            value = data.get(key)
            line[key] = value if type(value) is float and 0 <= value < 1e12 else None
        line |= {key: _whole_number(data.get(key)) for key in RESOURCE_KEYS}
        ranges = []
        for key in ("first_ns", "last_ns"):
            match data.get(key):
                case [int(first), int(last)] if 0 <= first <= last < wire.LATEST_NS:
                    ranges.append((first, last))
        bounds = Bounds(*ranges) if len(ranges) == 2 else None
        line |= run_times(self._session, start.time_ns, end.time_ns, bounds)
        missed_cpus = data.get("missed")
        is_valid = isinstance(missed_cpus, list) and all(type(cpu) is int for cpu in missed_cpus)
        return line | {"missed": missed_cpus if is_valid else None}


def _whole_number(value: object) -> int | None:
    return value if type(value) is int else None
