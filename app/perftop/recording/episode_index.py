"""Episodes and marks of a whole recording: found by one pass over it, as export finds them.

The pass is a process of its own, so that it disturbs no key. It writes notes to its stdout, and the
same bytes to a file in the user's cache, where the next replay of that recording finds them. As a
program: python -m perftop.recording.episode_index FILE
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
import types
import typing
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from perfprobe import wire
from perftop.base.errors import Failed
from perftop.model import episode as evidence
from perftop.model.episode import Episode
from perftop.recording import index_cache
from perftop.recording.parts import AnyRecording
from perftop.recording.parts import recording as opened
from perftop.session.episodes import RecordingEpisodes
from perftop.session.session import Session

KIND, PROGRESS, COMPLETE = "episode", "progress", "complete"
"""Kinds of notes: an episode, how far the pass has come, and that it is at the end."""
EVERY_S = 0.2
"""Seconds between two notes of progress."""
LOOK_S = 0.05
"""Seconds between two looks for more."""
CHUNK = 1 << 16
"""Bytes taken at once: some hundred episodes, which is a matter of milliseconds."""
NICENESS = 10
_TYPES: dict[str, type[Any]] = {
    name: cls for name, cls in vars(evidence).items() if getattr(cls, "__bases__", ()) == (tuple,)
}
"""All of them, by name."""
_PLAIN: dict[str, type[Any]] = {"list": list, "tuple": tuple}
_CONFIDENCE = "measured", "inferred", "unknown"


async def follow(path: Path, hello: wire.Hello, found: RecordingEpisodes) -> AsyncGenerator[None]:
    """Fills `found`, from the cache if that has this recording; yields whenever there is more.
    Raises Failed if not all could be found."""
    cached = await asyncio.to_thread(index_cache.read, path)
    if cached is not None:
        with contextlib.suppress(wire.WireError):
            decoder = wire.Decoder(hello, checked=True)
            for start in range(0, len(cached), CHUNK):
                take(decoder, cached[start : start + CHUNK], found)
                yield
        if found.complete:
            return
        found.clear()
    with _pass(path) as out:
        decoder = wire.Decoder(hello, checked=True)
        try:
            while data := await _read(out):
                take(decoder, data, found)
                yield
        except wire.WireError as error:
            raise Failed(f"episodes of the file are not listed: {error}") from None
    if not found.complete:
        raise Failed("episodes of the file are not all listed: looking for them has failed")


@contextlib.contextmanager
def _pass(path: Path) -> Iterator[int]:
    """Output of the process, a descriptor. The process is ended if it is not wanted any more."""
    # -P: a perftop/ in the working directory must not run with our rights.
    argv = sys.executable, "-P", "-m", __name__, os.path.abspath(path)  # noqa: PTH100
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield process.stdout.fileno()
        finally:
            process.kill()


async def _read(out: int) -> bytes:
    """b"": that was all."""
    while True:
        try:
            return os.read(out, CHUNK)
        except BlockingIOError:
            await asyncio.sleep(LOOK_S)


def take(decoder: wire.Decoder, data: bytes, found: RecordingEpisodes) -> None:
    """Raises WireError if these are no bytes of an index."""
    for message in decoder.feed(data):
        if not isinstance(message, wire.Note):
            raise wire.WireError("no note of an index")
        if message.kind == KIND:
            found.add(episode(message))
        else:
            found.until_ns = message.time_ns
            found.complete = message.kind == COMPLETE


# --- the pass


def notes(recording: AnyRecording) -> Iterator[wire.Note]:
    """All episodes and marks in the order in which they were listed, those that run at the end
    last; in between how far it has come."""
    session, cursor = Session(recording.hello), 0
    mark = None
    due_s = time.monotonic() + EVERY_S
    for _ in session.play(recording.messages()):
        ended, cursor = session.episodes_since(cursor)
        yield from map(note, ended)
        if session.marks and session.marks[-1] is not mark:
            mark = session.marks[-1]
            yield note(mark)
        if time.monotonic() > due_s:
            due_s = time.monotonic() + EVERY_S
            yield wire.Note(PROGRESS, session.now_ns, "perftop")
    yield from map(note, session.running)
    yield wire.Note(COMPLETE, session.now_ns, "perftop")


def run(path: Path, out: BinaryIO) -> None:
    """Writes the notes, and keeps them for the next time if there is a place for them."""
    before, kept = index_cache.name(path), bytearray()
    with opened(path) as recording:
        for found in notes(recording):
            data = wire.encode(found)
            out.write(data)
            if len(kept) <= index_cache.MAX_BYTES:
                kept += data
            if found.kind != KIND:
                out.flush()
    index_cache.keep(path, before, kept)


# --- episodes as notes of the wire, so that its checks hold for them too


def note(episode: Episode) -> wire.Note:
    data = {
        "kind": episode.kind,
        "cpus": [int(cpu) for cpu in episode.cpus],
        "end_ns": None if episode.end_ns is None else int(episode.end_ns),
        "depth": None if episode.depth is None else float(episode.depth),
        "cause": episode.cause,
        "evidence": {key: _packed(value) for key, value in episode.evidence.items()},
        "confidence": episode.confidence,
    }
    return wire.Note(KIND, int(episode.start_ns), "perftop", data)


def episode(note: wire.Note) -> Episode:
    """Raises WireError if the note is none of an episode."""
    try:
        data = note.data
        made = Episode(
            data["kind"], data["cpus"], note.time_ns, data["end_ns"], data["depth"], data["cause"],
            {key: _unpacked(value) for key, value in data["evidence"].items()},
            data["confidence"],
        )  # fmt: skip
        numbers = [*made.cpus, *(() if made.end_ns is None else (made.end_ns,))]
        fits = (
            isinstance(made.kind, str)
            and isinstance(made.cause, str)
            and made.confidence in _CONFIDENCE
            and (made.depth is None or type(made.depth) is float)
            and all(type(number) is int for number in numbers)
            and (made.kind != "mark" or isinstance(made.evidence.get("label"), str))
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise wire.WireError(f"a note of no episode ({error!r})") from None
    if not fits:
        raise wire.WireError("a note of no episode")
    return made


def _packed(value: Any) -> Any:
    """A list is packed behind the name of its type; numbers of numpy become plain."""
    if isinstance(value, str | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(_packed, value)]
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _unpacked(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name, *parts = value
    found = [*map(_unpacked, parts)]
    if name in _PLAIN:
        return _PLAIN[name](found)
    cls = _TYPES[name]
    hints = typing.get_type_hints(cls)
    if len(found) != len(hints) or not all(map(_is, found, hints.values())):
        raise ValueError(name)
    return cls(*found)


def _is(value: Any, hint: Any) -> bool:
    """Whether a value fits one of the hints that the types of evidence have."""
    if typing.get_origin(hint) is tuple:
        return type(value) is tuple and all(isinstance(v, typing.get_args(hint)[0]) for v in value)
    if isinstance(hint, types.UnionType):
        return any(_is(value, option) for option in typing.get_args(hint))
    return isinstance(value, int | float if hint is float else hint)


def main() -> None:
    os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError):
        run(Path(sys.argv[1]), sys.stdout.buffer)


if __name__ == "__main__":
    main()
