"""/proc/stat in frames: the stamps around the read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import trees

from perfprobe.native import frame_layout
from perfprobe.sources.os.procstat import ATTEMPTS, FORGET, WIDE, ProcStat


def source(root: Path) -> ProcStat:
    trees.put(root, "proc/stat", "cpu  2 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
    return ProcStat(root, [0])


def stamps(found: ProcStat, widths: Iterable[int]) -> tuple[int, int]:
    """Of the row, if the reads of this frame take so long; it is in the frame either way."""
    (place,), words = frame_layout.place([(found.block, 1)])
    frame = memoryview(bytearray(8 * words))
    times = (at for i, width in enumerate(widths) for at in (1000 * i, 1000 * i + width))
    found.fill(frame, place, times.__next__)
    data = frame.cast("Q")
    assert list(data[place.values : place.values + 8]) == [1, 2, 3, 4, 5, 6, 7, 8]
    return data[place.head], data[place.head + 1]


def test_an_interrupted_read_is_repeated(tmp_path: Path) -> None:
    found = source(tmp_path)
    assert stamps(found, [20]) == (0, 20), "the first is as good as any"
    assert stamps(found, [WIDE * 20]) == (0, WIDE * 20)
    assert stamps(found, [WIDE * 20 + 9, 21]) == (1000, 1021)
    assert stamps(found, [900, 700, 800]) == (2000, 2800), "and told as it was, in the end"
    assert ATTEMPTS == 3


def test_what_is_slow_for_good_is_not_interrupted(tmp_path: Path) -> None:
    found = source(tmp_path)
    stamps(found, [20])
    frames = 0
    while frames < 500 and stamps(found, [200] * ATTEMPTS)[0]:
        frames += 1
    assert WIDE * 20 * FORGET**frames < 200 < WIDE * 20 * FORGET ** (frames + 2)


def test_a_stamp_that_stands_still_is_no_interruption(tmp_path: Path) -> None:
    found = source(tmp_path)
    assert stamps(found, [0]) == (0, 0)
    assert stamps(found, [WIDE]) == (0, WIDE)
