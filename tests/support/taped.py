"""Writes messages as a recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfprobe import wire
from perftop.recording.codec import Recorder, Timed


def written(path: Path, hello: wire.Hello, messages: Sequence[Timed], *, end: bool = True) -> Path:
    with path.open("wb") as file:
        recorder = Recorder(file.write, hello)
        for message in messages:
            recorder.write(message)
        if end:
            recorder.end()
    return path
