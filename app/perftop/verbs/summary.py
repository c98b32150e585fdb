"""`perftop summary`: a recording summed up, whole or phase by phase."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from perfprobe import wire
from perftop.base.errors import DAMAGED, USAGE, Failed
from perftop.base.text import in_ascii, printable, utf8
from perftop.output import stat_json
from perftop.output.summary import text
from perftop.output.summary.phase import Phase, json_line, phase
from perftop.recording.file import open_source, report_damage
from perftop.session import marks
from perftop.session.session import MOST_TOGETHER, Session

WHOLE = "whole"
MOST_PHASES = 1000
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
DAY_S = 86_400


Moment = int | str | None
"""ns after the start, or a time of day; None: not asked for."""


@dataclass(slots=True)
class Phases:
    """Cuts a recording. Two sessions: one sums up the phases, one all of it."""

    session: Session
    label: str
    """Name of the phase that runs; '': what is before the first mark is left out."""
    found: list[Phase]

    def mark(self, label: str) -> None:
        self.end()
        self.session.begin_anew()
        self.label = label

    def end(self) -> None:
        if self.label and self.session.frames > 1 and len(self.found) < MOST_PHASES:
            self.found.append(phase(self.session, self.label))


def run(
    file: Path, *, by_mark: bool = False, since: Moment = None, until: Moment = None,
    as_json: bool = False,
) -> int:  # fmt: skip
    """Runs the verb; returns the exit status. Raises Failed."""
    with open_source(file) as source:
        whole, divided = Session(source.hello), Session(source.hello)
        span = _span(since, until, source.hello)
        for session in (whole, divided):
            session.account()
        phases = Phases(divided, "", [])
        there = _play(source.messages(), whole, phases, span, by_mark=by_mark)
    if not there or whole.frames < 2:
        if since is not None or until is not None:
            raise Failed(f"{file}: no sample lies in that time", USAGE)
        why = f": {source.damage}" if source.damage else ""
        raise Failed(f"{file}: there are no two samples in it{why}", DAMAGED if why else 1)
    if by_mark and not phases.found:
        raise Failed(f"{file}: it has no mark with a sample behind it", USAGE)
    _print(whole, phases.found, as_json=as_json)
    return report_damage(file, source)


def _play(
    messages: Iterator[wire.Message], whole: Session, phases: Phases, span: tuple[int, int | None],
    *, by_mark: bool,
) -> bool:  # fmt: skip
    """Whether it reached where the span begins."""
    since_ns, until_ns = span
    begun = since_ns <= whole.hello.raw_ns
    while some := list(islice(messages, MOST_TOGETHER if begun and until_ns is None else 1)):
        if until_ns is not None and _late(some[0], until_ns):
            break
        for _ in whole.play(some):
            pass
        if not begun and whole.now_ns >= since_ns:
            begun = True
            whole.begin_anew()
        for message in phases.session.play(some) if by_mark else ():
            if isinstance(message, wire.Note) and (label := marks.label(message)) is not None:
                phases.mark((label or "no name") if begun else "")
    phases.end()
    return begun


def _late(message: wire.Message, until_ns: int) -> bool:
    return isinstance(message, wire.Frame | wire.Note) and message.time_ns > until_ns


def _print(session: Session, phases: list[Phase], *, as_json: bool) -> None:
    whole = phase(session, WHOLE)
    if as_json:
        lines = [stat_json.text(json_line(one)) for one in (*phases, whole)]
    else:
        lines = [printable(line) for line in text.lines(session, phases, whole)]
        lines = lines if utf8() else [in_ascii(line) for line in lines]
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _span(since: Moment, until: Moment, hello: wire.Hello) -> tuple[int, int | None]:
    """Raw times at which it begins and ends; None: it has no end."""
    since_ns = hello.raw_ns if since is None else _raw_ns(since, hello)
    until_ns = None if until is None else _raw_ns(until, hello)
    if until_ns is not None and until_ns <= since_ns:
        raise Failed("--to is not behind --from", USAGE)
    return since_ns, until_ns


def _raw_ns(at: int | str, hello: wire.Hello) -> int:
    """A time of day is the first one after the start."""
    if isinstance(at, int):
        return hello.raw_ns + at
    import time

    match = _CLOCK.fullmatch(at)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise Failed(f"{at!r} is no time of day such as 12:03:05", USAGE)
    start_s = hello.wall_ns / 1e9
    day = time.localtime(start_s)
    clock = int(match[1]), int(match[2]), int(match[3] or 0)
    found_s = time.mktime((day.tm_year, day.tm_mon, day.tm_mday, *clock, 0, 0, -1))
    found_s += DAY_S if found_s < int(start_s) else 0
    return hello.raw_ns + max(0, round((found_s - start_s) * 1e9))
