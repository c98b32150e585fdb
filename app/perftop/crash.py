"""What is left of an internal error: a report in a file, one line for the user."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path


def report(error: BaseException) -> str:
    """Write where it happened, without the values of anything, and say where that lies."""
    lines = traceback.format_exception(error)
    try:
        handle, name = tempfile.mkstemp(prefix="perftop-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError:
        return f"internal error, and no report could be written: {lines[-1].strip()}"
    return f"internal error: {lines[-1].strip()[:200]}; the report lies in {Path(name)}"
