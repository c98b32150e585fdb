"""Batches of this machine's source, on a tree of files: the rounds are the same, and fewer files
are read."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import frame_rows
import pytest
import trees
from waiting import whenever_due

from perfprobe import wire
from perfprobe.machine import source as os_source
from perfprobe.machine.source import Machine
from perfprobe.native import tsc_rate
from perfprobe.native.sampler import DrainedRound, Sampler
from perfprobe.opening import open_os

MS = 1_000_000
SAMPLE_NS = 10 * MS
POLLED = {"machine"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    trees.write_machine(tmp_path, 1)
    trees.put(tmp_path, "proc/stat", "cpu0 1 2 3 4 5 6 7 8\n")
    return tmp_path


def batches(source: Machine) -> Iterator[list[wire.Frame]]:
    """Returns the frames of each poll that has frames."""
    for messages in whenever_due(source.due_s, source.poll, "a batch"):
        if frames := [m for m in messages if isinstance(m, wire.Frame)]:
            yield frames


def rounds(source: Machine, frames: list[wire.Frame]) -> list[int]:
    """Returns the round numbers of the frames, from 0."""
    first_ns = frames[0].time_ns
    return [round((frame.time_ns - first_ns) / source.hello.sample_ns) for frame in frames]


@pytest.mark.parametrize("seed", range(2))
def test_batches_of_any_length_have_all_rounds(root: Path, seed: int) -> None:
    rng = random.Random(seed)
    results: list[wire.Frame] = []
    with closing(open_os(root, SAMPLE_NS, None)) as source:
        for frames in batches(source):
            results += frames
            assert all(POLLED.isdisjoint(frame.blocks) for frame in frames[:-1])
            assert frames[-1].blocks.keys() >= POLLED
            assert all("stat" in frame.blocks for frame in frames)
            if len(results) > 150:
                break
            if rng.random() < 0.3:
                source.set_batch_length(rng.choice([1, 20 * MS, 50 * MS, 200 * MS]))
        passed = rounds(source, results)
        missed = passed[-1] + 1 - len(results)
    assert [frame.seq for frame in results] == list(range(1, len(results) + 1))
    assert passed == sorted(set(passed))
    assert results[-1].late - results[0].late == missed, (
        "each round is reported, or counted as late"
    )


def test_nothing_is_read_between_the_ends_of_batches(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts the calls for ten samples."""
    calls = {"drain": 0, "read_into": 0, "online": 0}

    def count(owner: object, name: str, key: str) -> None:
        function = getattr(owner, name)

        def counting_call(*args: object) -> object:
            calls[key] += 1
            return function(*args)

        monkeypatch.setattr(owner, name, counting_call)

    with closing(open_os(root, SAMPLE_NS, None)) as source:
        source.set_batch_length(100 * MS)
        report = batches(source)
        for _ in range(3):  # two batches of one round, and one that ends on the grid
            next(report)
        count(source._sampler, "drain", "drain")
        count(source._polled_blocks, "read_into", "read_into")
        count(source._online_file, "read", "online")
        wakes = []
        for messages in whenever_due(source.due_s, source.poll, "two batches"):
            wakes.append(len(messages))
            if sum(wakes) >= 20:
                break
    ends = sum(size > 0 for size in wakes)
    assert calls["read_into"] == calls["online"] == ends
    assert calls["drain"] <= sum(wakes) + len(wakes)
    assert max(wakes) > 1


def test_a_source_that_is_not_due_does_not_wake(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_os(root, 100 * MS, None)) as source:
        source.set_batch_length(500 * MS)
        report = batches(source)
        for _ in range(2):
            next(report)
        source._tasks._next_ns = 1 << 62
        batch_s = source.due_s()
        source._tasks._next_ns = int(batch_s * 1e9) - 200 * MS  # a scan is due before the batch
        monkeypatch.setattr(time, "monotonic", lambda: batch_s - 0.4)
        assert source.due_s() == batch_s


def test_lost_rounds_are_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os_source, "MIN_RING", 4)
    monkeypatch.setattr(os_source, "RING_BATCHES", 0)
    with closing(open_os(root, SAMPLE_NS, None)) as source:
        report = batches(source)
        first = next(report)
        time.sleep(0.3)  # no round is drained
        frames = [*first, *next(report)]
        passed = rounds(source, frames)
        assert passed[-1] >= 26
        assert frames[-1].late - first[0].late == passed[-1] + 1 - len(frames)


