"""The wire: messages survive a round trip, a cut stream is read up to its last whole message, and
damage is reported in one line and allocates no memory."""

from __future__ import annotations

import dataclasses
import struct
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfprobe import wire
from perfprobe.wire import (
    Block,
    Bye,
    Counter,
    Cpu,
    Decoder,
    Frame,
    Hello,
    Note,
    Rows,
    WireError,
    encoding,
)


def hello(**changes: Any) -> Hello:
    plain = Hello(
        perftop="0.1.0",
        source="sim",
        host="h",
        kernel="6.1",
        wall_ns=1_700_000_000_000_000_000,
        raw_ns=5,
        sample_ns=100_000_000,
        topology=[Cpu(0, True, 0, 0, 0, 0, siblings=[0, 2]), Cpu(2, False)],
        cores=[[0, 2]],
        packages=[[0]],
        blocks=[
            Block("cpu", "cpu", [Counter("ref", "ref", "cycles", "x", bits=48)]),
            Block("machine", "machine", [Counter("f", "flags", "1", "x", "flags", columns=70)]),
        ],
    )
    return dataclasses.replace(plain, **changes)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


def frame(seq: int = 1, **changes: Any) -> Frame:
    head = words(10, 20, 30, 0, wire.ROW_SAMPLED)
    blocks = {
        "cpu": Rows(head * 2, words(1, 0), words(1 << 47, 0)),
        "machine": Rows(head, words(2**64 - 1, 63), words(*range(70))),
    }
    return dataclasses.replace(Frame(seq, 1000, blocks, lost=2, late=1), **changes)


STREAM: list[wire.Message] = [
    hello(),
    frame(1, records={"tasks": {"0": [4711, "gcc", 0.5]}}),
    Note("mark", 77, "recorder", {"label": "warm"}),
    frame(2),
    Bye("done"),
]


def to_bytes(body: Any) -> bytes:
    data = msgpack.packb(msgpack.packb(body))
    assert isinstance(data, bytes)
    return data


def read(data: bytes, step: int = 1 << 20) -> list[wire.Message]:
    decoder = Decoder()
    return [m for i in range(0, len(data), step) for m in decoder.feed(data[i : i + step])]


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_messages_survive_a_round_trip(step: int) -> None:
    data = b"".join(map(wire.encode, STREAM))
    assert read(data, step) == STREAM


@pytest.mark.parametrize("scalar", [
    None, False, True, 0, 127, 128, 1 << 8, 1 << 16, 1 << 32, -1, -32, -33, -129, -(1 << 16),
    -(1 << 32), 1.5, "", "t", "t" * 31, "t" * 32, "t" * 300, "t" * 70_000, b"", b"d", bytes(300),
    bytes(70_000), [], {},
])  # fmt: skip
@pytest.mark.parametrize("is_single", [False, True])
def test_each_kind_of_value_is_one_element(scalar: object, is_single: bool) -> None:
    data = msgpack.packb([scalar, [None, None]], use_single_float=is_single)
    encoding._check_count(data, 5)
    with pytest.raises(wire.WireError):
        encoding._check_count(data, 4)


def test_a_stream_can_be_written_with_msgpack_alone() -> None:
    """The writer follows only the docstring; unknown keys are skipped."""
    body = {
        "type": "hello", "wire": 1, "perftop": "x", "source": "mine", "host": "h", "kernel": "k",
        "wall_ns": 1, "raw_ns": 2, "sample_ns": 3, "cores": [[0]], "packages": [[0]],
        "topology": [{"cpu": 0, "online": True, "colour": "red"}],
        "blocks": [{"name": "cpu", "scope": "cpu", "counters": [
            {"key": "ref", "name": "r", "unit": "cycles", "origin": "me"}]}],
        "later": {"nested": [1, 2, 3]},
    }  # fmt: skip
    rows = {"head": words(1, 2, 0, 0, 1), "valid": words(1), "values": words(99)}
    blocks = {"cpu": rows, "unheard-of": {"head": b"", "valid": b"", "values": b""}}
    frame = {"type": "frame", "seq": 1, "time_ns": 9, "blocks": blocks}
    more = [frame, {"type": "novelty"}, {"type": "bye", "reason": "end"}]
    messages = read(b"".join(map(to_bytes, [body, *more])))
    assert isinstance(messages[0], Hello)
    assert messages[0].topology == [Cpu(0, True)]
    counter = Counter("ref", "r", "cycles", "me", "counter", 64, 1.0, 1, [], None)
    assert messages[0].blocks == [Block("cpu", "cpu", [counter])]
    assert messages[1:] == [Frame(1, 9, {"cpu": Rows(**rows)}, 0, 0, {}), Bye("end", 0)]
    flags = wire.ROW_SAMPLED, wire.ROW_ELSEWHERE, wire.ROW_WIDE, wire.ROW_REBASED
    assert (*flags, wire.ROW_OFFLINE, wire.ROW_UNPINNED) == (1, 2, 4, 8, 16, 32)


