"""Plays a recording: reads it into a session, jumps to any moment of it, and lists all its
episodes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import math
import os
import re
import subprocess
import sys
import time
import types
import typing
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

import perfprobe
import perftop
from perfprobe import wire
from perftop.base import GC_THRESHOLD, KEPT_BYTES, files
from perftop.base.errors import DAMAGED, Failed
from perftop.base.files import OwnDirectory
from perftop.model import confidence
from perftop.model.differences import row_heads
from perftop.model.kinds import Episode
from perftop.recording.file import AnyRecording, damage_suffix, open_recording
from perftop.session import selection
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import MAX_BYTES, History
from perftop.session.packing import BLOCK_MESSAGES, TimedMessage
from perftop.session.session import MAX_BATCH, Session

if TYPE_CHECKING:
    from perftop.session.interval import Interval

WARM_UP_NS = 30_000_000_000
"""Time in ns that is read before the target of a jump: three times what the slowest detector needs.
So numbers and episodes equal those of a session that was read from the start. Only starts and stops
of siblings are counted within this time."""
MAX_SKIP_BY_READING_NS = 2 * WARM_UP_NS
"""Maximum time in ns of a jump forward that is made by reading on, which is faster than a seek."""
AFTER_END_NS = 1 << 63
"""A raw time in ns after all messages."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, math.inf)
"""Playing speeds, as multiples of the original speed; the last is as fast as possible."""
BATCH_S = 0.05
"""Maximum seconds for which a seek reads before keys are handled."""
SEEK_PAUSE_S = 0.005
"""Seconds between two batches of a seek, for keys and the screen."""


class Playback:
    """Reads a recording into its own session, starting at the block that contains a given
    moment."""

    def __init__(
        self, recording: AnyRecording, time_ns: int, episodes: RecordingEpisodes | None = None,
        room: int = MAX_BYTES,
    ) -> None:  # fmt: skip
        """`episodes`: those of the whole file. `room`: maximum size of the history in bytes."""
        messages = recording.messages(time_ns)
        first: list[TimedMessage] = []
        while len(first) < BLOCK_MESSAGES and not (first and isinstance(first[-1], wire.Frame)):
            if (message := next(messages, None)) is None:
                break
            first.append(message)
        self._begin_ns = first[-1].time_ns if first else recording.hello.raw_ns
        self._messages = chain(first, messages)
        starts_inside = first and time_ns > recording.first_ns
        hello = _hello_at(recording.hello, first[-1]) if starts_inside else recording.hello
        self.session = Session(hello, History(hello, room), summarises=False)
        self.session.log.recording = episodes
        self._next_message = next(self._messages, None)

    @property
    def is_over(self) -> bool:
        """Whether all messages were read."""
        return self._next_message is None

    @property
    def cost(self) -> float:
        """CPU time per second that the probe used, over the part that was read."""
        elapsed_ns = self.session.now_ns - self._begin_ns
        return self.session.probe_cpu_s() / (elapsed_ns / 1e9) if elapsed_ns > 0 else math.nan

    @property
    def ends_ns(self) -> tuple[int, int] | None:
        """Ends of the first and the last sample in history, in raw ns; None if there is no
        sample."""
        first_ns, last_ns = self.session.past.first_ns, self.session.past.last_ns
        return None if first_ns is None or last_ns is None else (first_ns, last_ns)

    def sample_end_ns(self, time_ns: int) -> int | None:
        """Returns the end in raw ns of the sample that is shown at this moment; None if there is
        none."""
        times = self.session.past.times()
        index = int(times.searchsorted(time_ns, side="right")) - 1
        return int(times[max(0, index)]) if len(times) else None

    def messages_until(self, time_ns: float) -> Iterator[TimedMessage]:
        """Yields the next messages, up to this moment, for the caller to apply to the session."""
        while self._next_message is not None and self._next_message.time_ns <= time_ns:
            message = self._next_message
            self._next_message = next(self._messages, None)
            yield message

    def sample(self) -> None:
        """Reads to the end of the next sample."""
        ends_ns = self.ends_ns
        for message in self.messages_until(AFTER_END_NS):
            self.session.apply(message)
            if self.ends_ns != ends_ns:
                return


