"""Commands of perftop whose output a text shows: `perftop …` in code, then a block with what it
prints. Run as a program it replaces the outputs that are no longer true:

    PYTHONPATH=tests/support python tests/support/shown.py
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
SHOWN = re.compile(
    r"(`(?P<line>perftop [^`]*(?:speed=max|demo:)[^`]*)`(?:\n| says|:)*\n\n```\n)"
    r"(?P<output>.*?)```",
    re.DOTALL,
)
"""Only of what prints the same anywhere: simulated machines, and recordings that are shipped."""


def shown_texts(text: str) -> list[tuple[str, str]]:
    """Commands with the output that is shown."""
    return [(result["line"], result["output"]) for result in SHOWN.finditer(text)]


def _printed(line: str) -> str:
    output = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(output, "utf-8")) as text:
        assert cli.main(shlex.split(line)[1:]) == 0
        text.flush()
        return output.getvalue().decode()


def update(path: Path) -> bool:
    """Replaces outputs in a text. Returns whether one was different."""
    text = path.read_text(encoding="utf-8")
    new = SHOWN.sub(lambda found: f"{found[1]}{_printed(found['line'])}```", text)
    path.write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    os.environ |= {"TZ": "UTC", "COLUMNS": "80"}
    time.tzset()
    for each in TEXTS.values():
        if update(each):
            print(each.relative_to(ROOT))
