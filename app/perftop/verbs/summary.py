"""`perftop summary`: summarises a recording, as a whole or by phase."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perftop.base.errors import DAMAGED, USAGE, Failed
from perftop.base.importing import fast_imports
from perftop.base.text import terminal_text, utf8
from perftop.verbs import headless, options

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.session.session import Session

Moment = int | str | None
"""Nanoseconds after the start, or a time of day as text; None if the option was not given."""
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")


def add(verbs: Any) -> None:
    text = "a recording summed up, as a whole or phase by phase"
    parser = options.add_verb(verbs, "summary", run, text)
    text = "what record has written"
    parser.add_argument("file", type=options.recording, metavar="FILE", help=text)
    parser.add_argument("--by", choices=("mark",), help="a phase from each mark to the next")
    for name, key, text in (("--from", "since", "begins"), ("--to", "until", "ends")):
        moment = f"where it {text}: 30s after the start, or 12:03:05"
        parser.add_argument(name, dest=key, type=place, metavar="TIME", help=moment)
    options.add_json(parser, "one JSON object a phase")


def place(text: str) -> int | str:
    """Parses a moment. Returns a time of day unchanged, or a duration in ns."""
    return text if ":" in text else options.span_ns(text)


def run(args: argparse.Namespace) -> int:
    with fast_imports():
        from perftop.output import stat_lines, summary_text
        from perftop.output.summary_text import Phases
        from perftop.recording.file import open_source, report_damage
        from perftop.session.session import max_batch

    file: Path = args.file
    by_mark = args.by is not None
    with open_source(file) as source:
        start, end = _span(args.since, args.until, source.hello)
        whole_phases = Phases(by_mark=False, has_begun=start.has_come)
        marked_phases = Phases(by_mark=True, has_begun=start.has_come)
        readers = [whole_phases, marked_phases] if by_mark else [whole_phases]
        size = max_batch(source.hello)
        for reader in readers:
            reader.take([source.hello])
        with headless.read_with_progress(source, file) as messages:
            wanted_messages = _messages_until(messages, end, source.hello)
            while batch := list(islice(wanted_messages, size if whole_phases.reached else 1)):
                for reader in readers:
                    reader.take(batch)
        for reader in readers:
            reader.on_end()
    if not whole_phases.phases:
        if args.since is not None or args.until is not None:
            raise Failed(f"{file} has no sample in that time", USAGE)
        damage = f": {source.damage}" if source.damage else ""
        raise Failed(f"{file} has fewer than two samples{damage}", DAMAGED if damage else 1)
    if by_mark and not marked_phases.phases:
        how = "perftop mark NAME inside a command, key m, or SIGUSR1"
        raise Failed(f"no marks in {file}; to set one while recording: {how}", USAGE)
    (total,) = whole_phases.phases
    if args.json:
        lines = [stat_lines.line_text(phase.line) for phase in (*marked_phases.phases, total)]
    else:
        drawn = summary_text.lines(whole_phases.session, marked_phases.phases, total)
        lines = [terminal_text(line, unicode=utf8()) for line in drawn]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return report_damage(file, source)


# --- moments


class _SpanEnd(NamedTuple):
    """A moment of a recording in raw ns, or, for a time of day, in Unix ns."""

    ns: int
    is_unix: bool = False

    def has_come(self, session: Session) -> bool:
        now_ns = session.now_ns
        return (session.unix(now_ns) * 1e9 if self.is_unix else now_ns) >= self.ns


def _messages_until(
    messages: Iterable[wire.Message], end: _SpanEnd | None, hello: wire.Hello
) -> Iterator[wire.Message]:
    """Yields the messages until a moment. The raw clock stands still while the machine is
    suspended, so times of day are compared with the wall clock."""
    from perfprobe import wire
    from perftop.model.differences import asleep_ns

    slept_ns = 0
    for message in messages:
        time_ns = getattr(message, "time_ns", 0)
        if isinstance(message, wire.Frame):
            slept_ns = asleep_ns(message) or slept_ns
        if end is not None and end.is_unix:
            time_ns += hello.wall_ns - hello.raw_ns + slept_ns
        if end is not None and time_ns > end.ns:
            return
        yield message


def _span(since: Moment, until: Moment, hello: wire.Hello) -> tuple[_SpanEnd, _SpanEnd | None]:
    """Returns the moments at which the summary begins and ends; None if it lasts to the end of the
    recording."""
    start = _SpanEnd(hello.raw_ns) if since is None else _moment(since, hello)
    end = None if until is None else _moment(until, hello)
    offset_ns = hello.wall_ns - hello.raw_ns
    first_ns, last_ns = (
        moment.ns + (0 if moment.is_unix else offset_ns) for moment in (start, end or start)
    )
    if end is not None and last_ns <= first_ns:
        raise Failed("--to must be later than --from", USAGE)
    return start, end


def _moment(moment: int | str, hello: wire.Hello) -> _SpanEnd:
    """Returns a moment. A time of day means its first occurrence after the start."""
    if isinstance(moment, int):
        return _SpanEnd(hello.raw_ns + moment)
    match = _CLOCK.fullmatch(moment)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise Failed(f"invalid time of day {moment!r} (try 12:03:05)", USAGE)
    start_s = hello.wall_ns / 1e9
    day = time.localtime(start_s)
    clock = int(match[1]), int(match[2]), int(match[3] or 0)
    # A day with a change to or from summer time is not of 24 hours, which mktime knows.
    times = (
        time.mktime((day.tm_year, day.tm_mon, day.tm_mday + days, *clock, 0, 0, -1))
        for days in (0, 1)
    )
    found_s = next((found_s for found_s in times if found_s >= int(start_s)), start_s)
    return _SpanEnd(max(hello.wall_ns, round(found_s * 1e9)), is_unix=True)
