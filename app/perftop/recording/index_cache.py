"""What was found in recordings, kept in the user's cache. An entry is named after all that it
depends on, so that a changed file or another perftop never finds it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Self

import perfprobe
import perftop
from perftop.base.user_directory import own_content, user_directory

FORMAT = "1"
MAX_BYTES = 1 << 26
"""Maximum size of an entry; a longer one is not kept."""
MOST = 64
"""Entries kept, the newest."""
ENDS = 1 << 16
"""Bytes at both ends of the recording that its entry depends on: its hello and its index."""


def directory() -> Path:
    return user_directory("CACHE", "~/.cache") / "perftop" / "episodes"


def name(recording: Path) -> str:
    """Name of the recording's entry. Raises OSError."""
    found = recording.stat()
    known = [FORMAT, perfprobe.__version__, _code(), str(found.st_size), str(found.st_mtime_ns)]
    digest = hashlib.sha256("\n".join(known).encode())
    with recording.open("rb") as file:
        digest.update(file.read(ENDS))
        file.seek(max(0, found.st_size - ENDS))
        digest.update(file.read(ENDS))
    return digest.hexdigest()[:40]


@cache
def _code() -> str:
    """When the code was last changed that finds episodes: a checkout keeps its version for long."""
    files = Path(perftop.__path__[0]).rglob("*.py")
    return str(max((file.stat().st_mtime_ns for file in files), default=0))


def read(recording: Path) -> bytes | None:
    """The entry's content; None: there is none that can be used."""
    with contextlib.suppress(OSError):
        return own_content(directory() / name(recording), MAX_BYTES)
    return None


class Entry:
    """Written beside the others, and put among them once it is whole. A cache that cannot be
    written, or belongs to somebody else, is no error."""

    def __init__(self, recording: Path) -> None:
        self._recording, self._fd, self._temporary = recording, -1, ""
        self._bytes = 0
        with contextlib.suppress(OSError):
            self._name = name(recording)
            where = directory()
            where.mkdir(mode=0o700, parents=True, exist_ok=True)
            if where.stat().st_uid == os.geteuid():
                self._fd, self._temporary = tempfile.mkstemp(prefix=".new", dir=where)  # 0600

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        self._bytes += len(data)
        try:
            written = os.write(self._fd, data)
        except OSError:
            written = 0
        if written < len(data) or self._bytes > MAX_BYTES:
            self._drop()

    def keep(self) -> None:
        """The entry is whole. It is kept if the recording is what it was."""
        with contextlib.suppress(OSError):
            if self._fd >= 0 and name(self._recording) == self._name:
                where = directory()
                Path(self._temporary).replace(where / self._name)
                self._temporary = ""
                _prune(where)

    def _drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._temporary:
            with contextlib.suppress(OSError):
                Path(self._temporary).unlink()
            self._temporary = ""


def _prune(where: Path) -> None:
    """Removes the oldest entries beyond MOST, and what was not finished by processes that died."""
    by_age = sorted(where.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in by_age[MOST:]:
        path.unlink(missing_ok=True)
