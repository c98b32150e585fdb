"""Parses and checks arguments, and the command after `--`. Quick to import."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from perftop.base.errors import USAGE, Failed, complain
from perftop.base.text import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = (
    "-- CMD [ARG …] runs a command and measures it from before its start until after its end: "
    "a summary on stderr, lines before it with -i; the exit status is the command's. With -o - all "
    "of it goes to stdout, and what the command writes there goes to stderr."
)
PANE = (
    "-- CMD [ARG …] runs a command, measures it, and shows what it prints below the numbers. "
    "Ctrl-C is for the command, q leaves the screen and lets it run on; a summary on stderr at its "
    "end; the exit status is the command's."
)
COST = (
    "What perftop itself costs, both processes with the kernel's work for them, stands at the "
    "right of the first line, in percent of one CPU. A longer -i draws less often, a longer "
    "--sample reads less often (-i 1s --sample 1s), and -c reads fewer CPUs. "
)
RECORDED = (
    "-- CMD [ARG …] runs a command and records it from before its start until after its end: "
    "a summary on stderr; the exit status is the command's. A signal USR1 sets a mark."
)
SCRAPED = (
    "A scrape gets what is known already and measures nothing. No name and no command line of any "
    "process is told. A longer --sample (1s by default) costs less."
)
EXPLAINED = (
    "-- CMD [ARG …] runs a command and tells what it lost, on stderr; the exit status is the "
    "command's. Otherwise it is 0, whether something was found or not."
)
COMPARED = (
    "A file is a recording, or what stat --json, stat -r N --json or summary --json has written. "
    "The exit status is 0, whether there is a difference or not."
)
GENERAL = {"-h", "--help", "--version", "-V", "-v", "--default-config", "--print-completion"}
"""Options of perftop itself, which need no verb."""
RUN = ("live", "stat", "record", "why")
"""Verbs that can run a command."""
SHORTEST_NS = 1_000_000
"""Minimum interval; below 1 ms the measurement is mostly of the probe's own wake-ups."""
LONG_NS = 60_000_000_000
_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000,
             "h": 3_600_000_000_000}  # fmt: skip


class Parser(argparse.ArgumentParser):
    """Tells what is wrong in one line, as all failures are told, without the list of options. The
    usage of verbs that can run a command shows that."""

    def format_help(self) -> str:
        usage, gap, rest = super().format_help().partition("\n\n")
        if self.get_default("runs"):
            usage += f"\n{'':{len(f'usage: {self.prog} ')}}[-- CMD [ARG ...]]"
        return f"{usage}{gap}{rest}"

    def print_help(self, file: Any = None) -> None:
        """As argparse does, which drops the error of an output that takes nothing."""
        print(self.format_help(), end="", file=file, flush=True)

    def error(self, message: str) -> NoReturn:
        told = message.removeprefix("argument ")
        raise Failed(f"{told}; `{self.prog} --help` tells what is understood", USAGE)


def span_ns(text: str) -> int:
    """A length of time such as `100ms`, `1s` or `2`, in ns; bare numbers are seconds."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ns|us|ms|s|m|h)?", text)
    length = round(float(match[1]) * _UNITS_NS[match[2] or "s"]) if match else 0
    if length < SHORTEST_NS:
        why = "is no length of time such as 100ms, 1s, 2, 5m or 1h"
        why = "is less than 1 ms" if match else why
        raise argparse.ArgumentTypeError(f"{text!r} {why}")
    return length


def interval_ns(text: str) -> int:
    """A span as in `span_ns`. Warns of a long bare number: perf and others count milliseconds."""
    length = span_ns(text)
    if length > LONG_NS and text.isdecimal():
        complain(f"-i {text} is {text} seconds; for milliseconds: -i {text}ms")
    return length


def place(text: str) -> int | str:
    """A time of day as it is, or a length of time in ns."""
    return text if ":" in text else span_ns(text)


def label(text: str) -> tuple[str, str]:
    """Name and value of a label. Names are such as other programs take."""
    match = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]{0,39})=(.{1,200})", text)
    if match is None or not match[2].isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is no label such as run=17")
    return match[1], match[2]


def size_bytes(text: str) -> int:
    """A size such as `500M`, in bytes."""
    match = re.fullmatch(r"([0-9]{1,6})([kMGT])B?", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 500M or 2G")
    return int(match[1]) * (1000, 10**6, 10**9, 10**12)["kMGT".index(match[2])]


def count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:12]) < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count")
    return int(text)


class Version(argparse.Action):
    """Prints the version, which is read only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"perftop {version('perftop')}", flush=True)
        parser.exit()


