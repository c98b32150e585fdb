"""The format of a recording: messages of the wire, with packed frames and notes.

The first message of a block needs no earlier message. The messages of a block are deflated as one
stream, which is flushed after each message. A recording that was ended properly has an index as its
last message, with the positions of its blocks. Until a block is complete, its messages may be
stored as they are on the wire.
"""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from perfprobe import wire
from perftop.session.frame_packing import Layouts, Packer

BLOCK_MESSAGES = 64
"""Number of messages in a block. To read a message, all messages before it in its block must be
unpacked."""
COMPRESSION_LEVEL = 1
"""Compression level of zlib. The next level takes twice as long and saves a twentieth."""

MAX_OVERHEAD_BYTES = 1 << 22
"""Maximum size of a packed message without its blocks, in bytes."""
INDEX_KIND = "index"
"""Kind of the last note of a file. Its data has the offset and the first time of each block. The
last bytes of the file are the offset of this note, by which it is found."""
TimedMessage = wire.Frame | wire.Note
_DAMAGE_ERRORS = wire.WireError, ValueError, TypeError, KeyError, IndexError, zlib.error


class Recorder:
    """Writes messages to a recording, beginning with the hello."""

    def __init__(self, write: Callable[[bytes], object], hello: wire.Hello) -> None:
        """`write` receives the bytes of whole messages."""
        self._write, self._layouts = write, Layouts(hello)
        self._block, self._crc = BLOCK_MESSAGES, 0
        self._blocks = array("Q")
        self._last_ns = hello.raw_ns
        self.bytes = 0
        self._put(hello)

    def write(self, message: TimedMessage) -> None:
        self.write_many([message])

    def write_many(self, messages: Sequence[TimedMessage]) -> None:
        """Writes messages, with the same bytes as one by one. Many cost little more than one."""
        while messages:
            first = self._block >= BLOCK_MESSAGES
            if first:
                self._block = 0
                self._packer = Packer(self._layouts)
                self._deflate = zlib.compressobj(COMPRESSION_LEVEL)
            block_messages = messages[: BLOCK_MESSAGES - self._block]
            for message, packed_bytes in zip(
                block_messages, self._packer.packs(block_messages), strict=True
            ):
                self._last_ns = max(self._last_ns, message.time_ns)  # a mark can be earlier
                if first:
                    self._blocks.extend((self.bytes, self._last_ns))
                self._crc = zlib.crc32(packed_bytes, 0 if first else self._crc)
                data = self._deflate.compress(packed_bytes) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
                self._put(wire.Packed(self._last_ns, first, self._crc, data))
                first = False
            self._block += len(block_messages)
            messages = messages[len(block_messages) :]

    def end(self) -> None:
        """Writes the index. No message may be written after the index."""
        data = {"blocks": self._blocks.tobytes(), "at": self.bytes.to_bytes(8, "little")}
        self._put(wire.Note(INDEX_KIND, self._last_ns, "recorder", data))

    def _put(self, message: wire.Message) -> None:
        data = wire.encode(message)
        self._write(data)
        self.bytes += len(data)


class Unpacking:
    """Unpacks messages, block by block."""

    def __init__(self, hello: wire.Hello) -> None:
        self._layouts = Layouts(hello)
        self._packer: Packer | None = None
        self._max_bytes = min(wire.MAX_MESSAGE, wire.frame_bytes(hello) + MAX_OVERHEAD_BYTES)

    def messages(self, run: Sequence[wire.Packed]) -> Iterator[TimedMessage]:
        """Unpacks consecutive messages. Raises WireError after the last one before a message that
        is damaged, or whose block misses an earlier message."""
        starts = [index for index, packed in enumerate(run) if packed.first or not index]
        for first, end in pairwise([*starts, len(run)]):
            yield from self._of_block(run[first:end])

    def _of_block(self, run: Sequence[wire.Packed]) -> Iterator[TimedMessage]:
        """Unpacks consecutive messages of one block, together if none is damaged."""
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
                messages: Iterable[TimedMessage] = self._packer.unpacks(inflated_messages)
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
            raise wire.WireError(f"a damaged packed message ({error})") from None

    def _inflate_message(self, packed: wire.Packed) -> bytes:
        data = self._inflate.decompress(packed.data, self._max_bytes)
        if self._inflate.unconsumed_tail:
            raise wire.WireError("a packed message that is longer than any can be")
        self._crc = zlib.crc32(data, self._crc)
        if self._crc != packed.crc:
            raise ValueError("its checksum is wrong")
        return data


def _check_types(message: TimedMessage) -> None:
    """Raises ValueError or WireError for an invalid message: a packed message is as untrusted as
    any other."""
    fields: tuple[object, ...]
    if isinstance(message, wire.Frame):
        fields = message.seq, message.time_ns, message.lost, message.late, message.records
        types: tuple[type, ...] = int, int, int, int, dict
    else:
        fields, types = (
            (message.kind, message.time_ns, message.author, message.data),
            (str, int, str, dict),
        )
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
        self._unpacking: Unpacking | None = None

    def feed(self, data: wire.Bytes) -> Iterator[wire.Message]:
        for message in self.decoder.feed(data):
            index = isinstance(message, wire.Note) and message.kind == INDEX_KIND
            self.has_end = index or isinstance(message, wire.Bye)
            if isinstance(message, wire.Hello):
                self._unpacking = Unpacking(message)
            if isinstance(message, wire.Packed):
                assert self._unpacking is not None
                yield from self._unpacking.messages([message])
            else:
                yield message


def write_all(fd: int, data: wire.Bytes, offset: int | None = None) -> None:
    """Writes all of the data, at the end or at this offset. Raises OSError, also if a part was
    written."""
    with memoryview(data) as view:
        written_bytes = 0
        while written_bytes < len(view):
            unwritten = view[written_bytes:]
            written_bytes += (
                os.write(fd, unwritten)
                if offset is None
                else os.pwrite(fd, unwritten, offset + written_bytes)
            )
