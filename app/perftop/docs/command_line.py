"""What the parser of perftop accepts, as completion and man pages need it: verbs, their options,
and what a value may be. Names that the parser does not know (metrics, scenarios, kinds of episodes)
come from tables of the pages, which are tested against the code and can be read without numpy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Literal

from perfprobe.frozen import frozen
from perftop.docs.page import cells, read, topics

Kind = Literal[
    "none", "words", "list", "events", "files", "directories", "hosts", "processes", "groups"
]
"""`list`: words with commas in between; `events`: so, with those of this machine's PMU."""


@frozen
class Values:
    """What may be typed as a value."""

    kind: Kind = "none"
    words: tuple[str, ...] = ()


@frozen
class Option:
    names: tuple[str, ...]
    metavar: str
    """'' for one without a value."""
    help: str
    values: Values


@frozen
class Verb:
    name: str
    help: str
    parser: argparse.ArgumentParser
    options: tuple[Option, ...]
    positionals: tuple[Option, ...]
    """Their names are what stands in the usage."""


def verbs(parser: argparse.ArgumentParser) -> list[Verb]:
    """All verbs, and first, without a name, perftop alone."""
    found = [_verb("", "", parser)]
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to read them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            found += [_verb(name, helps[name], each) for name, each in action.choices.items()]
    return found


def names(topic: str, heading: str) -> tuple[str, ...]:
    """The names in code in the first column of those tables of a page that begin with `heading`."""
    rows = (
        row
        for block in read(topic).blocks
        if block.kind == "table" and cells(block.lines[0])[0].strip("`") == heading
        for row in block.lines[1:]
    )
    return tuple(name for row in rows for name in re.findall(r"`([^`]+)`", cells(row)[0]))


def _sources() -> tuple[str, ...]:
    return ("auto", "perf", "msr", "os", *(f"sim:{name}" for name in names("sim", "scenario")))


_KNOWN: dict[str, tuple[Kind, Callable[[], Sequence[str]]]] = {
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
"""By option, or by verb and name of a positional."""


def _verb(name: str, text: str, parser: argparse.ArgumentParser) -> Verb:
    options: list[Option] = []
    positionals: list[Option] = []
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            continue
        shown = "" if action.nargs == 0 else _metavar(action)
        found = Option(
            tuple(action.option_strings), shown, action.help or "", _values(name, action, shown)
        )
        (options if action.option_strings else positionals).append(found)
    return Verb(name, text, parser, tuple(options), tuple(positionals))


def _metavar(action: argparse.Action) -> str:
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def _values(verb: str, action: argparse.Action, metavar: str) -> Values:
    if not metavar:
        return Values()
    if action.choices is not None:
        return Values("words", tuple(map(str, action.choices)))
    key = max(action.option_strings, key=len, default=metavar)
    if (found := _KNOWN.get(key) or _KNOWN.get(f"{verb} {key}")) is not None:
        kind, words = found
        return Values(kind, tuple(words()))
    if "FILE" in metavar or metavar in {"OUT", "A", "B", "PATH", "unix:PATH"}:
        return Values("files")
    return Values("directories" if metavar == "DIR" else "none")
