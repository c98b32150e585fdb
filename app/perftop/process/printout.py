"""The last lines that a program printed: raw, bounded, and cheap to collect at any rate. How a line
looks is computed only when it is shown."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

MOST_LINES = 2000
MOST_BYTES = 1 << 20
LINE_BYTES = 1 << 16
"""Bytes kept of one line; the rest is left out."""
MOST_REWRITES = 8
"""Rewrites kept of one line, which a program uses to show progress; earlier ones are overwritten
anyway."""
PEN_BYTES = 128
_PEN = re.compile(rb"\x1b\[[0-9;:]*m")


class Line(NamedTuple):
    pen: bytes
    """Colour sequences in force at its beginning."""
    raw: bytes


class Printout:
    def __init__(self) -> None:
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._open, self._pen = b"", b""
        """The line that is not ended yet."""
        self._new: deque[bytes] = deque()
        self._waiting = 0
        """Number of bytes in `_new`."""
        self._skipped = 0
        """Number of lines that were dropped before they were split off."""
        self.left_out = 0
        """Number of lines that are kept no more; so the number of the first line kept."""

    @property
    def ended(self) -> int:
        """Number of lines kept that will not change any more."""
        return len(self._lines)

    def __len__(self) -> int:
        return len(self._lines) + bool(self._open)

    def __getitem__(self, at: int) -> Line:
        return self._lines[at] if at < len(self._lines) else Line(self._pen, self._open)

    def take(self, data: bytes) -> None:
        """Keep data unsplit: most of a flood is never shown."""
        self._new.append(data)
        self._waiting += len(data)
        while self._waiting - len(self._new[0]) > MOST_BYTES:
            gone = self._new.popleft()
            self._waiting -= len(gone)
            self._skipped += gone.count(b"\n")

    def settle(self) -> None:
        """Make lines of what has come since the last time."""
        if self._skipped:
            self.left_out += self._skipped + len(self._lines)
            self._lines.clear()
            self._bytes = self._skipped = 0
            self._open = self._pen = b""
        lines = (self._open + b"".join(self._new)).rsplit(b"\n", MOST_LINES)
        self._new.clear()
        self._waiting = 0
        if len(lines) > MOST_LINES:  # these lines were never shown
            self.left_out += lines[0].count(b"\n") + 1
            del lines[0]
        *ended, rest = lines
        for raw in ended:
            self._end(_cut(raw.rstrip(b"\r")))
        self._open = _cut(rest)
        while len(self._lines) > MOST_LINES or self._bytes > MOST_BYTES:
            self._bytes -= len(self._lines.popleft().raw)
            self.left_out += 1

    def _end(self, raw: bytes) -> None:
        self._lines.append(Line(self._pen, raw))
        self._bytes += len(raw)
        if b"\x1b" in raw:
            self._pen = _pen(self._pen, raw)


def _cut(raw: bytes) -> bytes:
    if raw.count(b"\r") > MOST_REWRITES:
        raw = b"\r".join(raw.rsplit(b"\r", MOST_REWRITES)[1:])
    return raw[:LINE_BYTES]


def _pen(pen: bytes, raw: bytes) -> bytes:
    """The colour sequences in force after a line."""
    for found in _PEN.findall(raw):
        codes = found[2:-1]
        if codes in {b"", b"0"}:
            pen = b""
        elif codes.startswith(b"0;") or len(pen) + len(found) > PEN_BYTES:
            pen = found
        else:
            pen += found
    return pen
