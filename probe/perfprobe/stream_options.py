"""Command line options that `perfprobe stream` and the commands of perftop share; perftop passes
them on to perfprobe. They are outside the wire package, because `--help` need not load msgpack."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMT_METHODS = ("one-thread", "any-thread", "distributed", "traced", "bounds")
_OPTIONS = (
    (("--source",), "NAME",
     "source: auto (default), perf, msr, os, or a simulated machine, sim[:SCENARIO[,cpus=N …]]"),
    (("--sample",), "TIME", "time between two reads of the counters"),
    (("-c", "--cpus"), "LIST",
     ("read only these CPUs: 0-15,32 | pkg0 | core3 | pkg1core3 | type:P (filters on the screen "
      "use pkg:0, core:3)")),
    (("--smt-method",), "NAME",
     (f"how SMT states are found: {', '.join(SMT_METHODS)} (default: the first that works here; "
      "see perftop help sources)")),
    (("-e", "--events"), "LIST",
     ("also count these events: NAME, NAME:u (user space), NAME:k (kernel), {a,b} (a group), rUUEE "
      "(a raw code), cpu/event=0xd1,umask=1,name=NAME/")),
)  # fmt: skip


HELP_WIDTH = 78
"""Width in columns of perfprobe's help."""


class HelpFormatter(argparse.HelpFormatter):
    """A formatter of help with a fixed width. To find that of the terminal, argparse would import
    shutil and its compressors, 0.4 MB in every probe."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=HELP_WIDTH)


def parse_number(text: str) -> float:
    """Parses an unsigned number. float() would also accept nan, underscores, blanks and the digits
    of all scripts."""
    if re.fullmatch(r"[0-9]*\.?[0-9]+(e[+-]?[0-9]+)?", text) is None:
        raise argparse.ArgumentTypeError(f"invalid number {text!r} (try 1 or 0.5)")
    return float(text)


def usage_message(program: str, message: str) -> str:
    """Returns a message of argparse in our words, with a hint at --help."""
    text = message.removeprefix("argument ")
    # a message that ends with ) already has a hint
    return text if text.endswith(")") else f"{text}; see {program} --help"


def parse_cpu(text: str) -> int:
    if re.fullmatch("[0-9]{1,6}", text) is None:
        raise argparse.ArgumentTypeError(f"invalid CPU {text!r} (try 0)")
    return int(text)


def forwarded_options(options: argparse.Namespace) -> list[str]:
    """Returns --cpus, --smt-method, --events and --no-multiplex as arguments of perfprobe."""
    cpus_option = [] if options.cpus is None else ["--cpus", options.cpus]
    cpus_option += [] if options.smt_method is None else ["--smt-method", options.smt_method]
    cpus_option += [] if options.events is None else [f"--events={options.events}"]
    return [*cpus_option, *(["--no-multiplex"] if options.no_multiplex else [])]


def sysroot_parser() -> argparse.ArgumentParser:
    """Returns a parent parser with the option --sysroot, for verbs that read files."""
    parser = argparse.ArgumentParser(add_help=False, formatter_class=HelpFormatter)
    parser.add_argument(
        "--sysroot", type=Path, metavar="DIR", default=Path("/"),
        help="read only from DIR/proc, DIR/sys and DIR/dev (default: this machine)",
    )  # fmt: skip
    return parser


def add_options(
    parser: argparse.ArgumentParser, sample: Callable[[str], Any], default: str, *,
    events: bool = True,
) -> Any:  # fmt: skip
    """Adds the options of a stream to a parser. `sample` parses --sample; without `events`,
    --events and --no-multiplex are left out. Returns --watch's group of exclusive options."""
    for names, output, text in _OPTIONS:
        if "--events" in names and not events:
            continue
        parse_sample = sample if "--sample" in names else str
        metavar = "SECONDS" if parse_sample is parse_number else output
        note = f" (default: {default})" if "--sample" in names else ""
        parser.add_argument(*names, type=parse_sample, metavar=metavar, help=text + note)
    if events:
        parser.add_argument(
            "--no-multiplex", action="store_true",
            help="exit with an error if events of -e would have to take turns on a counter",
        )  # fmt: skip
    else:
        parser.set_defaults(events=None, no_multiplex=False)
    parser.set_defaults(source="auto")
    group = parser.add_mutually_exclusive_group()
    text = "follow the threads of PID, of all processes named COMM, or of a control group or unit"
    group.add_argument("--watch", metavar="PID|COMM|GROUP", help=text)
    return group
