"""The log of a stream's episodes and marks, which the session owns.

An episode runs until its detector ends it. When a recording is played, a background pass over the
whole file finds all of its episodes (`RecordingEpisodes`). The session itself may have started in
the middle of the file and detected some of them with a late start, so the episodes from the pass
replace them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import nan
from operator import attrgetter

import numpy as np

from perfprobe import wire
from perftop.base.text import long_duration
from perftop.detect.engine import RunningEpisodes
from perftop.model.confidence import confidence
from perftop.model.kinds import Episode
from perftop.session.loss_history import LossHistory

MAX_LOG_EPISODES = 8192
"""Maximum number of ended episodes in a log. As many can end in one frame."""
MAX_MARKS = 1000
"""Maximum number of marks in a log. The newest marks are kept."""
MAX_EPISODES = 1 << 16
"""Maximum number of episodes and marks of a whole recording: about 100 MB."""
LATE_NS, LATE_SAMPLES = 6_000_000_000, 4
"""Maximum time from an episode's end until the log lists it as ended: the longer of this time in ns
and this number of samples. A gap between samples adds to it."""
MAX_LISTING_DELAY_NS = 10_000_000_000
"""Time in ns after an episode's end by which the pass over a recording has listed it."""
MAX_LABEL_LENGTH, MAX_WARNING_LENGTH = 80, 200
"""Maximum length of a mark's label, and of a warning, in characters."""
RUN_STARTED, RUN_ENDED = "run: ", "run ended: "
SUSPENDED_TEXT, LINK_GAP_TEXT = "was suspended for ", "no link for "
"""Prefixes of labels of automatic marks."""


class EpisodeLog:
    """The episodes and marks of one session."""

    def __init__(self, detector: RunningEpisodes, sample_ns: int) -> None:
        self._detector = detector
        self._late_ns = max(LATE_NS, LATE_SAMPLES * sample_ns)
        self.recording: RecordingEpisodes | None = None
        """Episodes from the pass over the whole recording; None if no recording is played."""
        self._ended: list[Episode] = []
        """The newest ended episodes, newest last."""
        self.dropped_count = 0
        """Number of ended episodes that were removed from the start of `_ended`."""
        self._losses: list[Episode] = []
        """Ended losses that no detector reports, such as tasks that waited for a CPU."""
        self.session_losses: list[Episode] = []
        """Losses of this kind that are still running in the session."""
        self._marks: list[Episode] = []
        self._merged_episodes: tuple[object, list[Episode]] = None, []
        """State of the log during a pass over a recording, and the value of `ended` for it."""

    @property
    def running(self) -> list[Episode]:
        """Running episodes, oldest first. In a recording: those that run at its end."""
        detected, recording = self._detector.running, self.recording
        if recording is None:
            return detected
        return [*recording.running, *recording.missing_episodes(detected)]

    @property
    def losses(self) -> list[Episode]:
        """Ended losses that no detector reports, such as tasks that waited for a CPU, in the order
        of their ends."""
        return self._losses if self.recording is None else self.recording.losses

    @property
    def running_losses(self) -> list[Episode]:
        """Losses of this kind that are still running. In a recording: those that run at its end."""
        recording = self.recording
        return self.session_losses if recording is None else recording.running_losses

    @property
    def ended(self) -> list[Episode]:
        """Ended episodes and `losses`, newest last. In a recording: all; in a live stream: the last
        MAX_LOG_EPISODES."""
        recording, detected, losses = self.recording, self._ended, self.losses
        if recording is None and not losses:
            return detected
        listed, until_ns = losses[:0], 0
        if recording is not None:
            listed, until_ns = recording.ended, recording.until_ns
            detected = [] if recording.is_complete else detected  # a complete recording has all
        state = len(listed), len(losses), until_ns, self.dropped_count, len(detected)
        if state != self._merged_episodes[0]:
            new_episodes = detected if recording is None else recording.missing_episodes(detected)
            episodes = sorted([*listed, *losses, *new_episodes], key=lambda e: e.end_ns or 0)
            self._merged_episodes = state, episodes
        return self._merged_episodes[1]

    @property
    def marks(self) -> list[Episode]:
        """The marks: episodes without CPUs and duration, which label a moment."""
        recording, detected = self.recording, self._marks
        if recording is None or recording.is_complete:
            return detected if recording is None else recording.marks
        marks = {(e.start_ns, str(e.evidence["label"])): e for e in (*detected, *recording.marks)}
        return sorted(marks.values(), key=attrgetter("start_ns"))

    @property
    def indexed_until_ns(self) -> int:
        """Raw time in ns up to which the pass has read the recording; 0 without a recording."""
        return 0 if self.recording is None else self.recording.until_ns

    def in_range(self, since_ns: int, until_ns: int) -> list[Episode]:
        """Returns the episodes that started by `until_ns` and did not end before `since_ns`: first
        the running ones, then the ended ones in the order of their ends."""
        running_episodes = [e for e in self.running if e.start_ns <= until_ns]
        recording = self.recording
        if recording is not None and recording.is_complete:
            return [*running_episodes, *recording.overlapping(since_ns, until_ns)]
        min_end_ns = since_ns - self._late_ns
        newest = takewhile(lambda e: (e.end_ns or 0) >= min_end_ns, reversed(self._ended))
        started = [e for e in newest if e.start_ns <= until_ns]
        ended_episodes = [e for e in reversed(started) if (e.end_ns or 0) > since_ns]
        if recording is not None:
            missing = recording.missing_episodes(ended_episodes)
            ended_episodes = [*recording.overlapping(since_ns, until_ns), *missing]
            ended_episodes.sort(key=lambda e: e.end_ns or 0)
        return [*running_episodes, *ended_episodes]

    def ended_since(self, cursor: int) -> tuple[list[Episode], int]:
        """Returns the episodes that ended since the call that returned `cursor` (0: all), and the
        cursor for the next call. Returns at most the newest MAX_LOG_EPISODES episodes."""
        new_episodes = self._ended[max(0, cursor - self.dropped_count) :]
        return new_episodes, self.dropped_count + len(self._ended)

    def add_ended(self, episodes: list[Episode]) -> None:
        if episodes:
            self._ended += episodes
            self.dropped_count += max(0, len(self._ended) - MAX_LOG_EPISODES)
            del self._ended[:-MAX_LOG_EPISODES]

    def add_loss(self, loss: Episode) -> None:
        """Adds an ended loss that no detector reports. It is listed and drawn, but `in_range` does
        not return it, as losses are not computed from it."""
        self._losses = [*self._losses, loss][-MAX_MARKS:]
        self._merged_episodes = None, []

    @property
    def listed_running(self) -> list[Episode]:
        """The running episodes and losses that no detector reports."""
        return [*self.running, *self.running_losses]

    def listed_in_range(self, since_ns: int, until_ns: int) -> list[Episode]:
        """Returns the episodes of `in_range`, and the losses of `add_loss` in the same span."""
        losses = (
            e
            for e in (*self.running_losses, *self.losses)
            if (e.end_ns is None or e.end_ns > since_ns) and e.start_ns <= until_ns
        )
        return [*self.in_range(since_ns, until_ns), *losses]

    def add_mark(self, at_ns: int, text: str) -> None:
        self._marks = [*self._marks, new_mark(at_ns, text)][-MAX_MARKS:]


