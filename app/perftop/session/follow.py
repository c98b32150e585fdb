"""The one loop over a stream of messages, live, far away or from a file.

A reader of a stream derives from `Follower` and overrides hooks: a verb prints in them, a screen
draws. A file is read by `take(source.messages())` after its hello, a live stream by `consume`; the
caller calls `on_end` at the end. Quick to import: `perftop --help` loads all verbs, but neither
numpy nor the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.model.episode import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session


class Follower:
    """Feeds a session, cuts it into intervals, and calls the hooks as things happen."""

    def __init__(
        self, interval_ns: int | None = None, *, duration_ns: int | None = None,
        count: int | None = None, early: bool = False,
    ) -> None:  # fmt: skip
        """`interval_ns`: length of an interval; None: none is cut. `duration_ns` and `count`: how
        long the stream is read, and how many intervals of it. `early`: the first interval ends
        after one sample."""
        self.interval_ns, self.duration_ns, self.count = interval_ns, duration_ns, count
        self._early = early
        self._session: Session | None = None
        self.first_ns: int | None = None
        """Raw time of the first frame."""
        self.intervals = 0
        """Number of complete intervals."""

    # --- hooks, in the order in which they are called for a message

    def on_hello(self, hello: wire.Hello) -> Session | None:
        """Called for a hello, also for a second one after a restart. Returns the session that takes
        all that follows; None: messages only go to `on_message`."""
        from perftop.session.session import Session

        return Session(hello)

    def admits(self, message: wire.Message) -> bool:  # noqa: ARG002 - for overrides
        """Called before the session takes a message. False: it is left out."""
        return True

    def on_episode(self, episode: Episode) -> None:
        """Called when an episode has ended. Those that still run at the end of the stream are in
        `session.running`."""

    def on_beginning(self, episode: Episode) -> None:
        """Called when an episode has begun and runs."""

    def on_warning(self, text: str) -> None:
        """Called for a warning of the probe."""

    def on_interval(self, interval: Interval) -> None:
        """Called when an interval is complete."""

    def on_message(self, message: wire.Message) -> bool:  # noqa: ARG002 - for overrides
        """Called for each message, after the other hooks. True: stop reading."""
        return False

    def on_end(self) -> None:
        """Called once at the end of the stream, even if it never began."""

    # --- the loop

    async def consume(self, stream: AsyncIterable[list[wire.Message]]) -> None:
        """Reads a live stream until its end, or until a hook or limit stops it."""
        async for messages in stream:
            if self.take(messages):
                return

    def take(self, messages: Iterable[wire.Message]) -> bool:
        """Takes messages in their order; a hello must be the first of those given. Returns whether
        to stop reading."""
        from perfprobe import wire

        ahead = iter(messages)
        first = next(ahead, None)
        if isinstance(first, wire.Hello):
            self._begin(first)
        elif first is not None:
            ahead = chain([first], ahead)
        admitted = filter(self.admits, ahead)
        for message in admitted if self._session is None else self._session.play(admitted):
            if self._session is not None:
                self._report(self._session)
            over = isinstance(message, wire.Frame) and self._timed(message)
            over = self.on_message(message) or over
            if over and self._session is not None:
                self.cut()
            if over or (self.count is not None and self.intervals >= self.count):
                return True
        return False

    @property
    def session(self) -> Session:
        """The session of the newest hello."""
        assert self._session is not None
        return self._session

    @property
    def started(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    def cut(self) -> None:
        """Ends the current interval early, unless it has hardly begun."""
        if self.interval_ns is not None and self.session.span_ns > self._slack_ns:
            self._interval()

    def _begin(self, hello: wire.Hello) -> None:
        self._slack_ns = hello.sample_ns // 2
        """A frame at most this long before a boundary counts as on it."""
        self.first_ns, self.intervals = None, 0
        self._cursor = 0
        self._running: dict[int, Episode] = {}
        """Episodes that run, by identity, which holds as long as they are kept here."""
        self._warnings: list[str] = []
        self._session = self.on_hello(hello)

    def _report(self, session: Session) -> None:
        ended, self._cursor = session.log.since(self._cursor)
        for episode in ended:
            self.on_episode(episode)
        before, self._running = self._running, {id(e): e for e in session.running}
        for key, episode in self._running.items():
            if key not in before:
                self.on_beginning(episode)
        if session.warnings is not self._warnings:  # it is another list with each warning
            self._warnings = session.warnings
            if self._warnings:
                self.on_warning(self._warnings[-1])

    def _timed(self, frame: wire.Frame) -> bool:
        """Ends the interval if it is complete; returns whether the time is up."""
        if self.first_ns is None:
            self.first_ns = frame.time_ns
        if self._session is not None and self.interval_ns is not None:
            early = self._early and not self.intervals
            due_ns = self._session.hello.sample_ns if early else self.interval_ns
            if self._session.span_ns >= due_ns - self._slack_ns:
                self._interval()
        if self.duration_ns is None:
            return False
        return frame.time_ns - self.first_ns >= self.duration_ns - self._slack_ns

    def _interval(self) -> None:
        self.intervals += 1
        self.on_interval(self.session.take())
