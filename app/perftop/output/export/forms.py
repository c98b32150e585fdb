"""Code shared by all export formats."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from perfprobe import wire
from perftop.model.kinds import Episode
from perftop.output.export.fields import Field, RowBlock
from perftop.session.interval import Interval
from perftop.session.session import Session

EpisodeCounts = dict[str, dict[str, int]]


class Output(Protocol):
    def write(self, data: bytes | bytearray, /) -> object: ...


class ExportFormat(Protocol):
    """An export format. Each method writes its argument, at the latest with `flush`. `finish` is
    called last, even for a damaged recording; `write_summary` just before it, if there was a frame.
    Tables write only intervals."""

    @abstractmethod
    def write_interval(self, interval: Interval) -> None: ...

    def write_beginning(self, episode: Episode) -> None: ...

    def write_episode(self, episode: Episode) -> None: ...

    def read_message(self, message: wire.Message) -> None:
        """Called for each message that the session has applied."""

    def write_summary(self, counted: EpisodeCounts, elapsed_s: float) -> None: ...

    def flush(self) -> None: ...

    def finish(self) -> None: ...

    def drop(self) -> None:
        """Releases resources. Called if `finish` has failed or will not be called."""


MAX_BLOCK_CELLS = 1 << 18
"""Maximum number of cells, over several intervals, that are computed and formatted together. More
would gain little."""


class BlockFormat(ExportFormat):
    """A format of columns, which are computed together for several intervals."""

    def __init__(self, session: Session, fields: Sequence[Field]) -> None:
        self._block = RowBlock(session)
        cells = len(fields) * max(1, len(self._block.rows))
        self._max_intervals = max(1, MAX_BLOCK_CELLS // cells)

    def write_interval(self, interval: Interval) -> None:
        if self._block.intervals and self._block.cores is not interval.cores:
            self.flush()
        self._block.add(interval)
        if len(self._block.intervals) == self._max_intervals:
            self.flush()

    def flush(self) -> None:
        if self._block.intervals:
            self._write_block(self._block)
            self._block.clear()

    @abstractmethod
    def _write_block(self, block: RowBlock) -> None: ...
