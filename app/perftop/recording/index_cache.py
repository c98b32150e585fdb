"""What was found in recordings, kept in the user's cache. An entry is named after all that it
depends on, so that a changed file or another perftop never finds it."""

from __future__ import annotations

import contextlib
import hashlib
import re
from functools import cache
from pathlib import Path

import perfprobe
import perftop
from perftop.base import own_directory
from perftop.base.own_directory import OwnDirectory
from perftop.base.user_directory import own_content, user_directory

FORMAT = "1"
MAX_BYTES = 1 << 26
"""Maximum size of an entry; a longer one is not kept."""
MOST = 64
"""Entries kept, the newest."""
ENDS = 1 << 16
"""Bytes at both ends of the recording that its entry depends on: its hello and its index."""
_NAMES = re.compile(r"[0-9a-f]{40}|\.[0-9a-f]{40}\.[0-9a-z_]+")
"""Names of entries, and of those that are not finished."""


def directory() -> Path:
    return user_directory("CACHE", "~/.cache") / "perftop" / "episodes"


def name(recording: Path) -> str | None:
    """Name of the recording's entry; None if it cannot be read, or is a directory."""
    try:
        found = recording.stat()
        known = [FORMAT, perfprobe.__version__, _code(), str(found.st_size), str(found.st_mtime_ns)]
        digest = hashlib.sha256("\n".join(known).encode())
        with recording.open("rb") as file:
            digest.update(file.read(ENDS))
            file.seek(max(0, found.st_size - ENDS))
            digest.update(file.read(ENDS))
    except OSError:
        return None
    return digest.hexdigest()[:40]


@cache
def _code() -> str:
    """When the code was last changed that finds episodes: a checkout keeps its version for long."""
    files = Path(perftop.__path__[0]).rglob("*.py")
    return str(max((file.stat().st_mtime_ns for file in files), default=0))


def read(recording: Path) -> bytes | None:
    """The entry's content; None: there is none that can be used."""
    found = name(recording)
    return None if found is None else own_content(directory() / found, MAX_BYTES)


def keep(recording: Path, before: str | None, data: bytes | bytearray) -> None:
    """Puts an entry among the others, if the recording is what it was when its name was `before`. A
    cache that cannot be written, or belongs to somebody else, is no error."""
    if before is None or len(data) > MAX_BYTES or name(recording) != before:
        return
    with contextlib.suppress(OSError):
        path = directory()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with OwnDirectory.at(path, make=True) as where:
            own_directory.replace(where.fd, before, data, 0o600)
            _prune(where)


def _prune(where: OwnDirectory) -> None:
    """Removes the oldest entries beyond MOST, and what was not finished by processes that died."""
    times = {name: found.st_mtime_ns for name, found in where.files(_NAMES).items()}
    for name in sorted(times, key=times.__getitem__, reverse=True)[MOST:]:
        where.unlink(name)
