"""Writes a stream to a file, keeps parts of a ring around episodes, and measures the recorded
command."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.base.text import CLEAR_LINE, printable, supports_unicode, terminal_text
from perftop.model.kinds import KINDS, Episode
from perftop.output.stat_text import receipt
from perftop.process.command_window import CommandStart
from perftop.process.job import Job
from perftop.process.job_terminal import typed_keys
from perftop.process.measurement import CommandMeasurement
from perftop.process.signals import on_signal
from perftop.process.streams import Stream
from perftop.recording.ring import Ring, spans_to_keep
from perftop.recording.writer import Writer
from perftop.session import episodes
from perftop.session.follow import Follower
from perftop.session.session import MAX_BATCH, Session
from perftop.verbs import options
from perftop.verbs.headless import Consumer

DEFAULT_MAX_BYTES = 1_000_000_000
"""Default of --max-size: bytes of a ring and of all recordings kept from it."""
DEFAULT_RING_NS = 600_000_000_000
"""Length of the ring in ns with --on but without --ring."""
MAX_DELAY_NS = 2_000_000_000
"""Maximum age in ns at which a sample is searched for the episodes of --on."""
PROGRESS_S = 1.0
"""Seconds between two updates of the progress line."""
READ_PAUSE_S = 0.2
"""Seconds between two reads while a command runs. Unread data is lost if perftop is killed."""


def is_ring(args: argparse.Namespace) -> bool:
    return args.ring is not None or bool(args.on)


class StreamRecorder(Consumer):
    """Copies a stream to a file. However the recording ends, the file has everything up to its
    end."""

    def __init__(
        self, args: argparse.Namespace, path: Path, job: Job | None = None,
        start: CommandStart | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        """`start`: shared by the machines on which one command is recorded; None for one machine.
        `name`: name of the machine, printed before its messages; None if it is the only one."""
        super().__init__(duration_ns=args.duration)
        self._args, self._path, self._name = args, path, name
        self._recording: Writer | Ring | None = None
        self._now_ns = 0
        self._marks = self._marks_due = 0
        self._command = None if job is None else CommandSummary(job, start)
        if self._command is not None:
            self.command_window = self._command.measurement.command_window
        self._trigger = EpisodeTrigger(args.on, args.ring or DEFAULT_RING_NS) if args.on else None
        is_alone = job is None and name is None
        self._is_shown = is_alone and sys.stderr.isatty()
        self.all_records: Sequence[StreamRecorder] = [self]
        """All recordings that receive the user's marks."""
        self.status = 0
        """Exit status; nonzero if writing failed while the command ran."""

    @property
    def has_begun(self) -> bool:
        """Whether a sample was recorded."""
        return self._recording is not None and self._recording.frames > 0

    async def consume(self, stream: Stream) -> None:
        on_signal([signal.SIGUSR1], lambda _: self._request_marks())
        progress = asyncio.get_running_loop().create_task(self._show_progress())
        reads_keys = is_ring(self._args) and self._command is None
        try:
            with typed_keys(self._handle_key) if reads_keys else contextlib.nullcontext():
                await super().consume(stream)
        finally:
            progress.cancel()

    def on_hello(self, hello: wire.Hello) -> None:
        args, self._now_ns = self._args, hello.raw_ns
        if self._command is not None:
            self._command.process([hello])
        labelled = options.labelled_hello(args, hello)
        if self._trigger is not None:
            self._trigger.process([labelled])
        if is_ring(args):
            length_ns = args.ring or DEFAULT_RING_NS
            max_bytes = args.max_size or DEFAULT_MAX_BYTES
            self._recording = Ring(self._path, labelled, length_ns, max_bytes)
        else:
            self._recording = Writer(self._path, labelled, force=args.force)

    def accepts(self, message: wire.Message) -> bool:
        return self._command is None or self._command.measurement.admit(message)

    def on_message(self, message: wire.Message) -> bool:
        if not isinstance(message, wire.Frame | wire.Note):
            return False
        self._write_marks()
        recording, trigger = self._recording, self._trigger
        self._write(message)
        if isinstance(recording, Ring) and recording.is_open:
            if trigger is not None and trigger.is_due(message):
                trigger.keep(recording)
            self._print_notices(recording)
        if isinstance(message, wire.Frame):
            self._now_ns = message.time_ns
        if self._command is None:
            return False
        self._command.measure(message)
        self._write_run_notes()
        return self._command.measurement.is_over

    def on_end(self) -> None:
        recording, command = self._recording, self._command
        run = None if command is None else command.measurement.command_window.run
        did_run = run is None or run.failure is None
        try:
            if recording is not None:
                self._write_marks()
                self._write_run_notes(is_over=True)
            if recording is not None and recording.is_open:
                if isinstance(recording, Ring) and self._trigger is not None:
                    self._trigger.keep(recording)
                    self._print_notices(recording)
                if isinstance(recording, Writer) and not (did_run and self.has_begun):
                    recording.discard()
                else:
                    recording.end()
                    self._print_line(f"recorded {recording.extent} in {recording.path}")
        finally:
            if command is not None and did_run:
                unicode = supports_unicode()
                lines = (terminal_text(line, unicode=unicode) for line in command.lines)
                self._print("".join(f"{line}\n" for line in lines))

    def _print_notices(self, ring: Ring) -> None:
        for text in ring.notices:
            self._print_line(text)
        ring.notices.clear()

    async def _show_progress(self) -> None:
        """Shows the size of the recording every PROGRESS_S seconds, if stderr is a terminal."""
        while self._is_shown:
            await asyncio.sleep(PROGRESS_S)
            if self._recording is not None:
                self._print(f"recording: {self._recording.extent}")

    def _handle_key(self, key: str) -> None:
        if key == "m":
            self._request_marks()
        elif key == "q":
            os.kill(os.getpid(), signal.SIGTERM)

    def _request_marks(self) -> None:
        """Requests a mark in all recordings. A signal may arrive at any time, so the mark is
        written before the next message, with the time of the newest sample."""
        for record in self.all_records:
            record._marks_due += 1  # noqa: SLF001 - same class

    def _write_marks(self) -> None:
        while self._marks_due:
            self._marks_due -= 1
            self._marks += 1
            data = {"label": f"mark {self._marks}"}
            self._write(wire.Note("mark", self._now_ns, "recorder", data))
            if isinstance(self._recording, Ring) and self._recording.is_open:
                self._recording.keep()

    def _write_run_notes(self, *, is_over: bool = False) -> None:
        """Writes the notes on the command that are due."""
        if self._command is not None:
            for note in self._command.measurement.due_notes(self._now_ns, is_over=is_over):
                self._write(note)
                self._command.measure(note)

    def _write(self, message: wire.Frame | wire.Note) -> None:
        assert self._recording is not None
        try:
            if self._recording.is_open:
                self._recording.write(message)
        except Failed as failed:
            if self._command is None or not self._command.measurement.command_window.job.start_ns:
                raise
            # the command is still measured, for which no file is needed
            self.status = failed.status
            self._print_line(str(failed))
        if isinstance(message, wire.Note) and message.kind in {"warning", "gap"}:
            self._print_line(episodes.warning_text(message))

    def _print_line(self, text: str) -> None:
        self._print(f"perftop: {printable(text)}\n")

    def _print(self, text: str) -> None:
        """Prints on stderr, in place of the progress line, if any. Recording continues if stderr
        fails."""
        text = f"=== {printable(self._name)}\n{text}" if self._name and text else text
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{CLEAR_LINE}{text}" if self._is_shown else text)
            sys.stderr.flush()


