"""The command line: finds the verb, translates options of other tools, and reports errors. Each
verb is in a module of `verbs`, as a function that adds its options and one that runs it. `--help`
imports all these modules, so they import numpy and other large modules only when a verb runs."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from perfprobe import __version__
from perftop.base.errors import USAGE, Failed, discard_writes, expected_failure, print_error
from perftop.base.text import did_you_mean, is_digits, terminal_problem
from perftop.verbs import options

VERBS = {
    **dict.fromkeys(("live", "replay", "demo", "attach"), "screens.add_live"),
    "why": "why.add_parser", "doctor": "doctor.add_parser", "stat": "stat.add_parser",
    "record": "record.add_parser", "mark": "record.add_mark", "summary": "why.add_summary",
    "diff": "recordings.add_diff", "export": "recordings.add_export",
    "fleet": "screens.add_fleet", "serve": "serve.add_parser", "exporter": "serve.add_exporter",
    "ramp": "ramp.add_parser", "timers": "instruments.add_timers",
    "wake": "instruments.add_wake", "topology": "machine.add_topology",
    "events": "machine.add_events_verb", "selftest": "instruments.add_selftest",
    "help": "help.add_parser",
}  # fmt: skip
"""For each verb, in the order of the list in the help: the module in `verbs` and its function that
adds the verb's parser. Importing the modules of all verbs takes 10 ms."""
GENERAL_OPTIONS = {"-h", "--help", "--version", "-V", "-v", "--default-config",
                   "--print-completion"}  # fmt: skip
"""Options that need no verb."""
SHELLS = ("bash", "zsh", "fish")
"""Shells for which there is a completion script."""
COMMAND_VERBS = ("live", "stat", "record", "why")
"""Verbs that can run a command."""


def main(argv: list[str] | None = None) -> int:
    arguments_given, command = split_command(list(sys.argv[1:] if argv is None else argv))
    arguments = add_default_verb(arguments_given, command, screen=terminal_problem() is None)
    try:
        try:
            args = _parse_arguments(translate_foreign_options(arguments), command)
            if command is None and arguments[0] == "stat" and arguments != arguments_given:
                text = "no terminal for the screen; showing one second as text (see perftop help)"
                print_error(text)
            status: int = args.verb(args)
        finally:
            sys.stdout.flush()  # even if the verb has failed
    except Failed as failed:
        print_error(*failed.lines)
        return failed.status
    except BrokenPipeError:
        discard_writes(sys.stdout.fileno())  # a closed pipe is a normal end
        return 0
    except Exception as error:
        reason = expected_failure(error)
        if reason is None:
            raise
        if isinstance(error, OSError) and error.filename is None:  # writing to stdout failed
            discard_writes(sys.stdout.fileno())
        print_error(*reason.lines)
        return reason.status
    return status


def split_command(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Returns the arguments before `--`, and the command after it; None without `--`."""
    if "--" not in arguments:
        return arguments, None
    index = arguments.index("--")
    return arguments[:index], arguments[index + 1 :]


def add_default_verb(arguments: list[str], command: list[str] | None, *, screen: bool) -> list[str]:
    """Returns the arguments, with a default verb if there is none: the screen on a terminal, else
    text."""
    first = arguments[0].partition("=")[0] if arguments else "-"
    if not first.startswith("-") or first in GENERAL_OPTIONS:
        return arguments
    if screen:
        return ["live", *arguments]
    return ["stat", *arguments] if command is not None else ["stat", "-n", "1", *arguments]


# --- the parser


def _parser(verb: str = "") -> argparse.ArgumentParser:
    """Returns a parser of all verbs, or only of `verb`, which takes a tenth of the time."""
    parser = options.Parser(
        prog="perftop",
        usage="perftop [VERB] [OPTION ...]",
        description="Shows whether the CPUs of this machine run as fast as they could, and if not, "
        "what slows them down: power, heat, a neighbour, the hypervisor, a queue.",
        epilog="Without a verb, perftop opens the screen. To begin, try `perftop demo`, `perftop "
        "why` or `perftop doctor`. `perftop VERB --help` shows the options of a verb, `perftop "
        "help` lists the pages of the manual.",
    )
    text = "print version and commit"
    parser.add_argument("--version", action=_PrintAction, nargs=0, const=_version_line, help=text)
    text = "print a config file with the default of every setting"
    parser.add_argument(
        "--default-config", action=_PrintAction, nargs=0, const=_config_text, help=text
    )
    text = "print the completion script for this shell"
    parser.add_argument("--print-completion", action=_PrintAction, choices=SHELLS,
                        const=_completion_script, help=text)  # fmt: skip
    parser.set_defaults(runs=False)
    subparsers = parser.add_subparsers(
        required=True, metavar="VERB", title="verbs", prog=parser.prog
    )
    for name in dict.fromkeys([VERBS[verb]] if verb else VERBS.values()):
        module, _, function = name.partition(".")
        getattr(import_module(f"perftop.verbs.{module}"), function)(subparsers)
    parser.set_defaults(verbs=dict(subparsers.choices))
    return parser


class _PrintAction(argparse.Action):
    """Prints the text that the function `const` returns for the option's value, and exits."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: object, value: object, __: object = None
    ) -> None:
        print(self.const(parser, value), end="", flush=True)
        parser.exit()


