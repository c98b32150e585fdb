"""The two orders that a running probe takes from its parent, each a line on stdin: `batch NS`, the
time between two writes, and `echo N`, to be answered by a note with that number, from which a
parent far away learns how long the way is. All other bytes are ignored: the probe may be root, its
parent is not."""

from __future__ import annotations

from typing import NamedTuple

BATCH, ECHO = b"batch ", b"echo "
MOST = 32
"""Bytes of an order; longer lines are none."""
MOST_DIGITS = 12


class Asked(NamedTuple):
    """The last order of each kind; None: there was none."""

    batch_ns: int | None = None
    echo: int | None = None


class Orders:
    def __init__(self) -> None:
        self._line = b""
        """The line that has not ended yet, or enough of it to know that it is no order."""

    def read(self, data: bytes) -> Asked:
        """The orders that end in these bytes."""
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[: MOST + 1]
        batch_ns = echo = None
        for line in lines:
            batch_ns = _number(line, BATCH) or batch_ns
            echo = _number(line, ECHO) or echo
        return Asked(batch_ns, echo)


def _number(line: bytes, word: bytes) -> int:
    """0: the line is no such order."""
    digits = line.removeprefix(word)
    strict = line.startswith(word) and digits.isdigit() and len(digits) <= MOST_DIGITS
    return int(digits) if strict else 0
