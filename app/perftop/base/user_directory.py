"""Where a user's files lie, by the XDG specification."""

from __future__ import annotations

import os
from pathlib import Path


def user_directory(kind: str, usual: str) -> Path:
    """The directory of this kind: CONFIG, STATE or CACHE; `usual` is where it lies unless the user
    says otherwise. What is no absolute path is ignored, as the specification says."""
    base = os.environ.get(f"XDG_{kind}_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser(usual)  # noqa: PTH111 - does not fail without a home
    return Path(base)
