"""Hostile, cut and damaged streams and recordings."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exports
import msgpack
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st
from nightly import cases_by_day
from recording_pieces import FOUND, HELLO, record_writes
from sessions import TICKS
from waiting import MAX_WAIT_S

from perfprobe import wire
from perftop.session.packing import BLOCK_MESSAGES, Layouts, Packer, Reader
from perftop.verbs.recordings import FORMATS

FOUR_THREADS = synth.hello(
    [synth.REF, synth.counter("any_thread")], threads=4, cores=1,
    multipliers=[wire.Multiplier("any_thread", 1.0, "made")],
)  # fmt: skip


def frame(seq: int, share: float = 0.5, **more: Any) -> wire.Frame:
    moved = int(seq * TICKS * share)
    report = synth.frame(FOUR_THREADS, seq, {"ref": [moved] * 4, "any_thread": [2 * moved] * 4})
    return dataclasses.replace(report, **more)


def packed(body: list[object]) -> bytes:
    """Returns the body packed as in a recording, with a valid checksum."""
    content = msgpack.packb(body)
    message = wire.Packed(0, first=True, crc=zlib.crc32(content), data=zlib.compress(content))
    return wire.encode(message)


@pytest.mark.parametrize("time_ns", [-1, 1 << 62, 2**64 - 1])
@pytest.mark.parametrize("inside", [False, True])
def test_an_impossible_time_is_damage(time_ns: int, inside: bool) -> None:
    for message in (frame(1, time_ns=time_ns), wire.Note("mark", time_ns)):
        body = msgpack.unpackb(Packer(Layouts(FOUR_THREADS)).pack(message))
        data = packed(body) if inside else wire.encode(message)
        with pytest.raises(wire.WireError, match=f"a time of {time_ns} ns"):
            list(Reader().feed(wire.encode(FOUR_THREADS) + data))


@pytest.mark.parametrize("row", [{"package": "x"}, {"core": 1 << 63}, {"siblings": [None]}, []])
@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_hotplug_notes_are_validated(tmp_path: Path, row: object, form: str) -> None:
    results: list[wire.Message] = [FOUR_THREADS]
    for seq in range(4):
        data = {"cpu": 1, "online": bool(seq % 2), "row": row}
        results += [frame(seq), wire.Note("hotplug", seq * synth.SAMPLE_NS, data=data)]
    assert exports.export(exports.record(tmp_path / "recording", results), form)


# --- bytes that exhaust memory or time


MAX_EXTRA_BYTES = 200 << 20
"""Maximum memory beyond that of the export of a small recording."""
MAX_TIME_FACTOR = 10
"""Maximum CPU time as a multiple of such an export's, which is about 2 s."""
MILLIONS = b"\xdc\x01\xfe" + 510 * (b"\xdc\x7f\xff" + b"\x80" * 0x7FFF)
"""Lists of 16.7 million empty maps, each list not too long."""
NESTED = b"\x81\xa0" * (1 << 20) + b"\xc0"
"""A million nested maps."""


def message_with_body(body: bytes) -> bytes:
    """Returns a message with this body, which has its own checksum."""
    packed = msgpack.packb(body)
    assert isinstance(packed, bytes)
    return packed


def message_with_checksum(pairs: bytes, count: int) -> bytes:
    """A message of these keys and values, with a valid checksum."""
    body = bytes([0x80 | (count + 1)]) + pairs + b"\xa5check\xce"
    return message_with_body(body + zlib.crc32(body).to_bytes(4, "big"))


def packed_message(content: bytes) -> bytes:
    """A packed message of these bytes, with a valid checksum."""
    data = zlib.compress(content, 9)
    return wire.encode(wire.Packed(HELLO.raw_ns, first=True, crc=zlib.crc32(content), data=data))


def note(data: bytes) -> bytes:
    """A note with these data, packed as in a recording."""
    head = msgpack.packb(["strange", HELLO.raw_ns + 1, "probe"])
    assert isinstance(head, bytes)
    return b"\x94" + head[1:] + data


def map_of(value: bytes) -> bytes:
    return b"\x81\xa1x" + value


def frames_of_forms(count: int) -> bytes:
    """Frames with different sets of blocks, as large as hello allows."""
    counter = synth.counter("many")
    blocks = [
        wire.Block("cpu" if i == 0 else f"b{i}", "cpu", [counter] * (100 if i else 1))
        for i in range(9)
    ]
    hello = synth.hello(threads=1, cores=1024)
    hello = wire.Hello(**{**{f: getattr(hello, f) for f in hello.__match_args__}, "blocks": blocks})
    out = wire.encode(hello)
    for i in range(1, count + 1):
        form = bytes([1, *(1 + (i >> bit & 1) for bit in range(8))])
        content = msgpack.packb([i, hello.raw_ns + i, 0, 0, {}, form, bytes(1 << 15)])
        assert isinstance(content, bytes)
        data = zlib.compress(content)
        out += wire.encode(wire.Packed(hello.raw_ns + i, True, zlib.crc32(content), data))
    return out