class RecordingEpisodes:
    """The episodes, marks and losses that the pass over a recording has found so far."""

    def __init__(self, packages: Sequence[int | None] = ()) -> None:
        """`packages`: the package of each CPU."""
        self.ended: list[Episode] = []
        """Ended episodes in the order in which they were listed, nearly by their ends."""
        self.running: list[Episode] = []
        """Episodes that run at the end of the file; known once the pass is complete."""
        self.marks: list[Episode] = []
        self.losses: list[Episode] = []
        """Ended losses that no detector reports."""
        self.running_losses: list[Episode] = []
        """Losses of this kind that run at the end of the file."""
        self.loss_history = LossHistory(packages, is_whole=True)
        """The losses over time until `until_ns`."""
        self.until_ns = 0
        """Raw time in ns up to which the pass has read the recording."""
        self.is_complete = False
        self.omitted_count = 0
        """Number of episodes that were omitted because of MAX_EPISODES."""
        self._spans = np.zeros((2, 0), np.int64)
        """(2, episodes): starts and ends of the episodes in `ended`."""

    def add(self, episode: Episode, *, is_loss: bool = False) -> None:
        """Adds an episode, a mark or, with `is_loss`, a loss that no detector reports."""
        ended = self.losses if is_loss else self.ended
        running = self.running_losses if is_loss else self.running
        lists = self.marks, self.ended, self.running, self.losses, self.running_losses
        if sum(map(len, lists)) >= MAX_EPISODES:
            self.omitted_count += 1
        elif episode.kind == "mark":
            self.marks.append(episode)
        else:
            (running if episode.end_ns is None else ended).append(episode)

    def add_mark(self, mark: Episode) -> None:
        """Adds a mark that the user has just set, and that is not in the file."""
        self.marks = sorted([*self.marks, mark], key=attrgetter("start_ns"))

    def overlapping(self, since_ns: int, until_ns: int) -> list[Episode]:
        """Returns the ended episodes that started by `until_ns` and ended after `since_ns`, in the
        order of `ended`."""
        new_spans = [(e.start_ns, e.end_ns) for e in self.ended[self._spans.shape[1] :]]
        if new_spans:
            new_columns = np.array(new_spans, np.int64).reshape(-1, 2).T
            self._spans = np.concatenate([self._spans, new_columns], axis=1)
        starts, ends = self._spans
        return [self.ended[i] for i in np.flatnonzero((starts <= until_ns) & (ends > since_ns))]

    def missing_episodes(self, detected_episodes: Sequence[Episode]) -> list[Episode]:
        """Returns those of `detected_episodes` that the pass has not found, not even with a
        different start."""
        if self.is_complete:
            return []
        unlisted, listed_ns = [], self.until_ns - MAX_LISTING_DELAY_NS
        for episode in detected_episodes:
            end_ns = episode.start_ns if episode.end_ns is None else episode.end_ns
            if episode.end_ns is not None and end_ns <= listed_ns:
                continue
            same_episodes = (
                other.kind == episode.kind
                and (not other.cpus or not set(other.cpus).isdisjoint(episode.cpus))
                for other in self.overlapping(episode.start_ns, end_ns)
            )
            if not any(same_episodes):
                unlisted.append(episode)
        return unlisted


