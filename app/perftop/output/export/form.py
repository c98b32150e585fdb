"""The interface of an export format."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from perftop.model.episode import Episode
from perftop.output.export.recorded_command import Command
from perftop.session.interval import Interval

Counted = dict[str, dict[str, int]]
"""Number of episodes by kind and cause."""


class Out(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Form(Protocol):
    """A format writes as it is called. `finish` is called last, also for a damaged recording;
    `summary` is called just before it if there was a frame. Tables write intervals only."""

    @abstractmethod
    def interval(self, interval: Interval) -> None: ...

    def beginning(self, episode: Episode) -> None: ...

    def episode(self, episode: Episode) -> None: ...

    def mark(self, mark: Episode) -> None:
        """Write a mark: a moment that the user named."""

    def summary(self, counted: Counted, elapsed_s: float, command: Command) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None:
        """Release what the format holds, because `finish` will not be called or has failed."""