def _version_line(*_: object) -> str:
    """Returns the version and, if it is known, the commit."""
    import subprocess

    package, commit = Path(__file__).parent, ""
    root = package.parent.parent
    git = ["git", "-C", str(root), "rev-parse", "--short=8", "HEAD"]
    with contextlib.suppress(OSError):
        if (package / "COMMIT").exists():  # recorded by the build
            commit = (package / "COMMIT").read_text(encoding="ascii").strip()
        elif (root / ".git").exists():  # an editable installation (pip install -e)
            result = subprocess.run(git, capture_output=True, check=False, text=True)
            commit = result.stdout.strip()
    return f"perftop {__version__}{f' ({commit})' if commit else ''}\n"


def _config_text(*_: object) -> str:
    from perftop.tui import config

    return config.default_text()


def _completion_script(parser: argparse.ArgumentParser, shell: object) -> str:
    from perftop.docs import command_line

    return command_line.completion_script(str(shell), parser)


def _parse_arguments(arguments: list[str], command: list[str] | None = None) -> argparse.Namespace:
    """Parses the options of a verb. Adds `command`, the command after `--`, and `hosts`, all values
    of --host, of which `host` is the first. Raises Failed."""
    verb = arguments[0]
    if not verb.startswith("-") and verb not in VERBS:
        program = shutil.which(verb) is not None
        suggestion = "" if program else did_you_mean(verb, [*VERBS, *GENERAL_OPTIONS])
        text = f"unknown command {verb!r}{suggestion or '; see perftop --help'}"
        if hint := _interval_hint(arguments):
            raise Failed(f"unknown command {verb!r}; {hint}", USAGE)
        if program or (arguments[1:] and not suggestion):  # as with perf and turbostat
            text += f"; to measure a command: perftop stat -- {shlex.join(arguments)}"
        raise Failed(text, USAGE)
    needs_all = verb.startswith("-") or verb == "help"
    args, unexpected = _parser("" if needs_all else verb).parse_known_args(arguments)
    if unexpected:
        raise Failed(_unexpected_text(verb, unexpected), USAGE)
    args.command = command
    if command is not None:
        if not args.runs:
            raise Failed("this verb runs no command; to measure one: perftop stat -- CMD", USAGE)
        if not command:
            raise Failed("no command after --", USAGE)
        if any(getattr(args, name, None) is not None for name in ("duration", "count")):
            raise Failed("a command is measured until it ends; to stop: -- timeout 10 CMD", USAGE)
    if hasattr(args, "host"):
        args.hosts = list(args.host or [])
        args.host = args.hosts[0] if args.hosts else None
        if len(args.hosts) > 1 and not getattr(args, "several", False):
            raise Failed("this verb reads one --host; stat and record accept several", USAGE)
    return args


# --- errors


