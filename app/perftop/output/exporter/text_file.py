"""A file for the text-file collector of node_exporter. It is always whole, and removed at the end,
because the collector would tell its last numbers for ever."""

from __future__ import annotations

import contextlib
from pathlib import Path

from perftop.base import new_file
from perftop.base.errors import Failed, unwritten

MODE = 0o644
"""The collector runs as another user. Nothing in it is a secret."""


class TextFile:
    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise Failed(f"cannot write {path}: it is a directory; name a file in it, such as "
                         "perftop.prom")  # fmt: skip
        self._path, self._written = path, False

    def write(self, data: bytes) -> None:
        """Replaces the file in one step. Raises Failed."""
        try:
            new_file.replace(self._path, data, MODE)
        except OSError as error:
            raise unwritten(str(self._path), error) from None
        self._written = True

    def remove(self) -> None:
        if self._written:
            with contextlib.suppress(OSError):
                self._path.unlink()
