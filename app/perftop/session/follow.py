"""The loop that reads a stream of messages: from this machine, a remote machine or a file.

A reader derives from `Follower` and overrides its hooks: verbs print in them, screens draw. For a
file, call `process(source.messages())`; for a live stream, call `consume`; then call `on_end`. The
module imports neither numpy nor the wire, because `perftop --help` loads all verbs.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.model.kinds import Episode
    from perftop.model.sample_reader import SampleBatch
    from perftop.session.interval import Interval
    from perftop.session.session import Session

READ_PAUSE_S = 1.0
"""Seconds between two reads while a command runs, for readers that report at its end. Reading each
sample as it arrives would take three times as much CPU time."""


class Follower:
    """Passes messages to a session, divides time into intervals, and calls hooks. Frames are
    processed together, up to the end of an interval, or the start or end of an episode."""

    hooks_each_sample = False
    """Whether hooks must be called after each sample."""

    def __init__(
        self, interval_ns: int | None = None, *, duration_ns: int | None = None,
        count: int | None = None, starts_early: bool = False,
    ) -> None:  # fmt: skip
        """`interval_ns`: length of an interval; None: there are no intervals. `duration_ns`,
        `count`: the time and the number of intervals after which reading stops. `starts_early`: the
        first interval ends after one sample."""
        self.interval_ns, self.duration_ns, self.count = interval_ns, duration_ns, count
        self._starts_early = starts_early
        self._session: Session | None = None
        self.first_ns: int | None = None
        """Raw time of the first frame."""
        self.intervals = 0
        """Number of complete intervals."""

    # --- Hooks, in the order in which they are called for a message.

    def on_hello(self, hello: wire.Hello) -> Session | None:
        """Called for each hello; a stream that restarts sends another one. Returns the session to
        which later messages are passed; None: they are only passed to `on_message`."""
        from perftop.session.session import Session

        return Session(hello)

    def accepts(self, message: wire.Message) -> bool:  # noqa: ARG002 - for overrides
        """Called before a message is passed to the session. Returns False to drop the message."""
        return True

    def on_episode_end(self, episode: Episode) -> None:
        """Called when an episode has ended. Those that run at the end are in `session.running`."""

    def on_episode_start(self, episode: Episode) -> None:
        """Called when an episode has started."""

    def on_warning(self, text: str) -> None:
        """Called for a warning of the probe."""

    def on_interval(self, interval: Interval) -> None:
        """Called when an interval is complete."""

    def on_samples(self, batch: SampleBatch, first: int, last: int) -> None:
        """Called after samples `first` to `last - 1` of a batch were applied together."""

    def on_message(self, message: wire.Message) -> bool:  # noqa: ARG002 - for overrides
        """Called for each message, after the other hooks. If frames were applied together, the
        session has already applied all of them. Returns True to stop reading."""
        return False

    def on_end(self) -> None:
        """Called once at the end of the stream, even if the stream never began."""

    # --- Reading messages.

    async def consume(self, stream: AsyncIterable[list[wire.Message]]) -> None:
        """Reads a live stream until its end, or until a hook or a limit stops it."""
        async for messages in stream:
            if self.process(messages):
                return

    def process(self, messages: Iterable[wire.Message]) -> bool:
        """Processes messages; only the first may be a hello. Returns whether to stop reading."""
        from perfprobe import wire

        messages_left = iter(messages)
        first = next(messages_left, None)
        if isinstance(first, wire.Hello):
            self._begin(first)
        elif first is not None:
            messages_left = chain([first], messages_left)
        admitted_messages = filter(self.accepts, messages_left)
        session = self._session
        parts: Iterable[Sequence[wire.Message]] = ([message] for message in admitted_messages)
        if session is not None:
            parts = session.apply_in_parts(admitted_messages, self._due_ns)
        for part in parts:
            if self._session is not None:
                self._report(self._session)
            if session is not None and session.newest_samples is not None:
                self.on_samples(*session.newest_samples)
            newest, is_over, current = part[-1], False, self._session
            if isinstance(newest, wire.Frame):
                if self.first_ns is None:
                    self.first_ns = newest.time_ns
                is_timed = self.interval_ns is not None
                if is_timed and current and current.span_ns >= self._interval_ns - self._slack_ns:
                    self._end_interval()
                if self.duration_ns is not None:
                    lasted_ns = newest.time_ns - self.first_ns
                    is_over = lasted_ns >= self.duration_ns - self._slack_ns
            for message in part:
                is_over = self.on_message(message) or is_over
            if is_over and self._session is not None:
                self.cut_interval()
            if is_over or (self.count is not None and self.intervals >= self.count):
                return True
        return False

    def _due_ns(self) -> int:
        """Returns the raw time in ns at which the interval or stream ends; 0: after each sample."""
        if self.hooks_each_sample or self._session is None:
            return 0
        ends_ns = [sys.maxsize]
        if self.interval_ns is not None:
            ends_ns.append(self._session.interval_start_ns + self._interval_ns - self._slack_ns)
        if self.duration_ns is not None and self.first_ns is not None:
            ends_ns.append(self.first_ns + self.duration_ns - self._slack_ns)
        return min(ends_ns)

    @property
    def _interval_ns(self) -> int:
        """Length of the current interval in ns."""
        assert self.interval_ns is not None
        is_first = self._starts_early and not self.intervals
        return self.session.hello.sample_ns if is_first else self.interval_ns

    @property
    def session(self) -> Session:
        """The session of the newest hello."""
        assert self._session is not None
        return self._session

    @property
    def has_started(self) -> bool:
        return self._session is not None

    def cut_interval(self) -> None:
        """Ends the current interval early, unless it has just begun."""
        if self.interval_ns is not None and self.session.span_ns > self._slack_ns:
            self._end_interval()

    def _begin(self, hello: wire.Hello) -> None:
        self._slack_ns = hello.sample_ns // 2
        """Maximum time in ns by which a frame may be early and still count as on time."""
        self.first_ns, self.intervals = None, 0
        self._cursor = 0
        self._running: dict[int, Episode] = {}
        """Running episodes by id(), which is unique while this dictionary refers to them."""
        self._warnings: list[str] = []
        self._session = self.on_hello(hello)

    def _report(self, session: Session) -> None:
        ended_episodes, self._cursor = session.log.ended_since(self._cursor)
        for episode in ended_episodes:
            self.on_episode_end(episode)
        previous, self._running = self._running, {id(e): e for e in session.running}
        for key, episode in self._running.items():
            if key not in previous:
                self.on_episode_start(episode)
        if session.warnings is not self._warnings:  # each warning creates a new list
            self._warnings = session.warnings
            if self._warnings:
                self.on_warning(self._warnings[-1])

    def _end_interval(self) -> None:
        self.intervals += 1
        self.on_interval(self.session.take_interval())
