"""`perftop help`: shows the pages of the manual, or the options of a verb."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.base.text import (
    ascii_line,
    did_you_mean,
    is_full_terminal,
    supports_colour,
    supports_unicode,
)
from perftop.verbs import options

FIRST_HELP_LINES = """perftop why -- ./job     does my job get all the CPU it could?
perftop why --watch lmp  who takes time from lmp?
perftop ramp             how long must I warm up before I measure?

perftop                  the screen: what each core does, and what takes time from it
perftop demo             the same screen on a simulated machine
perftop demo list        recordings of real problems, and more simulated machines
perftop doctor           what can be read here, what cannot, and how to see more
perftop VERB --help      the options of a verb"""


def add_parser(subparsers: Any) -> None:
    text = "print a page of the manual, or the options of a verb"
    parser = options.add_verb(subparsers, "help", _show_help, text)
    text = "name of a page or a verb (default: list the pages)"
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help=text)


def _show_help(args: argparse.Namespace) -> int:
    """Shows a page of the manual, the options of a verb that has no page, or the list of pages."""
    from perftop.docs import page

    topic: str | None = args.topic
    verbs: Mapping[str, argparse.ArgumentParser] = args.verbs
    topics = page.topics()
    if topic is None:
        titles = ((name, page.read_page(name).title.partition(": ")[2]) for name in topics)
        lines = [FIRST_HELP_LINES, "", "Pages (perftop help TOPIC):", ""]
        lines += [f"  {name:<17} {title}" for name, title in titles]
        lines = lines if supports_unicode() else [ascii_line(line) for line in lines]
    elif topic in topics:
        width = shutil.get_terminal_size((80, 24)).columns
        colour, unicode = supports_colour(sys.stdout), supports_unicode()
        lines = page.page_lines(page.read_page(topic), width, colour=colour, unicode=unicode)
    elif topic in verbs:
        lines = verbs[topic].format_help().splitlines()
    else:
        text = f"unknown page {topic!r}"
        related_pages = [name for name in topics if page.contains_word(page.read_page(name), topic)]
        suggestion = did_you_mean(topic, [*topics, *verbs], f"known: {', '.join(topics)}")
        hint = f"; see {', '.join(related_pages)}" if related_pages else suggestion
        raise Failed(f"{text}{hint}", USAGE)
    text = "\n".join(lines)
    if not is_full_terminal(sys.stdout) or text.count("\n") < shutil.get_terminal_size().lines - 1:
        print(text)
    else:  # the list does not fit on the terminal
        import pydoc

        os.environ.setdefault("LESS", "FRX")  # allow colours, and do not clear the screen
        pydoc.pager(text + "\n")
    return 0
