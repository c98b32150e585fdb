"""Converts the messages of a recording to the intervals and episodes of an export."""

from __future__ import annotations

from collections.abc import Sequence

from perfprobe import wire
from perftop.model.episode import Episode
from perftop.output.export.form import Form
from perftop.output.export.recorded_command import Command
from perftop.session.episodes import Beginnings, Tally
from perftop.session.session import Session


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