def test_the_rings_hold_four_of_the_longest_batches(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = []
    result = Sampler.__init__

    def noted(self: Sampler, *args: int, ring_rounds: int, **more: object) -> None:
        rings.append(ring_rounds)
        result(self, *args, ring_rounds=ring_rounds, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Sampler, "__init__", noted)
    for sample_ns in (100 * MS, SAMPLE_NS, MS):
        open_os(root, sample_ns, None).close()
    assert rings == [64, 400, 1024]


def test_a_suspend_in_a_batch_drops_its_ambiguous_rounds(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept_ns = 0
    monkeypatch.setattr(tsc_rate, "suspended_ns", lambda: slept_ns)
    with closing(open_os(root, SAMPLE_NS, None)) as source:
        source.set_batch_length(100 * MS)
        report = batches(source)
        before = [frame for _ in range(3) for frame in next(report)]
        slept_ns = 5_000_000_000
        (woken,) = next(report)
        after: list[wire.Frame] = []
        for batch in report:  # only the batch with the suspend is cut
            after += batch
            if len(batch) > 1:  # on a busy machine, others may have a single sample, too
                break
        frames = [*before, woken, *after]
        passed = rounds(source, frames)
        before_the_suspend = rounds(source, [*before, woken])
    assert not any("asleep_ns" in frame.records for frame in before)
    assert all(frame.records["asleep_ns"] == slept_ns for frame in (woken, *after))
    assert woken.late - frames[0].late == before_the_suspend[-1] + 1 - len(before_the_suspend)
    assert frames[-1].late - frames[0].late == passed[-1] + 1 - len(frames)


def test_a_cpu_is_offline_from_the_end_of_its_batch(root: Path, tmp_path: Path) -> None:
    trees.write_machine(tmp_path, 2)
    with closing(open_os(root, SAMPLE_NS, None)) as source:
        source.set_batch_length(100 * MS)
        ready = whenever_due(source.due_s, source.poll, "the note")
        trees.put(root, f"{trees.CPU}/online", "0\n")
        for messages in ready:
            if messages and isinstance(messages[-1], wire.Note):
                break
        *_, last, note = messages
        assert isinstance(last, wire.Frame)
        assert isinstance(note, wire.Note)
        assert (note.kind, note.data["cpu"], note.time_ns) == ("hotplug", 1, last.time_ns)
        assert flags(last, 1) == wire.ROW_OFFLINE
        after = next(frames for frames in batches(source) if len(frames) > 1)
        assert {flags(frame, 1) for frame in after} == {wire.ROW_OFFLINE}


def test_a_cpu_is_offline_in_the_batch_at_whose_end_it_returns(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round that is open when the CPU goes offline may already have its sample."""
    trees.write_machine(tmp_path, 2)
    with closing(open_os(root, SAMPLE_NS, None)) as source:
        ready = whenever_due(source.due_s, source.poll, "the note")
        trees.put(root, f"{trees.CPU}/online", "0\n")
        next(result for result in ready if any(isinstance(m, wire.Note) for m in result))
        drain, (head,) = source._sampler.drain, source._row_readers.offline_head_offsets({1})

        def drain_with_a_sample() -> DrainedRound | None:
            drained = drain()
            memoryview(source._sampler.frame).cast("Q")[head + 4] = wire.ROW_SAMPLED
            return drained

        monkeypatch.setattr(source._sampler, "drain", drain_with_a_sample)
        trees.put(root, f"{trees.CPU}/online", "0-1\n")
        report = next(result for result in ready if any(isinstance(m, wire.Note) for m in result))
    *frames, note = report
    assert isinstance(note, wire.Note)
    assert note.data["online"]
    assert {flags(frame, 1) for frame in frames if isinstance(frame, wire.Frame)} == {
        wire.ROW_OFFLINE
    }


def flags(frame: wire.Frame, row: int) -> int:
    return int(frame_rows.head(frame.blocks["cpu"])[row, 4])
