"""Recordings as files: reading from any time, with and without an index, complete and damaged."""

from __future__ import annotations

import hashlib
import io
import os
import random
import tracemalloc
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from nightly import cases_by_day
from recording_pieces import FOUND, HELLO, RecordedWrites, record_writes, unpacked_message
from roots import DATA

from perfprobe import wire
from perftop.base.errors import DAMAGED, Failed
from perftop.recording.file import WINDOW_BYTES, PipedRecording, Recording
from perftop.session.packing import BLOCK_MESSAGES, Recorder


@pytest.fixture(params=["ended", "killed", "raw"])
def data(request: pytest.FixtureRequest) -> bytes:
    """A finished recording, an unfinished one, and a stream as written by the probe."""
    if request.param == "raw":
        return wire.encode(HELLO) + b"".join(map(wire.encode, FOUND))
    return record_writes(HELLO, FOUND, end=request.param == "ended").data


def open_recording(directory: Path, data: bytes) -> Recording:
    path = directory / "recording"
    path.write_bytes(data)
    return Recording(path)


@pytest.mark.parametrize("cut", [1, 2, 9, 100, 5000])
def test_a_cut_recording_keeps_its_complete_messages(tmp_path: Path, data: bytes, cut: int) -> None:
    with open_recording(tmp_path, data[:-cut]) as recording:
        result = list(recording.messages())
    assert result == [unpacked_message(message) for message in FOUND[: len(result)]]
    assert len(result) >= len(FOUND) - 2 - cut // 50
    assert "truncated at byte" in str(recording.damage)


def test_messages_before_damage_are_kept_if_none_follow(tmp_path: Path) -> None:
    with open_recording(tmp_path, STREAM + bytes(200)) as recording:
        assert len(list(recording.messages())) == 3
        assert recording.damage == f"damaged at byte {THREE_END}: not a message"


def test_a_message_after_damage_is_found_whatever_its_length(tmp_path: Path) -> None:
    """The high byte of its length is the first byte of a shorter head."""
    first, second, third = [message for message in FOUND if isinstance(message, wire.Frame)][:3]
    size = 50_000
    for _ in range(2):  # the first one only shows how many bytes to add
        encoded = wire.encode(replace(second, records={"x": bytes(size)}))
        size += 0xC4C8 + 3 - len(encoded)
    assert encoded[:3] == b"\xc5\xc4\xc8"
    data = wire.encode(HELLO) + b"\0" + wire.encode(first)[1:] + encoded + wire.encode(third)
    with open_recording(tmp_path, data) as recording:
        times = [message.time_ns for message in recording.messages()]
    assert times == [second.time_ns, third.time_ns]


def test_a_damaged_length_does_not_cause_a_huge_read(tmp_path: Path) -> None:
    """Before a damaged message, one byte can look like the first of a head with a length of 4
    GB."""
    first, second, third = [message for message in FOUND if isinstance(message, wire.Frame)][:3]
    damaged = wire.encode(replace(second, records={"x": bytes(2000)}))[:-1] + b"\0"
    assert damaged[:1] == b"\xc5"
    start = wire.encode(HELLO) + b"\0" + wire.encode(first)[1:]
    gap = start + b"\xc6\xff" + damaged
    data = gap.ljust(len(wire.encode(HELLO)) + WINDOW_BYTES + 10, b"\0") + wire.encode(third)
    tracemalloc.start()
    try:
        with open_recording(tmp_path, data) as recording:
            times = [message.time_ns for message in recording.messages()]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert times == [third.time_ns]
    assert peak_bytes < 10**8


@pytest.mark.parametrize("share_of_file", [0.1, 0.5, 0.99])
def test_a_flipped_bit_loses_at_most_its_block(tmp_path: Path, share_of_file: float) -> None:
    data = bytearray(GOLDEN.read_bytes())
    with Recording(GOLDEN) as whole:
        whole_messages, begin, last_ns = list(whole.messages()), whole._first_offset, whole.last_ns
    assert last_ns == whole_messages[-1].time_ns
    index = data.rindex(b"index") - 60
    data[begin + round((index - begin) * share_of_file)] ^= 0x20
    with open_recording(tmp_path, bytes(data)) as recording:
        result = list(recording.messages())
        assert "damaged at byte" in str(recording.damage)
        assert "Error" not in str(recording.damage)
        assert result[-1].time_ns == recording.last_ns
    missing = [message for message in whole_messages if message not in result]
    assert 0 < len(missing) <= BLOCK_MESSAGES
    assert [message for message in whole_messages if message not in missing] == result
    assert (result[-1].time_ns == last_ns) == (share_of_file < 0.9)


@pytest.mark.parametrize("change", [1, -1])
def test_bytes_that_are_missing_or_too_many_lose_at_most_their_block(
    tmp_path: Path, change: int
) -> None:
    """All later messages are then at other offsets than in the index."""
    data = GOLDEN.read_bytes()
    with Recording(GOLDEN) as whole:
        messages, at = list(whole.messages()), whole._first_offset + 200
    data = data[:at] + data[at:][:200] + data[at:] if change > 0 else data[:at] + data[at + 3 :]
    with open_recording(tmp_path, data) as recording:
        result = list(recording.messages())
    assert 0 < len(messages) - len(result) <= BLOCK_MESSAGES
    assert result[-1] == messages[-1]


