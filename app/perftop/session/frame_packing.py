"""Packs frames and notes without loss, each frame as its difference from the previous frame.

A column of a block changes by similar, small amounts on all rows. So all differences of a column
(signed, since gauges fall; modulo 2**64) take the same number of bytes: the fewest of 0, 1, 2, 4
and 8 that hold the largest. Unchanged columns take no bytes. The first frame of a run is packed as
its difference from zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import msgpack
import numpy as np

from perfprobe import wire
from perftop.base.arrays import Words

WIDTHS = ((1, "<u1"), (2, "<u2"), (3, "<u4"), (4, "<u8"))
_LIMITS = np.array([1, 1 << 8, 1 << 16, 1 << 32], np.uint64)
_ONE = np.uint64(1)
MAX_LAYOUTS = 64
"""Maximum number of layouts kept; no probe sends so many combinations of blocks."""
MAX_WORDS = 1 << 22
"""Maximum number of words kept of the newest frames of all forms together; the layouts may have
half as many in total. The largest frame has 1 << 21 words."""


class Layout:
    """The permutation that sorts the words of several tables of u64 by column."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        """`shapes`: rows and columns of each table."""
        columns, first = [np.zeros(0, int)], 0
        for rows, width in shapes:
            columns.append(first + np.tile(np.arange(width), rows))
            first += width if rows else 0
        column = np.concatenate(columns)
        self.words = len(column)
        self.order = np.argsort(column, kind="stable")
        self.back = np.argsort(self.order)
        self.heights = np.bincount(column, minlength=first)
        self.starts = np.cumsum(self.heights) - self.heights


def pack(layout: Layout, rows: Words) -> list[bytes]:
    """Packs the difference of each row of words from the previous row; all rows are sorted by
    column. Packing many costs little more than packing one."""
    if not layout.words:
        return [b""] * (len(rows) - 1)
    moved = (rows[1:] - rows[:-1]).view(np.int64)
    signs = moved >> 63
    moved <<= 1
    moved ^= signs  # zigzag: small numbers of either sign become small
    folded = moved.view(np.uint64)
    largest = np.bitwise_or.reduceat(folded, layout.starts, axis=1)
    widths = np.searchsorted(_LIMITS, largest, side="right").astype(np.uint8)
    of_word, words = np.repeat(widths, layout.heights, axis=1).ravel(), folded.ravel()
    parts = [[row.tobytes() for row in widths]]
    for width, kind in WIDTHS:
        data = words[of_word == width].astype(kind).tobytes()
        sizes = int(kind[2:]) * ((widths == width) @ layout.heights)
        ends = accumulate(sizes.tolist(), initial=0)
        parts.append([data[start:end] for start, end in pairwise(ends)])
    return [b"".join(pieces) for pieces in zip(*parts, strict=True)]


def unpack(layout: Layout, old: Words, packed: bytes) -> Words:
    """Returns the newer words: the old ones plus the packed difference."""
    if not layout.words:
        return old
    widths = np.frombuffer(packed, np.uint8, len(layout.heights))
    of_word = np.repeat(widths, layout.heights)
    folded = np.zeros(layout.words, np.uint64)
    at = len(widths)
    for width, kind in WIDTHS:
        mask = of_word == width
        part = np.frombuffer(packed, kind, np.count_nonzero(mask), at)
        folded[mask] = part
        at += part.nbytes
    return old + ((folded >> _ONE) ^ (~(folded & _ONE) + _ONE))


class Layouts:
    """Layouts of the frames of one stream. A frame may lack a block, and a block may have a single
    head for all rows."""

    def __init__(self, hello: wire.Hello) -> None:
        self._blocks = [(block, hello.rows(block.scope)) for block in hello.blocks]
        self._made: dict[bytes, Layout] = {}
        self.most_elements = wire.most_elements(len(hello.topology))
        """Maximum number of elements in one message."""
        self.nbytes = 0

    def form(self, frame: wire.Frame) -> bytes:
        """The form of a frame, one byte for each block of hello. 0: the block is missing; 1: it has
        one head; 2: it has a head for each row."""
        form = []
        for block, _ in self._blocks:
            rows = frame.blocks.get(block.name)
            form.append(0 if rows is None else 1 if len(rows.head) == 8 * wire.HEAD else 2)
        return bytes(form)

    def layout(self, form: bytes) -> Layout:
        layout = self._made.get(form)
        if layout is None:
            shapes = self._shapes(form)
            words = sum(rows * width for rows, width in shapes)
            total = sum(made.words for made in self._made.values())
            if len(self._made) >= MAX_LAYOUTS or total + words > MAX_WORDS // 2:
                self._made.clear()
            layout = self._made[form] = Layout(shapes)
            parts = ((m.order, m.back, m.heights, m.starts) for m in self._made.values())
            self.nbytes = sum(part.nbytes for arrays in parts for part in arrays)
        return layout

    def words(self, frames: Sequence[wire.Frame]) -> Words:
        """All words of frames of the same form, a row for each frame."""
        parts = [
            part
            for frame in frames
            for block, _ in self._blocks
            if (rows := frame.blocks.get(block.name)) is not None
            for part in (rows.head, rows.valid, rows.values)
        ]
        words = np.frombuffer(b"".join(parts), "<u8")
        return words.reshape(len(frames), len(words) // len(frames))

    def blocks(self, form: bytes, words: Words) -> dict[str, wire.Rows]:
        """Splits the words of a frame of this form into its blocks, by name."""
        ends = np.cumsum([0, *(8 * rows * width for rows, width in self._shapes(form))]).tolist()
        data = words.tobytes()
        parts = iter([data[start:end] for start, end in pairwise(ends)])
        return {
            block.name: wire.Rows(next(parts), next(parts), next(parts))
            for (block, _), heads in zip(self._blocks, form, strict=True)
            if heads
        }

    def _shapes(self, form: bytes) -> list[tuple[int, int]]:
        if len(form) != len(self._blocks) or not set(form) <= {0, 1, 2}:
            raise ValueError("a frame of no form")
        shapes = []
        for (block, n), heads_code in zip(self._blocks, form, strict=True):
            if heads_code:
                heads = 1 if heads_code == 1 else n
                shapes += [(heads, wire.HEAD), (n, block.valid_words), (n, block.columns)]
        return shapes


class Packer:
    """Packs or unpacks one run of messages, in order from the first."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._last: dict[bytes, Words] = {}
        """The newest words of each form, sorted into columns."""

    @property
    def nbytes(self) -> int:
        return sum(words.nbytes for words in self._last.values())

    def pack(self, message: wire.Frame | wire.Note) -> bytes:
        return self.packs([message])[0]

    def packs(self, messages: Sequence[wire.Frame | wire.Note]) -> list[bytes]:
        """Packs messages, with the same result as calling `pack` for each in turn."""
        done = [b""] * len(messages)
        forms: dict[bytes, dict[int, wire.Frame]] = {}
        for at, message in enumerate(messages):
            if isinstance(message, wire.Note):
                done[at] = _bytes((message.kind, message.time_ns, message.author, message.data))
            else:
                forms.setdefault(self._layouts.form(message), {})[at] = message
        if len(messages) > 1 and self._forgets(forms):
            return [self.pack(message) for message in messages]
        for form, frames in forms.items():
            for at, packed in zip(frames, self._packed(form, [*frames.values()]), strict=True):
                done[at] = packed
        return done

    def _packed(self, form: bytes, frames: Sequence[wire.Frame]) -> list[bytes]:
        layout = self._layouts.layout(form)
        new = self._layouts.words(frames).take(layout.order, axis=1)
        packed = pack(layout, np.concatenate([self._old(form, layout)[None], new]))
        self._keep(form, new[-1].copy())
        return [
            _bytes((frame.seq, frame.time_ns, frame.lost, frame.late, frame.records, form, data))
            for frame, data in zip(frames, packed, strict=True)
        ]

    def _forgets(self, forms: Iterable[bytes]) -> bool:
        """Whether frames of these forms may exceed MAX_WORDS, so that the words of other forms are
        dropped."""
        sizes = {form: len(words) for form, words in self._last.items()}
        sizes |= {form: self._layouts.layout(form).words for form in forms}
        return sum(sizes.values()) > MAX_WORDS

    def unpack(self, data: bytes) -> wire.Frame | wire.Note:
        body = wire.unpacked(data, self._layouts.most_elements)
        if isinstance(body[0], str):
            return wire.Note(*body)
        *head, records, form, packed = body
        layout = self._layouts.layout(form)
        new = unpack(layout, self._old(form, layout), packed)
        self._keep(form, new)
        seq, time_ns, lost, late = head
        blocks = self._layouts.blocks(form, new.take(layout.back))
        return wire.Frame(seq, time_ns, blocks, lost, late, records)

    def _keep(self, form: bytes, new: Words) -> None:
        """Keeps the newest words of a form. Packing and unpacking drop old words by the same rule,
        so that they stay in sync."""
        other_words = sum(
            len(words) for known_form, words in self._last.items() if known_form != form
        )
        if other_words + len(new) > MAX_WORDS:
            self._last.clear()
        self._last[form] = new

    def _old(self, form: bytes, layout: Layout) -> Words:
        old = self._last.get(form)
        return np.zeros(layout.words, np.uint64) if old is None else old


def _bytes(body: tuple[object, ...]) -> bytes:
    data = msgpack.packb(body)
    assert isinstance(data, bytes)
    return data


def records(data: bytes) -> tuple[int, dict[str, object]]:
    """Time and records of a packed message, read without unpacking its blocks."""
    body = msgpack.unpackb(data)
    return body[1], {} if isinstance(body[0], str) else body[4]
