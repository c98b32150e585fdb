"""`perftop record`: writes a stream to a file, without a screen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from math import inf
from pathlib import Path

from perfprobe import wire
from perfprobe.frozen import frozen
from perftop.base.errors import USAGE, Failed
from perftop.base.text import did_you_mean, in_ascii, utf8
from perftop.model.episode import KINDS
from perftop.output.live_measurement import Beside
from perftop.output.sentences import CAUSES
from perftop.process.command_window import UNNAMED, CommandStart, CommandWindow, Identity, RunNotes
from perftop.process.job import Job
from perftop.process.job_terminal import typed_keys
from perftop.process.streams import Stream
from perftop.recording import ring
from perftop.recording.ring import Ring, Triggers
from perftop.recording.writer import Writer, refuse
from perftop.session import marks
from perftop.session.session import MOST_TOGETHER, Session
from perftop.session.summary import UNREAD_BYTES
from perftop.verbs.run_headless import attend_all, told

TELL_S = 1.0
REST_S = 0.2
"""Seconds between two reads around a command; what was not read is lost if perftop is killed."""
_CLEAR = "\r\x1b[K"


@frozen
class Box:
    """A black box: only what is kept of it stays."""

    length_ns: int
    kinds: tuple[str, ...]
    """Kinds or causes of episodes around which it keeps; empty: none."""
    most_bytes: int


@frozen
class Options:
    argv: list[str]
    """Command line of the probe."""
    path: Path
    sample_ns: int
    duration_ns: int | None = None
    force: bool = False
    job: Job | None = None
    """The command to record, waiting for its start; None: none. The terminal then belongs to it."""
    start: CommandStart | None = None
    """The job's one run, where several machines are recorded around it."""
    name: str | None = None
    """The machine, to be told with what is said of it; None: there is one only."""
    box: Box | None = None
    """None: all is recorded, into one file."""
    identity: Identity = UNNAMED


class Record:
    """One run. Whatever ends it, the file is a complete recording up to then."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tape: Writer | Ring | None = None
        self._session: Session | None = None
        """Looks for episodes around which is kept; None: nobody wants that."""
        box = options.box
        self._triggers = None if box is None else Triggers(box.kinds, box.length_ns)
        self._first_ns: int | None = None
        self._now_ns = 0
        self._marks = self._wanted = 0
        self._command = None if options.job is None else _Command(options.job, options.start)
        alone = options.job is None and options.name is None
        self._shown = alone and sys.stderr is not None and sys.stderr.isatty()
        self.beside: Sequence[Record] = [self]
        """All recordings that a mark is written to."""
        self.status = 0
        """Exit status; not 0 if the command could not be recorded to its end."""

    @property
    def bracket(self) -> CommandWindow | None:
        return None if self._command is None else self._command.measurement.bracket

    async def consume(self, stream: Stream) -> None:
        """Reads until the duration is reached, the job has ended, or the stream ends."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._mark_all)
        telling = loop.create_task(self._tell())
        keys = (
            typed_keys(self._typed)
            if self._options.box and self._command is None
            else nullcontext()
        )
        try:
            with keys:
                async for messages in stream:
                    if any(self._take(message) for message in messages):
                        return
        finally:
            telling.cancel()

    def _typed(self, key: str) -> None:
        if key == "m":
            self._mark_all()
        elif key == "q":
            os.kill(os.getpid(), signal.SIGTERM)

    @property
    def begun(self) -> bool:
        return self._tape is not None

    def finish(self) -> None:
        try:
            self._end()
        finally:
            if self._command is not None:
                text = "".join(f"{line}\n" for line in self._command.summary())
                self._say(text if utf8() else in_ascii(text))

    def _end(self) -> None:
        tape, command = self._tape, self._command
        if tape is None or not tape.open:
            return
        self._mark()
        self._tell_of_command(over=True)
        tape.end()
        if command is not None and command.never_was and isinstance(tape, Writer):
            tape.drop()  # the command did not run: nothing to keep
        else:
            self._say(f"perftop: recorded {tape.told} in {tape.path}\n")

    def _take(self, message: wire.Message) -> bool:
        """Handles a message; returns whether it was the last one wanted."""
        command = self._command
        if command is not None and not command.admit(message):
            return False
        if isinstance(message, wire.Hello):
            self._tape = self._started(message)
            self._now_ns = message.raw_ns
        elif isinstance(message, wire.Frame | wire.Note):
            self._mark()
            self._write(message)
            self._watch(message)
            last = isinstance(message, wire.Frame) and self._last(message)
            if command is None:
                return last
            command.take(message)
            closed = command.measurement.bracket.closed
            self._tell_of_command(over=closed)
            return closed
        return False

    def _started(self, hello: wire.Hello) -> Writer | Ring:
        options, box = self._options, self._options.box
        hello = options.identity.on(hello)
        if box is None:
            return Writer(options.path, hello, force=options.force)
        if box.kinds:
            self._session = Session(hello, summary_bytes=UNREAD_BYTES)
        return Ring(options.path, hello, box.length_ns, box.most_bytes)

    def _watch(self, message: wire.Frame | wire.Note) -> None:
        """Keeps what lies around episodes, and tells what was kept."""
        tape = self._tape
        if not isinstance(tape, Ring) or not tape.open:
            return
        if self._session is not None and self._triggers is not None:
            self._session.apply(message)
            for wanted in self._triggers.take(self._session):
                tape.keep_around(*wanted)
        for text in tape.news:
            self._say(f"perftop: {text}\n")
        tape.news.clear()

    async def _tell(self) -> None:
        """Shows once a second, on a terminal, how much has been recorded."""
        while self._shown:
            await asyncio.sleep(TELL_S)
            if self._tape is not None:
                self._say(f"recording: {self._tape.told}")

    def _mark_all(self) -> None:
        """Asks for a mark. It is written before the next message, with the time of the newest
        sample, because the signal may arrive at any moment."""
        for record in self.beside:
            record._wanted += 1  # noqa: SLF001 - of the same class

    def _mark(self) -> None:
        while self._wanted:
            self._wanted -= 1
            self._marks += 1
            data = {"label": f"mark {self._marks}"}
            self._write(wire.Note("mark", self._now_ns, "recorder", data))
            if isinstance(self._tape, Ring) and self._tape.open:
                self._tape.keep()

    def _tell_of_command(self, *, over: bool) -> None:
        if self._command is not None:
            for note in self._command.notes.due(self._now_ns, over=over):
                self._write(note)

    def _write(self, message: wire.Frame | wire.Note) -> None:
        assert self._tape is not None
        try:
            if self._tape.open:
                self._tape.write(message)
        except Failed as failed:
            if self._command is None or not self._command.runs:
                raise
            # The command is measured on: that needs no file.
            self.status = failed.status
            self._say(f"perftop: {failed}\n")
        if isinstance(message, wire.Note) and message.kind in {"warning", "gap"}:
            self._say(f"perftop: {marks.warning(message)}\n")

    def _last(self, frame: wire.Frame) -> bool:
        self._now_ns = frame.time_ns
        if self._first_ns is None:
            self._first_ns = frame.time_ns
        duration_ns = self._options.duration_ns
        # Half a sample of slack: a frame just before the end counts as on it.
        slack_ns = self._options.sample_ns // 2
        return duration_ns is not None and frame.time_ns - self._first_ns >= duration_ns - slack_ns

    def _say(self, text: str) -> None:
        """Writes to stderr, over the progress line if there is one. Errors are ignored: recording
        goes on without stderr."""
        if sys.stderr is not None:
            text = f"=== {self._options.name}\n{text}" if self._options.name and text else text
            with contextlib.suppress(OSError):
                sys.stderr.write(f"{_CLEAR}{text}" if self._shown else text)
                sys.stderr.flush()


