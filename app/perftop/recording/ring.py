"""A ring on disk: the last minutes of a stream, in bounded space, as in a flight recorder, and the
recordings that are kept from it.

    FILE/                    a directory, itself a recording
      000007.part …          the ring: each part is a whole recording, the oldest is removed first
      kept/NAME.perftop/     parts that are kept, as hard links: they cost no copy and no time

Each part has its own hello, with the state at its start. So a sudden end costs only the last
message, and nothing has to be repaired. The next run keeps the parts that the last run has left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from perfprobe import wire
from perftop.base import errors
from perftop.base.errors import Failed
from perftop.base.files import OwnDirectory
from perftop.base.text import count_noun, long_duration
from perftop.model.kinds import Episode
from perftop.recording.file import UNFINISHED_SUFFIX
from perftop.recording.writer import Writer, size_text, write_failure
from perftop.session.packing import TimedMessage

KEPT_DIRECTORY = "kept"
KEPT_BY_USER, PREVIOUS_RUN = "by-hand", "before"
"""End of the name of a recording kept by the user, which is never removed, and of one left by the
last run."""
PART_COUNT = 30
MIN_PART_NS, MAX_PART_NS = 1_000_000_000, 60_000_000_000
"""Bounds of the length of a part, in ns."""
MIN_PARTS = 2
"""Minimum number of parts, even if they exceed the maximum size."""
_PART_NAME = re.compile(rf"[0-9]{{6,}}{re.escape(UNFINISHED_SUFFIX)}")
_KEPT_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-.+\.perftop")
"""Names of kept recordings. A file with another name, a link, or another user's file is ignored."""
KEEP_MARGIN_NS = 30_000_000_000
"""Time in ns kept before and after an episode."""
KeepRequest = tuple[str, int, int]
"""Kind of an episode, and the raw times between which everything must be kept."""
_Sizes = dict[int, int]
"""Size of each part in bytes, by inode, because a part can be in several directories."""


@dataclass(slots=True)
class _Part:
    name: str
    begin_ns: int


@dataclass(slots=True)
class _KeptRecording:
    """A kept recording, to which new parts that start before `until_ns` are added."""

    name: str
    since_ns: int
    until_ns: int