class EpisodeTally:
    """Counts the episodes of a run by kind and cause, and keeps the costliest one of each kind."""

    def __init__(self) -> None:
        self.counts_by_cause: dict[str, dict[str, int]] = {}
        self._worst_by_kind: dict[str, Episode] = {}

    def add(self, episode: Episode, now_ns: int) -> None:
        causes = self.counts_by_cause.setdefault(episode.kind, {})
        causes[episode.cause] = causes.get(episode.cause, 0) + 1
        worst_so_far = self._worst_by_kind.get(episode.kind)
        cost = episode.lost_s(now_ns), episode.depth or 0.0
        if worst_so_far is None or cost > (worst_so_far.lost_s(now_ns), worst_so_far.depth or 0.0):
            self._worst_by_kind[episode.kind] = episode

    def sole_episodes(self) -> list[Episode]:
        """Returns the episodes that are the only ones of their kind."""
        counts = {kind: sum(causes.values()) for kind, causes in self.counts_by_cause.items()}
        return [self._worst_by_kind[kind] for kind, count in counts.items() if count == 1]

    def worst_episodes(self) -> list[Episode]:
        """Returns the costliest episode of each kind that occurred several times."""
        counts = {kind: sum(causes.values()) for kind, causes in self.counts_by_cause.items()}
        worst = [self._worst_by_kind[kind] for kind, count in counts.items() if count > 1]
        return [episode for episode in worst if episode.depth is not None]


# --- Marks and warnings from notes, whose data are untrusted.


def new_mark(at_ns: int, text: str) -> Episode:
    return Episode("mark", [], at_ns, at_ns, cause="-", evidence={"label": text},
                   confidence=confidence("mark", "-"))  # fmt: skip


def mark_label(note: wire.Note) -> str | None:
    """Returns the label of the mark that a note sets; None if it sets none."""
    data = note.data
    match note.kind:
        case "mark":
            text = str(data.get("label", ""))
        case "run-start":
            argv = data.get("argv")
            text = RUN_STARTED + shlex.join(map(str, argv if isinstance(argv, list) else []))
        case "run-end":
            text = f"{RUN_ENDED}status {data.get('status')}"
        case "gap":
            text = gap_text(note)
        case _:
            return None
    return shorten_label(text)


def run_seconds(end: wire.Note, key: str) -> float:
    """Returns a time of a command that has ended; NaN if the untrusted note has no valid one."""
    value = end.data.get(key)
    return value if type(value) is float and 0 <= value < 1e12 else nan


def shorten_label(text: str) -> str:
    return text[:MAX_LABEL_LENGTH]


def next_mark_label(marks: Iterable[Episode]) -> str:
    """Returns the default label of a new mark."""
    automatic = RUN_STARTED, RUN_ENDED, SUSPENDED_TEXT, LINK_GAP_TEXT
    user_marks = [m for m in marks if not str(m.evidence["label"]).startswith(automatic)]
    return f"mark {len(user_marks) + 1}"


def gap_text(note: wire.Note) -> str:
    since_ns = note.data.get("since_ns")
    if not isinstance(since_ns, int) or not 0 <= since_ns <= note.time_ns:
        return f"{LINK_GAP_TEXT}some time"
    return f"{LINK_GAP_TEXT}{long_duration(note.time_ns - since_ns)}"


def warning_text(note: wire.Note) -> str:
    if note.kind == "gap":
        return f"{gap_text(note)}: {note.data.get('why')}"[:MAX_WARNING_LENGTH]
    return str(note.data.get("text", ""))[:MAX_WARNING_LENGTH]
