"""Failures as the user sees them: one line of text and an exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

from perftop.base.text import printable

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


def unwritten(name: str, error: OSError) -> Failed:
    """What an error means that came up while `name` was written."""
    if error.errno in {errno.EMFILE, errno.ENFILE}:  # no write fails by that
        return Failed(f"{error.strerror}: raise the limit of open files (ulimit -n)")
    return Failed(f"cannot write {name}: {error.strerror or error}")


def complain(text: str) -> None:
    """Write lines to stderr. If nobody takes them the exit status still tells."""
    try:
        for line in text.splitlines():
            print(f"perftop: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:
        discard(2)


def discard(fd: int) -> None:
    """Let what is still to be written there come to nothing: flushing it later must not fail."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, fd)
        os.close(null)


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
