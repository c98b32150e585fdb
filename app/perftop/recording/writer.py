"""Writes recordings to files: directly, or in a thread for the screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import stat
import threading
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

from perfprobe import wire
from perftop.base import errors, files
from perftop.base.errors import USAGE, Failed
from perftop.base.text import long_duration
from perftop.session.packing import BLOCK_MESSAGES, Recorder, TimedMessage, write_all
from perftop.session.session import Session

MAX_WAITING_BYTES = 64_000_000
"""Maximum bytes of messages that wait for the disk: half a minute of the largest machines."""
MAX_UNPACKED_BYTES = 1 << 22
"""Maximum bytes of messages that wait to be packed."""
MAX_END_WAIT_S = 2.0
"""Seconds without progress on the disk after which the app exits even if messages are unwritten."""


def check_path(path: Path, *, force: bool) -> None:
    """Raises Failed if a recording cannot be started at this path. With `force`, an existing
    regular file can be replaced, but never a device or a link."""
    if path == Path("-"):
        text = "a recording must be a file: -o NAME; to write to a pipe: perfprobe stream"
        raise Failed(text, USAGE)
    try:
        status = path.lstat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise Failed(f"cannot record to {path}: {path.parent} is not a directory") from None
    except OSError as error:
        raise write_failure(path, error) from None
    else:
        if not stat.S_ISREG(status.st_mode):
            hint = (
                f"; name a file in it: -o {shlex.quote(str(path / 'run.perftop'))}"
                if path.is_dir()
                else ""
            )
            raise Failed(f"cannot record to {path}: it exists and is not a file{hint}")
        if not force:
            raise Failed(f"{path} already exists; --force replaces it")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise Failed(f"cannot record to {path}: {path.parent} is not writable")


class Writer:
    """Writes a recording. After it has raised Failed it writes nothing more; earlier messages are
    safe.

    Each message is written immediately in its form on the wire, so a sudden end loses at most the
    last one. When a block is complete, its messages are packed and replace these bytes. This takes
    far less CPU time than packing each message on arrival."""

    def __init__(
        self, path: Path, hello: wire.Hello, *, force: bool = False, directory: int | None = None
    ) -> None:
        """`directory`: descriptor of the directory that contains `path`; None: it is opened here.
        With `force`, the recording has a hidden name, and an existing file stays, until there are
        samples; with a command, until they are packed, because the command may fail to start."""
        if directory is None:
            check_path(path, force=force)
        self.path = path
        self.frames = 0
        self.is_open = True
        """Whether the recording has neither ended nor failed."""
        self.now_ns = hello.raw_ns
        """Raw time of the newest frame."""
        self._begin_ns = hello.raw_ns
        replaces = force and path.exists()
        self._hidden_name = f".{path.name}.{os.urandom(8).hex()}" if replaces else ""
        """Name of this file until it replaces another; '' if it has its final name."""
        self._has_command = bool(hello.command)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        parent = contextlib.nullcontext((directory, path.name))
        try:
            with files.open_parent(path) if directory is None else parent as (parent_fd, name):
                # only its owner may read it: it contains command lines of other users
                self._fd = os.open(
                    self._hidden_name or name, flags, files.PRIVATE_MODE, dir_fd=parent_fd
                )
            self._status = os.fstat(self._fd)
        except OSError as error:
            raise write_failure(path, error) from None
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `Recording` tests this lock
        self._waiting_messages: list[TimedMessage] = []
        """The unpacked messages, which are at the end of the file."""
        self._packed_bytes = self._waiting_bytes = 0
        """Bytes of the packed and of the unpacked part of the file."""
        self._pending_bytes = bytearray()
        """Packed bytes that are not in the file yet."""
        self._recorder = Recorder(self._pending_bytes.extend, hello)
        try:
            self._pack()
        except OSError as error:
            self.discard()
            raise write_failure(path, error) from None

    @property
    def byte_count(self) -> int:
        return self._packed_bytes + self._waiting_bytes

    @property
    def extent(self) -> str:
        """Duration, number of frames and size so far, as text."""
        # the times of samples vary slightly
        duration = long_duration(round(self.now_ns - self._begin_ns, -8))
        return f"{duration}, {self.frames} frames, {size_text(self.byte_count)}"

    def write(self, message: TimedMessage) -> None:
        self._check_file()
        data = wire.encode(message)
        self._write_or_fail(lambda: self._append(data))
        self._waiting_messages.append(message)
        self._waiting_bytes += len(data)
        is_block = len(self._waiting_messages) >= BLOCK_MESSAGES
        if is_block or self._waiting_bytes >= MAX_UNPACKED_BYTES:
            self._write_or_fail(self._pack)
        if isinstance(message, wire.Frame):
            if not self.frames:
                self._begin_ns = message.time_ns
            self.frames += 1
            self.now_ns = message.time_ns
            if not self._has_command:
                self._write_or_fail(self._replace_file)

    def end(self) -> None:
        self._check_file()
        self._write_or_fail(self._replace_file)
        self._write_or_fail(self._pack)
        self._recorder.end()
        self._write_or_fail(self._pack)
        self.is_open = False
        try:
            has_moved = not os.path.samestat(self._status, self.path.lstat())
        except OSError:
            has_moved = True
        if has_moved:
            self.path = Path(f"/proc/self/fd/{self._fd}").readlink()
        try:
            os.close(self._fd)
        except OSError as error:  # some file systems report a full disk only here
            raise Failed(f"{self.path} may be incomplete: {error.strerror}") from None

    def discard(self) -> None:
        """Removes the recording, instead of `end`. A file that it would have replaced stays."""
        os.close(self._fd)
        files.remove(self._current_path, self._status)

    @property
    def _current_path(self) -> Path:
        return self.path.with_name(self._hidden_name or self.path.name)

    def _check_file(self) -> None:
        """Raises Failed if the file was removed or shortened, so that it could not be read."""
        status = os.fstat(self._fd)
        if status.st_nlink == 0:
            text = f"{self.path} was removed while it was recorded: nothing was kept"
        elif status.st_size < self.byte_count:
            sizes = f"{size_text(status.st_size)} of {size_text(self.byte_count)}"
            text = f"{self.path} was emptied or cut while it was recorded: {sizes} are left"
        else:
            return
        self.is_open = False
        os.close(self._fd)
        raise Failed(text)

    def _replace_file(self) -> None:
        """Gives the file its final name, replacing an existing file. Raises OSError."""
        if self._hidden_name:
            with files.open_parent(self.path) as (parent_fd, name):
                os.rename(self._hidden_name, name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
            self._hidden_name = ""

    def _append(self, data: wire.Bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:
            self._replace_file()  # removing the old file and packing free space on a full disk
            self._pack()
            write_all(self._fd, data)

    def _pack(self) -> None:
        """Replaces the unpacked messages by packed ones. On OSError, restores the file if the disk
        permits."""
        self._recorder.write(self._waiting_messages)
        try:
            write_all(self._fd, self._pending_bytes, self._packed_bytes)
        except OSError:
            unpacked = b"".join(map(wire.encode, self._waiting_messages))
            with contextlib.suppress(OSError):
                write_all(self._fd, unpacked, self._packed_bytes)
            raise
        self._packed_bytes += len(self._pending_bytes)
        self._pending_bytes.clear()
        self._waiting_messages, self._waiting_bytes = [], 0
        os.ftruncate(self._fd, self._packed_bytes)
        os.lseek(self._fd, 0, os.SEEK_END)
        if self.frames:
            self._replace_file()

    def _write_or_fail(self, write: Callable[[], None]) -> None:
        """Calls `write`. If it fails, cuts the incomplete message off the file and raises
        Failed."""
        try:
            write()
        except OSError as error:
            self.is_open = False
            text = f"{self.extent} are saved in {self._current_path}"
            try:
                os.ftruncate(self._fd, self.byte_count)
                os.close(self._fd)
            except OSError:
                text += ", followed by a torn message"
            reason = error.strerror or str(error)
            raise Failed(f"recording has stopped: {reason}; {text}") from None


def size_text(count: int) -> str:
    """Formats a size in bytes: 940 kB, 3.4 MB, 1.20 GB."""
    if count < 10**6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e6:.1f} MB" if count < 10**9 else f"{count / 1e9:.2f} GB"


def write_failure(path: Path, error: OSError) -> Failed:
    return errors.failure_to(f"record to {path}", error)


class ScreenRecorder:
    """Records the stream that the screen shows, in a separate thread, so that a slow disk does not
    block the screen."""

    def __init__(self, session: Session, show_notice: Callable[[str], None]) -> None:
        """`show_notice`: called with a message when a recording starts, ends or fails."""
        self._session, self._show_notice = session, show_notice
        self._thread: _RecordingThread | None = None

    def add(self, message: wire.Message) -> None:
        """Records a message that the session has applied, if a recording is running."""
        if self._thread is not None and isinstance(message, wire.Frame | wire.Note):
            self._thread.put(message)

    def toggle(self) -> None:
        """Starts or stops recording."""
        thread = self._thread
        if thread is None or thread.failure:
            self._thread = thread = self._start_thread()
            self._show_notice(f"recording to {thread.path}")
        else:
            thread.put(None)

    @property
    def size_text(self) -> str | None:
        """The size of the recording; '' if it has failed; None if there is none."""
        thread = self._thread
        if thread is None:
            return None
        return "" if thread.failure else size_text(thread.byte_count)

    def report(self) -> None:
        """Reports once that the recording has failed or ended."""
        thread = self._thread
        if thread is not None and thread.failure and not thread.is_reported:
            thread.is_reported = True
            self._show_notice(thread.failure)
        elif thread is not None and not thread.failure and not thread.is_alive():
            self._thread = None
            self._show_notice(f"recorded {thread.extent}")

    def end(self) -> str:
        """Ends the recording when the app ends. Returns a message for the user, or ''."""
        thread, self._thread = self._thread, None
        if thread is None:
            return ""
        thread.put(None)
        while thread.is_alive():  # much of the history may still be unwritten
            written_bytes = thread.byte_count
            thread.join(MAX_END_WAIT_S)
            if thread.is_alive() and thread.byte_count == written_bytes:
                return f"{thread.path} may be incomplete: the disk does not respond"
        return thread.failure or f"recorded {thread.extent}"

    def _start_thread(self) -> _RecordingThread:
        hello, history = self._session.hello, self._session.past
        history_messages = history.frames(0, self._session.now_ns)
        # the hello message has the CPUs' state at its own time, so earlier hotplug notes are needed
        # too
        before_ns = history.first_ns or 0
        earlier_notes = [note for note in self._session.hotplugs if note.time_ns < before_ns]
        path = recording_name(hello, self._session.unix_s(self._session.now_ns))
        with contextlib.suppress(OSError):  # if there is no directory, opening the file will fail
            path = Path.cwd() / path
        thread = _RecordingThread(path, hello, chain(earlier_notes, history_messages))
        thread.start()
        return thread


class _RecordingThread(threading.Thread):
    """Writes the earlier messages, and then those passed to `put`."""

    def __init__(
        self, path: Path, hello: wire.Hello, earlier_messages: Iterable[TimedMessage]
    ) -> None:
        super().__init__(name="recording", daemon=True)
        self.path = path
        self.failure = ""
        """Why the recording has failed; '' if it has not."""
        self.is_reported = False
        """Whether the failure has been reported."""
        self._hello, self._earlier_messages = hello, earlier_messages
        self._writer: Writer | None = None
        self._queue: SimpleQueue[TimedMessage | None] = SimpleQueue()
        self._room = MAX_WAITING_BYTES // (1000 + wire.frame_bytes(hello))

    @property
    def byte_count(self) -> int:
        return self._writer.byte_count if self._writer is not None else 0

    @property
    def extent(self) -> str:
        return f"{self._writer.extent} in {self.path}" if self._writer is not None else ""

    def put(self, message: TimedMessage | None) -> None:
        """Queues a message; None ends the recording."""
        if self.failure:
            return
        if message is not None and self._queue.qsize() >= self._room:
            self.failure, message = "recording has stopped: the disk accepts no more data", None
        self._queue.put(message)

    def run(self) -> None:
        try:
            self._writer = writer = Writer(self.path, self._hello)
            messages: Iterable[TimedMessage] = chain(
                self._earlier_messages, iter(self._queue.get, None)
            )
            for message in messages:
                writer.write(message)
            writer.end()
        except Failed as failed:
            self.failure = str(failed)
        except Exception as error:  # noqa: BLE001 - no mistake of ours may reach the screen
            self.failure = f"recording has stopped: {errors.save_traceback(error)}"


def recording_name(hello: wire.Hello, unix: float) -> Path:
    """Returns a file name made from the stream's host, which is untrusted text, and the time."""
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", hello.host)[:64].strip("-") or "host"
    return Path(f"{host}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(unix))}.perftop")
