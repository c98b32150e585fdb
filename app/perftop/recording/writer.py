"""Writes a recording to a file of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from perfprobe import wire
from perftop.base import files
from perftop.base.errors import USAGE, Failed
from perftop.base.errors import cannot as cannot_do
from perftop.base.times import length
from perftop.recording.codec import Recorder, Timed, write_all


def refuse(path: Path, *, force: bool) -> None:
    """Raises Failed where a recording cannot begin; called before there is anything to record.
    Only a file is ever replaced, never a device or a link."""
    if path == Path("-"):
        text = "a recording is a file: -o NAME; a pipe is written by perfprobe stream"
        raise Failed(text, USAGE)
    try:
        found = path.lstat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise Failed(f"cannot record to {path}: {path.parent} is no directory") from None
    except OSError as error:
        raise cannot(path, error) from None
    else:
        if not stat.S_ISREG(found.st_mode):
            raise Failed(f"cannot record to {path}: it exists and is not a file")
        if not force:
            raise Failed(f"{path} exists already; --force replaces it")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise Failed(f"cannot record to {path}: {path.parent} is not writable")


class Writer:
    """Once it has raised Failed nothing more is written, and what was written is safe."""

    def __init__(
        self, path: Path, hello: wire.Hello, *, force: bool = False, directory: int | None = None
    ) -> None:
        """`directory`: a descriptor of the one that holds `path`; None: it is looked up."""
        if directory is None:
            refuse(path, force=force)
        self.path = path
        self.frames = 0
        self.open = True
        """Whether it has neither ended nor failed."""
        self.now_ns = hello.raw_ns
        """Raw time of the newest frame."""
        self._begin_ns = hello.raw_ns
        try:
            if directory is None:
                with files.parent(path) as (above, name):
                    self._fd = _created(above, name, force=force)
            else:
                self._fd = _created(directory, path.name, force=force)
            self._made = os.fstat(self._fd)
        except OSError as error:
            raise cannot(path, error) from None
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `Recording` checks for it
        try:
            self._recorder = Recorder(partial(write_all, self._fd), hello)
        except OSError as error:
            os.close(self._fd)
            self.drop()
            raise cannot(path, error) from None

    @property
    def bytes(self) -> int:
        return self._recorder.bytes

    @property
    def told(self) -> str:
        """How much it is by now."""
        lasted = length(round(self.now_ns - self._begin_ns, -8))  # samples are never quite on time
        return f"{lasted}, {self.frames} frames, {size(self.bytes)}"

    def write(self, message: Timed) -> None:
        if os.fstat(self._fd).st_nlink == 0:  # nobody could ever read it
            self.open = False
            os.close(self._fd)
            raise Failed(f"{self.path} was removed while it was recorded: nothing was kept")
        self._try(lambda: self._recorder.write(message))
        if isinstance(message, wire.Frame):
            if not self.frames:
                self._begin_ns = message.time_ns
            self.frames += 1
            self.now_ns = message.time_ns

    def end(self) -> None:
        self._try(self._recorder.end)
        self.open = False
        try:
            os.close(self._fd)
        except OSError as error:  # some file systems only now report that they are full
            raise Failed(f"{self.path} may not be whole: {error.strerror}") from None

    def drop(self) -> None:
        """Removes the file."""
        files.remove(self.path, self._made)

    def _try(self, write: Callable[[], None]) -> None:
        """Cuts off what was written of the last message if this one fails."""
        try:
            write()
        except OSError as error:
            self.open = False
            text = f"{self.told} are safe in {self.path}"
            try:
                os.ftruncate(self._fd, self.bytes)
                os.close(self._fd)
            except OSError:
                text += ", followed by a torn message"
            why = error.strerror or str(error)
            raise Failed(f"cannot go on recording: {why}; {text}") from None


def _created(directory: int, name: str, *, force: bool) -> int:
    """Only its owner may read it, as it has command lines of other users."""
    if force:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(name, flags, files.MODE, dir_fd=directory)


def size(count: int) -> str:
    """Size of a file as text: 940 kB, 3.4 MB, 1.20 GB."""
    if count < 10**6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e6:.1f} MB" if count < 10**9 else f"{count / 1e9:.2f} GB"


def cannot(path: Path, error: OSError) -> Failed:
    return cannot_do(f"record to {path}", error)
