"""Verbs that measure for a while, around a command or not: stat, why, record."""

from __future__ import annotations

import argparse
import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perftop.base.errors import USAGE, Failed
from perftop.base.importing import lean
from perftop.commands.arguments import (
    COMMAND,
    EXPLAINED,
    RECORDED,
    count,
    repeats,
    size_bytes,
    span_ns,
)  # fmt: skip
from perftop.commands.options import (
    METRICS,
    STAT_INTERVAL_NS,
    add_attach,
    add_force,
    add_label,
    held,
    identity_of,
    machines,
    shared,
    stream_of,
    times,
)  # fmt: skip

if TYPE_CHECKING:
    from perftop.process.job import Job

RECORD_BATCH_NS = 200_000_000
"""What a recording may lack at its end if perftop or the probe is killed."""
RING_NS = 600_000_000_000
"""What a black box holds where only --on is given."""
MOST_BYTES = 1_000_000_000


def add_stat(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "the numbers as text or JSON, without a screen"
    stat = verbs.add_parser("stat", parents=[watch], help=text, epilog=COMMAND)
    stat.add_argument("-n", "--count", type=count, metavar="N", help="stop after N intervals")
    stat.add_argument("--duration", type=span_ns, metavar="TIME", help="stop after this long")
    stat.add_argument(
        "-r", "--repeat", type=count, metavar="N",
        help="run CMD N times, and tell how far the means can be believed",
    )  # fmt: skip
    stat.add_argument(
        "--warmup", type=count, default=0, metavar="K",
        help="with -r: run CMD K times before that, uncounted",
    )  # fmt: skip
    shown = stat.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="one JSON object a line")
    shown.add_argument(
        "--brief", action="store_true", help="one line an interval, of the whole machine"
    )
    stat.add_argument("--metrics", metavar="A,B", help=METRICS)
    _add_output(stat)
    add_label(stat)
    add_attach(stat)
    stat.set_defaults(verb=_stat, runs=True, several=True)


def add_why(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "what costs most time here, with evidence"
    why = verbs.add_parser("why", parents=[watch], help=text, epilog=EXPLAINED)
    why.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="a recording, or - for stdin"
    )
    why.add_argument(
        "--duration", type=span_ns, metavar="TIME", help="how long to look (default: 10s)"
    )
    why.add_argument("--json", action="store_true", help="one JSON object")
    _add_output(why)
    why.set_defaults(verb=_why, runs=True)


def add_record(verbs: Any, watch: argparse.ArgumentParser) -> None:
    text = "write what is measured to a file, without a screen"
    record = verbs.add_parser("record", parents=[watch], help=text, epilog=RECORDED)
    text = "the file to write; a directory for several --host"
    record.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    text = "keep only the last TIME, in a directory; USR1 or m keeps it for good"
    record.add_argument("--ring", type=span_ns, metavar="TIME", help=text)
    text = "keep 30 s around episodes of these kinds: turbo-drop,neighbour …"
    record.add_argument("--on", metavar="KIND,KIND", help=text)
    record.add_argument(
        "--max-size", type=size_bytes, default=MOST_BYTES, metavar="SIZE",
        help="limit for all that --ring or --on keep (default: 1G)",
    )  # fmt: skip
    record.add_argument(
        "--print-unit", action="store_true", help="print the systemd service of a black box"
    )
    add_force(record)
    record.add_argument("--duration", type=span_ns, metavar="TIME", help="stop after this long")
    add_label(record)
    add_attach(record)
    record.set_defaults(verb=_record, runs=True, several=True)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to this file; - is stdout"
    )
    add_force(parser)


def _stat(options: argparse.Namespace) -> int:
    interval_ns, sample_ns = times(options, STAT_INTERVAL_NS)
    if repeats(options):
        return _repeat(options, interval_ns, sample_ns)
    with held(options) as job:
        from perftop.process import launch as batches

        batch_ns = batches.longest_batch_ns(sample_ns, interval_ns, options.duration)
        each = machines(options, sample_ns, batch_ns, job)
        with lean():
            from perftop.verbs import stat

        start, identity = shared(job, each), identity_of(options)
        intervals = job is None or options.interval is not None
        metrics = options.metrics and options.metrics.split(",")
        return stat.run([
            stat.Options(
                argv, interval_ns, sample_ns, options.count, options.duration, options.json,
                options.output, options.force, job, intervals, start, name, metrics,
                options.brief, identity,
            )
            for name, argv in each
        ])  # fmt: skip


def _repeat(options: argparse.Namespace, interval_ns: int, sample_ns: int) -> int:
    with lean():
        from perftop.verbs import repeat, stat

    def one(job: Job) -> stat.Options:
        argv = stream_of(options, sample_ns, sample_ns, job)
        return stat.Options(
            argv, interval_ns, sample_ns, json=True, job=job, intervals=False,
            identity=identity_of(options),
        )  # fmt: skip

    return repeat.run(
        repeat.Plan(
            options.command, options.repeat, options.warmup, one, options.json,
            options.output, options.force,
        )
    )  # fmt: skip


def _no_file(path: Path) -> str:
    """What may have been meant by what is no recording."""
    program = f"./{path}" if path.exists() and not path.is_absolute() else str(path)
    if shutil.which(program):
        return f"; to measure a command: perftop why -- {program}"
    with contextlib.suppress(argparse.ArgumentTypeError):
        span_ns("" if path.exists() else str(path))
        return f"; how long to look: --duration {path}"
    return ""


def _why(options: argparse.Namespace) -> int:
    with lean():
        from perftop.verbs import why

    told = {"json": options.json, "output": options.output, "force": options.force}
    if options.file is not None:
        if options.command is not None:
            raise Failed("a recording or a command, not both", USAGE)
        try:
            return why.run(why.Options([], file=options.file, **told))
        except Failed as failed:
            raise Failed(f"{failed}{_no_file(options.file)}", failed.status) from None
    _, sample_ns = times(options, STAT_INTERVAL_NS)
    with held(options) as job:
        from perftop.process import launch as batches

        duration_ns = options.duration or why.LONGEST_NS
        batch_ns = batches.longest_batch_ns(sample_ns, STAT_INTERVAL_NS, duration_ns)
        argv = stream_of(options, sample_ns, batch_ns, job)
        return why.run(why.Options(argv, duration_ns, job=job, **told))


def _record(options: argparse.Namespace) -> int:
    if options.print_unit:
        from perftop.verbs import exporter

        return exporter.show("recorder")
    if options.output is None:
        raise Failed("-o FILE is needed, such as perftop record -o run.perftop", USAGE)
    _, sample_ns = times(options, STAT_INTERVAL_NS)
    with held(options) as job:
        each = machines(options, sample_ns, RECORD_BATCH_NS, job)
        with lean():
            from perftop.verbs import record, run_headless

        box = None
        if options.ring is not None or options.on is not None:
            kinds = record.kinds(options.on)
            box = record.Box(options.ring or RING_NS, kinds, options.max_size)

        start, paths = shared(job, each), [options.output]
        if len(each) > 1:
            paths = run_headless.paths(options.output, options.hosts)
        return record.run([
            record.Options(
                argv, path, sample_ns, options.duration, options.force, job, start, name, box,
                identity_of(options),
            )
            for (name, argv), path in zip(each, paths, strict=True)
        ])  # fmt: skip
