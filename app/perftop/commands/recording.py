"""The verb that writes a recording."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.base.importing import lean
from perftop.commands.arguments import RECORDED, size_bytes, span_ns
from perftop.commands.options import (
    STAT_INTERVAL_NS,
    add_attach,
    add_force,
    add_label,
    held,
    identity_of,
    machines,
    shared,
    times,
)  # fmt: skip

RECORD_BATCH_NS = 200_000_000
"""What a recording may lack at its end if perftop or the probe is killed."""
RING_NS = 600_000_000_000
"""What a black box holds where only --on is given."""
MOST_BYTES = 1_000_000_000


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
            from perftop.verbs import record, several

        box = None
        if options.ring is not None or options.on is not None:
            kinds = record.kinds(options.on)
            box = record.Box(options.ring or RING_NS, kinds, options.max_size)

        start, paths = shared(job, each), [options.output]
        if len(each) > 1:
            paths = several.paths(options.output, options.hosts)
        return record.run([
            record.Options(
                argv, path, sample_ns, options.duration, options.force, job, start, name, box,
                identity_of(options),
            )
            for (name, argv), path in zip(each, paths, strict=True)
        ])  # fmt: skip
