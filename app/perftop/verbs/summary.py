"""`perftop summary`: summarises a recording, as a whole or by phase."""

from __future__ import annotations

import argparse
import re
import sys
import time
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftop.base.errors import DAMAGED, USAGE, Failed
from perftop.base.importing import lean
from perftop.base.text import in_ascii, printable, utf8
from perftop.verbs import headless, options

if TYPE_CHECKING:
    from perfprobe import wire

Moment = int | str | None
"""Nanoseconds after the start, or a time of day as text; None if the option was not given."""
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
DAY_S = 86_400


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
    with lean():
        from perftop.output import stat_json, summary_text
        from perftop.output.summary_text import Phases, phase_json
        from perftop.recording.file import open_source, report_damage
        from perftop.session.session import max_batch

    file: Path = args.file
    by_mark = args.by is not None
    with open_source(file) as source:
        since_ns, until_ns = _span(args.since, args.until, source.hello)
        whole_phases = Phases(by_mark=False, since_ns=since_ns)
        marked_phases = Phases(by_mark=True, since_ns=since_ns)
        readers = [whole_phases, marked_phases] if by_mark else [whole_phases]
        size = max_batch(source.hello)
        for reader in readers:
            reader.take([source.hello])
        with headless.read_with_progress(source, file) as messages:
            wanted_messages = takewhile(
                lambda m: until_ns is None or _time_ns(m) <= until_ns, messages
            )
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
        raise Failed(f"no marks in {file}: press m while recording, or send SIGUSR1", USAGE)
    (total,) = whole_phases.phases
    if args.json:
        lines = [stat_json.text(phase_json(phase)) for phase in (*marked_phases.phases, total)]
    else:
        lines = [
            printable(line)
            for line in summary_text.lines(whole_phases.session, marked_phases.phases, total)
        ]
        lines = lines if utf8() else [in_ascii(line) for line in lines]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return report_damage(file, source)


# --- moments


def _time_ns(message: wire.Message) -> int:
    return getattr(message, "time_ns", 0)


def _span(since: Moment, until: Moment, hello: wire.Hello) -> tuple[int, int | None]:
    """Returns the raw times in ns at which the summary begins and ends; None if it lasts to the end
    of the recording."""
    since_ns = hello.raw_ns if since is None else _raw_ns(since, hello)
    until_ns = None if until is None else _raw_ns(until, hello)
    if until_ns is not None and until_ns <= since_ns:
        raise Failed("--to must be later than --from", USAGE)
    return since_ns, until_ns


def _raw_ns(moment: int | str, hello: wire.Hello) -> int:
    """Returns the raw time of a moment, in ns. A time of day means its first occurrence after the
    start."""
    if isinstance(moment, int):
        return hello.raw_ns + moment
    match = _CLOCK.fullmatch(moment)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise Failed(f"invalid time of day {moment!r} (try 12:03:05)", USAGE)
    start_s = hello.wall_ns / 1e9
    day = time.localtime(start_s)
    clock = int(match[1]), int(match[2]), int(match[3] or 0)
    found_s = time.mktime((day.tm_year, day.tm_mon, day.tm_mday, *clock, 0, 0, -1))
    found_s += DAY_S if found_s < int(start_s) else 0
    return hello.raw_ns + max(0, round((found_s - start_s) * 1e9))
