"""A hint for people who see the screen for the first time."""

from __future__ import annotations

from collections.abc import Mapping

from perftop.base.files import user_directory


def hint(captions: Mapping[str, str]) -> str:
    """The hint, once for each user: '' if it was told before, or if that cannot be remembered.
    `captions`: names of keys, by id."""
    place = user_directory("STATE", "~/.local/state") / "perftop" / "greeted"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(exist_ok=False)
    except OSError:
        return ""
    shows, opens = captions["help"], captions["open"]
    return f"New here?  {shows} shows keys and shapes · {opens} opens a core · perftop demo"