START = wire.encode(HELLO)
ATTACKS: dict[str, Callable[[], bytes]] = {
    "packed note of millions": lambda: START + packed_message(note(map_of(MILLIONS))),
    "forty of them": lambda: START + 40 * packed_message(note(map_of(MILLIONS))),
    "packed note of zeros": lambda: START + packed_message(note(map_of(bytes(1 << 24)))),
    "frame of millions": lambda: (
        START + message_with_checksum(b"\xa4type\xa5frame\xa1x" + MILLIONS, 2)
    ),
    "nested maps": lambda: START + message_with_checksum(b"\xa4type\xa5frame\xa1x" + NESTED, 2),
    "unknown type": lambda: START + message_with_checksum(b"\xa4type\xa5novel\xa1x" + MILLIONS, 2),
    "hello of millions": lambda: message_with_checksum(b"\xa4type\xa5hello\xa1x" + MILLIONS, 2),
    "a key that is a list": lambda: START + message_with_body(b"\x82\x91\x01\x01\xa4type\xa5frame"),
    "claims in claims": lambda: START + message_with_body(b"\xdc\x7f\xff" * 1000 + bytes(2000)),
    "forty short ones": lambda: (
        START + 40 * packed_message(note(b"\xdc\x7f\xff" * 1000 + bytes(900)))
    ),
    "a claim of a prefix": lambda: START + message_with_body(b"\x81\xa1x\xdd\x7f\xff\xff\xff"),
}
DAY_ATTACKS = ("forty of them", "nested maps", "claims in claims", "a claim of a prefix")


EXPORT = """
import sys
from pathlib import Path
from perftop import cli
status = cli.main(["export", sys.argv[1]])
Path(sys.argv[2]).write_text(Path("/proc/self/status").read_text())
sys.exit(status)
"""


def measured_export(path: Path) -> tuple[int, str, float, int]:
    """Status and messages of an export, its CPU time in s, and its peak memory in bytes. The
    kernel's own value for a child would include the memory of this process."""
    message = path.with_name("status")
    argv = [sys.executable, "-c", EXPORT, str(path), str(message)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        text = process.stderr.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    (most,) = re.findall(r"^VmHWM:\s+(\d+) kB$", message.read_text(), re.MULTILINE)
    return process.returncode, text, used.ru_utime + used.ru_stime, int(most) << 10


@pytest.fixture(scope="module")
def export_of_small_recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, int]:
    """CPU time and memory of an export of an almost empty recording."""
    path = tmp_path_factory.mktemp("plain") / "recording"
    path.write_bytes(record_writes(HELLO, FOUND[:3], end=True).data)
    status, report, seconds, memory = measured_export(path)
    assert (status, report) == (0, "")
    return seconds, memory


@pytest.mark.parametrize("kind", cases_by_day(ATTACKS, DAY_ATTACKS))
def test_hostile_bytes_are_refused_with_one_message(
    kind: str, tmp_path: Path, export_of_small_recording: tuple[float, int]
) -> None:
    path = tmp_path / "recording"
    path.write_bytes(ATTACKS[kind]())
    status, report, seconds, memory = measured_export(path)
    assert status == 4
    assert report.count("\n") == 1
    assert report.startswith("perftop: ")
    assert memory - export_of_small_recording[1] < MAX_EXTRA_BYTES
    assert seconds < MAX_TIME_FACTOR * export_of_small_recording[0]


def test_frames_with_many_sets_of_blocks_use_bounded_memory(tmp_path: Path) -> None:
    path, took = tmp_path / "recording", []
    for count in (1, 12):
        path.write_bytes(frames_of_forms(count))
        _, report, _, memory = measured_export(path)
        assert report.endswith("it has no end\n")
        took.append(memory)
    assert took[1] - took[0] < MAX_EXTRA_BYTES


def test_hostile_bytes_in_a_pipe_are_refused(tmp_path: Path) -> None:
    for attack in ("a key that is a list", "nested maps"):
        result = subprocess.run(
            [sys.executable, "-m", "perftop", "export", "-"],
            input=ATTACKS[attack](), capture_output=True, check=False, timeout=MAX_WAIT_S,
        )  # fmt: skip
        assert result.returncode == 4
        assert result.stderr.decode().startswith("perftop: stdin: damaged after byte ")


# --- cut and damaged streams


def read(data: bytes) -> list[wire.Message]:
    return list(Reader().feed(data))


@given(st.integers(min_value=0, max_value=10**6), st.integers(min_value=1, max_value=5000))
def test_a_cut_stream_keeps_all_complete_messages(cut: int, piece: int) -> None:
    out = CUT
    at = cut % len(out.data)
    reader = Reader()
    results = [
        m for i in range(0, at, piece) for m in reader.feed(out.data[i : min(at, i + piece)])
    ]
    whole = sum(end <= at for end in out.ends) - 1
    assert len(results) == whole
    assert reader.decoder.cut_byte_count == at - out.ends[whole]


CUT = record_writes(HELLO, FOUND[:BLOCK_MESSAGES])


def test_a_claimed_size_allocates_no_memory() -> None:
    import zlib

    data = zlib.compress(bytes(wire.MAX_MESSAGE * 4), 9)
    bomb = wire.Packed(1, first=True, crc=zlib.crc32(data), data=data)
    reader = Reader()
    with pytest.raises(wire.WireError, match="longer than any"):
        list(reader.feed(wire.encode(HELLO) + wire.encode(bomb)))


def test_a_block_without_its_start_is_skipped() -> None:
    out = record_writes(HELLO, FOUND)
    data = out.data[: out.ends[1]] + out.data[out.ends[2] :]
    with pytest.raises(wire.WireError, match="no beginning"):
        read(data)
