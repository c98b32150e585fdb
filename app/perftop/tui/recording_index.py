"""The episodes and losses of a whole recording, found by one pass over it.

The pass runs in a separate process, python -m perftop.tui.recording_index FILE, so that it does not
delay the handling of keys. It writes notes to its stdout, and the same bytes to the user's cache,
for the next replay of that recording.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import perfprobe
import perftop
from perfprobe import wire
from perftop.base import GC_THRESHOLD, MALLOC_WARM_UP_BYTES, files
from perftop.base.errors import Failed
from perftop.base.files import OwnDirectory
from perftop.model import confidence
from perftop.model.kinds import Episode
from perftop.output.recent_losses import RecentLosses
from perftop.recording.file import AnyRecording, open_recording
from perftop.session.episodes import RecordingEpisodes
from perftop.session.loss_history import LossHistory, sums_step_ns
from perftop.session.session import Session

EPISODE_KIND, LOSS_KIND, SUMS_KIND = "episode", "loss", "sums"
"""Kinds of notes: an episode or mark, a loss that no detector reports, and sums of losses."""
PROGRESS_KIND, COMPLETED_KIND = "progress", "complete"
"""Kinds of notes: the time up to which the recording was read, and the end of the pass."""
PROGRESS_S = 0.2
"""Seconds between two progress notes."""
POLL_S = 0.05
"""Seconds between two reads of the pass's output."""
CHUNK_BYTES = 1 << 16
"""Bytes decoded at once: a few hundred episodes, which take milliseconds."""
NICENESS = 10
ENTRY_VERSION = "3"
"""Version of cache entries."""
MAX_ENTRY_BYTES = 1 << 26
"""Maximum size of a cache entry in bytes; a larger one is not written."""
MAX_ENTRIES = 64
"""Maximum number of cache entries; the oldest are removed."""
FINGERPRINT_BYTES = 1 << 16
"""Bytes at the start and at the end of the recording (its hello and its index) on which the name of
its cache entry depends."""
_ENTRY_NAME = re.compile(r"[0-9a-f]{40}|\.[0-9a-f]{40}\.[0-9a-z_]+")
"""Names of entries, and of unfinished entries."""
DIGEST_BYTES = hashlib.sha256().digest_size
"""Number of bytes of the hash at the start of a cache entry. Notes that match the hash are as this
version of perftop wrote them, so they need no further checks."""
_EVIDENCE_TYPES: dict[str, type[Any]] = {
    name: cls for name, cls in vars(confidence).items() if getattr(cls, "__bases__", ()) == (tuple,)
}
"""Types of evidence, by name."""


async def fill_episodes(
    path: Path, hello: wire.Hello, episodes: RecordingEpisodes
) -> AsyncGenerator[None]:
    """Adds all episodes of a recording to `episodes`, from the cache if possible; yields whenever
    there are more. Raises Failed if some are missing."""
    decoder = wire.Decoder(hello, checked=True)
    cached_notes = await asyncio.to_thread(cached_index, path)
    if cached_notes is not None:
        for start in range(0, len(cached_notes), CHUNK_BYTES):
            add_episodes(decoder, cached_notes[start : start + CHUNK_BYTES], episodes)
            yield
        return
    with _index_process(path) as output_fd:
        while data := await _read_chunk(output_fd):
            add_episodes(decoder, data, episodes)
            yield
    if not episodes.is_complete:
        raise Failed("not all episodes of the file are listed: the search for them failed")


