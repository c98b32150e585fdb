"""What a format is."""

from __future__ import annotations

from typing import Protocol

from perftop.output.export.recorded_command import Command
from perftop.samples.episode import Episode
from perftop.session.interval import Interval

Counted = dict[str, dict[str, int]]
"""Episodes, by kind and cause."""


class Out(Protocol):
    def write(self, data: bytes, /) -> object: ...


class Form:
    """Writes as it goes. Also where the recording is damaged `finish` comes last; before it, if
    there was anything to sum up, `summary`. Tables have intervals only."""

    def interval(self, interval: Interval) -> None:
        raise NotImplementedError

    def episode(self, episode: Episode) -> None: ...

    def mark(self, mark: Episode) -> None:
        """A moment that somebody has named."""

    def summary(self, counted: Counted, elapsed_s: float, command: Command) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None:
        """It will not be finished, whatever the reason."""
