"""The interface of an export format, and how a recording is cut into what a format writes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.model.tasks import WatchedJob
from perftop.output.run_summary import run_times
from perftop.output.stat_json import Line
from perftop.process.command_window import Bounds
from perftop.process.job import COUNTED
from perftop.session.episodes import Beginnings, Tally
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.task_times import JobFootprint

Counted = dict[str, dict[str, int]]
"""Number of episodes by kind and cause."""


class Out(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Form(Protocol):
    """A format writes as it is called. `finish` is called last, also for a damaged recording;
    `summary` is called just before it if there was a frame. Tables write intervals only."""

    @abstractmethod
    def interval(self, interval: Interval) -> None: ...

    def beginning(self, episode: Episode) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def mark(self, mark: Episode) -> None:
        """Write a mark: a moment that the user named."""

    def summary(self, counted: Counted, elapsed_s: float, command: Command) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None:
        """Release what the format holds, because `finish` will not be called or has failed."""


class Conversion:
    """Cuts intervals where `stat` would have cut them; keeps only the running one."""

    def __init__(
        self, session: Session, form: Form, every_ns: int, cpus: list[int] | None = None
    ) -> None:
        """`cpus`: only episodes on these CPUs, or on none, are exported; None: all are."""
        self._session, self._form = session, form
        self._every_ns, self._slack_ns = every_ns, session.hello.sample_ns // 2
        self._cpus = None if cpus is None else frozenset(cpus)
        self._tally, self._command = Tally(), Command(session)
        self._first_ns: int | None = None
        self._cursor, self._beginnings = 0, Beginnings()

    def take(self, messages: Sequence[wire.Message]) -> bool:
        """Take messages; return whether they ended an interval."""
        ended = [self._took(message) for message in self._session.play(messages)]
        return any(ended)

    def _took(self, message: wire.Message) -> bool:
        session = self._session
        self._command.take(message)
        news, self._cursor = session.episodes_since(self._cursor)
        for episode in news:
            self._episode(episode)
        for episode in self._beginnings.of(session.running):
            if self._chosen(episode):
                self._form.beginning(episode)
        if isinstance(message, wire.Note) and message.kind == "mark":
            self._form.mark(session.marks[-1])
        if not isinstance(message, wire.Frame):
            return False
        if self._first_ns is None:
            self._first_ns = message.time_ns
        # An interval may end half a sample early: a frame just before the boundary belongs to it.
        whole = session.span_ns >= self._every_ns - self._slack_ns
        if whole:
            self._form.interval(session.take())
        return whole

    def finish(self) -> None:
        """Write the rest of the last interval, the running episodes, the summary and the end."""
        session = self._session
        if self._first_ns is not None:
            if session.span_ns > self._slack_ns:
                self._form.interval(session.take())
            for episode in session.running:
                self._episode(episode)
            elapsed_s = (session.now_ns - self._first_ns) / 1e9
            self._form.summary(self._tally.counted, elapsed_s, self._command)
        self._form.finish()

    def _chosen(self, episode: Episode) -> bool:
        cpus = self._cpus
        return cpus is None or not episode.cpus or not cpus.isdisjoint(episode.cpus)

    def _episode(self, episode: Episode) -> None:
        if self._chosen(episode):
            self._tally.add(episode, self._session.now_ns)
            self._form.episode(episode)


# --- the recorded command


class Command:
    """Collects from the notes of its start and its end what `stat` would have reported of the
    command. The notes are untrusted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        watch = session.hello.watch or ""
        self._pid = int(watch) if watch.isdecimal() and len(watch) <= 10 else 0
        """PID that the probe watched from the start; 0: none."""
        self._seen = JobFootprint(self._pid)
        self._apart = WatchedJob("", "command")
        """The command, where another job was watched."""
        self._seen_apart: JobFootprint | None = None
        self._start: wire.Note | None = None
        self._end: wire.Note | None = None

    def take(self, message: wire.Message) -> None:
        """Take a message that the session has applied."""
        if isinstance(message, wire.Frame):
            self._seen.take(self._session.neighbours.watched_job, message.time_ns)
            if self._apart.take(message.records, message.time_ns) and self._apart.told:
                # The first record has the command alone, waiting for its start.
                seen = self._seen_apart or JobFootprint(self._apart.told[0].pid)
                seen.take(self._apart, message.time_ns)
                self._seen_apart = seen
        elif isinstance(message, wire.Note) and message.kind == "run-start":
            self._start = message
        elif isinstance(message, wire.Note) and message.kind == "run-end":
            self._end = message

    @property
    def footprint(self) -> JobFootprint | None:
        """CPUs on which the command ran; None if the probe did not watch it."""
        pid = None if self._start is None else self._start.data.get("pid")
        if pid is not None and pid == self._pid:
            return self._seen
        apart = self._seen_apart
        return apart if apart is not None and pid == apart.root else None

    def line(self) -> Line | None:
        """The `run` part of the summary; None without a command, or if its end was not recorded."""
        start, end = self._start, self._end
        if start is None or end is None:
            return None
        data = end.data
        line: Line = {key: _whole(data.get(key)) for key in ("pid", "status")}
        for key in ("wall_s", "late_s", "user_s", "sys_s"):
            value = data.get(key)
            line[key] = value if type(value) is float and 0 <= value < 1e12 else None
        line |= {key: _whole(data.get(key)) for key in COUNTED}
        ranges = []
        for key in ("first_ns", "last_ns"):
            match data.get(key):
                case [int(first), int(last)] if 0 <= first <= last < wire.LATEST_NS:
                    ranges.append((first, last))
        bounds = Bounds(*ranges) if len(ranges) == 2 else None
        line |= run_times(self._session, start.time_ns, end.time_ns, bounds)
        missed = data.get("missed")
        valid = isinstance(missed, list) and all(type(cpu) is int for cpu in missed)
        return line | {"missed": missed if valid else None}


def _whole(value: object) -> int | None:
    return value if type(value) is int else None
