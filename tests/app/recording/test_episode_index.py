"""The episodes of a whole recording: equal to those of an export, and cached."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from exports import export, hello, messages, record
from fakes import Machine, queue_records
from nightly import cases_by_day
from recording_files import index_in_process, write_recording

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.output.stat_lines import episode_line
from perftop.recording.file import Recording
from perftop.session import loss_history
from perftop.session.episodes import RecordingEpisodes
from perftop.session.session import Session
from perftop.tui import recording_index

SPECS = {
    "drops": "sim:turbo-drop,cpus=8,seed=3",
    "neighbours": "sim:neighbour,cpus=8,seed=3",
    "hotplug": "sim:hotplug,cpus=4,seed=3",
    "warm-up": "sim:warmup,cpus=8,seed=3",
}
SECONDS = 24


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One recording of each machine, with three marks, two of them between the same samples."""
    where, built = tmp_path_factory.mktemp("recordings"), {}
    for name, spec in SPECS.items():
        result = messages(spec, SECONDS, 200_000_000)
        for label, after_s in (("here", 10), ("there", 10), ("then", 12)):
            mark = wire.Note("mark", hello(result).raw_ns + after_s * 10**9, data={"label": label})
            at = next(
                i for i, m in enumerate(result)
                if isinstance(m, wire.Frame | wire.Note) and m.time_ns > mark.time_ns
            )  # fmt: skip
            result = [*result[:at], mark, *result[at:]]
        built[name] = record(where / name, result)
    return built


INDEX_PROCESS = recording_index._index_process
"""Starts a separate process. Most tests here index in their own process."""


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(recording_index, "_index_process", index_in_process)


def new_episodes(hello: wire.Hello) -> RecordingEpisodes:
    return RecordingEpisodes([row.package for row in hello.topology])


def indexed(path: Path) -> RecordingEpisodes:
    async def go() -> RecordingEpisodes:
        with Recording(path) as recording:
            episodes = new_episodes(recording.hello)
            async for _ in recording_index.fill_episodes(path, recording.hello, episodes):
                pass
            return episodes

    return asyncio.run(go())


def printed_episodes(path: Path, result: RecordingEpisodes) -> list[object]:
    with Recording(path) as recording:
        session = Session(recording.hello)
        lines = [episode_line(session, e) for e in (*result.ended, *result.running)]
    return [json.loads(json.dumps(line)) for line in lines]


def exported_episodes(path: Path, status: int = 0) -> list[object]:
    lines = [json.loads(line) for line in export(path, "jsonl", status).splitlines()]
    return [line for line in lines if line["type"] == "episode"]


def complete_file(data: bytes) -> bytes:
    return data


