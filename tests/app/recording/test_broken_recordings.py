"""Streams that are well packed and say what cannot be: refused or left out, never a crash."""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path
from typing import Any

import exported
import made
import msgpack
import numpy as np
import pytest
from played import TICKS

from perfprobe import wire
from perftop.recording.codec import Reader
from perftop.session.frame_packing import Layouts, Packer
from perftop.session.session import Session
from perftop.verbs.export import FORMS

HELLO = made.hello(
    [made.REF, made.counter("any_thread")], threads=4, cores=1,
    multipliers=[wire.Multiplier("any_thread", 1.0, "made")],
)  # fmt: skip


def frame(seq: int, share: float = 0.5, **more: Any) -> wire.Frame:
    moved = int(seq * TICKS * share)
    told = made.frame(HELLO, seq, {"ref": [moved] * 4, "any_thread": [2 * moved] * 4})
    return dataclasses.replace(told, **more)


def packed(body: list[object]) -> bytes:
    """As a recording has it, and with a checksum that fits."""
    plain = msgpack.packb(body)
    return wire.encode(wire.Packed(0, first=True, crc=zlib.crc32(plain), data=zlib.compress(plain)))


@pytest.mark.parametrize("time_ns", [-1, 1 << 62, 2**64 - 1])
@pytest.mark.parametrize("inside", [False, True])
def test_a_time_that_cannot_be_is_damage(time_ns: int, inside: bool) -> None:
    for message in (frame(1, time_ns=time_ns), wire.Note("mark", time_ns)):
        body = msgpack.unpackb(Packer(Layouts(HELLO)).pack(message))
        data = packed(body) if inside else wire.encode(message)
        with pytest.raises(wire.WireError, match=f"a time of {time_ns} ns"):
            list(Reader().feed(wire.encode(HELLO) + data))


def test_a_frame_that_goes_back_in_time_is_left_out() -> None:
    session, without = Session(HELLO), Session(HELLO)
    for seq in range(8):
        session.apply(frame(seq))
        without.apply(frame(seq))
        if seq == 5:
            session.apply(dataclasses.replace(frame(1), seq=77))
    assert session.warnings == ["frame 77 goes back in time, and was left out"]
    one, other = session.take(), without.take()
    assert one.elapsed_s == other.elapsed_s
    assert one.counts["ref"].tolist() == other.counts["ref"].tolist()
    assert one.values["util"][0] == pytest.approx(0.5)


def test_a_core_that_was_not_read_teaches_nothing() -> None:
    """Four threads, the first without a span in one sample: it is no evidence, and no warning."""
    session = Session(HELLO)
    for seq in range(6):
        told = frame(seq)
        if seq == 3:
            rows = told.blocks["cpu"]
            head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD).copy()
            head[0, 4] |= wire.ROW_REBASED
            told.blocks["cpu"] = dataclasses.replace(rows, head=head.tobytes())
        session.apply(told)
    assert session.take().split.method == ["any-thread"]


@pytest.mark.parametrize("scope", ["core", "package"])
def test_a_block_without_rows_is_no_zero(scope: wire.Scope) -> None:
    """Nobody has said which CPUs are a package: its power is not known."""
    counters = [made.counter("energy_j", "J"), made.counter("temperature_c", "°C")]
    blocks = [*HELLO.blocks, wire.Block("more", scope, counters)]
    hello = dataclasses.replace(HELLO, blocks=blocks, cores=[], packages=[])
    session = Session(hello)
    empty = wire.Rows(bytes(8 * wire.HEAD), b"", b"")
    for seq in range(4):
        told = frame(seq)
        session.apply(dataclasses.replace(told, blocks=told.blocks | {"more": empty}))
    assert session.take().machine == {}


@pytest.mark.parametrize("row", [{"package": "x"}, {"core": 1 << 63}, {"siblings": [None]}, []])
@pytest.mark.parametrize("form", FORMS)
def test_rows_of_hotplug_notes_are_not_trusted(tmp_path: Path, row: object, form: str) -> None:
    found: list[wire.Message] = [HELLO]
    for seq in range(4):
        data = {"cpu": 1, "online": bool(seq % 2), "row": row}
        found += [frame(seq), wire.Note("hotplug", seq * made.SAMPLE_NS, data=data)]
    assert exported.export(exported.record(tmp_path / "recording", found), form)
