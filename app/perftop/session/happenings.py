"""What has happened in a stream: episodes, moments that somebody named, and what the probe had to
say. Readers leave it here."""

from __future__ import annotations

from itertools import takewhile

from perfprobe import wire
from perftop.detect.engine import Detector
from perftop.model.episode import Episode
from perftop.session import marks
from perftop.session.file_episodes import FileEpisodes

MOST_WARNINGS = 20
"""Kept: a probe that repeats itself must not fill the memory."""
MOST_ENDED = 8192
"""Episodes kept: as many as can end in one frame."""
MOST_MARKS = 1000
"""Kept, the newest."""
LATE_NS, LATE_SAMPLES = 6_000_000_000, 4
"""The longest time from the end of an episode until it is listed as ended, in ns and in samples;
the longer one holds. A gap in the samples delays the listing."""


class Happenings:
    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.now_ns = hello.raw_ns
        self.detector = Detector()
        self.file: FileEpisodes | None = None
        """What a pass over the whole recording has found; None: there is no recording."""
        self._ended: list[Episode] = []
        """The newest of the episodes that have ended, newest last."""
        self._forgotten = 0
        """How many ended before those."""
        self._marks: list[Episode] = []
        self.warnings: list[str] = []
        """What the probe had to say, newest last."""
        self.warned_ns = 0

    @property
    def running(self) -> list[Episode]:
        """Episodes that have not ended, oldest first; of a recording, up to its end."""
        if self.file is None:
            return self.detector.running
        return [*self.file.running, *self.file.beyond(self.detector.running)]

    @property
    def ended(self) -> list[Episode]:
        """Episodes that have ended, newest last: the newest, or all of a recording. Readers leave
        them here."""
        return self._ended if self.file is None else self.file.with_seen(self._ended)

    @property
    def marks(self) -> list[Episode]:
        """Moments that the user has named: on no CPU, without length."""
        return self._marks if self.file is None else self.file.with_marks(self._marks)

    @property
    def known_ns(self) -> int:
        """Time up to which episodes are known: now, or the end of the recording."""
        return self.now_ns if self.file is None else max(self.now_ns, self.file.until_ns)

    def episodes(self, since_ns: int, until_ns: int) -> list[Episode]:
        """Episodes that ran after `since_ns` and had begun by `until_ns`; running ones first, then
        the others in the order of their ends."""
        running = [e for e in self.running if e.start_ns <= until_ns]
        if self.file is not None and self.file.complete:
            return [*running, *self.file.overlapping(since_ns, until_ns)]
        least_ns = since_ns - max(LATE_NS, LATE_SAMPLES * self.hello.sample_ns)
        newest = takewhile(lambda e: (e.end_ns or 0) >= least_ns, reversed(self.ended))
        ended = [e for e in newest if e.start_ns <= until_ns and (e.end_ns or 0) > since_ns]
        return [*running, *reversed(ended)]

    def episodes_since(self, cursor: int) -> tuple[list[Episode], int]:
        """The episodes that have ended since a reader's last call, and its cursor for the next one;
        the first is 0. Every reader has a cursor of its own. A reader that comes after more than
        MOST_ENDED episodes gets the newest."""
        news = self._ended[max(0, cursor - self._forgotten) :]
        return news, self._forgotten + len(self._ended)

    def _end(self, episodes: list[Episode]) -> None:
        if not episodes:  # mostly
            return
        self._ended += episodes
        self._forgotten += max(0, len(self._ended) - MOST_ENDED)
        del self._ended[:-MOST_ENDED]

    def _warn(self, note: wire.Note) -> None:
        self.warnings = [*self.warnings, marks.warning(note)][-MOST_WARNINGS:]
        self.warned_ns = note.time_ns

    def _mark(self, at_ns: int, label: str) -> None:
        self._marks = [*self._marks, marks.mark(at_ns, label)][-MOST_MARKS:]
