"""The recorded command, from the notes of its start and its end."""

from __future__ import annotations

from perfprobe import wire
from perftop.model.job_threads import Watching
from perftop.output.run_summary import run_times
from perftop.output.stat_json import Line
from perftop.process.command_window import Bounds
from perftop.process.job import RESOURCE_KEYS
from perftop.session.job_cpus import Footprint
from perftop.session.session import Session

_USED = ("wall_s", "late_s", "user_s", "sys_s")


class Command:
    """Collects what `stat` would have reported of the command. The notes are untrusted."""

    def __init__(self, session: Session) -> None:
        self._session = session
        watch = session.hello.watch or ""
        self._pid = int(watch) if watch.isdecimal() and len(watch) <= 10 else 0
        """PID that the probe was told to watch from the start; 0: none."""
        self._seen = Footprint(self._pid)
        self._apart = Watching("", "command")
        """The command, where another job was watched."""
        self._seen_apart: Footprint | None = None
        self._start: wire.Note | None = None
        self._end: wire.Note | None = None

    def take(self, message: wire.Message) -> None:
        """Take a message that the session has applied."""
        if isinstance(message, wire.Frame):
            self._seen.take(self._session.neighbours.watching, message.time_ns)
            if self._apart.take(message.records, message.time_ns) and self._apart.told:
                # The first look finds the command alone, waiting for its start.
                seen = self._seen_apart or Footprint(self._apart.told[0].pid)
                seen.take(self._apart, message.time_ns)
                self._seen_apart = seen
        elif isinstance(message, wire.Note) and message.kind == "run-start":
            self._start = message
        elif isinstance(message, wire.Note) and message.kind == "run-end":
            self._end = message

    @property
    def footprint(self) -> Footprint | None:
        """CPUs on which the command ran; None if the probe did not look at it."""
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
        line: Line = {key: _whole(end.data.get(key)) for key in ("pid", "status")}
        line |= {key: _seconds(end.data.get(key)) for key in _USED}
        line |= {key: _whole(end.data.get(key)) for key in RESOURCE_KEYS}
        first_ns, last_ns = (_range(end.data.get(key)) for key in ("first_ns", "last_ns"))
        bounds = None if first_ns is None or last_ns is None else Bounds(first_ns, last_ns)
        line |= run_times(self._session, start.time_ns, end.time_ns, bounds)
        return line | {"missed": _cpus(end.data.get("missed"))}


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _seconds(value: object) -> float | None:
    return value if type(value) is float and 0 <= value < 1e12 else None


def _range(value: object) -> tuple[int, int] | None:
    match value:
        case [int(first), int(last)] if 0 <= first <= last < wire.LATEST_NS:
            return first, last
    return None


def _cpus(value: object) -> list[int] | None:
    if isinstance(value, list) and all(type(cpu) is int for cpu in value):
        return value
    return None
