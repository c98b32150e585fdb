"""`perftop mark`: names a moment of a command, from inside the command."""

from __future__ import annotations

import argparse
from typing import Any

from perftop.verbs import options


def add(verbs: Any) -> None:
    text = "name the phase that begins now, from inside a command that perftop runs"
    parser = options.add_verb(verbs, "mark", run, text)
    parser.add_argument(
        "name", metavar="NAME", help="name of the phase that begins now, such as link"
    )


def run(args: argparse.Namespace) -> int:
    from perftop.process.job import send_mark

    send_mark(args.name)
    return 0