@given(st.integers(min_value=0))
def test_a_cut_stream_reads_to_its_last_whole_message(cut: int) -> None:
    parts = [wire.encode(m) for m in STREAM]
    data = b"".join(parts)
    cut %= len(data) + 1
    decoder = Decoder()
    messages = list(decoder.feed(data[:cut]))
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    whole = sum(end <= cut for end in ends)
    assert messages == STREAM[:whole]
    assert decoder.offset == ([0, *ends])[whole]
    assert decoder.cut_byte_count == cut - decoder.offset
    assert decoder.ended == (whole == len(STREAM))


def bad_frame(**changes: Any) -> bytes:
    return to_bytes(unchecked(frame()) | changes)


def unchecked(message: wire.Message) -> dict[str, Any]:
    """A message from a writer that does not support checksums."""
    body: dict[str, Any] = msgpack.unpackb(msgpack.unpackb(wire.encode(message)))
    del body["check"]
    return body


def levels(depth: int) -> list[Any]:
    return [levels(depth - 1)] if depth > 1 else []


RAW_HELLO = unchecked(hello())
RAW_ROWS = unchecked(frame())["blocks"]["cpu"]
START = to_bytes(RAW_HELLO)
DAMAGE = {
    "text": (b"GET / HTTP/1.1\r\n\r\n", "not a perftop stream"),
    "a map outside": (msgpack.packb({"type": "hello"}), "not a perftop stream"),
    "a length of 4 GB": (b"\xc6\xff\xff\xff\xff", "not a perftop stream"),
    "garbage inside": (START + msgpack.packb(b"\xc1\xc1"), "damaged"),
    "a list": (START + to_bytes([1, 2]), "not a map"),
    "no hello": (wire.encode(frame()), "no hello"),
    "two hellos": (START + START, "second hello"),
    "version 2": (to_bytes(RAW_HELLO | {"wire": 2}), "wire version 2"),
    "version text": (to_bytes(RAW_HELLO | {"wire": "1"}), "wire version '1'"),
    "no CPUs": (to_bytes(RAW_HELLO | {"topology": []}), "no CPUs"),
    "a CPU twice": (to_bytes(RAW_HELLO | {"topology": RAW_HELLO["topology"] * 2}), "twice"),
    "a core with an unknown CPU": (to_bytes(RAW_HELLO | {"cores": [[9]]}), "not in the topology"),
    "a missing key": (to_bytes({k: v for k, v in RAW_HELLO.items() if k != "host"}), "host"),
    "a wrong type": (to_bytes(RAW_HELLO | {"raw_ns": "soon"}), "hello.raw_ns"),
    "a long value": (
        to_bytes(RAW_HELLO | {"raw_ns": "x" * 99}), f"hello.raw_ns: '{'x' * 40}' was not expected",
    ),
    "a long name": (
        to_bytes(RAW_HELLO | {"labels": {"y" * 99: 7}}),
        f"hello.labels.{'y' * 67}: '7' was not expected",
    ),
    "a TSC of NaN": (
        to_bytes(RAW_HELLO | {"tsc_hz": {"hz": float("nan"), "origin": "x"}}), "tsc_hz.hz: 'nan'",
    ),
    "an empty core": (to_bytes(RAW_HELLO | {"cores": [[0], []]}), "an empty core"),
    "a CPU in two cores": (to_bytes(RAW_HELLO | {"cores": [[0], [0]]}), "a CPU in two"),
    "no counters of CPUs": (to_bytes(RAW_HELLO | {"blocks": []}), "no cpu block"),
    "a flag without a column": (
        to_bytes(RAW_HELLO | {"blocks": [{"name": "cpu", "scope": "cpu", "counters": [
            {"key": "k", "name": "", "unit": "", "origin": "", "kind": "flags", "columns": 3,
             "parts": ["a", "b", "c"]}]}]}),  # the first column is the number of polls
        "k has more parts than columns",
    ),
    "a note with a negative time": (START + wire.encode(Note("mark", -1)), "a time of -1 ns"),
    "a billion CPUs in a short frame": (
        START + bad_frame(blocks={"cpu": {"head": b"", "valid": b"", "values": b""}}), "size",
    ),
    **{f"text for {key}": (START + bad_frame(**{key: "1"}), "frame")
       for key in ("seq", "time_ns", "lost", "late", "blocks", "records")},
    **{f"text for {key}": (START + bad_frame(blocks={"cpu": RAW_ROWS | {key: "1"}}), "block cpu")
       for key in RAW_ROWS},
    "a claimed array of 10^9": (
        START + msgpack.packb(b"\x82\xa4type\xa5frame\xa6blocks\xdd\x3b\x9a\xca\x00"), "damaged",
    ),
    "a claimed array of a million": (
        START + msgpack.packb(b"\xdd\x00\x10\x00\x00" + bytes(2 << 20)), "too many elements",
    ),
    "more text than any has": (
        START + to_bytes(["x" * (5 << 20), *range(200)]), "too many elements",
    ),
    "records 33 levels deep": (START + bad_frame(records={"x": levels(32)}), "nested too deeply"),
    "a note 33 levels deep": (
        START + to_bytes(unchecked(Note("mark", 1, data={"x": levels(32)}))), "nested too deeply",
    ),
    "nesting of 10^4": (START + msgpack.packb(b"\x91" * 10_000 + b"\xc0"), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_gives_one_line_and_allocates_no_memory(kind: str) -> None:
    data, expected = DAMAGE[kind]
    tracemalloc.start()
    try:
        with pytest.raises(WireError) as caught:
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_long_messages_and_errors_are_bounded() -> None:
    assert str(WireError("x" * 999)) == "x" * 160
    assert read(b"\xc6" + (16 << 20).to_bytes(4, "big")) == []
    with pytest.raises(wire.WireError, match="a message of 16777217 bytes"):
        read(b"\xc6" + ((16 << 20) + 1).to_bytes(4, "big"))


def with_counter(*columns: int, **changes: Any) -> dict[str, Any]:
    """The blocks of a hello whose first counter has these changes, once for each of `columns`."""
    first, *others = RAW_HELLO["blocks"]
    counter = first["counters"][0] | changes
    counters = [counter | {"columns": n} for n in columns] or [counter]
    return {"blocks": [first | {"counters": counters}, *others]}


LATEST_NS = (1 << 62) - 1
LIMITS: dict[str, list[dict[str, Any]]] = {
    **{key: [{key: ns} for ns in (least, LATEST_NS, least - 1, LATEST_NS + 1)]
       for key, least in (("sample_ns", 1), ("raw_ns", 0), ("wall_ns", 0))},
    **{key: [{key: {"hz": hz, "origin": "x"}} for hz in (1, 9.9e11, 0.99, 1e12)]
       for key in ("tsc_hz", "base_hz")},
    "multipliers": [{"multipliers": [{"counter": "mperf", "factor": factor, "why": "x"}]}
                    for factor in (1e-9, 999_999, 0.0, 1e6)],
    "selected": [{"selected": cpus} for cpus in ([0], [0, 2], [], [0, 1])],
    "bits": [with_counter(bits=bits) for bits in (1, 64, 0, 65)],
    "columns": [with_counter(columns=columns) for columns in (1, 256, 0, 257)],
    "all columns": [with_counter(*n) for n in ([1], [256] * 2, [256, 256, 1], [256] * 3)],
    "scale": [with_counter(scale=scale) for scale in (1e-18, -1e18, 0.0, 1.1e18)],
    "package": [{"topology": [{"cpu": 0, "online": True, "package": n}, {"cpu": 2, "online": True}]}
                for n in (1 - (1 << 31), (1 << 31) - 1, -1 << 31, 1 << 31)],
}  # fmt: skip
"""For each value of a hello: its lowest and its highest, and two that are just outside."""


@pytest.mark.parametrize("key", LIMITS)
def test_values_of_a_hello_are_bounded(key: str) -> None:
    *within, below, above = (to_bytes(RAW_HELLO | changes) for changes in LIMITS[key])
    assert [type(message) for data in within for message in read(data)] == [Hello, Hello]
    for data in (below, above):
        with pytest.raises(WireError):
            read(data)


def test_a_hotplug_note_cannot_rename_its_cpu() -> None:
    row = {"cpu": 1, "online": False, "core": 7}
    result = wire.row_after_hotplug(
        Note("hotplug", 1, data={"online": True, "row": row}), Cpu(2, False)
    )
    assert (result.cpu, result.online, result.core) == (2, True, 7)


@given(st.binary(max_size=300), st.integers(min_value=0, max_value=10_000), st.booleans())
def test_bytes_raise_only_wire_errors(noise: bytes, at: int, whole: bool) -> None:
    data = bytearray(b"".join(map(wire.encode, STREAM)))
    at %= len(data)
    data[at : at + (0 if whole else len(noise))] = noise
    try:
        read(bytes(data))
    except WireError as error:
        assert "\n" not in str(error)


def test_messages_before_the_damage_are_read() -> None:
    decoder = Decoder()
    seen = []
    with pytest.raises(WireError, match="not a perftop stream"):
        for message in decoder.feed(START + b"oops"):
            seen.append(message)  # noqa: PERF402
    assert seen == [hello()]
    assert decoder.offset == len(START)


@pytest.mark.parametrize(("head", "elements"), [
    (b"\x85", 11), (b"\x95", 6), (b"\xdc\x01\x02", 259), (b"\xdd\x00\x00\x01\x02", 259),
    (b"\xde\x01\x02", 517), (b"\xdf\x00\x00\x01\x02", 517), (b"\x81\xa1x\xc4\x02ab", 3),
    (b"\x92\xd9\x02ab\xcd\x01\x02", 3),
])  # fmt: skip
def test_elements_are_counted_before_they_exist(head: bytes, elements: int) -> None:
    data = head if len(head) > 5 else head + b"\x00" * (elements - 1)
    encoding._check_count(data, elements)
    with pytest.raises(wire.WireError):
        encoding._check_count(data, elements - 1)
