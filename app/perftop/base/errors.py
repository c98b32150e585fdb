"""Failures as the user sees them: one line of text and an exit status."""

from __future__ import annotations

import os
from pathlib import Path

USAGE = 2
"""Exit status: the request makes no sense."""
UNAVAILABLE = 3
"""Exit status: this machine cannot do what was asked."""
DAMAGED = 4
"""Exit status: the input is damaged; everything readable was output."""


class Failed(Exception):  # noqa: N818 - what happened, not what class of mistake
    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def report(error: BaseException) -> str:
    """Write the traceback, without values of variables, to a file; return a line that names it."""
    import tempfile
    import traceback

    lines = traceback.format_exception(error)
    try:
        handle, name = tempfile.mkstemp(prefix="perftop-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError:
        return f"internal error, and no report could be written: {lines[-1].strip()}"
    return f"internal error: {lines[-1].strip()[:200]}; the report lies in {Path(name)}"
