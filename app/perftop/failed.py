"""What the user is told when something cannot be done: one line, and the exit status."""

from __future__ import annotations

USAGE = 2
"""What was asked for makes no sense."""
UNAVAILABLE = 3
"""It cannot be had here."""
DAMAGED = 4
"""Input is; all that could be read was handed over."""


class Failed(Exception):  # noqa: N818 - what happened, not what class of mistake
    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status