def _hello_at(hello: wire.Hello, message: TimedMessage) -> wire.Hello:
    """Returns hello with the CPUs that were online at this frame, which earlier notes may have
    changed."""
    blocks = message.blocks if isinstance(message, wire.Frame) else {}
    for block in hello.blocks:
        rows = blocks.get(block.name)
        if block.scope == "cpu" and rows is not None:
            words = np.frombuffer(row_heads(rows.head, len(hello.topology)), "<u8")
            flags = words.reshape(-1, wire.HEAD)[:, 4]
            offline = flags & np.uint64(wire.ROW_OFFLINE) != 0
            sampled = flags & np.uint64(wire.ROW_SAMPLED) != 0
            topology = [
                replace(row, online=bool(was_read or (row.online and not is_offline)))
                for row, is_offline, was_read in zip(hello.topology, offline, sampled, strict=True)
            ]
            return replace(hello, topology=topology)
    return hello


class PlayClock:
    """Computes which moment of the recording is shown while it is played."""

    def __init__(self) -> None:
        self.speed = 1.0
        self._at_ns = 0.0
        self._clock_s = 0.0

    def begin(self, at_ns: int, clock_s: float) -> None:
        self._at_ns, self._clock_s = at_ns, clock_s

    def now_ns(self, clock_s: float) -> float:
        if math.isinf(self.speed):
            return math.inf
        self._at_ns += (clock_s - self._clock_s) * 1e9 * self.speed
        self._clock_s = clock_s
        return self._at_ns

    def change_speed(self, steps: int) -> None:
        index = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, index))]


def frame_range(recording: AnyRecording) -> tuple[int, int]:
    """Returns the raw times in ns of the first frame and of the last message. Raises Failed if
    there are no samples."""
    first: list[int] = []
    for message in recording.messages():
        if isinstance(message, wire.Frame):
            first.append(message.time_ns)
        if len(first) > 1:
            break
    else:
        damage = damage_suffix(recording)
        raise Failed(f"it has no samples{damage}", DAMAGED if damage else 1)
    return first[0], max(first[1], recording.last_ns)