class _Command:
    """The command that is recorded, and the notes on it for the file."""

    def __init__(self, job: Job, start: CommandStart | None) -> None:
        self._job = job
        self.measurement = Beside(job, start, REST_S)
        self._session: Session | None = None
        self._waiting: list[wire.Frame | wire.Note] = []
        """What has come and is not measured yet."""
        self.notes = RunNotes(job, self.measurement.bracket)

    @property
    def runs(self) -> bool:
        """Whether the command has started; true after its end, too."""
        return self._job.start_ns > 0

    @property
    def never_was(self) -> bool:
        """Whether the command could not be run."""
        run = self.measurement.bracket.run
        return run is not None and run.failed is not None

    def admit(self, message: wire.Message) -> bool:
        if isinstance(message, wire.Hello):
            self._session = Session(message)
            self._session.account()
        return self.measurement.admit(message)

    def take(self, message: wire.Frame | wire.Note) -> None:
        """Some messages are measured together while the command runs, as only its end is told. A
        machine far away is asked for an echo at each after the end, so there none waits."""
        self._waiting.append(message)
        waits = self.measurement.running and not self.measurement.bracket.far
        if not waits or len(self._waiting) >= MOST_TOGETHER:
            self._measure()

    def _measure(self) -> None:
        assert self._session is not None
        for message in self._session.play(self._waiting):
            self.measurement.take(self._session, message)
        self._waiting.clear()

    def summary(self) -> list[str]:
        if self._session is None or self.never_was:
            return []
        self._measure()
        self.measurement.finish(self._session)  # all that was measured is still true
        return self.measurement.summary


def kinds(text: str | None) -> tuple[str, ...]:
    """Kinds and causes of episodes in a list. Raises Failed."""
    names = () if text is None else tuple(dict.fromkeys(text.split(",")))
    known = [*KINDS, *CAUSES]
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise Failed(f"--on: no episode is {name!r}{near}; there are {', '.join(KINDS)}", USAGE)
    return names


def _refuse(options: Options) -> None:
    if options.box is None:
        refuse(options.path, force=options.force)
    else:
        ring.refuse(options.path)


def run(each: Sequence[Options]) -> int:
    """Records a machine, or several side by side with a file each; one that fails stops no other.
    Returns the exit status. Raises Failed."""
    for options in each:
        _refuse(options)
    records = [Record(options) for options in each]
    for record in records:
        record.beside = records
    works = [(record, options.argv) for record, options in zip(records, each, strict=True)]
    most_s = inf if each[0].duration_ns is None else each[0].duration_ns / 1e9
    status, failed = asyncio.run(attend_all(works, most_s))
    if failed == [None] and not records[0].begun:
        raise Failed("nothing was recorded: it ended before the probe had started", status or 1)
    if each[0].job is None:
        status = 0  # a signal is a usual end
    return told(status or max(record.status for record in records), failed)
