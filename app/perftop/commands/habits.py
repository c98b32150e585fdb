"""Words that users of perf, turbostat and htop type by habit. They are understood where they mean
the same, else answered with the word that does it here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perftop.base.errors import USAGE, Failed

VERBS = ("live", "stat", "record", "why", "serve")
"""Verbs that read a machine, as perf and turbostat do."""
_SAME = {"-p": "--watch", "--pid": "--watch", "-C": "--cpus", "--cpu": "--cpus",
         "--num_iterations": "--count"}  # fmt: skip
"""Options that have another name here, and a value."""
_DEFAULT = {"-a", "--all-cpus"}
"""What is done anyway."""
_MILLISECONDS = {"-I": "--interval", "--interval-print": "--interval"}
_ANSWERS = {
    "-d": "how often: -i 1s; more counters: -e",
    "--delay": "how often: -i 1s",
    "--csv": "perftop record -o FILE, then perftop export FILE; or stat --json",
    "-x": "perftop record -o FILE, then perftop export FILE; or stat --json",
    "-t": "--watch takes a process, and follows its threads",
    "--tid": "--watch takes a process, and follows its threads",
    "-u": "--watch takes a process or a name; all of one user cannot be watched",
    "--show": "which columns: --metrics A,B",
    "--hide": "which columns: --metrics A,B",
    "--Joules": "energy of the whole run stands in the summary; power: --metrics power_w",
    "-J": "energy of the whole run stands in the summary; power: --metrics power_w",
    "--per-core": "states of cores stand in the rows of their first CPU",
    "-A": "each CPU has a row; only one row for all: --brief",
    "--no-aggr": "each CPU has a row; only one row for all: --brief",
}


_LINES = {"-n", "--count", "--num_iterations"}
"""How many lines `stat` prints; other verbs print none."""


def translated(arguments: Sequence[str]) -> list[str]:
    """The arguments in the words of perftop; the first one is a verb. Raises Failed with the answer
    to what means something else here."""
    verb, *rest = arguments
    if verb in {"-V", "-v"}:
        return ["--version"]
    if verb in {"-h", "--help"} and rest:
        return ["help", *rest]
    return [verb, *_each(verb, rest)] if verb in VERBS else [*arguments]


def _each(verb: str, rest: list[str]) -> Iterator[str]:
    wants_ms = False
    for word in rest:
        name, equals, value = word.partition("=")
        short = re.fullmatch(r"(-[pCIxn])(.+)", word)
        if short and not word.startswith("--"):
            name, equals, value = short[1], "=", short[2]
        if wants_ms:
            wants_ms = False
            yield milliseconds(word)
        elif name in _LINES and verb != "stat":
            how = "--duration 10s" if verb in {"record", "why"} else "perftop stat -n 10"
            raise Failed(f"{verb} has no {name}; how long: {how}", USAGE)
        elif name in _SAME:
            yield from (_SAME[name], value) if equals else (_SAME[name],)
        elif name in _MILLISECONDS:
            yield _MILLISECONDS[name]
            wants_ms = not equals
            yield from (milliseconds(value),) if equals else ()
        elif name in _ANSWERS:
            raise Failed(f"{verb} has no {name}; {_ANSWERS[name]}", USAGE)
        elif word not in _DEFAULT:
            yield word


def milliseconds(text: str) -> str:
    """A bare number as perf means it; other lengths of time as they are."""
    return f"{text}ms" if text.isdecimal() else text
