"""Episodes and marks of a whole recording, found by one pass over it, as in export.

The pass runs in a separate process, so that it does not delay the handling of keys. It writes notes
to its stdout, and the same bytes to a file in the user's cache, where the next replay of that
recording finds them. To run it: python -m perftop.recording.episode_index FILE
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import time
import types
import typing
from collections.abc import AsyncGenerator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import perfprobe
import perftop
from perfprobe import wire
from perftop.base import files
from perftop.base.errors import Failed
from perftop.base.files import OwnDirectory
from perftop.model import kinds
from perftop.model.kinds import Episode
from perftop.recording.file import AnyRecording, open_recording
from perftop.session.episodes import RecordingEpisodes
from perftop.session.session import Session

KIND, PROGRESS_KIND, COMPLETED_KIND = "episode", "progress", "complete"
"""Kinds of notes: an episode, the time up to which the recording was read, and the end of the
pass."""
PROGRESS_S = 0.2
"""Seconds between two progress notes."""
POLL_S = 0.05
"""Seconds between two reads of the output of the pass."""
CHUNK = 1 << 16
"""Bytes decoded at once: some hundred episodes, which take milliseconds."""
NICENESS = 10
FORMAT = "1"
"""Version of cache entries."""
MAX_BYTES = 1 << 26
"""Maximum size of a cache entry in bytes; a larger entry is not kept."""
MAX_ENTRIES = 64
"""Maximum number of cache entries; the newest are kept."""
FINGERPRINT_BYTES = 1 << 16
"""Number of bytes at the start and at the end of the recording (its hello and its index) that the
name of its cache entry depends on."""
_NAMES = re.compile(r"[0-9a-f]{40}|\.[0-9a-f]{40}\.[0-9a-z_]+")
"""Names of entries, and of unfinished entries."""
_EVIDENCE_TYPES: dict[str, type[Any]] = {
    name: cls for name, cls in vars(kinds).items() if getattr(cls, "__bases__", ()) == (tuple,)
}
"""Types of evidence, by name."""
_CONTAINER_TYPES: dict[str, type[Any]] = {"list": list, "tuple": tuple}
_CONFIDENCE = "measured", "inferred", "unknown"


async def fill_episodes(
    path: Path, hello: wire.Hello, episodes: RecordingEpisodes
) -> AsyncGenerator[None]:
    """Fills `episodes`, from the cache if it has this recording; yields whenever there are more.
    Raises Failed if not all episodes could be found."""
    cached_notes = await asyncio.to_thread(cached_index, path)
    if cached_notes is not None:
        with contextlib.suppress(wire.WireError):
            decoder = wire.Decoder(hello, checked=True)
            for start in range(0, len(cached_notes), CHUNK):
                add_episodes(decoder, cached_notes[start : start + CHUNK], episodes)
                yield
        if episodes.is_complete:
            return
        episodes.clear()
    with _index_process(path) as output_fd:
        decoder = wire.Decoder(hello, checked=True)
        try:
            while data := await _read_chunk(output_fd):
                add_episodes(decoder, data, episodes)
                yield
        except wire.WireError as error:
            raise Failed(f"episodes of the file are not listed: {error}") from None
    if not episodes.is_complete:
        raise Failed("episodes of the file are not all listed: the search for them has failed")


@contextlib.contextmanager
def _index_process(path: Path) -> Iterator[int]:
    """Starts the process; yields a descriptor of its output. The process is killed when the block
    is left."""
    # -P: a perftop/ in the working directory must not run with our rights.
    argv = sys.executable, "-P", "-m", __name__, os.path.abspath(path)  # noqa: PTH100
    devnull = subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=devnull, stdout=subprocess.PIPE, stderr=devnull) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield process.stdout.fileno()
        finally:
            process.kill()


async def _read_chunk(output_fd: int) -> bytes:
    """The next bytes; b"" at the end."""
    while True:
        try:
            return os.read(output_fd, CHUNK)
        except BlockingIOError:
            await asyncio.sleep(POLL_S)


def add_episodes(decoder: wire.Decoder, data: bytes, episodes: RecordingEpisodes) -> None:
    """Adds the episodes in these bytes. Raises WireError if the bytes are not from an index."""
    for message in decoder.feed(data):
        if not isinstance(message, wire.Note):
            raise wire.WireError("no note of an index")
        if message.kind == KIND:
            episodes.add(from_note(message))
        else:
            episodes.until_ns = message.time_ns
            episodes.is_complete = message.kind == COMPLETED_KIND


# --- the pass


def notes(recording: AnyRecording) -> Iterator[wire.Note]:
    """Yields notes of all episodes and marks in the order in which they were listed, with progress
    notes in between; episodes that are running at the end come last."""
    session, cursor = Session(recording.hello, summarises=False), 0
    last_mark: Episode | None = None
    due_s = time.monotonic() + PROGRESS_S
    for _ in session.parts(recording.messages()):
        ended_episodes, cursor = session.log.since(cursor)
        yield from map(to_note, ended_episodes)
        new_marks: list[Episode] = []
        for mark in reversed(session.marks):
            if mark is last_mark:
                break
            new_marks.insert(0, mark)
        yield from map(to_note, new_marks)
        last_mark = new_marks[-1] if new_marks else last_mark
        if time.monotonic() > due_s:
            due_s = time.monotonic() + PROGRESS_S
            yield wire.Note(PROGRESS_KIND, session.now_ns, "perftop")
    yield from map(to_note, session.running)
    yield wire.Note(COMPLETED_KIND, session.now_ns, "perftop")


def write_index(path: Path, output: BinaryIO) -> None:
    """Writes the notes to `output` and to the cache."""
    entry_name, encoded = cache_name(path), bytearray()
    with open_recording(path) as recording:
        for note in notes(recording):
            data = wire.encode(note)
            output.write(data)
            if len(encoded) <= MAX_BYTES:
                encoded += data
            if note.kind != KIND:
                output.flush()
    write_cache_entry(path, entry_name, encoded)


# --- the cache: an entry's name is a hash of everything that the entry depends on, so that it is
# never used for a changed file or by another version of perftop


def cache_directory() -> Path:
    return files.user_directory("CACHE", "~/.cache") / "perftop" / "episodes"


def cache_name(recording: Path) -> str | None:
    """Name of the recording's cache entry; None if the recording cannot be read, or is a
    directory."""
    try:
        status = recording.stat()
        size, changed_ns = str(status.st_size), str(status.st_mtime_ns)
        parts = [FORMAT, perfprobe.__version__, _code_time(), size, changed_ns]
        digest = hashlib.sha256("\n".join(parts).encode())
        with recording.open("rb") as file:
            digest.update(file.read(FINGERPRINT_BYTES))
            file.seek(max(0, status.st_size - FINGERPRINT_BYTES))
            digest.update(file.read(FINGERPRINT_BYTES))
    except OSError:
        return None
    return digest.hexdigest()[:40]


@cache
def _code_time() -> str:
    """Time of the last change of perftop's code, which finds the episodes: a checkout keeps its
    version number for a long time."""
    sources = Path(perftop.__path__[0]).rglob("*.py")
    return str(max((file.stat().st_mtime_ns for file in sources), default=0))


def cached_index(recording: Path) -> bytes | None:
    """Content of the recording's cache entry; None: there is no usable entry."""
    name = cache_name(recording)
    return None if name is None else files.read_own_file(cache_directory() / name, MAX_BYTES)


