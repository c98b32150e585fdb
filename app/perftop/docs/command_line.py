"""The command line of perftop, for completion and man pages: verbs, their options, and possible
values. Names that the parser does not know (metrics, scenarios, kinds of episodes) come from tables
in the help pages, which are tested against the code and can be read without numpy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from perftop.docs.page import cells, read_page, topics

Kind = Literal[
    "none", "words", "list", "events", "files", "directories", "hosts", "processes", "groups"
]
"""Kinds of values. `list`: words separated by commas; `events`: the same, and also the events of
this machine's PMU."""


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    """Empty for a positional, which is shown by its metavar."""
    metavar: str
    """'' for an option without a value."""
    help: str
    kind: Kind
    """Kind of the option's value."""
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    help: str
    parser: argparse.ArgumentParser
    options: tuple[Option, ...]
    positionals: tuple[Option, ...]


def verbs(parser: argparse.ArgumentParser) -> list[Verb]:
    """All verbs. The first one has no name and stands for perftop without a verb."""
    all_verbs = [_verb("", "", parser)]
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to read them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            all_verbs += [
                _verb(name, helps[name], verb_parser)
                for name, verb_parser in action.choices.items()
            ]
    return all_verbs


def names(topic: str, heading: str) -> tuple[str, ...]:
    """The code-formatted names in the first column of a page's tables whose first heading is
    `heading`."""
    rows = (
        row
        for block in read_page(topic).blocks
        if block.kind == "table" and cells(block.lines[0])[0].strip("`") == heading
        for row in block.lines[1:]
    )
    return tuple(name for row in rows for name in re.findall(r"`([^`]+)`", cells(row)[0]))


def _sources() -> tuple[str, ...]:
    return ("auto", "perf", "msr", "os", *(f"sim:{name}" for name in names("sim", "scenario")))


_FIXED_VALUES: dict[str, tuple[Kind, Callable[[], Sequence[str]]]] = {
    "--source": ("words", _sources),
    "--smt-method": ("words", lambda: [n for n in names("sources", "method") if n != "single"]),
    "--metrics": ("list", lambda: names("numbers", "key")),
    "--events": ("events", lambda: names("events", "event")),
    "--on": ("list", lambda: names("episodes", "kind")),
    "--host": ("hosts", tuple),
    "--watch": ("processes", tuple),
    "--group": ("groups", tuple),
    "fleet [USER@]HOST|DIR": ("hosts", tuple),
    "demo SCENARIO[,KEY=VALUE…]": ("words", lambda: names("sim", "scenario")),
    "help TOPIC": ("words", topics),
}
"""Kind and words of values, by option, or by verb and metavar of a positional."""


def _verb(name: str, text: str, parser: argparse.ArgumentParser) -> Verb:
    options: list[Option] = []
    positionals: list[Option] = []
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            continue
        if action.nargs == 0:
            metavar = ""
        elif action.choices is not None:
            metavar = "|".join(map(str, action.choices))
        else:
            metavar = str(action.metavar or action.dest.upper())
        option = Option(
            tuple(action.option_strings),
            metavar,
            action.help or "",
            *_values(name, action, metavar),
        )
        (options if action.option_strings else positionals).append(option)
    return Verb(name, text, parser, tuple(options), tuple(positionals))


def _values(verb: str, action: argparse.Action, metavar: str) -> tuple[Kind, tuple[str, ...]]:
    if not metavar:
        return "none", ()
    if action.choices is not None:
        return "words", tuple(map(str, action.choices))
    key = max(action.option_strings, key=len, default=metavar)
    if (entry := _FIXED_VALUES.get(key) or _FIXED_VALUES.get(f"{verb} {key}")) is not None:
        kind, words = entry
        return kind, tuple(words())
    if "FILE" in metavar or metavar in {"OUT", "A", "B", "PATH", "unix:PATH"}:
        return "files", ()
    return "directories" if metavar == "DIR" else "none", ()
