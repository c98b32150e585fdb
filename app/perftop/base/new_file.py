"""Files that numbers are written to: never over a file that is there, unless that was asked for.

They may hold command lines of other users' processes, so only their owner may read them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from perftop.base.errors import Failed

MODE = 0o600


def refuse(path: Path, *, force: bool) -> None:
    """Raises Failed if a file is there. A device or a pipe is no file: nothing is replaced."""
    if path.is_file() and not force:
        raise Failed(f"{path} is there already; --force replaces it")


def create(path: Path, *, force: bool) -> BinaryIO:
    """A file to write to. Raises Failed."""
    refuse(path, force=force)
    try:
        return open(path, "wb" if force or path.exists() else "xb", opener=_opened)
    except FileExistsError:
        raise Failed(f"{path} is there already; --force replaces it") from None
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror or error}") from None


def _opened(path: str, flags: int) -> int:
    """Closes a file that is replaced to others as well, before anything is in it."""
    fd = os.open(path, flags, MODE)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        with contextlib.suppress(PermissionError):  # another user's file, which is theirs to close
            os.fchmod(fd, MODE)
    return fd
