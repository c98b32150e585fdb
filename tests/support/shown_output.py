"""Finds commands in texts that show their output: `perftop …` in code, then a block with the
output. Run as a program it updates the outputs that have changed:

    PYTHONPATH=tests/support python tests/support/shown_output.py
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import time
from pathlib import Path

from roots import ROOT

from perftop import cli
from perftop.docs import page

TEXTS = {"README": ROOT / "README.md"} | {
    topic: ROOT / "app/perftop/docs" / f"{topic}.md" for topic in page.topics()
}
OUTPUT_PATTERN = re.compile(
    r"(`(?P<line>perftop [^`]*(?:speed=max|demo:)[^`]*)`(?:\n| prints|:)*\n\n```\n)"
    r"(?P<output>.*?)```",
    re.DOTALL,
)
"""Commands with the same output on any machine: simulated machines and shipped recordings."""


def shown_texts(text: str) -> list[tuple[str, str]]:
    """Returns the commands, each with the output shown for it."""
    return [(result["line"], result["output"]) for result in OUTPUT_PATTERN.finditer(text)]


def _printed(line: str) -> str:
    output = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(output, "utf-8")) as text:
        assert cli.main(shlex.split(line)[1:]) == 0
        text.flush()
        return output.getvalue().decode()


def update(path: Path) -> bool:
    """Updates the outputs in a text. Returns whether one has changed."""
    text = path.read_text(encoding="utf-8")
    new = OUTPUT_PATTERN.sub(lambda found: f"{found[1]}{_printed(found['line'])}```", text)
    path.write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    os.environ |= {"TZ": "UTC", "COLUMNS": "80"}
    time.tzset()
    for each in TEXTS.values():
        if update(each):
            print(each.relative_to(ROOT))
