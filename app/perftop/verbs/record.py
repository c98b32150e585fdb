"""`perftop record`: writes a stream to a file, without a screen. With --ring or --on, only selected
parts of the stream are kept."""

from __future__ import annotations

import argparse
import re
from math import inf
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.base.text import did_you_mean
from perftop.verbs import options

BATCH_NS = 500_000_000
"""Time in ns between two writes of the probe, and so the most that is missing at the end of a
recording if perftop or the probe is killed. Recording costs little except wake-ups: with 200 ms, it
costs twice as much."""
MIN_TRIGGERED_RING_NS = 60_000_000_000
"""Minimum of --ring with --on: in a shorter ring, the 30 s before an episode, or its start, can be
lost before the episode is detected."""
EPILOG = (
    "-- CMD [ARG …] runs a command, records it from just before it starts to just after it ends, "
    "and prints a summary on stderr. The exit status is the command's. SIGUSR1 sets a mark."
)


def add_parser(subparsers: Any) -> None:
    text = "record measurements to a file, without a screen"
    interval = "1s; stored in FILE, and used by export"
    parser = options.add_verb(
        subparsers, "record", run, text, stream=True, epilog=EPILOG, interval=interval
    )
    text = "recording to write (required); a directory with --ring, --on or several --host"
    parser.add_argument("-o", "--output", type=options.parse_file_path, metavar="FILE", help=text)
    text = "keep only the last TIME (default with --on: 10m); SIGUSR1 or the key m saves all of it"
    parser.add_argument("--ring", type=options.parse_duration_ns, metavar="TIME", help=text)
    text = (
        "save episodes of these kinds or causes (neighbour,thermal …), with 30 s before and after"
    )
    parser.add_argument("--on", metavar="KIND,KIND", help=text)
    text = "maximum size of the directory of --ring or --on (default: 1G)"
    parser.add_argument("--max-size", type=size_bytes, metavar="SIZE", help=text)
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
        with options.fast_imports():
            from perftop.process.command_window import CommandStart
            from perftop.process.signals import run_loop
            from perftop.recording import ring, writer
            from perftop.verbs import headless, running
            from perftop.verbs.recorder import StreamRecorder, is_ring
        args.on = episode_kinds(args.on)
        if args.max_size is not None and not is_ring(args):
            raise Failed("--max-size is only for --ring or --on", USAGE)
        if args.on and args.ring is not None and args.ring < MIN_TRIGGERED_RING_NS:
            text = "--on saves 30 s before each episode, for which this --ring is too short"
            raise Failed(f"{text} (try --ring 1m)", USAGE)
        paths = [args.output]
        if len(commands) > 1:
            paths = headless.output_paths(args.output, args.hosts)
        for path in paths:
            if is_ring(args):
                ring.check_path(path)
            else:
                writer.check_path(path, force=args.force)
        start = None if job is None else CommandStart(job, len(commands))
        records = [
            StreamRecorder(args, path, job, start, name)
            for (name, _), path in zip(commands, paths, strict=True)
        ]
        for record in records:
            record.all_records = records
        consumers = [(record, argv) for record, (_, argv) in zip(records, commands, strict=True)]
        max_s = inf if args.duration is None else args.duration / 1e9
        status, failed = run_loop(running.run_consumers, consumers, max_s)
    if failed == [None] and not records[0].has_begun:
        text = "nothing was recorded: the recording ended before the first sample"
        raise Failed(text, status or 1)
    if job is None:
        status = 0  # a signal is a normal end
    return running.report_failures(status or max(commands.status for commands in records), failed)


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