class DefaultConfig(argparse.Action):
    """Prints a config file with all entries at their defaults."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from perftop.tui import config

        print(config.default(), end="", flush=True)
        parser.exit()


class PrintCompletion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, _: object, shell: object, *__: object
    ) -> None:
        from perftop.docs import completion

        print(completion.script(str(shell), parser), end="", flush=True)
        parser.exit()


def split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """The arguments of perftop, and the command after `--`; None without `--`."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def with_verb(arguments: list[str], command: list[str] | None, *, screen: bool) -> list[str]:
    """The arguments with the verb that is meant where none is given: the screen, or what a pipe or
    a file can hold of it."""
    first = arguments[0].partition("=")[0] if arguments else "-"
    if not first.startswith("-") or first in GENERAL:
        return arguments
    if screen:
        return ["live", *arguments]
    return ["stat", *arguments] if command is not None else ["stat", "-n", "1", *arguments]


def check_verb(verbs: Mapping[str, object], arguments: list[str]) -> None:
    """Raises Failed if the first word is no verb. Users of perf or turbostat expect it to be a
    command, so the message says how to run one."""
    verb = arguments[0]
    if verb.startswith("-") or verb in verbs:
        return
    program = shutil.which(verb) is not None
    near = "" if program else did_you_mean(verb, [*verbs, *GENERAL])
    text = f"there is no verb {verb!r}{near or '; `perftop --help` lists them'}"
    if program or (arguments[1:] and not near):
        text += f"; to measure a command: perftop stat -- {shlex.join(arguments)}"
    raise Failed(text, USAGE)


def check_rest(verb: str, left: list[str], verbs: Mapping[str, argparse.ArgumentParser]) -> None:
    """Raises Failed if words are left that the verb does not know; they may be meant as a
    command."""
    if not left:
        return
    text = f"not understood: {shlex.join(left)}; `perftop {verb} --help` tells what is"
    first = left[0].partition("=")[0]
    if first in verbs:
        text = f"the verb comes first: perftop {first} [OPTIONS]"
    elif first.startswith("-"):
        known = {name: _options_of(parser) for name, parser in verbs.items()}
        others = [name for name in dict.fromkeys((*RUN, *verbs)) if first in known.get(name, ())]
        near = did_you_mean(first, known.get(verb, ())) if first.startswith("--") else ""
        text += f"; {first} is for {', '.join(others[:3])}" if others else near
    elif verb == "record" and not left[1:]:
        text += f"; where to write: perftop record -o {shlex.quote(first)}"
    elif verb in RUN:
        text += f"; to measure a command: perftop {verb} [OPTIONS] -- {shlex.join(left)}"
    raise Failed(text, USAGE)


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    return [name for action in parser._actions for name in action.option_strings]  # noqa: SLF001


def check_command(options: argparse.Namespace) -> None:
    """Raises Failed if a command after `--` cannot be run with these options."""
    if options.command is None:
        return
    if not options.runs:
        raise Failed("this verb runs no command; to measure one: perftop stat -- CMD", USAGE)
    if not options.command:
        raise Failed("there is no command behind --", USAGE)
    if any(getattr(options, name, None) is not None for name in ("duration", "count")):
        raise Failed("a command is measured to its end; for less: -- timeout 10 CMD", USAGE)


def check_hosts(options: argparse.Namespace) -> None:
    """Makes `hosts` of what --host has named, and `host` of the only one. Raises Failed if a verb
    is asked for more than one and cannot do that."""
    if not hasattr(options, "host"):
        return
    named = options.host or []
    options.hosts = list(named)
    options.host = named[0] if named else None
    if len(named) > 1 and not getattr(options, "several", False):
        raise Failed("one --host at a time here; stat and record take several", USAGE)


def repeats(options: argparse.Namespace) -> bool:
    """Whether a command is to be run several times. Raises Failed if other options speak against
    that."""
    if options.repeat is None:
        if options.warmup:
            raise Failed("--warmup is for -r N: a single run counts from its start", USAGE)
        return False
    if options.command is None:
        raise Failed("-r runs a command several times: perftop stat -r 5 -- CMD", USAGE)
    if options.interval is not None or len(options.hosts) > 1:
        what = "-i" if options.interval is not None else "several --host"
        raise Failed(f"-r tells a row a run; {what} is for a single run", USAGE)
    return True


def alignment(text: str) -> tuple[str, str]:
    """The kind of moment at which two recordings are aligned, and the label of a mark."""
    what, _, label = text.partition(":")
    if text in {"start", "command"} or (what == "mark" and label):
        return what, label
    raise argparse.ArgumentTypeError(f"{text!r} is none of start, command and mark:LABEL")


def check_replayed(options: argparse.Namespace) -> None:
    """Raises Failed if there are more than two recordings, or nothing to align."""
    if len(options.files) > 2:
        raise Failed(
            "one recording is replayed, or two on one axis; more: perftop fleet DIR", USAGE
        )
    if options.align is not None and len(options.files) < 2:
        raise Failed("--align is for two recordings: perftop replay A B", USAGE)


def two_sides(options: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    """The files of both sides: two of them, or the groups of --a and --b. Raises Failed."""
    files, a, b = options.files, options.a, options.b
    if len(files) == 2 and not (a or b):
        return [files[0]], [files[1]]
    if a and b and not files:
        return a, b
    raise Failed("two files, or groups of them: perftop diff A B; --a FILE … --b FILE …", USAGE)
