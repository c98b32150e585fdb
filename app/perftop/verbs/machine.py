"""Shared by the verbs that ask about the machine itself: doctor, topology, events, timers,
selftest, ramp. The probe runs as a child and answers with JSON, which is drawn here, so only the
probe needs rights."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from typing import Any

from perftop.base.text import in_ascii, printable, utf8, wrapped
from perftop.verbs import options

Answer = dict[str, Any]
Draw = Callable[..., list[str]]
"""The lines to print for an answer, its width in columns, and `unicode`: shapes may be drawn."""
INDENT = 20
"""Cells of the first column."""


def add_instrument(verbs: Any, name: str, verb: options.Verb, text: str) -> options.Parser:
    """Adds a verb that runs code, which needs the machine itself: it has no --sysroot."""
    parser = options.add_verb(verbs, name, verb, text)
    options.add_json(parser)
    options.add_machine(parser)
    return parser


def ask(args: argparse.Namespace, verb: str, *arguments: str) -> Answer:
    from perftop.process import launch

    return launch.ask(options.probe_command(args, verb, "--json", *arguments))


def answer(args: argparse.Namespace, draw: Draw, verb: str, *arguments: str) -> int:
    """Asks the probe, and prints what it answers."""
    show(ask(args, verb, *arguments), draw, as_json=args.json)
    return 0


def show(answer: Answer, draw: Draw, *, as_json: bool) -> None:
    """Prints an answer on stdout, as wide as the terminal, or as JSON."""
    if as_json:
        import json

        print(json.dumps(answer))
    else:
        width = shutil.get_terminal_size((80, 24)).columns
        print("\n".join(map(printable, drawn(answer, draw, width, unicode=utf8()))))


def drawn(answer: Answer, draw: Draw, width: int = 100, *, unicode: bool = True) -> list[str]:
    lines = draw(answer, width, unicode=unicode)
    return lines if unicode else [in_ascii(line) for line in lines]


def fact(name: str, text: str, width: int, indent: int = INDENT) -> list[str]:
    """Lines of a table: a name in the first column, then text."""
    return wrapped(f"{name:<{indent}}{text}", width, indent)
