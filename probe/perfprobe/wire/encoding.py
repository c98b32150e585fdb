"""Encodes messages to bytes and decodes bytes to messages. Elements (values, list items, map keys)
in bytes from outside are counted before they become objects, so that memory is bounded."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import msgpack

from perfprobe.wire.check import (
    MAX_MESSAGE,
    BlockSize,
    ForeignDataError,
    VersionError,
    WireError,
    block_sizes,
    check_hello,
    check_note,
    load,
    load_frame,
    load_packed,
)
from perfprobe.wire.messages import VERSION, Bye, Bytes, Frame, Hello, Message, Note, Packed

MAX_ELEMENTS = 1 << 15
"""Maximum number of elements in one list or map."""
MAX_HELLO_ELEMENTS = 1 << 19
"""Maximum number of elements in a hello, of up to 120 bytes each; 8192 CPUs need half of it."""
MAX_UNCOUNTED_ARRAY = 1 << 12
"""Maximum length of a list in a message whose elements are not counted. msgpack allocates a list
when it has read its length, at up to 1024 levels of nesting: 32 MB in total."""
MAX_TEXT_BYTES = 1 << 22
"""Maximum bytes of all texts in a message. In memory a text may be four times as large: one wide
character makes all its characters take four bytes."""


def max_elements(cpus: int) -> int:
    """Returns the maximum number of elements in a message after the hello, for this number of CPUs.
    A CPU may have four tasks in a frame's records, each with details."""
    return (1 << 13) + 64 * cpus


def unpack(data: bytes, limit: int) -> Any:
    """Decodes one msgpack object. Raises WireError if the bytes are not msgpack, or if the object
    has more than `limit` elements. Elements are counted first, unless there are at most `limit`
    bytes (an element has at least one byte)."""
    try:
        if len(data) <= limit:
            with contextlib.suppress(ValueError):  # the bytes may be damaged, or an array too long
                return _unpack(data, min(MAX_UNCOUNTED_ARRAY, len(data)))
        _check_count(data, limit)
        return _unpack(data, min(MAX_ELEMENTS, len(data)))
    except WireError:
        raise
    except Exception:  # noqa: BLE001 - bytes from outside may fail in any way
        raise WireError("a damaged message (its bytes are not msgpack)") from None


def _unpack(data: bytes, max_length: int) -> Any:
    return msgpack.unpackb(data, max_array_len=max_length, max_map_len=max_length, max_ext_len=0)


def first_fields(data: bytes, start: int) -> dict[str, object]:
    """Returns the first fields of an encoded map, from offset `start` on, up to one that is not
    complete or is not text, integer or boolean; empty if the bytes are not a map."""
    fields: dict[str, object] = {}
    unpacker = msgpack.Unpacker(
        max_buffer_size=len(data), max_array_len=0, max_map_len=MAX_ELEMENTS, max_ext_len=0
    )
    unpacker.feed(data[start:])
    with contextlib.suppress(Exception):  # untrusted bytes, which may end anywhere
        for _ in range(unpacker.read_map_header()):
            key, value = unpacker.unpack(), unpacker.unpack()
            if not isinstance(key, str) or not isinstance(value, str | int):
                break
            fields[key] = value
    return fields


_SIZES = [1] * 256
_SIZES[0x80:0xA0] = [0] * 32
_SIZES[0xA0:0xC0] = range(1, 33)
_SIZES[0xC4:0xE0] = [0] * 6 + [5, 9, 2, 3, 5, 9, 2, 3, 5, 9] + [0] * 12
"""A msgpack element's size in bytes by its first byte; 0 if a length follows."""
_WIDTHS = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
    0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2),
}  # fmt: skip
"""By first byte of a msgpack type with a length: size of the length in bytes, and the number of
elements for each unit of length; 0: the length is in bytes."""
_TEXT = 0xD9


def _check_count(data: bytes, limit: int) -> None:
    """Raises WireError if the bytes have more than `limit` elements, claim more, or have more than
    MAX_TEXT_BYTES bytes of text. Ignores nesting, because this must be fast."""
    offset, end, claimed_count, text, sizes = 0, len(data), 1, 0, _SIZES
    for _ in range(limit):
        if offset >= end:
            return
        first = data[offset]
        if size := sizes[first]:
            offset += size
        elif first < 0xA0:
            claimed_count += first & 15 if first >= 0x90 else 2 * (first & 15)
            offset += 1
        else:
            width, elements_per_unit = _WIDTHS[first]
            number = int.from_bytes(data[offset + 1 : offset + 1 + width], "big")
            offset += 1 + width
            claimed_count += elements_per_unit * number
            if not elements_per_unit:
                offset += number
                text += number if first >= _TEXT else 0
            if claimed_count > limit or text > MAX_TEXT_BYTES:
                break
    if offset < end or claimed_count > limit:
        raise WireError("a damaged message (too many elements or too much text)")


# --- messages -------------------------------------------------------------------------------------

_TYPES: dict[str, type[Any]] = {
    "hello": Hello, "frame": Frame, "note": Note, "packed": Packed, "bye": Bye,
}  # fmt: skip
_NAMES = {cls: name for name, cls in _TYPES.items()}

