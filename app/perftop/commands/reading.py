"""Verbs that read files: summary, diff, export."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perftop.base.importing import lean
from perftop.commands.arguments import COMPARED, place, span_ns, two_sides
from perftop.commands.options import METRICS, add_force

FORMS = ("csv", "jsonl", "parquet", "openmetrics")
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
           ".parquet": "parquet", ".om": "openmetrics", ".prom": "openmetrics"}  # fmt: skip


def add_export(verbs: Any) -> None:
    export = verbs.add_parser("export", help="a recording as CSV, JSON lines, Parquet, OpenMetrics")
    export.add_argument("file", metavar="FILE", help="a recording, or - for stdin")
    text = "write to this file; - is stdout (default)"
    export.add_argument("-o", "--output", metavar="OUT", default="-", help=text)
    add_force(export)
    text = "form of the output (default: by the ending of OUT, else csv)"
    export.add_argument("--format", choices=FORMS, help=text)
    export.add_argument("--metrics", metavar="A,B", help=METRICS)
    text = "only these CPUs: 0-15,32 | pkg0 | core3 | pkg1core3 | type:P"
    export.add_argument("-c", "--cpus", metavar="LIST", help=text)
    export.add_argument(
        "--every", type=span_ns, metavar="TIME",
        help="time that a line covers (default: -i of the recording, else 1s)",
    )  # fmt: skip
    export.set_defaults(verb=_export)


def add_summary(verbs: Any) -> None:
    summary = verbs.add_parser(
        "summary", help="a recording summed up, as a whole or phase by phase"
    )
    summary.add_argument("file", type=Path, metavar="FILE", help="what record has written")
    summary.add_argument("--by", choices=("mark",), help="a phase from each mark to the next")
    for name, key, text in (("--from", "since", "begins"), ("--to", "until", "ends")):
        moment = f"where it {text}: 30s after the start, or 12:03:05"
        summary.add_argument(name, dest=key, type=place, metavar="TIME", help=moment)
    summary.add_argument("--json", action="store_true", help="one JSON object a phase")
    summary.set_defaults(verb=_summary)


def add_diff(verbs: Any) -> None:
    text = "two runs, or groups of runs, held against each other"
    diff = verbs.add_parser("diff", help=text, epilog=COMPARED)
    diff.add_argument("files", nargs="*", type=Path, metavar="FILE", help="two files, A and B")
    for side in "ab":
        diff.add_argument(
            f"--{side}", nargs="+", type=Path, default=[], metavar="FILE",
            help=f"the runs of {side.upper()}, where there are several",
        )  # fmt: skip
    diff.add_argument(
        "--by", choices=("mark",), help="compare phases from mark to mark, by their labels"
    )
    diff.add_argument("--metrics", metavar="A,B", help="only these: run_s, busy_hz, ipc …")
    diff.add_argument("--json", action="store_true", help="one JSON object")
    diff.set_defaults(verb=_diff)


def _summary(options: argparse.Namespace) -> int:
    with lean():
        from perftop.verbs import summary

    return summary.run(
        options.file, by_mark=options.by is not None, since=options.since, until=options.until,
        as_json=options.json,
    )  # fmt: skip


def _diff(options: argparse.Namespace) -> int:
    with lean():
        from perftop.verbs import diff

    a, b = two_sides(options)
    metrics = None if options.metrics is None else options.metrics.split(",")
    by_mark = options.by is not None
    return diff.run(a, b, by_mark=by_mark, metrics=metrics, as_json=options.json)


def _export(options: argparse.Namespace) -> int:
    with lean():
        from perftop.verbs import export

    output = None if options.output == "-" else Path(options.output)
    ending = "" if output is None else output.suffix.lower()
    source = None if options.file == "-" else Path(options.file)
    form = options.format or ENDINGS.get(ending, "csv")
    names = None if options.metrics is None else options.metrics.split(",")
    return export.run(export.Options(
        source, output, form, names, options.cpus, options.every, options.force
    ))  # fmt: skip
