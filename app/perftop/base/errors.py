"""What the user is told when something cannot be done: one line, and the exit status."""

from __future__ import annotations

import os
from pathlib import Path

USAGE = 2
"""What was asked for makes no sense."""
UNAVAILABLE = 3
"""It cannot be had here."""
DAMAGED = 4
"""Input is; all that could be read was handed over."""


class Failed(Exception):  # noqa: N818 - what happened, not what class of mistake
    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


def report(error: BaseException) -> str:
    """Write where it happened, without the values of anything, and say where that lies."""
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
