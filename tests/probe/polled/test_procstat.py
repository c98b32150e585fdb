"""/proc/stat in frames: every round has the lines of all CPUs from one read, in batches of any
length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path

import frame_rows
import pytest
import trees
from waiting import whenever_due

from perfprobe import wire
from perfprobe.kernel.interrupts import STAT_FIELDS, parse_ticks
from perfprobe.machine.source import Machine
from perfprobe.native.sampler import ProcStatText
from perfprobe.opening import open_os
from perfprobe.polled import proc_counts
from perfprobe.polled.proc_counts import MAX_BYTES, ProcStat, proc_mount_remedy

MS = 1_000_000
SAMPLE_NS = 10 * MS
OFF = None
Row = tuple[int, ...] | None


def line(cpu: int, *ticks: int) -> str:
    return f"cpu{cpu} {' '.join(map(str, ticks))} 0 0\n"


def write(root: Path, *lines: str) -> None:
    """Writes in place, because the source keeps the file open."""
    path = root / "proc/stat"
    path.parent.mkdir(exist_ok=True)
    with path.open("r+" if path.exists() else "w", encoding="ascii") as file:
        file.write("cpu  9 9 9 9 9 9 9 9 9 9\n" + "".join(lines) + "intr 5 0\n")
        file.truncate()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four CPUs; CPU 2 is offline."""
    trees.write_machine(tmp_path, 4)
    trees.write_cpu_lists(tmp_path, "0-3", "0-1,3")
    write(tmp_path, *(line(cpu, *range(cpu, cpu + 8)) for cpu in (0, 1, 3)))
    return tmp_path


def frames(source: Machine) -> Iterator[wire.Frame]:
    for messages in whenever_due(source.due_s, source.poll, "frames"):
        yield from (m for m in messages if isinstance(m, wire.Frame))


def rows(frame: wire.Frame) -> list[Row]:
    """The ticks of each CPU; OFF if no column is valid. Fails if only some are."""
    data = frame.blocks["stat"]
    words, valid = memoryview(data.values).cast("Q"), memoryview(data.valid).cast("Q")
    assert set(valid) <= {0, 0xFF}
    return [tuple(words[8 * row : 8 * row + 8]) if bits else OFF for row, bits in enumerate(valid)]


def heads(frame: wire.Frame) -> list[tuple[int, ...]]:
    return [*map(tuple, frame_rows.head(frame.blocks["stat"]).tolist())]


def lost(frame: wire.Frame) -> list[int]:
    """Returns the rounds lost so far, by row: a busy machine loses some, perhaps even the first."""
    return [rounds for _, _, _, rounds, _ in heads(frame)]


def test_a_tick_of_proc_stat_is_a_hundredth_of_a_second() -> None:
    """USER_HZ is 100 on every x86 kernel."""
    assert {counter.scale for counter in proc_counts.STAT_BLOCK.counters} == {0.01}


def test_rows_share_stamps_and_offline_cpus_have_no_columns(root: Path) -> None:
    with closing(open_os(root, SAMPLE_NS, "0")) as source:
        pairs = pairwise(frames(source))
        frame = next(now for before, now in pairs if any(rows(now)) and lost(before) == lost(now))
        names = [block.name for block in source.hello.blocks]
    assert rows(frame) == [tuple(range(8)), tuple(range(1, 9)), OFF, tuple(range(3, 11))]
    (head,) = set(heads(frame))
    begun, ended, _, _, flags = head
    assert begun < ended
    assert flags == wire.ROW_SAMPLED
    assert names == ["cpu", "stat", "machine"]


def test_an_unreadable_file_gives_a_reason_and_no_rows(root: Path) -> None:
    (root / "proc/stat").unlink()
    with closing(open_os(root, SAMPLE_NS, None)) as source:
        next(frames(source))
        missing = {each.what: each for each in source.hello.missing}
        names = [block.name for block in source.hello.blocks]
    assert names == ["cpu", "machine"]
    for field in STAT_FIELDS:
        assert "cannot be read: No such file" in missing[f"stat_{field}_s"].why
        assert missing[f"stat_{field}_s"].fix is None
    assert proc_mount_remedy(Path("/")) == "sudo mount -t proc proc /proc"


def test_a_vanished_text_leaves_columns_invalid(root: Path) -> None:
    with closing(open_os(root, SAMPLE_NS, None)) as source:
        next(frame for frame in frames(source) if rows(frame)[0])
        (root / "proc/stat").write_bytes(b"")
        next(frame for frame in frames(source) if rows(frame) == [OFF] * 4)
        write(root, line(3, *[7] * 8))
        next(frame for frame in frames(source) if rows(frame) == [OFF] * 3 + [(7,) * 8])


def test_the_text_is_as_long_as_its_cpus_need(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def noted(fd: int, cpus: int, size: int) -> ProcStatText:
        sizes.append((cpus, size))
        return ProcStatText(fd, cpus, size)

    monkeypatch.setattr(proc_counts, "ProcStatText", noted)
    for cpus in ([0, 1], range(1024), [0, 65_535]):
        ProcStat(root, cpus).close()
    assert sizes == [(2, 65_536), (1024, 262_400), (65_536, MAX_BYTES)]


def test_frames_of_this_machine_are_between_two_reads() -> None:
    """The values of each frame of a batch are between those of two reads of /proc/stat by the
    test."""

    def ticks_now() -> dict[int, tuple[int, ...]]:
        return parse_ticks(Path("/proc/stat").read_text(encoding="ascii"))

    before = ticks_now()
    with closing(open_os(Path("/"), SAMPLE_NS, None)) as source:
        source.set_batch_length(200 * MS)
        result = frames(source)
        whole = list(islice(filter(any, map(rows, result)), 40))  # a busy machine loses rounds
        after = ticks_now()
        cpus = [row.cpu for row in source.hello.topology]
    for table in whole:
        for cpu, row in zip(cpus, table, strict=True):
            assert (row is OFF) == (cpu not in before)
            if row is not OFF:
                steps = zip(STAT_FIELDS, before[cpu], row, after[cpu], strict=True)
                assert all(a <= b <= c for field, a, b, c in steps if field != "iowait")
