"""Reports messages of the kernel's log that name who slows the machine down: programs that take
split locks, and memory whose errors are corrected."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

MAX_MESSAGES, MAX_MESSAGE_BYTES = 64, 1 << 13
"""Upper bounds of the messages that are read at once, and of the length of a message."""
MAX_NAME = 64
# Linux, arch/x86/kernel/cpu/bus_lock.c, which logs each task once; drivers/edac/edac_mc.c.
_MESSAGES = {
    "split-lock": (r"split lock detection: #\w\w: (.+)/(\d+)(?: \(\w+\))? took a", r"\1[\2]"),
    "memory-errors": (r"EDAC MC\d+: \d+ CE .* on ([^\s(]+)", r"\1"),
}
"""By kind: the pattern of a message, and what it names."""


class KernelLog:
    """The messages since this object was made; none where the log may not be read."""

    def __init__(self, root: Path) -> None:
        self._fd = -1
        with suppress(OSError):
            self._fd = os.open(f"{root}/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    def record(self) -> list[list[str | int]]:
        """Returns what new messages name: the kind, the name, and how often it was named."""
        counts: dict[tuple[str, str], int] = {}
        for _ in range(MAX_MESSAGES if self._fd >= 0 else 0):
            try:
                text = os.read(self._fd, MAX_MESSAGE_BYTES)
            except BlockingIOError:
                break
            except OSError:  # the next messages were overwritten, or one is too long
                continue
            if not text:
                break
            for kind, (pattern, name) in _MESSAGES.items():
                for match in re.finditer(pattern, text.decode("ascii", "replace")):
                    key = kind, match.expand(name)[:MAX_NAME]
                    counts[key] = counts.get(key, 0) + 1
        return [[kind, name, count] for (kind, name), count in counts.items()]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