class Ring:
    """Writes messages to a ring; used like a `Writer`. Raises Failed if it cannot start or
    continue."""

    def __init__(self, path: Path, hello: wire.Hello, length_ns: int, max_bytes: int) -> None:
        """`max_bytes`: maximum size of everything in the directory."""
        self.path, self.is_open, self.frames = path, True, 0
        self.notices: list[str] = []
        """Messages for the user, which the caller shows and removes."""
        self._hello, self._length_ns, self._max_bytes = hello, length_ns, max_bytes
        self._part_ns = max(MIN_PART_NS, min(MAX_PART_NS, length_ns // PART_COUNT))
        self._topology = {row.cpu: row for row in hello.topology}
        self._parts: deque[_Part] = deque()
        self._keep: _KeptRecording | None = None
        self._kept_recordings: dict[str, _Sizes] = {}
        """The sizes of the parts of each kept recording, by its name."""
        self._writer: Writer | None = None
        self._number = 0
        self._is_full = False
        self._final_extent = ""
        try:
            self._directory = _open_directory(path, make=True)
            try:
                fcntl.flock(self._directory.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._directory.fd)
                raise Failed(f"{path} is in use: another perftop records there") from None
            if leftovers := self._directory.files(_PART_NAME):  # left by the last run
                with self._make_kept_directory(PREVIOUS_RUN) as kept:
                    for name in leftovers:
                        os.rename(name, name, src_dir_fd=self._directory.fd, dst_dir_fd=kept.fd)
                self.notices.append(f"the contents left by the last run are in {kept.path}")
        except OSError as error:
            raise write_failure(path, error) from None

    @property
    def byte_count(self) -> int:
        return 0 if self._writer is None else self._writer.byte_count

    @property
    def extent(self) -> str:
        """Number of frames, length and size so far, as text. A path follows it."""
        if self._final_extent:
            return self._final_extent
        lasted_ns = self._now_ns - self._parts[0].begin_ns if self._parts else 0
        total = size_text(sum(_merged_sizes(self._sizes()).values()))
        length = long_duration(lasted_ns)
        return f"{self.frames} frames, kept the last {length} ({total} with all saved parts)"

    def write(self, message: TimedMessage) -> None:
        """Writes a message. If it raises Failed, earlier parts are complete."""
        try:
            self._write(message)
        except Failed as failed:
            self.is_open = False
            current = f"{self._number:06}{UNFINISHED_SUFFIX}"
            others = (part for part in self._parts if part.name != current)
            begins_ns = [part.begin_ns for part in others if self._directory.stat(part.name)]
            other_parts = ""
            if begins_ns:
                length_text = long_duration(self._now_ns - begins_ns[0])
                count = count_noun(len(begins_ns), "part")
                other_parts = f"; with {count} before it, {self.path} has the last {length_text}"
            raise Failed(f"{failed}{other_parts}") from None

    def _write(self, message: TimedMessage) -> None:
        if isinstance(message, wire.Note) and message.kind == "hotplug":
            wire.apply_hotplug(self._topology, message)
        since_ns = self._parts[-1].begin_ns if self._parts else -self._part_ns
        is_frame = isinstance(message, wire.Frame)
        if self._writer is None or (is_frame and message.time_ns - since_ns >= self._part_ns):
            self._next_part(message.time_ns)
        assert self._writer is not None
        self.frames += is_frame
        self._writer.write(message)

    def end(self) -> None:
        if self._writer is not None:
            self._writer.end()
        self.is_open = False
        self._final_extent = self.extent
        os.close(self._directory.fd)

    def keep(self) -> None:
        """Keeps all current parts permanently."""
        self._link_parts(KEPT_BY_USER, 0)

    def keep_span(self, name: str, since_ns: int, until_ns: int) -> None:
        """Keeps everything between these raw times, and up to one more part at each end.
        Overlapping spans become one recording, up to twice the length of the ring."""
        now_ns, keep = self._now_ns, self._keep
        if until_ns < now_ns:
            return
        if keep is not None and since_ns <= keep.until_ns:
            if until_ns - keep.since_ns <= 2 * self._length_ns:
                keep.until_ns = max(keep.until_ns, until_ns)
                return
            since_ns = keep.until_ns
            if since_ns > now_ns:
                return
        kept_name = self._link_parts(name, since_ns)
        self._keep = None if kept_name is None else _KeptRecording(kept_name, since_ns, until_ns)

    # --- parts

    @property
    def _now_ns(self) -> int:
        return self._writer.now_ns if self._writer is not None else self._hello.raw_ns

    def _next_part(self, now_ns: int) -> None:
        """Begins the next part, and removes parts that are too old or exceed the maximum size."""
        if self._writer is not None:
            self._writer.end()
        self._number += 1
        name = f"{self._number:06}{UNFINISHED_SUFFIX}"
        hello = self._hello
        wall_ns, topology = hello.wall_ns + now_ns - hello.raw_ns, list(self._topology.values())
        hello = replace(hello, raw_ns=now_ns, wall_ns=wall_ns, tsc=None, topology=topology)
        self._writer = Writer(self.path / name, hello, directory=self._directory.fd)
        self._parts.append(_Part(name, now_ns))
        try:
            if self._keep is not None and now_ns <= self._keep.until_ns:
                with (
                    self._directory.subdirectory(KEPT_DIRECTORY) as kept_directory,
                    kept_directory.subdirectory(self._keep.name) as target,
                ):
                    self._link_part(name, target)
            since_ns = now_ns - self._length_ns
            while len(self._parts) > MIN_PARTS and self._parts[1].begin_ns <= since_ns:
                self._drop_oldest_part()
            self._remove_excess()
        except OSError as error:
            raise write_failure(self.path, error) from None

    def _drop_oldest_part(self) -> _Sizes:
        """Removes the oldest part of the ring. Returns its size, by inode."""
        name = self._parts.popleft().name
        status = self._directory.stat(name)
        self._directory.unlink(name)
        if status is None:
            return {}
        # it may have grown since the sizes were read
        for parts in self._kept_recordings.values():
            if status.st_ino in parts:
                parts[status.st_ino] = status.st_size
        return {status.st_ino: status.st_size}

    def _remove_excess(self) -> None:
        """Reduces the directory to its maximum size. Recordings kept automatically are removed
        first, then parts of the ring; in both, the oldest first."""
        directories = self._sizes()
        total = sum(_merged_sizes(directories).values())
        if total <= self._max_bytes:
            return
        links = Counter(chain.from_iterable(directories))
        current = None if self._keep is None else self._keep.name
        kept = self._kept_recordings
        stems = {name: Path(name).stem.rstrip("-0123456789") for name in sorted(kept)}
        automatic = (name for name, stem in stems.items() if not stem.endswith(KEPT_BY_USER))
        removable = [name for name in automatic if kept[name] and name != current]
        while total > self._max_bytes:
            if removable:
                name = removable.pop(0)
                with (
                    contextlib.suppress(OSError),
                    self._directory.subdirectory(KEPT_DIRECTORY) as kept_directory,
                    kept_directory.subdirectory(name) as recording,
                ):
                    for part in recording.files(_PART_NAME):
                        recording.unlink(part)
                    os.rmdir(name, dir_fd=kept_directory.fd)  # fails if there are other files
                removed = kept.pop(name)
            elif len(self._parts) > MIN_PARTS:
                removed = self._drop_oldest_part()
            else:
                break
            for inode, bytes_removed in removed.items():
                links[inode] -= 1
                total -= 0 if links[inode] else bytes_removed
            if not self._is_full:
                self._is_full = True
                limit = f"the limit of {size_text(self._max_bytes)} is reached (--max-size)"
                self.notices.append(f"{limit}: the oldest data are removed")

    def _sizes(self) -> list[_Sizes]:
        """Returns the sizes of the parts of each kept recording, and last of the ring. There may be
        thousands of recordings, so each is read once, unless it still gets parts."""
        names: list[str] = []
        with contextlib.suppress(OSError), self._directory.subdirectory(KEPT_DIRECTORY) as root:
            names = [*filter(_KEPT_NAME.fullmatch, root.names())]
            if self._keep is not None:
                self._kept_recordings.pop(self._keep.name, None)
            for name in names:
                if name not in self._kept_recordings:
                    self._kept_recordings[name] = {}
                    with contextlib.suppress(OSError), root.subdirectory(name) as kept_directory:
                        self._kept_recordings[name] = _part_sizes(kept_directory)
        for name in self._kept_recordings.keys() - names:
            del self._kept_recordings[name]
        return [*self._kept_recordings.values(), _part_sizes(self._directory)]

    # --- keeping

    def _link_parts(self, name: str, since_ns: int) -> str | None:
        """Keeps the parts since `since_ns` as a recording. Returns its name; None if that
        failed."""
        ends_ns = [*(part.begin_ns for part in self._parts), self._now_ns][1:]
        parts_and_ends = zip(self._parts, ends_ns, strict=True)
        parts = [part.name for part, end_ns in parts_and_ends if end_ns >= since_ns]
        try:
            with self._make_kept_directory(name) as directory:
                for part in parts:
                    self._link_part(part, directory)
        except OSError as error:
            self.notices.append(str(errors.failure_to("keep it", error)))
            return None
        self.notices.append(f"kept in {directory.path}")
        return directory.path.name

    def _link_part(self, part: str, directory: OwnDirectory) -> None:
        with contextlib.suppress(FileExistsError):
            ring_fd, kept_fd = self._directory.fd, directory.fd
            os.link(part, part, src_dir_fd=ring_fd, dst_dir_fd=kept_fd, follow_symlinks=False)

    def _make_kept_directory(self, name: str) -> OwnDirectory:
        hello, stamp = self._hello, time.strftime
        unix = (hello.wall_ns + self._now_ns - hello.raw_ns) / 1e9
        first = f"{stamp('%Y%m%d-%H%M%S', time.localtime(unix))}-{name}"
        stem, number = first, 2
        with self._directory.subdirectory(KEPT_DIRECTORY, make=True) as kept_directory:
            while kept_directory.stat(f"{stem}.perftop") is not None:
                stem, number = f"{first}-{number}", number + 1
            return kept_directory.subdirectory(f"{stem}.perftop", make=True)


def _part_sizes(directory: OwnDirectory) -> _Sizes:
    return {part.st_ino: part.st_size for part in directory.files(_PART_NAME).values()}


def _merged_sizes(directories: Iterable[_Sizes]) -> _Sizes:
    """Returns the size of each part once, even if it is in several directories."""
    sizes: _Sizes = {}
    for parts in directories:
        sizes.update(parts)
    return sizes


def check_path(path: Path) -> None:
    """Raises Failed if a ring cannot be started at this path, which must be a directory of its
    own."""
    if path.exists() or not path.parent.is_dir():
        os.close(_open_directory(path).fd)


def _open_directory(path: Path, *, make: bool = False) -> OwnDirectory:
    """Opens the directory. Raises Failed if it contains anything but a ring."""
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(OwnDirectory.open(path, make=make))
            kept_status = directory.stat(KEPT_DIRECTORY)
            is_ring = not set(directory.names()) - {*directory.files(_PART_NAME), KEPT_DIRECTORY}
            if is_ring and kept_status is not None:
                os.close(directory.subdirectory(KEPT_DIRECTORY).fd)
        except FileNotFoundError:
            raise Failed(f"cannot record to {path}: {path.parent} is not a directory") from None
        except NotADirectoryError:
            is_ring = False
        except OSError as error:
            raise write_failure(path, error) from None
        if not is_ring:
            raise Failed(f"cannot record to {path}: --ring needs a directory of its own there")
        stack.pop_all()
        return directory


def spans_to_keep(episode: Episode, now_ns: int, longest_ns: int) -> Iterator[KeepRequest]:
    """Yields the spans to keep around an episode. If it is longer than `longest_ns`, only its first
    `longest_ns` and its end are kept."""
    end_ns = now_ns if episode.end_ns is None else episode.end_ns
    last_ns = min(end_ns, episode.start_ns + longest_ns)
    yield episode.kind, episode.start_ns - KEEP_MARGIN_NS, last_ns + KEEP_MARGIN_NS
    if episode.end_ns is not None and last_ns < end_ns:
        yield episode.kind, end_ns - KEEP_MARGIN_NS, end_ns + KEEP_MARGIN_NS
