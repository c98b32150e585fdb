"""The one order that a running probe takes from its parent: `batch NS`, a line on stdin with the
time between two writes. All other bytes are ignored: the probe may be root, its parent is not."""

from __future__ import annotations

WORD = b"batch "
MOST = 32
"""Bytes of an order; longer lines are none."""
MOST_DIGITS = 12


class Orders:
    def __init__(self) -> None:
        self._line = b""
        """The line that has not ended yet, or enough of it to know that it is no order."""

    def read(self, data: bytes) -> int | None:
        """The time of the last order that ends in these bytes; None: there is none."""
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[: MOST + 1]
        found = None
        for line in lines:
            found = _batch_ns(line) or found
        return found


def _batch_ns(line: bytes) -> int:
    """0: the line is no order."""
    digits = line.removeprefix(WORD)
    strict = line.startswith(WORD) and digits.isdigit() and len(digits) <= MOST_DIGITS
    return int(digits) if strict else 0
