"""Completion of perftop's command line for bash, zsh and fish, made from its parser.

The scripts are static: they start neither perftop nor Python. Behind `--` the command is completed
as if it stood alone. Generators such as shtab know no words with commas in between, no options of a
verb that is left out, and no command behind `--`; so this is our own.
"""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterable
from importlib import resources

from perftop.docs.command_line import Option, Values, Verb, verbs

SHELLS = ("bash", "zsh", "fish")
DEFAULT = "live"
"""The verb when none is typed."""


def script(shell: str, parser: ArgumentParser) -> str:
    main, *rest = verbs(parser)
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](main, rest)
    frame = (resources.files(__package__) / f"completion.{shell}").read_text(encoding="utf-8")
    return frame.replace("@GENERATED@\n", "".join(f"{line}\n" for line in lines))


def _quoted(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


# --- bash


def _bash(main: Verb, rest: list[Verb]) -> list[str]:
    general = " ".join(name for option in main.options for name in option.names)
    lines = [f"_perftop_verbs={_quoted(verb.name for verb in rest)}"]
    lines += [f"_perftop_general={shlex.quote(general)}", "_perftop_options() {", '  case "$1" in']
    for verb in rest:
        options = (name for option in verb.options for name in option.names)
        lines.append(f"    {verb.name}) echo {_quoted(options)} ;;")
    lines += ["  esac", "}", "_perftop_values() {", '  case "$1" in']
    for values, keys in _by_values(main, rest).items():
        lines.append(f"    {'|'.join(keys)}) echo {_quoted((values.kind, *values.words))} ;;")
    return [*lines, "  esac", "}"]


def _by_values(main: Verb, rest: list[Verb]) -> dict[Values, list[str]]:
    """For each kind of values `verb--option` of those that take them; a verb's word for its
    positional."""
    found: dict[Values, list[str]] = {}
    for verb in (main, *rest):
        for option in (*verb.options, *verb.positionals):
            if option.metavar:
                keys = [f"{verb.name}{name}" for name in option.names] or [verb.name]
                found.setdefault(option.values, []).extend(keys)
    return found


# --- zsh

_ZSH = {"none": " ", "files": "_files", "directories": "_files -/", "groups": "_groups",
        "hosts": "_hosts", "processes": "_perftop_processes"}  # fmt: skip


def _zsh(main: Verb, rest: list[Verb]) -> list[str]:
    lines = ["_perftop_verbs=("]
    lines += [f"  {shlex.quote(f'{verb.name}:{_brief(verb.help)}')}" for verb in rest]
    lines += [")", "_perftop_options() {", '  case "$1" in', "    '')", *_zsh_cases(main)]
    for verb in rest:
        lines += [f"    {verb.name})", *_zsh_cases(verb)]
    return [*lines, "  esac", "}"]


def _zsh_cases(verb: Verb) -> list[str]:
    found = [spec for option in verb.options for spec in _zsh_specs(option)]
    found += [f"*:{_in_zsh(each.metavar)}:{_zsh_action(each.values)}" for each in verb.positionals]
    return ["      specs=(", *(f"        {shlex.quote(spec)}" for spec in found), "      ) ;;"]


def _zsh_specs(option: Option) -> Iterable[str]:
    others = "*" if option.values.kind == "hosts" else f"({' '.join(option.names)})"
    for name in option.names:
        shown = f"{others}{name}[{_in_zsh(_brief(option.help))}]"
        if option.metavar:
            end = "=" if name.startswith("--") else "+"
            shown = shown.replace("[", f"{end}[", 1)
            shown += f":{_in_zsh(option.metavar)}:{_zsh_action(option.values)}"
        yield shown


def _zsh_action(values: Values) -> str:
    if values.kind == "words":
        return f"({' '.join(word.replace(':', chr(92) + ':') for word in values.words)})"
    if values.kind in {"list", "events"}:
        ours = " ${(f)$(ls $_perftop_pmu 2>/dev/null)}" if values.kind == "events" else ""
        return f"_sequence compadd - {' '.join(values.words)}{ours}"
    return _ZSH[values.kind]


def _in_zsh(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


# --- fish

_FISH = {"none": "", "files": "", "directories": "(__fish_complete_directories)",
         "groups": "(__fish_complete_groups)", "hosts": "(__fish_print_hostnames)",
         "processes": "(__perftop_processes)"}  # fmt: skip


def _fish(main: Verb, rest: list[Verb]) -> list[str]:
    lines = [f"set -g __perftop_verbs {' '.join(verb.name for verb in rest)}"]
    first = "complete -c perftop -n __perftop_first"
    lines += [f"{first} -a {verb.name} -d {_said(verb.help)}" for verb in rest]
    lines += [_fish_option("__perftop_first", option) for option in main.options]
    for verb in rest:
        where = f"__perftop_verb {verb.name}"
        lines += [_fish_option(where, option) for option in verb.options]
        begin = f"complete -c perftop -n {shlex.quote(where)}"
        lines += [f"{begin} {_fish_values(each.values)}" for each in verb.positionals]
    return lines


def _fish_option(where: str, option: Option) -> str:
    parts = ["complete -c perftop -n", shlex.quote(where)]
    parts += [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
    parts.append(f"-d {_said(option.help)}")
    if option.metavar:
        parts.append("-r " + _fish_values(option.values))
    return " ".join(parts).rstrip()


def _fish_values(values: Values) -> str:
    if values.kind == "files":
        return "-F"
    if values.kind in {"list", "events"}:
        ours = [] if values.kind == "list" else ["(ls $__perftop_pmu 2>/dev/null)"]
        joined = " ".join([*values.words, *ours])
        return f"-f -a {_single(f'(__perftop_list {joined})')}"
    found = " ".join(values.words) if values.kind == "words" else _FISH[values.kind]
    return f"-f -a {_single(found)}" if found else "-f"


def _said(text: str) -> str:
    return _single(_brief(text))


def _single(text: str) -> str:
    """In single quotes as fish has them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _brief(text: str) -> str:
    return " ".join(text.replace("%%", "%").split())
