"""Man pages, generated from the parser and the pages of `perftop help`: perftop(1), one for each
verb, and one in section 7 for each page. `app/build_manual.py` writes them when a wheel is built.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator

from perftop.docs.command_line import Option, Verb, verbs
from perftop.docs.page import Block, Page, cells, read_page, topics, without_links

ENVIRONMENT = (
    ("NO_COLOR", "no colours, on the screen and in text"),
    ("PAGER", "shows the pages of `perftop help`"),
    ("XDG_CONFIG_HOME", "directory of `perftop/config.toml`; default: `~/.config`"),
    ("XDG_STATE_HOME", "directory of `perftop/greeted`; default: `~/.local/state`"),
)


def manual(parser: ArgumentParser, version: str, date: str) -> dict[str, str]:
    """Returns the text of each man page, by its file name."""
    main, *subverbs = verbs(parser)
    pages = [read_page(topic) for topic in topics()]
    texts = {"perftop.1": _main_page(main, subverbs, pages)}
    for verb in subverbs:
        texts[f"perftop-{verb.name}.1"] = _verb_page(verb, pages)
    for page in pages:
        texts[f"perftop-{page.topic}.7"] = _topic_page(page)
    return {name: _page_text(name, lines, version, date) for name, lines in texts.items()}


def _page_text(name: str, lines: list[str], version: str, date: str) -> str:
    """Returns the page with its header, in ASCII. Other characters are written as escapes with
    their code points, so that the page does not depend on an encoding."""
    title, _, section = name.rpartition(".")
    head = f'.TH {title.upper()} {section} {date} "perftop {version}" "perftop manual"'
    text = "\n".join(["'\\\" t", head, ".nh", ".ad l", *_without_double_gaps(lines), ""])
    return "".join(sign if sign.isascii() else f"\\[u{ord(sign):04X}]" for sign in text)


def _without_double_gaps(lines: list[str]) -> Iterator[str]:
    """Yields the lines, without `.PP` requests where there already is a gap."""
    gap = (".SH", ".SS", ".TP", ".TS", ".IP", ".PP")
    for previous, line, following in zip([".SH", *lines], lines, [*lines[1:], ""], strict=False):
        has_gap = previous.startswith(gap) or following.startswith((".TP", ".TS", ".IP"))
        if line != ".PP" or not has_gap:
            yield line


def _main_page(main: Verb, subverbs: list[Verb], pages: list[Page]) -> list[str]:
    lines = [*_name("perftop", "live counters of Linux CPUs: clock, halts, SMT states, lost time")]
    lines += [".SH SYNOPSIS", *_synopsis(main), ".SH DESCRIPTION", *_text(main.parser.description)]
    lines += _text(main.parser.epilog, gap_before=True)
    lines += [".SH VERBS"]
    for verb in subverbs:
        lines += [".TP", f".BR perftop\\-{_escaped(verb.name)} (1)", *_text(verb.help)]
    lines += [".SH OPTIONS", *_options(main.options), ".SH PAGES"]
    for page in pages:
        lines += [".TP", f".BR perftop\\-{page.topic} (7)", *_text(page.title)]
    lines += [".SH ENVIRONMENT"]
    for name, text in ENVIRONMENT:
        lines += [".TP", f".B {name}", *_text(text)]
    return lines


def _verb_page(verb: Verb, pages: list[Page]) -> list[str]:
    word = re.compile(rf"\bperftop {verb.name}\b")
    related = [
        f"perftop\\-{page.topic} (7)" for page in pages
        if any(word.search(line) for block in page.blocks for line in block.lines)
    ]  # fmt: skip
    lines = [*_name(f"perftop-{verb.name}", verb.help), ".SH SYNOPSIS", *_synopsis(verb)]
    lines += [".SH DESCRIPTION", *_text(verb.parser.description)]
    lines += _text(verb.parser.epilog, gap_before=True)
    lines += [".SH OPTIONS", *_options((*verb.positionals, *verb.options))]
    *first, last = ["perftop (1)", *related]
    return [*lines, ".SH SEE ALSO", *(f".BR {name}," for name in first), f".BR {last}"]


def _topic_page(page: Page) -> list[str]:
    text = (line for block in page.blocks for line in _block(block))
    name = _name(f"perftop-{page.topic}", page.title)
    return [*name, ".SH DESCRIPTION", *text, ".SH SEE ALSO", ".BR perftop (1)"]


def _name(name: str, text: str) -> list[str]:
    return [".SH NAME", f"{_escaped(name)} \\- {_inline(text)}"]


def _synopsis(verb: Verb) -> list[str]:
    """Returns the usage line, in which an option and its value are never separated."""
    usage = " ".join(verb.parser.format_usage().removeprefix("usage: ").split())
    parts = re.findall(r"\[\[.*?\]\]|\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\]|\S+", usage)
    escaped_parts = [_escaped(part).replace(" ", "\\~") for part in parts]
    tail = [r"[\-\-\~CMD\~[ARG\~...]]"] if verb.parser.get_default("runs") else []
    bold = f"perftop {verb.name}".split()
    words = [f"\\fB{word}\\fR" for word in bold] + escaped_parts[len(bold) :] + tail
    return [" ".join(words)]


def _options(options: Iterable[Option]) -> list[str]:
    lines = []
    for option in options:
        value = f" \\fI{_escaped(option.metavar)}\\fR" if option.metavar else ""
        names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names)
        lines += [".TP", (names + value).strip(), *_text(option.help or "The choice.")]
    return lines


def _block(block: Block) -> list[str]:
    text = block.lines[0]
    if block.kind == "heading":
        return [f".SH {_inline(text)}" if block.level == 2 else f".SS {_inline(text)}"]
    if block.kind == "code":
        code = (_line(_escaped(line)) for line in block.lines)
        return [".PP", ".RS 4", ".nf", *code, ".fi", ".RE"]
    if block.kind == "item":
        return [".IP \\(bu 2", _line(_inline(text))]
    if block.kind == "table":
        return _table([cells(row) for row in block.lines])
    return [".PP", _line(_inline(text))]


def _table(rows: list[list[str]]) -> list[str]:
    """Returns a table of two columns as tagged paragraphs, and a wider one as a table for
    tbl(1)."""
    if len(rows[0]) == 2:
        lines = [".PP"]
        for name, text in rows[1:]:
            lines += [".TP", _line(_inline(name))]
            lines.append(_line(_inline(text)) or "\\&")
        return lines
    columns = len(rows[0])
    lines = [".PP", ".TS", "tab(@);", " ".join(["lb"] * columns)]
    lines.append(" ".join(["lx"] * columns) + ".")
    for index, row in enumerate(rows):
        if index == 0:
            lines.append("@".join(map(_inline, row)))
        else:
            lines.append("@".join(f"T{{\n{_line(_inline(cell))}\nT}}" for cell in row))
    return [*lines, ".TE"]


def _text(text: str | None, *, gap_before: bool = False) -> list[str]:
    """Returns the lines of a paragraph. `gap_before`: with a gap before it."""
    words = " ".join((text or "").replace("%%", "%").split())
    return [*([".PP"] * gap_before), _line(_inline(words))] if words else []


def _inline(text: str) -> str:
    """Returns text in which `code` and **strong** are bold and *emphasis* is italic."""
    text = _escaped(without_links(text))
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    text = re.sub(r"\*\*([^*]*)\*\*", r"\\fB\1\\fR", text)
    return re.sub(r"\*([^*\s][^*]*)\*", r"\\fI\1\\fR", text)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")


def _line(text: str) -> str:
    """Returns a text line, escaped if roff would otherwise interpret it as a request."""
    return f"\\&{text}" if text.startswith((".", "'")) else text
