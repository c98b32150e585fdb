"""The command line: maps arguments to verbs. Heavy modules are imported when a verb needs them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from perftop.base.errors import Failed, cannot_write, complain, discard
from perftop.commands import habits
from perftop.commands.arguments import (
    DefaultConfig,
    Parser,
    PrintCompletion,
    Version,
    check_command,
    check_hosts,
    check_rest,
    check_verb,
    split,
    with_verb,
)
from perftop.commands.measuring import add_record, add_stat, add_why
from perftop.commands.options import at_terminal, watch_options
from perftop.commands.reading import add_diff, add_export, add_summary
from perftop.commands.screens import add_fleet, add_screens
from perftop.commands.services import add_exporter, add_serve
from perftop.verbs import machine_verbs


def main(argv: list[str] | None = None) -> int:
    given, command = split(list(sys.argv[1:] if argv is None else argv))
    if sys.stdout is None:
        complain("stdout is closed: there is nowhere to write to")
        return 1
    arguments = with_verb(given, command, screen=at_terminal())
    try:
        options = _parsed(habits.translated(arguments))
        options.command = command
        check_command(options)
        check_hosts(options)
        if command is None and arguments[0] == "stat" and arguments != given:
            complain(
                "no terminal for the screen, so this is one second as text; more: perftop help"
            )
        status: int = options.verb(options)
        sys.stdout.flush()
    except Failed as failed:
        complain(str(failed))
        return failed.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard(sys.stdout.fileno())  # a closed stdout is a normal end
        return 0
    except OSError as error:
        discard(sys.stdout.fileno())
        complain(str(cannot_write("stdout", error)))
        return 1
    return status


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = _parser()
    check_verb(parser.get_default("verbs"), arguments)
    options, left = parser.parse_known_args(arguments)
    check_rest(arguments[0], left, parser.get_default("verbs"))
    return options


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="perftop",
        description="Shows whether the CPUs of this machine run as fast as they could, and if not, "
        "what takes the time: power, heat, a neighbour, the hypervisor, a queue.",
        epilog="Without a verb perftop opens the screen. To begin with: perftop demo, perftop why, "
        "perftop doctor. `perftop VERB --help` tells a verb's options, `perftop help` the rest.",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="print the version")
    parser.add_argument(
        "--default-config", action=DefaultConfig, nargs=0, help="print a config file to begin with"
    )
    parser.add_argument(
        "--print-completion", action=PrintCompletion, choices=("bash", "zsh", "fish"),
        help="print a script that completes perftop's words in this shell",
    )  # fmt: skip
    parser.set_defaults(runs=False)
    verbs = parser.add_subparsers(required=True, metavar="VERB", title="verbs")
    machine = machine_verbs.machine_options()
    watch = watch_options(machine)
    add_screens(verbs, watch)
    add_stat(verbs, watch)
    add_record(verbs, watch)
    add_fleet(verbs)
    add_export(verbs)
    add_exporter(verbs, machine)
    add_serve(verbs, watch)
    add_summary(verbs)
    add_why(verbs, watch)
    add_diff(verbs)
    machine_verbs.add(verbs, machine)
    _add_help(verbs)
    for named in verbs._choices_actions:  # noqa: SLF001 - argparse has no public way to read them
        verb = verbs.choices[named.dest]
        said = verb.description or str(named.help)  # what the list of verbs says of it
        verb.description = f"{said[0].upper()}{said[1:]}."
    parser.set_defaults(verbs=dict(verbs.choices))
    return parser


def _add_help(verbs: Any) -> None:
    pages = verbs.add_parser("help", help="pages that explain perftop; options of a verb")
    pages.add_argument(
        "topic", nargs="?", metavar="TOPIC", help="a page or a verb (default: list the pages)"
    )

    def show(options: argparse.Namespace) -> int:
        from perftop.verbs import help as help_pages

        return help_pages.run(options.topic, verbs.choices)

    pages.set_defaults(verb=show)
