"""Packs frames and notes without loss, for the history in memory and for recordings.

A frame's form is the set of blocks that it contains. A frame is packed as its difference from the
previous frame of the same form; the first frame of a form, as its difference from zero. Within a
column of a block, all rows change by similar, small amounts. So all differences of a column have
the same size: the smallest of 0, 1, 2, 4 and 8 bytes that the largest difference fits into.
Differences are signed, because gauges fall, and modulo 2**64."""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any

import msgpack
import numpy as np

from perfprobe import wire
from perftop.base.arrays import Words

WIDTHS = ((1, "<u1"), (2, "<u2"), (3, "<u4"), (4, "<u8"))
"""Code and type of each size of packed differences. With code 0, all differences are 0."""
_LIMITS = np.array([1, 1 << 8, 1 << 16, 1 << 32], np.uint64)
MAX_LAYOUTS = 64
"""Maximum number of cached layouts. No probe sends that many forms of frames."""
MAX_WORDS = 1 << 22
"""Maximum number of words in the newest frames of all forms; the cached layouts may have twice as
many. The largest frame has 1 << 21 words."""
RECORDS_FIELD = 4
"""Index of the records in a packed frame. They can be read without unpacking the counters."""
UNPACKED_WORDS = 1 << 16
"""Number of words that are unpacked at once. More would not fit into a CPU's caches."""


