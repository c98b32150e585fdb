"""Everything that the main thread reads once a batch."""

from __future__ import annotations

from array import array
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
        for each in self._sent:
            place, begun = places[each.block.name], stamp()
            for row, values in each.read():
                put(frame, place, row, (begun, stamp()), values)

    def close(self) -> None:
        for each in self._polled:
            each.close()


def put(
    frame: memoryview,
    place: frame_layout.Place,
    row: int,
    read: tuple[int, int],
    values: Values,
) -> None:
    """Writes a row that was `read` between these stamps. None stays invalid."""
    words = frame.cast("Q")
    head = place.head + row * wire.HEAD
    words[head : head + wire.HEAD] = array("Q", [*read, 0, 0, wire.ROW_SAMPLED])
    at = place.values + row * len(values)
    words[at : at + len(values)] = array("Q", [value or 0 for value in values])
    valid = sum(1 << i for i, value in enumerate(values) if value is not None)
    words[place.valid + row] = valid