CRC_BYTES = 4
_CRC_PLACEHOLDER = 0xFFFF_FFFF
"""Placeholder for a checksum; encoded, it has one byte and then CRC_BYTES."""
_CRC_HEAD = b"\xa5check\xce"
"""The bytes of a message before its checksum, which is at its end."""
_BIN_HEADS = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""By first byte of a msgpack `bin`: the number of bytes of its length."""


def encode(message: Message) -> bytes:
    if isinstance(message, Frame):  # most messages; asdict would copy the blocks
        blocks = {
            name: {"head": rows.head, "valid": rows.valid, "values": rows.values}
            for name, rows in message.blocks.items()
        }
        body = {
            "type": "frame",
            "seq": message.seq,
            "time_ns": message.time_ns,
            "lost": message.lost,
            "late": message.late,
            "blocks": blocks,
            "records": message.records,
        }
    else:
        body = {"type": _NAMES[type(message)], **asdict(message)}
        if isinstance(message, Packed):  # a packed message has a checksum of its own
            encoded = msgpack.packb(msgpack.packb(body))
            assert isinstance(encoded, bytes)
            return encoded
    body["check"] = _CRC_PLACEHOLDER
    packed = msgpack.packb(body)
    assert isinstance(packed, bytes)
    covered = memoryview(packed)[:-CRC_BYTES]
    first, width = next((f, w) for f, w in _BIN_HEADS.items() if len(packed) < 1 << (8 * w))
    head = bytes([first]) + len(packed).to_bytes(width, "big")
    return b"".join((head, covered, _crc(covered)))


def _crc(data: Bytes) -> bytes:
    return zlib.crc32(data).to_bytes(CRC_BYTES, "big")


def without_check(end: bytes) -> bytes:
    """Returns a message's last bytes without the key `check` and its checksum, if any."""
    length = len(_CRC_HEAD) + CRC_BYTES
    return end[:-length] if end[-length:-CRC_BYTES] == _CRC_HEAD else end


class Decoder:
    """Decodes the bytes of a stream, in pieces of any length, to messages. Memory is bounded."""

    def __init__(self, hello: Hello | None = None, *, checked: bool = False) -> None:
        """With `hello`, continues its stream; `checked`: whether that hello had a checksum."""
        self.hello = hello
        self.checked = checked
        """Whether hello had a checksum; if so, all messages must have one."""
        self.ended = False
        """Whether a bye was read."""
        self.offset = 0
        """Offset in the stream of the end of the last whole message."""
        self._buffer = bytearray()
        self._sizes: list[BlockSize] | None = None
        """Sizes of the blocks that hello announced; None before the first frame."""

    @property
    def cut_byte_count(self) -> int:
        """Number of bytes after the last whole message; not 0 after a stream that was cut."""
        return len(self._buffer)

    def feed(self, data: Bytes) -> Iterator[Message]:
        """Adds bytes of the stream, and yields the messages that are complete. Raises WireError;
        the decoder cannot be used after that."""
        self._buffer += data
        while (ends := self._next_message()) is not None:
            start, end = ends
            message = self.decode(bytes(memoryview(self._buffer)[start:end]))
            del self._buffer[:end]
            self.offset += end
            if message is not None:
                yield message

    def _next_message(self) -> tuple[int, int] | None:
        """Returns the start and end of the first message's body; None if it is not complete.
        msgpack's Unpacker would wait for all bytes that a wrong length claims."""
        rest = self._buffer
        if not rest:
            return None
        width = _BIN_HEADS.get(rest[0])
        if width is None:
            raise ForeignDataError("not a perftop stream")
        start = 1 + width
        if len(rest) < start:
            return None
        length = int.from_bytes(rest[1:start], "big")
        if length > MAX_MESSAGE:
            raise ForeignDataError(f"not a perftop stream (a message of {length} bytes)")
        return (start, start + length) if len(rest) >= start + length else None

    def decode(self, packed: bytes) -> Message | None:
        """Decodes the body of one message, without its length. Returns None for a message of an
        unknown kind. Raises WireError."""
        summed = without_check(packed) is not packed
        if summed and _crc(memoryview(packed)[:-CRC_BYTES]) != packed[-CRC_BYTES:]:
            raise WireError("a damaged message (its checksum is wrong)")
        limit = MAX_HELLO_ELEMENTS if self.hello is None else max_elements(len(self.hello.topology))
        body = unpack(packed, limit)
        if not isinstance(body, dict):
            raise WireError("a message that is not a map")
        kind = body.get("type")
        if self.hello is None and kind != "hello":
            raise WireError("no hello at the start")
        cls = _TYPES.get(kind) if isinstance(kind, str) else None
        if self.checked and not summed and cls is not Packed:
            raise WireError("a damaged message (its checksum is missing)")
        if cls is None:
            return None
        if cls is Frame:
            assert self.hello is not None
            if self._sizes is None:
                self._sizes = block_sizes(self.hello)
            return load_frame(self._sizes, body)
        if cls is Packed:
            return load_packed(body)
        version = body.get("wire")
        if cls is Hello and version != VERSION:
            shown = repr(version)[:20] if isinstance(version, int | str) else "of no kind"
            raise VersionError(
                f"wire version {shown} is not one this perftop reads ({VERSION}): "
                "use the same version of perftop for both"
            )
        if cls is Hello and self.hello is not None:
            raise WireError("a second hello")
        message: Message = load(cls, body, _NAMES[cls])
        if isinstance(message, Hello):
            check_hello(message)
            self.hello, self.checked = message, summed
        elif isinstance(message, Note):
            check_note(message)
        self.ended |= isinstance(message, Bye)
        return message