GOLDEN = DATA / "recording-1"
NEWER_HELLO = msgpack.packb(msgpack.packb({"type": "hello", "wire": 2}))


@pytest.mark.parametrize(("text", "why"), [
    (b"", "is empty: nothing was recorded"),
    (b"\x7fELF and so on", "is not a perftop recording; perftop record -o FILE makes one$"),
    (wire.encode(HELLO)[:-1], "ends before"), (wire.encode(wire.Bye("x")), "no hello"),
    (NEWER_HELLO, "^cannot read .*: wire version 2 is not one this perftop reads"),
    (msgpack.packb(msgpack.packb({"type": "hello", "wire": "x" * 30})), f"version '{'x' * 19} is"),
    (NEWER_HELLO + GOLDEN.read_bytes(), "^cannot read .*: wire version 2 is not"),
])  # fmt: skip
def test_other_file_types_are_refused(tmp_path: Path, text: bytes, why: str) -> None:
    with pytest.raises(Failed, match=why) as refused:
        open_recording(tmp_path, text)
    assert refused.value.status == DAMAGED


@pytest.mark.parametrize("changed_byte", [0, 1, 2, 100])
def test_damage_to_the_first_message_is_reported(tmp_path: Path, changed_byte: int) -> None:
    data = bytearray(GOLDEN.read_bytes())
    data[changed_byte] ^= 0x10
    with pytest.raises(Failed, match="its first message, which describes all samples, is damaged"):
        open_recording(tmp_path, bytes(data))


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Failed, match="it is a pipe; perftop export reads pipes"):
        Recording(tmp_path / "pipe")
    with pytest.raises(Failed, match="replay -: it is a pipe; perftop export reads pipes"):
        Recording(Path("-"))


def test_a_disk_read_error_is_reported() -> None:
    with pytest.raises(Failed, match="cannot read /proc/self/mem: Input/output error"):
        Recording(Path("/proc/self/mem"))


class FailingPipe(io.BytesIO):
    """A pipe whose writer ends after these bytes, or that fails then."""

    def __init__(self, data: bytes, error: OSError | None) -> None:
        super().__init__(data)
        self._error = error

    def read1(self, size: int | None = -1) -> bytes:
        data = super().read1(size)
        if not data and self._error is not None:
            raise self._error
        return data


GREETING, *THREE = [wire.encode(message) for message in (HELLO, *FOUND[:3])]
STREAM = GREETING + b"".join(THREE)
BYE, DISK_ERROR = wire.encode(wire.Bye("done")), OSError(5, "Input/output error")
TWO_END, THREE_END = len(STREAM) - len(THREE[-1]), len(STREAM)


@pytest.mark.parametrize(("data", "error", "count", "damage"), [
    (STREAM + BYE, None, 3, None), (record_writes(HELLO, FOUND[:3], end=True).data, None, 3, None),
    (STREAM, None, 3, f"truncated after byte {THREE_END}: it has no end"),
    (STREAM[:-1], None, 2, f"truncated after byte {TWO_END}: the last message is incomplete"),
    (STREAM[:-1], DISK_ERROR, 2, f"unreadable after byte {TWO_END}: Input/output error"),
    (STREAM + bytes(20), None, 3, f"damaged after byte {THREE_END}: not a perftop stream"),
    (GREETING, DISK_ERROR, 0, f"unreadable after byte {len(GREETING)}: Input/output error"),
])  # fmt: skip
def test_a_pipe_is_read_up_to_its_damage(
    data: bytes, error: OSError | None, count: int, damage: str | None
) -> None:
    file: Any = FailingPipe(data, error)
    with PipedRecording("pipe", file) as pipe:
        frames = [message for message in pipe.messages() if isinstance(message, wire.Frame)]
        assert frames == [unpacked_message(message) for message in FOUND[:count]]
        assert (pipe.hello, pipe.checked, pipe.damage) == (HELLO, True, damage)
        assert (pipe.size, pipe.is_growing) == (None, False)


@pytest.mark.parametrize(("data", "error", "why"), [
    (b"", None, "pipe is empty: nothing was recorded in it"),
    (b"", DISK_ERROR, "cannot read pipe: Input/output error"),
    (GREETING[:-1], None, "pipe ends before its first sample: nothing was recorded in it"),
    (GREETING[:-1], DISK_ERROR, "cannot read pipe: Input/output error"),
    (b"\x7fELF", None, "pipe is not a perftop recording; perftop record -o FILE makes one"),
])  # fmt: skip
def test_a_pipe_without_a_sample_is_refused(data: bytes, error: OSError | None, why: str) -> None:
    file: Any = FailingPipe(data, error)
    with pytest.raises(Failed) as refused:
        PipedRecording("pipe", file)
    assert (str(refused.value), file.closed) == (why, True)


