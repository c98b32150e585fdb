"""Reads recordings: files, which can be read from any moment on, directories of files, and pipes.
Damage costs only the damaged part, and is reported by `damage`. Opening a recording raises Failed
only if nothing in it can be read."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import sys
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

from perfprobe import wire
from perftop.base.errors import DAMAGED, USAGE, Failed, failure_to, print_error
from perftop.base.text import count_noun
from perftop.session.packing import BLOCK_MESSAGES, INDEX_KIND, Reader, TimedMessage, Unpacker

WINDOW_BYTES = 1 << 18
"""Bytes of a file that are read at once."""
READ_BYTES = 1 << 18
"""Maximum bytes of a pipe that are read at once."""
PREFIX_BYTES = 64
"""Bytes at the start of a message that contain its kind and its time."""
FRAME_START = b"\x88\xa4type\xa5frame"
"""First bytes, after its length, of a frame that is not packed."""
BLOCK_START = re.compile(
    FRAME_START + rb"|\x85\xa4type\xa6packed\xa7time_ns.{1,9}\xa5first\xc3", re.DOTALL
)
"""First bytes, after the length, of a message that can be read without earlier messages."""
TAIL_BYTES = 32
"""Bytes at the end of an index that contain its offset and its checksum."""
UNFINISHED_SUFFIX = ".part"
MAX_PARTS = 4096
"""Maximum number of parts of a directory that are opened, the newest ones."""
UNCHECKED_NOTICE = "not checked for damage: an older version wrote it, without checksums"
BEING_WRITTEN_NOTICE = "still being written: read as it was when opened"
_LENGTH_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""Size in bytes of the length of a message, by the first byte of the message."""


