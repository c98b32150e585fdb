"""The one place where packed bytes from outside become objects: counted first, then made."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack

from perfprobe.wire.check import WireError

MAX_ELEMENTS = 1 << 15
"""In one array or map."""
MAX_HELLO = 1 << 19
"""Elements of a hello: 8192 CPUs need half of it. An element takes up to 120 bytes of memory."""
SHORT = 1 << 12
"""Bytes that cannot hold too much: an element takes one at least."""
MAX_TEXT = 1 << 22
"""Bytes of all texts of a message: one character of four bytes makes a text four times as long."""


def most_elements(cpus: int) -> int:
    """Elements that a message after the hello may have. A CPU may have four tasks in a frame's
    records, each with details."""
    return (1 << 13) + 64 * cpus


def unpacked(data: bytes, most: int) -> Any:
    """The object that these bytes are. Raises WireError if they are none, or if it has more than
    `most` elements, which is found out before there is any."""
    try:
        if len(data) > SHORT:
            _count(data, most)
        # A list's room is taken when its length is read, a thousand times if they are nested.
        most_each = min(MAX_ELEMENTS, len(data))
        return msgpack.unpackb(data, max_array_len=most_each, max_map_len=most_each, max_ext_len=0)
    except WireError:
        raise
    except Exception as error:  # noqa: BLE001 - bytes from outside: every failure is theirs
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WireError(f"a damaged message ({text[:100]})") from None


def first_fields(data: bytes, start: int) -> dict[str, object]:
    """Those of a map's first fields that lie in `data` and are text, whole numbers, true or false.
    Bytes that are no map have none."""
    found: dict[str, object] = {}
    unpacker = msgpack.Unpacker(
        max_buffer_size=len(data), max_array_len=0, max_map_len=MAX_ELEMENTS, max_ext_len=0
    )
    unpacker.feed(data[start:])
    with contextlib.suppress(Exception):  # bytes from outside, and they may end anywhere
        for _ in range(unpacker.read_map_header()):
            key, value = unpacker.unpack(), unpacker.unpack()
            if not isinstance(key, str) or not isinstance(value, str | int):
                break
            found[key] = value
    return found


def _steps() -> list[int]:
    """By its first byte: how many bytes a value takes that has one size; 0: it needs a look."""
    steps = [1] * 256
    steps[0xA0:0xC0] = range(1, 33)
    for first, size in zip((*range(0xCA, 0xD4),), (5, 9, 2, 3, 5, 9, 2, 3, 5, 9), strict=True):
        steps[first] = size
    for first in (*range(0x80, 0xA0), 0xC1, *range(0xC4, 0xCA), *range(0xD4, 0xE0)):
        steps[first] = 0
    return steps


_STEPS = _steps()
_WIDTHS = {
    0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0),
    0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2),
}  # fmt: skip
"""By type with a length: the bytes of the length, and the elements for each of it; 0: bytes."""
_TEXT = 0xD9


def _count(data: bytes, most: int) -> None:
    """Raises WireError for more than `most` elements, or claims of them, or MAX_TEXT bytes of text.
    Does not look at what lies in what, because every frame waits for this."""
    at, end, claimed, text, steps = 0, len(data), 1, 0, _STEPS
    for _ in range(most):
        if at >= end:
            return
        first = data[at]
        if step := steps[first]:
            at += step
        elif first < 0xA0:
            claimed += first & 15 if first >= 0x90 else 2 * (first & 15)
            at += 1
        else:
            width, each = _WIDTHS[first]
            number = int.from_bytes(data[at + 1 : at + 1 + width], "big")
            at += 1 + width
            claimed += each * number
            if not each:
                at += number
                text += number if first >= _TEXT else 0
            if claimed > most or text > MAX_TEXT:
                break
    if at < end or claimed > most:
        raise WireError("a damaged message (more elements or text than any has)")
