"""How long to wait before a machine that does not answer is tried again."""

from __future__ import annotations

WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each try; the last one holds for all later ones."""


class Retry:
    def __init__(self) -> None:
        self._tries = 0

    def wait_s(self) -> float:
        """How long to wait for the next try."""
        wait_s = WAITS_S[min(self._tries, len(WAITS_S) - 1)]
        self._tries += 1
        return wait_s

    def answered(self) -> None:
        """The machine has answered: its next waits begin with the shortest."""
        self._tries = 0