class _Closable:
    _file: BinaryIO | io.BufferedReader | ExitStack
    """The open file, or files, of a recording."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class Recording(_Closable):
    """A recording in a file."""

    _file: BinaryIO

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path == Path("-") or path.is_fifo():  # opening a pipe might block
                raise Failed(f"cannot replay {path}: it is a pipe; perftop export reads pipes")
            self._file = path.open("rb")
        except OSError as error:
            raise failure_to(f"read {path}", error) from None
        # read before `size`, because the writer may end in between
        self.is_growing = _is_locked(self._file)
        """Whether the file was being written when it was opened; if so, it has no end yet."""
        self.size = os.fstat(self._file.fileno()).st_size
        """Size in bytes when the file was opened."""
        self._window, self.offset = b"", 0
        """The bytes read last, and their offset in the file."""
        self._damages: dict[int, str] = {}
        """Descriptions of damage (skipped parts, a missing end), by offset."""
        decoder = wire.Decoder()
        try:
            self.hello = self._read_hello(decoder)
            self.checked = decoder.checked
            """Whether the hello had a checksum; if so, all messages must have one."""
            self._first_offset = decoder.offset
            self._blocks = self._read_index() or self._scan_blocks()
        except OSError as error:
            self._file.close()
            raise failure_to(f"read {path}", error) from None
        except Failed:
            self._file.close()
            raise

    @property
    def damage(self) -> str | None:
        """Description of the first damage found, and the number of other places; None: no
        damage."""
        if not self._damages:
            return None
        other_count = len(self._damages) - 1
        first = self._damages[min(self._damages)]
        return f"{first}; and in {count_noun(other_count, 'more place')}" if other_count else first

    @property
    def first_ns(self) -> int:
        return self._blocks[1] if self._blocks else self.hello.raw_ns

    @property
    def last_ns(self) -> int:
        """Time of the last message that can be read."""
        for offset in reversed(self._blocks[::2]):
            times = [message.time_ns for message in self._messages_until_damage(offset)]
            if times:
                return max(times)
        return self.hello.raw_ns

    def messages(self, time_ns: int = 0) -> Iterator[TimedMessage]:
        """Yields messages, from the block that contains this time, or the one before it. After
        damage, the rest of the block is skipped."""
        block = bisect_right(self._blocks[1::2], time_ns) - 1
        offset: int | None = self._blocks[2 * max(block, 0)] if self._blocks else self._first_offset
        while offset is not None:
            offset = yield from self._messages_until_damage(offset)

    def _messages_until_damage(self, offset: int) -> Generator[TimedMessage, None, int | None]:
        """Yields messages from the block at this offset to the first damage or the end. Returns the
        offset of the next intact block; None if there is none."""
        unpacker, decoder = Unpacker(self.hello), self._decoder()
        damage: wire.WireError | OSError | None = None
        has_end, newest_ns = False, -1
        while not has_end:
            run, offsets, failed_message = list[wire.Packed](), list[int](), None
            try:
                while failed_message is None and len(run) < BLOCK_MESSAGES:
                    if (length := self._message_length(offset)) is None:
                        has_end = True
                        break
                    data = self._bytes(offset, length)
                    message = decoder.decode(data[1 + _LENGTH_BYTES[data[0]] :])
                    if isinstance(message, wire.Packed):
                        run.append(message)
                        offsets.append(offset)
                    else:
                        failed_message = message
                    offset += length
            except (wire.WireError, OSError) as error:
                damage, has_end = error, True
            try:
                for message_of_run in unpacker.messages(run):
                    del offsets[0]
                    yield message_of_run
                    newest_ns = message_of_run.time_ns
            except wire.WireError as error:
                damage, failed_message, has_end, offset = error, None, True, offsets[0]
            if isinstance(failed_message, wire.Frame) or (
                isinstance(failed_message, wire.Note) and failed_message.kind != INDEX_KIND
            ):
                yield failed_message
                newest_ns = failed_message.time_ns
        if isinstance(damage, wire.WireError):
            if self.is_growing and self._blocks and offset >= self._blocks[-2]:
                return None  # this block was packed after the file was opened
            self._damages[offset] = f"damaged at byte {offset}: {damage}"
            offsets_of_blocks = self._blocks[::2]
            later_blocks = range(bisect_right(offsets_of_blocks, offset), len(offsets_of_blocks))
            return next(
                (self._blocks[2 * i] for i in later_blocks if self._blocks[2 * i + 1] > newest_ns),
                None,
            )
        if damage is not None:
            self._damages[offset] = f"unreadable after byte {offset}: {damage.strerror or damage}"
        return None

    def _decoder(self) -> wire.Decoder:
        return wire.Decoder(self.hello, checked=self.checked)

    # --- positions of messages

    def _read_hello(self, decoder: wire.Decoder) -> wire.Hello:
        offset = 0
        try:
            while (data := self._bytes(offset, WINDOW_BYTES)) and offset <= wire.MAX_MESSAGE:
                for message in decoder.feed(data):
                    assert isinstance(message, wire.Hello)
                    return message
                offset += len(data)
        except wire.WireError as error:
            raise _start_failure(self.path, error, self._bytes(0, WINDOW_BYTES)) from None
        raise _start_failure(self.path, None, self._bytes(0, WINDOW_BYTES))

    def _message_length(self, offset: int) -> int | None:
        """Returns the length of the message at this offset; None if there is no complete
        message."""
        # the file may have grown beyond `size`
        head = self._bytes(offset, 5) if offset < self.size else b""
        width = _LENGTH_BYTES.get(head[0]) if head else 0
        if width is None:
            raise wire.WireError("not a message")
        length = 1 + width + int.from_bytes(head[1 : 1 + width], "big")
        if offset + length <= self.size and head:
            return length
        if head and not self.is_growing:
            self._damages[offset] = f"truncated at byte {offset}: the last message is incomplete"
        return None

    def _bytes(self, offset: int, count: int) -> bytes:
        if not self.offset <= offset or offset + count > self.offset + len(self._window):
            self._file.seek(offset)
            self._window, self.offset = self._file.read(max(WINDOW_BYTES, count)), offset
        start = offset - self.offset
        return self._window[start : start + count]

    def _read_index(self) -> array[int] | None:
        """Returns the offset and the first time of each block, from the index at the end of the
        file; None if there is no index or if it is damaged."""
        index_tail = wire.without_check(self._bytes(max(0, self.size - TAIL_BYTES), TAIL_BYTES))
        offset = int.from_bytes(index_tail[-8:], "little")
        if not self._first_offset <= offset < self.size:
            return None
        decoder = self._decoder()
        try:
            messages = list(decoder.feed(self._bytes(offset, self.size - offset)))
        except wire.WireError:
            return None
        note = messages[0] if len(messages) == 1 and not decoder.cut_byte_count else None
        if not isinstance(note, wire.Note) or note.kind != INDEX_KIND:
            return None
        blocks, data = array("Q"), note.data.get("blocks")
        if isinstance(data, bytes) and len(data) % 16 == 0:
            blocks.frombytes(data)
            if self._is_valid_index(blocks, offset):
                return blocks
        self._damages[offset] = f"damaged at byte {offset}: its index does not match"
        return None

    def _is_valid_index(self, blocks: array[int], end: int) -> bool:
        """Returns whether the index begins with the first block and all its offsets are starts of
        blocks."""
        previous_offset = self._first_offset - 1
        for offset, time_ns in zip(blocks[::2], blocks[1::2], strict=True):
            if not previous_offset < offset < end:
                return False
            fields = _message_fields(os.pread(self._file.fileno(), PREFIX_BYTES, offset))
            needs_no_other = fields.get("type") == "frame" or fields.get("first") is True
            if not needs_no_other or _time_ns(fields) != time_ns:
                return False
            previous_offset = offset
        return (blocks[0] if blocks else end) == self._first_offset

    def _scan_blocks(self) -> array[int]:
        """Returns the offset and the first time of each block, from a scan of the file. A missing
        end is damage.

        The messages of the last block may not be packed yet. In a file that is being written they
        will be packed in place, so only the start of the block is certain. If the writer was killed
        while it packed them, packed messages are followed by the unpacked ones not yet overwritten.
        """
        blocks, offset, last = array("Q"), self._first_offset, b""
        newest_ns = last_ns = -1
        """Time of the newest message certain to be complete, and of the message after it."""
        while True:
            try:
                while (length := self._message_length(offset)) is not None:
                    last = self._bytes(offset, min(length, PREFIX_BYTES))
                    fields = _message_fields(last)
                    newest_ns, last_ns = max(newest_ns, last_ns), _time_ns(fields)
                    if fields.get("first") is True and last_ns >= 0:
                        blocks.extend((offset, last_ns))
                    elif fields.get("type") == "frame" and last_ns > newest_ns:
                        if not self.is_growing:
                            blocks.extend((offset, last_ns))
                        elif not blocks:
                            blocks.extend((self._first_offset, last_ns))
                    offset += length
            except wire.WireError as error:
                self._damages[offset] = f"damaged at byte {offset}: {error}"
                last_ns = -1
                if (next_at := self._next_block(offset)) is None:
                    return blocks
                offset = next_at
            else:
                break
        fields = _message_fields(last)
        has_end = fields.get("type") == "bye" or fields.get("kind") == INDEX_KIND
        if offset == self.size and not has_end and not self.is_growing:
            self._damages[offset] = f"truncated at byte {offset}: it has no end"
        return blocks

    def _next_block(self, offset: int) -> int | None:
        """Returns the offset of the next message that can be read without earlier ones, if any."""
        while len(data := self._bytes(offset, WINDOW_BYTES)) > PREFIX_BYTES:
            match = BLOCK_START.search(data, PREFIX_BYTES)
            start = match.start() if match is not None else len(data) - PREFIX_BYTES
            for first, width in _LENGTH_BYTES.items():
                head = start - 1 - width
                # a byte of the length can look like the start of a message with a shorter one
                if match is not None and data[head] == first and self._is_intact(offset + head):
                    return offset + head
            offset += start
        return None

    def _is_intact(self, offset: int) -> bool:
        """Returns whether an intact message begins at this offset, which is that of a head."""
        head = self._bytes(offset, 5)
        begin = 1 + _LENGTH_BYTES[head[0]]
        length = int.from_bytes(head[1:begin], "big")
        if offset + begin + length > self.size:  # these bytes may not be a head
            return False
        try:
            self._decoder().decode(self._bytes(offset + begin, length))
        except wire.WireError:
            return False
        return True


def _is_locked(file: BinaryIO) -> bool:
    """Returns whether a writer holds its lock on the file. The kernel releases it however the
    writer ends. The shared lock taken here does not disturb a writer, which locks only a file that
    it created."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # not every file system has locks
        return False
    return False


