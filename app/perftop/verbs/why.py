"""`perftop why`: what cost most time, with evidence, in a dozen lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from perfprobe import wire
from perfprobe.frozen import frozen
from perftop.base.errors import USAGE, cannot_write, complain
from perftop.base.format import length
from perftop.base.text import colours, utf8
from perftop.output import stat_json
from perftop.output.live_measurement import Measurement
from perftop.output.run_summary import run_line
from perftop.output.why import json_line, text
from perftop.output.why.report import report
from perftop.process.command_window import CommandWindow
from perftop.process.job import Job
from perftop.process.streams import REST_S, Stream
from perftop.recording.file import open_source, report_damage
from perftop.session.session import Session
from perftop.verbs.run_headless import attend, destination

LONGEST_NS = 10_000_000_000
"""How long we look without a command."""


@frozen
class Options:
    argv: list[str]
    """Command line of the probe; empty: a recording is read."""
    duration_ns: int = LONGEST_NS
    json: bool = False
    job: Job | None = None
    """The command to look at, waiting for its start; None: none. Stdout then belongs to it."""
    file: Path | None = None
    output: Path | None = None
    force: bool = False
    """Replace the output if it is there."""


class Why:
    """One look; what was found is written at the end."""

    def __init__(self, options: Options, out: TextIO) -> None:
        self._options, self._out = options, out
        self.told = False
        """Whether there was something to write at the end."""
        self._session: Session | None = None
        self._measurement = Measurement(options.job, rest_s=REST_S)
        err = sys.stderr
        self._waits = options.job is None and bool(options.argv) and err is not None and (
            err.isatty())  # fmt: skip

    @property
    def bracket(self) -> CommandWindow | None:
        return self._measurement.bracket

    async def consume(self, stream: Stream) -> None:
        """Reads until the time is up, the job has ended, or the stream ends."""
        async for messages in stream:
            if isinstance(hello := messages[0], wire.Hello):
                self.begin(hello)
                del messages[0]
            if self.take(messages):
                return

    def take(self, messages: Iterable[wire.Message]) -> bool:
        """Takes messages after a hello; returns whether the last one wanted was among them."""
        session, measurement = self._session, self._measurement
        assert session is not None
        for message in session.play(m for m in messages if measurement.admit(m)):
            if isinstance(message, wire.Frame) and self._over(session, message):
                return True
        return False

    def begin(self, hello: wire.Hello) -> None:
        self._session = Session(hello)
        self._measurement.begin(hello)
        self._session.account(-1 if self._options.job is None else self._options.job.pid)
        if self._waits:
            span = length(self._options.duration_ns)
            print(f"looking for {span} …\r", end="", file=sys.stderr, flush=True)

    def _over(self, session: Session, frame: wire.Frame) -> bool:
        if self._measurement.follow(session, frame):
            return True
        first_ns, options = self._measurement.first_ns, self._options
        timed = bool(options.argv) and options.job is None and first_ns is not None
        slack_ns = session.hello.sample_ns // 2
        return timed and frame.time_ns - (first_ns or 0) >= options.duration_ns - slack_ns

    def finish(self) -> None:
        session, first_ns, bracket = self._session, self._measurement.first_ns, self.bracket
        if self._waits:
            print("\x1b[K", end="", file=sys.stderr, flush=True)
        if session is None:
            return
        if bracket is not None and (bracket.run is None or bracket.run.failed is not None):
            return
        if first_ns is None or session.frames < 2:
            complain("fewer than two samples were seen: nothing can be told")
            return
        self.told = True
        job, past = self._options.job, self._options.file is not None
        ours = job is not None and session.neighbours.watching.name == str(job.pid)
        name = None if job is None or not ours else Path(job.argv[0]).name
        found = report(session, first_ns, name, past=past)
        if self._options.json:
            run = None if bracket is None else run_line(session, bracket)
            self._print([stat_json.text(json_line.line(session, found, run))])
            return
        self._print(text.lines(session, found, colour=colours(self._out), unicode=utf8()))

    def _print(self, lines: list[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()


def run(options: Options) -> int:
    """Runs the verb; returns the exit status. Raises Failed, and BrokenPipeError if stdout was
    closed."""
    try:
        with destination(options.output, force=options.force, job=options.job is not None) as out:
            why = Why(options, out)
            if options.file is not None:
                return _read(why, options.file)
            return asyncio.run(attend(why, options.argv))
    except OSError as error:
        if options.output in {None, Path("-")}:
            raise
        raise cannot_write(str(options.output), error) from None


def _read(why: Why, path: Path) -> int:
    with open_source(None if str(path) == "-" else path) as source:
        why.begin(source.hello)
        why.take(source.messages())
    why.finish()
    return report_damage(path, source) or (0 if why.told else USAGE)
