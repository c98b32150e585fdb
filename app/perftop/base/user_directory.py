"""Where a user's files lie, by the XDG specification, and what is in them."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def user_directory(kind: str, usual: str) -> Path:
    """The directory of this kind: CONFIG, STATE or CACHE; `usual` is where it lies unless the user
    says otherwise. What is no absolute path is ignored, as the specification says."""
    base = os.environ.get(f"XDG_{kind}_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser(usual)  # noqa: PTH111 - does not fail without a home
    return Path(base)


def own_content(path: Path, most: int) -> bytes | None:
    """Content of a regular file of ours; None if there is none, or one of over `most` bytes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
            return file.read() if ours and found.st_size <= most else None
    except OSError:
        return None
