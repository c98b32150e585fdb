"""What a session measures from its first frame on, and for whom: until its command has ended, if it
has one. And what it all adds up to."""

from __future__ import annotations

from perfprobe import wire
from perftop.output import run_summary, stat_text
from perftop.output.stat_json import Line
from perftop.process.command_window import Bracket
from perftop.process.job import Job
from perftop.samples.episode import Episode
from perftop.session.job_cpus import Footprint
from perftop.session.session import Session
from perftop.session.summary import Tally


class Measurement:
    """The session is kept, and messages applied to it, by whoever owns this."""

    def __init__(self, job: Job | None = None) -> None:
        self.bracket = None if job is None else Bracket(job)
        self.tally = Tally()
        self.first_ns: int | None = None
        """Of the first frame."""
        self._footprint = None if job is None else Footprint(job.pid)

    def early(self, message: wire.Message) -> bool:
        """Before the session has it. True: it is to be left out, for it would only lengthen what is
        measured."""
        bracket = self.bracket
        if isinstance(message, wire.Hello) and bracket is not None:
            bracket.begin(message)
        if isinstance(message, wire.Frame):
            if bracket is not None and bracket.early(message):
                return True
            if self.first_ns is None:
                self.first_ns = message.time_ns
        return False

    def over(self, session: Session, frame: wire.Frame) -> bool:
        """Whether the command has ended, and all CPUs were read since. The session has applied the
        frame."""
        if self.bracket is None or self._footprint is None:
            return False
        self._footprint.take(session.neighbours.watching, frame.time_ns)
        return self.bracket.take(frame)

    def line(self, session: Session) -> Line:
        """The summary. Its episodes are those that were put into the tally."""
        assert self.first_ns is not None
        elapsed_s = (session.now_ns - self.first_ns) / 1e9
        run = None if self.bracket is None else run_summary.run_line(session, self.bracket)
        return run_summary.summary_line(
            session, self.tally.counted, elapsed_s, run, self._footprint
        )


class Beside(Measurement):
    """The measurement of a command in a session that goes on afterwards."""

    bracket: Bracket

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.job = job
        self.summary: list[str] = []
        """Once nothing of the run is missing any more."""
        self._lone: dict[str, Episode] = {}
        """The first of each kind."""
        self._cursor = 0

    @property
    def running(self) -> bool:
        """It was let go, and has not ended."""
        return self.job.start_ns > 0 and self.bracket.run is None

    def take(self, session: Session, message: wire.Message) -> None:
        """One that the session has applied."""
        if self.summary or not isinstance(message, wire.Frame):
            return
        news, self._cursor = session.episodes_since(self._cursor)
        for episode in news:
            self._count(episode)
        if self.over(session, message):
            self.finish(session)

    def finish(self, session: Session) -> None:
        """The run is over, and no more will come of it."""
        if self.summary or self.first_ns is None or self.bracket.run is None:
            return
        for episode in session.running:
            self._count(episode)
        line = self.line(session)
        ending = stat_text.ending(session, self.tally, line, self.job.argv)
        self.summary = [*stat_text.heading(session), *self._told(session), *ending]

    def _count(self, episode: Episode) -> None:
        self._lone.setdefault(episode.kind, episode)
        self.tally.add(episode)

    def _told(self, session: Session) -> list[str]:
        """Episodes alone of their kind; of the others the summary tells the worst."""
        counted = self.tally.counted
        return [
            stat_text.episode(session, episode)
            for kind, episode in self._lone.items()
            if sum(counted[kind].values()) == 1
        ]
