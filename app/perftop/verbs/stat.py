"""`perftop stat`: the numbers as text or JSON lines, no screen."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from perfprobe import wire
from perftop.base import errors, new_file
from perftop.base.errors import Failed
from perftop.base.text import in_ascii, printable, utf8
from perftop.output import stat_json, stat_text
from perftop.output.live_measurement import Measurement
from perftop.process.command_window import Bracket
from perftop.process.job import Job, Run
from perftop.process.probe_stream import Stream
from perftop.samples.episode import Episode
from perftop.session.session import Session
from perftop.verbs.run_headless import attend


@dataclass(frozen=True, slots=True)
class Options:
    argv: list[str]
    """Command line of the probe."""
    interval_ns: int
    sample_ns: int
    count: int | None = None
    duration_ns: int | None = None
    json: bool = False
    output: Path | None = None
    force: bool = False
    """Replace the output if it is there."""
    job: Job | None = None
    """The command to measure, waiting for its start; None: none. Stdout then belongs to it."""
    intervals: bool = True
    """Whether intervals are printed, or only the summary."""


class Stat:
    """One run: writes numbers as they come and a summary at the end."""

    def __init__(self, options: Options, out: TextIO) -> None:
        self._options = options
        self._out = out
        self._session: Session | None = None
        self._cursor = 0
        self._measurement = Measurement(options.job)
        self._intervals = 0
        plain = not options.json and out in {sys.stdout, sys.stderr} and not utf8()
        self._as_shown: Callable[[str], str] = in_ascii if plain else str

    async def consume(self, stream: Stream) -> None:
        """Reads until the count or duration is reached, the job has ended, or the stream ends."""
        async for messages in stream:
            news = messages
            if isinstance(messages[0], wire.Hello):
                self._begin(messages[0])
                news = messages[1:]
            if self._session is not None and self._take(self._session, news):
                return

    def _take(self, session: Session, messages: list[wire.Message]) -> bool:
        """Takes messages; returns whether the last one wanted was among them."""
        warnings = session.warnings
        for message in session.play([m for m in messages if not self._measurement.early(m)]):
            self._episodes(session)
            if session.warnings is not warnings:  # it is another list with each
                warnings = session.warnings
                print(f"perftop: {printable(warnings[-1])}", file=sys.stderr)
            if isinstance(message, wire.Frame) and self._frame(session, message):
                return True
        return False

    @property
    def bracket(self) -> Bracket | None:
        return self._measurement.bracket

    @property
    def run(self) -> Run | None:
        """The outcome of the job; None until it has ended."""
        return None if self.bracket is None else self.bracket.run

    def finish(self) -> None:
        """Writes the episodes that still run, and the summary."""
        session, bracket, measurement = self._session, self.bracket, self._measurement
        if session is None or measurement.first_ns is None:
            return
        if bracket is not None and (bracket.run is None or bracket.run.failed is not None):
            return  # there was nothing to measure
        for episode in session.running:
            self._episode(session, episode)
        line = measurement.line(session)
        if self._options.json:
            self._line(line)
            return
        lines = [] if self._options.intervals else stat_text.heading(session)
        argv = None if bracket is None else bracket.job.argv
        self._print(lines + stat_text.ending(session, measurement.tally, line, argv))

    def _begin(self, hello: wire.Hello) -> None:
        self._session = Session(hello)
        self._measurement.early(hello)
        if self._options.json:
            self._line(stat_json.hello_line(self._session))
        elif self._options.intervals:
            self._print(stat_text.heading(self._session))

    def _frame(self, session: Session, frame: wire.Frame) -> bool:
        """Handles a frame; returns whether it was the last one wanted."""
        options, measurement = self._options, self._measurement
        assert measurement.first_ns is not None
        # Half a sample of slack: a frame just before a boundary counts as on it.
        slack_ns = options.sample_ns // 2
        if options.intervals and session.span_ns >= options.interval_ns - slack_ns:
            self._interval(session)
        elapsed_ns = frame.time_ns - measurement.first_ns
        over = options.duration_ns is not None and elapsed_ns >= options.duration_ns - slack_ns
        if measurement.over(session, frame) or over:
            if options.intervals and session.span_ns > slack_ns:  # printed with its own length
                self._interval(session)
            return True
        return self._intervals == options.count

    def _interval(self, session: Session) -> None:
        interval = session.take()
        self._intervals += 1
        if self._options.json:
            self._line(stat_json.interval_line(session, interval))
        else:
            self._print(stat_text.table(session, interval))

    def _episodes(self, session: Session) -> None:
        news, self._cursor = session.episodes_since(self._cursor)
        for episode in news:
            self._episode(session, episode)

    def _episode(self, session: Session, episode: Episode) -> None:
        self._measurement.tally.add(episode)
        if self._options.json:
            self._line(stat_json.episode_line(session, episode))
        else:
            self._print([stat_text.episode(session, episode)])

    def _line(self, line: stat_json.Line) -> None:
        self._print([stat_json.text(line)])

    def _print(self, lines: list[str]) -> None:
        self._out.write("".join(printable(self._as_shown(line)) + "\n" for line in lines))
        self._out.flush()


def run(options: Options) -> int:
    """Runs the verb; returns the exit status. Raises Failed, and BrokenPipeError if stdout was
    closed."""
    stat: Stat | None = None
    try:
        with _open(options) as out:
            stat = Stat(options, out)
            return asyncio.run(attend(stat, options.argv))
    except BrokenPipeError:
        if stat is None or stat.run is None:
            raise
        return stat.run.status
    except OSError as error:
        name = options.output or ("stdout" if options.job is None else "stderr")
        failed = errors.unwritten(str(name), error)
    run = None if stat is None else stat.run
    raise Failed(str(failed), (run and run.status) or failed.status)


def _open(options: Options) -> contextlib.AbstractContextManager[TextIO]:
    to_stdout = options.output == Path("-")
    if options.output is not None and not to_stdout:
        out = new_file.create(options.output, force=options.force)
        return io.TextIOWrapper(out, encoding="utf-8")
    standard = sys.stdout if options.job is None or to_stdout else sys.stderr
    if standard is None:  # it was closed; the job must run nevertheless
        return Path(os.devnull).open("w", encoding="utf-8")
    return contextlib.nullcontext(standard)
