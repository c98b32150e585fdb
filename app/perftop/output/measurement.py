"""The measurement of a session and its summary. It covers the time from the first frame to the end
of the command, if there is a command."""

from __future__ import annotations

import time
from math import isnan

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.model.tasks import WatchedJob
from perftop.output import run_summary, stat_text
from perftop.output.stat_json import Line, number
from perftop.process.command_window import CommandStart, CommandWindow, is_here
from perftop.process.job import Job
from perftop.session.episodes import Tally
from perftop.session.session import Session
from perftop.session.task_times import JobFootprint


class Measurement:
    """Decides which messages belong to the measurement. The caller owns the session and applies the
    messages to it."""

    def __init__(
        self, job: Job | None = None, start: CommandStart | None = None, rest_s: float = 0.0
    ) -> None:
        """`start`: start of the job, if several machines are measured around it. `rest_s`: seconds
        without waiting for a sample while the command runs."""
        self.bracket = None if job is None else CommandWindow(job, start, rest_s)
        self.tally = Tally()
        self.first_ns: int | None = None
        """Raw time of the first frame."""
        self._is_here = False
        """Whether the measured machine is the one that perftop runs on."""
        self._cpu_s = 0.0
        """User and system CPU time, in s, that the perftop process had used by the first frame."""
        self._footprint = None if job is None else JobFootprint(job.pid)
        self._command = WatchedJob(None if job is None else str(job.pid), "command")
        """The command, used if the session watches another job."""

    def begin(self, hello: wire.Hello) -> None:
        self._is_here = hello.source.startswith("sim") or is_here(hello)
        if self.bracket is not None:
            self.bracket.begin(hello)

    def admit(self, message: wire.Message) -> bool:
        """Processes a message before the session applies it. Returns False if the caller must skip
        the message, because it would only lengthen the measurement."""
        if isinstance(message, wire.Hello):
            self.begin(message)
        if isinstance(message, wire.Frame):
            if self.bracket is not None and not self.bracket.admit(message):
                return False
            if self.first_ns is None:
                self.first_ns, self._cpu_s = message.time_ns, time.process_time()
        return True

    def follow(self, session: Session, frame: wire.Frame) -> bool:
        """Processes a frame after the session has applied it. Returns True once the command has
        ended and all CPUs have been read since."""
        if self.bracket is None or self._footprint is None:
            return False
        watched_job = session.neighbours.watched_job
        if watched_job.name != self._command.name:
            watched_job = self._command
            watched_job.take(frame.records, frame.time_ns)
        self._footprint.take(watched_job, frame.time_ns)
        return self.bracket.take(frame)

    def line(self, session: Session) -> Line:
        """Returns the summary of the measurement, with the episodes counted in `tally`."""
        assert self.first_ns is not None
        elapsed_s = (session.now_ns - self.first_ns) / 1e9
        run = None if self.bracket is None else run_summary.run_line(session, self.bracket)
        line = run_summary.summary_line(
            session, self.tally.counts_by_cause, elapsed_s, run, self._footprint
        )
        own_s = session.probe_cpu_s() + time.process_time() - self._cpu_s
        if self._is_here and not isnan(own_s):
            line["own_cpu_s"] = number(own_s)
        return line


class CommandMeasurement(Measurement):
    """The measurement of a command in a session that continues after the command."""

    bracket: CommandWindow

    def __init__(self, job: Job, start: CommandStart | None = None, rest_s: float = 0.0) -> None:
        super().__init__(job, start, rest_s)
        self.job = job
        self.summary: list[str] = []
        """Lines of the summary; empty until the run has been measured completely."""
        self._first: dict[str, Episode] = {}
        """The first episode of each kind."""
        self._cursor = 0

    @property
    def running(self) -> bool:
        """Whether the command was started and has not ended."""
        return self.job.start_ns > 0 and self.bracket.run is None

    def take(self, session: Session, message: wire.Message) -> None:
        """Processes a message that the session has applied."""
        if self.summary or not isinstance(message, wire.Frame):
            return
        new_episodes, self._cursor = session.log.since(self._cursor)
        for episode in new_episodes:
            self._count(episode, session.now_ns)
        if self.follow(session, message):
            self.finish(session)

    def finish(self, session: Session) -> None:
        """Builds the summary at the end of the measurement. It does nothing if there is no complete
        run or the summary exists."""
        if self.summary or self.first_ns is None or self.bracket.run is None:
            return
        for episode in session.running:
            self._count(episode, session.now_ns)
        line, counted = self.line(session), self.tally.counts_by_cause
        # For a kind with several episodes, `ending` prints the worst one.
        only = [
            stat_text.episode(session, episode) for kind, episode in self._first.items()
            if sum(counted[kind].values()) == 1
        ]  # fmt: skip
        ending = stat_text.ending_lines(session, self.tally, line, self.job.argv)
        self.summary = [*stat_text.heading(session), *only, *ending]

    def _count(self, episode: Episode, now_ns: int) -> None:
        self._first.setdefault(episode.kind, episode)
        self.tally.add(episode, now_ns)
