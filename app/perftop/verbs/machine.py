"""Code shared by the verbs that query the machine itself: doctor, topology, events, timers,
wake, selftest, ramp. The probe runs as a child process and answers with JSON, which is formatted
here. So only the probe needs more privileges."""

from __future__ import annotations

import argparse
import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from perftop.base.errors import UNAVAILABLE, Failed
from perftop.base.text import EIGHTHS, ascii_line, bar_chart, printable, utf8, wrap_indented
from perftop.verbs import options

Answer = dict[str, Any]
Draw = Callable[..., list[str]]
"""Function that returns the lines to print for an answer. Its arguments are the answer, the width
in columns, and `unicode`, which allows characters outside ASCII."""
INDENT = 20
"""Width in cells of the first column."""
MIN_WIDTH = 80
"""Minimum width of lines; a narrower terminal wraps them itself."""
HISTOGRAM_BINS, _ASCII_BARS = 24, " .:-=+*#@"
"""Number of bins of a histogram, and the ASCII characters that represent them."""
MAX_REASON = 100
"""Maximum number of characters of the reason why an answer is not understood."""


def add_instrument(verbs: Any, name: str, verb: options.Verb, text: str) -> options.Parser:
    """Adds a verb that measures by running code. It needs the machine itself, so it has no
    --sysroot."""
    parser = options.add_verb(verbs, name, verb, text)
    options.add_json(parser)
    options.add_machine(parser)
    return parser


def cpu_option(args: argparse.Namespace) -> list[str]:
    """Returns the arguments of the probe for the option --cpu."""
    return [] if args.cpu is None else [f"--cpu={args.cpu}"]


def ask_machine(args: argparse.Namespace, verb: str, *arguments: str) -> Answer:
    from perftop.process import launch

    return launch.ask_probe(options.probe_command(args, verb, "--json", *arguments))


@contextlib.contextmanager
def understood_answer(args: argparse.Namespace) -> Iterator[None]:
    """Raises Failed where the block fails because of the structure of a remote machine's answer:
    the probe there has another version, or is no probe."""
    try:
        yield
    except (
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    ) as error:  # fmt: skip
        if args.host is None:
            raise
        what = f"{type(error).__name__}: {error}"[:MAX_REASON]
        text = f"{args.host}: the answer of the probe there is not understood ({what})"
        raise Failed(f"{text}; does perftop have the same version there?", UNAVAILABLE) from None


def answer(args: argparse.Namespace, draw: Draw, verb: str, *arguments: str) -> int:
    """Queries the probe and prints its answer. Returns the exit status."""
    with understood_answer(args):
        show(ask_machine(args, verb, *arguments), draw, as_json=args.json)
    return 0


def show(answer: Answer, draw: Draw, *, as_json: bool) -> None:
    """Prints an answer on stdout, formatted to the width of the terminal or as JSON."""
    if as_json:
        import json

        print(json.dumps(answer))
    else:
        width = shutil.get_terminal_size((80, 24)).columns
        print("\n".join(map(printable, draw_answer(answer, draw, width, unicode=utf8()))))


def draw_answer(answer: Answer, draw: Draw, width: int = 100, *, unicode: bool = True) -> list[str]:
    lines = draw(answer, width, unicode=unicode)
    return lines if unicode else [ascii_line(line) for line in lines]


def fact_lines(name: str, text: str, width: int, indent: int = INDENT) -> list[str]:
    """Returns lines of a table: a name in the first column, then the wrapped text."""
    return wrap_indented(f"{name:<{indent}}{text}", width, indent)


def bar_line(counts: Sequence[int], *, unicode: bool) -> str:
    """Returns a histogram in HISTOGRAM_BINS cells."""
    return f"{bar_chart(counts, EIGHTHS if unicode else _ASCII_BARS):{HISTOGRAM_BINS}}"


def disturbances(answer: Answer, width: int) -> list[str]:
    """Returns lines on what disturbed a measurement."""
    if not answer["disturbances"]:
        return ["no disturbance was seen"]
    lines = ["what disturbed"]
    for disturbance in answer["disturbances"]:
        found = f"{disturbance['found']}: {disturbance['matters']}"
        lines += fact_lines(f"  {disturbance['what']}", found, width)
    return lines
