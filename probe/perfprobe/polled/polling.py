"""Blocks of a frame that the main thread reads once per batch, because any CPU can read them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from perfprobe import wire
from perfprobe.cpu import topology
from perfprobe.cpu.files import MAX_BYTES, OpenFile
from perfprobe.native import sampler
from perfprobe.wire import Cpu, Missing

Values = Sequence[int | None]
"""The values of a row by column; None: not known."""


class ReadPace:
    """Decides when a slow read is due: once in `period_s`, for at most 1 % of the thread's time."""

    PAUSE_FACTOR = 100
    """Minimum pause after a read, as a multiple of the time that the read took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, period_s: float = 0.0) -> None:
        self._clock, self._next_s, self._period_s = clock, clock(), period_s

    @contextlib.contextmanager
    def timed_read(self) -> Iterator[bool]:
        """Yields whether the read is due; measures the block, in which the caller reads."""
        start_s = self._clock()
        is_due = start_s >= self._next_s
        yield is_due
        if is_due:
            end_s = self._clock()
            pause_s = self.PAUSE_FACTOR * (end_s - start_s)
            self._next_s = max(start_s + self._period_s, end_s + pause_s)


class PolledBlock:
    """A block of at most 64 columns that the main thread reads, and the files that it has open; not
    sent without counters."""

    block: wire.Block
    rows: int

    def __init__(self) -> None:
        self.missing: list[Missing] = []
        self._files: list[OpenFile] = []

    def read(self) -> Iterator[tuple[int, Values]]:
        """Reads the rows that are due, and yields the number and the values of each."""
        raise NotImplementedError

    def take_records(self) -> dict[str, object]:
        """Returns the frame's records that the last read has added; usually empty."""
        return {}

    def open(self, path: str, limit: int = MAX_BYTES) -> OpenFile:
        """Opens a file, which `close` closes. Raises OSError."""
        file = OpenFile(path, limit)
        file.fd()
        self._files.append(file)
        return file

    def try_open(self, path: str, limit: int = MAX_BYTES) -> OpenFile | None:
        """Opens a file; None if it cannot be read (such as a file of PSI if PSI is disabled)."""
        with contextlib.suppress(OSError):
            file = self.open(path, limit)
            return file if file.read() else None
        return None

    def close(self) -> None:
        while self._files:
            self._files.pop().close()


def package_ids(rows: Sequence[Cpu]) -> list[int | None]:
    """Returns the kernel's number of each package in hello's order; None if unknown."""
    by_cpu = {row.cpu: row.package for row in rows}
    return [
        next((by_cpu[cpu] for cpu in group if by_cpu[cpu] is not None), None)
        for group in topology.packages(rows)
    ]


# --- writing rows to a frame ----------------------------------------------------------------------


class PolledBlocks:
    def __init__(self, polled: Sequence[PolledBlock]) -> None:
        self._all_blocks = polled
        self._sent_blocks = [polled for polled in self._all_blocks if polled.block.counters]

    @property
    def missing(self) -> list[Missing]:
        return [missing for polled in self._all_blocks for missing in polled.missing]

    def blocks(self) -> list[tuple[wire.Block, int]]:
        return [(polled.block, polled.rows) for polled in self._sent_blocks]

    def read_into(
        self,
        frame: memoryview,
        offsets: Mapping[str, sampler.BlockOffsets],
        stamp: Callable[[], int],
    ) -> None:
        """Reads all blocks into the frame, where they must be 0 before the call; `stamp` returns
        the time stamps before and after a read."""
        words = frame.cast("Q")
        for polled in self._sent_blocks:
            block_offsets, start = offsets[polled.block.name], stamp()
            for row, values in polled.read():
                head = block_offsets.heads + row * wire.HEAD
                words[head], words[head + 1] = start, stamp()
                words[head + 4] = wire.ROW_SAMPLED
                first, valid = block_offsets.values + row * len(values), 0
                for i, value in enumerate(values):
                    if value is not None:  # other columns stay invalid
                        words[first + i] = value
                        valid |= 1 << i
                words[block_offsets.valid + row] = valid

    def take_records(self) -> dict[str, object]:
        records: dict[str, object] = {}
        for polled in self._sent_blocks:
            records |= polled.take_records()
        return records

    def close(self) -> None:
        for polled in self._all_blocks:
            polled.close()