@dataclass(frozen=True, slots=True)
class Seeker:
    """Jumps to a moment of a recording. This can be slow, because samples before it must be read,
    so progress is reported, and the task can be cancelled."""

    recording: AnyRecording
    episodes: RecordingEpisodes
    clock: Callable[[], float]
    progress: Callable[[int], None]
    """Called with the raw time in ns of the last message read."""

    async def go(self, playback: Playback | None, time_ns: int) -> Playback:
        """Returns a playback that has been read up to this moment: the given one if the moment is
        near, else a new one."""
        ends_ns = None if playback is None else playback.ends_ns
        if playback is not None and ends_ns is not None and ends_ns[0] <= time_ns <= ends_ns[1]:
            return playback
        if playback is None or not 0 <= time_ns - playback.session.now_ns <= MAX_SKIP_BY_READING_NS:
            playback = Playback(self.recording, time_ns - WARM_UP_NS, self.episodes)
        await self._read(playback, time_ns)
        return playback

    async def next_episode(
        self, playback: Playback, interval: Interval, direction: int, cpus: list[int] | None
    ) -> tuple[Playback, int] | None:
        """Finds the next episode or mark of the file after an interval, or, if `direction` is -1,
        the last one before it. Returns a playback that has been read up to there and the moment;
        None if there is none."""
        session = playback.session
        episodes = selection.reachable_episodes(session, cpus)
        moments = {selection.episode_moment(session, episode, interval) for episode in episodes}
        ahead_ns = (ns for ns in moments if (ns - interval.time_ns) * direction > 0)
        for time_ns in sorted(ahead_ns, reverse=direction < 0):
            playback_there = await self.go(playback, time_ns)
            # this may be the sample that is already shown
            sample_end_ns = playback_there.sample_end_ns(time_ns)
            if sample_end_ns is not None and (sample_end_ns - interval.time_ns) * direction > 0:
                return playback_there, time_ns
        return None

    async def extend_back(self, playback: Playback, since_ns: int) -> None:
        """Extends the history of a playback back to this moment, if memory permits."""
        history = playback.session.past
        if (begin_ns := history.begin_ns) is None:
            return
        start_ns, room = since_ns - WARM_UP_NS, history.free_bytes
        longer_playback = Playback(self.recording, start_ns, self.episodes, room)
        await self._read(longer_playback, begin_ns, low_priority=True)
        history.prepend(longer_playback.session.past)

    async def _read(self, playback: Playback, time_ns: int, *, low_priority: bool = False) -> None:
        """Reads up to this moment, and at least one sample. With `low_priority`, keys and the
        screen are handled first, because the user is not waiting for the result."""
        end_s = self.clock() + BATCH_S
        next_messages = playback.messages_until(time_ns)
        while messages := list(islice(next_messages, MAX_BATCH)):
            for _ in playback.session.play_parts(messages):
                pass
            if low_priority or self.clock() > end_s:
                self.progress(messages[-1].time_ns)
                await asyncio.sleep(SEEK_PAUSE_S)
                end_s = self.clock() + BATCH_S
        if playback.ends_ns is None:
            playback.sample()


# --- Episodes and marks of a whole recording, found by one pass over it
#
# The pass runs in a separate process, python -m perftop.recording.player FILE, so that it does not
# delay the handling of keys. It writes notes to its stdout, and the same bytes to the user's cache,
# for the next replay of that recording.

EPISODE_KIND, PROGRESS_KIND, COMPLETED_KIND = "episode", "progress", "complete"
"""Kinds of notes: an episode, the time up to which the recording was read, the end of the pass."""
PROGRESS_S = 0.2
"""Seconds between two progress notes."""
POLL_S = 0.05
"""Seconds between two reads of the pass's output."""
CHUNK_BYTES = 1 << 16
"""Bytes decoded at once: a few hundred episodes, which take milliseconds."""
NICENESS = 10
ENTRY_VERSION = "1"
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
_EVIDENCE_TYPES: dict[str, type[Any]] = {
    name: cls for name, cls in vars(confidence).items() if getattr(cls, "__bases__", ()) == (tuple,)
}
"""Types of evidence, by name."""
_CONTAINER_TYPES: dict[str, type[Any]] = {"list": list, "tuple": tuple}
_CONFIDENCE = typing.get_args(confidence.Confidence)


async def fill_episodes(
    path: Path, hello: wire.Hello, episodes: RecordingEpisodes
) -> AsyncGenerator[None]:
    """Adds all episodes of a recording to `episodes`, from the cache if possible; yields whenever
    there are more. Raises Failed if some are missing."""
    cached_notes = await asyncio.to_thread(cached_index, path)
    if cached_notes is not None:
        with contextlib.suppress(wire.WireError):
            decoder = wire.Decoder(hello, checked=True)
            for start in range(0, len(cached_notes), CHUNK_BYTES):
                add_episodes(decoder, cached_notes[start : start + CHUNK_BYTES], episodes)
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
            raise Failed(f"the episodes of the file cannot be listed: {error}") from None
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
    """Adds the episodes in these bytes of an index. Raises WireError if they are something else."""
    for message in decoder.feed(data):
        if not isinstance(message, wire.Note):
            raise wire.WireError("not a note of an index")
        if message.kind == EPISODE_KIND:
            episodes.add(from_note(message))
        else:
            episodes.until_ns = message.time_ns
            episodes.is_complete = message.kind == COMPLETED_KIND


# --- the pass


