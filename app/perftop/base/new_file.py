"""Files that numbers are written to: never over a file that is there, unless that was asked for.

They may hold command lines of other users' processes, so only their owner may read them.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from perftop.base import own_directory
from perftop.base.errors import Failed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MODE = 0o600


def refuse(path: Path, *, force: bool) -> None:
    """Raises Failed if a file is there. A device or a pipe is no file: nothing is replaced."""
    if path.is_file() and not force:
        raise Failed(f"{path} exists already; --force replaces it")


def create(path: Path, *, force: bool) -> BinaryIO:
    """A file to write to. Raises Failed, and so does a write once the file has been removed."""
    refuse(path, force=force)
    try:
        return io.BufferedWriter(_File(path, "w" if force or path.exists() else "x"))
    except FileExistsError:
        raise Failed(f"{path} exists already; --force replaces it") from None
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror or error}") from None


def replace(path: Path, data: bytes, mode: int = MODE) -> os.stat_result:
    """Puts a file there in one step: whoever reads it sees the old content or all of the new one.
    Returns what `own_directory.remove` recognizes it by. Raises OSError."""
    with own_directory.parent(path) as (fd, name):
        return own_directory.replace(fd, name, data, mode)


class _File(io.FileIO):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode, opener=_opened)
        self._path = path
        found = os.fstat(self.fileno())
        self._removable = stat.S_ISREG(found.st_mode) and found.st_nlink > 0

    def write(self, data: ReadableBuffer, /) -> int:
        if self._removable and os.fstat(self.fileno()).st_nlink == 0:
            self._removable = False  # what is still to be flushed at the end fails no more
            raise Failed(f"{self._path} was removed while it was written: nothing was kept")
        return super().write(data)


def _opened(path: str, flags: int) -> int:
    """Closes a file that is replaced to others as well, before anything is in it."""
    fd = own_directory.open_to_write(Path(path), flags, MODE)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        with contextlib.suppress(PermissionError):  # another user's file, which is theirs to close
            os.fchmod(fd, MODE)
    return fd