def _start_failure(name: object, reason: wire.WireError | None, start: bytes) -> Failed:
    """Returns the failure for a file whose first message, the hello, cannot be decoded (`reason`)
    or is incomplete (None). `start`: the first bytes of the file."""
    text = f"cannot read {name}: {reason}"
    if BLOCK_START.search(start) and not isinstance(reason, wire.VersionError):
        text = f"cannot read {name}: its first message, which describes all samples, is damaged"
    elif reason is None:
        problem = "ends before its first sample" if start else "is empty"
        text = f"{name} {problem}: nothing was recorded in it"
    elif isinstance(reason, wire.ForeignDataError):
        text = f"{name} is not a perftop recording; perftop record -o FILE makes one"
    return Failed(text, DAMAGED)


def _message_fields(prefix: bytes) -> dict[str, object]:
    """Returns those fields of a message that are in its first bytes."""
    width = _LENGTH_BYTES.get(prefix[0]) if prefix else None
    return {} if width is None else wire.first_fields(prefix, 1 + width)


def _time_ns(fields: Mapping[str, object]) -> int:
    """Returns the time of a message; -1 if it has none."""
    time_ns = fields.get("time_ns")
    return time_ns if isinstance(time_ns, int) and 0 <= time_ns < 1 << 63 else -1


