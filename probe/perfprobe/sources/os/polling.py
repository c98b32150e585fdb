"""Everything that the main thread reads once a batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from perfprobe import wire
from perfprobe.native import frame_layout
from perfprobe.sources.os.hsmp import Hsmp
from perfprobe.sources.os.limit_status import LimitStatus
from perfprobe.sources.os.machine_counts import Machine
from perfprobe.sources.os.polled import Polled, Values
from perfprobe.sources.os.powercap import Powercap
from perfprobe.sources.os.resctrl import Resctrl
from perfprobe.wire import Cpu, Missing


class Polling:
    def __init__(self, root: Path, rows: Sequence[Cpu], served: Collection[str]) -> None:
        """`served`: keys that a CPU's thread reads."""
        self._polled: list[Polled] = [
            Machine(root, len(rows)),
            Powercap(root, rows, served),
            Hsmp(root, rows),
            LimitStatus(root, rows),
            resctrl := Resctrl(root, rows),
        ]
        self.records = resctrl.take
        """What it told of groups since the last call."""
        self._sent = [each for each in self._polled if each.block.counters]

    @property
    def missing(self) -> list[Missing]:
        return [missing for each in self._polled for missing in each.missing]

    def blocks(self) -> list[tuple[wire.Block, int]]:
        return [(each.block, each.rows) for each in self._sent]

    def fill(
        self, frame: memoryview, places: Mapping[str, frame_layout.Place], stamp: Callable[[], int]
    ) -> None:
        """Writes the rows into the frame, with stamps before and after their reads."""
        words = frame.cast("Q")
        for each in self._sent:
            place, begun = places[each.block.name], stamp()
            for row, values in each.read():
                put(words, place, row, (begun, stamp()), values)

    def close(self) -> None:
        for each in self._polled:
            each.close()


def put(
    words: memoryview,
    place: frame_layout.Place,
    row: int,
    read: tuple[int, int],
    values: Values,
) -> None:
    """Writes a row that was `read` between these stamps into words that are 0. None stays
    invalid."""
    head = place.head + row * wire.HEAD
    words[head], words[head + 1] = read
    words[head + 4] = wire.ROW_SAMPLED
    at, valid = place.values + row * len(values), 0
    for i, value in enumerate(values):
        if value is not None:
            words[at + i] = value
            valid |= 1 << i
    words[place.valid + row] = valid
