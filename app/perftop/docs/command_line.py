"""The command line of perftop as data, from which completion scripts and man pages are made."""

from __future__ import annotations

import argparse
import re
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from perftop.docs.page import Block, Page, read_page, split_cells, topics, without_links

# --- Verbs, their options, and possible values. Metrics, scenarios and kinds of episodes, which the
# parser does not know, are read from tables in the help pages, without numpy. Tests compare these
# tables with the code.

ValueKind = Literal[
    "none", "words", "list", "events", "files", "directories", "hosts", "processes", "groups"
]
"""The kind of value that an option takes. `list`: words separated by commas. `events`: like `list`,
but with the events of this machine's PMU."""


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    """Names of the option; empty for a positional argument, which is named by its metavar."""
    metavar: str
    """Name of the value in the help; '' for an option without a value."""
    help: str
    kind: ValueKind
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    help: str
    parser: argparse.ArgumentParser
    options: tuple[Option, ...]
    positionals: tuple[Option, ...]


def described_verbs(parser: argparse.ArgumentParser) -> list[Verb]:
    """Returns all verbs, the first of which is perftop without a verb and has no name."""
    all_verbs = [_describe_verb("", "", parser)]
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to read them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            all_verbs += [
                _describe_verb(name, texts[name], verb) for name, verb in action.choices.items()
            ]
    return all_verbs


def names_in_table(topic: str, heading: str) -> tuple[str, ...]:
    """Returns the names in code format below the heading `heading` in a page's tables."""
    code_names: list[str] = []
    for block in read_page(topic).blocks:
        if block.kind == "table" and split_cells(block.lines[0])[0].strip("`") == heading:
            for row in block.lines[1:]:
                code_names += re.findall(r"`([^`]+)`", split_cells(row)[0])
    return tuple(code_names)


def _sources_and_scenarios() -> list[str]:
    return ["auto", "perf", "msr", "os", *map("sim:{}".format, names_in_table("sim", "scenario"))]


_FIXED_VALUES: dict[str, tuple[ValueKind, Callable[[], Sequence[str]]]] = {
    "--source": ("words", _sources_and_scenarios),
    "--smt-method": (
        "words",
        lambda: [n for n in names_in_table("sources", "method") if n != "single"],
    ),
    "--metrics": ("list", lambda: names_in_table("numbers", "key")),
    "--events": ("events", lambda: names_in_table("events", "event")),
    "--on": ("list", lambda: names_in_table("episodes", "kind")),
    "--host": ("hosts", tuple),
    "--watch": ("processes", tuple),
    "--group": ("groups", tuple),
    "fleet [USER@]HOST|DIR": ("hosts", tuple),
    "demo list|NAME[,KEY=VALUE…]": (
        "words",
        lambda: ["list", *names_in_table("demo", "recording"), *names_in_table("sim", "scenario")],
    ),
    "help TOPIC": ("words", topics),
}
"""Kind and possible words of a value, by option, or by verb and metavar of a positional."""


def _describe_verb(name: str, text: str, parser: argparse.ArgumentParser) -> Verb:
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
        values, names = _values(name, action, metavar), tuple(action.option_strings)
        option = Option(names, metavar, action.help or "", *values)
        (options if names else positionals).append(option)
    return Verb(name, text, parser, tuple(options), tuple(positionals))


def _values(verb: str, action: argparse.Action, metavar: str) -> tuple[ValueKind, tuple[str, ...]]:
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


# --- Completion scripts for bash, zsh and fish, generated from the parser. They start neither
# perftop nor Python. After `--` they complete the user's command. Generators such as shtab support
# neither lists of words, nor options without a verb, nor a command after `--`.


def completion_script(shell: str, parser: ArgumentParser) -> str:
    main, *subverbs = described_verbs(parser)
    lines = {"bash": _bash_lines, "zsh": _zsh_lines, "fish": _fish_lines}[shell](main, subverbs)
    frame = (resources.files(__package__) / f"completion.{shell}").read_text(encoding="utf-8")
    return frame.replace("@GENERATED@\n", "".join(f"{line}\n" for line in lines))


def _one_line(text: str) -> str:
    return " ".join(text.replace("%%", "%").split())


