"""`perftop help [TOPIC]`: the pages that come with perftop, and the help of each verb."""

from __future__ import annotations

import os
import pydoc
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Mapping

from perftop.base.errors import USAGE, Failed
from perftop.base.text import colours, did_you_mean, full_terminal, in_ascii, utf8
from perftop.docs import page
from perftop.docs import page as terminal

BEGINNING = """perftop              the screen: what each core does, and what takes its time
perftop demo         the same on a simulated machine, for two minutes
perftop why          what costs most here, with evidence
perftop doctor       what can be read here, what not, and how to see more
perftop VERB --help  the options of a verb"""


def run(topic: str | None, verbs: Mapping[str, ArgumentParser]) -> int:
    """Shows a page, the options of a verb without a page of its name, or what there is."""
    colour = colours(sys.stdout)
    if topic is None:
        shown = _topics()
    elif topic in page.topics():
        width = shutil.get_terminal_size((80, 24)).columns
        found = page.read(topic)
        shown = terminal.lines(found, width, colour=colour, unicode=utf8())
    elif topic in verbs:
        shown = verbs[topic].format_help().splitlines()
    else:
        raise Failed(_unknown(topic, verbs), USAGE)
    _paged("\n".join(shown))
    return 0


def _topics() -> list[str]:
    titles = ((topic, page.read(topic).title.partition(": ")[2]) for topic in page.topics())
    rows = [f"  {topic:<12} {title}" for topic, title in titles]
    found = [BEGINNING, "", "Pages, by perftop help TOPIC:", "", *rows]
    return found if utf8() else [in_ascii(line) for line in found]


def _unknown(topic: str, verbs: Mapping[str, ArgumentParser]) -> str:
    text = f"there is no page {topic!r}"
    if named := [each for each in page.topics() if page.names_word(page.read(each), topic)]:
        return f"{text}; {', '.join(named)} tell of it" if named[1:] else f"{text}; see {named[0]}"
    near = did_you_mean(topic, [*page.topics(), *verbs])
    return text + (near or f"; there are {', '.join(page.topics())}")


def _paged(text: str) -> None:
    """Through the user's pager if the terminal is too small for it."""
    if not full_terminal(sys.stdout) or text.count("\n") < shutil.get_terminal_size().lines - 1:
        print(text)
        return
    os.environ.setdefault("LESS", "FRX")  # colours, and no screen of its own
    pydoc.pager(text + "\n")
