"""A hint for people who see the screen for the first time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def hint(captions: Mapping[str, str]) -> str:
    """The hint, once for each user: '' if it was told before, or if that cannot be remembered.
    `captions`: names of keys, by id."""
    place = state() / "perftop" / "greeted"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(exist_ok=False)
    except OSError:
        return ""
    shows, opens = captions["help"], captions["open"]
    return f"New here?  {shows} shows keys and shapes · {opens} opens a core · perftop demo"


def state() -> Path:
    """The user's directory of state, as the XDG specification has it."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not Path(base).is_absolute():
        base = os.path.expanduser("~/.local/state")  # noqa: PTH111 - does not fail without a home
    return Path(base)