def _bash_lines(main: Verb, subverbs: list[Verb]) -> list[str]:
    def quoted(words: Iterable[str]) -> str:
        return shlex.quote(" ".join(words))

    general = (name for option in main.options for name in option.names)
    lines = [f"_perftop_verbs={quoted(verb.name for verb in subverbs)}"]
    lines += [f"_perftop_general={quoted(general)}", "_perftop_options() {", '  case "$1" in']
    for verb in subverbs:
        options = (name for option in verb.options for name in option.names)
        lines.append(f"    {verb.name}) echo {quoted(options)} ;;")
    lines += ["  esac", "}", "_perftop_values() {", '  case "$1" in']
    keys: dict[tuple[ValueKind, tuple[str, ...]], list[str]] = {}
    for verb in (main, *subverbs):
        for option in (*verb.options, *verb.positionals):
            if option.metavar:  # `verb--option`, or `verb` for a positional
                option_names = [f"{verb.name}{name}" for name in option.names] or [verb.name]
                keys.setdefault((option.kind, option.words), []).extend(option_names)
    for (kind, words), verb_names in keys.items():
        lines.append(f"    {'|'.join(verb_names)}) echo {quoted((kind, *words))} ;;")
    return [*lines, "  esac", "}"]


_ZSH = {"none": " ", "files": "_files", "directories": "_files -/", "groups": "_groups",
        "hosts": "_hosts", "processes": "_perftop_processes"}  # fmt: skip


def _zsh_lines(main: Verb, subverbs: list[Verb]) -> list[str]:
    lines = ["_perftop_verbs=("]
    lines += [f"  {shlex.quote(f'{verb.name}:{_one_line(verb.help)}')}" for verb in subverbs]
    lines += [")", "_perftop_options() {", '  case "$1" in']
    for verb in (main, *subverbs):
        specs = [spec for option in verb.options for spec in _zsh_specs(option)]
        specs += [
            f"*:{_escape_for_zsh(positional.metavar)}:{_zsh_action(positional)}"
            for positional in verb.positionals
        ]
        lines += [f"    {verb.name or chr(39) * 2})", "      specs=("]
        lines += [*(f"        {shlex.quote(spec)}" for spec in specs), "      ) ;;"]
    return [*lines, "  esac", "}"]


def _zsh_specs(option: Option) -> Iterable[str]:
    excluded = "*" if option.kind == "hosts" else f"({' '.join(option.names)})"
    for name in option.names:
        suffix = "" if not option.metavar else "=" if name.startswith("--") else "+"
        spec = f"{excluded}{name}{suffix}[{_escape_for_zsh(_one_line(option.help))}]"
        if option.metavar:
            spec += f":{_escape_for_zsh(option.metavar)}:{_zsh_action(option)}"
        yield spec


def _zsh_action(option: Option) -> str:
    if option.kind == "words":
        return f"({' '.join(word.replace(':', chr(92) + ':') for word in option.words)})"
    if option.kind in {"list", "events"}:
        event_names = " ${(f)$(ls $_perftop_pmu 2>/dev/null)}" if option.kind == "events" else ""
        return f"_sequence compadd - {' '.join(option.words)}{event_names}"
    return _ZSH[option.kind]


