"""A recording as a file that can be entered anywhere."""

from __future__ import annotations

import fcntl
import os
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Self

from perfprobe import wire
from perftop.base.errors import DAMAGED, Failed
from perftop.base.format import many
from perftop.recording.codec import INDEX, Timed, Unpacking

WINDOW = 1 << 20
_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Bytes of the length of a message, by its first byte."""
PREFIX = 64
"""Bytes of a message that say what it is and when it was."""
UNCHECKED = "not checked: it is older and has no checksum of its beginning"
"""What is to be said of a recording that is not `checked`."""
GROWING = "still being written: this is what was in it when it was opened"
"""What is to be said of a recording that is `growing`."""
TAIL = 32
"""Bytes at the end of an index that hold its offset and its checksum."""


class Recording:
    """Raises Failed where there is nothing to read at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = _opened(path)
        self.growing = _held(self._file)  # asked before its size, as it may end in between
        """Whether it was still being written when it was opened, so it has no end yet."""
        self._size = os.fstat(self._file.fileno()).st_size
        self._window, self._at = b"", 0
        self._damages: dict[int, str] = {}
        """What was skipped, by offset, and why the file ends there, if it was not ended."""
        decoder = wire.Decoder()
        try:
            self.hello = self._greeting(decoder, path)
            self.checked = decoder.checked
            """Whether damage to its hello and its index would be noticed."""
            self._begin = decoder.offset
            self._blocks = self._indexed() or self._scanned()
        except OSError as error:
            self._file.close()
            raise _cannot(path, error) from None
        except Failed:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the file when it was opened."""
        return self._size

    @property
    def at(self) -> int:
        """Offset up to which the file was read."""
        return self._at

    @property
    def damage(self) -> str | None:
        """The first that was come upon, and how many more."""
        if not self._damages:
            return None
        more = len(self._damages) - 1
        told = self._damages[min(self._damages)]
        return f"{told}; and in {many(more, 'more place')}" if more else told

    @property
    def first_ns(self) -> int:
        return self._blocks[1] if self._blocks else self.hello.raw_ns

    @property
    def last_ns(self) -> int:
        """Time of the last message that can be read."""
        for at in reversed(self._blocks[::2]):
            times = [message.time_ns for message in self._until_damage(at)]
            if times:
                return max(times)
        return self.hello.raw_ns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def messages(self, time_ns: int = 0) -> Iterator[Timed]:
        """Messages from the block that holds this moment, or from the last one before it. Damage
        costs the rest of its block, and is told in `damage`."""
        found = bisect_right(self._blocks[1::2], time_ns) - 1
        at: int | None = self._blocks[2 * max(found, 0)] if self._blocks else self._begin
        while at is not None:
            at = yield from self._until_damage(at)

    def _until_damage(self, at: int) -> Generator[Timed, None, int | None]:
        """Messages from the block there on. Returns the offset of the block after a damage; None:
        all was read."""
        unpacking, decoder = Unpacking(self.hello), self._decoder()
        try:
            while (length := self._length(at)) is not None:
                (message,) = [*decoder.feed(self._bytes(at, length))] or (None,)
                if isinstance(message, wire.Packed):
                    message = unpacking.message(message)
                if isinstance(message, wire.Frame) or (
                    isinstance(message, wire.Note) and message.kind != INDEX
                ):
                    yield message
                at += length
        except wire.WireError as error:
            self._damages[at] = f"damaged at byte {at}: {error}"
            return next((block for block in self._blocks[::2] if block > at), None)
        return None

    def _decoder(self) -> wire.Decoder:
        return wire.Decoder(self.hello, checked=self.checked)

    # --- where messages are

    def _greeting(self, decoder: wire.Decoder, path: Path) -> wire.Hello:
        at = 0
        try:
            while (data := self._bytes(at, WINDOW)) and at <= wire.MAX_MESSAGE:
                for message in decoder.feed(data):
                    assert isinstance(message, wire.Hello)
                    return message
                at += len(data)
        except wire.WireError as error:
            raise Failed(f"{path} is no recording: {error}", DAMAGED) from None
        raise Failed(f"{path} is no recording: it ends before its start", DAMAGED)

    def _length(self, at: int) -> int | None:
        """Length of the whole message there; None: there is none."""
        head = self._bytes(at, 5) if at < self._size else b""  # it may have grown since
        width = _WIDTHS.get(head[0]) if head else 0
        if width is None:
            raise wire.WireError("not a message")
        length = 1 + width + int.from_bytes(head[1 : 1 + width], "big")
        if at + length <= self._size and head:
            return length
        if head and not self.growing:
            self._damages[at] = f"cut at byte {at}: the last message is not all there"
        return None

    def _bytes(self, at: int, count: int) -> bytes:
        if not self._at <= at or at + count > self._at + len(self._window):
            self._file.seek(at)
            self._window, self._at = self._file.read(max(WINDOW, count)), at
        start = at - self._at
        return self._window[start : start + count]

    def _indexed(self) -> array[int] | None:
        """The file's own index. None: it has none, or one that does not fit it, which is told."""
        end = wire.without_check(self._bytes(max(0, self._size - TAIL), TAIL))
        at = int.from_bytes(end[-8:], "little")
        if not self._begin <= at < self._size:
            return None
        decoder = self._decoder()
        try:
            found = list(decoder.feed(self._bytes(at, self._size - at)))
        except wire.WireError:
            return None
        note = found[0] if len(found) == 1 and not decoder.cut else None
        if not isinstance(note, wire.Note) or note.kind != INDEX:
            return None
        blocks, data = array("Q"), note.data.get("blocks")
        if isinstance(data, bytes) and len(data) % 16 == 0:
            blocks.frombytes(data)
            if self._fits(blocks, at):
                return blocks
        self._damages[at] = f"damaged at byte {at}: its index does not fit it"
        return None

    def _fits(self, blocks: array[int], end: int) -> bool:
        """Whether a block begins wherever the index says, from the first message on."""
        before = self._begin - 1
        for at, time_ns in zip(blocks[::2], blocks[1::2], strict=True):
            if (
                not before < at < end
                or _begins(os.pread(self._file.fileno(), PREFIX, at)) != time_ns
            ):
                return False
            before = at
        return (blocks[0] if blocks else end) == self._begin

    def _scanned(self) -> array[int]:
        """What an index would say. Tells where the file was cut, or that it has no end."""
        blocks, at, last = array("Q"), self._begin, b""
        try:
            while (length := self._length(at)) is not None:
                last = self._bytes(at, min(length, PREFIX))
                time_ns = _begins(last)
                if time_ns is not None:
                    blocks.extend((at, time_ns))
                at += length
        except wire.WireError as error:
            self._damages[at] = f"damaged at byte {at}: {error}"
        else:
            if at == self._size and not _ends(last) and not self.growing:
                self._damages[at] = f"cut at byte {at}: it has no end"
        return blocks


