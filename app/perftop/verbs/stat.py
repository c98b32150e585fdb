"""`perftop stat`: the numbers as text or JSON lines, no screen."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import TextIO

from perfprobe import wire
from perfprobe.frozen import frozen
from perftop.base import errors
from perftop.base.errors import USAGE, Failed
from perftop.base.text import in_ascii, printable, utf8
from perftop.model.episode import Episode
from perftop.model.registry import EVENT, RARE
from perftop.output import stat_columns, stat_json, stat_text
from perftop.output.export.fields import chosen, with_events
from perftop.output.export.json_lines import only
from perftop.output.live_measurement import Measurement
from perftop.output.stat_table import SCREENFUL, StatTable
from perftop.process.command_window import UNNAMED, CommandStart, CommandWindow, Identity
from perftop.process.job import Job, Run
from perftop.process.signals import write_text
from perftop.process.streams import REST_S, Stream
from perftop.session.beginnings import Beginnings
from perftop.session.session import Session
from perftop.verbs.run_headless import attend, attend_all, destination, told


@frozen
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
    start: CommandStart | None = None
    """The job's one run, where several machines are measured around it."""
    name: str | None = None
    """The machine, to be told with all that is printed of it; None: there is one only."""
    metrics: Sequence[str] | None = None
    """Which numbers, by key or by column of an export; None: the usual ones."""
    brief: bool = False
    """Whether only the machine is told, a line an interval."""
    identity: Identity = UNNAMED


class Stat:
    """One run: writes numbers as they come and a summary at the end."""

    def __init__(self, options: Options, out: TextIO) -> None:
        self._options = options
        self._out = out
        self._session: Session | None = None
        self._cursor, self._beginnings = 0, Beginnings()
        rest_s = 0.0 if options.intervals else REST_S
        self._measurement = Measurement(options.job, options.start, rest_s)
        self._intervals = 0
        self._measures = chosen(options.metrics)
        self._asked = None if options.metrics is None else _asked(options.metrics)
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
        for message in session.play([m for m in messages if self._measurement.admit(m)]):
            self._episodes(session)
            if session.warnings is not warnings:  # it is another list with each
                warnings = session.warnings
                whose = f"{self._options.name}: " if self._options.name else ""
                write_text(sys.stderr, f"perftop: {whose}{printable(warnings[-1])}\n")
            if isinstance(message, wire.Frame) and self._frame(session, message):
                return True
        return False

    @property
    def bracket(self) -> CommandWindow | None:
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
            self._line(only(line, self._measures))
            return
        lines = self._whose()
        lines += [] if self._options.intervals else stat_text.heading(session)
        argv = None if bracket is None else bracket.job.argv
        brief = self._options.brief
        tally = measurement.tally
        end = stat_text.ending(session, tally, line, argv, self._asked, brief=brief)
        self._print(lines + end)

    def _begin(self, hello: wire.Hello) -> None:
        self._session = Session(self._options.identity.on(hello))
        self._measures = with_events(self._session, self._measures, self._options.metrics)
        self._measurement.begin(hello)
        if self._options.job is not None:
            self._session.account()
        brief, height = self._options.brief, _height(self._out)
        self._table = StatTable(self._session, self._asked, brief=brief, height=height)
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
        if measurement.follow(session, frame) or over:
            if options.intervals and session.span_ns > slack_ns:  # printed with its own length
                self._interval(session)
            return True
        return self._intervals == options.count

    def _interval(self, session: Session) -> None:
        interval = session.take()
        self._intervals += 1
        if self._options.json:
            self._line(only(stat_json.interval_line(session, interval), self._measures))
        else:
            self._print([*self._whose(), *self._table.lines(interval)])

    def _episodes(self, session: Session) -> None:
        news, self._cursor = session.episodes_since(self._cursor)
        for episode in news:
            self._episode(session, episode)
        if not self._options.intervals:
            return
        for episode in self._beginnings.of(session.running):
            if self._options.json:
                self._line(stat_json.beginning_line(session, episode))
            else:
                self._tell(session, episode)

    def _episode(self, session: Session, episode: Episode) -> None:
        """One that has ended, or that still runs at the end."""
        self._measurement.tally.add(episode, session.now_ns)
        if self._options.json:
            self._line(stat_json.episode_line(session, episode))
        elif not self._beginnings.known(episode) or episode.end_ns is not None:
            self._tell(session, episode)

    def _tell(self, session: Session, episode: Episode) -> None:
        whose = f"{self._options.name}: " if self._options.name else ""
        self._print([whose + stat_text.episode(session, episode)])

    def _whose(self) -> list[str]:
        """A line before those of one machine of several."""
        return [] if self._options.name is None else ["", f"=== {self._options.name}"]

    def _line(self, line: stat_json.Line) -> None:
        whose = {} if self._options.name is None else {"from": self._options.name}
        self._print([stat_json.text(line | whose)])

    def _print(self, lines: list[str]) -> None:
        write_text(self._out, "".join(printable(self._as_shown(line)) + "\n" for line in lines))


def run(each: Sequence[Options]) -> int:
    """Runs the verb on one machine, or on several side by side, whose options differ in argv and
    name; returns the exit status. Raises Failed, and BrokenPipeError if stdout was closed."""
    stat: Stat | None = None
    options = each[0]
    most_s = inf if options.duration_ns is None else options.duration_ns / 1e9
    if options.count is not None:
        most_s = options.count * options.interval_ns / 1e9
    try:
        with destination(options.output, force=options.force, job=options.job is not None) as out:
            stats = [Stat(one, out) for one in each]
            stat = stats[0]
            if len(stats) == 1:
                return asyncio.run(attend(stat, options.argv, most_s))
            works = [(one, each[i].argv) for i, one in enumerate(stats)]
            return told(*asyncio.run(attend_all(works, most_s)))
    except BrokenPipeError:
        if stat is None or stat.run is None:
            raise
        return stat.run.status
    except OSError as error:
        name = options.output or ("stdout" if options.job is None else "stderr")
        failed = errors.cannot_write(str(name), error)
    run = None if stat is None else stat.run
    raise Failed(str(failed), (run and run.status) or failed.status)


def _asked(names: Sequence[str]) -> list[str]:
    """Keys of the columns of a table. Raises Failed."""
    keys = [field.key for field in chosen(names)]
    events = [name for name in names if name.startswith(EVENT) or name in RARE]
    for key in keys:
        if not stat_columns.known(key):
            raise Failed(f"--metrics: {key!r} has no column in a table; --json tells it", USAGE)
    return keys + events


def _height(out: TextIO) -> int:
    return shutil.get_terminal_size((80, SCREENFUL)).lines if out.isatty() else SCREENFUL
