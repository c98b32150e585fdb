"""A recording that is a directory: parts, each a whole recording in a file of its own. A ring on
disk is one, and so is what was kept of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from perftop.base.errors import DAMAGED, Failed
from perftop.recording.codec import Timed
from perftop.recording.file import Recording

ENDING = ".part"
MOST = 4096
"""Parts that are opened."""


class Parts:
    """Read like a `Recording`, also where files are removed meanwhile. Raises Failed where there is
    nothing to read at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._passed = 0
        """Bytes of the parts before the one that is read."""
        self._lacking: list[str] = []
        with ExitStack() as stack:
            self._parts = [stack.enter_context(part) for part in self._opened()]
            self._files = stack.pop_all()
        self.hello = self._parts[0].hello
        self.checked = all(part.checked for part in self._parts)
        self.growing = any(part.growing for part in self._parts)
        self._reads = self._parts[0]

    def _opened(self) -> Iterator[Recording]:
        paths = sorted(self.path.glob(f"*{ENDING}"))[-MOST:]
        opened = 0
        for path in paths:
            try:
                part = Recording(path)
            except Failed as failed:
                if path.exists():  # a ring goes on, and drops its oldest part
                    self._lacking.append(str(failed))
            else:
                opened += 1
                yield part
        if not opened:
            why = self._lacking[0] if self._lacking else "it is a directory without parts"
            raise Failed(f"{self.path} is no recording: {why}", DAMAGED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def size(self) -> int:
        return sum(part.size for part in self._parts)

    @property
    def at(self) -> int:
        """Offset up to which it was read, in bytes of all parts."""
        return self._passed + self._reads.at

    @property
    def damage(self) -> str | None:
        """The first that was come upon; like that of a file it goes on after `the recording is`."""
        found = (f"{part.damage} ({part.path.name})" for part in self._parts if part.damage)
        return next(found, f"not whole: {self._lacking[0]}" if self._lacking else None)

    @property
    def first_ns(self) -> int:
        return self._parts[0].first_ns

    @property
    def last_ns(self) -> int:
        return max(part.last_ns for part in self._parts[-2:])

    def messages(self, time_ns: int = 0) -> Iterator[Timed]:
        """Messages from a moment on, as in `Recording.messages`."""
        begins = [part.first_ns for part in self._parts]
        first = max(0, bisect_right(begins, time_ns) - 1)
        self._passed = sum(part.size for part in self._parts[:first])
        for at, part in enumerate(self._parts[first:]):
            self._reads = part
            yield from part.messages(time_ns if at == 0 else 0)
            self._passed += part.size


AnyRecording = Recording | Parts


def recording(path: Path) -> AnyRecording:
    """A file, or a directory of parts. Raises Failed where there is nothing to read at all."""
    return Parts(path) if path.is_dir() else Recording(path)


def has_parts(path: Path) -> bool:
    return path.is_dir() and any(path.glob(f"*{ENDING}"))
