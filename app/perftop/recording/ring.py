"""The last minutes of a stream on disk, in bounded space: a black box; and what it keeps of them.

    FILE/                    a directory, itself a recording
      000007.part …          the ring: each part is a whole recording, the oldest goes first
      kept/NAME.perftop/     parts that are kept, as hard links: they cost no copy and no time

Each part has a hello of its own, as of its start. So whatever ends us, all parts can be read but
for a message at the end of the last one, and nothing has to be mended before the next start. What a
run has left in its ring is kept by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfprobe import wire
from perfprobe.frozen import replace
from perftop.base.errors import Failed
from perftop.base.format import many
from perftop.base.times import length
from perftop.model.episode import Episode
from perftop.recording.codec import Timed
from perftop.recording.parts import ENDING
from perftop.recording.writer import Tape, cannot, size
from perftop.session.session import Session

KEPT = "kept"
BY_HAND, BEFORE = "by-hand", "before"
"""Ends of names of what was kept: by the user, which is never removed, and from the last run."""
PARTS = 30
"""Parts of a ring."""
SHORTEST_NS, LONGEST_NS = 1_000_000_000, 60_000_000_000
"""Bounds of the length of a part."""
LEAST_PARTS = 2
AROUND_NS = 30_000_000_000
"""Kept before an episode and behind it."""
Wanted = tuple[str, int, int]
"""The kind of an episode, and the raw times between which all is to be kept."""


@dataclass(slots=True)
class _Part:
    path: Path
    begin_ns: int


@dataclass(slots=True)
class _Keep:
    """A recording that is kept, and until when new parts belong to it."""

    path: Path
    since_ns: int
    until_ns: int


class Ring:
    """Takes messages as a `Tape` does. Raises Failed where it cannot begin or go on."""

    def __init__(self, path: Path, hello: wire.Hello, length_ns: int, most_bytes: int) -> None:
        """`most_bytes`: of all that is in the directory."""
        self.path, self.open, self.frames = path, True, 0
        self.news: list[str] = []
        """What there is to tell; readers take it out."""
        self._hello, self._length_ns, self._most_bytes = hello, length_ns, most_bytes
        self._part_ns = max(SHORTEST_NS, min(LONGEST_NS, length_ns // PARTS))
        self._topology = {row.cpu: row for row in hello.topology}
        self._parts: deque[_Part] = deque()
        self._keep: _Keep | None = None
        self._tape: Tape | None = None
        self._number = 0
        self._full = False
        try:
            self._lock = _locked(path)
            self._put_aside()
        except OSError as error:
            raise cannot(path, error) from None

    @property
    def bytes(self) -> int:
        return 0 if self._tape is None else self._tape.bytes

    @property
    def told(self) -> str:
        """How much it is by now; it stands before the name of a place."""
        lasted_ns = self._now_ns - self._parts[0].begin_ns if self._parts else 0
        whole = size(sum(_sizes(self.path).values()))
        return f"the last {length(lasted_ns)} of {self.frames} frames, {whole} with what was kept,"

    def write(self, message: Timed) -> None:
        """Raises Failed; what is in the directory is whole then."""
        try:
            self._write(message)
        except Failed as failed:
            self.open = False
            before = sum(part.path.exists() for part in [*self._parts][:-1])
            beside = f", beside {many(before, 'part')} before it" if before else ""
            raise Failed(f"{failed}{beside}") from None

    def _write(self, message: Timed) -> None:
        if isinstance(message, wire.Note) and message.kind == "hotplug":
            wire.take_hotplug(self._topology, message)
        begins = not self._parts or message.time_ns - self._parts[-1].begin_ns >= self._part_ns
        if self._tape is None or (begins and isinstance(message, wire.Frame)):
            self._turn(message.time_ns)
        assert self._tape is not None
        self.frames += isinstance(message, wire.Frame)
        self._tape.write(message)

    def end(self) -> None:
        if self._tape is not None:
            self._tape.end()
        self.open = False
        os.close(self._lock)

    def keep(self) -> None:
        """Keeps for good what is there."""
        self._link(BY_HAND, 0)

    def keep_around(self, name: str, since_ns: int, until_ns: int) -> None:
        """Keeps what lies between these raw times, up to a part more at both ends. What overlaps
        becomes one recording, which is twice as long as the ring at most."""
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
        path = self._link(name, since_ns)
        self._keep = None if path is None else _Keep(path, since_ns, until_ns)

    # --- parts

    @property
    def _now_ns(self) -> int:
        return self._tape.now_ns if self._tape is not None else self._hello.raw_ns

    def _turn(self, now_ns: int) -> None:
        """Begins the next part, and drops what is too old or too much."""
        if self._tape is not None:
            self._tape.end()
        self._number += 1
        path = self.path / f"{self._number:06}{ENDING}"
        self._tape = Tape(path, self._greeting(now_ns))
        self._parts.append(_Part(path, now_ns))
        try:
            if self._keep is not None and now_ns <= self._keep.until_ns:
                _link(path, self._keep.path)
            while len(self._parts) > LEAST_PARTS and (
                self._parts[1].begin_ns <= now_ns - self._length_ns
            ):
                self._drop()
            self._bound()
        except OSError as error:
            raise cannot(self.path, error) from None

    def _greeting(self, now_ns: int) -> wire.Hello:
        hello = self._hello
        wall_ns = hello.wall_ns + now_ns - hello.raw_ns
        topology = list(self._topology.values())
        return replace(hello, raw_ns=now_ns, wall_ns=wall_ns, tsc=None, topology=topology)

    def _drop(self) -> None:
        self._parts.popleft().path.unlink(missing_ok=True)

    def _bound(self) -> None:
        """Removes what was kept by itself, the oldest first, then the oldest parts."""
        while sum(_sizes(self.path).values()) > self._most_bytes:
            kept = self._removable()
            if kept is not None:
                shutil.rmtree(kept)
            elif len(self._parts) > LEAST_PARTS:
                self._drop()
            else:
                break
            if not self._full:
                self._full = True
                told = f"{size(self._most_bytes)} are full: the oldest goes (--max-size)"
                self.news.append(told)

    def _removable(self) -> Path | None:
        current = None if self._keep is None else self._keep.path
        for path in sorted((self.path / KEPT).glob("*")):
            by_hand = path.stem.rstrip("-0123456789").endswith(BY_HAND)
            if path != current and not by_hand:
                return path
        return None

    # --- keeping

    def _link(self, name: str, since_ns: int) -> Path | None:
        """Makes a recording of the parts since then; None: that failed."""
        behind = [*(part.begin_ns for part in self._parts), self._now_ns][1:]
        wanted = [part.path for part, end_ns in zip(self._parts, behind, strict=True)
                  if end_ns >= since_ns]  # fmt: skip
        try:
            kept = self._named(name)
            for path in wanted:
                _link(path, kept)
        except OSError as error:
            self.news.append(f"cannot keep it: {error.strerror or error}")
            return None
        self.news.append(f"kept in {kept}")
        return kept

    def _named(self, name: str) -> Path:
        hello, stamp = self._hello, time.strftime
        unix = (hello.wall_ns + self._now_ns - hello.raw_ns) / 1e9
        first = self.path / KEPT / f"{stamp('%Y%m%d-%H%M%S', time.localtime(unix))}-{name}.perftop"
        path, number = first, 2
        while path.exists():
            path, number = first.with_stem(f"{first.stem}-{number}"), number + 1
        path.mkdir(mode=0o700, parents=True)
        return path

    def _put_aside(self) -> None:
        """Keeps what the last run has left."""
        left = sorted(self.path.glob(f"*{ENDING}"))
        if not left:
            return
        kept = self._named(BEFORE)
        for path in left:
            path.rename(kept / path.name)
        self.news.append(f"what the last run has left is in {kept}")


def _link(path: Path, kept: Path) -> None:
    with contextlib.suppress(FileExistsError):
        (kept / path.name).hardlink_to(path)


def _sizes(path: Path) -> dict[int, int]:
    """Sizes of all parts by inode, so that a part that is kept as well counts once."""
    found = {}
    for part in path.rglob(f"*{ENDING}"):
        with contextlib.suppress(FileNotFoundError):
            told = part.stat()
            found[told.st_ino] = told.st_size
    return found


def _locked(path: Path) -> int:
    """The directory, made if need be, for us alone. Raises OSError and Failed."""
    refuse(path)
    path.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise Failed(f"{path} is in use: another perftop records there") from None
    return fd


def refuse(path: Path) -> None:
    """Raises Failed where a ring cannot begin: it is written into a directory of its own."""
    if path.exists() or path.is_symlink():
        own = path.is_dir() and all(
            entry.name == KEPT or entry.suffix == ENDING for entry in path.iterdir()
        )
        if not own:
            raise Failed(f"cannot record to {path}: --ring needs a directory of its own there")
    elif not path.parent.is_dir():
        raise Failed(f"cannot record to {path}: {path.parent} is no directory")


class Triggers:
    """`kinds`: kinds or causes of episodes. `longest_ns`: of a longer episode only so much is kept,
    and its end."""

    def __init__(self, kinds: Collection[str], longest_ns: int) -> None:
        self._kinds, self._longest_ns = frozenset(kinds), longest_ns
        self._cursor = 0

    def take(self, session: Session) -> Iterator[Wanted]:
        """What is to be kept by now; the same again as long as an episode runs."""
        ended, self._cursor = session.episodes_since(self._cursor)
        for episode in (*ended, *session.running):
            if not self._kinds.isdisjoint((episode.kind, episode.cause)):
                yield from self._around(episode, session.now_ns)

    def _around(self, episode: Episode, now_ns: int) -> Iterator[Wanted]:
        end_ns = now_ns if episode.end_ns is None else episode.end_ns
        last_ns = min(end_ns, episode.start_ns + self._longest_ns)
        yield episode.kind, episode.start_ns - AROUND_NS, last_ns + AROUND_NS
        if episode.end_ns is not None and last_ns < end_ns:
            yield episode.kind, end_ns - AROUND_NS, end_ns + AROUND_NS
