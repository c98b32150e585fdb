"""Streams in files: lossless reading, and the effect of damage."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording_pieces import FOUND, HELLO, record_pieces
from sim_streams import messages

from perfprobe import wire
from perftop.session.packing import BLOCK_MESSAGES, Reader


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


CUT = record_pieces(HELLO, FOUND[:BLOCK_MESSAGES])
WHOLE = read(CUT.data)


@given(st.integers(), st.binary(min_size=1, max_size=40))
def test_damage_is_the_only_error(seed: int, junk: bytes) -> None:
    """Overwritten bytes: all messages before them are read, and the only exception is the
    documented one."""
    offset = random.Random(seed).randrange(CUT.ends[1], len(CUT.data))
    data = CUT.data[:offset] + junk + CUT.data[offset + len(junk) :]
    before = sum(end <= offset for end in CUT.ends) - 1
    results: list[wire.Message] = []
    with suppress(wire.WireError):
        results.extend(Reader().feed(data))
    assert len(results) >= before
    assert results == WHOLE[: len(results)]


def test_a_claimed_size_allocates_no_memory() -> None:
    import zlib

    data = zlib.compress(bytes(wire.MAX_MESSAGE * 4), 9)
    bomb = wire.Packed(1, first=True, crc=zlib.crc32(data), data=data)
    reader = Reader()
    with pytest.raises(wire.WireError, match="longer than any"):
        list(reader.feed(wire.encode(HELLO) + wire.encode(bomb)))


def test_a_block_without_its_start_is_skipped() -> None:
    out = record_pieces(HELLO, FOUND)
    data = out.data[: out.ends[1]] + out.data[out.ends[2] :]
    with pytest.raises(wire.WireError, match="no beginning"):
        read(data)


@pytest.mark.parametrize(("cpus", "max_bytes"), [(2, 165), (64, 3300)])
def test_frames_are_small(cpus: int, max_bytes: int) -> None:
    """Bytes a frame: an hour at 10 Hz takes 6 MB for 2 CPUs and 110 MB for 64."""
    out = record_pieces(*messages(f"sim:smt-mix,cpus={cpus}", 5 * BLOCK_MESSAGES))
    assert (len(out.data) - out.ends[1]) / (5 * BLOCK_MESSAGES) <= max_bytes
