"""`perftop stat`: the numbers as text or JSON lines, no screen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from perfprobe import wire
from perftop import export, report
from perftop.detect import Episode
from perftop.failed import Failed
from perftop.session import Session
from perftop.stream import Stream, spawn


@dataclass(frozen=True, slots=True)
class Options:
    argv: list[str]
    """The probe to run."""
    interval_ns: int
    sample_ns: int
    count: int | None = None
    duration_ns: int | None = None
    json: bool = False
    output: Path | None = None


class Stat:
    """One run: writes as it goes, sums up at the end."""

    def __init__(self, options: Options, out: TextIO) -> None:
        self._options = options
        self._out = out
        self._session: Session | None = None
        self._counted: dict[str, Counter[str]] = {}
        self._first_ns: int | None = None
        self._intervals = 0

    async def consume(self, stream: Stream) -> None:
        """Until the count or duration is reached, or the stream ends."""
        async for message in stream:
            if isinstance(message, wire.Hello):
                self._begin(message)
            elif self._session is not None:
                self._session.apply(message)
                self._episodes(self._session)
                if isinstance(message, wire.Note) and message.kind == "warning":
                    print(f"perftop: {self._session.warnings[-1]}", file=sys.stderr)
                if isinstance(message, wire.Frame) and self._frame(self._session, message):
                    return

    def finish(self) -> None:
        """What is still running, and the summary."""
        session = self._session
        if session is None or self._first_ns is None:
            return
        for episode in session.detector.running:
            self._episode(session, episode)
        counted = {kind: dict(causes) for kind, causes in self._counted.items()}
        elapsed_s = (session.now_ns - self._first_ns) / 1e9
        if self._options.json:
            self._line(export.summary_line(session, counted, elapsed_s))
        elif session.frames > 1:
            self._print(report.summary(session, counted, elapsed_s))

    def _begin(self, hello: wire.Hello) -> None:
        self._session = Session(hello)
        if self._options.json:
            self._line(export.hello_line(self._session))
        else:
            self._print(report.heading(self._session))

    def _frame(self, session: Session, frame: wire.Frame) -> bool:
        """Whether this frame was the last that is wanted."""
        if self._first_ns is None:
            self._first_ns = frame.time_ns
        options = self._options
        # Half a sample early: a deadline that is a hair short of the boundary belongs to it.
        slack_ns = options.sample_ns // 2
        if session.span_ns >= options.interval_ns - slack_ns:
            self._interval(session)
        elapsed_ns = frame.time_ns - self._first_ns
        if options.duration_ns is not None and elapsed_ns >= options.duration_ns - slack_ns:
            if session.span_ns > slack_ns:  # what is left is shorter, and says so
                self._interval(session)
            return True
        return self._intervals == options.count

    def _interval(self, session: Session) -> None:
        interval = session.take()
        self._intervals += 1
        if self._options.json:
            self._line(export.interval_line(session, interval))
        else:
            self._print(report.table(session, interval))

    def _episodes(self, session: Session) -> None:
        while session.ended:
            self._episode(session, session.ended.pop(0))

    def _episode(self, session: Session, episode: Episode) -> None:
        self._counted.setdefault(episode.kind, Counter())[episode.cause] += 1
        if self._options.json:
            self._line(export.episode_line(session, episode))
        else:
            self._print([report.episode(session, episode)])

    def _line(self, line: export.Line) -> None:
        self._print([json.dumps(line, ensure_ascii=False, separators=(",", ":"))])

    def _print(self, lines: list[str]) -> None:
        self._out.write("".join(line + "\n" for line in lines))
        self._out.flush()


def run(options: Options) -> int:
    """The exit status. Raises Failed, and BrokenPipeError where stdout was closed."""
    try:
        with _open(options.output) as out:
            return asyncio.run(_run(options, out))
    except BrokenPipeError:
        raise
    except OSError as error:
        name = options.output or "stdout"
        raise Failed(f"cannot write {name}: {error.strerror or error}") from None


def _open(path: Path | None) -> contextlib.AbstractContextManager[TextIO]:
    if path is None:
        return contextlib.nullcontext(sys.stdout)
    return path.open("w", encoding="utf-8")


async def _run(options: Options, out: TextIO) -> int:
    stat = Stat(options, out)
    loop = asyncio.get_running_loop()
    async with spawn(options.argv) as stream:
        task = asyncio.ensure_future(stat.consume(stream))
        caught: list[int] = []

        def stop(number: int) -> None:
            caught.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            await task
        except asyncio.CancelledError:
            pass
        except Failed:
            stat.finish()  # all that was measured is still true
            raise
        stat.finish()
    return 128 + caught[0] if caught else 0