class BrokenDisk:
    def seek(self, _: int) -> None:
        raise OSError(5, "Input/output error")

    def close(self) -> None: ...


def test_a_later_disk_error_is_reported_as_damage(tmp_path: Path) -> None:
    with open_recording(tmp_path, record_writes(HELLO, FOUND, end=True).data) as recording:
        recording._file.close()
        recording._file, recording._window = BrokenDisk(), b""  # type: ignore[assignment]
        assert list(recording.messages()) == []
        at = recording._first_offset
        assert recording.damage == f"unreadable after byte {at}: Input/output error"


def first_is_missing(blocks: array[int]) -> None:
    del blocks[:2]


def first_is_twice_there(blocks: array[int]) -> None:
    blocks[:2] = blocks[:2] + blocks[:2]


def last_is_cut(blocks: array[int]) -> None:
    del blocks[-1]


def beyond_the_file(blocks: array[int]) -> None:
    blocks[2] = 2**63


def out_of_order(blocks: array[int]) -> None:
    blocks[:4] = blocks[2:4] + blocks[:2]


def between_messages(blocks: array[int]) -> None:
    blocks[2] += 1


def another_time(blocks: array[int]) -> None:
    blocks[3] += 1


INVALID_INDEXES = [first_is_missing, first_is_twice_there, last_is_cut, beyond_the_file,
                   out_of_order, between_messages, another_time]  # fmt: skip


@pytest.mark.parametrize("falsify", INVALID_INDEXES)
def test_an_invalid_index_is_reported_and_not_used(
    tmp_path: Path, falsify: Callable[[array[int]], None]
) -> None:
    out = RecordedWrites()
    recorder = Recorder(out.write, HELLO)
    for message in FOUND:
        recorder.write([message])
    falsify(recorder._blocks)
    at = recorder.byte_count
    recorder.end()
    with open_recording(tmp_path, out.data) as recording:
        assert recording.damage == f"damaged at byte {at}: its index does not match"
        assert list(recording.messages()) == [unpacked_message(message) for message in FOUND]
        assert len(list(recording.messages(FOUND[-1].time_ns))) <= BLOCK_MESSAGES


@pytest.mark.parametrize("seed", cases_by_day(range(4), [0]))
def test_all_flipped_bits_are_detected(tmp_path: Path, seed: int) -> None:
    """In hello, messages and index: either the content is unchanged or damage is reported. A
    recording whose hello seems to have no checksum reports that."""
    rng, data = random.Random(seed), record_writes(HELLO, FOUND[:4], end=True).data
    results = [unpacked_message(message) for message in FOUND[:4]]
    for _ in range(250):
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            with open_recording(tmp_path, bytes(flipped)) as recording:
                result = list(recording.messages())
                assert recording.hello == HELLO
                assert result == results or recording.damage is not None
                assert recording.checked or result == results
                assert all(message in results for message in result)
        except Failed as failed:
            assert failed.status == DAMAGED


def test_a_torn_message_that_ends_like_an_index_is_not_an_index(tmp_path: Path) -> None:
    out = record_writes(HELLO, FOUND)
    at = out.ends[-2]
    torn = out.data[: at + 20] + at.to_bytes(8, "little")
    with open_recording(tmp_path, torn) as recording:
        assert list(recording.messages()) == [unpacked_message(message) for message in FOUND[:-1]]
        assert recording.damage is not None
        assert recording.damage.startswith(f"truncated at byte {at}:")


# --- recordings of older versions, which must remain readable

DIGEST = "864e0db83771bbd7e0fab148e86f1d99280c9fb757188fd13f19ab0701fdd048"
"""Digest of its frames as written by the simulated machine."""


def block_bytes(frame: wire.Frame) -> bytes:
    rows = (frame.blocks[name] for name in sorted(frame.blocks))
    return b"".join(bytes(part) for row in rows for part in (row.head, row.valid, row.values))


def test_a_recording_of_wire_1_remains_readable() -> None:
    with Recording(GOLDEN) as recording:
        hello, result = recording.hello, list(recording.messages())
        assert recording.damage is None
        assert not recording.checked
        late = list(recording.messages(result[-1].time_ns))
    assert (hello.wire, hello.host, hello.source) == (1, "golden", "sim:hotplug")
    frames = [message for message in result if isinstance(message, wire.Frame)]
    assert [frame.seq for frame in frames] == list(range(110))
    assert frames[-1].time_ns - frames[0].time_ns == 10_900_000_000
    digest = hashlib.sha256(b"".join(map(block_bytes, frames))).hexdigest()
    assert digest == DIGEST
    notes = [message for message in result if isinstance(message, wire.Note)]
    assert [note.kind for note in notes] == ["mark", "hotplug"]
    assert (notes[0].author, notes[0].data) == ("recorder", {"label": "half way"})
    assert (notes[1].data["cpu"], notes[1].data["online"]) == (3, False)
    assert late == result[-len(late) :]
    assert len(late) <= BLOCK_MESSAGES