def _unexpected_text(verb: str, arguments: list[str]) -> str:
    """Returns the message for unexpected arguments, which may be meant as a command."""
    first = arguments[0].partition("=")[0]
    if first in VERBS:
        return f"the verb comes first: perftop {first} [OPTIONS]"
    text = f"unexpected argument: {shlex.join(arguments)}"
    if first.startswith("-"):
        text = f"no option {first}"
        if hint := _OPTION_HINTS.get(f"{verb} {first}"):
            return f"{text}; {hint}"
        verbs: Mapping[str, argparse.ArgumentParser] = _parser().get_default("verbs")
        by_verb = {
            name: [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001
            for name, parser in verbs.items()
        }
        long_options = by_verb.get(verb, []) if first.startswith("--") else []
        if suggestion := did_you_mean(first, long_options):
            return text + suggestion
        verbs_with_option = [
            name for name in dict.fromkeys((*COMMAND_VERBS, *verbs)) if first in by_verb[name]
        ]
        if verbs_with_option:
            return f"{text}; {first} is for {', '.join(verbs_with_option[:3])}"
        help_text = f"see perftop {verb} --help"
        if first in GENERAL_OPTIONS:
            return f"{text} with a verb; perftop {first}"
        general_options = GENERAL_OPTIONS if first.startswith("--") else ()
        return text + did_you_mean(first, general_options, help_text)
    if verb == "record" and not arguments[1:]:
        return f"{text}; where to write: perftop record -o {shlex.quote(first)}"
    if verb == "stat" and (hint := _interval_hint(arguments)):
        return f"{text}; {hint}"
    if verb in COMMAND_VERBS:
        return f"{text}; to measure a command: perftop {verb} [OPTIONS] -- {shlex.join(arguments)}"
    return f"{text}; see perftop {verb} --help"


def _interval_hint(arguments: Sequence[str]) -> str:
    """Returns a hint for an interval and a count without options, as vmstat takes them; '' for
    other arguments."""
    if len(arguments) > 2 or not all(re.fullmatch(r"[0-9]+(\.[0-9]+)?", a) for a in arguments):
        return ""
    interval, *count = arguments
    return " ".join(
        [f"interval and count: perftop stat -i {interval}s", *(f"-n {n}" for n in count)]
    )


# --- options of perf, turbostat and htop

TRANSLATED_VERBS = ("live", "stat", "record", "why", "serve")
"""Verbs that read a machine, as perf and turbostat do, and also accept their options."""
_RENAMED_OPTIONS = {"-p": "--watch", "--pid": "--watch", "-C": "--cpus", "--cpu": "--cpus",
            "--num_iterations": "--count"}  # fmt: skip
"""Options with a value that have a different name in perftop."""
_IGNORED_OPTIONS = {"-a", "--all-cpus"}
"""Options that are ignored, because they are the default in perftop."""
_MS_OPTIONS = {"-I", "--interval-print"}
"""Options whose value without a unit is in milliseconds."""
_COUNT_OPTIONS = {"-n", "--count", "--num_iterations"}
"""Options that limit the number of intervals, which only `stat` can do."""
_TABLE_HINT = "perftop record -o FILE, then perftop export FILE; or stat --json"
_THREADS_HINT = "--watch takes a process, and follows its threads"
_ENERGY_HINT = "energy of the whole run is in the summary; power: --metrics power_w"
_COLUMNS_HINT = "columns: --metrics A,B"
_ROWS_HINT = "each CPU has a row (with -- CMD: add -i 1s); one row for all: --brief"
_DURATION_HINT = "duration: --duration 10s; interval: -i 1s"
_EVENTS_HINT = "events for -e: perftop events; for --metrics: perftop help numbers"
_PORT_HINT = "address and port: --listen 127.0.0.1:9917"
_OPTION_HINTS = {
    "record -d": _DURATION_HINT,
    "why -d": _DURATION_HINT,
    "exporter -p": _PORT_HINT,
    "exporter --port": _PORT_HINT,
    "-d": "interval: -i 1s; more counters: -e",
    "--delay": "interval: -i 1s",
    "--csv": _TABLE_HINT,
    "-x": _TABLE_HINT,
    "-t": _THREADS_HINT,
    "--tid": _THREADS_HINT,
    "-u": "--watch takes a process or a name; all of one user cannot be watched",
    "--list": _EVENTS_HINT,
    "-l": _EVENTS_HINT,
    "--quiet": "one row for each interval: --brief",
    "--show": _COLUMNS_HINT,
    "--hide": _COLUMNS_HINT,
    "--Joules": _ENERGY_HINT,
    "-J": _ENERGY_HINT,
    "--per-core": "states of cores are in the rows of their first CPU",
    "-A": _ROWS_HINT,
    "--no-aggr": _ROWS_HINT,
}
"""Hints for options that perftop lacks or uses differently, by option, or by verb and option."""


def translate_foreign_options(arguments: Sequence[str]) -> list[str]:
    """Translates options of other tools to options of perftop. The first argument is a verb. Raises
    Failed, with a hint, for an option that means something else in perftop."""
    verb, *other_arguments = arguments
    if verb in {"-V", "-v"}:
        return ["--version"]
    if verb in {"-h", "--help"} and other_arguments:
        return ["help", *other_arguments]
    if verb not in TRANSLATED_VERBS:
        return [*arguments]
    words, ms_follows = [verb], False
    for word in other_arguments:
        name, equals, value = word.partition("=")
        short = re.fullmatch(r"(-[pCIxn])(.+)", word)
        if short and not word.startswith("--"):
            name, equals, value = short[1], "=", short[2]
        if ms_follows:
            ms_follows = False
            words.append(_as_milliseconds(word))
        elif name in _COUNT_OPTIONS and verb != "stat":
            alternative = "--duration 10s" if verb in {"record", "why"} else "perftop stat -n 10"
            raise Failed(f"{verb} has no option {name}; to set the duration: {alternative}", USAGE)
        elif name in _RENAMED_OPTIONS:
            words += [_RENAMED_OPTIONS[name], value] if equals else [_RENAMED_OPTIONS[name]]
        elif name in _MS_OPTIONS:
            ms_follows = not equals
            words += ["--interval", _as_milliseconds(value)] if equals else ["--interval"]
        elif name == "-A" and verb == "stat":
            if {"-B", "-r"}.isdisjoint(other_arguments):
                raise Failed(f"-A needs -r N and -B 'CMD'; {_ROWS_HINT}", USAGE)
            words.append(word)
        elif hint := _OPTION_HINTS.get(f"{verb} {name}", _OPTION_HINTS.get(name)):
            raise Failed(f"no option {name}; {hint}", USAGE)
        elif word not in _IGNORED_OPTIONS:
            words.append(word)
    return words


def _as_milliseconds(text: str) -> str:
    """Returns a number without a unit as milliseconds, and other text unchanged."""
    return f"{text}ms" if is_digits(text) else text