def write_cache_entry(recording: Path, entry_name: str | None, data: bytes | bytearray) -> None:
    """Adds a cache entry, unless the recording has changed since the name of its entry was
    `before`. It is no error if the cache cannot be written, or belongs to another user."""
    if entry_name is None or len(data) > MAX_BYTES or cache_name(recording) != entry_name:
        return
    with contextlib.suppress(OSError):
        path = cache_directory()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with OwnDirectory.open(path, make=True) as directory:
            files.replace_in(directory.fd, entry_name, data, 0o600)
            # Remove the oldest entries, and unfinished entries of processes that died.
            times = {name: status.st_mtime_ns for name, status in directory.files(_NAMES).items()}
            for name in sorted(times, key=times.__getitem__, reverse=True)[MAX_ENTRIES:]:
                directory.unlink(name)


# --- episodes as notes of the wire, so that they pass the same checks


def to_note(episode: Episode) -> wire.Note:
    data = {
        "kind": episode.kind,
        "cpus": [int(cpu) for cpu in episode.cpus],
        "end_ns": None if episode.end_ns is None else int(episode.end_ns),
        "depth": None if episode.depth is None else float(episode.depth),
        "cause": episode.cause,
        "evidence": {key: _to_plain(value) for key, value in episode.evidence.items()},
        "confidence": episode.confidence,
    }
    return wire.Note(KIND, int(episode.start_ns), "perftop", data)


def from_note(note: wire.Note) -> Episode:
    """The episode in a note. Raises WireError if the note is not one of an episode."""
    try:
        data = note.data
        episode = Episode(
            data["kind"], data["cpus"], note.time_ns, data["end_ns"], data["depth"], data["cause"],
            {key: _from_plain(value) for key, value in data["evidence"].items()},
            data["confidence"],
        )  # fmt: skip
        numbers = [*episode.cpus, *(() if episode.end_ns is None else (episode.end_ns,))]
        fits = (
            isinstance(episode.kind, str)
            and isinstance(episode.cause, str)
            and episode.confidence in _CONFIDENCE
            and (episode.depth is None or type(episode.depth) is float)
            and all(type(number) is int for number in numbers)
            and (episode.kind != "mark" or isinstance(episode.evidence.get("label"), str))
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise wire.WireError(f"a note of no episode ({error!r})") from None
    if not fits:
        raise wire.WireError("a note of no episode")
    return episode


def _to_plain(value: Any) -> Any:
    """The value with plain Python types: a tuple or list becomes a list that begins with the name
    of its type; numpy numbers become int or float."""
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(_to_plain, value)]
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _from_plain(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name, *parts = value
    values = [*map(_from_plain, parts)]
    if name in _CONTAINER_TYPES:
        return _CONTAINER_TYPES[name](values)
    cls = _EVIDENCE_TYPES[name]
    hints = typing.get_type_hints(cls)
    if len(values) != len(hints) or not all(map(_fits_type, values, hints.values())):
        raise ValueError(name)
    return cls(*values)


def _fits_type(value: Any, hint: Any) -> bool:
    """Whether a value fits a type hint of a field of evidence."""
    if typing.get_origin(hint) is tuple:
        return type(value) is tuple and all(isinstance(v, typing.get_args(hint)[0]) for v in value)
    if isinstance(hint, types.UnionType):
        return any(_fits_type(value, option) for option in typing.get_args(hint))
    return isinstance(value, int | float if hint is float else hint)


def main() -> None:
    os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError):
        write_index(Path(sys.argv[1]), sys.stdout.buffer)


if __name__ == "__main__":
    main()