def truncated_file(data: bytes) -> bytes:
    """A recording whose recorder was killed: it ends within a message and has no index."""
    return data[: len(data) * 7 // 10]


def damaged_file(data: bytes) -> bytes:
    at = len(data) * 7 // 10
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("name", "state"),
    cases_by_day(
        [
            (name, state)
            for name in SPECS
            for state in (complete_file, truncated_file, damaged_file)
        ],
        [
            *((name, complete_file) for name in SPECS),
            *(("drops", state) for state in (truncated_file, damaged_file)),
        ],
    ),
)
def test_replay_has_the_episodes_of_export(
    recordings: dict[str, Path], tmp_path: Path, name: str, state: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(state(recordings[name].read_bytes()))
    result = indexed(path)
    assert result.is_complete
    assert printed_episodes(path, result) == exported_episodes(
        path, 0 if state is complete_file else 4
    )
    assert printed_episodes(path, indexed(path)) == printed_episodes(path, result)  # from the cache
    assert result.ended or result.running
    assert [mark.evidence["label"] for mark in result.marks] == ["here", "there", "then"]


def test_the_index_of_a_long_recording_has_fewer_sums(
    recordings: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of each second would exceed the size of a cache entry after a few days, and each replay
    would read the whole recording again."""
    monkeypatch.setattr(loss_history, "MAX_RECORDING_SUMS", 4)
    with Recording(recordings["drops"]) as recording:
        notes = [note for note in recording_index.notes(recording) if note.kind == "sums"]
    times_s = [(note.time_ns - note.data["start_ns"]) / 1e9 for note in notes]
    assert np.diff(times_s).round().tolist() == [1, 1, 1, 2, 2, 4, 4, 8, 1]


def test_a_separate_process_finds_the_same_episodes(
    recordings: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recordings["drops"]
    expected = printed_episodes(path, indexed(path))
    (entry,) = recording_index.cache_directory().iterdir()
    entry.unlink()
    monkeypatch.setattr(recording_index, "_index_process", INDEX_PROCESS)
    assert printed_episodes(path, indexed(path)) == expected
    assert entry.exists()


# --- the cache


def fail_if_indexed(_: Path) -> AbstractContextManager[int]:
    raise Failed("the recording was indexed again")


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1],
    lambda data: data[:90] + bytes([data[90] ^ 1]) + data[91:],
    lambda _: b"",
    lambda _: b"\xff" * 200,
])  # fmt: skip
def test_a_damaged_entry_is_replaced(
    recordings: dict[str, Path], damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recordings["drops"]
    first = indexed(path)
    (entry,) = recording_index.cache_directory().iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert printed_episodes(path, indexed(path)) == printed_episodes(path, first)
    monkeypatch.setattr(recording_index, "_index_process", fail_if_indexed)
    assert printed_episodes(path, indexed(path)) == printed_episodes(path, first)


def test_an_unwritable_cache_is_not_an_error(recordings: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no directory")
    path = recordings["drops"]
    assert printed_episodes(path, indexed(path)) == exported_episodes(path)


def test_a_symbolic_link_is_not_used_as_an_entry(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    path = recordings["drops"]
    indexed(path)
    (entry,) = recording_index.cache_directory().iterdir()
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert recording_index.cached_index(path) is None


def test_old_entries_are_removed(
    recordings: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_index, "MAX_ENTRIES", 2)
    directory = recording_index.cache_directory()
    directory.mkdir(parents=True)
    for name in (f"{1:040}", f"{2:040}", f".{3:040}.0123456789abcdef", "of another program"):
        (directory / name).write_bytes(b"")
    entry, of_another_state = recording_index.cache_name(recordings["drops"]), f"{4:040}"
    recording_index.write_cache_entry(recordings["drops"], of_another_state, b"old")
    recording_index.write_cache_entry(recordings["drops"], entry, b"new")
    remaining = {path.name for path in directory.iterdir()}
    assert len(remaining) == 3
    assert "of another program" in remaining
    assert entry in remaining
    assert of_another_state not in remaining


def test_a_failed_indexing_is_reported(
    recordings: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_index, "_index_process", INDEX_PROCESS)
    path = tmp_path / "file"
    path.write_bytes(recordings["drops"].read_bytes())

    async def go() -> None:
        with Recording(path) as recording:
            path.unlink()
            async for _ in recording_index.fill_episodes(
                path, recording.hello, RecordingEpisodes()
            ):
                pass

    with pytest.raises(Failed, match=r"^not all episodes"):
        asyncio.run(go())


def test_losses_after_a_gap_are_those_of_all_its_seconds(tmp_path: Path) -> None:
    """A machine that was stopped for a minute has one sample of a minute."""
    machine, hogs = Machine(cores=2), queue_records(cpu1=[(11, "hogA", 0.5, 0.5)])
    seqs = [*range(150), *range(750, 781)]
    frames = [machine.frame(seq, records={} if seq % 10 else hogs) for seq in seqs]
    path = write_recording(tmp_path / "file", machine.hello, frames)
    history = indexed(path).loss_history
    edges_ns = np.array([0, 14, 76, 78]) * 10**9
    known_s, _, lost_s = history.between(edges_ns)
    assert known_s == pytest.approx([14.0, 62.0, 2.0])
    assert lost_s["scheduler"] == pytest.approx([7.0, 31.0, 1.0], abs=0.6)


def test_losses_of_a_long_first_sample_are_known(tmp_path: Path) -> None:
    """The first sample is longer than the seconds of a report."""
    machine, hogs = Machine(cores=2), queue_records(cpu1=[(11, "hogA", 0.5, 0.5)])
    frames = [machine.frame(seq, records=hogs) for seq in (0, 600, 610)]
    history = indexed(write_recording(tmp_path / "file", machine.hello, frames)).loss_history
    known_s, _, lost_s = history.between(np.array([0, 60, 61]) * 10**9)
    assert known_s == pytest.approx([60.0, 1.0])
    assert lost_s["scheduler"][1] == pytest.approx(0.5, abs=0.1)


def test_each_wait_is_listed_once_and_the_last_one_is_still_running(tmp_path: Path) -> None:
    hogs = queue_records(cpu1=[(11, "hogA", 0.5, 0.5), (12, "hogB", 0.5, 0.5)])
    waits_s = range(20), range(40, 60), range(80, 100)
    machine = Machine(cores=2)
    feed = machine.messages(
        996, lambda seq: hogs if any(seq // 10 in span for span in waits_s) else {}
    )
    frames = [message for message in feed if isinstance(message, wire.Frame)]
    result = indexed(write_recording(tmp_path / "file", machine.hello, frames))
    starts_s = [loss.start_ns // 10**9 for loss in (*result.losses, *result.running_losses)]
    assert starts_s == [0, 39, 79]
    assert [loss.end_ns is None for loss in result.running_losses] == [True]
    assert result.loss_history.newest[0] == frames[-1].time_ns
