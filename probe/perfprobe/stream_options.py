"""The options of a stream, for perfprobe and for perftop, which hands them on. They stand outside
the wire because that loads msgpack, for which `--help` does not wait."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

METHODS = ("one-thread", "any-thread", "distributed", "traced", "bounds")
"""Ways to tell the SMT states."""
_OPTIONS = (
    (("--source",), "NAME",
     "auto, perf, msr, os, or sim[:SCENARIO[,cpus=N,packages=N,smt=N,seed=N,speed=N|max]]"),
    (("--sample",), "TIME", "how often the probe reads (default: 100ms at most, exporter 1s)"),
    (("-c", "--cpus"), "LIST", "0-15,32 | pkg0 | core3 | pkg1core3 | type:P"),
    (("--smt-method",), "NAME", f"only this one: {', '.join(METHODS)}"),
)  # fmt: skip


def sysroot() -> argparse.ArgumentParser:
    """A parent for every verb that reads the machine's files."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--sysroot", type=Path, metavar="DIR", default=Path("/"),
        help="read /proc, /sys and /dev below DIR and nothing else",
    )  # fmt: skip
    return parser


def add(parser: argparse.ArgumentParser, sample: Callable[[str], Any]) -> Any:
    """What to read and how often; `sample` reads a time. The group that --watch is in: there may
    be other ways to say whom to watch."""
    for names, shown, text in _OPTIONS:
        reads = sample if "--sample" in names else str
        metavar = "SECONDS" if reads is float else shown
        parser.add_argument(*names, type=reads, metavar=metavar, help=text)
    parser.set_defaults(source="auto")
    group = parser.add_mutually_exclusive_group()
    text = "follow the threads of a process, or of all with this name"
    group.add_argument("--watch", metavar="PID|COMM", help=text)
    return group