class Layout:
    """The permutation that sorts the words of several tables of 64-bit words by column."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        """`shapes`: rows and columns of each table."""
        ends = accumulate((8 * rows * width for rows, width in shapes), initial=0)
        self.slices = [slice(start, end) for start, end in pairwise(ends)]
        """The bytes of each table, from the start of the first."""
        columns, first = [np.zeros(0, int)], 0
        for rows, width in shapes:
            columns.append(first + np.tile(np.arange(width), rows))
            first += width if rows else 0
        column = np.concatenate(columns)
        self.words = len(column)
        self.order = np.argsort(column, kind="stable")
        self.inverse_order = np.argsort(self.order)
        self.heights = np.bincount(column, minlength=first)
        self.starts = np.cumsum(self.heights) - self.heights


def pack(layout: Layout, rows: Words) -> list[bytes]:
    """Packs each row of words, sorted by column, as its difference from the previous row. Packing
    many rows takes little longer than packing one."""
    if not layout.words:
        return [b""] * (len(rows) - 1)
    increments = (rows[1:] - rows[:-1]).view(np.int64)
    signs = increments >> 63
    increments <<= 1
    increments ^= signs  # zigzag: numbers near 0 of either sign become small
    zigzag = increments.view(np.uint64)
    largest = np.bitwise_or.reduceat(zigzag, layout.starts, axis=1)
    widths = np.searchsorted(_LIMITS, largest, side="right").astype(np.uint8)
    word_widths, words = np.repeat(widths, layout.heights, axis=1).ravel(), zigzag.ravel()
    parts = [[row.tobytes() for row in widths]]
    for width, kind in WIDTHS:
        data = words[word_widths == width].astype(kind).tobytes()
        sizes = int(kind[2:]) * ((widths == width) @ layout.heights)
        ends = accumulate(sizes.tolist(), initial=0)
        parts.append([data[start:end] for start, end in pairwise(ends)])
    return [b"".join(pieces) for pieces in zip(*parts, strict=True)]


def unpack(layout: Layout, previous_words: Words, packed: Sequence[bytes]) -> Words:
    """Returns the rows of words from which `pack` made `packed`. `previous_words`: the row before
    the first. Raises ValueError if a row is incomplete. Unpacking many rows takes little longer
    than unpacking one."""
    count, columns = len(packed), len(layout.heights)
    if not layout.words:
        return np.zeros((count, 0), np.uint64)
    if min(map(len, packed)) < columns:
        raise ValueError("differences without their widths")
    widths = np.frombuffer(b"".join([data[:columns] for data in packed]), np.uint8)
    widths = widths.reshape(count, columns)
    sizes = [(widths == width) @ layout.heights * int(kind[2:]) for width, kind in WIDTHS]
    ends = np.add.accumulate([np.full(count, columns), *sizes]).T.tolist()
    if any(row[-1] > len(data) for row, data in zip(ends, packed, strict=True)):
        raise ValueError("differences that are not complete")
    word_widths = np.repeat(widths, layout.heights, axis=1)
    rows = np.zeros((count, layout.words), np.uint64)
    for code, (width, kind) in enumerate(WIDTHS):
        if not sizes[code].any():
            continue
        parts = [data[row[code] : row[code + 1]] for data, row in zip(packed, ends, strict=True)]
        zigzag = np.frombuffer(b"".join(parts), kind)
        increments = zigzag >> 1
        increments ^= -(zigzag & 1)
        rows[word_widths == width] = increments.view(kind.replace("u", "i"))
    for previous, row in zip([previous_words, *rows], rows, strict=False):
        np.add(row, previous, out=row)  # np.add.accumulate would take eight times as long
    return rows


class Layouts:
    """The layouts of a stream's frames, which may lack blocks, or have one head for a whole
    block."""

    def __init__(self, hello: wire.Hello) -> None:
        self._blocks = [(block, hello.rows(block.scope)) for block in hello.blocks]
        self._layouts_by_form: dict[bytes, Layout] = {}
        self.max_elements = wire.max_elements(len(hello.topology))
        """Maximum number of elements in one message."""
        self.nbytes = 0

    def form(self, frame: wire.Frame) -> bytes:
        """Returns the form of a frame, one byte for each block of hello. 0: the block is missing;
        1: it has one head; 2: it has a head for each row."""
        form = []
        for block, _ in self._blocks:
            rows = frame.blocks.get(block.name)
            form.append(0 if rows is None else 1 if len(rows.head) == 8 * wire.HEAD else 2)
        return bytes(form)

    def layout(self, form: bytes) -> Layout:
        layout = self._layouts_by_form.get(form)
        if layout is None:
            if len(form) != len(self._blocks) or not set(form) <= {0, 1, 2}:
                raise ValueError("a frame with an unknown form")
            shapes = []
            for (block, n), heads_code in zip(self._blocks, form, strict=True):
                if heads_code:
                    heads = 1 if heads_code == 1 else n
                    shapes += [(heads, wire.HEAD), (n, block.valid_words), (n, block.columns)]
            words = sum(rows * width for rows, width in shapes)
            layouts = self._layouts_by_form
            total = sum(cached.words for cached in layouts.values())
            if len(layouts) >= MAX_LAYOUTS or total + words > MAX_WORDS // 2:
                layouts.clear()
            layout = layouts[form] = Layout(shapes)
            parts = ((m.order, m.inverse_order, m.heights, m.starts) for m in layouts.values())
            self.nbytes = sum(part.nbytes for arrays in parts for part in arrays)
        return layout

    def frame_words(self, frames: Sequence[wire.Frame]) -> Words:
        """Returns the words of frames of the same form, (frames, words)."""
        blocks = (frame.blocks.get(block.name) for frame in frames for block, _ in self._blocks)
        parts = [part for rows in blocks if rows for part in (rows.head, rows.valid, rows.values)]
        words = np.frombuffer(b"".join(parts), "<u8")
        return words.reshape(len(frames), len(words) // len(frames))

    def blocks(self, form: bytes, words: Words) -> list[dict[str, wire.Rows]]:
        """Returns the blocks of frames of this form by name, from the frames' words."""
        names = [block.name for (block, _), heads in zip(self._blocks, form, strict=True) if heads]
        slices = self.layout(form).slices
        frames = []
        for row in words:
            data = row.tobytes()
            parts = [data[part] for part in slices]
            rows = map(wire.Rows, parts[::3], parts[1::3], parts[2::3])
            frames.append(dict(zip(names, rows, strict=True)))
        return frames