def _opened(path: Path) -> BinaryIO:
    try:
        if path == Path("-") or path.is_fifo():  # opening one might wait for ever
            raise Failed(f"cannot replay {path}: it is a pipe; perftop export reads pipes")
        return path.open("rb")
    except OSError as error:
        raise _cannot(path, error) from None


def _held(file: BinaryIO) -> bool:
    """Whether its writer still has its lock, which ends with the writer, however that ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # not every file system has locks
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _cannot(path: Path, error: OSError) -> Failed:
    return Failed(f"cannot read {path}: {error.strerror or error}")


def _fields(prefix: bytes) -> dict[str, object]:
    """Fields of a message, as far as its first bytes have them."""
    width = _WIDTHS.get(prefix[0]) if prefix else None
    return {} if width is None else wire.first_fields(prefix, 1 + width)


def _begins(prefix: bytes) -> int | None:
    """The time of a message that needs none before it; None: it does, or has no time."""
    found = _fields(prefix)
    time_ns = found.get("time_ns")
    alone = found.get("type") == "frame" or found.get("first") is True
    return time_ns if alone and isinstance(time_ns, int) and 0 <= time_ns < 1 << 63 else None


def _ends(prefix: bytes) -> bool:
    """Whether a message is one with which a stream or a recording ends."""
    found = _fields(prefix)
    return found.get("type") == "bye" or found.get("kind") == INDEX
