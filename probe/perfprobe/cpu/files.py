"""Small files of /proc and /sys, read as text and numbers."""

from __future__ import annotations

import os
import re
from pathlib import Path

from perfprobe.cpu import cpu_sets

CPU_DIRECTORY = "sys/devices/system/cpu"
MAX_BYTES, MAX_LARGE_BYTES = 1 << 16, 1 << 24
"""Maximum sizes in bytes of files that are read: of most files, and of those that have text for
each CPU, task or mount. Files under --sysroot may have any size. At most MAX_BYTES are read at
once: Python would map memory for a larger buffer, which costs 50 us, even if the file is small."""

MIN_CUT_BYTES = 2048
"""Minimum size in bytes of a read that may be followed by another. The kernel fills a page with
whole lines, and lines of the files that stay open are far shorter than half a page."""


def open_file(path: str | Path) -> int:
    """Opens a file for reading. Raises OSError. It does not wait for the writer of a fifo, which
    may be in place of any file under --sysroot."""
    return os.open(path, os.O_NONBLOCK)


def read_text(path: str, limit: int = MAX_BYTES) -> str:
    """Returns the content of a small file; empty if unreadable or longer than `limit` bytes."""
    content = read_head(path, limit + 1)
    return content if len(content) <= limit else ""


def read_head(path: str, limit: int) -> str:
    """Returns the first `limit` bytes of a file; empty if it cannot be read. Callers read thousands
    of files, so `path` is a string: Path objects are slow."""
    chunks = []
    try:
        fd = open_file(path)
        try:
            while limit > 0 and (chunk := os.read(fd, min(limit, MAX_BYTES))):
                chunks.append(chunk)
                limit -= len(chunk)
        finally:
            os.close(fd)
    except OSError:
        return ""
    return b"".join(chunks).decode("utf-8", "replace")


class OpenFile:
    """A file of the kernel that stays open, because opening it costs as much as reading it."""

    def __init__(self, path: str, limit: int = MAX_BYTES) -> None:
        self._path, self._limit, self._fd = path, limit, -1

    def fd(self) -> int:
        """Returns the descriptor of the file, which the first call opens. Raises OSError."""
        if self._fd < 0:
            self._fd = open_file(self._path)
        return self._fd

    def read(self) -> str:
        """Returns the current content; empty if unreadable or longer than `limit` bytes."""
        content = b""
        try:
            fd = self.fd()
            while missing := self._limit + 1 - len(content):
                chunk = os.pread(fd, min(missing, MAX_BYTES), len(content))
                content += chunk
                if len(chunk) < MIN_CUT_BYTES:
                    break
        except OSError:
            return ""
        return content.decode("utf-8", "replace") if len(content) <= self._limit else ""

    def read_number(self) -> int | None:
        return parse_natural(self.read())

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_word(path: str) -> str:
    """Returns the content of a file with one value; empty if it cannot be read."""
    return read_text(path).strip()


def read_number(path: str) -> int | None:
    return parse_natural(read_text(path))


def parse_natural(content: str | bytes | None) -> int | None:
    """Returns the decimal number in the text if it is below 10**18 (it then fits into 64 bits);
    None for any other text, such as the -1 that firmware writes for an unknown value."""
    digits = (content or "").strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def read_cpu_list(path: str) -> list[int]:
    """Returns the CPUs of a kernel list in a file; empty if it is missing or garbled."""
    try:
        return cpu_sets.parse(read_text(path))
    except ValueError:
        return []


def file_names(directory: str) -> list[str]:
    """Returns the names in a directory, sorted; empty if it cannot be read."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - a thousand Path objects are slow
    except OSError:
        return []


def numbered_entries(directory: str, prefix: str) -> list[int]:
    """Returns the numbers in a directory's names of the form `prefix` and number, in order."""
    pattern = re.compile(prefix + "([0-9]{1,5})")
    matches = map(pattern.fullmatch, file_names(directory))
    return sorted({int(match[1]) for match in matches if match})
