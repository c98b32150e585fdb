"""Messages as bytes, and bytes as messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgpack

from perfprobe.wire.check import (
    MAX_MESSAGE,
    WireError,
    check_hello,
    check_time,
    load,
    load_frame,
)
from perfprobe.wire.messages import (
    VERSION,
    Bye,
    Bytes,
    Frame,
    Hello,
    Message,
    Note,
    Packed,
)

MAX_ELEMENTS = 1 << 15  # in one array or map: bounds what a wrong length can reserve

_TYPES: dict[str, type[Any]] = {
    "hello": Hello, "frame": Frame, "note": Note, "packed": Packed, "bye": Bye,
}  # fmt: skip
_NAMES = {cls: name for name, cls in _TYPES.items()}


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    if isinstance(message, Frame):  # the hot one: asdict would copy the blocks
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
        body = {"type": _NAMES[type(message)], **dataclasses.asdict(message)}
    packed = msgpack.packb(msgpack.packb(body))
    assert isinstance(packed, bytes)
    return packed


class Decoder:
    """Turns bytes into messages. Memory is bounded by MAX_MESSAGE whatever arrives."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.ended = False
        """A bye was read."""
        self.offset = 0
        """Where the last whole message ended."""
        self._rest = bytearray()

    @property
    def cut(self) -> int:
        """Bytes after the last whole message: not 0 at the end of a stream that was cut."""
        return len(self._rest)

    def feed(self, data: Bytes) -> Iterator[Message]:
        """Yields the messages that are complete by now. After a WireError the rest is lost."""
        self._rest += data
        while (ends := self._outer()) is not None:
            start, end = ends
            message = self._decode(bytes(self._rest[start:end]))
            del self._rest[:end]
            self.offset += end
            if message is not None:
                yield message

    def _outer(self) -> tuple[int, int] | None:
        """Start and end of the first message's body; None: it is not complete yet. Read by hand,
        because msgpack's Unpacker would wait for as much as a wrong length claims."""
        rest = self._rest
        if not rest:
            return None
        width = {0xC4: 1, 0xC5: 2, 0xC6: 4}.get(rest[0])
        if width is None:
            raise WireError(self._damage("not a perftop stream"))
        start = 1 + width
        if len(rest) < start:
            return None
        length = int.from_bytes(rest[1:start], "big")
        if length > MAX_MESSAGE:
            raise WireError(self._damage(f"not a perftop stream (a message of {length} bytes)"))
        return (start, start + length) if len(rest) >= start + length else None

    def _decode(self, packed: bytes) -> Message | None:
        try:
            body = msgpack.unpackb(
                packed, max_array_len=MAX_ELEMENTS, max_map_len=MAX_ELEMENTS, max_ext_len=0
            )
        except (ValueError, msgpack.UnpackException) as error:
            text = str(error) or type(error).__name__
            raise WireError(self._damage(f"a damaged message ({text})")) from None
        if not isinstance(body, dict):
            raise WireError(self._damage("a message that is not a map"))
        kind = body.get("type")
        if self.hello is None and kind != "hello":
            raise WireError(self._damage("no hello at the start"))
        cls = _TYPES.get(kind) if isinstance(kind, str) else None
        if cls is None:
            return None
        if cls is Hello:
            self._check_start(body)
        try:
            if cls is Frame:
                assert self.hello is not None
                return load_frame(self.hello, body)
            message: Message = load(cls, body, _NAMES[cls])
            if isinstance(message, Hello):
                check_hello(message)
                self.hello = message
            elif isinstance(message, Note):
                check_time(message)
        except WireError as error:
            raise WireError(self._damage(str(error))) from None
        self.ended |= isinstance(message, Bye)
        return message

    def _check_start(self, body: dict[Any, Any]) -> None:
        """Raises WireError for a second hello or another version."""
        version = body.get("wire")
        if version != VERSION:
            raise WireError(
                f"wire version {version!r} is not one this perftop reads ({VERSION}): "
                "use the same perftop at both ends"
            )
        if self.hello is not None:
            raise WireError(self._damage("a second hello"))

    def _damage(self, what: str) -> str:
        return f"{what}, at byte {self.offset}"