class Packer:
    """Packs or unpacks a sequence of messages in order."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._last_words: dict[bytes, Words] = {}
        """The newest words of each form, sorted by column."""

    @property
    def nbytes(self) -> int:
        return sum(words.nbytes for words in self._last_words.values())

    def pack(self, message: wire.Frame | wire.Note) -> bytes:
        return self.pack_many([message])[0]

    def pack_many(self, messages: Sequence[wire.Frame | wire.Note]) -> list[bytes]:
        """Packs messages, with the same result as `pack` for each in turn."""
        packed_messages = [b""] * len(messages)
        forms: dict[bytes, dict[int, wire.Frame]] = {}
        for index, message in enumerate(messages):
            if isinstance(message, wire.Note):
                fields = message.kind, message.time_ns, message.author, message.data
                packed_messages[index] = _bytes(fields)
            else:
                forms.setdefault(self._layouts.form(message), {})[index] = message
        if len(messages) > 1 and self._exceeds_max_words(forms):
            return [self.pack(message) for message in messages]
        for form, frames in forms.items():
            layout = self._layouts.layout(form)
            words = self._layouts.frame_words([*frames.values()]).take(layout.order, axis=1)
            rows = np.concatenate([self._previous_words(form, layout)[None], words])
            self._keep_last(form, words[-1].copy())
            for (index, f), data in zip(frames.items(), pack(layout, rows), strict=True):
                body = f.seq, f.time_ns, f.lost, f.late, f.records, form, data
                packed_messages[index] = _bytes(body)
        return packed_messages

    def _exceeds_max_words(self, forms: Iterable[bytes]) -> bool:
        """Returns whether MAX_WORDS may be exceeded with these forms, so that words are dropped."""
        sizes = {form: len(words) for form, words in self._last_words.items()}
        sizes |= {form: self._layouts.layout(form).words for form in forms}
        return sum(sizes.values()) > MAX_WORDS

    def unpack(self, data: bytes) -> wire.Frame | wire.Note:
        return self.unpack_many([data])[0]

    def unpack_many(self, packed: Sequence[bytes]) -> list[wire.Frame | wire.Note]:
        """Unpacks messages, with the same result as `unpack` for each in turn. If a message is
        damaged, raises WireError, ValueError or TypeError, and unpacks none."""
        messages: list[wire.Frame | wire.Note | None] = [None] * len(packed)
        forms: dict[bytes, dict[int, Any]] = {}
        for index, data in enumerate(packed):
            body = wire.unpack(data, self._layouts.max_elements)
            if isinstance(body[0], str):
                messages[index] = wire.Note(*body)
            else:
                *head, records, form, words = body
                forms.setdefault(form, {})[index] = (head, records, words)
        last_words = dict(self._last_words)
        try:
            if len(packed) > 1 and self._exceeds_max_words(forms):
                return [self.unpack(data) for data in packed]
            for form, frames in forms.items():
                layout, frames_left = self._layouts.layout(form), iter(frames.items())
                count = max(1, UNPACKED_WORDS // max(1, layout.words))
                while batch := [*islice(frames_left, count)]:
                    packed_words = [words for _, (*_, words) in batch]
                    rows = unpack(layout, self._previous_words(form, layout), packed_words)
                    self._keep_last(form, rows[-1].copy())
                    blocks = self._layouts.blocks(form, rows.take(layout.inverse_order, axis=1))
                    for (index, (head, records, _)), of_frame in zip(batch, blocks, strict=True):
                        seq, time_ns, lost, late = head
                        messages[index] = wire.Frame(seq, time_ns, of_frame, lost, late, records)
        except Exception:
            self._last_words = last_words
            raise
        return [message for message in messages if message is not None]

    def _keep_last(self, form: bytes, last_words: Words) -> None:
        """Stores the newest words of a form. Packing and unpacking must drop the same old words."""
        other_words = sum(len(words) for key, words in self._last_words.items() if key != form)
        if other_words + len(last_words) > MAX_WORDS:
            self._last_words.clear()
        self._last_words[form] = last_words

    def _previous_words(self, form: bytes, layout: Layout) -> Words:
        words = self._last_words.get(form)
        return np.zeros(layout.words, np.uint64) if words is None else words


def _bytes(body: tuple[object, ...]) -> bytes:
    data = msgpack.packb(body)
    assert isinstance(data, bytes)
    return data


# --- The format of a recording: messages of the wire, with packed frames and notes.
#
# A block is a sequence of messages that can be decoded without earlier messages. It is deflated as
# one stream, which is flushed after each message. Until a block is complete, its messages may be
# stored as on the wire. The last message of a recording that ended properly is an index with the
# positions of its blocks.

BLOCK_MESSAGES = 64
"""Number of messages in a block. All of them may be unpacked to read the last one."""
COMPRESSION_LEVEL = 1
"""Compression level of zlib. The next level takes twice as long and saves 5 %."""

MAX_OVERHEAD_BYTES = 1 << 22
"""Maximum size in bytes of a packed message without its blocks."""
INDEX_KIND = "index"
"""Kind of the last note in a file. Its data contains the offset and first time of each block. The
file ends with the offset of this note, so that readers can find it."""
TimedMessage = wire.Frame | wire.Note
_DAMAGE_ERRORS = wire.WireError, ValueError, TypeError, KeyError, IndexError, zlib.error


class Recorder:
    """Writes messages to a recording, starting with the hello."""

    def __init__(self, write: Callable[[bytes], object], hello: wire.Hello) -> None:
        """`write` receives the bytes of whole messages."""
        self._write, self._layouts = write, Layouts(hello)
        self._block, self._crc = BLOCK_MESSAGES, 0
        self._blocks = array("Q")
        self._last_ns = hello.raw_ns
        self.byte_count = 0
        self._write_message(hello)

    def write(self, messages: Sequence[TimedMessage]) -> None:
        """Writes messages. The bytes are the same as if each were written alone, but writing many
        at once takes little longer than writing one."""
        while messages:
            first = self._block >= BLOCK_MESSAGES
            if first:
                self._block = 0
                self._packer = Packer(self._layouts)
                self._deflate = zlib.compressobj(COMPRESSION_LEVEL)
            block_messages = messages[: BLOCK_MESSAGES - self._block]
            for message, packed_bytes in zip(
                block_messages, self._packer.pack_many(block_messages), strict=True
            ):
                self._last_ns = max(self._last_ns, message.time_ns)  # a mark can be earlier
                if first:
                    self._blocks.extend((self.byte_count, self._last_ns))
                self._crc = zlib.crc32(packed_bytes, 0 if first else self._crc)
                data = self._deflate.compress(packed_bytes) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
                self._write_message(wire.Packed(self._last_ns, first, self._crc, data))
                first = False
            self._block += len(block_messages)
            messages = messages[len(block_messages) :]

    def end(self) -> None:
        """Writes the index. No message may be written afterwards."""
        data = {"blocks": self._blocks.tobytes(), "at": self.byte_count.to_bytes(8, "little")}
        self._write_message(wire.Note(INDEX_KIND, self._last_ns, "recorder", data))

    def _write_message(self, message: wire.Message) -> None:
        data = wire.encode(message)
        self._write(data)
        self.byte_count += len(data)


class Unpacker:
    """Unpacks the messages of a recording, block by block."""

    def __init__(self, hello: wire.Hello) -> None:
        self._layouts = Layouts(hello)
        self._packer: Packer | None = None
        self._max_bytes = min(wire.MAX_MESSAGE, wire.frame_bytes(hello) + MAX_OVERHEAD_BYTES)

    def messages(self, run: Sequence[wire.Packed]) -> Iterator[TimedMessage]:
        """Unpacks consecutive messages. Raises WireError at the first message that is damaged, or
        that follows a missing message of its block."""
        starts = [index for index, packed in enumerate(run) if packed.first or not index]
        for first, end in pairwise([*starts, len(run)]):
            yield from self._unpack_block(run[first:end])

    def _unpack_block(self, run: Sequence[wire.Packed]) -> Iterator[TimedMessage]:
        """Unpacks consecutive messages of one block, all at once if none is damaged."""
        if run[0].first:
            self._packer, self._inflate = Packer(self._layouts), zlib.decompressobj()
            self._crc = self._time_ns = 0
        if self._packer is None:
            raise wire.WireError("a packed message whose block has no beginning")
        inflated_messages: list[bytes] = []
        try:
            damage = None
            try:
                inflated_messages.extend(map(self._inflate_message, run))  # up to the damaged one
            except _DAMAGE_ERRORS as error:
                damage = error
            try:
                messages: Iterable[TimedMessage] = self._packer.unpack_many(inflated_messages)
            except _DAMAGE_ERRORS:
                messages = map(self._packer.unpack, inflated_messages)  # up to the damaged one
            for packed, message in zip(run, messages, strict=False):
                _check_types(message)
                if not max(self._time_ns, message.time_ns) <= packed.time_ns:
                    raise ValueError("its time is wrong")
                self._time_ns = packed.time_ns
                yield message
            if damage is not None:
                raise damage
        except _DAMAGE_ERRORS as error:
            self._packer = None
            is_our_text = isinstance(error, wire.WireError | ValueError)
            reason = error if is_our_text else "its content is not valid"
            raise wire.WireError(f"a damaged packed message ({reason})") from None

    def _inflate_message(self, packed: wire.Packed) -> bytes:
        data = self._inflate.decompress(packed.data, self._max_bytes)
        if self._inflate.unconsumed_tail:
            raise wire.WireError("a packed message that is longer than any can be")
        self._crc = zlib.crc32(data, self._crc)
        if self._crc != packed.crc:
            raise ValueError("its checksum is wrong")
        return data


def _check_types(message: TimedMessage) -> None:
    """Raises ValueError or WireError if an untrusted message is invalid."""
    fields: tuple[object, ...]
    if isinstance(message, wire.Frame):
        fields = message.seq, message.time_ns, message.lost, message.late, message.records
        types: tuple[type, ...] = int, int, int, int, dict
    else:
        fields = message.kind, message.time_ns, message.author, message.data
        types = str, int, str, dict
    if tuple(map(type, fields)) != types:
        raise ValueError("a field has a wrong type")
    if isinstance(message, wire.Frame):
        wire.check_frame(message)
    else:
        wire.check_note(message)


class Reader:
    """Decodes the bytes of a stream or a recording into unpacked messages."""

    def __init__(self) -> None:
        self.decoder = wire.Decoder()
        self.has_end = False
        """Whether the last message was the regular end of a stream or a recording."""
        self._unpacker: Unpacker | None = None

    def feed(self, data: wire.Bytes) -> Iterator[wire.Message]:
        for message in self.decoder.feed(data):
            index = isinstance(message, wire.Note) and message.kind == INDEX_KIND
            self.has_end = index or isinstance(message, wire.Bye)
            if isinstance(message, wire.Hello):
                self._unpacker = Unpacker(message)
            if isinstance(message, wire.Packed):
                assert self._unpacker is not None
                yield from self._unpacker.messages([message])
            else:
                yield message


def write_all(fd: int, data: wire.Bytes, offset: int | None = None) -> None:
    """Writes all data at `offset`, else at the file's position. Raises OSError if it cannot."""
    with memoryview(data) as view:
        written_bytes = 0
        while written_bytes < len(view):
            rest = view[written_bytes:]
            written_bytes += (
                os.write(fd, rest)
                if offset is None
                else os.pwrite(fd, rest, offset + written_bytes)
            )
