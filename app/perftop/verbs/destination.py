"""Opens what a verb writes its numbers to: a file, stdout or stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TextIO

from perftop.base import new_file


def destination(
    output: Path | None, *, force: bool, job: bool
) -> contextlib.AbstractContextManager[TextIO]:
    """A new file; `-` is stdout. `job`: there is a command, which has stdout for itself, so that
    without a file numbers go to stderr."""
    to_stdout = output == Path("-")
    if output is not None and not to_stdout:
        return io.TextIOWrapper(new_file.create(output, force=force), encoding="utf-8")
    standard = sys.stdout if not job or to_stdout else sys.stderr
    if standard is None:  # it was closed; the job must run nevertheless
        return Path(os.devnull).open("w", encoding="utf-8")
    return contextlib.nullcontext(standard)
