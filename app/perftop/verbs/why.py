"""`perftop why` reports the causes that cost the most time, with evidence, in about a dozen lines.
`perftop summary` summarises a recording, in total or by phase."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perftop.base.errors import DAMAGED, USAGE, Failed
from perftop.base.text import supports_unicode, terminal_text
from perftop.verbs import options

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.session.session import Session

EPILOG = (
    "-- CMD [ARG …] runs a command and reports on stderr how much time it lost, and to what. The "
    "exit status is the command's; without a command it is 0, even if no cause was found."
)


def add_parser(subparsers: Any) -> None:
    text = "show the causes that cost the most time here, with evidence"
    interval = "1s; affects only the default of --sample"
    parser = options.add_verb(
        subparsers, "why", run, text, stream=True, epilog=EPILOG, interval=interval
    )
    text = "a recording (- for stdin) to read, instead of measuring"
    parser.add_argument("file", nargs="?", type=options.parse_recording, metavar="FILE", help=text)
    options.add_duration_options(parser, "length of the measurement (default: 10s); not with CMD")
    options.add_json_options(parser)
    options.add_output_options(parser)
    parser.set_defaults(runs=True)


def run(args: argparse.Namespace) -> int:
    if args.file is not None:
        return _run_on_file(args)
    _, sample_ns = options.interval_and_sample(args)
    with options.fork_job(args) as job:
        from perftop.process import launch

        duration_ns = args.duration or options.WHY_DURATION_NS
        batch_ns = launch.longest_batch_ns(sample_ns, options.STAT_INTERVAL_NS, duration_ns)
        argv = options.stream_command(args, sample_ns, batch_ns, job)
        with options.fast_imports():
            from perftop.process.signals import run_loop
            from perftop.verbs.headless import open_output
            from perftop.verbs.measuring import Why
            from perftop.verbs.running import run_consumer

            work = Why(args, job)
        status = 0
        with open_output(args, lambda: work.command_status) as work.out:
            status = run_loop(run_consumer, work, argv)
        return status or (work.status if job is None else work.command_status)


def _run_on_file(args: argparse.Namespace) -> int:
    if args.command is not None:
        raise Failed("give a recording or a command, not both", USAGE)
    if args.duration is not None or args.interval is not None:
        option = "-i" if args.duration is None else "--duration"
        text = f"{option} is only for measuring; part of a recording: perftop summary --from --to"
        raise Failed(text, USAGE)
    options.refuse_probe_options(args, "is only for measuring; the recording has its own")
    with options.fast_imports():
        from perftop.recording.file import check_output_path, open_source, report_damage
        from perftop.verbs.headless import open_output, read_with_progress
        from perftop.verbs.measuring import Why

        work = Why(args)
    path: Path = args.file
    if args.output is not None:
        check_output_path(path, args.output)
    with open_output(args) as work.out:
        try:
            with open_source(path) as source:
                work.process([source.hello])
                with read_with_progress(source, path) as messages:
                    work.process(messages)
        except Failed as failed:
            hint, program = "", str(path)
            if path.exists() and not path.is_absolute():
                program = f"./{path}"
            if shutil.which(program):
                hint = f"; to measure a command: perftop why -- {shlex.quote(program)}"
            elif not path.exists():
                with contextlib.suppress(argparse.ArgumentTypeError):
                    options.parse_duration_ns(str(path))
                    hint = f"; length of a measurement: --duration {path}"
            raise Failed(f"{failed}{hint}", failed.status) from None
        work.on_end()
    return report_damage(path, source) or work.status


# --- `perftop summary`

_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")


def add_summary(subparsers: Any) -> None:
    text = "summarise a recording, as a whole or phase by phase"
    parser = options.add_verb(subparsers, "summary", run_summary, text)
    text = "a recording, or - for stdin"
    parser.add_argument("file", type=options.parse_recording, metavar="FILE", help=text)
    text = "summarise each phase, from mark to mark"
    parser.add_argument("--by", choices=("mark",), metavar="mark", help=text)
    for name, key, text in (("--from", "since", "start"), ("--to", "until", "end")):
        moment = (
            f"{text} of the part to summarise: 30s (since the start) or 12:03:05 "
            f"(default: {text} of FILE)"
        )
        parser.add_argument(name, dest=key, type=parse_moment, metavar="TIME", help=moment)
    options.add_json_options(parser, "print one JSON object per phase")


def parse_moment(text: str) -> int | str:
    """Parses the argument of --from or --to. Returns ns after the start, or a time of day
    unchanged."""
    return text if ":" in text else options.parse_duration_ns(text)


def run_summary(args: argparse.Namespace) -> int:
    with options.fast_imports():
        from perftop.output import stat_lines, summary_text
        from perftop.output.summary_text import Phases
        from perftop.recording.file import damage_suffix, open_source, report_damage
        from perftop.session.session import max_batch
        from perftop.verbs.headless import read_with_progress

    file: Path = args.file
    by_mark = args.by is not None
    with open_source(file) as source:
        hello, start = source.hello, _moment(args.since or 0, source.hello)
        end = None if args.until is None else _moment(args.until, hello)
        if end is not None and end.unix_ns <= start.unix_ns:
            raise Failed("--to must be later than --from", USAGE)
        whole_phases, marked_phases = (
            Phases(by_mark=marked, has_begun=start.has_begun, by_cpu=args.json)
            for marked in (False, True)
        )
        readers = [whole_phases, marked_phases] if by_mark else [whole_phases]
        for reader in readers:
            reader.process([hello])
        with read_with_progress(source, file) as messages:
            wanted_messages = messages if end is None else _messages_until(messages, end, hello)
            step = max_batch(hello) if whole_phases.has_reached_start else 1
            while batch := list(islice(wanted_messages, step)):
                for reader in readers:
                    reader.process(batch)
        for reader in readers:
            reader.on_end()
    if not whole_phases.phases:
        if args.since is not None or args.until is not None:
            raise Failed(f"{file} has no samples in that range", USAGE)
        damage = damage_suffix(source)
        raise Failed(f"{file} has fewer than two samples{damage}", DAMAGED if damage else 1)
    if by_mark and not marked_phases.phases:
        advice = "perftop mark NAME inside a command, key m, or SIGUSR1"
        raise Failed(f"no marks in {file}; to set one while recording: {advice}", USAGE)
    (total,) = whole_phases.phases
    if args.json:
        lines = [stat_lines.line_text(phase.line) for phase in (*marked_phases.phases, total)]
    else:
        texts = summary_text.lines(whole_phases.session, marked_phases.phases, total)
        lines = [terminal_text(line, unicode=supports_unicode()) for line in texts]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return report_damage(file, source)


# --- moments of a recording


class _Moment(NamedTuple):
    """A moment of a recording."""

    unix_ns: int
    """The Unix time in ns; unless `is_clock`, as if the machine was never suspended."""
    is_clock: bool = False
    """Whether it was given as a time of day. The raw clock stops during a suspension."""

    def has_begun(self, session: Session) -> bool:
        hello = session.hello
        raw_unix_ns = session.now_ns + hello.wall_ns - hello.raw_ns
        now_ns = session.unix_s(session.now_ns) * 1e9 if self.is_clock else raw_unix_ns
        return now_ns >= self.unix_ns


def _messages_until(
    messages: Iterable[wire.Message], end: _Moment, hello: wire.Hello
) -> Iterator[wire.Message]:
    from perfprobe import wire
    from perftop.model.differences import suspended_ns

    slept_ns = 0
    for message in messages:
        if isinstance(message, wire.Frame):
            slept_ns = suspended_ns(message) or slept_ns
        unix_ns = getattr(message, "time_ns", 0) + hello.wall_ns - hello.raw_ns
        if unix_ns + (slept_ns if end.is_clock else 0) > end.unix_ns:
            return
        yield message


def _moment(moment: int | str, hello: wire.Hello) -> _Moment:
    """Converts ns after the start, or a time of day, which is its first occurrence after the start.
    Raises Failed."""
    if isinstance(moment, int):
        return _Moment(hello.wall_ns + moment)
    match = _CLOCK.fullmatch(moment)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59:
        raise Failed(f"invalid time of day {moment!r} (try 12:03:05)", USAGE)
    start_s = hello.wall_ns / 1e9
    day = time.localtime(start_s)
    clock = int(match[1]), int(match[2]), int(match[3] or 0)
    # mktime also handles days on which summer time begins or ends.
    dates = ((day.tm_year, day.tm_mon, day.tm_mday + days) for days in (0, 1))
    times_s = (time.mktime((*date, *clock, 0, 0, -1)) for date in dates)
    first_s = next((time_s for time_s in times_s if time_s >= int(start_s)), start_s)
    return _Moment(max(hello.wall_ns, round(first_s * 1e9)), is_clock=True)