class EpisodeTrigger(Follower):
    """Detects episodes of the kinds or causes in --on, and keeps the part of the ring around each.
    Messages are analysed in batches, which costs far less."""

    def __init__(self, kinds: Sequence[str], length_ns: int) -> None:
        super().__init__()
        self._kinds, self._length_ns = frozenset(kinds), length_ns
        self._ended: list[Episode] = []
        """Episodes that have ended since the last call of `keep`."""
        self._waiting_messages: list[wire.Frame | wire.Note] = []

    def on_hello(self, hello: wire.Hello) -> Session:
        only_kinds = self._kinds <= KINDS.keys()  # A cause may belong to several kinds.
        return Session(hello, summarises=False, kinds=self._kinds if only_kinds else None)

    def on_episode_end(self, episode: Episode) -> None:
        self._ended.append(episode)

    def is_due(self, message: wire.Frame | wire.Note) -> bool:
        """Adds a message to those waiting. Returns whether they should be analysed now."""
        self._waiting_messages.append(message)
        waited_ns = message.time_ns - self._waiting_messages[0].time_ns
        return len(self._waiting_messages) >= MAX_BATCH or waited_ns >= MAX_DELAY_NS

    def keep(self, ring: Ring) -> None:
        """Analyses the waiting messages, and keeps the parts of the ring around matching
        episodes."""
        self.process(self._waiting_messages)
        self._waiting_messages = []
        for episode in (*self._ended, *self.session.running):
            if not self._kinds.isdisjoint((episode.kind, episode.cause)):
                for request in spans_to_keep(episode, self.session.now_ns, self._length_ns):
                    ring.keep_span(*request)
        self._ended = []


class CommandSummary(Follower):
    """Measures the recorded command, for its summary and for the notes in the file."""

    hooks_each_sample = True

    def __init__(self, job: Job, start: CommandStart | None = None) -> None:
        super().__init__()
        self.measurement = CommandMeasurement(job, start, READ_PAUSE_S)
        self._tally = episodes.EpisodeTally()
        self.lines: list[str] = []
        """Lines of the summary; empty until the run has been measured."""
        self._waiting_messages: list[wire.Message] = []

    def on_hello(self, hello: wire.Hello) -> Session:
        self.measurement.admit(hello)
        session = Session(hello)
        session.run.track_losses()
        return session

    def on_episode_end(self, episode: Episode) -> None:
        self._tally.add(episode, self.session.now_ns)

    def measure(self, message: wire.Message) -> None:
        """Measures a message of the recording. While the command runs, this is done in batches,
        which disturb it less; only results at its end are reported. For a remote machine there are
        no batches: after the command's end, each message causes a request for an echo."""
        self._waiting_messages.append(message)
        window = self.measurement.command_window
        waits = window.is_running and not window.is_remote
        if not waits or len(self._waiting_messages) >= MAX_BATCH:
            self.process(self._waiting_messages)
            self._waiting_messages = []

    def on_message(self, message: wire.Message) -> bool:
        self.measurement.follow(message)
        if isinstance(message, wire.Note) and message.kind == "run-end":
            self.lines = receipt(self.session, self.measurement, self._tally)
        return False
