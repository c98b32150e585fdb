"""`perftop export`: its arguments. What it takes to export is imported only then."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perftop.arguments import span_ns

FORMS = ("csv", "jsonl", "parquet", "openmetrics")
ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
           ".parquet": "parquet", ".om": "openmetrics", ".prom": "openmetrics"}  # fmt: skip


def add(verbs: Any) -> None:
    """Among the verbs of a parser."""
    export = verbs.add_parser("export", help="a recording as CSV, JSON lines, Parquet, OpenMetrics")
    export.add_argument("file", metavar="FILE", help="a recording, or - for stdin")
    export.add_argument(
        "-o", "--output", metavar="OUT", default="-", help="write there, not stdout"
    )
    export.add_argument("--force", action="store_true", help="replace a file that is there")
    export.add_argument("--format", choices=FORMS, help="default: by the ending of OUT, else csv")
    export.add_argument(
        "--metrics", metavar="A,B", help="only these: util, busy_hz, smt, power_w …"
    )
    export.add_argument(
        "-c", "--cpus", metavar="LIST", help="0-15,32 | pkg0 | core3 | pkg1core3 | type:P"
    )
    export.add_argument(
        "--every", type=span_ns, metavar="TIME",
        help="what a line covers (default: 1s, or a sample where samples are longer)",
    )  # fmt: skip
    export.set_defaults(verb=_export)


def _export(options: argparse.Namespace) -> int:
    from perftop.exports import run

    output = None if options.output == "-" else Path(options.output)
    ending = "" if output is None else output.suffix.lower()
    names = None if options.metrics is None else options.metrics.split(",")
    return run.run(
        run.Options(
            None if options.file == "-" else Path(options.file),
            output,
            options.format or ENDINGS.get(ending, "csv"),
            names,
            options.cpus,
            options.every,
            options.force,
        )
    )