class RecordingDirectory(_Closable):
    """A recording in a directory of parts, each a complete recording in a file. A ring on disk is
    such a directory, and so is a recording kept from it. Parts may be removed while it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes_before = 0
        """Size in bytes of all parts before the current one."""
        self._failures: list[str] = []
        """Error messages of parts that could not be opened."""
        with ExitStack() as stack:
            self._parts = [stack.enter_context(part) for part in self._open_parts()]
            self._file = stack.pop_all()
        self.hello = self._parts[0].hello
        self.checked = all(part.checked for part in self._parts)
        self.is_growing = any(part.is_growing for part in self._parts)
        self._current_part = self._parts[0]

    def _open_parts(self) -> Iterator[Recording]:
        count = 0
        parts = self.path.glob(f"*{UNFINISHED_SUFFIX}")  # more digits mean a later part
        for path in sorted(parts, key=lambda path: (len(path.name), path.name))[-MAX_PARTS:]:
            try:
                part = Recording(path)
            except Failed as failed:
                if path.exists():  # otherwise a running ring has just removed the part
                    self._failures.append(str(failed))
            else:
                count += 1
                yield part
        if not count:
            reason = self._failures[0] if self._failures else "it is a directory; name a file in it"
            raise Failed(f"{self.path} is not a perftop recording: {reason}", DAMAGED)

    @property
    def size(self) -> int:
        return sum(part.size for part in self._parts)

    @property
    def offset(self) -> int:
        """Number of bytes read so far, over all parts."""
        return self._bytes_before + self._current_part.offset

    @property
    def damage(self) -> str | None:
        """Description of the damage to the first damaged part; None: no damage."""
        damages = (f"{part.damage} ({part.path.name})" for part in self._parts if part.damage)
        return next(damages, f"not whole: {self._failures[0]}" if self._failures else None)

    @property
    def first_ns(self) -> int:
        return self._parts[0].first_ns

    @property
    def last_ns(self) -> int:
        return max(part.last_ns for part in self._parts[-2:])

    def messages(self, time_ns: int = 0) -> Iterator[TimedMessage]:
        first_times_ns = [part.first_ns for part in self._parts]
        first = max(0, bisect_right(first_times_ns, time_ns) - 1)
        self._bytes_before = sum(part.size for part in self._parts[:first])
        for index, part in enumerate(self._parts[first:]):
            self._current_part = part
            yield from part.messages(time_ns if index == 0 else 0)
            self._bytes_before += part.size


AnyRecording = Recording | RecordingDirectory


def open_recording(path: Path) -> AnyRecording:
    """Opens the recording in a file or directory. Raises Failed if there is nothing to read."""
    return RecordingDirectory(path) if path.is_dir() else Recording(path)


def has_parts(path: Path) -> bool:
    return path.is_dir() and any(path.glob(f"*{UNFINISHED_SUFFIX}"))


class PipedRecording(_Closable):
    """A recording or a stream in a pipe, which is read once, up to the first damage."""

    _file: io.BufferedReader

    def __init__(self, name: str, file: io.BufferedReader) -> None:
        self.size: int | None = None
        """Unknown for a pipe."""
        self.damage: str | None = None
        """Why the pipe could not be read to its end; None if it was read completely."""
        self.is_growing = False  # reading ends only when the writer does
        self._file = file
        self._reader, self.offset = Reader(), 0
        self._messages = self._read_messages(name)
        try:
            first = next(self._messages)
        except Failed:
            self._file.close()
            raise
        assert isinstance(first, wire.Hello)
        self.hello, self.checked = first, self._reader.decoder.checked

    def messages(self) -> Iterator[wire.Message]:
        """Returns the messages after the hello. They can be read only once."""
        return self._messages

    def _read_messages(self, name: str) -> Iterator[wire.Message]:
        """Yields all messages. Raises Failed if there is none."""
        start = b""
        try:
            while data := self._file.read1(READ_BYTES):
                start = start or data
                for message in self._reader.feed(data):
                    self.offset = self._reader.decoder.offset
                    yield message
        except wire.WireError as error:
            if not self.offset:
                raise _start_failure(name, error, start) from None
            self.damage = f"damaged after byte {self.offset}: {error}"
        except OSError as error:
            if not self.offset:
                raise failure_to(f"read {name}", error) from None
            self.damage = f"unreadable after byte {self.offset}: {error.strerror or error}"
        else:
            if not self.offset:
                raise _start_failure(name, None, start)
            if self._reader.decoder.cut_byte_count:
                self.damage = f"truncated after byte {self.offset}: the last message is incomplete"
            elif not self._reader.has_end:
                self.damage = f"truncated after byte {self.offset}: it has no end"


RecordingSource = AnyRecording | PipedRecording


STDIN = Path("-")
"""The argument that means stdin."""


def open_source(path: Path) -> RecordingSource:
    """Opens the recording or stream in a file, a directory or a pipe. Raises Failed if there is
    nothing to read."""
    if path == STDIN:
        if sys.stdin is None or sys.stdin.isatty():
            raise Failed("no recording on stdin: name a file, or pipe a recording into it", USAGE)
        assert isinstance(sys.stdin.buffer, io.BufferedReader)
        return PipedRecording("stdin", sys.stdin.buffer)
    try:
        if path.is_file() or path.is_dir():
            return open_recording(path)
        return PipedRecording(str(path), path.open("rb"))
    except OSError as error:
        raise failure_to(f"read {path}", error) from None


def damage_suffix(source: RecordingSource) -> str:
    """Returns a colon and the damage found so far, for the end of a message; '' if there is no
    damage."""
    return f": {source.damage}" if source.damage else ""


def report_damage(name: object, source: RecordingSource) -> int:
    """Prints whether the source is still being written and its damage, if any. Returns the exit
    status."""
    name = "stdin" if name == STDIN else name
    if source.is_growing:
        print_error(f"{name}: {BEING_WRITTEN_NOTICE}")
    if source.damage is None:
        return 0
    print_error(f"{name}: {source.damage}")
    return DAMAGED


def check_output_path(source: Path, output: Path) -> None:
    """Raises Failed if the output is the recording that is read, which would be overwritten."""
    with contextlib.suppress(OSError):
        source_status = os.fstat(sys.stdin.fileno()) if source == STDIN else source.stat()
        if os.path.samestat(source_status, output.stat()):
            raise Failed(f"{output} is the input: it cannot be the output as well", USAGE)
