"""What is exported: a recording or a stream, of a file or a pipe, as far as it can be read."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from perfprobe import wire
from perftop.base.errors import DAMAGED, USAGE, Failed, complain
from perftop.recording.codec import Reader
from perftop.recording.file import GROWING
from perftop.recording.parts import recording

READ_BYTES = 1 << 18


class _File:
    """Damage costs a block of it."""

    def __init__(self, path: Path) -> None:
        self._recording = recording(path)
        self.hello, self.checked = self._recording.hello, self._recording.checked
        """`checked`: whether it has checksums everywhere."""
        self.size: int | None = self._recording.size
        """In bytes; None: not known."""
        self.growing = self._recording.growing
        self.damage: str | None = None
        """Why not all of it was read, if something was wrong with it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self._recording.__exit__(*args)

    @property
    def at(self) -> int:
        """Bytes that were read of it."""
        return self._recording.at

    def messages(self) -> Iterator[wire.Message]:
        """All messages after the hello, once."""
        try:
            yield from self._recording.messages()
        except OSError as error:
            self.damage = f"cannot be read behind byte {self.at}: {error.strerror or error}"
        else:
            self.damage = self._recording.damage


class _Pipe:
    """Where nobody can go on behind damage."""

    def __init__(self, name: str, file: io.BufferedReader) -> None:
        self.size: int | None = None
        self.damage: str | None = None
        self.growing = False  # it is read until its writer ends
        self._file = file
        self._reader, self.at = Reader(), 0
        self._messages = self._read()
        first = next(self._messages, None)
        if first is None:
            self._file.close()
            why = self.damage or "it ends before its start"
            raise Failed(f"{name} is no recording: {why}", DAMAGED)
        assert isinstance(first, wire.Hello)
        self.hello, self.checked = first, self._reader.decoder.checked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def messages(self) -> Iterator[wire.Message]:
        return self._messages

    def _read(self) -> Iterator[wire.Message]:
        try:
            while data := self._file.read1(READ_BYTES):
                for message in self._reader.feed(data):
                    self.at = self._reader.decoder.offset
                    yield message
        except wire.WireError as error:
            self.damage = f"damaged behind byte {self.at}: {error}"
        except OSError as error:
            self.damage = f"cannot be read behind byte {self.at}: {error.strerror or error}"
        else:
            if self._reader.decoder.cut:
                self.damage = f"cut behind byte {self.at}: the last message is not all there"
            elif not self._reader.ended:
                self.damage = f"cut behind byte {self.at}: it has no end"


Source = _File | _Pipe


def opened(path: Path | None) -> Source:
    """None: stdin. Raises Failed where there is nothing to read at all."""
    if path is None:
        return _Pipe("stdin", _stdin())
    try:
        return _File(path) if path.is_file() or path.is_dir() else _Pipe(str(path), path.open("rb"))
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror or error}") from None


def ended(name: object, source: Source) -> int:
    """Tells what is wrong with a source that was read, if something is, and whether it goes on;
    returns the exit status."""
    if source.growing:
        complain(f"{name}: {GROWING}")
    if source.damage is None:
        return 0
    complain(f"{name}: {source.damage}")
    return DAMAGED


def same(source: Path | None, path: Path) -> bool:
    """Whether what is read is the file there."""
    with contextlib.suppress(OSError):
        read = os.fstat(sys.stdin.fileno()) if source is None else source.stat()
        return os.path.samestat(read, path.stat())
    return False


def _stdin() -> io.BufferedReader:
    if sys.stdin is None or sys.stdin.isatty():
        raise Failed("stdin is no recording: perftop export FILE, or a pipe into it", USAGE)
    assert isinstance(sys.stdin.buffer, io.BufferedReader)
    return sys.stdin.buffer
