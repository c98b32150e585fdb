"""Writes messages as a recording, reads a recording, and indexes a recording in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from perfprobe import wire
from perftop.recording.file import Recording
from perftop.session.packing import Recorder, TimedMessage
from perftop.tui import recording_index


def write_recording(
    path: Path, hello: wire.Hello, messages: Sequence[TimedMessage], *, end: bool = True
) -> Path:
    with path.open("wb") as file:
        recorder = Recorder(file.write, hello)
        for message in messages:
            recorder.write([message])
        if end:
            recorder.end()
    return path


def read_messages(path: Path, *, ended: bool = True) -> list[TimedMessage]:
    """Returns all messages of an undamaged recording. It must have an end, or none if not
    `ended`."""
    with Recording(path) as recording:
        result = list(recording.messages())
        at = path.stat().st_size
        assert recording.damage == (None if ended else f"truncated at byte {at}: it has no end")
        return result


@contextmanager
def index_in_process(path: Path) -> Iterator[int]:
    """Yields a descriptor of the recording's index, which is made in this process instead of a
    child process. Replaces `recording_index._index_process`."""
    with TemporaryFile() as out:
        recording_index.write_index(path, out)
        out.seek(0)
        yield out.fileno()