def notes(recording: AnyRecording) -> Iterator[wire.Note]:
    """Yields notes of all episodes and marks as the session lists them, with progress notes in
    between. Episodes that are running at the end are last."""
    session, cursor = Session(recording.hello, summarises=False), 0
    last_mark: Episode | None = None
    due_s = time.monotonic() + PROGRESS_S
    for _ in session.play_parts(recording.messages()):
        ended_episodes, cursor = session.log.ended_since(cursor)
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
    """Runs the pass. Writes the notes to `output` and to the cache."""
    entry_name, encoded = cache_name(path), bytearray()
    with open_recording(path) as recording:
        for note in notes(recording):
            data = wire.encode(note)
            output.write(data)
            if len(encoded) <= MAX_ENTRY_BYTES:
                encoded += data
            if note.kind != EPISODE_KIND:
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
    """Returns the recording's cache entry; None if there is no usable one."""
    name = cache_name(recording)
    return None if name is None else files.read_own_file(cache_directory() / name, MAX_ENTRY_BYTES)


def write_cache_entry(recording: Path, entry_name: str | None, data: bytes | bytearray) -> None:
    """Adds a cache entry, unless the recording has changed since its name was computed. Does
    nothing if the cache cannot be written or belongs to another user."""
    if entry_name is None or len(data) > MAX_ENTRY_BYTES or cache_name(recording) != entry_name:
        return
    with contextlib.suppress(OSError):
        path = cache_directory()
        files.make_directory(path.parent, parents=True)
        with OwnDirectory.open(path, make=True) as directory:
            files.replace_in(directory.fd, entry_name, data, 0o600)
            # remove the oldest entries, and unfinished ones of processes that died
            times = {
                name: status.st_mtime_ns for name, status in directory.files(_ENTRY_NAME).items()
            }
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
    return wire.Note(EPISODE_KIND, int(episode.start_ns), "perftop", data)


def from_note(note: wire.Note) -> Episode:
    """Returns the episode in a note. Raises WireError if there is none."""
    try:
        data = note.data
        episode = Episode(
            data["kind"], data["cpus"], note.time_ns, data["end_ns"], data["depth"], data["cause"],
            {key: _from_plain(value) for key, value in data["evidence"].items()},
            data["confidence"],
        )  # fmt: skip
        numbers = [*episode.cpus, *(() if episode.end_ns is None else (episode.end_ns,))]
        is_valid = (
            isinstance(episode.kind, str)
            and isinstance(episode.cause, str)
            and episode.confidence in _CONFIDENCE
            and (episode.depth is None or type(episode.depth) is float)
            and all(type(number) is int for number in numbers)
            and (episode.kind != "mark" or isinstance(episode.evidence.get("label"), str))
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise wire.WireError(f"not a note of an episode ({error!r})") from None
    if not is_valid:
        raise wire.WireError("not a note of an episode")
    return episode


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
    if name in _CONTAINER_TYPES:
        return _CONTAINER_TYPES[name](values)
    cls = _EVIDENCE_TYPES[name]
    hints = typing.get_type_hints(cls)
    if len(values) != len(hints) or not all(map(_fits_type, values, hints.values())):
        raise ValueError(name)
    return cls(*values)


def _fits_type(value: Any, hint: Any) -> bool:
    """Returns whether a value has the type of a field of evidence."""
    if typing.get_origin(hint) is tuple:
        return type(value) is tuple and all(isinstance(v, typing.get_args(hint)[0]) for v in value)
    if isinstance(hint, types.UnionType):
        return any(_fits_type(value, option) for option in typing.get_args(hint))
    return isinstance(value, int | float if hint is float else hint)


def main() -> None:
    os.nice(NICENESS)
    bytes(KEPT_BYTES)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    with contextlib.suppress(BrokenPipeError):
        write_index(Path(sys.argv[1]), sys.stdout.buffer)


if __name__ == "__main__":
    main()
