"""`perftop help [TOPIC]`: shows the pages that come with perftop, and the help of each verb."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from perftop.base.errors import USAGE, Failed
from perftop.base.text import ascii_line, colours, did_you_mean, full_terminal, utf8
from perftop.verbs import options

FIRST_LINES = """perftop why -- ./job     does my job get all it could?
perftop why --watch lmp  who takes time from it?
perftop ramp             how long must I warm up before I measure?

perftop                  the screen: what each core does, and what takes its time
perftop demo             the same on a simulated machine, for two minutes
perftop demo list        recordings of real trouble, and more simulated machines
perftop doctor           what can be read here, what not, and how to see more
perftop VERB --help      the options of a verb"""


def add(verbs: Any) -> None:
    parser = options.add_verb(verbs, "help", run, "pages that explain perftop; options of a verb")
    text = "a page or a verb (default: list the pages)"
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help=text)


def run(args: argparse.Namespace) -> int:
    """Shows a page, the options of a verb that has no page, or the list of pages."""
    from perftop.docs import page

    topic: str | None = args.topic
    verbs: Mapping[str, argparse.ArgumentParser] = args.verbs
    topics = page.topics()
    if topic is None:
        titles = ((name, page.read_page(name).title.partition(": ")[2]) for name in topics)
        lines = [FIRST_LINES, "", "Pages, by perftop help TOPIC:", ""]
        lines += [f"  {name:<17} {title}" for name, title in titles]
        lines = lines if utf8() else [ascii_line(line) for line in lines]
    elif topic in topics:
        width = shutil.get_terminal_size((80, 24)).columns
        colour = colours(sys.stdout)
        lines = page.lines(page.read_page(topic), width, colour=colour, unicode=utf8())
    elif topic in verbs:
        lines = verbs[topic].format_help().splitlines()
    else:
        text = f"unknown page {topic!r}"
        naming = [name for name in topics if page.names_word(page.read_page(name), topic)]
        suggestion = did_you_mean(topic, [*topics, *verbs], f"known: {', '.join(topics)}")
        hint = f"; see {', '.join(naming)}" if naming else suggestion
        raise Failed(f"{text}{hint}", USAGE)
    _print_paged("\n".join(lines))
    return 0


def _print_paged(text: str) -> None:
    """Prints the text, through the user's pager if it does not fit on the terminal."""
    if not full_terminal(sys.stdout) or text.count("\n") < shutil.get_terminal_size().lines - 1:
        print(text)
        return
    import os
    import pydoc

    os.environ.setdefault("LESS", "FRX")  # allow colours, and do not clear the screen
    pydoc.pager(text + "\n")
