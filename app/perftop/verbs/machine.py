"""Code shared by the verbs that query the machine itself: doctor, topology, events, timers,
selftest, ramp. The probe runs as a child process and answers with JSON, which is formatted here. So
only the probe needs more privileges."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from typing import Any

from perftop.base.text import in_ascii, printable, utf8, wrapped
from perftop.verbs import options

Answer = dict[str, Any]
Draw = Callable[..., list[str]]
"""Function that returns the lines to print for an answer. Its arguments are the answer, the width
in columns, and `unicode`, which allows characters outside ASCII."""
INDENT = 20
"""Width in cells of the first column."""


def add_instrument(verbs: Any, name: str, verb: options.Verb, text: str) -> options.Parser:
    """Adds a verb that measures by running code. It needs the machine itself, so it has no
    --sysroot."""
    parser = options.add_verb(verbs, name, verb, text)
    options.add_json(parser)
    options.add_machine(parser)
    return parser


def ask(args: argparse.Namespace, verb: str, *arguments: str) -> Answer:
    from perftop.process import launch

    return launch.ask(options.probe_command(args, verb, "--json", *arguments))


def answer(args: argparse.Namespace, draw: Draw, verb: str, *arguments: str) -> int:
    """Queries the probe and prints its answer. Returns the exit status."""
    show(ask(args, verb, *arguments), draw, as_json=args.json)
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
    return lines if unicode else [in_ascii(line) for line in lines]


def fact(name: str, text: str, width: int, indent: int = INDENT) -> list[str]:
    """Returns lines of a table: a name in the first column, then the wrapped text."""
    return wrapped(f"{name:<{indent}}{text}", width, indent)
