"""Packed frames and notes are restored bit by bit, in any order and of any shape."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgpack
import numpy as np
import pytest
import synth
from hypothesis import given
from hypothesis import strategies as st

from perfprobe import wire
from perfprobe.wire import Block, Frame, Note, Rows
from perftop.base.arrays import Words
from perftop.session import packing
from perftop.session.packing import RECORDS_FIELD, Layout, Layouts, Packer, pack, unpack

WORD = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 1, 127, 128, 2**15, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1]),
)
HELLO = synth.hello(
    cores=2,
    stat=[synth.counter("stat_user_s", "s", columns=65)],
    core=[synth.counter("both_s", "s")],
)
HELLO.blocks.append(Block("nothing", "machine", []))
LAYOUTS = Layouts(HELLO)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])) | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab0", max_size=3), inner),
    max_leaves=6,
)  # fmt: skip
RECORDS = st.dictionaries(st.sampled_from(["tasks", "details", "x"]), JSON, max_size=2)
NUMBER = st.integers(-(2**63), 2**64 - 1)


def data(draw: st.DrawFn, words: int) -> bytes:
    """Any data, or data that differ from zero in one place, as those of idle counters."""
    if draw(st.booleans()):
        return np.array(draw(st.lists(WORD, min_size=words, max_size=words)), "<u8").tobytes()
    some = np.zeros(words, "<u8")
    if words:
        some[draw(st.integers(0, words - 1))] = draw(WORD)
    return some.tobytes()


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    blocks = {}
    for block in HELLO.blocks:
        n = HELLO.rows(block.scope)
        heads = draw(st.sampled_from([0, 1, n]))
        if heads:
            sizes = (heads * wire.HEAD, n * block.valid_words, n * block.columns)
            blocks[block.name] = Rows(*(data(draw, words) for words in sizes))
    seq, time_ns, lost, late = (draw(NUMBER) for _ in range(4))
    return Frame(seq, time_ns, blocks, lost, late, draw(RECORDS))


NOTES = st.builds(Note, st.sampled_from(["hotplug", "mark"]), NUMBER, st.just("probe"), RECORDS)


@given(st.lists(st.one_of(frames(), NOTES), max_size=6))
def test_any_sequence_of_messages_is_restored(messages: list[Frame | Note]) -> None:
    there, back, together = Packer(LAYOUTS), Packer(LAYOUTS), Packer(LAYOUTS)
    packed = [there.pack(message) for message in messages]
    assert [back.unpack(data) for data in packed] == messages
    assert together.pack_many(messages) == packed
    assert Packer(LAYOUTS).unpack_many(packed) == messages


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=4), st.data())
def test_tables_of_any_shape_are_restored(
    shapes: list[tuple[int, int]], given_: st.DataObject
) -> None:
    layout = Layout(shapes)
    size = sum(rows * width for rows, width in shapes)
    words = st.lists(WORD, min_size=size, max_size=size)
    old, new = (np.array(given_.draw(words), np.uint64) for _ in range(2))
    sorted_old, sorted_new = old[layout.order], new[layout.order]
    packed = pack(layout, np.stack([sorted_old, sorted_new, sorted_old]))
    there, again = unpack(layout, sorted_old, packed)
    assert there[layout.inverse_order].tolist() == new.tolist()
    assert again.tolist() == sorted_old.tolist()


@pytest.mark.parametrize(("moves", "width"), [
    ([0] * 8, 0), ([127, -128] * 4, 1), ([0] * 7 + [128], 2), ([-(2**15)] + [0] * 7, 2),
    ([2**15] * 8, 4), ([-(2**31)] * 8, 4), ([2**31] * 8, 8), ([-(2**31) - 1] * 8, 8),
])  # fmt: skip
def test_the_size_of_a_column_follows_its_largest_difference(moves: list[int], width: int) -> None:
    layout = Layout([(8, 1)])
    old: Words = np.full(8, 2**63 + 2**62, np.uint64)
    new = old + np.array(moves, np.int64).view(np.uint64)
    assert len(pack(layout, np.stack([old, new]))[0]) == 1 + 8 * width


def test_a_jump_in_one_column_does_not_enlarge_others() -> None:
    layout = Layout([(64, 3)])
    old = np.zeros(192, np.uint64)
    new = np.tile(np.array([1, 2**40, 1], np.uint64), 64)[layout.order]
    assert len(pack(layout, np.stack([old, new]))[0]) == 3 + 64 * (1 + 8 + 1)


def test_an_unchanged_frame_is_small() -> None:
    packer = Packer(LAYOUTS)
    values = dict.fromkeys(("ref", "cycles", "instructions", "both_s"), [1 << 40] * 4)
    first = frame_with_values(values)
    sizes = [len(packer.pack(dataclasses.replace(first, seq=seq))) for seq in range(2)]
    assert sizes[0] > 4 * 3 * 8
    assert sizes[1] < 60


def frame_with_values(values: dict[str, list[int]], **more: Any) -> Frame:
    blocks = {
        block.name: synth.rows(block, HELLO.rows(block.scope), values, [0] * 4)
        for block in HELLO.blocks
        if block.name in {"cpu", "core"}
    }
    return Frame(0, 0, blocks, **more)


def test_records_can_be_read_alone() -> None:
    results = {"tasks": {"0": [1, "a", 0.5]}}
    packed = Packer(LAYOUTS).pack(Frame(0, 7, {}, records=results))
    assert msgpack.unpackb(packed)[RECORDS_FIELD] == results


def test_the_number_of_cached_layouts_is_limited() -> None:
    """A stream can omit blocks in more combinations than are worth caching."""
    counters = [synth.counter("a")]
    blocks = [Block(f"b{i}", "machine", counters) for i in range(8)]
    hello = dataclasses.replace(HELLO, blocks=blocks)
    layouts = Layouts(hello)
    there, back = Packer(layouts), Packer(Layouts(hello))
    sizes = []
    for mask in range(256):
        rows = {
            block.name: synth.rows(block, 1, {"a": [mask]}, [mask])
            for i, block in enumerate(blocks)
            if mask >> i & 1
        }
        frame = Frame(mask, mask, rows)
        assert back.unpack(there.pack(frame)) == frame
        sizes.append(layouts.nbytes)
    assert max(sizes[128:]) <= 2 * max(sizes[:64])


@pytest.mark.parametrize("max_words", [packing.MAX_WORDS, 0])
def test_a_damaged_message_does_not_change_the_packer(
    monkeypatch: pytest.MonkeyPatch, max_words: int
) -> None:
    """The damage is found only after a frame of another form has been unpacked. Above the limit of
    words, frames are unpacked one by one."""
    monkeypatch.setattr(packing, "MAX_WORDS", max_words)
    blocks = {}
    for block in HELLO.blocks[:2]:
        n = HELLO.rows(block.scope)
        sizes = n * wire.HEAD, n * block.valid_words, n * block.columns
        blocks[block.name] = Rows(*(np.full(size, 7, "<u8").tobytes() for size in sizes))
    first, second = Frame(1, 1, blocks), Frame(2, 2, dict([*blocks.items()][:1]))
    packed, packer = Packer(LAYOUTS).pack_many([first, second]), Packer(LAYOUTS)
    *body, words = msgpack.unpackb(packed[1])
    with pytest.raises(ValueError, match="not complete"):
        packer.unpack_many([packed[0], msgpack.packb([*body, words[:-1]])])
    assert packer.unpack_many(packed) == [first, second]
