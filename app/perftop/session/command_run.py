"""The command that perftop ran during a stream."""

from __future__ import annotations

from collections.abc import Mapping

from perfprobe import wire
from perftop.model.tasks import JobFootprint, WatchedJob
from perftop.session.episodes import run_seconds


class CommandRun:
    """A command, as described by the notes on its start and end, which are untrusted."""

    def __init__(self) -> None:
        self.start: wire.Note | None = None
        self.end: wire.Note | None = None
        self._job = WatchedJob("", "command")
        """The command, in streams whose watched job is another one."""
        self._footprint = JobFootprint()

    def apply_note(self, note: wire.Note) -> None:
        if note.kind == "run-start":
            self.start, self.end = note, None
        elif note.kind == "run-end":
            self.end = note

    def read_record(self, records: Mapping[str, object], time_ns: int) -> None:
        job = self._job
        if job.read_record(records, time_ns) and job.last_threads:
            # The first record has only the command's process, which has not started it yet.
            if self._footprint.root < 0:
                self._footprint.start(job.last_threads[0].pid)
            self._footprint.add_record(job, time_ns)

    @property
    def pid(self) -> int | None:
        pid = None if self.start is None else self.start.data.get("pid")
        return pid if type(pid) is int and pid > 0 else None

    @property
    def argv(self) -> list[str]:
        argv = None if self.start is None else self.start.data.get("argv")
        return [*map(str, argv)] if isinstance(argv, list) else []

    @property
    def cpu_s(self) -> float:
        """CPU time in s of the command, once it has ended; NaN where unknown."""
        if self.end is None or self.end.data.get("pid") != self.pid:
            return float("nan")
        return run_seconds(self.end, "user_s") + run_seconds(self.end, "sys_s")

    @property
    def footprint(self) -> JobFootprint | None:
        """The times of the command, if the probe recorded it beside its watched job."""
        return self._footprint if self.pid == self._footprint.root else None
