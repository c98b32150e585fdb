"""`perftop record`: writes a stream to a file, without a screen. With --ring or --on, only selected
parts of the stream are kept."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftop.base.errors import USAGE, Failed
from perftop.base.text import did_you_mean, printable, supports_unicode, terminal_text
from perftop.session.follow import Follower
from perftop.verbs import headless, options
from perftop.verbs.options import fast_imports

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.model.kinds import Episode
    from perftop.process.command_window import CommandStart
    from perftop.process.job import Job
    from perftop.process.streams import Stream
    from perftop.recording.ring import Ring
    from perftop.recording.writer import Writer
    from perftop.session.session import Session

BATCH_NS = 500_000_000
"""Time in ns between two writes of the probe, and so the most that is missing at the end of a
recording if perftop or the probe is killed. Recording costs little except wake-ups: with 200 ms, it
costs twice as much."""
DEFAULT_RING_NS = 600_000_000_000
"""Length of the ring in ns with --on but without --ring."""
DEFAULT_MAX_BYTES = 1_000_000_000
"""Default of --max-size: bytes of a ring and of all recordings kept from it."""
MAX_DELAY_NS = 2_000_000_000
"""Maximum age in ns at which a sample is searched for the episodes of --on."""
PROGRESS_S = 1.0
"""Seconds between two updates of the progress line."""
READ_PAUSE_S = 0.2
"""Seconds between two reads while a command runs. Unread data is lost if perftop is killed."""
EPILOG = (
    "-- CMD [ARG …] runs a command, records it from just before it starts to just after it ends, "
    "and prints a summary on stderr. The exit status is the command's. SIGUSR1 sets a mark."
)
_CLEAR_LINE = "\r\x1b[K"


def add_parser(subparsers: Any) -> None:
    text = "record measurements to a file, without a screen"
    parser = options.add_verb(subparsers, "record", run, text, stream=True, epilog=EPILOG,
                              interval="1s; stored in FILE, and used by export")  # fmt: skip
    text = "recording to write (required); a directory with --ring, --on or several --host"
    parser.add_argument("-o", "--output", type=options.parse_file_path, metavar="FILE", help=text)
    text = "keep only the last TIME (default with --on: 10m); SIGUSR1 or the key m saves all of it"
    parser.add_argument("--ring", type=options.parse_duration_ns, metavar="TIME", help=text)
    text = (
        "save episodes of these kinds or causes (neighbour,thermal …), with 30 s before and after"
    )
    parser.add_argument("--on", metavar="KIND,KIND", help=text)
    text = "maximum size of the directory of --ring or --on (default: 1G)"
    parser.add_argument(
        "--max-size", type=size_bytes, default=DEFAULT_MAX_BYTES, metavar="SIZE", help=text
    )
    text = "print a systemd service that keeps record --ring running (a black box)"
    parser.add_argument("--print-unit", action="store_true", help=text)
    options.add_force_options(parser)
    options.add_duration_options(parser)
    options.add_run_options(parser)
    parser.set_defaults(runs=True, several=True)


def size_bytes(text: str) -> int:
    """Parses a size such as `500M`. Returns bytes."""
    match = re.fullmatch(r"([0-9]{1,6})([kMGT])B?", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"invalid size {text!r} (try 500M, 2G)")
    return int(match[1]) * (1000, 10**6, 10**9, 10**12)["kMGT".index(match[2])]


def episode_kinds(text: str | None) -> tuple[str, ...]:
    """Parses the kinds and causes of episodes in --on. Raises Failed for unknown ones."""
    from perftop.model.kinds import CAUSES, KINDS

    names = () if text is None else tuple(dict.fromkeys(text.split(",")))
    known_names = [*KINDS, *CAUSES]
    for name in names:
        if name not in known_names:
            suggestion = did_you_mean(name, known_names, f"known: {', '.join(KINDS)}")
            raise Failed(f"--on: unknown kind of episode {name!r}{suggestion}", USAGE)
    return names


def run(args: argparse.Namespace) -> int:
    """Records one machine, or several at once, each to its own file. A failure on one machine does
    not stop the others. Returns the exit status."""
    if args.print_unit:
        from perftop.verbs import serve

        return serve.print_shipped("recorder")
    if args.output is None:
        raise Failed("record needs -o FILE: perftop record -o run.perftop", USAGE)
    _, sample_ns = options.interval_and_sample(args)
    with options.fork_job(args) as job:
        commands = options.stream_commands(args, sample_ns, BATCH_NS, job)
        with fast_imports():
            from perftop.process.signals import run_loop
            from perftop.recording import ring, writer
        args.on = episode_kinds(args.on)
        paths = [args.output]
        if len(commands) > 1:
            paths = headless.output_paths(args.output, args.hosts)
        for path in paths:
            if _is_ring(args):
                ring.check_path(path)
            else:
                writer.check_path(path, force=args.force)
        start = options.shared_start(job, len(commands))
        records = [
            StreamRecorder(args, path, job, start, name)
            for (name, _), path in zip(commands, paths, strict=True)
        ]
        for record in records:
            record.all_records = records
        consumers = [(record, argv) for record, (_, argv) in zip(records, commands, strict=True)]
        max_s = inf if args.duration is None else args.duration / 1e9
        status, failed = run_loop(headless.run_consumers, consumers, max_s)
    if failed == [None] and not records[0].has_begun:
        text = "nothing was recorded: the recording ended before the first sample"
        raise Failed(text, status or 1)
    if job is None:
        status = 0  # a signal is a normal end
    return headless.report_failures(status or max(commands.status for commands in records), failed)


def _is_ring(args: argparse.Namespace) -> bool:
    return args.ring is not None or bool(args.on)


class StreamRecorder(headless.Consumer):
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
        self._ring: Ring | None = None
        """The recording if it is a ring, else None."""
        self._now_ns = 0
        self._marks = self._marks_due = 0
        self._command = None if job is None else CommandSummary(job, start)
        self._measurement = None if self._command is None else self._command.measurement
        self._trigger = EpisodeTrigger(args.on, args.ring or DEFAULT_RING_NS) if args.on else None
        is_alone = job is None and name is None
        self._is_shown = is_alone and sys.stderr.isatty()
        self.all_records: Sequence[StreamRecorder] = [self]
        """All recordings that get a mark if the user sets one."""
        self.status = 0
        """Exit status; nonzero if writing failed while the command ran."""

    @property
    def has_begun(self) -> bool:
        """Whether a sample was recorded."""
        return self._recording is not None and self._recording.frames > 0

    async def consume(self, stream: Stream) -> None:
        import asyncio

        from perftop.process.job_terminal import typed_keys
        from perftop.process.signals import on_signal

        on_signal([signal.SIGUSR1], lambda _: self._request_marks())
        progress = asyncio.get_running_loop().create_task(self._show_progress())
        keyed = _is_ring(self._args) and self._command is None
        try:
            with typed_keys(self._handle_key) if keyed else contextlib.nullcontext():
                await super().consume(stream)
        finally:
            progress.cancel()

    def on_hello(self, hello: wire.Hello) -> None:
        from perftop.recording.ring import Ring
        from perftop.recording.writer import Writer

        args, self._now_ns = self._args, hello.raw_ns
        if self._command is not None:
            self._command.begin(hello)
        named = options.labelled_hello(args, hello)
        if self._trigger is not None:
            self._trigger.process([named])
        if _is_ring(args):
            ring = Ring(self._path, named, args.ring or DEFAULT_RING_NS, args.max_size)
            self._recording = self._ring = ring
        else:
            self._recording = Writer(self._path, named, force=args.force)

    def on_message(self, message: wire.Message) -> bool:
        from perfprobe import wire

        if not isinstance(message, wire.Frame | wire.Note):
            return False
        self._write_marks()
        ring, trigger = self._ring, self._trigger
        self._write(message)
        if ring is not None and ring.is_open:
            if trigger is not None and trigger.is_due(message):
                trigger.keep(ring)
            self._print_notices(ring)
        if isinstance(message, wire.Frame):
            self._now_ns = message.time_ns
        if self._command is None:
            return False
        self._command.measure(message)
        is_closed = self._command.measurement.command_window.is_closed
        self._write_run_notes(is_over=is_closed)
        return is_closed

    def on_end(self) -> None:
        from perftop.recording.writer import Writer

        recording, command = self._recording, self._command
        try:
            if recording is not None and recording.is_open:
                self._write_marks()
                self._write_run_notes(is_over=True)
                if self._ring is not None and self._trigger is not None:
                    self._trigger.keep(self._ring)
                    self._print_notices(self._ring)
                did_run = command is None or not command.has_failed
                if isinstance(recording, Writer) and not (did_run and self.has_begun):
                    recording.drop()
                else:
                    recording.end()
                    self._print_line(f"recorded {recording.extent} in {recording.path}")
        finally:
            if command is not None:
                unicode = supports_unicode()
                lines = (terminal_text(line, unicode=unicode) for line in command.summary())
                self._print("".join(f"{line}\n" for line in lines))

    def _print_notices(self, ring: Ring) -> None:
        for text in ring.notices:
            self._print_line(text)
        ring.notices.clear()

    async def _show_progress(self) -> None:
        """Shows the size of the recording every PROGRESS_S seconds, if stderr is a terminal."""
        import asyncio

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
        from perfprobe import wire

        while self._marks_due:
            self._marks_due -= 1
            self._marks += 1
            data = {"label": f"mark {self._marks}"}
            self._write(wire.Note("mark", self._now_ns, "recorder", data))
            if self._ring is not None and self._ring.is_open:
                self._ring.keep()

    def _write_run_notes(self, *, is_over: bool) -> None:
        """Writes the notes on the command that are due."""
        if self._command is not None:
            for note in self._command.notes.due_notes(self._now_ns, is_over=is_over):
                self._write(note)
                self._command.measure(note)

    def _write(self, message: wire.Frame | wire.Note) -> None:
        from perfprobe import wire
        from perftop.session import episodes

        assert self._recording is not None
        try:
            if self._recording.is_open:
                self._recording.write(message)
        except Failed as failed:
            if self._command is None or not self._command.measurement.job.start_ns:
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
            sys.stderr.write(f"{_CLEAR_LINE}{text}" if self._is_shown else text)
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
        from perftop.model.kinds import KINDS
        from perftop.session.session import Session

        only_kinds = self._kinds <= KINDS.keys()  # A cause may belong to several kinds.
        return Session(hello, summarises=False, kinds=self._kinds if only_kinds else None)

    def on_episode_end(self, episode: Episode) -> None:
        self._ended.append(episode)

    def is_due(self, message: wire.Frame | wire.Note) -> bool:
        """Adds a message to those waiting. Returns whether they should be analysed now."""
        from perftop.session.session import MAX_BATCH

        self._waiting_messages.append(message)
        waited_ns = message.time_ns - self._waiting_messages[0].time_ns
        return len(self._waiting_messages) >= MAX_BATCH or waited_ns >= MAX_DELAY_NS

    def keep(self, ring: Ring) -> None:
        """Analyses the waiting messages, and keeps the parts of the ring around matching
        episodes."""
        from perftop.recording.ring import spans_to_keep

        self.process(self._waiting_messages)
        self._waiting_messages = []
        for episode in (*self._ended, *self.session.running):
            if not self._kinds.isdisjoint((episode.kind, episode.cause)):
                for request in spans_to_keep(episode, self.session.now_ns, self._length_ns):
                    ring.keep_span(*request)
        self._ended = []


class CommandSummary(Follower):
    """Measures the recorded command, for its summary and for the notes in the file."""

    each_sample = True

    def __init__(self, job: Job, start: CommandStart | None = None) -> None:
        from perftop.output.stat_text import CommandMeasurement
        from perftop.process.command_window import RunNotes

        super().__init__()
        self.measurement = CommandMeasurement(job, start, READ_PAUSE_S)
        self.notes = RunNotes(job, self.measurement.command_window)
        self._waiting_messages: list[wire.Message] = []

    @property
    def has_failed(self) -> bool:
        run = self.measurement.command_window.run
        return run is not None and run.failed is not None

    def begin(self, hello: wire.Hello) -> None:
        self.measurement.admit(hello)
        self.process([hello])
        self.session.track_losses(self.measurement.job.pid)

    def measure(self, message: wire.Message) -> None:
        """Measures a message of the recording. While the command runs, this is done in batches,
        which disturb it less; only results at its end are reported. For a remote machine there are
        no batches: after the command's end, each message causes a request for an echo."""
        from perftop.session.session import MAX_BATCH

        self._waiting_messages.append(message)
        waits = self.measurement.running and not self.measurement.command_window.is_remote
        if not waits or len(self._waiting_messages) >= MAX_BATCH:
            self._measure_waiting()

    def on_message(self, message: wire.Message) -> bool:
        self.measurement.on_message(self.session, message)
        return False

    def summary(self) -> list[str]:
        if not self.has_started or self.has_failed:
            return []
        self._measure_waiting()
        self.measurement.finish(self.session)  # everything measured so far is still valid
        return self.measurement.summary

    def _measure_waiting(self) -> None:
        self.process(self._waiting_messages)
        self._waiting_messages = []


# --- `perftop mark`: begins a named phase, from inside a command


def add_mark(subparsers: Any) -> None:
    text = "begin a named phase, from inside a command that perftop measures"
    parser = options.add_verb(subparsers, "mark", run_mark, text)
    text = "name of the phase, such as link"
    parser.add_argument("name", metavar="NAME", help=text)


def run_mark(args: argparse.Namespace) -> int:
    from perftop.process.job import send_mark

    send_mark(args.name)
    return 0