def _escape_for_zsh(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


_FISH = {"none": "", "files": "", "directories": "(__fish_complete_directories)",
         "groups": "(__fish_complete_groups)", "hosts": "(__fish_print_hostnames)",
         "processes": "(__perftop_processes)"}  # fmt: skip


def _fish_lines(main: Verb, subverbs: list[Verb]) -> list[str]:
    lines = [f"set -g __perftop_verbs {' '.join(verb.name for verb in subverbs)}"]
    first = "complete -c perftop -n __perftop_first"
    lines += [f"{first} -a {verb.name} -d {_quote_for_fish(verb.help)}" for verb in subverbs]
    lines += [_fish_option("__perftop_first", option) for option in main.options]
    for verb in subverbs:
        condition = f"__perftop_verb {verb.name}"
        lines += [_fish_option(condition, option) for option in verb.options]
        prefix = f"complete -c perftop -n {shlex.quote(condition)}"
        lines += [f"{prefix} {_fish_values(positional)}" for positional in verb.positionals]
    return lines


def _fish_option(condition: str, option: Option) -> str:
    parts = ["complete -c perftop -n", shlex.quote(condition)]
    parts += [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
    parts.append(f"-d {_quote_for_fish(option.help)}")
    if option.metavar:
        parts.append("-r " + _fish_values(option))
    return " ".join(parts).rstrip()


def _fish_values(option: Option) -> str:
    if option.kind == "files":
        return "-F"
    if option.kind in {"list", "events"}:
        event_names = [] if option.kind == "list" else ["(ls $__perftop_pmu 2>/dev/null)"]
        word_list = " ".join([*option.words, *event_names])
        return f"-f -a {_quote_for_fish(f'(__perftop_list {word_list})')}"
    values = " ".join(option.words) if option.kind == "words" else _FISH[option.kind]
    return f"-f -a {_quote_for_fish(values)}" if values else "-f"


def _quote_for_fish(text: str) -> str:
    """Returns the text in single quotes, escaped for fish."""
    return "'" + _one_line(text).replace("\\", "\\\\").replace("'", "\\'") + "'"


# --- Man pages, generated from the parser and the pages of `perftop help`: perftop(1), one for each
# verb, and one in section 7 for each page. `app/build_manual.py` writes them when a wheel is built.

ENVIRONMENT = (
    ("NO_COLOR", "no colours, on the screen and in text"),
    ("PAGER", "shows the pages of `perftop help`"),
    ("XDG_CONFIG_HOME", "directory of `perftop/config.toml`; default: `~/.config`"),
    ("XDG_STATE_HOME", "directory of `perftop/greeted`; default: `~/.local/state`"),
)


def man_pages(parser: ArgumentParser, version: str, date: str) -> dict[str, str]:
    """Returns the text of each man page, by its file name. Pages are in ASCII; other characters
    are written as escapes with their code points, so that no page depends on an encoding."""
    main, *subverbs = described_verbs(parser)
    pages = [read_page(topic) for topic in topics()]
    texts = {"perftop.1": _main_page(main, subverbs, pages)}
    for verb in subverbs:
        texts[f"perftop-{verb.name}.1"] = _verb_page(verb, pages)
    for page in pages:
        body = (line for block in page.blocks for line in _block(block))
        heading = [*_name(f"perftop-{page.topic}", page.title), ".SH DESCRIPTION"]
        texts[f"perftop-{page.topic}.7"] = [*heading, *body, ".SH SEE ALSO", ".BR perftop (1)"]
    gap = (".SH", ".SS", ".TP", ".TS", ".IP", ".PP")
    manual_pages = {}
    for name, lines in texts.items():
        title, _, section = name.rpartition(".")
        head = f'.TH {title.upper()} {section} {date} "perftop {version}" "perftop manual"'
        # The string AD is for groff 1.23, which resets .ad at each paragraph.
        page_lines = ["'\\\" t", head, ".nh", ".ds AD l", ".ad l"]
        for before, line, after in zip([".SH", *lines], lines, [*lines[1:], ""], strict=False):
            has_gap = before.startswith(gap) or after.startswith((".TP", ".TS", ".IP"))
            if line != ".PP" or not has_gap:
                page_lines.append(line)
        text = "\n".join([*page_lines, ""])
        escapes = (sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in text)
        manual_pages[name] = "".join(escapes)
    return manual_pages


def _main_page(main: Verb, subverbs: list[Verb], pages: list[Page]) -> list[str]:
    text = "live counters of Linux CPUs: clock, halts, SMT states, lost time"
    lines = [*_description("perftop", text, main), ".SH VERBS"]
    for verb in subverbs:
        lines += [".TP", f".BR perftop\\-{_escape_for_roff(verb.name)} (1)", *_text(verb.help)]
    lines += [".SH OPTIONS", *_options(main.options), ".SH PAGES"]
    for page in pages:
        lines += [".TP", f".BR perftop\\-{page.topic} (7)", *_text(page.title)]
    lines += [".SH ENVIRONMENT"]
    for name, text in ENVIRONMENT:
        lines += [".TP", f".B {name}", *_text(text)]
    return lines


def _verb_page(verb: Verb, pages: list[Page]) -> list[str]:
    word = re.compile(rf"\bperftop {verb.name}\b")
    related_pages = [
        f"perftop\\-{page.topic} (7)"
        for page in pages
        if any(word.search(line) for block in page.blocks for line in block.lines)
    ]
    lines = [*_description(f"perftop-{verb.name}", verb.help, verb)]
    lines += [".SH OPTIONS", *_options((*verb.positionals, *verb.options))]
    *first, last = ["perftop (1)", *related_pages]
    return [*lines, ".SH SEE ALSO", *(f".BR {name}," for name in first), f".BR {last}"]


def _name(name: str, text: str) -> list[str]:
    return [".SH NAME", f"{_escape_for_roff(name)} \\- {_inline_markup(text)}"]


def _description(name: str, text: str, verb: Verb) -> list[str]:
    """Returns the name, the usage line, with each option and its value on one line, and the
    description of a verb."""
    usage = " ".join(verb.parser.format_usage().removeprefix("usage: ").split())
    parts = re.findall(r"\[\[.*?\]\]|\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\]|\S+", usage)
    escaped_parts = [_escape_for_roff(part).replace(" ", "\\~") for part in parts]
    tail = [r"[\-\-\~CMD\~[ARG\~...]]"] if verb.parser.get_default("runs") else []
    bold = f"perftop {verb.name}".split()
    words = [f"\\fB{word}\\fR" for word in bold] + escaped_parts[len(bold) :] + tail
    lines = [*_name(name, text), ".SH SYNOPSIS", " ".join(words), ".SH DESCRIPTION"]
    lines += _text(verb.parser.description)
    return lines + _text(verb.parser.epilog, gap_before=True)


def _options(options: Iterable[Option]) -> list[str]:
    lines = []
    for option in options:
        value = f" \\fI{_escape_for_roff(option.metavar)}\\fR" if option.metavar else ""
        names = ", ".join(f"\\fB{_escape_for_roff(name)}\\fR" for name in option.names)
        lines += [".TP", (names + value).strip(), *_text(option.help or "The choice.")]
    return lines


def _block(block: Block) -> list[str]:
    text = block.lines[0]
    if block.kind == "heading":
        return [f"{'.SH' if block.level == 2 else '.SS'} {_inline_markup(text)}"]
    if block.kind == "code":
        code = (_roff_line(_escape_for_roff(line)) for line in block.lines)
        return [".PP", ".RS 4", ".nf", *code, ".fi", ".RE"]
    if block.kind == "item":
        return [".IP \\(bu 2", _roff_line(_inline_markup(text))]
    if block.kind == "table":
        return _table([split_cells(row) for row in block.lines])
    return [".PP", _roff_line(_inline_markup(text))]


def _table(rows: list[list[str]]) -> list[str]:
    """Returns a table of two columns as tagged paragraphs, and a wider one for tbl(1)."""
    if len(rows[0]) == 2:
        lines = [".PP"]
        for name, text in rows[1:]:
            lines += [".TP", _roff_line(_inline_markup(name))]
            lines.append(_roff_line(_inline_markup(text)) or "\\&")
        return lines
    columns = len(rows[0])
    lines = [".PP", ".TS", "tab(@);", " ".join(["lb"] * columns)]
    lines.append(" ".join(["lx"] * columns) + ".")
    for index, row in enumerate(rows):
        if index == 0:
            lines.append("@".join(map(_inline_markup, row)))
        else:
            lines.append("@".join(f"T{{\n{_roff_line(_inline_markup(cell))}\nT}}" for cell in row))
    return [*lines, ".TE"]


def _text(text: str | None, *, gap_before: bool = False) -> list[str]:
    """Returns the lines of a paragraph, after a gap if `gap_before`."""
    words = " ".join((text or "").replace("%%", "%").split())
    return [*([".PP"] * gap_before), _roff_line(_inline_markup(words))] if words else []


def _inline_markup(text: str) -> str:
    """Returns text in which `code` and **strong** are bold and *emphasis* is italic."""
    text = _escape_for_roff(without_links(text))
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    text = re.sub(r"\*\*([^*]*)\*\*", r"\\fB\1\\fR", text)
    return re.sub(r"\*([^*\s][^*]*)\*", r"\\fI\1\\fR", text)


def _escape_for_roff(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")


def _roff_line(text: str) -> str:
    """Returns a text line, escaped if roff would otherwise interpret it as a request."""
    return f"\\&{text}" if text.startswith((".", "'")) else text