@contextlib.contextmanager
def _index_process(path: Path) -> Iterator[int]:
    """Runs the pass in a process, which is killed at the end of the block. Yields a descriptor of
    its output."""
    # -P: a directory perftop/ in the working directory must not be imported.
    argv = sys.executable, "-P", "-m", __name__, os.path.abspath(path)  # noqa: PTH100
    devnull, environment = subprocess.DEVNULL, {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        argv, stdin=devnull, stdout=subprocess.PIPE, stderr=devnull, env=environment
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield process.stdout.fileno()
        finally:
            process.kill()


async def _read_chunk(output_fd: int) -> bytes:
    """Returns the next bytes; b"" at the end."""
    while True:
        try:
            return os.read(output_fd, CHUNK_BYTES)
        except BlockingIOError:
            await asyncio.sleep(POLL_S)


def add_episodes(decoder: wire.Decoder, data: bytes, episodes: RecordingEpisodes) -> None:
    for note in decoder.feed(data):
        assert isinstance(note, wire.Note)
        if note.kind in {EPISODE_KIND, LOSS_KIND}:
            episodes.add(from_note(note), is_loss=note.kind == LOSS_KIND)
        elif note.kind == SUMS_KIND:
            wanted_s = np.array(note.data["wanted_s"])
            lost_s = {cause: np.array(seconds) for cause, seconds in note.data["lost_s"].items()}
            start_ns = note.data["start_ns"]
            episodes.loss_history.add(start_ns, note.time_ns, wanted_s, lost_s)
        else:
            episodes.until_ns = note.time_ns
            episodes.is_complete = note.kind == COMPLETED_KIND


# --- the pass


def notes(recording: AnyRecording) -> Iterator[wire.Note]:
    """Yields notes of all episodes, marks and losses as a live session lists them, with progress
    notes in between. Episodes that are running at the end are last."""
    session, cursor = Session(recording.hello, summarises=False), 0
    session.run.track_losses(losses_only=True)
    recent_losses = RecentLosses(session)
    last_mark = last_loss = None
    last_sums_ns = 0
    due_s = time.monotonic() + PROGRESS_S
    for _ in session.apply_in_parts(recording.messages(), lambda: recent_losses.due_ns):
        ended_episodes, cursor = session.log.ended_since(cursor)
        yield from map(to_note, ended_episodes)
        yield from map(to_note, _episodes_after(session.marks, last_mark))
        last_mark = session.marks[-1] if session.marks else None
        if session.now_ns >= recent_losses.due_ns and session.frames > 1:
            recent_losses.last_seconds(session, recent_losses.add_totals(session))
            step_ns = sums_step_ns(session.now_ns - session.run.start_ns)
            if session.now_ns - last_sums_ns >= step_ns:  # replays store no finer steps
                last_sums_ns = session.now_ns
                yield _sums_note(session, recent_losses.history)
            new_losses = _episodes_after(session.log.losses, last_loss)
            yield from (to_note(loss, LOSS_KIND) for loss in new_losses)
            last_loss = session.log.losses[-1] if session.log.losses else None
        if time.monotonic() > due_s:
            due_s = time.monotonic() + PROGRESS_S
            yield wire.Note(PROGRESS_KIND, session.now_ns, "perftop")
    if session.frames > 1:
        recent_losses.add_totals(session)
        yield _sums_note(session, recent_losses.history)
    yield from map(to_note, session.running)
    yield from (to_note(loss, LOSS_KIND) for loss in session.log.running_losses)
    yield wire.Note(COMPLETED_KIND, session.now_ns, "perftop")


def _episodes_after(episodes: Sequence[Episode], last: Episode | None) -> list[Episode]:
    """Returns the episodes after `last`; all if it is not among them."""
    return [*takewhile(lambda episode: episode is not last, reversed(episodes))][::-1]


def write_index(path: Path, output: BinaryIO) -> None:
    """Runs the pass. Writes the notes to `output` and to the cache."""
    entry_name, encoded = cache_name(path), bytearray()
    with open_recording(path) as recording:
        for note in notes(recording):
            data = wire.encode(note)
            output.write(data)
            if len(encoded) <= MAX_ENTRY_BYTES:
                encoded += data
            if note.kind in {PROGRESS_KIND, COMPLETED_KIND}:
                output.flush()
    write_cache_entry(path, entry_name, encoded)


# --- the cache: an entry's name is a hash of everything that the entry depends on, so an entry is
# never used if the file or perftop has changed


def cache_directory() -> Path:
    return files.user_directory("CACHE", "~/.cache") / "perftop" / "episodes"


def cache_name(recording: Path) -> str | None:
    """Returns the name of a recording's cache entry; None for a directory or an unreadable file."""
    try:
        status = recording.stat()
        size, changed_ns = str(status.st_size), str(status.st_mtime_ns)
        parts = [ENTRY_VERSION, perfprobe.__version__, _code_time(), size, changed_ns]
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
    """Returns when perftop's code was last changed. Episodes depend on it, and the version number
    of a checkout does not change with each change."""
    sources = Path(perftop.__path__[0]).rglob("*.py")
    return str(max((file.stat().st_mtime_ns for file in sources), default=0))


def cached_index(recording: Path) -> bytes | None:
    """Returns the notes in the recording's cache entry; None if there is no undamaged one."""
    name = cache_name(recording)
    entry = name and files.read_own_file(cache_directory() / name, DIGEST_BYTES + MAX_ENTRY_BYTES)
    digest, data = (entry[:DIGEST_BYTES], entry[DIGEST_BYTES:]) if entry else (b"", b"")
    return data if hashlib.sha256(data).digest() == digest else None


def write_cache_entry(recording: Path, entry_name: str | None, data: bytes | bytearray) -> None:
    """Adds a cache entry, unless the recording has changed since its name was computed. Does
    nothing if the cache cannot be written or belongs to another user."""
    if entry_name is None or len(data) > MAX_ENTRY_BYTES or cache_name(recording) != entry_name:
        return
    with contextlib.suppress(OSError):
        path = cache_directory()
        files.make_directory(path.parent, parents=True)
        with OwnDirectory.open(path, make=True) as directory:
            entry = hashlib.sha256(data).digest() + data
            files.replace_in(directory.fd, entry_name, entry, 0o600)
            # remove the oldest entries, and unfinished ones of processes that died
            times = {
                name: status.st_mtime_ns for name, status in directory.files(_ENTRY_NAME).items()
            }
            for name in sorted(times, key=times.__getitem__, reverse=True)[MAX_ENTRIES:]:
                directory.unlink(name)


# --- episodes and losses as notes of the wire


def to_note(episode: Episode, kind: str = EPISODE_KIND) -> wire.Note:
    data = {
        "kind": episode.kind,
        "cpus": [int(cpu) for cpu in episode.cpus],
        "end_ns": None if episode.end_ns is None else int(episode.end_ns),
        "depth": None if episode.depth is None else float(episode.depth),
        "cause": episode.cause,
        "evidence": {key: _to_plain(value) for key, value in episode.evidence.items()},
        "confidence": episode.confidence,
    }
    return wire.Note(kind, int(episode.start_ns), "perftop", data)


def from_note(note: wire.Note) -> Episode:
    evidence = {key: _from_plain(value) for key, value in note.data["evidence"].items()}
    return Episode(start_ns=note.time_ns, **{**note.data, "evidence": evidence})


def _to_plain(value: Any) -> Any:
    """Returns a value in types of msgpack: a tuple or list becomes a list that begins with the name
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
    if name == "list":
        return values
    return tuple(values) if name == "tuple" else _EVIDENCE_TYPES[name](*values)


def _sums_note(session: Session, history: LossHistory) -> wire.Note:
    time_ns, wanted_s, lost_s = history.newest
    data = {
        "start_ns": session.run.start_ns,
        "wanted_s": wanted_s.tolist(),
        "lost_s": {cause: seconds.tolist() for cause, seconds in lost_s.items()},
    }
    return wire.Note(SUMS_KIND, time_ns, "perftop", data)


def main() -> None:
    os.nice(NICENESS)
    bytes(MALLOC_WARM_UP_BYTES)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    with contextlib.suppress(BrokenPipeError):
        write_index(Path(sys.argv[1]), sys.stdout.buffer)


if __name__ == "__main__":
    main()
